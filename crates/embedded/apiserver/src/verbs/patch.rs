//! Patches: JSON patch, merge patch, strategic merge patch, and server-side apply.

use serde_json::Value;

use super::{
    Output, RequestContext, create, metadata, scale,
    update::{self, Made},
};
use crate::{
    decode::{self, Yaml},
    json::{self, text},
    model,
    request::options::FieldValidation,
    status::Failure,
};

/// The kinds of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

const ALL_TYPES: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";
const CUSTOM_TYPES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl PatchType {
    pub(crate) fn of(content_type: &str, is_custom: bool) -> Result<Self, Failure> {
        match content_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !is_custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(Failure::unsupported_body(if is_custom { CUSTOM_TYPES } else { ALL_TYPES })),
        }
    }
}

/// Patches the object that the request names; whether it was created.
pub(crate) async fn patch(
    context: &RequestContext,
    kind: PatchType,
    body: &[u8],
) -> Result<(Output, bool), Failure> {
    check_options(context, kind)?;
    if kind == PatchType::Apply {
        let config = Yaml::parse(body)?;
        if context.subresource == "scale" {
            let shown = scale::change(context, false, |_| Ok(config.value.clone())).await?;
            return Ok((Output::Value(shown), false));
        }
        return apply(context, config).await;
    }
    let (patch, complaints) = &decode::patch_json(context, body)?;
    if context.subresource == "scale" {
        let shown = scale::change(context, false, |scale| {
            let mut scale = scale;
            edit(context, kind, &mut scale, patch)?;
            Ok(scale)
        })
        .await?;
        return Ok((Output::Value(shown), false));
    }
    let shown = update::update(context, false, Made::Changed, move |old: Value| async move {
        let mut new = old;
        edit(context, kind, &mut new, patch)?;
        check_identity(context, &new)?;
        decode::patched(context, &mut new, complaints.clone())?;
        Ok(new)
    })
    .await?;
    Ok((shown, false))
}

fn check_options(context: &RequestContext, kind: PatchType) -> Result<(), Failure> {
    let options = &context.options;
    if kind == PatchType::Apply {
        if options.field_manager.is_none() {
            let body = "Required value: is required for apply patch";
            return Err(Failure::invalid_options("PatchOptions", "fieldManager", body, "FieldValueRequired"));
        }
    } else if options.force.is_some() {
        let body = "Forbidden: may not be specified for non-apply patch";
        return Err(Failure::invalid_options("PatchOptions", "force", body, "FieldValueForbidden"));
    }
    Ok(())
}

/// Carries out a patch on an object.
fn edit(context: &RequestContext, kind: PatchType, object: &mut Value, patch: &Value) -> Result<(), Failure> {
    match kind {
        PatchType::Json => model::json_patch(object, patch),
        PatchType::Merge => {
            if !patch.is_object() {
                return Err(Failure::bad_request("the patch is no JSON object"));
            }
            model::merge_patch(object, patch);
            Ok(())
        }
        PatchType::Strategic => model::strategic_merge(&context.resource, object, patch),
        PatchType::Apply => Ok(()),
    }
}

/// A patch must not turn one object into another.
fn check_identity(context: &RequestContext, new: &Value) -> Result<(), Failure> {
    let name = text(new, "/metadata/name");
    if name != context.name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            context.name
        )));
    }
    if context.subresource != "scale"
        && let Err(found) = decode::check_type(&context.resource, new)
    {
        let body = format!("unable to decode {found} into {}", context.resource.kind);
        return Err(Failure::new(422, "Invalid", format!(" \"\" is invalid: patch: Invalid value: {body}")));
    }
    if context.resource.is_namespaced && text(new, "/metadata/namespace") != context.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Server-side apply: creates what is not there, merges into what is.
async fn apply(context: &RequestContext, config: Yaml) -> Result<(Output, bool), Failure> {
    let duplicates =
        config.duplicate_keys().filter(|_| context.options.field_validation == FieldValidation::Strict);
    let check_strictly = || match &duplicates {
        // After the schema, as applyPatchToCurrentObject of kube-apiserver does.
        Some(text) => Err(Failure::bad_request(format!("error strict decoding YAML: {text}"))),
        None => Ok(()),
    };
    let mut config = config.value;
    decode::check_type(&context.resource, &config)
        .map_err(|found| Failure::bad_request(format!("invalid object type: {found}")))?;
    if config.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let has_name = metadata::require_name(context, &config);
    let names_namespace = !text(&config, "/metadata/namespace").is_empty();
    metadata::bind_to_url(context, &mut config)?;
    // Errors show the configuration as it was sent; the object gets its namespace from the URL.
    if !names_namespace {
        json::metadata(&mut config).remove("namespace");
    }
    let is_there = context.api.store().get(&context.resource.bucket, &context.key()).is_some();
    if !is_there {
        if !context.subresource.is_empty() {
            return Err(Failure::not_found(context.named()));
        }
        has_name?;
        if !text(&config, "/metadata/uid").is_empty() {
            return Err(Failure::conflict(
                context.named(),
                "uid mismatch: the provided object specified uid, and no existing object was found",
            ));
        }
        let mut object = model::apply(context, None, &config)?;
        check_strictly()?;
        drop(config);
        model::fit_applied(context, &mut object)?;
        metadata::bind_to_url(context, &mut object)?;
        metadata::clear_server_fields(&mut object);
        model::default(&context.resource, &mut object);
        return create::store_new(context, object).await.map(|shown| (shown, true));
    }
    let (config, check_strictly) = (&config, &check_strictly);
    let shown = update::update(context, false, Made::Applied, move |old: Value| async move {
        let mut new = model::apply(context, Some(&old), config)?;
        check_strictly()?;
        model::fit_applied(context, &mut new)?;
        let asked = text(config, "/metadata/resourceVersion");
        let rv = if asked.is_empty() { text(&old, "/metadata/resourceVersion") } else { asked };
        json::metadata(&mut new).insert("resourceVersion".into(), rv.into());
        Ok(new)
    })
    .await?;
    Ok((shown, false))
}
