//! Change: read, modify, check, store; again if somebody else was faster.

use std::{future::Future, sync::Arc};

use quintet_objects::{Path, error::FieldError};
use serde_json::{Value, json};

use super::{Ask, Shown, metadata};
use crate::{
    admission::{self, Operation},
    commit::Held,
    json::{self, text},
    model,
    status::Failure,
    store::{Entry, Write, WriteError},
};

/// Writers that lose a race this often in a row are told so.
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
pub(crate) async fn replace(ask: &Ask, object: Value) -> Result<(Shown, bool), Failure> {
    let mut object = object;
    metadata::require_name(ask, &object)?;
    metadata::settle(ask, &mut object)?;
    let exists = ask.api.store().get(&ask.resource.bucket, &ask.key()).is_some();
    let creates = ask.resource.as_built_in().is_some_and(|kind| kind.creates_on_update);
    if !exists && creates && ask.subresource.is_empty() {
        ask.check_may_create()?;
        json::metadata(&mut object).remove("resourceVersion");
        return super::create::create(ask, object).await.map(|shown| (shown, true));
    }
    if !exists {
        return Err(Failure::not_found(ask.named()));
    }
    if text(&object, "/metadata/resourceVersion").is_empty() && model::needs_resource_version(&ask.resource) {
        let error = FieldError::invalid(
            &Path::new("metadata").field("resourceVersion"),
            &json!(0),
            "must be specified for an update",
        );
        return Err(Failure::invalid(ask.named_kind(&ask.name), &[error]));
    }
    let object = &object;
    let shown = update(ask, true, Made::Changed, move |_| {
        let object = object.clone();
        async move { Ok(object) }
    })
    .await?;
    Ok((shown, false))
}

/// Changes an object by a function from its present state, until that is what gets stored. A resource
/// version in what the function returns must be the present one.
pub(crate) async fn update<F, R>(ask: &Ask, is_put: bool, made: Made, change: F) -> Result<Shown, Failure>
where
    F: Fn(Value) -> R,
    R: Future<Output = Result<Value, Failure>>,
{
    for _ in 0..ATTEMPTS {
        let entry = ask.entry()?;
        let old = ask.api.load(&ask.resource, &entry).await?;
        let new = change(old.clone()).await?;
        let asked = text(&new, "/metadata/resourceVersion").to_owned();
        let is_bound = !asked.is_empty() && (is_put || asked != text(&old, "/metadata/resourceVersion"));
        if !asked.is_empty() && asked != entry.rv.to_string() {
            if asked.parse::<u64>().is_err() {
                return Err(Failure::untyped(format!(
                    "strconv.ParseUint: parsing {asked:?}: invalid syntax"
                )));
            }
            return Err(Failure::modified(ask.named()));
        }
        match store_change(ask, &entry, &old, new, is_put, made).await? {
            Some(shown) => return Ok(shown),
            None if is_bound => return Err(Failure::modified(ask.named())),
            None => {}
        }
    }
    Err(Failure::modified(ask.named()))
}

/// Checks and stores one change; `None` if somebody else was faster.
async fn store_change(
    ask: &Ask,
    entry: &Arc<Entry>,
    old: &Value,
    mut new: Value,
    is_put: bool,
    made: Made,
) -> Result<Option<Shown>, Failure> {
    let resource = &ask.resource;
    check_uid(ask, old, &new, is_put)?;
    metadata::keep(old, &mut new);
    metadata::unite_owners(ask, &mut new);
    model::default(resource, &mut new);
    model::prepare_update(resource, &ask.subresource, &mut new, old);
    if made == Made::Changed {
        model::own(ask, &mut new, Some(old));
    }
    admission::mutate(ask, Operation::Update, &mut new, Some(old)).await?;
    metadata::keep(old, &mut new);
    model::prepare_update(resource, &ask.subresource, &mut new, old);
    let claim = admission::allocate(ask, &mut new, Some(old))?;
    model::count_generation(resource, &mut new, old);
    json::metadata(&mut new).insert("resourceVersion".into(), entry.rv.to_string().into());
    let errors = model::validate_update(ask, &new, old);
    if !errors.is_empty() {
        return Err(Failure::invalid(ask.named_kind(&ask.name), &errors));
    }
    admission::validate(ask, Operation::Update, Some(&new), Some(old)).await?;
    let key: Arc<str> = ask.key().into();
    let held = Held { claim, reservation: None };
    if metadata::is_finished(&new) && !model::holds_back(resource, &new) {
        if ask.options.is_dry_run {
            return Ok(Some(Shown::Value(new)));
        }
        let write = Write::remove(&resource.bucket, key, entry.rv);
        return match ask.api.commit(write, resource, &ask.name, held).await {
            Ok(_) => Ok(Some(Shown::Value(new))),
            Err((WriteError::Conflict, _)) => Ok(None),
            Err((error, _)) => Err(Failure::internal(error)),
        };
    }
    let put = ask.api.encode(resource, &new).await?;
    if put.body == entry.body && put.version == entry.version {
        return Ok(Some(Shown::Entry(Arc::clone(entry))));
    }
    if model::is_same(&new, old) && put.version == entry.version {
        return Ok(Some(Shown::Entry(Arc::clone(entry))));
    }
    if ask.options.is_dry_run {
        return Ok(Some(Shown::Value(new)));
    }
    let write = Write::replace(&resource.bucket, key, entry.rv, put);
    match ask.api.commit(write, resource, &ask.name, held).await {
        Ok(entry) => Ok(Some(Shown::Entry(entry))),
        Err((WriteError::Conflict, _)) => Ok(None),
        Err((error, _)) => Err(Failure::internal(error)),
    }
}

/// An update with another uid is meant for an object that is gone.
fn check_uid(ask: &Ask, old: &Value, new: &Value, is_put: bool) -> Result<(), Failure> {
    let (asked, found) = (text(new, "/metadata/uid"), text(old, "/metadata/uid"));
    if asked.is_empty() || asked == found {
        return Ok(());
    }
    if is_put {
        let group = &ask.resource.group;
        let place = if group.is_empty() { String::new() } else { format!("{group}/") };
        return Err(Failure::conflict(
            ask.named(),
            &format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{place}{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {asked}, UID in object meta: {found}",
                ask.resource.plural,
                ask.key()
            ),
        ));
    }
    let path = Path::new("metadata");
    let error = FieldError::invalid(&path.field("uid"), &json!(asked), "field is immutable");
    Err(Failure::invalid(ask.named_kind(&ask.name), &[error]))
}
