//! ControllerRevisions: the history of a workload's pod template.

use std::collections::BTreeMap;

use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use quintet_api::names::head;
use quintet_api::owners::controller_reference;
use quintet_controller::cache::{Entry, WatchSpec};
use quintet_controller::{Action, ApiKind, Step};
use serde_json::{Value, json};

use crate::{claim, template};

/// The label of a pod that names the revision it was made of.
pub(crate) const POD_REVISION: &str = "controller-revision-hash";
/// The label of a revision with its hash.
const HASH: &str = "controller.kubernetes.io/hash";
/// The longest prefix of a revision's name, as upstream's `ControllerRevisionName`.
const MAX_PREFIX: usize = 223;

type Revision = Entry<ControllerRevision>;

/// The watch that all controllers share.
pub(crate) fn watch() -> WatchSpec<ControllerRevision> {
    WatchSpec::typed().index(claim::BY_CONTROLLER, claim::index_by_controller)
}

/// The revision of the current template.
pub(crate) struct Update {
    pub(crate) name: String,
    pub(crate) hash: String,
    /// Creates it, or makes it the newest.
    pub(crate) step: Option<Step>,
}

/// The data of a revision: a patch that replaces the template.
fn data(template: &PodTemplateSpec) -> Value {
    let mut template = json!(template);
    template["$patch"] = "replace".into();
    json!({ "spec": { "template": template } })
}

/// The template of a revision.
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// The hash in the label of a revision.
pub(crate) fn hash_of(revision: &Revision) -> &str {
    let labels = revision.object.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(HASH)).map(String::as_str).unwrap_or_default()
}

/// Finds the revision of a template among those of its owner, or makes it.
pub(crate) fn update<K>(
    owner: &K,
    template: &PodTemplateSpec,
    collisions: Option<i32>,
    revisions: &[&Revision],
) -> Update
where
    K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta>,
{
    let data = data(template);
    let newest = revisions.iter().max_by_key(|revision| revision.object.revision);
    let next = newest.map_or(1, |newest| newest.object.revision + 1);
    let is_equal = |revision: &&&Revision| revision.object.data.as_ref().is_some_and(|known| known.0 == data);
    let equal = revisions.iter().filter(is_equal).max_by_key(|revision| revision.object.revision);
    if let Some(equal) = equal {
        let is_newest = newest.is_some_and(|newest| newest.key == equal.key);
        let patch = json!({ "metadata": { "uid": equal.uid }, "revision": next });
        let bump = Action::merge(ApiKind::of::<ControllerRevision>(), equal.key.clone(), patch);
        return Update {
            name: equal.key.name().to_owned(),
            hash: hash_of(equal).to_owned(),
            step: (!is_newest).then(|| bump.into()),
        };
    }
    let hash = template::hash(&data, collisions);
    let of_owner = owner.metadata();
    let name = format!("{}-{hash}", head(of_owner.name.as_deref().unwrap_or_default(), MAX_PREFIX));
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    let mut labels: BTreeMap<_, _> = labels.unwrap_or_default();
    labels.insert(HASH.to_owned(), hash.clone());
    let revision = ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: of_owner.namespace.clone(),
            labels: Some(labels),
            annotations: of_owner.annotations.clone(),
            owner_references: controller_reference(owner).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: next,
    };
    let step = Action::create(ApiKind::of::<ControllerRevision>(), &revision).into();
    Update { name, hash, step: Some(step) }
}

/// Deletes the oldest revisions beyond a limit, except those that are in use.
pub(crate) fn clean_up(
    revisions: &[&Revision],
    limit: Option<i32>,
    is_used: impl Fn(&Revision) -> bool,
) -> Vec<Step> {
    let mut unused: Vec<_> =
        revisions.iter().filter(|revision| !revision.deleting && !is_used(revision)).collect();
    unused.sort_by_key(|revision| revision.object.revision);
    let limit = usize::try_from(limit.unwrap_or(10)).unwrap_or_default();
    let excess = unused.len().saturating_sub(limit);
    let kind = ApiKind::of::<ControllerRevision>();
    unused.into_iter().take(excess).map(|revision| Action::delete(kind.clone(), revision).into()).collect()
}
