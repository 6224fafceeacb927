//! Patches: JSON patch, merge patch, strategic merge patch, and server-side apply.

use serde_json::Value;

use super::{
    Ask, Shown, create, metadata, scale,
    update::{self, Made},
};
use crate::{decode, json::text, model, status::Failure};

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
pub(crate) async fn patch(ask: &Ask, kind: PatchType, body: &[u8]) -> Result<(Shown, bool), Failure> {
    check_options(ask, kind)?;
    let patch = if kind == PatchType::Apply { decode::yaml(body)? } else { decode::patch_json(body)? };
    if kind == PatchType::Apply {
        if ask.subresource == "scale" {
            let shown = scale::change(ask, false, |_| Ok(patch.clone())).await?;
            return Ok((Shown::Value(shown), false));
        }
        return apply(ask, patch).await;
    }
    let patch = &patch;
    if ask.subresource == "scale" {
        let shown = scale::change(ask, false, |scale| {
            let mut scale = scale;
            edit(ask, kind, &mut scale, patch)?;
            Ok(scale)
        })
        .await?;
        return Ok((Shown::Value(shown), false));
    }
    let shown = update::update(ask, false, Made::Changed, move |old: Value| async move {
        let mut new = old;
        edit(ask, kind, &mut new, patch)?;
        check_identity(ask, &new)?;
        decode::patched(ask, &mut new)?;
        Ok(new)
    })
    .await?;
    Ok((shown, false))
}

fn check_options(ask: &Ask, kind: PatchType) -> Result<(), Failure> {
    let options = &ask.options;
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
fn edit(ask: &Ask, kind: PatchType, object: &mut Value, patch: &Value) -> Result<(), Failure> {
    match kind {
        PatchType::Json => model::json_patch(object, patch),
        PatchType::Merge => {
            if !patch.is_object() {
                return Err(Failure::bad_request("the patch is no JSON object"));
            }
            model::merge_patch(object, patch);
            Ok(())
        }
        PatchType::Strategic => model::strategic_merge(&ask.resource, object, patch),
        PatchType::Apply => Ok(()),
    }
}

/// A patch must not turn one object into another.
fn check_identity(ask: &Ask, new: &Value) -> Result<(), Failure> {
    let name = text(new, "/metadata/name");
    if name != ask.name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            ask.name
        )));
    }
    if ask.subresource != "scale"
        && let Err(found) = decode::check_type(&ask.resource, new)
    {
        let body = format!("unable to decode {found} into {}", ask.resource.kind);
        return Err(Failure::new(422, "Invalid", format!(" \"\" is invalid: patch: Invalid value: {body}")));
    }
    if ask.resource.is_namespaced && text(new, "/metadata/namespace") != ask.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Server-side apply: creates what is not there, merges into what is.
async fn apply(ask: &Ask, mut config: Value) -> Result<(Shown, bool), Failure> {
    decode::check_type(&ask.resource, &config)
        .map_err(|found| Failure::bad_request(format!("invalid object type: {found}")))?;
    if config.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let has_name = metadata::require_name(ask, &config);
    metadata::settle(ask, &mut config)?;
    let is_there = ask.api.store().get(&ask.resource.bucket, &ask.key()).is_some();
    if !is_there {
        if !ask.subresource.is_empty() {
            return Err(Failure::not_found(ask.named()));
        }
        has_name?;
        if !text(&config, "/metadata/uid").is_empty() {
            return Err(Failure::conflict(
                ask.named(),
                "uid mismatch: the provided object specified uid, and no existing object was found",
            ));
        }
        ask.check_may_create()?;
        let mut object = model::apply(ask, None, &config)?;
        drop(config);
        model::fit_applied(ask, &mut object)?;
        metadata::settle(ask, &mut object)?;
        metadata::wipe(&mut object);
        model::default(&ask.resource, &mut object);
        return create::store_new(ask, object).await.map(|shown| (shown, true));
    }
    let config = &config;
    let shown = update::update(ask, false, Made::Applied, move |old: Value| async move {
        let mut new = model::apply(ask, Some(&old), config)?;
        model::fit_applied(ask, &mut new)?;
        let asked = text(config, "/metadata/resourceVersion");
        let rv = if asked.is_empty() { text(&old, "/metadata/resourceVersion") } else { asked };
        crate::json::metadata(&mut new).insert("resourceVersion".into(), rv.into());
        Ok(new)
    })
    .await?;
    Ok((shown, false))
}
