//! What the quotas of a namespace count, counted anew whenever something in it changes.
//!
//! Admission adds what it lets in at once; only a recount sees what has gone, and heals what was miscounted.

use std::collections::{BTreeMap, BTreeSet};

use quintet_api::Quantity;
use serde_json::{Value, json};

use crate::{
    admission::{counted_by, usage},
    api::Api,
    json,
    resources::bucket,
    status::Failure,
    store::split_key,
    verbs::{Ask, update},
};

const QUOTAS: &str = "core/resourcequotas";

/// Follows every change, from the quotas that are there on.
pub(super) fn start(api: &Api) {
    let mut changes = api.store().tap();
    let quotas = api.store().list(QUOTAS, "", None, None).map(|(entries, _)| entries).unwrap_or_default();
    let mut stale: BTreeSet<String> = quotas.iter().map(|(key, _)| split_key(key).0.to_owned()).collect();
    let task_api = api.clone();
    api.spawn(async move {
        loop {
            for namespace in std::mem::take(&mut stale) {
                recount(&task_api, &namespace).await;
            }
            let Some((_, event)) = changes.recv().await else { return };
            stale.insert(split_key(&event.key).0.to_owned());
            // What happened meanwhile is counted in the same go.
            while let Ok((_, event)) = changes.try_recv() {
                stale.insert(split_key(&event.key).0.to_owned());
            }
        }
    });
}

async fn recount(api: &Api, namespace: &str) {
    if namespace.is_empty() {
        return;
    }
    let prefix = format!("{namespace}/");
    let quotas =
        api.store().list(QUOTAS, &prefix, None, None).map(|(entries, _)| entries).unwrap_or_default();
    for (key, entry) in quotas {
        let quota: Value = serde_json::from_slice(&entry.body).unwrap_or_default();
        let name = split_key(&key).1;
        if let Err(failure) = count(api, namespace, name, &quota).await
            && failure.code() != 404
        {
            tracing::warn!("cannot count quota {key}: {failure}");
        }
    }
}

async fn count(api: &Api, namespace: &str, name: &str, quota: &Value) -> Result<(), Failure> {
    let hard = quota.pointer("/spec/hard").and_then(Value::as_object).cloned().unwrap_or_default();
    let used = used(api, namespace, hard.keys().map(String::as_str));
    let status = json!({ "hard": hard, "used": used });
    if quota.get("status") == Some(&status) {
        return Ok(());
    }
    let resource = api.built_in("", "resourcequotas")?;
    let ask = Ask::internal(api, &resource, namespace, name).below("status");
    let status = &status;
    Box::pin(update::update(&ask, false, update::Made::Changed, move |mut quota: Value| async move {
        json::as_map(&mut quota).insert("status".into(), status.clone());
        Ok(quota)
    }))
    .await
    .map(drop)
}

/// What the objects of a namespace use of some resources.
fn used<'a>(
    api: &Api,
    namespace: &str,
    resources: impl Iterator<Item = &'a str>,
) -> BTreeMap<String, String> {
    let mut totals: BTreeMap<String, Quantity> =
        resources.map(|resource| (resource.to_owned(), Quantity::default())).collect();
    let counted: BTreeSet<(String, String)> =
        totals.keys().filter_map(|resource| counted_by(resource)).collect();
    let prefix = format!("{namespace}/");
    for (group, plural) in counted {
        let listed = api.store().list(&bucket(&group, &plural), &prefix, None, None);
        for (_, entry) in listed.map(|(entries, _)| entries).unwrap_or_default() {
            let object: Value = serde_json::from_slice(&entry.body).unwrap_or_default();
            for (resource, amount) in usage(&group, &plural, &object) {
                if let Some(total) = totals.get_mut(&resource) {
                    *total += amount;
                }
            }
        }
    }
    totals.into_iter().map(|(resource, total)| (resource, total.to_string())).collect()
}
