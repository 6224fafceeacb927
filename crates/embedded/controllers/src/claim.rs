//! Claims: which children a controller owns, adopts and releases, by controller reference and selector.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use quintet_api::selector::Selector;
use quintet_controller::api::PatchKind;
use quintet_controller::cache::{Cache, Entry};
use quintet_controller::object::Uid;
use quintet_controller::{Action, ApiKind, Error, ObjectKey, Step};
use serde_json::{Value, json};

/// The index of objects by the uid of their controller; those without one are under [`orphans_of`] their namespace.
pub(crate) const BY_CONTROLLER: &str = "controller";
/// The index of objects by namespace.
pub(crate) const BY_NAMESPACE: &str = "namespace";

/// An object that a controller may own.
pub(crate) trait Claimable {
    /// Its labels.
    fn labels(&self) -> Option<&BTreeMap<String, String>>;
    /// Its owners.
    fn owner_references(&self) -> &[OwnerReference];

    /// Its controller; there is at most one.
    fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references().iter().find(|owner| owner.controller == Some(true))
    }
}

impl<T: k8s_openapi::Metadata<Ty = ObjectMeta>> Claimable for T {
    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata().labels.as_ref()
    }

    fn owner_references(&self) -> &[OwnerReference] {
        self.metadata().owner_references.as_deref().unwrap_or_default()
    }
}

/// The key of [`BY_CONTROLLER`] for objects of a namespace that have no controller.
fn orphans_of(namespace: &str) -> String {
    format!("orphans/{namespace}")
}

/// The keys of [`BY_CONTROLLER`].
pub(crate) fn index_by_controller<T: Claimable>(entry: &Entry<T>) -> Vec<String> {
    let orphan = || orphans_of(entry.key.namespace().unwrap_or_default());
    vec![entry.object.controller().map_or_else(orphan, |owner| owner.uid.clone())]
}

/// The keys of [`BY_NAMESPACE`].
pub(crate) fn index_by_namespace<T>(entry: &Entry<T>) -> Vec<String> {
    entry.key.namespace().map(str::to_owned).into_iter().collect()
}

/// The roots of a kind that a child belongs to: its controller, or those that may adopt it.
pub(crate) fn roots_of<T, R>(
    child: &Entry<T>,
    kind: &ApiKind,
    roots: &Cache<R>,
    selector: fn(&R) -> Option<Selector>,
) -> Vec<ObjectKey>
where
    T: Claimable,
    R: Send + Sync + 'static,
{
    let namespace = child.key.namespace().unwrap_or_default();
    match child.object.controller() {
        Some(owner) if is_kind(owner, kind) => vec![ObjectKey::new(namespace, &owner.name)],
        Some(_) => Vec::new(),
        None => {
            let nothing = BTreeMap::new();
            let labels = child.object.labels().unwrap_or(&nothing);
            let selects = |root: &R| selector(root).is_some_and(|selector| selector.matches(labels));
            let found = roots.by_index(BY_NAMESPACE, namespace);
            found.iter().filter(|root| selects(&root.object)).map(|root| root.key.clone()).collect()
        }
    }
}

/// Whether a reference is to an object of a kind, in whatever version.
pub(crate) fn is_kind(owner: &OwnerReference, kind: &ApiKind) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    owner.kind == kind.kind && group == kind.group
}

/// A selector of a workload; `None` if it is invalid or selects everything, which no workload may.
pub(crate) fn selector(selector: &LabelSelector) -> Option<Selector> {
    Selector::try_from(selector).ok().filter(|selector| !selector.selects_all())
}

/// Reads the children of a root, and those objects of its namespace without a controller that it may adopt. Adoption needs an uncached read, which takes place only if there is an orphan that
/// matches.
pub(crate) async fn candidates<T, R>(
    children: &Cache<T>,
    root: &Entry<R>,
    root_kind: &ApiKind,
    selector: Option<&Selector>,
    api: &quintet_controller::api::Api,
) -> Result<Vec<Arc<Entry<T>>>, Error>
where
    T: Claimable + Send + Sync + 'static,
{
    let mut objects = children.by_index(BY_CONTROLLER, root.uid.as_str());
    let namespace = root.key.namespace().unwrap_or_default();
    let matches = |child: &Arc<Entry<T>>| {
        let labels = child.object.labels();
        !child.deleting && labels.is_some_and(|labels| selector.is_some_and(|all| all.matches(labels)))
    };
    let orphans: Vec<_> =
        children.by_index(BY_CONTROLLER, &orphans_of(namespace)).into_iter().filter(matches).collect();
    if !orphans.is_empty() && !root.deleting && exists(api, root_kind, root).await? {
        objects.extend(orphans);
    }
    Ok(objects)
}

/// Whether an uncached read shows the same incarnation, not being deleted.
async fn exists<R>(
    api: &quintet_controller::api::Api,
    kind: &ApiKind,
    root: &Entry<R>,
) -> Result<bool, Error> {
    let Some(text) = api.get(kind, &root.key).await? else { return Ok(false) };
    let live: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let is_deleting = live.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
    Ok(live.pointer("/metadata/uid").and_then(Value::as_str) == Some(root.uid.as_str()) && !is_deleting)
}

/// The children of a root, and the patches that make them so.
pub(crate) struct Claimed<'a, T> {
    /// Owned, or adopted by `steps`.
    pub owned: Vec<&'a Entry<T>>,
    /// Adoptions and releases.
    pub steps: Vec<Step>,
}

/// Claims children: keeps those that match, releases those that do not, adopts orphans that match. An owner that is
/// being deleted neither adopts nor releases.
pub(crate) fn claim<'a, T: Claimable>(
    owner: &OwnerReference,
    is_deleting: bool,
    selector: Option<&Selector>,
    kind: &ApiKind,
    candidates: &'a [Arc<Entry<T>>],
) -> Claimed<'a, T> {
    let mut claimed = Claimed { owned: Vec::new(), steps: Vec::new() };
    let nothing = BTreeMap::new();
    for child in candidates {
        let matches = selector.is_some_and(|all| all.matches(child.object.labels().unwrap_or(&nothing)));
        match child.object.controller() {
            Some(controller) if controller.uid != owner.uid => {}
            Some(_) if matches || is_deleting => claimed.owned.push(child),
            Some(_) => claimed.steps.push(patch_owners(
                kind,
                child,
                &json!({ "$patch": "delete", "uid": owner.uid }),
            )),
            None if matches && !is_deleting && !child.deleting => {
                claimed.steps.push(patch_owners(kind, child, &json!(owner)));
                claimed.owned.push(child);
            }
            None => {}
        }
    }
    claimed
}

fn patch_owners<T>(kind: &ApiKind, child: &Entry<T>, reference: &Value) -> Step {
    patch_metadata(kind, &child.key, &child.uid, &json!({ "ownerReferences": [reference] }))
}

/// A patch of an object's metadata that applies to this incarnation only and merges lists by their keys.
pub(crate) fn patch_metadata(kind: &ApiKind, key: &ObjectKey, uid: &Uid, metadata: &Value) -> Step {
    let mut patch = json!({ "metadata": metadata });
    patch["metadata"]["uid"] = json!(uid);
    let (kind, key, patch_kind) = (kind.clone(), key.clone(), PatchKind::Strategic);
    Action::Patch { kind, key, subresource: None, patch_kind, patch }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::PodView;
    use k8s_openapi::api::core::v1::Pod;

    fn owner(uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "web".into(),
            uid: uid.into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    fn pod(name: &str, app: &str, controller: Option<&str>) -> Arc<Entry<PodView>> {
        let mut pod = PodView::default();
        pod.metadata.labels.insert("app".into(), app.into());
        pod.metadata.owner_references.extend(controller.map(owner));
        Arc::new(Entry::new(ObjectKey::new("ns", name), pod))
    }

    #[test]
    fn children_are_kept_released_adopted_or_ignored() {
        let selector: Selector = "app=web".parse().unwrap();
        let pods = [
            pod("kept", "web", Some("me")),
            pod("released", "other", Some("me")),
            pod("adopted", "web", None),
            pod("foreign", "web", Some("you")),
            pod("unrelated", "other", None),
        ];
        let kind = ApiKind::of::<Pod>();
        let claimed = claim(&owner("me"), false, Some(&selector), &kind, &pods);
        let names = |claimed: &Claimed<'_, PodView>| -> Vec<String> {
            claimed.owned.iter().map(|pod| pod.key.name().to_owned()).collect()
        };
        assert_eq!(names(&claimed), ["kept", "adopted"]);
        let patched: Vec<_> = claimed.steps.iter().filter_map(|step| step.action.target()).collect();
        assert_eq!(patched, [ObjectKey::new("ns", "released"), ObjectKey::new("ns", "adopted")]);
        let claimed = claim(&owner("me"), true, Some(&selector), &kind, &pods);
        assert_eq!(names(&claimed), ["kept", "released"], "a deleting owner changes no references");
        assert!(claimed.steps.is_empty());
    }
}
