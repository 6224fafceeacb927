//! Delete: at once, or graceful where finalizers or a grace period require it.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use super::{Output, RequestContext, filter::Filter, metadata};
use crate::{
    admission::{self, Operation},
    commit::Held,
    json::{self, text, timestamp},
    model,
    request::options::{DeleteOptions, ListOptions, Propagation},
    status::{self, Failure, Named},
    store::{Write, WriteError, split_key},
};

const ATTEMPTS: usize = 50;
/// Objects of a collection that are deleted at the same time, so that they share the way to the disk.
const AT_A_TIME: usize = 32;
/// Holds an object until its dependents are orphaned.
pub(crate) const ORPHAN: &str = "orphan";
/// Holds an object until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Deletes the object that the request names.
pub(crate) async fn delete(context: &RequestContext, options: &DeleteOptions) -> Result<Output, Failure> {
    let resource = &context.resource;
    for _ in 0..ATTEMPTS {
        let entry = context.entry()?;
        let old = context.api.load(resource, &entry).await?;
        check_preconditions(context, &old, options)?;
        admission::mutate_deletion(context, options, &old).await?;
        admission::validate(context, Operation::Delete(options), None, Some(&old)).await?;
        let mut new = old.clone();
        set_propagation(context, &mut new, options);
        let grace = grace_period(context, &old, options);
        let is_first = !metadata::is_terminating(&old);
        if is_first {
            model::hold_back(resource, &mut new);
        }
        let is_held = !metadata::finalizers(&new).is_empty() || model::holds_back(resource, &new);
        let key: Arc<str> = context.key().into();
        if grace == 0 && !is_held {
            if options.is_dry_run {
                return Ok(deleted_response(context, old));
            }
            let write = Write::remove(&resource.bucket, key, entry.rv);
            match context.api.commit(write, resource, &context.name, Held::default()).await {
                Ok(_) => return Ok(deleted_response(context, old)),
                Err((WriteError::Conflict, _)) => continue,
                Err((error, _)) => return Err(error.into()),
            }
        }
        let shown_grace = old.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
        if is_first {
            let ends = later(context, grace)?;
            let metadata = json::metadata(&mut new);
            metadata.insert("deletionTimestamp".into(), timestamp(ends).into());
            metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
            model::bump_generation(resource, &mut new);
            model::mark_terminating(resource, &mut new);
        } else if shown_grace.is_some_and(|shown| grace < shown) {
            let metadata = json::metadata(&mut new);
            let ends = later(context, grace)?;
            metadata.insert("deletionTimestamp".into(), timestamp(ends).into());
            metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        }
        if new == old {
            return Ok(Output::Entry(entry));
        }
        if options.is_dry_run {
            return Ok(Output::Value(new));
        }
        let put = context.api.encode(resource, &new).await?;
        let write = Write::replace(&resource.bucket, key, entry.rv, put);
        match context.api.commit(write, resource, &context.name, Held::default()).await {
            Ok(entry) => return Ok(Output::Entry(entry)),
            Err((WriteError::Conflict, _)) => {}
            Err((error, _)) => return Err(error.into()),
        }
    }
    Err(Failure::modified(context.named()))
}

/// Deletes the objects that a list would return, and returns them.
pub(crate) async fn delete_collection(
    context: &RequestContext,
    list: &ListOptions,
    options: &DeleteOptions,
) -> Result<Vec<Value>, Failure> {
    let namespace = Some(context.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let filter = Filter::new(&context.resource, namespace, list)?;
    let entries = context.api.store().objects(&context.resource.bucket, &filter.prefix);
    let limit = list.limit.unwrap_or(usize::MAX);
    let mut wanted = Vec::new();
    for (key, entry) in entries {
        if wanted.len() < limit && filter.matches(&context.api, &context.resource, &key, &entry).await? {
            wanted.push((key, entry));
        }
    }
    let deletions = wanted.into_iter().map(|(key, entry)| async move {
        let (namespace, name) = split_key(&key);
        let one =
            RequestContext { namespace: namespace.to_owned(), name: name.to_owned(), ..context.clone() };
        let last = context.api.load(&context.resource, &entry).await?;
        match delete(&one, options).await {
            Err(failure) if failure.code() != 404 => Err(failure),
            _ => Ok(last),
        }
    });
    stream::iter(deletions).buffered(AT_A_TIME).try_collect().await
}

pub(super) fn check_preconditions(
    context: &RequestContext,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), Failure> {
    let named =
        Named { group: &context.resource.group, resource: &context.resource.kind, name: &context.name };
    let uid = text(old, "/metadata/uid");
    if let Some(wanted) = options.uid.as_deref()
        && wanted != uid
    {
        return Err(Failure::conflict(
            named,
            &format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ),
        ));
    }
    let rv = text(old, "/metadata/resourceVersion");
    if let Some(wanted) = options.resource_version.as_deref()
        && wanted != rv
    {
        return Err(Failure::conflict(
            named,
            &format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({rv}). The object might have been modified"
            ),
        ));
    }
    Ok(())
}

/// Adds or removes the finalizers that make the garbage collector wait or orphan.
fn set_propagation(context: &RequestContext, object: &mut Value, options: &DeleteOptions) {
    let is_terminating = metadata::is_terminating(object);
    let has = |wanted: &str| metadata::finalizers(object).contains(&wanted);
    let orphans_by_default = context.resource.as_built_in().is_some_and(|kind| kind.orphans_by_default);
    let propagation = match options.propagation {
        Some(propagation) => propagation,
        None if has(ORPHAN) => Propagation::Orphan,
        None if has(FOREGROUND) => Propagation::Foreground,
        None if orphans_by_default && !is_terminating => Propagation::Orphan,
        None if is_terminating => return,
        None => Propagation::Background,
    };
    let wanted = match propagation {
        Propagation::Orphan => Some(ORPHAN),
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Background => None,
    };
    let mut finalizers: Vec<Value> = metadata::finalizers(object)
        .into_iter()
        .filter(|f| *f != ORPHAN && *f != FOREGROUND)
        .map(Value::from)
        .collect();
    finalizers.extend(wanted.map(Value::from));
    if finalizers.is_empty() {
        json::metadata(object).remove("finalizers");
    } else {
        json::metadata(object).insert("finalizers".into(), finalizers.into());
    }
}

/// The time after so many seconds.
fn later(context: &RequestContext, seconds: i64) -> Result<jiff::Timestamp, Failure> {
    context
        .now
        .checked_add(jiff::SignedDuration::from_secs(seconds))
        .map_err(|_| Failure::bad_request(format!("a grace period of {seconds} seconds has no end")))
}

/// Seconds the object gets: only pods that run somewhere get any.
fn grace_period(context: &RequestContext, old: &Value, options: &DeleteOptions) -> i64 {
    if !context.resource.is("", "pods") {
        return 0;
    }
    let is_unscheduled = text(old, "/spec/nodeName").is_empty();
    let is_done = matches!(text(old, "/status/phase"), "Succeeded" | "Failed");
    if let Some(shown) = old.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64) {
        return options.grace_period.map_or(shown, |asked| asked_grace(asked).min(shown));
    }
    let spec = old.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    if is_unscheduled || is_done {
        return 0;
    }
    asked_grace(options.grace_period.unwrap_or(spec))
}

/// A negative period is the shortest there is.
fn asked_grace(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// The response to a completed deletion.
fn deleted_response(context: &RequestContext, old: Value) -> Output {
    if context.resource.as_built_in().is_some_and(|kind| kind.returns_deleted) {
        return Output::Value(old);
    }
    Output::Value(status::deleted(context.named(), text(&old, "/metadata/uid")))
}
