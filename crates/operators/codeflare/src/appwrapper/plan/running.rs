//! An AppWrapper whose components exist: are they healthy, and are they done?

use std::collections::BTreeSet;
use std::time::Duration;

use quintet_api::appwrapper::conditions::{PODS_READY, QUOTA_RESERVED, RESOURCES_DEPLOYED, UNHEALTHY};
use quintet_api::appwrapper::{Phase, reasons};
use quintet_controller::{Next, Plan};

use super::{reset_or_fail, suspend, unhealthy_event, write};
use crate::appwrapper::observe::{Live, Observed};
use crate::appwrapper::pod_view::{PodPhase, PodView};
use crate::appwrapper::podsets;
use crate::appwrapper::status::Draft;

/// How often an AppWrapper is looked at whose pods are ready: pods are watched, other components are not.
const READY_POLL: Duration = Duration::from_mins(1);
/// How often one is looked at whose pods are not.
const WARMUP_POLL: Duration = Duration::from_secs(5);

/// The pods of an AppWrapper by phase.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pods {
    expected: usize,
    pending: usize,
    running: usize,
    succeeded: usize,
    failed: usize,
    /// A container ended with a code after which there is no retry.
    is_terminal: bool,
    /// Nodes that have to be left.
    unhealthy_nodes: BTreeSet<String>,
}

pub(super) fn running(observed: &Observed) -> Plan {
    let draft = Draft::new(observed);
    if observed.is_suspended() {
        return suspend(observed, draft);
    }
    if observed.components.iter().any(|component| component.live == Live::Unreadable) {
        // It may well be there. As upstream, nothing is decided before it can be read.
        let awaits = vec!["the right to read its components".to_owned()];
        return Plan { next: Next::After(READY_POLL), awaits, ..Plan::default() };
    }
    let present = observed.components.iter().filter(|component| is_present(&component.live)).count();
    let expected = observed.component_status().len();
    if present != expected {
        let message = format!("Only found {present} deployed components, but was expecting {expected}");
        return unhealthy(observed, draft, reasons::MISSING_COMPONENT, &message, |_, draft| {
            draft.set_phase(Phase::Failed);
        });
    }
    let pods = count(observed);
    let failed = observed.components.iter().filter(|component| has_failed(&component.live)).count();
    if failed > 0 {
        let message = format!("Found {failed} failed components");
        return unhealthy(observed, draft, reasons::FAILED_COMPONENT, &message, |observed, draft| {
            reset_or_fail(observed, draft, pods.is_terminal, 1);
        });
    }
    if pods.succeeded >= pods.expected && pods.pending + pods.running + pods.failed == 0 {
        return succeed(draft, pods.succeeded);
    }
    if pods.failed > 0 {
        return found_failed_pods(observed, draft, &pods);
    }
    if !pods.unhealthy_nodes.is_empty() {
        return leave_nodes(observed, draft, &pods);
    }
    check_readiness(observed, draft, &pods)
}

fn is_present(live: &Live) -> bool {
    matches!(live, Live::Present(live) if !live.deleting)
}

fn has_failed(live: &Live) -> bool {
    matches!(live, Live::Present(live) if live.has_failed)
}

/// Counts the pods.
fn count(observed: &Observed) -> Pods {
    let pod_sets = observed.component_status().iter().flat_map(|component| &component.pod_sets);
    let expected: i64 = pod_sets.map(|pod_set| i64::from(podsets::replicas(pod_set))).sum();
    let mut pods = Pods { expected: usize::try_from(expected).unwrap_or_default(), ..Pods::default() };
    let (terminal, retryable) =
        (observed.options().terminal_exit_codes(), observed.options().retryable_exit_codes());
    let is_terminal = |code: &i32| {
        let code = i64::from(*code);
        let is_not_retryable = !retryable.is_empty() && !retryable.contains(&code);
        code != 0 && (terminal.contains(&code) || is_not_retryable)
    };
    for pod in &observed.pods {
        let view = &pod.object;
        match view.phase {
            PodPhase::Pending => pods.pending += 1,
            PodPhase::Running if pod.deleting => {}
            PodPhase::Running => {
                pods.running += 1;
                if must_leave(observed, view) {
                    pods.unhealthy_nodes.insert(view.node.to_string());
                }
            }
            PodPhase::Succeeded => pods.succeeded += 1,
            PodPhase::Failed => {
                pods.failed += 1;
                pods.is_terminal |= view.exit_codes.iter().any(is_terminal);
            }
            PodPhase::Unknown => {}
        }
    }
    pods
}

/// Whether a pod uses what is unhealthy on its node.
fn must_leave(observed: &Observed, pod: &PodView) -> bool {
    let unhealthy = observed.unhealthy_nodes.get(&*pod.node);
    unhealthy.is_some_and(|unhealthy| pod.resources.iter().any(|resource| unhealthy.contains(&**resource)))
}

/// Says what is wrong, and what becomes of the AppWrapper.
fn unhealthy(
    observed: &Observed,
    mut draft: Draft<'_>,
    reason: &str,
    message: &str,
    then: impl FnOnce(&Observed, &mut Draft<'_>),
) -> Plan {
    draft.set(UNHEALTHY, true, reason, message);
    then(observed, &mut draft);
    Plan { events: vec![unhealthy_event(format!("{reason}: {message}"))], ..write(draft) }
}

fn succeed(mut draft: Draft<'_>, succeeded: usize) -> Plan {
    let message = format!("{succeeded} pods succeeded and no running, pending, or failed pods");
    let reason = Phase::Succeeded.as_str();
    draft.set(QUOTA_RESERVED, false, reason, &message);
    draft.set(RESOURCES_DEPLOYED, true, reason, &message);
    draft.set_phase(Phase::Succeeded);
    write(draft)
}

/// The controllers of the components have some time to replace failed pods.
fn found_failed_pods(observed: &Observed, mut draft: Draft<'_>, pods: &Pods) -> Plan {
    draft.set(UNHEALTHY, true, reasons::FOUND_FAILED_PODS, "");
    let grace = draft.left(UNHEALTHY, observed.options().failure_grace());
    if !grace.is_zero() {
        let awaits = vec![format!("{} failed pods to be replaced", pods.failed)];
        return Plan { next: Next::After(grace), awaits, ..write(draft) };
    }
    let note = format!("{}: {} failed pods", reasons::FOUND_FAILED_PODS, pods.failed);
    reset_or_fail(observed, &mut draft, pods.is_terminal, 1);
    Plan { events: vec![unhealthy_event(note)], ..write(draft) }
}

/// A node is not the fault of the workload: the retry is not counted, but there may be none left.
fn leave_nodes(observed: &Observed, mut draft: Draft<'_>, pods: &Pods) -> Plan {
    let nodes: Vec<_> = pods.unhealthy_nodes.iter().map(|node| format!("{node}:{{}}")).collect();
    let message =
        format!("Workload contains pods using NoExecute resources on Nodes: map[{}]", nodes.join(" "));
    draft.set(UNHEALTHY, true, reasons::AUTOPILOT_NO_EXECUTE, &message);
    reset_or_fail(observed, &mut draft, false, 0);
    Plan { events: vec![unhealthy_event(message)], ..write(draft) }
}

fn check_readiness(observed: &Observed, mut draft: Draft<'_>, pods: &Pods) -> Plan {
    draft.clear(UNHEALTHY, reasons::FOUND_NO_FAILED_PODS);
    let Pods { expected, pending, running, succeeded, .. } = *pods;
    if running + succeeded >= expected {
        let message = format!("{running} pods running; {succeeded} pods succeeded");
        draft.set(PODS_READY, true, reasons::SUFFICIENT_PODS_READY, &message);
        return Plan { next: Next::After(READY_POLL), ..write(draft) };
    }
    let message = format!("{pending} pods pending; {running} pods running; {succeeded} pods succeeded");
    if draft.is_true(PODS_READY) {
        draft.set(PODS_READY, false, reasons::INSUFFICIENT_PODS_READY, &message);
    }
    let all_exist = pending + running + succeeded >= expected;
    let options = observed.options();
    let grace = if all_exist { options.warmup_grace() } else { options.admission_grace() };
    // Pods that were ready and are replaced have as long again. Upstream has no such grace period, but looks so seldom that
    // it misses most of these moments; here pods are watched, and every one is seen.
    let left = draft.left(RESOURCES_DEPLOYED, grace).max(draft.left(PODS_READY, grace));
    if !left.is_zero() {
        let awaits = vec![format!("{} of {expected} pods to run", expected - running - succeeded)];
        return Plan { next: Next::After(left.min(WARMUP_POLL)), awaits, ..write(draft) };
    }
    unhealthy(observed, draft, reasons::INSUFFICIENT_PODS_READY, &message, |observed, draft| {
        reset_or_fail(observed, draft, pods.is_terminal, 1);
    })
}
