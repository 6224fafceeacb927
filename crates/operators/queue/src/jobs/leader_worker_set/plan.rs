//! The decision about one LeaderWorkerSet. Pure.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::events::JobEvent;
use quintet_api::kueue::metadata::{
    COMPONENT_WORKLOAD_INDEX, IS_GROUP_WORKLOAD, JOB_OWNER_GVK, JOB_OWNER_NAME, JOB_UID, MANAGED,
    POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT, POD_SUSPENDING_PARENT, PREBUILT_WORKLOAD_NAME, PRIORITY_CLASS,
    QUEUE_NAME, RESOURCE_IN_USE, ROLE_HASH,
};
use quintet_api::kueue::v1beta2::{PodSet, PriorityClassKind, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Plan, Step};
use serde_json::{Value, json};

use super::super::admission_gates;
use super::super::ancestors::Ancestor;
use super::super::compose::{self, label};
use super::super::lifecycle::event;
use super::super::priority::Priority;
use super::super::stateful_set::PodHead;
use super::super::topology_request;
use super::{GROUP, KIND, NAME, Observed, VERSION};
use crate::settings::{LEADER_WORKER_SET, Settings};
use crate::workload::without_finalizer;

const LEADER: &str = "leader";
const WORKER: &str = "worker";
const MAIN: &str = "main";
/// Prefix of labels and annotations that differ from group to group.
const PREFIX: &str = "leaderworkerset.sigs.k8s.io";
/// Label of a pod: the group it belongs to.
const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// Label of a pod: its index in its group.
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// Annotation of a worker: its leader.
const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";
/// Label of a pod: the revision of the template that it was made from.
const REVISION: &str = "controller-revision-hash";

fn number(value: &Value, default: i32) -> i32 {
    value.as_i64().and_then(|number| i32::try_from(number).ok()).unwrap_or(default)
}

/// What the pods of a group run. The error is for users.
pub(in super::super) fn pod_sets(spec: &Value, settings: &Settings) -> Result<Vec<PodSet>, String> {
    let templates = &spec["leaderWorkerTemplate"];
    let size = number(&templates["size"], 1);
    let set = |name: &str, count, field: &str, index_label| {
        let template = templates[field].clone();
        let template: PodTemplateSpec = serde_json::from_value(template)
            .map_err(|error| format!("spec.leaderWorkerTemplate.{field}: {error}"))?;
        let topology_request = topology_request::of(&template, index_label, &settings.scheduling);
        let mut template = template;
        if let Some(metadata) = &mut template.metadata {
            for texts in [&mut metadata.labels, &mut metadata.annotations].into_iter().flatten() {
                texts.retain(|name, _| !name.starts_with(PREFIX) || name == NAME);
            }
        }
        compose::clean(&mut template);
        let (name, count) = (Some(name.to_owned()), Some(count));
        Ok::<PodSet, String>(PodSet { name, count, min_count: None, template, topology_request })
    };
    if templates["leaderTemplate"].is_null() {
        return Ok(vec![set(MAIN, size, "workerTemplate", Some(WORKER_INDEX))?]);
    }
    let leader = set(LEADER, 1, "leaderTemplate", None)?;
    Ok(vec![leader, set(WORKER, size - 1, "workerTemplate", Some(WORKER_INDEX))?])
}

/// The plan for a LeaderWorkerSet.
pub(super) fn plan(observed: &Observed) -> Plan {
    let decision = Decision { observed };
    if !decision.is_managed() {
        return Plan::nothing();
    }
    let mut plan = match pod_sets(&observed.set.object.spec, &observed.settings) {
        Ok(sets) => decision.workloads(&sets),
        Err(why) => {
            let reason = JobEvent::ErrWorkloadCompose.as_str();
            Plan { events: vec![Event::warning(reason, reason, why.as_str())], ..Plan::awaiting(why) }
        }
    };
    plan.steps.extend(observed.pods.iter().filter_map(|pod| decision.pod(pod)).map(Step::from));
    plan
}

struct Decision<'o> {
    observed: &'o Observed,
}

impl Decision<'_> {
    fn metadata(&self) -> &ObjectMeta {
        &self.observed.set.object.metadata
    }

    fn spec(&self) -> &Value {
        &self.observed.set.object.spec
    }

    fn queue(&self) -> Option<&str> {
        label(self.metadata(), QUEUE_NAME)
    }

    /// Whether its pods wait for Workloads of its own.
    fn is_managed(&self) -> bool {
        let observed = self.observed;
        let manages_all = observed.settings.configuration.manage_jobs_without_queue_name;
        !observed.set.deleting
            && observed.is_namespace_managed
            && observed.ancestor == Ancestor::None
            && (self.queue().is_some() || manages_all)
    }

    /// How many groups there are. A rollout may have more for a time.
    fn groups(&self) -> i32 {
        let (spec, status) = (self.spec(), &self.observed.set.object.status);
        let wanted = number(&spec["replicas"], 1);
        let surge = &spec["rolloutStrategy"]["rollingUpdateConfiguration"]["maxSurge"];
        let surge = surge.as_i64().unwrap_or_else(|| {
            let text = surge.as_str().unwrap_or_default().trim_end_matches('%');
            text.parse().unwrap_or_default()
        });
        let is_surging = surge > 0 && number(&status["updatedReplicas"], 0) < wanted;
        let running = number(&status["replicas"], 0);
        if is_surging { running.max(wanted) } else { wanted }
    }

    fn name_of(&self, group: &str) -> String {
        let (set, settings) = (&self.observed.set, &self.observed.settings);
        let name = format!("{}-{group}", set.key.name());
        compose::workload_name(KIND, GROUP, &name, set.uid.as_str(), settings)
    }

    fn workloads(&self, sets: &[PodSet]) -> Plan {
        let observed = self.observed;
        let mut plan = Plan::default();
        let names: Vec<String> = (0..self.groups()).map(|group| self.name_of(&group.to_string())).collect();
        for (index, name) in names.iter().enumerate() {
            match observed.workloads.iter().find(|entry| entry.key.name() == name) {
                Some(workload) => plan.steps.extend(self.follow(workload)),
                None => match &observed.priority {
                    Ok(priority) => plan.steps.push(self.create(name, index, sets, priority)),
                    Err(missing) => return missing.plan(),
                },
            }
        }
        let extra =
            observed.workloads.iter().filter(|entry| !names.iter().any(|name| name == entry.key.name()));
        for workload in extra {
            plan.steps.extend(without_finalizer(workload).map(Step::from));
            if !workload.deleting {
                plan.steps.push(Action::delete(ApiKind::of::<Workload>(), workload).into());
            }
        }
        plan
    }

    fn create(&self, name: &str, index: usize, sets: &[PodSet], priority: &Priority) -> Step {
        let set = &self.observed.set;
        let mut annotations =
            compose::annotations(self.metadata(), &self.observed.settings).unwrap_or_default();
        let owner = (JOB_OWNER_NAME, set.key.name().to_owned());
        let gvk = format!("{GROUP}/{VERSION}, Kind={KIND}");
        let own = [
            (IS_GROUP_WORKLOAD, "true".to_owned()),
            (JOB_OWNER_GVK, gvk),
            owner,
            (COMPONENT_WORKLOAD_INDEX, index.to_string()),
        ];
        annotations.extend(own.map(|(name, value)| (name.to_owned(), value)));
        let mut labels = compose::labels(self.metadata(), &self.observed.settings);
        labels.insert(JOB_UID.to_owned(), set.uid.to_string());
        let workload = Workload {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: set.key.namespace().map(str::to_owned),
                labels: Some(labels),
                annotations: Some(annotations),
                finalizers: Some(vec![RESOURCE_IN_USE.to_owned()]),
                owner_references: Some(vec![OwnerReference {
                    api_version: format!("{GROUP}/{VERSION}"),
                    kind: KIND.to_owned(),
                    name: set.key.name().to_owned(),
                    uid: set.uid.to_string(),
                    controller: None,
                    block_owner_deletion: None,
                }]),
                ..ObjectMeta::default()
            },
            spec: compose::spec(self.metadata(), sets.to_vec(), priority),
            status: None,
        };
        let note = format!("Created Workload: {}/{name}", set.key.namespace().unwrap_or_default());
        Action::create(ApiKind::of::<Workload>(), &workload)
            .with_event(event(JobEvent::CreatedWorkload, note))
    }

    /// The Workload follows the queue, the priority class and the gates of its LeaderWorkerSet.
    fn follow(&self, workload: &Entry<Workload>) -> Option<Step> {
        let mut desired = workload.object.clone();
        let has_reservation = workload.object.has_quota_reservation();
        if !has_reservation {
            desired.spec.queue_name = self.queue().map(str::to_owned);
        }
        let known = desired.spec.priority_class_ref.as_ref();
        let may_follow =
            known.map_or(!has_reservation, |known| known.kind == PriorityClassKind::WorkloadPriorityClass);
        if let (true, Some(_), Ok(priority)) =
            (may_follow, label(self.metadata(), PRIORITY_CLASS), &self.observed.priority)
        {
            desired.spec.priority = Some(priority.value);
            desired.spec.priority_class_ref.clone_from(&priority.class);
        }
        let has_other_class = desired.spec.priority_class_ref != workload.object.spec.priority_class_ref;
        let of_class = has_other_class.then(|| {
            let note = format!("Updated workload priority class: {}", workload.key);
            event(JobEvent::UpdatedWorkload, note)
        });
        let of_gates =
            admission_gates::follow(self.metadata(), &mut desired.metadata, &self.observed.settings);
        let update = Action::update(ApiKind::of::<Workload>(), workload, &desired)?;
        Some(Step { event: of_gates.or(of_class), ..Step::from(update) })
    }

    /// What a pod needs to be one of its group.
    fn pod(&self, entry: &Entry<PodHead>) -> Option<Action> {
        let pod = &entry.object;
        if pod.annotation(POD_SUSPENDING_PARENT) != Some(LEADER_WORKER_SET) {
            return None;
        }
        let owner = pod.owner().map(|owner| owner.uid.to_string()).unwrap_or_default();
        let is_outdated =
            self.observed.outdated.get(&owner).is_some_and(|old| pod.label(REVISION) == Some(old.as_str()));
        let mut patch = json!({});
        if let Some(others) = pod.other_finalizers()
            && (pod.has_ended() || entry.deleting || is_outdated)
        {
            patch["metadata"]["finalizers"] = json!(others);
        }
        if let Some(others) = pod.other_gates()
            && is_outdated
        {
            patch["spec"]["schedulingGates"] = json!(others);
        }
        if !pod.has_ended() && !entry.deleting && !is_outdated {
            self.join(pod, &mut patch);
        }
        let has_changes = patch != json!({});
        has_changes.then(|| Action::merge_exactly(ApiKind::of::<Pod>(), entry, patch))
    }

    /// Puts a pod into its group, once it has the index of that.
    fn join(&self, pod: &PodHead, patch: &mut Value) {
        let (Some(group), None) = (pod.label(GROUP_INDEX), pod.label(MANAGED)) else { return };
        let name = self.name_of(group);
        let templates = &self.spec()["leaderWorkerTemplate"];
        let role = match (templates["leaderTemplate"].is_null(), pod.annotation(LEADER_NAME)) {
            (true, _) => MAIN,
            (false, None) => LEADER,
            (false, Some(_)) => WORKER,
        };
        let identifiers =
            if self.observed.settings.gates.identifier_annotations { "annotations" } else { "labels" };
        let metadata = &mut patch["metadata"];
        metadata["labels"][MANAGED] = "true".into();
        if let Some(queue) = self.queue().filter(|_| pod.other_gates().is_some()) {
            metadata["labels"][QUEUE_NAME] = queue.into();
        }
        metadata[identifiers][POD_GROUP_NAME] = name.as_str().into();
        metadata[identifiers][PREBUILT_WORKLOAD_NAME] = name.as_str().into();
        metadata["annotations"][POD_GROUP_TOTAL_COUNT] = number(&templates["size"], 1).to_string().into();
        metadata["annotations"][ROLE_HASH] = role.into();
    }
}
