//! Which containers of a pod to start and stop, as `computePodActions` of the kubelet decides it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use serde::{Deserialize, Serialize};

use crate::shim::protocol::{ContainerState, Exit};

/// The first wait before a restart; every further one is twice as long.
const BACKOFF: Duration = Duration::from_secs(10);
/// The longest wait before a restart.
const BACKOFF_LIMIT: Duration = Duration::from_mins(5);
/// A container that ran this long starts again with the first wait.
const BACKOFF_RESET: Duration = Duration::from_mins(10);
/// How long a container has to end if its pod does not say.
pub const GRACE_PERIOD: i64 = 30;

/// What a container is in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: runs beside the regular ones.
    Sidecar,
    /// A regular one.
    Regular,
    /// One that was added to a pod for debugging: runs once, and nothing waits for it.
    Ephemeral,
}

/// A container of a pod.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// Its specification.
    pub spec: Cow<'a, core::Container>,
    /// What it is.
    pub role: Role,
}

/// All containers in the order they start.
pub fn members(pod: &core::Pod) -> Vec<Member<'_>> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let init = spec.init_containers.iter().flatten().map(|container| {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        let role = if is_sidecar { Role::Sidecar } else { Role::Init };
        Member { spec: Cow::Borrowed(container), role }
    });
    let regular =
        spec.containers.iter().map(|spec| Member { spec: Cow::Borrowed(spec), role: Role::Regular });
    let ephemeral = ephemeral_containers(pod).into_iter();
    let ephemeral = ephemeral.map(|spec| Member { spec: Cow::Owned(spec), role: Role::Ephemeral });
    init.chain(regular).chain(ephemeral).collect()
}

/// The ephemeral containers of a pod as ordinary ones, which have all of their fields.
pub fn ephemeral_containers(pod: &core::Pod) -> Vec<core::Container> {
    let all = pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    all.filter_map(|one| serde_json::to_value(one).and_then(serde_json::from_value).ok()).collect()
}

/// The container whose processes an ephemeral one sees, if it names one.
pub fn target_of<'a>(pod: &'a core::Pod, container: &str) -> Option<&'a str> {
    let mut all = pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    let one = all.find(|one| one.name == container)?;
    one.target_container_name.as_deref().filter(|name| !name.is_empty())
}

/// What the kubelet knows of one container, beyond its specification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The newest instance.
    pub state: Option<ContainerState>,
    /// How the instance before it ended.
    pub previous: Option<ContainerState>,
    /// Why no instance runs, if it is neither its order among the init containers nor a back-off.
    pub waiting: Option<Waiting>,
    /// Whether its startup probe has succeeded, or it has none.
    pub is_started: bool,
    /// Whether its readiness probe succeeds, or it has none.
    pub is_ready: bool,
    /// The wait before the next restart.
    pub backoff: Backoff,
    /// The resources that the newest instance was given.
    pub allocated: Option<core::ResourceRequirements>,
}

impl Record {
    fn exit(&self) -> Option<&Exit> {
        self.state.as_ref()?.exit.as_ref()
    }

    /// Whether an instance runs.
    pub fn is_running(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.exit.is_none())
    }

    /// The number of the next instance.
    pub fn next_attempt(&self) -> u32 {
        self.state.as_ref().map_or(0, |state| state.attempt + 1)
    }
}

/// Why a container does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The reason in its status.
    pub reason: &'static str,
    /// The message in its status.
    pub message: String,
    /// When to try again.
    pub until: Timestamp,
}

/// The wait before a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    wait: Option<Duration>,
}

impl Backoff {
    /// Counts the end of an instance that began at `started_at`. The first restart follows at once.
    pub fn ended(&mut self, started_at: Timestamp, finished_at: Timestamp) {
        let ran = Duration::try_from(finished_at.duration_since(started_at)).unwrap_or_default();
        self.wait = match self.wait {
            Some(_) if ran > BACKOFF_RESET => Some(Duration::ZERO),
            None => Some(Duration::ZERO),
            Some(Duration::ZERO) => Some(BACKOFF),
            Some(wait) => Some((wait * 2).min(BACKOFF_LIMIT)),
        };
    }

    /// The wait that the last end made necessary.
    pub fn wait(&self) -> Duration {
        self.wait.unwrap_or_default()
    }
}

/// What to do for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start an instance.
    Start {
        /// The container.
        container: String,
        /// The number of the instance.
        attempt: u32,
    },
    /// Stop it because nothing needs it any more.
    Stop {
        /// The container.
        container: String,
    },
}

/// What to do for a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// In this order; all may happen at the same time.
    pub steps: Vec<Step>,
    /// When something happens by itself.
    pub wake: Option<Timestamp>,
    /// Whether all containers have ended for good, so that the pod has succeeded or failed.
    pub is_over: bool,
}

/// Decides for a pod that is not being deleted. Records of containers that never started may be absent.
pub fn steps(pod: &core::Pod, records: &BTreeMap<String, Record>, now: Timestamp) -> Steps {
    let members = members(pod);
    let mut decision = Decision { pod, records, now, steps: Steps::default() };
    let regular = || members.iter().filter(|member| member.role == Role::Regular);
    if regular().all(|member| decision.has_ended_for_good(member)) || decision.has_init_failed(&members) {
        decision.wind_down(&members);
        return decision.steps;
    }
    if decision.is_initialized(&members) {
        let running = members.iter().filter(|member| matches!(member.role, Role::Regular | Role::Sidecar));
        running.for_each(|member| decision.keep_running(member));
    } else {
        decision.initialize(&members);
    }
    // They may be there to find out why the pod is not initialized.
    let ephemeral = members.iter().filter(|member| member.role == Role::Ephemeral);
    ephemeral.for_each(|member| decision.keep_running(member));
    decision.steps
}

/// Whether a container is started again after this exit.
pub fn restarts_after(pod: &core::Pod, member: &Member<'_>, exit: &Exit) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let own = member.spec.restart_policy.as_deref();
    let policy = own.or_else(|| pod.spec.as_ref()?.restart_policy.as_deref()).unwrap_or("Always");
    if let Some(is_restarted) = rule_for(&member.spec, exit) {
        return is_restarted;
    }
    match (member.role, policy) {
        (Role::Ephemeral, _) => false,
        (Role::Init, "Always") => exit.code != 0,
        (Role::Sidecar, _) | (_, "Always") => true,
        (_, "OnFailure") => exit.code != 0,
        _ => false,
    }
}

/// The verdict of the first of a container's restart rules that matches an exit code.
fn rule_for(container: &core::Container, exit: &Exit) -> Option<bool> {
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    let rule = rules.iter().find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let is_listed = codes.values.iter().flatten().any(|code| *code == exit.code);
            if codes.operator == "NotIn" { !is_listed } else { is_listed }
        })
    })?;
    // `RestartAllContainers` restarts this one.
    Some(matches!(rule.action.as_str(), "Restart" | "RestartAllContainers"))
}

struct Decision<'a> {
    pod: &'a core::Pod,
    records: &'a BTreeMap<String, Record>,
    now: Timestamp,
    steps: Steps,
}

impl<'a> Decision<'a> {
    fn record(&self, member: &Member<'_>) -> Option<&'a Record> {
        self.records.get(&member.spec.name)
    }

    fn has_ended_for_good(&self, member: &Member<'_>) -> bool {
        let exit = self.record(member).and_then(Record::exit);
        exit.is_some_and(|exit| !restarts_after(self.pod, member, exit))
    }

    /// A failed init container that is not restarted fails the pod.
    fn has_init_failed(&self, members: &[Member<'_>]) -> bool {
        members.iter().filter(|member| member.role == Role::Init).any(|member| {
            let exit = self.record(member).and_then(Record::exit);
            exit.is_some_and(|exit| exit.code != 0 && !restarts_after(self.pod, member, exit))
        })
    }

    /// Once a regular container has been started init containers are not run again.
    fn is_initialized(&self, members: &[Member<'_>]) -> bool {
        let mut regular = members.iter().filter(|member| member.role == Role::Regular);
        let was_started =
            |member: &Member<'_>| self.record(member).is_some_and(|record| record.state.is_some());
        regular.any(was_started) || members.iter().all(|member| self.is_complete(member))
    }

    /// Whether the next container may start.
    fn is_complete(&self, member: &Member<'_>) -> bool {
        let record = self.record(member);
        match member.role {
            Role::Regular | Role::Ephemeral => true,
            Role::Init => record.and_then(Record::exit).is_some_and(|exit| exit.code == 0),
            Role::Sidecar => record.is_some_and(|record| record.is_running() && record.is_started),
        }
    }

    /// Starts init containers one after the other, and keeps sidecars alive that have started.
    fn initialize(&mut self, members: &[Member<'_>]) {
        for member in members {
            let is_complete = self.is_complete(member);
            if !is_complete {
                self.keep_running(member);
                return;
            }
        }
    }

    /// Starts a container that does not run, when its back-off is over.
    fn keep_running(&mut self, member: &Member<'_>) {
        let record = self.record(member);
        if record.is_some_and(Record::is_running) || self.has_ended_for_good(member) {
            return;
        }
        match record.and_then(ready_at) {
            Some(at) if at > self.now => self.wake_at(at),
            _ => self.steps.steps.push(Step::Start {
                container: member.spec.name.clone(),
                attempt: record.map_or(0, Record::next_attempt),
            }),
        }
    }

    /// Stops what still runs: sidecars, the last one first, one after the other.
    fn wind_down(&mut self, members: &[Member<'_>]) {
        let is_running = |member: &&Member<'_>| self.record(member).is_some_and(Record::is_running);
        let last = members.iter().rfind(is_running);
        match last {
            Some(member) => self.steps.steps.push(Step::Stop { container: member.spec.name.clone() }),
            None => self.steps.is_over = true,
        }
    }

    fn wake_at(&mut self, at: Timestamp) {
        self.steps.wake = Some(self.steps.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// When a container that does not run may be started.
fn ready_at(record: &Record) -> Option<Timestamp> {
    let after_exit = record.exit().map(|exit| {
        let wait = SignedDuration::try_from(record.backoff.wait()).unwrap_or(SignedDuration::ZERO);
        exit.finished_at.saturating_add(wait).unwrap_or(exit.finished_at)
    });
    let after_problem = record.waiting.as_ref().map(|waiting| waiting.until);
    after_exit.max(after_problem)
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
#[path = "lifecycle_tests.rs"]
mod tests;
