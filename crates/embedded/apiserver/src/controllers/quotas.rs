//! The quota controller: recounts `status.used` whenever an object of the namespace is changed or deleted.
//!
//! Admission adds what it lets in; only a recount sees what has gone, and heals what was miscounted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use quintet_api::Quantity;
use serde_json::{Value, json};

use super::queue::{self, Queue};
use crate::{
    admission::counted_by,
    api::Api,
    json,
    resources::bucket,
    status::Failure,
    store::{ChangeType, Event, Id, split_key},
    verbs::{RequestContext, update},
};

const QUOTAS: &str = "core/resourcequotas";

/// Follows every change, from the quotas that are there on.
pub(super) fn start(api: &Api) {
    let changes = api.store().tap();
    let quotas = api.store().objects(QUOTAS, "");
    let queue = Queue::new(quotas.iter().map(|(key, _)| namespace_of(key)));
    let (returned, ledger_api) = (queue.clone(), api.clone());
    api.spawn(async move {
        loop {
            ledger_api
                .ledger()
                .stale()
                .await
                .into_iter()
                .for_each(|namespace| returned.add(namespace.into()));
        }
    });
    let task_api = api.clone();
    queue::follow(api, changes, queue, note, move |namespace| {
        let api = task_api.clone();
        Box::pin(async move { recount(&api, &namespace).await })
    });
}

fn namespace_of(key: &str) -> Arc<str> {
    split_key(key).0.into()
}

fn note(queue: &Queue<Arc<str>>, bucket: &Arc<str>, event: &Arc<Event>) {
    // What is new was counted when it was admitted.
    if event.key.contains('/') && (event.change != ChangeType::Added || &**bucket == QUOTAS) {
        queue.add(namespace_of(&event.key));
    }
}

/// Counts what the quotas of a namespace are about.
async fn recount(api: &Api, namespace: &str) -> Result<(), Failure> {
    let prefix = format!("{namespace}/");
    let quotas = api.store().objects(QUOTAS, &prefix);
    let mut outcome = Ok(());
    for (key, _) in quotas {
        match count(api, namespace, split_key(&key).1).await {
            Err(failure) if failure.code() != 404 => outcome = Err(failure),
            _ => {}
        }
    }
    outcome
}

async fn count(api: &Api, namespace: &str, name: &str) -> Result<(), Failure> {
    let resource = api.built_in("", "resourcequotas")?;
    let context = RequestContext::internal(api, &resource, namespace, name).for_subresource("status");
    let _lock = api.ledger().lock_namespace(namespace).await;
    Box::pin(update::update(&context, false, update::Made::Changed, move |mut quota: Value| async move {
        let hard = quota.pointer("/spec/hard").and_then(Value::as_object).cloned().unwrap_or_default();
        let used = used(api, namespace, &quota, None);
        json::as_map(&mut quota).insert("status".into(), json!({ "hard": hard, "used": used }));
        Ok(quota)
    }))
    .await
    .map(drop)
}

/// What the objects of a namespace use of a quota, with those that are about to be stored, except one.
pub(crate) fn used(
    api: &Api,
    namespace: &str,
    quota: &Value,
    except: Option<&Id>,
) -> BTreeMap<String, String> {
    let hard = quota.pointer("/spec/hard").and_then(Value::as_object).into_iter().flatten();
    let mut totals: BTreeMap<String, Quantity> =
        hard.map(|(resource, _)| (resource.clone(), Quantity::default())).collect();
    let counted = totals.keys().filter_map(|resource| counted_by(resource));
    let buckets: BTreeSet<String> = counted.map(|(group, plural)| bucket(&group, &plural)).collect();
    let indexes = api.store().indexes();
    let mut add = |amounts: BTreeMap<String, Quantity>| {
        for (resource, amount) in amounts {
            if let Some(total) = totals.get_mut(&resource) {
                *total += amount;
            }
        }
    };
    // The first count of a namespace parses what is in it: not while the ledger is locked.
    drop(indexes.usage(namespace));
    let (stored, pending) = api.ledger().with_pending(
        namespace,
        || indexes.usage(namespace),
        |usage, bucket, key| {
            except.is_some_and(|(own_bucket, own_key)| **own_bucket == *bucket && **own_key == *key)
                || !buckets.contains(bucket)
                || usage.contains(namespace, bucket, key)
        },
    );
    add(stored.used(namespace, quota, &buckets));
    drop(stored);
    pending.into_iter().filter(|usage| usage.is_in_scope(quota)).for_each(|usage| add(usage.amounts));
    totals.into_iter().map(|(resource, total)| (resource, total.to_string())).collect()
}
