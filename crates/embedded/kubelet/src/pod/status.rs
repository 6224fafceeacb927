//! The status of a pod as the kubelet reports it: phase, conditions, containers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::lifecycle::{Member, Record, Role, members, restarts_after};
use crate::shim::protocol::ContainerState;

/// The name before `://` in identifiers of containers.
pub const RUNTIME: &str = "quintet";

/// What the kubelet knows of a pod, beyond its specification.
#[derive(Clone, Debug, Default)]
pub struct PodRecord {
    /// By name of the container.
    pub containers: BTreeMap<String, Record>,
    /// The addresses of the pod, once its sandbox exists.
    pub pod_ips: Vec<String>,
    /// The addresses of the node.
    pub host_ips: Vec<String>,
    /// When the kubelet first saw the pod.
    pub start_time: Option<Timestamp>,
    /// Whether its sandbox exists.
    pub has_sandbox: bool,
    /// Whether no process of the pod is left. Terminal phases are reported only then.
    pub is_over: bool,
    /// Why the kubelet ended the pod, or never started it.
    pub verdict: Option<Verdict>,
    /// Why the resources of running containers are not what the pod asks for.
    pub resize: Option<Resize>,
    /// What each container's image stands for, by container.
    pub images: BTreeMap<String, String>,
    /// What is known of the end of an instance beyond its exit code, by identifier.
    pub ends: BTreeMap<String, End>,
}

impl PodRecord {
    /// Whether the pod uses nothing of the node any more, or was never let onto it.
    pub fn is_finished(&self) -> bool {
        self.is_over || self.verdict.is_some() && !self.has_sandbox
    }

    /// Whether the node rejected the pod before anything was done for it: then its containers have no status.
    fn is_rejected(&self) -> bool {
        self.verdict.is_some() && self.start_time.is_none()
    }
}

/// What is known of the end of a container instance beyond its exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    /// The reason in its status, where the exit code does not decide it.
    pub reason: Option<String>,
    /// Its last words.
    pub message: Option<String>,
}

/// Why a resize in place has not been done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resize {
    /// The node never has that much.
    Infeasible(String),
    /// Other pods use it now.
    Deferred(String),
    /// The machine refused it.
    Failed(String),
}

impl Resize {
    /// Why, for people.
    pub fn message(&self) -> &str {
        let (Self::Infeasible(message) | Self::Deferred(message) | Self::Failed(message)) = self;
        message
    }

    /// The reason of the event.
    pub fn event(&self) -> &'static str {
        match self {
            Self::Infeasible(_) => "ResizeInfeasible",
            Self::Deferred(_) => "ResizeDeferred",
            Self::Failed(_) => "ResizeError",
        }
    }

    fn condition(&self) -> Condition {
        let (kind, reason) = match self {
            Self::Infeasible(_) => (RESIZE_PENDING, "Infeasible"),
            Self::Deferred(_) => (RESIZE_PENDING, "Deferred"),
            Self::Failed(_) => (RESIZE_IN_PROGRESS, "Error"),
        };
        Condition { message: Some(self.message().to_owned()), ..Condition::because(kind, true, reason) }
    }
}

/// A resize waits.
const RESIZE_PENDING: &str = "PodResizePending";
/// A resize is being done.
const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";

/// A failure of the pod as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Its reason, like `DeadlineExceeded`.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// The status to report. Conditions of other owners in `pod` are kept, and so are times of conditions that stay.
pub fn status(pod: &core::Pod, record: &PodRecord, now: Timestamp) -> core::PodStatus {
    let old = pod.status.clone().unwrap_or_default();
    let members = members(pod);
    let phase = phase(pod, &members, record);
    let of = |is_wanted: fn(Role) -> bool| {
        let wanted = members.iter().filter(|member| is_wanted(member.role));
        wanted.map(|member| container_status(pod, member, record)).collect::<Vec<_>>()
    };
    let (init, regular) =
        (of(|role| matches!(role, Role::Init | Role::Sidecar)), of(|role| role == Role::Regular));
    let ephemeral = of(|role| role == Role::Ephemeral);
    let ips = |ips: &[String]| ips.first().cloned();
    core::PodStatus {
        conditions: Some(conditions(pod, &members, record, phase, now)),
        container_statuses: Some(regular).filter(|_| !record.is_rejected()),
        init_container_statuses: Some(init).filter(|statuses| !statuses.is_empty() && !record.is_rejected()),
        host_ip: ips(&record.host_ips).or(old.host_ip),
        host_ips: addresses(&record.host_ips, |ip| core::HostIP { ip }).or(old.host_ips),
        pod_ip: ips(&record.pod_ips).or(old.pod_ip),
        pod_ips: addresses(&record.pod_ips, |ip| core::PodIP { ip }).or(old.pod_ips),
        phase: Some(phase.to_owned()),
        reason: record.verdict.as_ref().map(|verdict| verdict.reason.clone()).or(old.reason),
        message: record.verdict.as_ref().map(|verdict| verdict.message.clone()).or(old.message),
        start_time: old.start_time.or_else(|| record.start_time.map(Time)),
        observed_generation: pod.metadata.generation,
        qos_class: old.qos_class,
        nominated_node_name: old.nominated_node_name,
        ephemeral_container_statuses: Some(ephemeral).filter(|statuses| !statuses.is_empty()),
        ..core::PodStatus::default()
    }
}

fn addresses<T>(ips: &[String], make: fn(String) -> T) -> Option<Vec<T>> {
    (!ips.is_empty()).then(|| ips.iter().cloned().map(make).collect())
}

/// The phase. Terminal ones never change, and are not reported while a process lives.
pub fn phase(pod: &core::Pod, members: &[Member<'_>], record: &PodRecord) -> &'static str {
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Succeeded") => return "Succeeded",
        Some("Failed") => return "Failed",
        _ => {}
    }
    if record.verdict.is_some() && record.is_over {
        return "Failed";
    }
    let regular = || members.iter().filter(|member| member.role == Role::Regular);
    let state =
        |member: &Member<'_>| record.containers.get(&member.spec.name).and_then(|one| one.state.as_ref());
    let was_started = |member: &Member<'_>| state(member).is_some();
    if record.is_over {
        let init_failed = members.iter().filter(|member| member.role == Role::Init).any(|member| {
            state(member).and_then(|state| state.exit.as_ref()).is_some_and(|exit| exit.code != 0)
        });
        let succeeded = |member: &Member<'_>| {
            state(member).and_then(|state| state.exit.as_ref()).is_some_and(|exit| exit.code == 0)
        };
        return if !init_failed && regular().all(succeeded) { "Succeeded" } else { "Failed" };
    }
    if regular().all(was_started) { "Running" } else { "Pending" }
}

fn container_status(pod: &core::Pod, member: &Member<'_>, record: &PodRecord) -> core::ContainerStatus {
    let name = &member.spec.name;
    let empty = Record::default();
    let own = record.containers.get(name).unwrap_or(&empty);
    let (state, last) = states(pod, member, own, record);
    let has_succeeded =
        own.state.as_ref().and_then(|state| state.exit.as_ref()).is_some_and(|exit| exit.code == 0);
    let is_ready = match member.role {
        Role::Init => has_succeeded,
        Role::Ephemeral => false,
        Role::Regular | Role::Sidecar => own.is_running() && own.is_started && own.is_ready,
    };
    let image = member.spec.image.clone().unwrap_or_default();
    let resources = if own.is_running() { &own.allocated } else { &member.spec.resources }.clone();
    core::ContainerStatus {
        name: name.clone(),
        image_id: record.images.get(name).cloned().unwrap_or_default(),
        image,
        container_id: own.state.as_ref().map(|state| format!("{RUNTIME}://{}", state.id)),
        ready: is_ready,
        started: Some(own.is_running() && (own.is_started || member.role == Role::Init)),
        restart_count: own.state.as_ref().map_or(0, |state| i32::try_from(state.attempt).unwrap_or(i32::MAX)),
        state: Some(state),
        last_state: Some(last.unwrap_or_default()),
        allocated_resources: resources.as_ref().and_then(|resources| resources.requests.clone()),
        resources,
        ..core::ContainerStatus::default()
    }
}

/// The state of a container, and the one before it.
fn states(
    pod: &core::Pod,
    member: &Member<'_>,
    own: &Record,
    record: &PodRecord,
) -> (core::ContainerState, Option<core::ContainerState>) {
    let before = || own.previous.as_ref().map(|previous| terminated(previous, record));
    let Some(state) = &own.state else {
        let waiting = own.waiting.as_ref().map_or_else(
            || waiting(first_reason(pod, member), None),
            |why| waiting(why.reason, Some(why.message.clone())),
        );
        return (waiting, None);
    };
    let Some(exit) = &state.exit else {
        let running = core::ContainerStateRunning { started_at: Some(Time(state.started_at)) };
        return (
            core::ContainerState { running: Some(running), ..core::ContainerState::default() },
            before(),
        );
    };
    let ended = terminated(state, record);
    if record.is_over || !restarts_after(pod, member, exit) || (member.role == Role::Init && exit.code == 0) {
        return (ended, before());
    }
    match &own.waiting {
        Some(why) => (waiting(why.reason, Some(why.message.clone())), Some(ended)),
        None if own.backoff.wait().is_zero() => (ended, before()),
        None => (waiting("CrashLoopBackOff", Some(back_off(pod, member, own))), Some(ended)),
    }
}

/// What a container waits for that nothing is wrong with.
fn first_reason(pod: &core::Pod, member: &Member<'_>) -> &'static str {
    let has_init =
        pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref()).is_some_and(|init| !init.is_empty());
    if has_init && member.role == Role::Regular { "PodInitializing" } else { "ContainerCreating" }
}

fn back_off(pod: &core::Pod, member: &Member<'_>, own: &Record) -> String {
    let metadata = &pod.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    format!(
        "back-off {} restarting failed container={} pod={}_{}({})",
        go_duration(own.backoff.wait().as_secs()),
        member.spec.name,
        text(&metadata.name),
        text(&metadata.namespace),
        text(&metadata.uid),
    )
}

/// Seconds as Go writes them: `40s`, `1m20s`, `5m0s`.
fn go_duration(seconds: u64) -> String {
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}

fn waiting(reason: &str, message: Option<String>) -> core::ContainerState {
    let waiting = core::ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    core::ContainerState { waiting: Some(waiting), ..core::ContainerState::default() }
}

fn terminated(state: &ContainerState, record: &PodRecord) -> core::ContainerState {
    let Some(exit) = &state.exit else { return core::ContainerState::default() };
    let end = record.ends.get(&state.id).cloned().unwrap_or_default();
    let reason = match exit.code {
        _ if exit.is_out_of_memory => "OOMKilled",
        0 => "Completed",
        _ => "Error",
    };
    let terminated = core::ContainerStateTerminated {
        exit_code: exit.code,
        reason: end.reason.or_else(|| Some(reason.to_owned())),
        message: end.message,
        signal: None,
        started_at: Some(Time(state.started_at)),
        finished_at: Some(Time(exit.finished_at)),
        container_id: Some(format!("{RUNTIME}://{}", state.id)),
    };
    core::ContainerState { terminated: Some(terminated), ..core::ContainerState::default() }
}

/// A condition without its times.
struct Condition {
    kind: &'static str,
    is_true: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Condition {
    fn of(kind: &'static str, is_true: bool) -> Self {
        Self { kind, is_true, reason: None, message: None }
    }

    fn because(kind: &'static str, is_true: bool, reason: &'static str) -> Self {
        Self { kind, is_true, reason: Some(reason), message: None }
    }
}

fn conditions(
    pod: &core::Pod,
    members: &[Member<'_>],
    record: &PodRecord,
    phase: &str,
    now: Timestamp,
) -> Vec<core::PodCondition> {
    let containers = containers_ready(members, record, phase);
    let ready = ready(pod, &containers);
    let mut own = vec![
        Condition::of("PodReadyToStartContainers", record.has_sandbox && !record.is_over),
        initialized(members, record, phase),
        ready,
        containers,
        Condition::of("PodScheduled", true),
    ];
    own.extend(record.resize.as_ref().map(Resize::condition));
    // These are there only while they are true.
    let is_past = |kind: &str| matches!(kind, RESIZE_PENDING | RESIZE_IN_PROGRESS);
    let old = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_own = |one: &core::PodCondition| own.iter().any(|own| own.kind == one.type_);
    let foreign = old.iter().filter(|one| !is_own(one) && !is_past(&one.type_)).cloned();
    let reported = own.iter().map(|condition| {
        let status = if condition.is_true { "True" } else { "False" };
        let before = old.iter().find(|one| one.type_ == condition.kind && one.status == status);
        core::PodCondition {
            type_: condition.kind.to_owned(),
            status: status.to_owned(),
            reason: condition.reason.map(str::to_owned),
            message: condition.message.clone(),
            last_probe_time: None,
            last_transition_time: before.and_then(|one| one.last_transition_time.clone()).or(Some(Time(now))),
            observed_generation: pod.metadata.generation,
        }
    });
    reported.chain(foreign).collect()
}

fn initialized(members: &[Member<'_>], record: &PodRecord, phase: &str) -> Condition {
    const KIND: &str = "Initialized";
    if phase == "Succeeded" {
        return Condition::because(KIND, true, "PodCompleted");
    }
    let regular_started = members
        .iter()
        .filter(|member| member.role == Role::Regular)
        .any(|member| record.containers.get(&member.spec.name).is_some_and(|one| one.state.is_some()));
    let is_complete = |member: &&Member<'_>| {
        let own = record.containers.get(&member.spec.name);
        match member.role {
            Role::Regular | Role::Ephemeral => true,
            Role::Sidecar => regular_started || own.is_some_and(|own| own.is_running() && own.is_started),
            Role::Init => {
                let exit = own.and_then(|own| own.state.as_ref()?.exit.as_ref());
                exit.is_some_and(|exit| exit.code == 0)
            }
        }
    };
    let incomplete: Vec<&str> = members
        .iter()
        .filter(|member| !is_complete(member))
        .map(|member| member.spec.name.as_str())
        .collect();
    if incomplete.is_empty() {
        return Condition::of(KIND, true);
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    Condition { message: Some(message), ..Condition::because(KIND, false, "ContainersNotInitialized") }
}

fn containers_ready(members: &[Member<'_>], record: &PodRecord, phase: &str) -> Condition {
    const KIND: &str = "ContainersReady";
    match phase {
        "Succeeded" => return Condition::because(KIND, false, "PodCompleted"),
        "Failed" => return Condition::because(KIND, false, "PodFailed"),
        _ => {}
    }
    let is_ready = |member: &&Member<'_>| {
        let own = record.containers.get(&member.spec.name);
        own.is_some_and(|own| own.is_running() && own.is_started && own.is_ready)
    };
    let counted = members.iter().filter(|member| matches!(member.role, Role::Regular | Role::Sidecar));
    let unready: Vec<&str> =
        counted.filter(|member| !is_ready(member)).map(|member| member.spec.name.as_str()).collect();
    if unready.is_empty() {
        return Condition::of(KIND, true);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Condition { message: Some(message), ..Condition::because(KIND, false, "ContainersNotReady") }
}

/// A pod is ready if its containers are, and all its readiness gates are true.
fn ready(pod: &core::Pod, containers: &Condition) -> Condition {
    const KIND: &str = "Ready";
    if !containers.is_true {
        return Condition {
            kind: KIND,
            is_true: false,
            reason: containers.reason,
            message: containers.message.clone(),
        };
    }
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    let existing = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let problems = gates.iter().filter_map(|gate| {
        let kind = &gate.condition_type;
        match existing.iter().find(|condition| condition.type_ == *kind) {
            None => Some(format!("corresponding condition of pod readiness gate {kind:?} does not exist.")),
            Some(condition) if condition.status != "True" => Some(format!(
                "the status of pod readiness gate {kind:?} is not \"True\", but {}",
                condition.status
            )),
            Some(_) => None,
        }
    });
    let problems: Vec<String> = problems.collect();
    if problems.is_empty() {
        return Condition::of(KIND, true);
    }
    Condition {
        message: Some(problems.join(", ")),
        ..Condition::because(KIND, false, "ReadinessGatesNotReady")
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
#[path = "status_tests.rs"]
mod tests;
