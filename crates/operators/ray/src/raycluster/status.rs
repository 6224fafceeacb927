//! The status of a cluster, derived from the observed state.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use quintet_api::ray::reasons;
use quintet_api::{
    Quantity,
    conditions::{self, Finding},
    ray::v1::{HeadInfo, RayCluster, RayClusterStatus},
};

use super::observe::{Observed, Pod, hosts, wanted_pods};
use crate::{
    pod::ray_start::is_gpu,
    pod_view::{ContainerState, PodView},
};

pub(crate) use quintet_api::ray::conditions::{
    HEAD_POD_READY as HEAD_READY, RAY_CLUSTER_PROVISIONED as PROVISIONED, RAY_CLUSTER_SUSPENDED as SUSPENDED,
    RAY_CLUSTER_SUSPENDING as SUSPENDING, REPLICA_FAILURE,
};

/// Whether all pods of a cluster have been ready, as `status.state` says.
pub(crate) fn is_ready(cluster: &RayCluster) -> bool {
    cluster.status.as_ref().and_then(|status| status.state.as_deref()) == Some("ready")
}

/// Whether a condition holds.
pub(super) fn has(status: &RayClusterStatus, type_: &str) -> bool {
    conditions::is_true(status.conditions.as_deref().unwrap_or_default(), type_)
}

/// How the reconcile went.
pub(super) enum Outcome {
    /// Everything was done.
    Done,
    /// A write of pods failed.
    PodsFailed {
        /// What failed, in one word.
        marker: &'static str,
        /// Why.
        cause: String,
    },
    /// Another write failed, which says nothing about pods.
    OtherFailed,
}

/// The status to write, or `None` if nothing changed that is worth a write.
pub(super) fn compute(observed: &Observed, outcome: &Outcome) -> Option<RayClusterStatus> {
    let before = observed.status();
    let mut status = before.clone();
    count_workers(observed, &mut status);
    sum_resources(observed, &mut status);
    describe_head(observed, &mut status);
    let all_run = observed.pods.iter().all(|pod| pod.object.runs_and_does_not_complain());
    let wanted = usize::try_from(status.desired_worker_replicas.unwrap_or_default()).unwrap_or_default();
    if matches!(outcome, Outcome::Done) && observed.pods.len() == wanted + 1 && all_run {
        status.state = Some("ready".to_owned());
        status.reason = None;
    }
    if observed.settings.gates.status_conditions {
        let mut all = status.conditions.take().unwrap_or_default();
        set_conditions(observed, outcome, &mut all);
        status.conditions = Some(all).filter(|all| !all.is_empty());
    }
    if observed.object().spec.suspend == Some(true) && observed.pods.is_empty() {
        status.state = Some("suspended".to_owned());
    }
    if !is_worth_a_write(&before, &status) {
        return None;
    }
    status.observed_generation = observed.object().metadata.generation;
    status.last_update_time = Some(Time(observed.now));
    if status.state != before.state
        && let Some(state) = &status.state
    {
        status.state_transition_times.get_or_insert_default().insert(state.clone(), Time(observed.now));
    }
    Some(status)
}

/// What clients act on. Sums of resources and timestamps alone are not worth waking everybody up for, and neither is a
/// zero that a Go operator has omitted.
fn is_worth_a_write(before: &RayClusterStatus, after: &RayClusterStatus) -> bool {
    fn telling(status: &RayClusterStatus) -> impl PartialEq {
        let RayClusterStatus {
            available_worker_replicas,
            conditions,
            desired_worker_replicas,
            endpoints,
            head,
            max_worker_replicas,
            min_worker_replicas,
            ready_worker_replicas,
            reason,
            state,
            desired_cpu: _,
            desired_gpu: _,
            desired_memory: _,
            desired_tpu: _,
            last_update_time: _,
            observed_generation: _,
            state_transition_times: _,
        } = status;
        let counts = [
            available_worker_replicas,
            desired_worker_replicas,
            max_worker_replicas,
            min_worker_replicas,
            ready_worker_replicas,
        ]
        .map(|count| count.unwrap_or_default());
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let conditions = conditions.clone().unwrap_or_default();
        let endpoints = endpoints.clone().unwrap_or_default();
        (counts, conditions, endpoints, head.clone().unwrap_or_default(), text(reason), text(state))
    }
    telling(before) != telling(after)
}

fn count_workers(observed: &Observed, status: &mut RayClusterStatus) {
    let count = |is_counted: fn(&PodView) -> bool| {
        let count = observed.workers().filter(|pod| is_counted(&pod.object)).count();
        Some(i32::try_from(count).unwrap_or(i32::MAX))
    };
    status.ready_worker_replicas = count(PodView::is_running_and_ready);
    status.available_worker_replicas = count(|pod| pod.phase == crate::pod_view::Phase::Running);
    let sum = |counts: &mut dyn Iterator<Item = i32>| Some(counts.fold(0, i32::saturating_add));
    status.desired_worker_replicas = sum(&mut observed.groups().iter().map(wanted_pods));
    let active = || observed.groups().iter().filter(|group| group.suspend != Some(true));
    status.min_worker_replicas =
        sum(&mut active().map(|group| group.min_replicas.unwrap_or_default().saturating_mul(hosts(group))));
    status.max_worker_replicas =
        sum(&mut active().map(|group| group.max_replicas.unwrap_or(i32::MAX).saturating_mul(hosts(group))));
}

/// What all wanted pods ask for together, by the templates alone.
pub(crate) fn sum_of_templates<'a>(
    head: &'a PodTemplateSpec,
    workers: impl IntoIterator<Item = (i64, &'a PodTemplateSpec)>,
) -> BTreeMap<String, Quantity> {
    let mut sums = BTreeMap::new();
    for (count, template) in std::iter::once((1, head)).chain(workers) {
        for container in template.spec.iter().flat_map(|pod| &pod.containers) {
            let resources = container.resources.as_ref();
            let limits = resources.and_then(|resources| resources.limits.as_ref());
            let requests = resources.and_then(|resources| resources.requests.as_ref());
            let mut amounts: BTreeMap<_, _> = limits.into_iter().flatten().collect();
            amounts.extend(requests.into_iter().flatten());
            for (name, amount) in amounts {
                if let Ok(amount) = Quantity::try_from(amount) {
                    *sums.entry(name.clone()).or_insert(Quantity::ZERO) += amount.times(count);
                }
            }
        }
    }
    sums
}

fn sum_resources(observed: &Observed, status: &mut RayClusterStatus) {
    let groups = observed.groups().iter().filter(|group| group.suspend != Some(true));
    let workers = groups.map(|group| {
        let count = i64::from(group.replicas.unwrap_or_default()) * i64::from(hosts(group));
        (count, &group.template)
    });
    let sums = sum_of_templates(&observed.object().spec.head_group_spec.template, workers);
    let of = |is_it: &dyn Fn(&str) -> bool| {
        let sum: Quantity = sums.iter().filter(|(name, _)| is_it(name)).map(|(_, sum)| *sum).sum();
        Some(sum.into())
    };
    status.desired_cpu = of(&|name| name == "cpu");
    status.desired_memory = of(&|name| name == "memory");
    status.desired_gpu = of(&is_gpu);
    status.desired_tpu = of(&|name| name == "google.com/tpu");
}

fn describe_head(observed: &Observed, status: &mut RayClusterStatus) {
    let pod = observed.heads().next();
    let ip = pod.map(|pod| pod.object.ip.to_string()).filter(|ip| !ip.is_empty());
    let Some(service) = observed.head_services().next() else {
        return;
    };
    let mut endpoints = status.endpoints.take().unwrap_or_default();
    for port in service.object.ports.iter().filter(|port| !port.name.is_empty()) {
        let address = if port.node_port == 0 { port.target.to_string() } else { port.node_port.to_string() };
        endpoints.insert(port.name.to_string(), address);
    }
    status.endpoints = Some(endpoints).filter(|endpoints| !endpoints.is_empty());
    let is_headless = &*service.object.cluster_ip == "None";
    status.head = Some(HeadInfo {
        pod_ip: ip.clone(),
        pod_name: pod.map(|pod| pod.key.name().to_owned()),
        service_ip: if is_headless { ip } else { Some(service.object.cluster_ip.to_string()) },
        service_name: Some(service.key.name().to_owned()),
    });
}

fn set_conditions(observed: &Observed, outcome: &Outcome, all: &mut Vec<Condition>) {
    let now = Time(observed.now);
    let set = |all: &mut Vec<Condition>, type_: &str, holds: bool, reason: &str, message: &str| {
        let finding = Finding { type_, holds: Some(holds), reason, message, observed_generation: None };
        conditions::set(all, &finding, &now);
    };
    match outcome {
        Outcome::PodsFailed { marker, cause } => {
            set(all, REPLICA_FAILURE, true, marker, &format!("{marker}\n{cause}"));
        }
        Outcome::Done => {
            conditions::remove(all, REPLICA_FAILURE);
        }
        Outcome::OtherFailed => {}
    }
    let (holds, reason, message) = head_readiness(observed.heads().next());
    set(all, HEAD_READY, holds, &reason, &message);
    let suspended = conditions::is_true(all, SUSPENDED);
    if !conditions::is_true(all, PROVISIONED) && !suspended {
        let all_run = observed.pods.iter().all(|pod| pod.object.runs_and_does_not_complain());
        if !observed.pods.is_empty() && all_run {
            let message = "All Ray Pods are ready for the first time";
            set(all, PROVISIONED, true, reasons::ALL_POD_RUNNING_AND_READY_FIRST_TIME, message);
        } else {
            let message = "RayCluster Pods are being provisioned for first time";
            set(all, PROVISIONED, false, reasons::RAY_CLUSTER_PODS_PROVISIONING, message);
        }
    }
    let wants = observed.object().spec.suspend;
    let mark = |all: &mut Vec<Condition>, suspending: bool, suspended: bool| {
        set(all, SUSPENDING, suspending, SUSPENDING, "");
        set(all, SUSPENDED, suspended, SUSPENDED, "");
    };
    if conditions::is_true(all, SUSPENDING) {
        if observed.pods.is_empty() {
            mark(all, false, true);
            set(
                all,
                PROVISIONED,
                false,
                reasons::RAY_CLUSTER_PODS_PROVISIONING,
                "RayCluster has been suspended",
            );
        }
    } else if suspended {
        if wants == Some(false) {
            set(all, SUSPENDED, false, SUSPENDED, "");
        }
    } else {
        mark(all, wants == Some(true), false);
    }
}

/// What the head says of itself: whether it is ready, in one word and in a sentence.
fn head_readiness(head: Option<&Pod>) -> (bool, String, String) {
    let Some(head) = head else {
        return (false, reasons::HEAD_POD_NOT_FOUND.to_owned(), "Head Pod not found".to_owned());
    };
    let Some(ready) = &head.object.ready else {
        return (false, reasons::UNKNOWN.to_owned(), String::new());
    };
    let (mut reason, mut message) = (&*ready.reason, &*ready.message);
    if !ready.holds && reason == "ContainersNotReady" {
        let waiting = head.object.containers.iter().find_map(|container| match &container.state {
            ContainerState::Waiting { reason, message }
            | ContainerState::Terminated { reason, message, .. } => Some((reason, message)),
            ContainerState::Running | ContainerState::Unknown => None,
        });
        (reason, message) = waiting.map_or((reason, message), |(reason, message)| (reason, message));
    }
    let fallback = if ready.holds { reasons::HEAD_POD_RUNNING_AND_READY } else { reasons::UNKNOWN };
    // The API server would refuse the whole status for a malformed reason.
    let reason = if is_reason(reason) { reason } else { fallback };
    (ready.holds, reason.to_owned(), message.to_owned())
}

fn is_reason(reason: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    reason.len() <= 1024
        && reason.bytes().all(|byte| is_word(byte) || matches!(byte, b',' | b':'))
        && reason.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && reason.bytes().next_back().is_some_and(is_word)
}
