//! Which clusters a RayService has, and when it gets another one.

use std::{collections::BTreeMap, sync::Arc};

use jiff::SignedDuration;
use quintet_api::ray::v1::{RayCluster, RayClusterSpec, RayServiceClusterStatus};
use quintet_controller::{Action, ApiKind, ObjectKey, cache::Entry, plan::PatchKind};
use serde_json::json;

use super::Draft;
use crate::{
    k8s_service::update,
    labels, names,
    rayservice::{
        events::{self, Deletion},
        objects::{self, APPLIED_CONFIG, DELETE_AFTER},
        status,
        upgrade::{self, Side},
    },
    spec_hash::upgrade_hash,
    spec_meaning,
    watches::ServiceView,
};

/// How long a cluster that is no longer wanted is kept for its last requests.
const DELETION_DELAY: i32 = 60;

/// What becomes of the clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// They stay.
    Nothing,
    /// Another one gets a name; it is made once the name is written down.
    Prepare,
    /// The one with a name is made.
    Create,
    /// The serving one is changed in place.
    UpdateActive,
    /// The coming one is changed in place.
    UpdatePending,
    /// The coming one, of another operator's making, is marked as ours.
    AdoptPending,
}

/// How the spec of a cluster compares with the wanted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    Equal,
    /// Only worker groups at the end are new.
    Grown,
    Different,
}

pub(crate) fn decide(draft: &Draft<'_>) -> Decision {
    let observed = draft.observed;
    let (spec, settings) = (&observed.object().spec, &observed.settings);
    let pending = observed.pending.cluster.as_ref();
    let active = observed.active.cluster.as_ref();
    if draft.pending_name().is_some() && pending.is_none() {
        return Decision::Create;
    }
    let (target, update) = match (pending, active) {
        (None, None) => return Decision::Prepare,
        (Some(pending), _) => (pending, Decision::UpdatePending),
        (None, Some(active)) => (active, Decision::UpdateActive),
    };
    let is_foreign = made_by_another(target, &settings.version);
    let found = match pending {
        // What serves is kept, and written as the service has it.
        None if is_foreign => return update,
        Some(_) if is_foreign => compare_by_meaning(&spec.ray_cluster_config, &target.object),
        _ => compare(&spec.ray_cluster_config, &target.object),
    };
    match found {
        Match::Equal if is_foreign => Decision::AdoptPending,
        Match::Equal => Decision::Nothing,
        Match::Grown => update,
        Match::Different => {
            let is_settled = (pending.is_some() && is_serving(draft, target.key.name()))
                || status::holds(&draft.status, status::ROLLING_BACK);
            if is_settled || !upgrade::is_enabled(spec, settings) {
                Decision::Nothing
            } else {
                Decision::Prepare
            }
        }
    }
}

/// Whether an operator of another version made the cluster: its hash means nothing to us.
pub(crate) fn made_by_another(cluster: &Entry<RayCluster>, version: &str) -> bool {
    annotation(&cluster.object, labels::OPERATOR_VERSION) != Some(version)
}

/// Whether the Services lead to the cluster. One that is not ours says nothing.
fn is_serving(draft: &Draft<'_>, cluster: &str) -> bool {
    let observed = draft.observed;
    let (Some(head), Some(serve)) = (&observed.head_service, &observed.serve_service) else { return false };
    let is_ours =
        |live: &&Arc<Entry<ServiceView>>| update::refuse_foreign(live, observed.service.uid.as_str()).is_ok();
    let ours: Vec<_> = [head, serve].into_iter().filter(is_ours).collect();
    let leads_there =
        |live: &&Arc<Entry<ServiceView>>| update::selected_cluster(&live.object) == Some(cluster);
    !ours.is_empty() && ours.iter().all(leads_there)
}

fn compare(goal: &RayClusterSpec, cluster: &RayCluster) -> Match {
    let hash = annotation(cluster, labels::UPGRADE_HASH).unwrap_or_default();
    if upgrade_hash(goal) == hash {
        return Match::Equal;
    }
    let had = worker_groups(&cluster.spec);
    let Some(shorter) = without_new_groups(goal, had) else { return Match::Different };
    // None and no groups are the same cluster.
    let bare = RayClusterSpec { worker_group_specs: None, ..shorter.clone() };
    let is_equal = upgrade_hash(&shorter) == hash || (had == 0 && upgrade_hash(&bare) == hash);
    if is_equal { Match::Grown } else { Match::Different }
}

/// Compares the wanted spec with the one that a cluster has, whatever its hash.
fn compare_by_meaning(goal: &RayClusterSpec, cluster: &RayCluster) -> Match {
    if spec_meaning::is_same(goal, &cluster.spec) {
        return Match::Equal;
    }
    let shorter = without_new_groups(goal, worker_groups(&cluster.spec));
    let has_grown = shorter.is_some_and(|shorter| spec_meaning::is_same(&shorter, &cluster.spec));
    if has_grown { Match::Grown } else { Match::Different }
}

fn worker_groups(spec: &RayClusterSpec) -> usize {
    spec.worker_group_specs.as_ref().map_or(0, Vec::len)
}

/// The wanted spec with only its first groups, if it has more of them.
fn without_new_groups(goal: &RayClusterSpec, first: usize) -> Option<RayClusterSpec> {
    if worker_groups(goal) <= first {
        return None;
    }
    let mut shorter = goal.clone();
    shorter.worker_group_specs.as_mut()?.truncate(first);
    Some(shorter)
}

/// Whether the wanted spec is that of the cluster.
pub(crate) fn is_wanted(goal: &RayClusterSpec, cluster: &RayCluster) -> bool {
    compare(goal, cluster) != Match::Different
}

pub(crate) fn annotation<'a>(cluster: &'a RayCluster, name: &str) -> Option<&'a str> {
    cluster.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Carries a decision out.
pub(crate) fn follow(draft: &mut Draft<'_>, decision: Decision) {
    match decision {
        Decision::Nothing => {}
        Decision::Prepare => prepare(draft),
        Decision::Create => create(draft),
        Decision::UpdateActive => {
            if let Some(cluster) = &draft.observed.active.cluster {
                update(draft, Side::Active, cluster);
            }
        }
        Decision::UpdatePending => {
            if let Some(cluster) = &draft.observed.pending.cluster {
                update(draft, Side::Pending, cluster);
            }
        }
        Decision::AdoptPending => {
            if let Some(cluster) = &draft.observed.pending.cluster {
                adopt(draft, cluster);
            }
        }
    }
}

/// Marks a cluster of another operator's making as ours. Its spec stays as it is: the autoscaler may have written to it.
fn adopt(draft: &mut Draft<'_>, cluster: &Entry<RayCluster>) {
    let marks = objects::marks(&draft.observed.object().spec.ray_cluster_config, &draft.observed.settings);
    let mut annotations: BTreeMap<_, _> = marks.into_iter().map(|(name, mark)| (name, Some(mark))).collect();
    annotations.insert(labels::NUM_WORKER_GROUPS.to_owned(), None);
    let patch = json!({ "metadata": { "annotations": annotations } });
    let action = Action::merge(ApiKind::of::<RayCluster>(), cluster.key.clone(), patch);
    draft.steps.push(action.with_event(events::updated_cluster(Side::Pending, &cluster.key)));
}

fn prepare(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let service = observed.service.key.name();
    let suffix = names::suffix((observed.service.uid.as_str(), observed.now.as_nanosecond(), "cluster"));
    let mut side = RayServiceClusterStatus {
        ray_cluster_name: Some(format!("{service}-{suffix}")),
        ..RayServiceClusterStatus::default()
    };
    if upgrade::is_incremental(&observed.object().spec, &observed.settings) {
        let is_first = observed.active.cluster.is_none();
        side.target_capacity = Some(if is_first { 100 } else { 0 });
        if !is_first {
            side.traffic_routed_percent = Some(0);
        }
    }
    draft.status.pending_service_status = Some(side);
}

fn create(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let Some(name) = draft.pending_name().map(str::to_owned) else { return };
    let starts_small = upgrade::is_incremental(&observed.object().spec, &observed.settings)
        && observed.active.cluster.is_some();
    let cluster = objects::cluster(observed.object(), &name, starts_small, &observed.settings);
    let key = ObjectKey::new(observed.service.key.namespace().unwrap_or_default(), &name);
    let create = Action::create(ApiKind::of::<RayCluster>(), &cluster);
    draft.steps.push(create.with_event(events::created_cluster(&key)));
}

/// Replaces spec, labels and annotations of a cluster. Whether it is suspended is for queueing to say.
fn update(draft: &mut Draft<'_>, side: Side, cluster: &Entry<RayCluster>) {
    let observed = draft.observed;
    let (given, mut annotations) = objects::cluster_metadata(observed.object(), &observed.settings);
    for ours in [APPLIED_CONFIG, DELETE_AFTER] {
        if let Some(value) = annotation(&cluster.object, ours) {
            annotations.insert(ours.to_owned(), value.to_owned());
        }
    }
    let mut spec = observed.object().spec.ray_cluster_config.clone();
    spec.suspend = cluster.object.spec.suspend;
    let patch = json!([
        // Makes the API server compare it with the live one.
        { "op": "replace", "path": "/metadata/resourceVersion", "value": cluster.version.to_string() },
        { "op": "add", "path": "/metadata/labels", "value": given },
        { "op": "add", "path": "/metadata/annotations", "value": annotations },
        { "op": "replace", "path": "/spec", "value": spec },
    ]);
    let action = Action::Patch {
        kind: ApiKind::of::<RayCluster>(),
        key: cluster.key.clone(),
        subresource: None,
        patch_kind: PatchKind::Json,
        patch,
    };
    draft.steps.push(action.with_event(events::updated_cluster(side, &cluster.key)));
}

/// Deletes clusters that are neither active nor pending, each some time after it was first seen so. The time is
/// written on the cluster.
pub(crate) fn delete_dangling(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let delay = observed.object().spec.ray_cluster_deletion_delay_seconds.filter(|seconds| *seconds >= 0);
    let delay = delay.unwrap_or(DELETION_DELAY);
    let mut marks = Vec::new();
    for cluster in dangling(draft) {
        if cluster.deleting {
            continue;
        }
        let marked = annotation(&cluster.object, DELETE_AFTER).and_then(|text| text.parse().ok());
        match marked {
            Some(time) if time <= observed.now => draft.steps.push(delete(&cluster, Deletion::Unused)),
            Some(time) => draft.requeue_at(time),
            None => {
                let later = observed.now.checked_add(SignedDuration::from_secs(delay.into()));
                let time = later.unwrap_or(observed.now);
                let patch = json!({ "metadata": { "annotations": { DELETE_AFTER: time.to_string() } } });
                marks.push(Action::merge(ApiKind::of::<RayCluster>(), cluster.key.clone(), patch));
                draft.requeue_at(time);
            }
        }
    }
    draft.steps.extend(marks.into_iter().map(Into::into));
}

/// The clusters that are neither active nor pending.
pub(crate) fn dangling(draft: &Draft<'_>) -> Vec<Arc<Entry<RayCluster>>> {
    let wanted = [draft.active_name(), draft.pending_name()];
    let is_dangling = |cluster: &&Arc<Entry<RayCluster>>| !wanted.contains(&Some(cluster.key.name()));
    draft.observed.clusters.iter().filter(is_dangling).cloned().collect()
}

/// Deletes a cluster of a service.
pub(crate) fn delete(cluster: &Entry<RayCluster>, why: Deletion) -> super::Step {
    let kind = ApiKind::of::<RayCluster>();
    let deleted = events::deleted(&kind.kind, &cluster.key, why);
    Action::delete(kind, cluster).with_event(deleted)
}
