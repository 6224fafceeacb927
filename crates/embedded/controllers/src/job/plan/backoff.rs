//! When a failed pod may be replaced.

use jiff::Timestamp;

use crate::pod::{Phase, PodView};
use crate::time;

/// The delay after the first failure, and the longest delay, in seconds; upstream's `DefaultJobPodFailureBackOff` and
/// `MaxJobPodFailureBackOff`.
const FIRST: i64 = 10;
const LONGEST: i64 = 600;

/// When a pod may be created after so many failures, the last of them at `last`.
pub(super) fn due(failures: usize, last: Timestamp) -> Timestamp {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let delay =
        2_i64.checked_pow(doublings).map_or(LONGEST, |factor| FIRST.saturating_mul(factor).min(LONGEST));
    time::after(last, delay)
}

/// When a pod may be created, by the failures since the last success.
pub(super) fn after_failures<'a>(
    pods: impl Iterator<Item = &'a PodView> + Clone,
    has_failed: impl Fn(&PodView) -> bool,
) -> Option<Timestamp> {
    let is_success = |pod: &&PodView| pod.status.phase == Phase::Succeeded;
    let last_success = pods.clone().filter(is_success).filter_map(finished).max();
    let failures: Vec<_> = pods
        .filter(|pod| has_failed(pod))
        .filter_map(finished)
        .filter(|at| last_success.is_none_or(|success| *at > success))
        .collect();
    failures.iter().max().map(|last| due(failures.len(), *last))
}

/// When a pod ended: when its last container did, else when it ceased to be ready, was deleted or created.
pub(super) fn finished(pod: &PodView) -> Option<Timestamp> {
    let containers = pod.status.container_statuses.iter();
    let ends = containers.filter_map(|status| status.state.terminated.as_ref()?.finished_at);
    let unready = || pod.condition("Ready").filter(|ready| ready.status == "False")?.last_transition_time;
    ends.max().or_else(unready).or(pod.metadata.deletion_timestamp).or(pod.metadata.creation_timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_ten_minutes() {
        let start = Timestamp::UNIX_EPOCH;
        let delays: Vec<_> =
            [1, 2, 3, 6, 7, 8, 100].map(|failures| due(failures, start).as_second()).to_vec();
        assert_eq!(delays, [10, 20, 40, 320, 600, 600, 600]);
    }
}
