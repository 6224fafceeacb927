//! Which pods a controller removes first when it has too many.

use std::cmp::Ordering;
use std::collections::HashMap;

use jiff::Timestamp;
use quintet_controller::cache::Entry;

use crate::pod::PodView;

/// An annotation by which users say how much it costs to remove a pod.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// How pods are compared.
pub(crate) struct RemovalOrder<'a> {
    /// The time.
    pub(crate) now: Timestamp,
    /// Whether the deletion cost counts.
    pub(crate) with_cost: bool,
    /// How many sibling pods run on a node; more are removed first.
    pub(crate) siblings: HashMap<&'a str, usize>,
}

impl RemovalOrder<'_> {
    /// By age and state only.
    pub(crate) fn plain(now: Timestamp) -> Self {
        Self { now, with_cost: false, siblings: HashMap::new() }
    }

    /// Sorts pods: those to remove first come first. The order of `ActivePodsWithRanks` in upstream's
    /// `controller_utils.go`, but for one thing: there, the uid decides between different times of one bucket, before
    /// restarts count, which is not an order at all: a pod can come before another, that before a third, and that before the
    /// first. Here the uid decides last, so that not always the youngest goes.
    pub(crate) fn sort(&self, pods: &mut [&Entry<PodView>]) {
        pods.sort_by(|a, b| self.compare(a, b));
    }

    fn compare(&self, a: &Entry<PodView>, b: &Entry<PodView>) -> Ordering {
        let (x, y) = (&a.object, &b.object);
        let assigned = |pod: &PodView| pod.spec.node_name.is_some();
        assigned(x)
            .cmp(&assigned(y))
            .then_with(|| x.status.phase.cmp(&y.status.phase))
            .then_with(|| x.is_ready().cmp(&y.is_ready()))
            .then_with(|| self.cost(x).cmp(&self.cost(y)))
            .then_with(|| self.siblings_of(y).cmp(&self.siblings_of(x)))
            .then_with(|| self.age(x.ready_since()).cmp(&self.age(y.ready_since())))
            .then_with(|| y.restarts().cmp(&x.restarts()))
            .then_with(|| {
                self.age(x.metadata.creation_timestamp).cmp(&self.age(y.metadata.creation_timestamp))
            })
            .then_with(|| a.uid.cmp(&b.uid))
            .then_with(|| a.key.cmp(&b.key))
    }

    fn cost(&self, pod: &PodView) -> i32 {
        let cost = pod.metadata.annotations.get(DELETION_COST).filter(|_| self.with_cost);
        cost.and_then(|cost| cost.parse().ok()).unwrap_or_default()
    }

    fn siblings_of(&self, pod: &PodView) -> usize {
        let node = pod.spec.node_name.as_deref().unwrap_or_default();
        self.siblings.get(node).copied().unwrap_or_default()
    }

    /// Orders younger before older, in buckets of powers of two. Pods without the time count as the youngest, those of
    /// less than a second come next.
    fn age(&self, since: Option<Timestamp>) -> u32 {
        let Some(since) = since else { return 0 };
        let age = u64::try_from(self.now.duration_since(since).as_secs()).unwrap_or_default();
        age.checked_ilog2().map_or(1, |bucket| bucket + 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{Condition, ContainerStatus, Phase};
    use quintet_controller::ObjectKey;

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    fn at(seconds_ago: i64) -> Timestamp {
        crate::time::after(now(), -seconds_ago)
    }

    /// A pod that runs and is ready, on a node, for an hour.
    fn pod(name: &str, change: impl FnOnce(&mut PodView)) -> Entry<PodView> {
        let mut pod = PodView::default();
        pod.spec.node_name = Some("node".into());
        pod.status.phase = Phase::Running;
        pod.metadata.creation_timestamp = Some(at(3600));
        let ready = Condition {
            type_: "Ready".into(),
            status: "True".into(),
            last_transition_time: Some(at(3600)),
            ..Condition::default()
        };
        pod.status.conditions.push(ready);
        change(&mut pod);
        Entry::new(ObjectKey::new("ns", name), pod)
    }

    #[test]
    fn the_least_useful_pods_are_removed_first() {
        let pods = [
            pod("settled", |_| {}),
            pod("restarted", |pod| {
                pod.status
                    .container_statuses
                    .push(ContainerStatus { restart_count: 3, ..Default::default() });
            }),
            pod("ready-lately", |pod| pod.status.conditions[0].last_transition_time = Some(at(10))),
            pod("crowded", |pod| pod.spec.node_name = Some("crowded".into())),
            pod("cheap", |pod| drop(pod.metadata.annotations.insert(DELETION_COST.into(), "-5".into()))),
            pod("unready", |pod| pod.status.conditions[0].status = "False".into()),
            pod("pending", |pod| pod.status.phase = Phase::Pending),
            pod("unassigned", |pod| pod.spec.node_name = None),
        ];
        let siblings = HashMap::from([("crowded", 4), ("node", 2)]);
        let mut sorted: Vec<_> = pods.iter().collect();
        RemovalOrder { now: now(), with_cost: true, siblings }.sort(&mut sorted);
        let names: Vec<_> = sorted.iter().map(|pod| pod.key.name()).collect();
        let expected: Vec<_> = pods.iter().rev().map(|pod| pod.key.name()).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn ages_of_the_same_magnitude_are_equal() {
        let mut older = pod("older", |pod| pod.status.conditions[0].last_transition_time = Some(at(3000)));
        let mut younger =
            pod("younger", |pod| pod.status.conditions[0].last_transition_time = Some(at(2900)));
        (older.uid, younger.uid) = ("a".into(), "b".into());
        let mut sorted = [&younger, &older];
        RemovalOrder::plain(now()).sort(&mut sorted);
        assert_eq!(sorted[0].key.name(), "older", "the uid decides");
    }

    #[test]
    fn many_pods_have_a_total_order() {
        let pods: Vec<_> = (0..200_u32)
            .map(|number| {
                let mut entry = pod(&format!("pod-{}", (number * 37) % 200), |pod| {
                    pod.status.conditions[0].last_transition_time = Some(at(i64::from(9 + number % 3)));
                });
                entry.uid = format!("{}", (number * 71) % 200).as_str().into();
                entry
            })
            .collect();
        let order = RemovalOrder::plain(now());
        let mut sorted: Vec<_> = pods.iter().collect();
        order.sort(&mut sorted);
        for (position, earlier) in sorted.iter().enumerate() {
            for later in &sorted[position + 1..] {
                assert_eq!(order.compare(earlier, later), Ordering::Less);
            }
        }
    }
}
