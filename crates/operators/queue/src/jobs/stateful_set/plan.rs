//! The decision about one StatefulSet. Pure.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::events::JobEvent;
use quintet_api::kueue::metadata::{
    IS_GROUP_WORKLOAD, JOB_OWNER_GVK, JOB_OWNER_NAME, JOB_UID, MANAGED, POD_GROUP_FAST_ADMISSION,
    POD_GROUP_NAME, POD_GROUP_POD_INDEX_LABEL, POD_GROUP_SERVING, POD_GROUP_TOTAL_COUNT,
    POD_SUSPENDING_PARENT, PREBUILT_WORKLOAD_NAME, PRIORITY_CLASS, QUEUE_NAME, RESOURCE_IN_USE, ROLE_HASH,
};
use quintet_api::kueue::reasons::QuotaReservedReason;
use quintet_api::kueue::v1beta2::{PodSet, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Plan, Step};
use quintet_queue_engine::status;
use serde_json::{Value, json};

use super::super::admission_gates;
use super::super::ancestors::Ancestor;
use super::super::compose::{self, annotation, label};
use super::super::lifecycle::{event, one, write_status};
use super::super::topology_request;
use super::pod::PodHead;
use super::{Observed, is_on_hold};
use crate::scheduler::engine_time;
use crate::settings::{STATEFUL_SET, Settings};

const MAIN: &str = "main";
/// Label of a pod: its index in the StatefulSet.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
/// Label of a pod: the revision of the template that it was made from.
const REVISION: &str = "controller-revision-hash";
const GVK: &str = "apps/v1, Kind=StatefulSet";
const SCALED_TO_ZERO: &str = "StatefulSet scaled to zero; workload on hold";
const NO_LONGER_ON_HOLD: &str = "Workload no longer on hold; waiting for quota reservation";

/// What the pods run.
pub(super) fn pod_set(object: &StatefulSet, settings: &Settings) -> Option<PodSet> {
    let spec = object.spec.as_ref()?;
    let topology_request = topology_request::of(&spec.template, Some(POD_INDEX), &settings.scheduling);
    let mut template = PodTemplateSpec { metadata: None, spec: spec.template.spec.clone() };
    compose::clean(&mut template);
    let count = Some(spec.replicas.unwrap_or(1));
    Some(PodSet { name: Some(MAIN.to_owned()), count, min_count: None, template, topology_request })
}

/// The plan for a StatefulSet.
pub(super) fn plan(observed: &Observed) -> Plan {
    let decision = Decision { observed };
    if !decision.is_managed() {
        return Plan::nothing();
    }
    let mut steps: Vec<Step> =
        observed.pods.iter().filter_map(|pod| decision.pod(pod)).map(Step::from).collect();
    let mut plan = match &observed.workload {
        Some(workload) => decision.follow(workload).map_or_else(Plan::default, one),
        None if decision.replicas() > 0 => decision.create(),
        None => Plan::default(),
    };
    steps.append(&mut plan.steps);
    Plan { steps, ..plan }
}

struct Decision<'o> {
    observed: &'o Observed,
}

impl Decision<'_> {
    fn object(&self) -> &StatefulSet {
        &self.observed.stateful_set.object
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.object().metadata
    }

    fn queue(&self) -> Option<&str> {
        label(self.metadata(), QUEUE_NAME)
    }

    fn replicas(&self) -> i32 {
        self.object().spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    /// Whether its pods wait for a Workload of its own.
    fn is_managed(&self) -> bool {
        let observed = self.observed;
        let template = self.object().spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
        let parent = template.and_then(|metadata| annotation(metadata, POD_SUSPENDING_PARENT));
        let manages_all = observed.settings.configuration.manage_jobs_without_queue_name;
        !observed.stateful_set.deleting
            && observed.is_namespace_managed
            && observed.ancestor == Ancestor::None
            && parent.is_none_or(|parent| parent == STATEFUL_SET)
            && (self.queue().is_some() || manages_all)
    }

    /// What a pod needs to be one of the group.
    fn pod(&self, entry: &Entry<PodHead>) -> Option<Action> {
        let pod = &entry.object;
        if pod.parent() != Some(STATEFUL_SET) {
            return None;
        }
        let mut patch = json!({});
        if let Some(others) = pod.other_finalizers()
            && (pod.has_ended() || entry.deleting || self.is_outdated(pod))
        {
            patch["metadata"]["finalizers"] = json!(others);
        }
        if let Some(others) = pod.other_gates()
            && self.is_outdated(pod)
        {
            patch["spec"]["schedulingGates"] = json!(others);
        }
        if !pod.has_ended() && !entry.deleting {
            self.join(pod, &mut patch);
        }
        let has_changes = patch != json!({});
        has_changes.then(|| Action::merge_exactly(ApiKind::of::<Pod>(), entry, patch))
    }

    /// Whether a rollout replaces the pod: it is let go, so that the next one can come.
    fn is_outdated(&self, pod: &PodHead) -> bool {
        let status = self.object().status.as_ref();
        let revision = |of: fn(&k8s_openapi::api::apps::v1::StatefulSetStatus) -> &Option<String>| {
            status.and_then(|status| of(status).as_deref())
        };
        let (current, update) =
            (revision(|status| &status.current_revision), revision(|status| &status.update_revision));
        current != update && current.is_some() && pod.label(REVISION) == current
    }

    /// Puts a pod into the queue and the group of its StatefulSet.
    fn join(&self, pod: &PodHead, patch: &mut Value) {
        let Observed { name, settings, .. } = self.observed;
        if let Some(queue) = self.queue()
            && pod.label(QUEUE_NAME) != Some(queue)
        {
            patch["metadata"]["labels"][QUEUE_NAME] = queue.into();
        }
        if pod.is_in(name) {
            return;
        }
        let names = if settings.gates.identifier_annotations { "annotations" } else { "labels" };
        let metadata = &mut patch["metadata"];
        metadata["labels"][MANAGED] = "true".into();
        if let Some(class) = label(self.metadata(), PRIORITY_CLASS) {
            metadata["labels"][PRIORITY_CLASS] = class.into();
        }
        metadata[names][POD_GROUP_NAME] = name.as_str().into();
        metadata[names][PREBUILT_WORKLOAD_NAME] = name.as_str().into();
        let annotations = &mut metadata["annotations"];
        annotations[POD_GROUP_TOTAL_COUNT] = self.replicas().to_string().into();
        annotations[POD_GROUP_FAST_ADMISSION] = "true".into();
        annotations[POD_GROUP_SERVING] = "true".into();
        annotations[POD_GROUP_POD_INDEX_LABEL] = POD_INDEX.into();
        annotations[ROLE_HASH] = MAIN.into();
    }

    fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: super::KIND.to_owned(),
            name: self.metadata().name.clone().unwrap_or_default(),
            uid: self.observed.stateful_set.uid.to_string(),
            controller: None,
            block_owner_deletion: None,
        }
    }

    fn create(&self) -> Plan {
        let Observed { name, settings, priority, stateful_set, .. } = self.observed;
        let priority = match priority {
            Ok(priority) => priority,
            Err(missing) => return missing.plan(),
        };
        let mut annotations = compose::annotations(self.metadata(), settings).unwrap_or_default();
        annotations.insert(IS_GROUP_WORKLOAD.to_owned(), "true".to_owned());
        annotations.insert(JOB_OWNER_GVK.to_owned(), GVK.to_owned());
        annotations.insert(JOB_OWNER_NAME.to_owned(), stateful_set.key.name().to_owned());
        let mut labels = compose::labels(self.metadata(), settings);
        labels.insert(JOB_UID.to_owned(), stateful_set.uid.to_string());
        let sets = pod_set(self.object(), settings).into_iter().collect();
        let workload = Workload {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: stateful_set.key.namespace().map(str::to_owned),
                labels: Some(labels),
                annotations: Some(annotations),
                finalizers: Some(vec![RESOURCE_IN_USE.to_owned()]),
                owner_references: Some(vec![self.owner_reference()]),
                ..ObjectMeta::default()
            },
            spec: compose::spec(self.metadata(), sets, priority),
            status: None,
        };
        let note = format!("Created Workload: {}/{name}", stateful_set.key.namespace().unwrap_or_default());
        let create = Action::create(ApiKind::of::<Workload>(), &workload);
        one(create.with_event(event(JobEvent::CreatedWorkload, note)))
    }

    /// The next change of the Workload.
    fn follow(&self, workload: &Entry<Workload>) -> Option<Step> {
        self.update(workload).or_else(|| self.hold(workload).map(Step::from))
    }

    fn update(&self, workload: &Entry<Workload>) -> Option<Step> {
        let mut desired = workload.object.clone();
        let uid = self.observed.stateful_set.uid.as_str();
        let mut owners = workload.object.metadata.owner_references.iter().flatten();
        if self.replicas() > 0 && !owners.any(|owner| owner.uid == uid) {
            desired.metadata.owner_references.get_or_insert_default().push(self.owner_reference());
            let annotations = desired.metadata.annotations.get_or_insert_default();
            annotations.insert(JOB_OWNER_GVK.to_owned(), GVK.to_owned());
            annotations.insert(JOB_OWNER_NAME.to_owned(), self.observed.stateful_set.key.name().to_owned());
        }
        if self.replicas() > 0 && !workload.object.has_quota_reservation() {
            desired.spec.queue_name = self.queue().map(str::to_owned);
        }
        let event = admission_gates::follow(self.metadata(), &mut desired.metadata, &self.observed.settings);
        let update = Action::update(ApiKind::of::<Workload>(), workload, &desired)?;
        Some(Step { event, ..Step::from(update) })
    }

    /// A StatefulSet without pods needs no quota; its Workload is kept for when it has some again.
    fn hold(&self, workload: &Entry<Workload>) -> Option<Action> {
        let object = &workload.object;
        let gates = &self.observed.settings.scheduling;
        let holds = self.replicas() == 0
            && object.has_quota_reservation()
            && object.is_active()
            && !object.is_finished();
        let resumes = self.replicas() > 0 && is_on_hold(object);
        let (reason, message) = match (holds, resumes) {
            (true, _) => (QuotaReservedReason::OnHold, SCALED_TO_ZERO),
            (_, true) if gates.observability => (QuotaReservedReason::PendingEvaluation, NO_LONGER_ON_HOLD),
            (_, true) => (QuotaReservedReason::Pending, NO_LONGER_ON_HOLD),
            _ => return None,
        };
        let mut changed = object.clone();
        let now = engine_time(self.observed.now);
        status::unset_quota_reservation(&mut changed, reason, message, now, gates);
        write_status(workload, &changed)
    }
}
