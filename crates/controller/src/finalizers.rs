//! Finalizers, changed one at a time and only on the observed state.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::{
    cache::Entry,
    object::{ApiKind, Scoped},
    plan::Action,
};

/// Adds a finalizer; `None` if it is there.
pub fn add<T, C>(entry: &Entry<T>, metadata: &ObjectMeta, finalizer: &str) -> Option<Action<C>>
where
    T: kube::Resource<DynamicType = ()>,
    T::Scope: Scoped,
{
    let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|other| other == finalizer) {
        return None;
    }
    finalizers.push(finalizer.to_owned());
    Some(set(entry, &finalizers))
}

/// Removes a finalizer; `None` if it is not there.
pub fn remove<T, C>(entry: &Entry<T>, metadata: &ObjectMeta, finalizer: &str) -> Option<Action<C>>
where
    T: kube::Resource<DynamicType = ()>,
    T::Scope: Scoped,
{
    let before = metadata.finalizers.clone().unwrap_or_default();
    let after: Vec<_> = before.iter().filter(|other| *other != finalizer).cloned().collect();
    (after.len() < before.len()).then(|| set(entry, &after))
}

fn set<T, C>(entry: &Entry<T>, finalizers: &[String]) -> Action<C>
where
    T: kube::Resource<DynamicType = ()>,
    T::Scope: Scoped,
{
    let patch = json!({
        "metadata": { "resourceVersion": entry.version.to_string(), "finalizers": finalizers },
    });
    Action::merge(ApiKind::of::<T>(), entry.key.clone(), patch)
}
