//! Properties that hold for every state and every order of events, checked against a model that is slow
//! and obvious: it recomputes everything from the list of workloads.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is wrong")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use proptest::prelude::*;
use quintet_queue_engine::Engine;
use quintet_queue_engine::internals::cycle::evaluate;
use quintet_queue_engine::internals::flavors::Subject;
use quintet_queue_engine::names::{QueueId, WorkloadId};
use quintet_queue_engine::settings::Settings;
use serde_json::{Value, json};

const FLAVORS: [&str; 2] = ["default", "spot"];

#[derive(Clone, Debug)]
struct QuotaPlan {
    nominal: i64,
    borrowing: Option<i64>,
    lending: Option<i64>,
}

#[derive(Clone, Debug)]
struct NodePlan {
    /// Index of the parent cohort, if any.
    parent: Option<usize>,
    /// Per flavor.
    quotas: Vec<QuotaPlan>,
}

#[derive(Clone, Debug)]
enum Step {
    Submit { queue: usize, cpu: i64, priority: i32 },
    Finish(usize),
    Cycle,
}

#[derive(Clone, Debug)]
struct Plan {
    cohorts: Vec<NodePlan>,
    queues: Vec<NodePlan>,
    policies: Vec<(usize, usize)>,
    strict: Vec<bool>,
    steps: Vec<Step>,
    fair: bool,
}

fn quota() -> impl Strategy<Value = QuotaPlan> {
    (0i64..8, prop::option::of(0i64..6), prop::option::of(0i64..6))
        .prop_map(|(nominal, borrowing, lending)| QuotaPlan { nominal, borrowing, lending })
}

fn node(parents: usize) -> impl Strategy<Value = NodePlan> {
    (prop::option::weighted(0.85, 0..parents.max(1)), prop::collection::vec(quota(), FLAVORS.len()))
        .prop_map(move |(parent, quotas)| NodePlan { parent: parent.filter(|_| parents > 0), quotas })
}

fn plan() -> impl Strategy<Value = Plan> {
    let cohorts = prop::collection::vec(node(3), 1..4).prop_map(|mut cohorts| {
        // Parents come earlier, so there is no cycle.
        for (index, cohort) in cohorts.iter_mut().enumerate() {
            cohort.parent = cohort.parent.filter(|parent| *parent < index);
        }
        cohorts
    });
    (cohorts, 1usize..5).prop_flat_map(|(cohorts, queues)| {
        let count = cohorts.len();
        let step = prop_oneof![
            4 => (0..queues, 1i64..7, 0i32..3).prop_map(|(queue, cpu, priority)| Step::Submit { queue, cpu, priority }),
            1 => (0usize..20).prop_map(Step::Finish),
            3 => Just(Step::Cycle),
        ];
        (
            Just(cohorts),
            prop::collection::vec(node(count), queues),
            prop::collection::vec((0usize..3, 0usize..3), queues),
            prop::collection::vec(any::<bool>(), queues),
            prop::collection::vec(step, 1..40),
            any::<bool>(),
        )
            .prop_map(|(cohorts, queues, policies, strict, steps, fair)| Plan {
                cohorts,
                queues,
                policies,
                strict,
                steps,
                fair,
            })
    })
}

impl Plan {
    fn settings(&self) -> Settings {
        Settings {
            fair_sharing: self.fair.then(|| Settings::DEFAULT_STRATEGIES.to_vec()),
            ..Settings::default()
        }
    }

    fn groups(quotas: &[QuotaPlan]) -> Value {
        let flavors: Vec<Value> = FLAVORS
            .iter()
            .zip(quotas)
            .map(|(name, quota)| {
                let mut resource = json!({ "name": "cpu", "nominalQuota": quota.nominal.to_string() });
                if let Some(limit) = quota.borrowing {
                    resource["borrowingLimit"] = limit.to_string().into();
                }
                if let Some(limit) = quota.lending {
                    resource["lendingLimit"] = limit.to_string().into();
                }
                json!({ "name": name, "resources": [resource] })
            })
            .collect();
        json!([{ "coveredResources": ["cpu"], "flavors": flavors }])
    }

    fn objects(&self) -> Vec<Value> {
        let mut objects: Vec<Value> = FLAVORS.iter().map(|name| flavor(name)).collect();
        for (index, cohort) in self.cohorts.iter().enumerate() {
            let parent = cohort.parent.map_or_else(String::new, |parent| format!("cohort-{parent}"));
            objects.push(json!({ "kind": "Cohort", "metadata": { "name": format!("cohort-{index}") },
                "spec": { "parentName": parent, "resourceGroups": Self::groups(&cohort.quotas) } }));
        }
        let policies = ["Never", "LowerPriority", "Any"];
        let own = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"];
        for (index, queue) in self.queues.iter().enumerate() {
            let name = format!("queue-{index}");
            let cohort = queue.parent.map_or_else(String::new, |parent| format!("cohort-{parent}"));
            let mut object = queue_with(&name, &cohort, &Self::groups(&queue.quotas));
            let (within, reclaim) = self.policies[index];
            object["spec"]["preemption"] =
                json!({ "withinClusterQueue": own[within], "reclaimWithinCohort": policies[reclaim] });
            if self.strict[index] {
                object["spec"]["queueingStrategy"] = "StrictFIFO".into();
            }
            objects.push(object);
            objects.push(local_queue(&name));
        }
        objects
    }

    fn workload(number: usize, queue: usize, cpu: i64, priority: i32) -> Value {
        let mut workload = pending(&format!("w{number:03}"), &format!("queue-{queue}"), cpu * 1000, priority);
        workload["metadata"]["creationTimestamp"] =
            format!("2024-12-01T00:{:02}:{:02}Z", number / 60, number % 60).into();
        workload
    }
}

/// The obvious model: quotas of the plan, and for every workload that holds quota its queue and amounts.
struct Slow<'p> {
    plan: &'p Plan,
    /// Usage of every queue, per flavor.
    used: Vec<Vec<i64>>,
}

impl<'p> Slow<'p> {
    fn new(plan: &'p Plan, engine: &Engine) -> Self {
        let mut used = vec![vec![0; FLAVORS.len()]; plan.queues.len()];
        for (id, workload) in engine.state().workloads() {
            if engine.state().held(id).is_none() {
                continue;
            }
            let admission = workload.admission.as_ref().expect("holders are admitted");
            let queue = engine.state().names.queue_name(admission.queue);
            let index: usize = queue.trim_start_matches("queue-").parse().unwrap();
            for pod_set in &admission.pod_sets {
                for (resource, flavor) in &pod_set.flavors {
                    let name = engine.state().names.flavor_name(*flavor);
                    let flavor = FLAVORS.iter().position(|own| *own == name).unwrap();
                    used[index][flavor] += pod_set.usage.get(*resource);
                }
            }
        }
        Self { plan, used }
    }

    fn quota(node: &NodePlan, flavor: usize) -> (i64, Option<i64>, Option<i64>) {
        let quota = &node.quotas[flavor];
        let milli = |limit: Option<i64>| limit.map(|limit| limit * 1000);
        (quota.nominal * 1000, milli(quota.borrowing), milli(quota.lending))
    }

    fn local(node: &NodePlan, flavor: usize, subtree: i64) -> i64 {
        Self::quota(node, flavor).2.map_or(0, |limit| (subtree - limit).max(0))
    }

    fn cohort_subtree(&self, cohort: usize, flavor: usize) -> i64 {
        let children = self.plan.cohorts.iter().enumerate().filter(|(_, child)| child.parent == Some(cohort));
        let cohorts: i64 = children
            .map(|(index, child)| {
                let subtree = self.cohort_subtree(index, flavor);
                subtree - Self::local(child, flavor, subtree)
            })
            .sum();
        let queues: i64 = self
            .plan
            .queues
            .iter()
            .filter(|queue| queue.parent == Some(cohort))
            .map(|queue| {
                let nominal = Self::quota(queue, flavor).0;
                nominal - Self::local(queue, flavor, nominal)
            })
            .sum();
        Self::quota(&self.plan.cohorts[cohort], flavor).0 + cohorts + queues
    }

    fn cohort_usage(&self, cohort: usize, flavor: usize) -> i64 {
        let children = self.plan.cohorts.iter().enumerate().filter(|(_, child)| child.parent == Some(cohort));
        let cohorts: i64 = children
            .map(|(index, child)| {
                let local = Self::local(child, flavor, self.cohort_subtree(index, flavor));
                (self.cohort_usage(index, flavor) - local).max(0)
            })
            .sum();
        let queues =
            self.plan.queues.iter().zip(&self.used).filter(|(queue, _)| queue.parent == Some(cohort));
        let queues: i64 = queues
            .map(|(queue, used)| {
                let local = Self::local(queue, flavor, Self::quota(queue, flavor).0);
                (used[flavor] - local).max(0)
            })
            .sum();
        cohorts + queues
    }

    /// Whether no node uses more than it may: roots their subtree, others what they own and may borrow.
    fn check_quota(&self) {
        for flavor in 0..FLAVORS.len() {
            for (index, cohort) in self.plan.cohorts.iter().enumerate() {
                let (subtree, used) = (self.cohort_subtree(index, flavor), self.cohort_usage(index, flavor));
                let limit = match (cohort.parent, Self::quota(cohort, flavor).1) {
                    (None, _) => Some(subtree),
                    (Some(_), limit) => limit.map(|limit| subtree + limit),
                };
                assert!(limit.is_none_or(|limit| used <= limit), "cohort {index} uses {used} of {limit:?}");
            }
            for (index, queue) in self.plan.queues.iter().enumerate() {
                let (nominal, borrowing, _) = Self::quota(queue, flavor);
                let limit = if queue.parent.is_none() {
                    Some(nominal)
                } else {
                    borrowing.map(|limit| nominal + limit)
                };
                let used = self.used[index][flavor];
                assert!(limit.is_none_or(|limit| used <= limit), "queue {index} uses {used} of {limit:?}");
            }
        }
    }

    /// Whether the engine's incremental numbers are those of the model.
    fn check_engine(&self, engine: &mut Engine) {
        for (flavor, name) in FLAVORS.iter().enumerate() {
            let fr = quintet_queue_engine::model::Fr {
                flavor: engine.state_mut().names.flavors.intern(name),
                resource: engine.state_mut().names.resource("cpu"),
            };
            for index in 0..self.plan.queues.len() {
                let node = common::node(engine, &format!("queue-{index}"));
                assert_eq!(engine.state().tree.usage(node, fr).get(), self.used[index][flavor]);
            }
            for index in 0..self.plan.cohorts.len() {
                let id = engine.state_mut().names.cohorts.intern(&format!("cohort-{index}"));
                let node = engine.state().cohort(id).unwrap();
                assert_eq!(engine.state().tree.subtree(node, fr).get(), self.cohort_subtree(index, flavor));
                assert_eq!(engine.state().tree.usage(node, fr).get(), self.cohort_usage(index, flavor));
            }
        }
    }
}

/// Carries out a plan; evicted workloads stop at once. Calls `check` after every step.
fn carry_out(settings: Settings, plan: &Plan, mut check: impl FnMut(&mut Engine)) -> Engine {
    let mut engine = engine(settings, &plan.objects());
    let mut made = 0;
    for step in &plan.steps {
        match step {
            Step::Submit { queue, cpu, priority } => {
                add(&mut engine, &Plan::workload(made, *queue, *cpu, *priority));
                made += 1;
            }
            Step::Finish(number) => finish(&mut engine, *number),
            Step::Cycle => {
                cycle(&mut engine);
            }
        }
        check(&mut engine);
    }
    engine
}

fn finish(engine: &mut Engine, number: usize) {
    let id = id(engine, &format!("w{number:03}"));
    if let Some(key) = engine.state().workload(id).map(|workload| workload.key.clone()) {
        engine.remove_workload(&key, NOW);
        engine.process_flushes(NOW, false);
    }
}

/// One cycle whose evictions happen at once; returns whether anything changed.
fn cycle(engine: &mut Engine) -> bool {
    let report = engine.schedule(NOW);
    let evicted = evict(engine, &report, NOW);
    engine.process_flushes(NOW, false);
    report.made_progress() || evicted > 0
}

fn preemptors_first(plan: &Plan) -> Settings {
    let mut settings = plan.settings();
    settings.gates.prioritize_preemptors = true;
    settings
}

/// Cycles until nothing happens any more. False if the same workloads hold quota repeatedly, with preemptions in
/// between; one or the other it must be.
fn comes_to_rest(engine: &mut Engine, plan: &Plan) -> bool {
    // As many idle cycles as try every pending workload.
    let turns = plan.steps.len() + 2;
    let mut quiet = 0;
    let mut seen: BTreeMap<_, usize> = BTreeMap::new();
    while quiet < turns {
        quiet = if cycle(engine) { 0 } else { quiet + 1 };
        if quiet == 0 {
            let times = seen.entry(holding(engine)).or_default();
            *times += 1;
            // The next heads may differ, but not forever.
            if *times > 20 {
                return false;
            }
        }
        assert!(seen.len() < 1000, "neither idle nor a livelock");
    }
    true
}

/// Checks the counts of queues against their workloads.
fn check_pending(engine: &Engine) {
    for (local_queue, feeds) in engine.state().local_queues() {
        let queue = engine.pending(feeds.queue).unwrap();
        let workload = |id: &WorkloadId| engine.state().workload(*id).unwrap();
        let (active, inadmissible) = (queue.active_ids(), queue.inadmissible_ids());
        let own =
            |ids: &[WorkloadId]| ids.iter().filter(|id| workload(id).local_queue == local_queue).count();
        assert_eq!(queue.counts_of(local_queue), (own(&active), own(&inadmissible)));
        assert_eq!(queue.counts(), (active.len(), inadmissible.len()));
        let mut total = quintet_queue_engine::internals::requests::Requests::new();
        for id in active.iter().chain(&inadmissible) {
            for demand in workload(id).demands() {
                total.add(&demand.requests);
            }
        }
        assert_eq!(queue.pending_requests(), total);
        let mut shapes = BTreeMap::new();
        for shape in inadmissible.iter().filter_map(|id| workload(id).shape) {
            *shapes.entry(shape).or_insert(0) += 1;
        }
        assert_eq!(queue.shapes().1, shapes);
    }
}

/// A pending workload as its queue would evaluate it.
fn subject(engine: &Engine, id: WorkloadId) -> Option<(QueueId, Subject)> {
    let workload = engine.state().workload(id)?;
    let queue = engine.state().local_queue(workload.local_queue)?.queue;
    Some((queue, Subject::new(Arc::clone(workload), queue, engine.cycle_number())))
}

fn holding(engine: &Engine) -> BTreeMap<String, String> {
    let held = engine.state().workloads().filter(|(id, _)| engine.state().held(*id).is_some());
    held.map(|(_, workload)| (workload.key.name.to_string(), format!("{:?}", workload.admission))).collect()
}

/// The second queue preempts a workload of its own for one that has to borrow; a third takes the room first, because its
/// priority is higher; and from that one the second queue reclaims what is within its quota.
#[test]
fn a_preemptor_that_has_to_borrow_may_starve_unless_preemptors_go_first() {
    let quota = |nominal| QuotaPlan { nominal, borrowing: None, lending: None };
    let node = |first, second| NodePlan { parent: Some(0), quotas: vec![quota(first), quota(second)] };
    let submit = |queue, cpu, priority| Step::Submit { queue, cpu, priority };
    let plan = Plan {
        cohorts: vec![NodePlan { parent: None, ..node(2, 4) }],
        queues: vec![node(0, 6), node(3, 0)],
        policies: vec![(1, 2), (0, 0)],
        strict: vec![false, false],
        steps: vec![
            submit(1, 6, 0),
            submit(0, 2, 0),
            submit(0, 4, 0),
            submit(0, 1, 1),
            Step::Cycle,
            submit(1, 5, 2),
            submit(0, 1, 1),
            Step::Cycle,
            Step::Cycle,
            submit(0, 2, 2),
            submit(0, 5, 1),
        ],
        fair: false,
    };
    let rests = |settings| comes_to_rest(&mut carry_out(settings, &plan, |_| {}), &plan);
    assert!(!rests(plan.settings()));
    assert!(rests(preemptors_first(&plan)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// No node ever uses more than it may, and no usage is lost or counted twice.
    #[test]
    fn quota_is_never_exceeded_and_usage_is_exact(plan in plan()) {
        carry_out(plan.settings(), &plan, |engine| {
            let slow = Slow::new(&plan, engine);
            slow.check_quota();
            slow.check_engine(engine);
            check_pending(engine);
        });
    }

    /// The state after any history equals the state built from the objects that are left.
    #[test]
    fn incremental_state_equals_rebuilt_state(plan in plan()) {
        let mut engine = carry_out(plan.settings(), &plan, |_| {});
        let mut rebuilt = common::engine(plan.settings(), &plan.objects());
        let left: Vec<_> = engine.state().workloads().map(|(_, workload)| workload.as_ref().clone()).collect();
        for workload in left.into_iter().rev() {
            rebuilt.set_workload(workload, NOW);
        }
        Slow::new(&plan, &engine).check_engine(&mut rebuilt);
        prop_assert_eq!(holding(&engine), holding(&rebuilt));
        for index in 0..plan.queues.len() {
            let fr = common::fr(&mut engine, "cpu");
            let name = format!("queue-{index}");
            let (a, b) = (common::node(&engine, &name), common::node(&rebuilt, &name));
            prop_assert_eq!(engine.state().tree.available(a, fr), rebuilt.state().tree.available(b, fr));
            prop_assert_eq!(engine.state().tree.potential(a, fr), rebuilt.state().tree.potential(b, fr));
        }
    }

    /// The order in which objects become known does not change what is decided.
    #[test]
    fn order_of_arrival_does_not_matter(plan in plan(), seed in any::<u64>()) {
        let workloads: Vec<Value> = plan
            .steps
            .iter()
            .enumerate()
            .filter_map(|(number, step)| match step {
                Step::Submit { queue, cpu, priority } => Some(Plan::workload(number, *queue, *cpu, *priority)),
                _ => None,
            })
            .collect();
        let run = |workloads: &[Value]| {
            let mut engine = engine(plan.settings(), &plan.objects());
            for workload in workloads {
                add(&mut engine, workload);
            }
            for _ in 0..10 {
                cycle(&mut engine);
            }
            holding(&engine)
        };
        let mut shuffled = workloads.clone();
        let mut state = seed | 1;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(at, usize::try_from(state >> 33).unwrap() % (at + 1));
        }
        prop_assert_eq!(run(&workloads), run(&shuffled));
    }

    /// Trees do not see each other: a cycle over many of them decides as if each was alone. That is why
    /// one cycle may admit the head of every queue.
    #[test]
    fn trees_decide_as_if_alone(plan in plan()) {
        let root_of = |queue: usize| {
            let mut parent = plan.queues[queue].parent;
            let mut root = None;
            while let Some(cohort) = parent {
                root = Some(cohort);
                parent = plan.cohorts[cohort].parent;
            }
            root.map_or_else(|| format!("queue {queue}"), |root| format!("cohort {root}"))
        };
        let together = holding(&carry_out(plan.settings(), &plan, |_| {}));
        let mut alone = BTreeMap::new();
        let roots: std::collections::BTreeSet<String> = (0..plan.queues.len()).map(root_of).collect();
        for root in roots {
            // The same history, in which the workloads of other trees name a queue that does not exist.
            let mut engine = engine(plan.settings(), &plan.objects());
            let mut made = 0;
            for step in &plan.steps {
                match step {
                    Step::Submit { queue, cpu, priority } => {
                        if root_of(*queue) == root {
                            add(&mut engine, &Plan::workload(made, *queue, *cpu, *priority));
                        }
                        made += 1;
                    }
                    Step::Finish(number) => finish(&mut engine, *number),
                    Step::Cycle => {
                        cycle(&mut engine);
                    }
                }
            }
            alone.extend(holding(&engine));
        }
        prop_assert_eq!(together, alone);
    }

    /// Taking back any one victim, the workload no longer fits: no preemption is superfluous.
    #[test]
    fn preemption_frees_no_more_than_needed(plan in plan()) {
        let mut engine = carry_out(plan.settings(), &plan, |_| {});
        let pending: Vec<WorkloadId> = engine
            .state()
            .workloads()
            .map(|(id, _)| id)
            .filter(|id| engine.state().held(*id).is_none())
            .collect();
        for id in pending {
            let Some((queue, mut subject)) = subject(&engine, id) else { continue };
            let (assignment, targets) = evaluate(engine.state_mut(), &mut subject);
            let node = engine.state().queue(queue).expect("queue").node;
            let fits = |engine: &Engine| {
                assignment.usage.iter().all(|(fr, value)| *value <= engine.state().available(node, *fr))
            };
            for spared in targets.iter().map(Some).chain([None]) {
                let mark = engine.state_mut().mark();
                for target in targets.iter().filter(|target| Some(*target) != spared) {
                    engine.state_mut().try_without(target.workload, false);
                }
                // A queue that must not borrow for its preemptions needs them to stay within its quota.
                let borrows = assignment.usage.iter().any(|(fr, value)| {
                    engine.state().tree.parent(node).is_some() && engine.state().tree.is_borrowing_with(node, *fr, *value)
                });
                let fits_now = fits(&engine);
                engine.state_mut().rollback(mark);
                match spared {
                    None => prop_assert!(targets.is_empty() || fits_now, "all victims together make room"),
                    Some(_) => prop_assert!(!fits_now || borrows, "every victim is needed"),
                }
            }
        }
    }

    /// When nothing changes, a further cycle does nothing; unless the policies are such that a victim gets back what was
    /// taken from it before its preemptor has it, and loses it again, forever.
    #[test]
    fn admission_is_a_fixpoint(plan in plan()) {
        let mut engine = carry_out(plan.settings(), &plan, |_| {});
        if comes_to_rest(&mut engine, &plan) {
            let before = holding(&engine);
            prop_assert!(!cycle(&mut engine));
            prop_assert_eq!(before, holding(&engine));
        }
    }

    /// Where preemptors go first, there is no livelock for quota of one flavor. With
    /// several flavors one may still take what was freed for another, and so may one by fair shares (kueue#14543).
    #[test]
    fn preemptors_that_go_first_cause_no_livelock(plan in plan()) {
        let mut plan = Plan { fair: false, ..plan };
        for node in plan.cohorts.iter_mut().chain(&mut plan.queues) {
            node.quotas[1] = QuotaPlan { nominal: 0, borrowing: None, lending: None };
        }
        let mut engine = carry_out(preemptors_first(&plan), &plan, |_| {});
        prop_assert!(comes_to_rest(&mut engine, &plan));
    }

    /// The same history makes the same decisions, byte for byte.
    #[test]
    fn decisions_are_deterministic(plan in plan()) {
        let run = || {
            let mut text = String::new();
            let mut engine = engine(plan.settings(), &plan.objects());
            for (number, step) in plan.steps.iter().enumerate() {
                if let Step::Submit { queue, cpu, priority } = step {
                    add(&mut engine, &Plan::workload(number, *queue, *cpu, *priority));
                } else {
                    let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{:?}\n", engine.schedule(NOW)));
                }
            }
            text
        };
        prop_assert_eq!(run(), run());
    }

    /// It does not matter in which order objects of different kinds are seen.
    #[test]
    fn the_order_of_kinds_does_not_matter(
        plan in plan(),
        order in Just(["ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "Workload"].to_vec()).prop_shuffle(),
        returns in any::<bool>(),
    ) {
        let mut objects = plan.objects();
        for (number, step) in plan.steps.iter().enumerate() {
            if let Step::Submit { queue, cpu, priority } = step {
                let mut workload = Plan::workload(number, *queue, *cpu, *priority);
                if number % 2 == 0 {
                    let name = format!("w{number:03}");
                    workload = admitted(&name, &format!("queue-{queue}"), cpu * 1000, *priority);
                }
                objects.push(workload);
            }
        }
        let mut usual = engine(plan.settings(), &objects);
        let mut other = Engine::new(plan.settings());
        for kind in order {
            for object in objects.iter().filter(|object| object["kind"] == kind) {
                add(&mut other, object);
            }
        }
        if returns {
            // A queue that goes and comes back finds its workloads again.
            let gone = other.state().names.queues.get("queue-0").expect("queue");
            other.remove_queue(gone);
            for object in objects.iter().filter(|object| object["metadata"]["name"] == "queue-0") {
                add(&mut other, object);
            }
        }
        let usage = |engine: &Engine| -> BTreeMap<String, BTreeMap<String, i64>> {
            let state = engine.state();
            let used = |queue: &quintet_queue_engine::internals::state::Queue| {
                let usages = state.tree.usages(state.tree.root(queue.node)).chain(state.tree.usages(queue.node));
                usages
                    .map(|(fr, value)| (state.names.flavor_name(fr.flavor).to_owned(), value.get()))
                    .collect()
            };
            state.queues().map(|(id, queue)| (state.names.queue_name(id).to_owned(), used(queue))).collect()
        };
        prop_assert_eq!(usage(&usual), usage(&other));
        prop_assert_eq!(holding(&usual).len(), holding(&other).len());
        if !plan.fair {
            usual.schedule(NOW);
            other.schedule(NOW);
            prop_assert_eq!(usage(&usual), usage(&other));
        }
    }
}
