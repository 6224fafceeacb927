//! What changes of container states mean for the record of a pod, and what of it outlives the kubelet.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use serde::{Deserialize, Serialize};

use super::lifecycle::{Backoff, Record};
use super::status::{End, PodRecord, Verdict};
use crate::shim::protocol::{ContainerState, Exit};

/// The exit code of a process that the kernel killed.
const KILLED: i32 = 137;
/// The exit code of a container whose command cannot be executed.
const NOT_EXECUTED: i32 = 128;

/// Takes over what a shim reports; returns the instances that have ended since.
pub fn absorb(
    record: &mut PodRecord,
    states: BTreeMap<String, ContainerState>,
) -> Vec<(String, ContainerState)> {
    let mut ended = Vec::new();
    for (name, state) in states {
        let own = record.containers.entry(name.clone()).or_default();
        let known = own.state.as_ref();
        // An instance that could not be executed is newer than what the shim knows, and a report may be overtaken by that
        // of the end.
        let is_outdated = |known: &ContainerState| {
            known.attempt > state.attempt
                || (known.id == state.id && known.exit.is_some() && state.exit.is_none())
        };
        if known.is_some_and(|known| is_outdated(known) || *known == state) {
            continue;
        }
        let is_new = known.is_none_or(|known| known.attempt < state.attempt);
        if is_new {
            own.previous = own.state.take();
            (own.is_started, own.is_ready, own.waiting) = (false, false, None);
        }
        if let Some(exit) = &state.exit {
            own.backoff.ended(state.started_at, exit.finished_at);
            (own.is_started, own.is_ready) = (false, false);
            ended.push((name, state.clone()));
        }
        own.state = Some(state);
    }
    let kept = |id: &String| {
        let states = record.containers.values().flat_map(|one| one.state.iter().chain(&one.previous));
        states.into_iter().any(|state| state.id == *id)
    };
    let ids: Vec<String> = record.ends.keys().filter(|id| !kept(id)).cloned().collect();
    for id in ids {
        record.ends.remove(&id);
    }
    ended
}

/// An instance whose command could not be executed: it counts as one that ended at once.
pub fn not_executed(
    record: &mut PodRecord,
    name: &str,
    id: &str,
    attempt: u32,
    message: &str,
    now: Timestamp,
) {
    let exit = Exit { code: NOT_EXECUTED, signal: 0, finished_at: now, is_out_of_memory: false };
    let state = ContainerState { id: id.to_owned(), attempt, pid: 0, started_at: now, exit: Some(exit) };
    absorb(record, [(name.to_owned(), state)].into());
    let end = End { reason: Some("StartError".into()), message: Some(message.to_owned()) };
    record.ends.insert(id.to_owned(), end);
}

/// The shim is gone and with it everything that ran: after a reboot, or because it was killed.
pub fn lost(record: &mut PodRecord, now: Timestamp) {
    let running: BTreeMap<String, ContainerState> = record
        .containers
        .iter()
        .filter(|(_, one)| one.is_running())
        .filter_map(|(name, one)| Some((name.clone(), one.state.clone()?)))
        .collect();
    for (name, state) in running {
        let exit = Exit { code: KILLED, signal: 9, finished_at: now, is_out_of_memory: false };
        let message = "The container could not be located when the pod was terminated";
        let end = End { reason: Some("ContainerStatusUnknown".into()), message: Some(message.into()) };
        record.ends.insert(state.id.clone(), end);
        absorb(record, [(name, ContainerState { exit: Some(exit), ..state })].into());
    }
    record.has_sandbox = false;
}

/// What of a record outlives the kubelet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Saved {
    /// The namespace of the pod.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The process identifier of the shim.
    pub shim: Option<u32>,
    /// When the shim's process started, in the kernel's units since boot, and the boot.
    pub shim_started: Option<(String, u64)>,
    containers: BTreeMap<String, SavedContainer>,
    pod_ips: Vec<String>,
    /// Whether the sandbox was complete. Containers are started only when this is on the disk.
    pub has_sandbox: bool,
    start_time: Option<Timestamp>,
    is_over: bool,
    verdict: Option<Verdict>,
    images: BTreeMap<String, String>,
    ends: BTreeMap<String, End>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SavedContainer {
    state: Option<ContainerState>,
    previous: Option<ContainerState>,
    is_started: bool,
    backoff: Backoff,
    allocated: Option<core::ResourceRequirements>,
}

impl Saved {
    /// What to keep of a record.
    pub fn of(record: &PodRecord, (namespace, name): (&str, &str)) -> Self {
        let container = |one: &Record| SavedContainer {
            state: one.state.clone(),
            previous: one.previous.clone(),
            is_started: one.is_started,
            backoff: one.backoff.clone(),
            allocated: one.allocated.clone(),
        };
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            shim: None,
            shim_started: None,
            containers: record.containers.iter().map(|(name, one)| (name.clone(), container(one))).collect(),
            pod_ips: record.pod_ips.clone(),
            has_sandbox: record.has_sandbox,
            start_time: record.start_time,
            is_over: record.is_over,
            verdict: record.verdict.clone(),
            images: record.images.clone(),
            ends: record.ends.clone(),
        }
    }

    /// The record as it was. Readiness is found out again.
    pub fn restore(self) -> PodRecord {
        let container = |one: SavedContainer| Record {
            state: one.state,
            previous: one.previous,
            is_started: one.is_started,
            backoff: one.backoff,
            allocated: one.allocated,
            ..Record::default()
        };
        PodRecord {
            containers: self.containers.into_iter().map(|(name, one)| (name, container(one))).collect(),
            pod_ips: self.pod_ips,
            start_time: self.start_time,
            is_over: self.is_over,
            verdict: self.verdict,
            images: self.images,
            ends: self.ends,
            ..PodRecord::default()
        }
    }

    /// The addresses of the pod.
    pub fn pod_ips(&self) -> &[String] {
        &self.pod_ips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn state(attempt: u32, exit: Option<i32>) -> ContainerState {
        let exit = exit.map(|code| Exit { code, signal: 0, finished_at: at(5), is_out_of_memory: false });
        ContainerState { id: format!("i{attempt}"), attempt, pid: 7, started_at: at(1), exit }
    }

    fn report(record: &mut PodRecord, state: ContainerState) -> usize {
        absorb(record, [("a".to_owned(), state)].into()).len()
    }

    #[test]
    fn an_end_is_reported_once_and_backs_off() {
        let mut record = PodRecord::default();
        assert_eq!(report(&mut record, state(0, None)), 0);
        assert_eq!(report(&mut record, state(0, Some(1))), 1);
        assert_eq!(report(&mut record, state(0, Some(1))), 0);
        assert!(record.containers["a"].backoff.wait().is_zero());
        report(&mut record, state(1, None));
        assert_eq!(record.containers["a"].previous, Some(state(0, Some(1))));
        assert_eq!(report(&mut record, state(1, Some(1))), 1);
        assert_eq!(record.containers["a"].backoff.wait().as_secs(), 10);
    }

    #[test]
    fn a_late_report_does_not_bring_an_ended_instance_back() {
        let mut record = PodRecord::default();
        report(&mut record, state(0, None));
        assert_eq!(report(&mut record, state(0, Some(3))), 1);
        assert_eq!(report(&mut record, state(0, None)), 0);
        assert_eq!(record.containers["a"].state, Some(state(0, Some(3))));
        report(&mut record, state(1, None));
        assert!(record.containers["a"].is_running(), "the next instance is another one");
    }

    #[test]
    fn a_restarted_container_has_to_start_and_become_ready_again() {
        let mut record = PodRecord::default();
        report(&mut record, state(0, None));
        let own = record.containers.get_mut("a").unwrap();
        (own.is_started, own.is_ready) = (true, true);
        report(&mut record, state(0, Some(0)));
        let own = &record.containers["a"];
        assert!(!own.is_started && !own.is_ready);
    }

    #[test]
    fn a_command_that_cannot_be_executed_counts_as_an_instance() {
        let mut record = PodRecord::default();
        report(&mut record, state(0, Some(1)));
        not_executed(&mut record, "a", "i1", 1, "no such file", at(9));
        assert_eq!(report(&mut record, state(0, Some(1))), 0, "the shim knows only the one before");
        let own = &record.containers["a"];
        assert_eq!((own.next_attempt(), own.backoff.wait().as_secs()), (2, 10));
        assert_eq!(record.ends["i1"].reason.as_deref(), Some("StartError"));
    }

    #[test]
    fn what_a_lost_shim_ran_was_killed() {
        let mut record = PodRecord { has_sandbox: true, ..PodRecord::default() };
        report(&mut record, state(0, None));
        lost(&mut record, at(50));
        let exit = record.containers["a"].state.as_ref().unwrap().exit.clone().unwrap();
        assert_eq!((exit.code, exit.finished_at, record.has_sandbox), (137, at(50), false));
        assert_eq!(record.ends["i0"].reason.as_deref(), Some("ContainerStatusUnknown"));
    }

    #[test]
    fn last_words_are_kept_for_two_instances() {
        let mut record = PodRecord::default();
        for attempt in 0..4 {
            report(&mut record, state(attempt, Some(1)));
            record.ends.insert(format!("i{attempt}"), End::default());
        }
        report(&mut record, state(4, None));
        assert_eq!(record.ends.keys().collect::<Vec<_>>(), ["i3"]);
    }

    #[test]
    fn a_record_survives_the_kubelet() {
        let mut record = PodRecord { pod_ips: vec!["10.0.0.2".into()], ..PodRecord::default() };
        report(&mut record, state(2, Some(1)));
        let saved = Saved::of(&record, ("team", "p"));
        let text = serde_json::to_string(&saved).unwrap();
        let back: Saved = serde_json::from_str(&text).unwrap();
        assert_eq!(back, saved);
        let back = back.restore();
        assert_eq!(back.containers["a"].next_attempt(), 3);
        assert_eq!(back.containers["a"].backoff, record.containers["a"].backoff);
    }
}
