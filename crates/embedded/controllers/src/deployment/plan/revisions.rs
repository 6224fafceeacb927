//! The new ReplicaSet of a Deployment, and the revisions of all.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use quintet_api::names::{MAX_SUBDOMAIN, head};
use quintet_api::owners::controller_reference;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Step};
use serde_json::{Value, json};

use super::super::labels;
use super::replicas::Bounds;
use super::{Rollout, replicas_of, scaling_event};
use crate::template;

/// The longest list of former revisions, as upstream's `maxRevHistoryLengthInChars`.
const MAX_HISTORY: usize = 2000;

/// An annotation of a ReplicaSet.
pub(super) fn annotation<'a>(set: &'a Entry<ReplicaSet>, name: &str) -> Option<&'a String> {
    set.object.metadata.annotations.as_ref()?.get(name)
}

/// The revision of a ReplicaSet; zero if it has none.
pub(super) fn revision_of(set: &Entry<ReplicaSet>) -> i64 {
    annotation(set, labels::REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The annotations that say for how many replicas a ReplicaSet was scaled.
pub(super) fn replica_annotations(bounds: &Bounds) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (labels::DESIRED_REPLICAS, bounds.replicas.to_string()),
        (labels::MAX_REPLICAS, bounds.max_total().to_string()),
    ])
}

fn next_revision(rollout: &Rollout<'_>) -> i64 {
    rollout.old.iter().map(|set| revision_of(set)).max().unwrap_or_default() + 1
}

/// Annotations of the Deployment that its ReplicaSets share.
fn copied_annotations(rollout: &Rollout<'_>) -> impl Iterator<Item = (String, String)> {
    let annotations = rollout.deployment().metadata.annotations.clone().unwrap_or_default();
    annotations.into_iter().filter(|(name, _)| !labels::NOT_COPIED.contains(&name.as_str()))
}

/// Creates the ReplicaSet of the current template. Returns its name, too.
pub(super) fn create(rollout: &Rollout<'_>) -> (String, Step) {
    let (deployment, spec) = (rollout.deployment(), rollout.spec);
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = template::hash(&spec.template, collisions);
    let base = rollout.observed.deployment.key.name();
    let name = format!("{}-{hash}", head(base, MAX_SUBDOMAIN - hash.len() - 1));
    let mut template = spec.template.clone();
    let of_template = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    of_template.insert(template::POD_TEMPLATE_HASH.to_owned(), hash.clone());
    let labels_of_set = of_template.clone();
    let mut selector: LabelSelector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(template::POD_TEMPLATE_HASH.to_owned(), hash);
    let mut annotations: BTreeMap<_, _> = copied_annotations(rollout).collect();
    annotations.insert(labels::REVISION.to_owned(), next_revision(rollout).to_string());
    let for_replicas = replica_annotations(&rollout.bounds);
    annotations.extend(for_replicas.into_iter().map(|(name, value)| (name.to_owned(), value)));
    let total = rollout.old.iter().map(|set| replicas_of(set)).sum();
    let replicas = rollout.bounds.of_new(0, total);
    let set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels_of_set),
            annotations: Some(annotations),
            owner_references: controller_reference(deployment).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    };
    let action = Action::create(ApiKind::of::<ReplicaSet>(), &set);
    let step =
        if replicas > 0 { action.with_event(scaling_event(&name, 0, replicas)) } else { action.into() };
    (name, step)
}

/// Brings revision, history, shared annotations and `minReadySeconds` of the new ReplicaSet up to date.
pub(super) fn annotate(rollout: &Rollout<'_>, new: &Entry<ReplicaSet>) -> Option<Step> {
    let mut changes: BTreeMap<String, Value> = BTreeMap::new();
    for (name, value) in copied_annotations(rollout) {
        if annotation(new, &name) != Some(&value) {
            changes.insert(name, value.into());
        }
    }
    let (before, revision) = (revision_of(new), next_revision(rollout));
    if before < revision {
        changes.insert(labels::REVISION.to_owned(), revision.to_string().into());
        if before > 0 {
            changes.insert(labels::REVISION_HISTORY.to_owned(), history(new, before).into());
        }
    }
    let min_ready = rollout.spec.min_ready_seconds.unwrap_or_default();
    let of_set = new.object.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    if changes.is_empty() && min_ready == of_set {
        return None;
    }
    let mut patch = json!({ "metadata": { "uid": new.uid, "annotations": changes } });
    if min_ready != of_set {
        patch["spec"] = json!({ "minReadySeconds": min_ready });
    }
    Some(Action::merge(ApiKind::of::<ReplicaSet>(), new.key.clone(), patch).into())
}

/// The former revisions of a ReplicaSet with one more; the oldest are dropped if the list gets too long.
fn history(set: &Entry<ReplicaSet>, revision: i64) -> String {
    let former = annotation(set, labels::REVISION_HISTORY).map(String::as_str).unwrap_or_default();
    let revision = revision.to_string();
    let mut all: Vec<&str> = former.split(',').filter(|one| !one.is_empty()).collect();
    all.push(&revision);
    let mut first = 0;
    while first + 1 < all.len() && all[first..].join(",").len() > MAX_HISTORY {
        first += 1;
    }
    all[first..].join(",")
}
