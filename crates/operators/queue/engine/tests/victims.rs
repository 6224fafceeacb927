//! Preemption targets, against a reference algorithm written as the specification states it: all candidates,
//! sorted, removed one by one until the workload fits, and given back one by one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is wrong")]

mod common;

use std::cmp::Reverse;
use std::sync::Arc;

use common::*;
use proptest::prelude::*;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_queue_engine::Engine;
use quintet_queue_engine::internals::amount::Amount;
use quintet_queue_engine::internals::cycle::evaluate;
use quintet_queue_engine::internals::flavors::{Mode, Subject};
use quintet_queue_engine::internals::preemption::PreemptionReason;
use quintet_queue_engine::internals::quota::NodeId;
use quintet_queue_engine::model::{ConditionReason, Fr, Workload};
use quintet_queue_engine::names::{QueueId, WorkloadId};
use quintet_queue_engine::settings::{AdmissionFairSharing, Settings};
use quintet_queue_engine::time::Span;
use serde_json::{Value, json};

const COHORTS: usize = 3;

#[derive(Clone, Debug)]
struct QueuePlan {
    cohort: usize,
    quota: (i64, Option<i64>, Option<i64>),
    within: &'static str,
    reclaim: &'static str,
    /// Whether it borrows for its preemptions, and from up to which priority.
    borrow: Option<i32>,
}

#[derive(Clone, Debug)]
enum Step {
    Submit {
        queue: usize,
        cpu: i64,
        priority: i32,
    },
    /// A holder is being evicted, leaves, or gets another priority.
    Evict(usize),
    Leave(usize),
    Reprioritise(usize, i32),
    Cycle,
}

fn quota() -> impl Strategy<Value = (i64, Option<i64>, Option<i64>)> {
    (0i64..10, prop::option::weighted(0.2, 0i64..8), prop::option::weighted(0.2, 0i64..8))
}

fn queue_plan() -> impl Strategy<Value = QueuePlan> {
    let within = prop::sample::select(vec!["Never", "LowerPriority", "LowerOrNewerEqualPriority"]);
    let reclaim = prop::sample::select(vec!["Never", "LowerPriority", "Any", "Any"]);
    let borrow = prop::option::of(prop_oneof![0i32..4, Just(i32::MAX)]);
    (0..COHORTS, quota(), within, reclaim, borrow).prop_map(|(cohort, quota, within, reclaim, borrow)| {
        QueuePlan { cohort, quota, within, reclaim, borrow: borrow.filter(|_| reclaim != "Never") }
    })
}

fn step(queues: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..queues, 1i64..4, 0i32..4).prop_map(|(queue, cpu, priority)| Step::Submit { queue, cpu, priority }),
        2 => (0..queues, 4i64..9, 2i32..5).prop_map(|(queue, cpu, priority)| Step::Submit { queue, cpu, priority }),
        1 => (0usize..40).prop_map(Step::Evict),
        1 => (0usize..40).prop_map(Step::Leave),
        1 => (0usize..40, 0i32..5).prop_map(|(number, priority)| Step::Reprioritise(number, priority)),
        5 => Just(Step::Cycle),
    ]
}

fn groups((nominal, borrowing, lending): (i64, Option<i64>, Option<i64>)) -> Value {
    let mut resource = json!({ "name": "cpu", "nominalQuota": nominal.to_string() });
    for (field, limit) in [("borrowingLimit", borrowing), ("lendingLimit", lending)] {
        if let Some(limit) = limit {
            resource[field] = limit.to_string().into();
        }
    }
    json!([{ "coveredResources": ["cpu"], "flavors": [{ "name": "default", "resources": [resource] }] }])
}

/// Cohorts below each other, the first at the top, and queues in them.
fn world(cohorts: &[(i64, Option<i64>, Option<i64>)], queues: &[QueuePlan]) -> Engine {
    let mut objects = vec![flavor("default")];
    for (index, quota) in cohorts.iter().enumerate() {
        let (parent, quota) = match index.checked_sub(1) {
            None => (String::new(), (quota.0, None, None)),
            Some(above) => (format!("cohort-{above}"), *quota),
        };
        objects.push(json!({ "kind": "Cohort", "metadata": { "name": format!("cohort-{index}") },
            "spec": { "parentName": parent, "resourceGroups": groups(quota) } }));
    }
    for (index, plan) in queues.iter().enumerate() {
        let name = format!("queue-{index}");
        let mut object = queue_with(&name, &format!("cohort-{}", plan.cohort), &groups(plan.quota));
        object["spec"]["preemption"] =
            json!({ "withinClusterQueue": plan.within, "reclaimWithinCohort": plan.reclaim });
        if let Some(threshold) = plan.borrow {
            object["spec"]["preemption"]["borrowWithinCohort"] =
                json!({ "policy": "LowerPriority", "maxPriorityThreshold": threshold });
        }
        objects.extend([object, local_queue(&name)]);
    }
    engine(Settings::default(), &objects)
}

/// The reference algorithm for one workload.
struct Reference<'e> {
    engine: &'e mut Engine,
    plan: &'e QueuePlan,
    workload: Arc<Workload>,
    queue: QueueId,
    node: NodeId,
    fr: Fr,
    value: Amount,
}

#[derive(Clone, Copy)]
struct Candidate {
    id: WorkloadId,
    list: usize,
    meets_at: Option<NodeId>,
    reason: PreemptionReason,
    without_borrowing: bool,
}

impl Reference<'_> {
    fn exceeds(&self, node: NodeId) -> bool {
        self.engine.state().tree.usage(node, self.fr) > self.engine.state().tree.subtree(node, self.fr)
    }

    fn has_room(&self, node: NodeId, value: Amount) -> bool {
        let tree = &self.engine.state().tree;
        tree.usage(node, self.fr) + value <= tree.subtree(node, self.fr)
    }

    fn may_take(&self, candidate: &Workload, policy: &str) -> bool {
        let (own, other) = (self.workload.priority, candidate.priority);
        match policy {
            "Any" => true,
            "LowerPriority" => other < own,
            "LowerOrNewerEqualPriority" => {
                other < own || other == own && candidate.created > self.workload.created
            }
            _ => false,
        }
    }

    fn holders(&self, queue: QueueId, policy: &str) -> Vec<WorkloadId> {
        let state = self.engine.state();
        let all = state.workloads();
        let held = all.filter(|(id, _)| state.held(*id).is_some_and(|held| held.queue == queue));
        held.filter(|(_, workload)| self.may_take(workload, policy)).map(|(id, _)| id).collect()
    }

    fn others(&self) -> Vec<Candidate> {
        let tree = &self.engine.state().tree;
        let mut found = Vec::new();
        let mut advantage = self.has_room(self.node, self.value);
        let mut rest = (self.value - tree.local_available(self.node, self.fr)).floor_zero();
        let mut visited = self.node;
        for cohort in tree.ancestors(self.node).collect::<Vec<_>>() {
            self.below(cohort, (cohort, visited), advantage, &mut found);
            advantage |= self.has_room(cohort, rest);
            rest = (rest - tree.local_available(cohort, self.fr)).floor_zero();
            visited = cohort;
        }
        found
    }

    fn below(
        &self,
        cohort: NodeId,
        (meets_at, visited): (NodeId, NodeId),
        advantage: bool,
        found: &mut Vec<Candidate>,
    ) {
        let tree = &self.engine.state().tree;
        let children: Vec<NodeId> = tree.child_cohorts(cohort).chain(tree.child_queues(cohort)).collect();
        for child in children.into_iter().filter(|child| *child != visited && *child != self.node) {
            if !self.exceeds(child) {
                continue;
            }
            let Some(queue) = tree.queue_at(child) else {
                self.below(child, (meets_at, visited), advantage, found);
                continue;
            };
            for id in self.holders(queue, self.plan.reclaim) {
                let priority = self.engine.state().workload(id).unwrap().priority;
                let while_borrowing = self
                    .plan
                    .borrow
                    .is_some_and(|threshold| priority < self.workload.priority && priority <= threshold);
                let reason = if !advantage && while_borrowing {
                    PreemptionReason::InCohortReclaimWhileBorrowing
                } else {
                    PreemptionReason::InCohortReclamation
                };
                found.push(Candidate {
                    id,
                    list: usize::from(!advantage),
                    meets_at: Some(meets_at),
                    reason,
                    without_borrowing: !advantage && !while_borrowing,
                });
            }
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let own = self.holders(self.queue, self.plan.within).into_iter().map(|id| Candidate {
            id,
            list: 2,
            meets_at: None,
            reason: PreemptionReason::InClusterQueue,
            without_borrowing: false,
        });
        let mut all: Vec<Candidate> = self.others().into_iter().chain(own).collect();
        all.sort_by_key(|candidate| {
            let workload = self.engine.state().workload(candidate.id).unwrap();
            let reserved = workload.condition(WorkloadCondition::QuotaReserved).unwrap().since;
            let is_running = !workload.is_true(WorkloadCondition::Evicted);
            (is_running, candidate.list, workload.priority, Reverse(reserved), Arc::clone(&workload.uid))
        });
        all
    }

    fn fits(&self, borrowing: bool) -> bool {
        let state = self.engine.state();
        let nominal = state.tree.quota(self.node, self.fr).nominal;
        self.value <= state.available(self.node, self.fr)
            && (borrowing || state.tree.usage(self.node, self.fr) + self.value <= nominal)
    }

    fn is_valid(&self, candidate: &Candidate, borrowing: bool) -> bool {
        let state = self.engine.state();
        let Some(meets_at) = candidate.meets_at else {
            return true;
        };
        let queue = state.held(candidate.id).unwrap().queue;
        let node = state.queue(queue).unwrap().node;
        let mut path =
            std::iter::once(node).chain(state.tree.ancestors(node).take_while(|node| *node != meets_at));
        !(borrowing && candidate.without_borrowing) && path.all(|node| self.exceeds(node))
    }

    fn victims(&mut self) -> Vec<(WorkloadId, PreemptionReason)> {
        let candidates = self.candidates();
        let tree = &self.engine.state().tree;
        let is_under = tree.quota(self.node, self.fr).nominal > tree.usage(self.node, self.fr);
        let has_others = candidates.iter().any(|candidate| candidate.list < 2);
        let has_hierarchical = candidates.iter().any(|candidate| candidate.list == 0);
        let attempts: &[bool] = match self.plan.borrow {
            _ if !has_others => &[true],
            None if !is_under => &[true],
            None if !has_hierarchical => &[false, true],
            _ => &[true, false],
        };
        for borrowing in attempts {
            let mark = self.engine.state_mut().mark();
            let mut taken: Vec<Candidate> = Vec::new();
            let mut fits = false;
            for candidate in &candidates {
                if self.is_valid(candidate, *borrowing) {
                    self.engine.state_mut().try_without(candidate.id, false);
                    taken.push(*candidate);
                    fits = self.fits(*borrowing);
                    if fits {
                        break;
                    }
                }
            }
            for at in (0..taken.len().saturating_sub(1)).rev().filter(|_| fits) {
                self.engine.state_mut().try_with(taken[at].id);
                if self.fits(*borrowing) {
                    taken.swap_remove(at);
                } else {
                    self.engine.state_mut().try_without(taken[at].id, false);
                }
            }
            self.engine.state_mut().rollback(mark);
            if fits {
                return taken.iter().map(|candidate| (candidate.id, candidate.reason)).collect();
            }
        }
        Vec::new()
    }
}

/// Compares the victims of all pending workloads.
fn check(engine: &mut Engine, queues: &[QueuePlan]) {
    let fr = fr(engine, "cpu");
    let waiting: Vec<Arc<Workload>> = engine
        .state()
        .workloads()
        .filter(|(id, _)| engine.state().held(*id).is_none())
        .map(|(_, workload)| Arc::clone(workload))
        .collect();
    for workload in waiting {
        let queue = engine.state().local_queue(workload.local_queue).unwrap().queue;
        let name = engine.state().names.queue_name(queue).to_owned();
        let number: usize = name.trim_start_matches("queue-").parse().unwrap();
        let mut subject = Subject::new(Arc::clone(&workload), queue, 1);
        let (assignment, targets) = evaluate(engine.state_mut(), &mut subject);
        if assignment.mode() != Mode::Preempt {
            continue;
        }
        let found: Vec<_> = targets.iter().map(|target| (target.workload, target.reason.unwrap())).collect();
        let value = Amount::new(workload.pod_sets[0].requests.get(fr.resource));
        let node = node(engine, &name);
        let mut reference = Reference { engine, plan: &queues[number], workload, queue, node, fr, value };
        assert_eq!(found, reference.victims(), "victims and reasons, in order, for one of {name}");
    }
}

/// A holder by its number, if there are any.
fn holder(engine: &Engine, number: usize) -> Option<Workload> {
    let held: Vec<_> =
        engine.state().workloads().filter(|(id, _)| engine.state().held(*id).is_some()).collect();
    held.get(number.checked_rem(held.len())?).map(|(_, workload)| Workload::clone(workload))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn victims_equal_those_of_the_reference_algorithm(
        cohorts in prop::collection::vec(quota(), COHORTS),
        queues in prop::collection::vec(queue_plan(), 3..7),
        steps in prop::collection::vec(step(3), 10..60),
    ) {
        let mut engine = world(&cohorts, &queues);
        let mut now = NOW;
        for (number, step) in steps.iter().enumerate() {
            if number % 2 == 0 {
                now = now + Span::secs(1);
            }
            match step {
                Step::Submit { queue, cpu, priority } => {
                    // Whatever the order in which they come, UIDs have another.
                    let mut workload = pending(
                        &format!("w{number:03}"),
                        &format!("queue-{}", (queue * 7 + number) % queues.len()),
                        cpu * 1000,
                        *priority,
                    );
                    workload["metadata"]["uid"] = format!("{:03}", number * 37 % 101).into();
                    workload["metadata"]["creationTimestamp"] = format!("2024-12-01T00:00:{:02}Z", number / 3).into();
                    add(&mut engine, &workload);
                }
                Step::Evict(which) => {
                    if let Some(mut workload) = holder(&engine, *which) {
                        workload.set_condition(WorkloadCondition::Evicted, true, ConditionReason::Other, now);
                        engine.set_workload(workload, now);
                    }
                }
                Step::Leave(which) => {
                    if let Some(workload) = holder(&engine, *which) {
                        engine.remove_workload(&workload.key, now);
                    }
                }
                Step::Reprioritise(which, priority) => {
                    if let Some(mut workload) = holder(&engine, *which) {
                        workload.priority = *priority;
                        engine.set_workload(workload, now);
                    }
                }
                Step::Cycle => {
                    engine.process_flushes(now, false);
                    let report = engine.schedule(now);
                    evict(&mut engine, &report, now);
                }
            }
            check(&mut engine, &queues);
        }
    }
}

/// Between workloads of one queue those go first whose LocalQueue used more, whatever their priority.
#[test]
fn the_local_queue_with_more_usage_is_preempted_first() {
    let sharing = AdmissionFairSharing {
        half_life: Span::secs(100),
        sampling_interval: Span::secs(10),
        resource_weights: std::collections::BTreeMap::new(),
    };
    let settings = Settings { admission_fair_sharing: Some(sharing), ..Settings::default() };
    let mut shared = queue("cq", "", 6, json!({ "withinClusterQueue": "LowerPriority" }));
    shared["spec"]["admissionScope"] = json!({ "admissionMode": "UsageBasedAdmissionFairSharing" });
    let feeds = |name: &str| json!({ "kind": "LocalQueue", "metadata": { "namespace": "ns", "name": name }, "spec": { "clusterQueue": "cq" } });
    let mut engine = engine(settings, &[flavor("default"), shared, feeds("greedy"), feeds("modest")]);
    for (name, queue, cpu, priority) in
        [("large", "greedy", 3, 1), ("medium", "greedy", 2, 2), ("small", "modest", 1, 0)]
    {
        add(&mut engine, &pending(name, queue, cpu * 1000, priority));
        assert_eq!(engine.schedule(NOW).admitted(), 1);
    }
    engine.sample_usage(NOW);
    engine.sample_usage(NOW + Span::secs(50));
    add(&mut engine, &pending("urgent", "modest", 4000, 3));
    let report = engine.schedule(NOW + Span::secs(50));
    let victims: Vec<String> = preempted(&engine, &report).into_iter().map(|(name, _)| name).collect();
    assert_eq!(victims, ["large", "medium"], "by usage, then by priority");
}
