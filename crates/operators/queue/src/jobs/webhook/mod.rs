//! Admission webhooks of jobs: who is queued, and what may not change while it runs.
//!
//! Handlers read and write objects as JSON, so that a kind is an entry of [`KINDS`] with the paths of its fields.

mod batch_job;
mod defaulting;
mod deployment;
mod go;
mod json_job;
#[cfg(test)]
mod json_tests;
mod leader_worker_set;
#[cfg(test)]
mod matrix_tests;
mod pod;
#[cfg(test)]
mod rule_tests;
mod serving;
mod stateful_set;
mod templates;
#[cfg(test)]
mod tests;
mod topology;
#[cfg(test)]
mod topology_tests;
mod validation;

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use quintet_api::kueue::metadata::{MULTIKUEUE_CONTROLLER, QUEUE_NAME};
use quintet_api::kueue::v1beta2::{
    AdmissionCheck, ClusterQueue, LocalQueue, Workload, WorkloadPriorityClass,
};
use quintet_component::Webhook;
use quintet_controller::cache::{Cache, Owner, WatchSpec};
use quintet_controller::webhook::{Admission, AdmissionRequest, Mutation, Operation, Routes, Verdict};
use quintet_controller::{ApiKind, Error, ObjectKey, Runtime};
use serde_json::Value;

use super::ancestors::{Ancestor, Ancestors, is_integrated};
use super::observe::labels_of;
use super::related::{self, Related};
use super::{Reference, json, remote};
use crate::settings::Settings;
use crate::{watches, webhook};

/// What users call the queue, and the class, of those who name none.
const DEFAULT: &str = "default";

/// A kind of job, as its webhooks see it.
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) name: &'static str,
    resource: &'static str,
    mutating: &'static str,
    validating: &'static str,
    mutate_path: &'static str,
    validate_path: &'static str,
    /// When it is mutated.
    mutates: &'static [&'static str],
    /// Whether its webhooks decide anything.
    is_enabled: fn(&Settings) -> bool,
    /// Sets its defaults. The error is why it is refused.
    default: fn(&mut Value, &Facts, &Settings) -> Result<(), String>,
    /// Decides about an object, and its old state if there is one.
    validate: fn(&Value, Option<&Value>, &Self, &Facts, &Settings) -> Verdict,
    /// Whether it may not run. Kinds whose pods wait in its place have their own rules.
    pub(super) is_suspended: fn(&Value) -> bool,
    /// Whether users may make its Workload.
    pub(super) takes_prebuilt: bool,
    /// Whether it may change its size while it runs.
    pub(super) takes_elastic: bool,
    /// Kinds of objects that jobs refer to.
    related_kinds: fn() -> Vec<ApiKind>,
    /// The objects that a job refers to.
    references: fn(&Value) -> Vec<Reference>,
}

/// A pod template in a job, or what is known of one.
pub(super) struct Template<'j> {
    /// The path of its annotations.
    pub(super) path: String,
    pub(super) annotations: Cow<'j, Value>,
    /// How many pods there are of it.
    pub(super) count: i64,
}

/// All kinds whose jobs are managed.
pub(super) const KINDS: [&Kind; 17] = [
    &batch_job::KIND,
    &deployment::KIND,
    &pod::KIND,
    &stateful_set::KIND,
    &leader_worker_set::KIND,
    &json_job::of::<json::AppWrapper>(),
    &json_job::of::<json::JaxJob>(),
    &json_job::of::<json::JobSet>(),
    &json_job::of::<json::MpiJob>(),
    &json_job::of::<json::PaddleJob>(),
    &json_job::of::<json::PyTorchJob>(),
    &json_job::of::<json::RayCluster>(),
    &json_job::of::<json::RayJob>(),
    &json_job::of::<json::RayService>(),
    &json_job::of::<json::TfJob>(),
    &json_job::of::<json::TrainJob>(),
    &json_job::of::<json::XgBoostJob>(),
];

/// Kinds whose webhooks exist only with their feature gate: the integration is experimental.
const SPARK: &Kind = &json_job::of::<json::SparkApplication>();

/// What a decision depends on beyond the object.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts about other objects that are independent of each other"
)]
pub(super) struct Facts {
    pub(super) has_default_queue: bool,
    pub(super) has_default_class: bool,
    pub(super) is_namespace_managed: bool,
    pub(super) ancestor: Ancestor,
    /// Whether its owner is of a kind that is queued, so that it needs no queue of its own.
    pub(super) has_integrated_owner: bool,
    /// Whether the Workload of a StatefulSet exists, and is not on hold.
    pub(super) has_workload: bool,
    /// Whether the jobs of its queue run on other clusters.
    pub(super) runs_elsewhere: bool,
    /// The objects that it refers to, as far as they exist.
    pub(super) related: Vec<Value>,
}

/// The caches that facts are read from.
#[derive(Clone)]
pub(super) struct FactCaches {
    runtime: Runtime,
    local_queues: Cache<LocalQueue>,
    classes: Cache<WorkloadPriorityClass>,
    namespaces: Cache<Namespace>,
    workloads: Cache<Workload>,
    cluster_queues: Cache<ClusterQueue>,
    checks: Cache<AdmissionCheck>,
    ancestors: Ancestors,
    related: Vec<Related>,
    references: fn(&Value) -> Vec<Reference>,
}

impl FactCaches {
    pub(super) fn watch(runtime: &Runtime, kind: &Kind, settings: &Settings) -> Result<Self, Error> {
        let caches = runtime.caches();
        Ok(Self {
            runtime: runtime.clone(),
            local_queues: caches.watch(watches::local_queues())?,
            classes: caches.watch(WatchSpec::typed())?,
            namespaces: caches.watch(WatchSpec::typed())?,
            workloads: caches.watch(watches::workloads())?,
            cluster_queues: caches.watch(watches::cluster_queues())?,
            checks: caches.watch(WatchSpec::typed())?,
            ancestors: Ancestors::watch(caches, settings)?,
            related: related::watch(caches, (kind.related_kinds)())?,
            references: kind.references,
        })
    }

    /// The facts about an object in a request.
    pub(super) async fn read(
        &self,
        request: &AdmissionRequest,
        object: &Value,
        settings: &Settings,
    ) -> Result<Facts, String> {
        let namespace = request.namespace.as_str();
        let queue = self.local_queues.get(&ObjectKey::new(namespace, DEFAULT));
        let labels =
            self.namespaces.get(&ObjectKey::cluster(namespace)).map(|entry| labels_of(&entry.object));
        let owners: Option<Vec<Owner>> =
            serde_json::from_value(object["metadata"]["ownerReferences"].clone())
                .map_err(|error| format!("metadata.ownerReferences: {error}"))?;
        let controller = owners.iter().flatten().find(|owner| owner.controller);
        Ok(Facts {
            has_default_queue: queue.is_some_and(|queue| is_open(&queue.object)),
            has_default_class: settings.gates.priority_class_defaulting
                && self.classes.get(&ObjectKey::cluster(DEFAULT)).is_some(),
            is_namespace_managed: labels.is_some_and(|labels| settings.manages_namespace(&labels)),
            ancestor: self.ancestors.read(&self.runtime, namespace, controller, settings).await,
            has_integrated_owner: controller.is_some_and(|owner| is_integrated(owner, settings)),
            has_workload: self.has_workload(namespace, object, settings),
            runs_elsewhere: settings.gates.multikueue && self.runs_elsewhere(namespace, object),
            related: related::referred(&self.related, &(self.references)(object)),
        })
    }

    /// Whether the ClusterQueue of an object, or the one it gets by default, has a check of MultiKueue.
    fn runs_elsewhere(&self, namespace: &str, object: &Value) -> bool {
        let queue = defaulting::label(object, QUEUE_NAME).unwrap_or(DEFAULT);
        let queue = self.local_queues.get(&ObjectKey::new(namespace, queue));
        let queue = queue.and_then(|entry| entry.object.spec.cluster_queue.clone());
        let queue = queue.and_then(|name| self.cluster_queues.get(&ObjectKey::cluster(&name)));
        let strategy = queue.as_ref().and_then(|entry| entry.object.spec.admission_checks_strategy.as_ref());
        strategy.into_iter().flat_map(|strategy| &strategy.admission_checks).any(|rule| {
            let check = self.checks.get(&ObjectKey::cluster(&rule.name));
            check.is_some_and(|check| check.object.spec.controller_name == MULTIKUEUE_CONTROLLER)
        })
    }

    fn has_workload(&self, namespace: &str, object: &Value, settings: &Settings) -> bool {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let names = super::stateful_set::workload_names(text("name"), text("uid"), settings);
        let mut found = names.iter().filter_map(|name| self.workloads.get(&ObjectKey::new(namespace, name)));
        object["kind"] == "StatefulSet" && found.any(|entry| !super::stateful_set::is_on_hold(&entry.object))
    }
}

/// A stopped queue is no default.
fn is_open(queue: &LocalQueue) -> bool {
    matches!(queue.spec.stop_policy, None | Some(quintet_api::kueue::v1beta2::StopPolicy::None))
}

/// The webhooks of all kinds. Those of kinds that are not enabled are served, for configurations of Kueue that name them, and
/// not registered: their objects do not depend on this operator.
pub fn webhooks(settings: &Arc<Settings>) -> Vec<Webhook> {
    let spark = settings.gates.spark_application.then_some(SPARK);
    KINDS.into_iter().chain(spark).flat_map(|kind| of_kind(kind, settings)).collect()
}

fn of_kind(kind: &'static Kind, settings: &Arc<Settings>) -> [Webhook; 2] {
    let (for_mutation, for_validation) = (Arc::clone(settings), Arc::clone(settings));
    let mutating = Webhook::mutating(
        webhook::MUTATING,
        kind.mutating,
        kind.mutate_path,
        move |routes, runtime: &Runtime| mutate(routes, runtime, kind, for_mutation),
    );
    let validating = Webhook::validating(
        webhook::VALIDATING,
        kind.validating,
        kind.validate_path,
        move |routes, runtime: &Runtime| validate(routes, runtime, kind, for_validation),
    );
    let operations: [&[&str]; 2] = [kind.mutates, &["CREATE", "UPDATE"]];
    let mut webhooks = [mutating, validating];
    for (webhook, operations) in webhooks.iter_mut().zip(operations) {
        webhook.namespace_selector = Some(settings.managed_namespaces.clone());
        if (kind.is_enabled)(settings) {
            webhook.rules = Webhook::rules(operations, kind.group, kind.version, &[kind.resource]);
        }
    }
    webhooks
}

fn mutate(
    routes: Routes,
    runtime: &Runtime,
    kind: &'static Kind,
    settings: Arc<Settings>,
) -> Result<Routes, Error> {
    let caches = Arc::new(FactCaches::watch(runtime, kind, &settings)?);
    Ok(routes.mutate(kind.mutate_path, move |mut admission: Admission<Value>| {
        let (caches, settings) = (Arc::clone(&caches), Arc::clone(&settings));
        async move {
            if !(kind.is_enabled)(&settings) {
                return Mutation::unchanged();
            }
            let facts = caches.read(&admission.request, &admission.object, &settings).await;
            let defaulted = facts.and_then(|facts| {
                let job = &mut admission.object;
                (kind.default)(job, &facts, &settings)?;
                if facts.runs_elsewhere && defaulting::label(job, QUEUE_NAME).is_some() {
                    remote::send_elsewhere(job, kind.group, kind.name);
                }
                Ok(())
            });
            match defaulted {
                Ok(()) => Mutation::to(admission.object),
                Err(why) => Mutation::deny(why),
            }
        }
    }))
}

fn validate(
    routes: Routes,
    runtime: &Runtime,
    kind: &'static Kind,
    settings: Arc<Settings>,
) -> Result<Routes, Error> {
    let caches = Arc::new(FactCaches::watch(runtime, kind, &settings)?);
    Ok(routes.validate(kind.validate_path, move |admission: Admission<Value>| {
        let (caches, settings) = (Arc::clone(&caches), Arc::clone(&settings));
        async move {
            let old = match admission.request.operation {
                Operation::Create => None,
                Operation::Update if admission.old.is_some() => admission.old.as_ref(),
                _ => return Verdict::allow(),
            };
            if !(kind.is_enabled)(&settings) {
                return Verdict::allow();
            }
            match caches.read(&admission.request, &admission.object, &settings).await {
                Ok(facts) => (kind.validate)(&admission.object, old, kind, &facts, &settings),
                Err(why) => Verdict::deny(why),
            }
        }
    }))
}
