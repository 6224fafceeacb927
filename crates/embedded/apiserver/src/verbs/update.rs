//! Change: read, modify, check, store; again if another writer was faster.

use std::{future::Future, sync::Arc};

use quintet_objects::{Path, error::FieldError};
use serde_json::{Value, json};

use super::{Output, RequestContext, metadata};
use crate::{
    admission::{self, Operation},
    auth::rbac,
    commit::Held,
    json::{self, text},
    model,
    status::Failure,
    store::{Entry, Write, WriteError},
};

/// Attempts before a conflict is returned to the client.
const ATTEMPTS: usize = 50;

/// How the new object was made, which decides who owns its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// Written as a whole or patched: field owners follow from the difference.
    Changed,
    /// By server-side apply: field owners are already in the object.
    Applied,
}

/// Replaces an object by what the client sent.
pub(crate) async fn replace(context: &RequestContext, object: Value) -> Result<(Output, bool), Failure> {
    let mut object = object;
    metadata::require_name(context, &object)?;
    metadata::bind_to_url(context, &mut object)?;
    let exists = context.api.store().get(&context.resource.bucket, &context.key()).is_some();
    let creates = context.resource.as_built_in().is_some_and(|kind| kind.creates_on_update);
    if !exists && creates && context.subresource.is_empty() {
        json::metadata(&mut object).remove("resourceVersion");
        return super::create::create(context, object).await.map(|shown| (shown, true));
    }
    if !exists {
        return Err(Failure::not_found(context.named()));
    }
    if text(&object, "/metadata/resourceVersion").is_empty()
        && model::needs_resource_version(&context.resource)
    {
        let error = FieldError::invalid(
            &Path::new("metadata").field("resourceVersion"),
            &json!(0),
            "must be specified for an update",
        );
        return Err(Failure::invalid(context.named_kind(&context.name), &[error]));
    }
    let object = &object;
    let shown = update(context, true, Made::Changed, move |_| {
        let object = object.clone();
        async move { Ok(object) }
    })
    .await?;
    Ok((shown, false))
}

/// Changes an object by a function from its present state, until that is what gets stored. A resource
/// version in what the function returns must be the present one.
pub(crate) async fn update<F, R>(
    context: &RequestContext,
    is_put: bool,
    made: Made,
    change: F,
) -> Result<Output, Failure>
where
    F: Fn(Value) -> R,
    R: Future<Output = Result<Value, Failure>>,
{
    for _ in 0..ATTEMPTS {
        let entry = context.entry()?;
        let old = context.api.load(&context.resource, &entry).await?;
        let new = change(old.clone()).await?;
        let asked = text(&new, "/metadata/resourceVersion").to_owned();
        let is_bound = !asked.is_empty() && (is_put || asked != text(&old, "/metadata/resourceVersion"));
        if !asked.is_empty() && asked != entry.rv.to_string() {
            if asked.parse::<u64>().is_err() {
                return Err(Failure::untyped(format!(
                    "strconv.ParseUint: parsing {asked:?}: invalid syntax"
                )));
            }
            return Err(Failure::modified(context.named()));
        }
        match store_change(context, &entry, &old, new, is_put, made).await? {
            Some(shown) => return Ok(shown),
            None if is_bound => return Err(Failure::modified(context.named())),
            None => {}
        }
    }
    Err(Failure::modified(context.named()))
}

/// Checks and stores one change; `None` if another writer was faster.
async fn store_change(
    context: &RequestContext,
    entry: &Arc<Entry>,
    old: &Value,
    mut new: Value,
    is_put: bool,
    made: Made,
) -> Result<Option<Output>, Failure> {
    let resource = &context.resource;
    check_uid(context, old, &new, is_put)?;
    metadata::keep(old, &mut new);
    metadata::deduplicate_owners(context, &mut new);
    model::default(resource, &mut new);
    model::prepare_update(resource, &context.subresource, &mut new, old);
    if made == Made::Changed {
        model::own(context, &mut new, Some(old));
    }
    admission::mutate(context, Operation::Update, &mut new, Some(old)).await?;
    rbac::check_escalation(context, &new, Some(old))?;
    metadata::keep(old, &mut new);
    model::prepare_update(resource, &context.subresource, &mut new, old);
    let claim = admission::allocate(context, &mut new, Some(old))?;
    model::count_generation(resource, &mut new, old);
    json::metadata(&mut new).insert("resourceVersion".into(), entry.rv.to_string().into());
    let errors = model::validate_update(context, &new, old);
    if !errors.is_empty() {
        return Err(Failure::invalid(context.named_kind(&context.name), &errors));
    }
    admission::validate(context, Operation::Update, Some(&new), Some(old)).await?;
    let key: Arc<str> = context.key().into();
    let held = Held { claim, reservation: None };
    if metadata::is_finished(&new) && !model::holds_back(resource, &new) {
        if context.options.is_dry_run {
            return Ok(Some(Output::Value(new)));
        }
        let write = Write::remove(&resource.bucket, key, entry.rv);
        return match context.api.commit(write, resource, &context.name, held).await {
            Ok(_) => Ok(Some(Output::Value(new))),
            Err((WriteError::Conflict, _)) => Ok(None),
            Err((error, _)) => Err(error.into()),
        };
    }
    let put = context.api.encode(resource, &new).await?;
    if put.body == entry.body && put.version == entry.version {
        return Ok(Some(Output::Entry(Arc::clone(entry))));
    }
    if model::is_same(&new, old) && put.version == entry.version {
        return Ok(Some(Output::Entry(Arc::clone(entry))));
    }
    if context.options.is_dry_run {
        return Ok(Some(Output::Value(new)));
    }
    let write = Write::replace(&resource.bucket, key, entry.rv, put);
    match context.api.commit(write, resource, &context.name, held).await {
        Ok(entry) => Ok(Some(Output::Entry(entry))),
        Err((WriteError::Conflict, _)) => Ok(None),
        Err((error, _)) => Err(error.into()),
    }
}

/// An update with another uid is meant for an object that is gone.
fn check_uid(context: &RequestContext, old: &Value, new: &Value, is_put: bool) -> Result<(), Failure> {
    let (asked, found) = (text(new, "/metadata/uid"), text(old, "/metadata/uid"));
    if asked.is_empty() || asked == found {
        return Ok(());
    }
    if is_put {
        let group = &context.resource.group;
        let prefix = if group.is_empty() { String::new() } else { format!("{group}/") };
        return Err(Failure::conflict(
            context.named(),
            &format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{prefix}{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {asked}, UID in object meta: {found}",
                context.resource.plural,
                context.key()
            ),
        ));
    }
    let path = Path::new("metadata");
    let error = FieldError::invalid(&path.field("uid"), &json!(asked), "field is immutable");
    Err(Failure::invalid(context.named_kind(&context.name), &[error]))
}
