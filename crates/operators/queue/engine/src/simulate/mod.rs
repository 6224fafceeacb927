//! The simulator: a small YAML of queues and workload classes, run in virtual time.
//!
//! The format is that of Kueue's scheduler performance tests (`test/performance/scheduler/configs`), so their
//! files run unchanged:
//!
//! ```
//! let plan = "
//! cohorts:
//! - className: cohort
//!   count: 1
//!   queuesSets:
//!   - className: cq
//!     count: 2
//!     nominalQuota: 20
//!     borrowingLimit: 100
//!     reclaimWithinCohort: Any
//!     withinClusterQueue: LowerPriority
//!     workloadsSets:
//!     - count: 30
//!       creationIntervalMs: 100
//!       workloads:
//!       - {className: small, runtimeMs: 2000, priority: 50, request: 5}
//! ";
//! let report = quintet_queue_engine::simulate::simulate(plan)?;
//! assert_eq!(report.classes["small"].admitted, 60);
//! assert!(report.text().contains("cq-0-1-cohort-0"), "the second queue of the first set, in the first cohort");
//! # Ok::<(), quintet_queue_engine::simulate::PlanError>(())
//! ```

mod plan;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use plan::{CohortSet, Plan, PlanError, QueueSet, TopologyPlan, WorkloadSet, WorkloadTemplate};
pub use report::{ClassReport, LivelockReport, QueueReport, Report, Sample};

use crate::amount::Amount;
use crate::engine::Engine;
use crate::labels::Labels;
use crate::model::{
    Flavor, LocalQueue, PodSet, PodShape, QueueSpec, Quota, ResourceGroup, ShapeHash, SliceLayer,
    TopologyRequest, Workload, WorkloadKey,
};
use crate::names::{FlavorId, LocalQueueId, NamespaceId, QueueId, ResourceId, WorkloadId};
use crate::requests::Requests;
use crate::settings::Settings;
use crate::tas::NodeInfo;
use crate::time::{Span, Time};
use crate::virtual_time::VirtualRun;

/// Virtual time begins here.
const START: Time = Time::from_secs(0);

/// Reads a plan and runs it to its end.
pub fn simulate(yaml: &str) -> Result<Report, PlanError> {
    run(&Plan::parse(yaml)?)
}

/// Runs a plan until every workload has ended.
pub fn run(plan: &Plan) -> Result<Report, PlanError> {
    Ok(Simulation::new(plan)?.run())
}

/// A workload to come.
struct Arrival {
    at: Time,
    local_queue: LocalQueueId,
    template: usize,
}

/// A class of workloads, read once.
struct Class {
    name: String,
    runtime: Span,
    priority: i32,
    pods: i32,
    shape: Arc<PodShape>,
    topology: Option<TopologyRequest>,
}

struct Simulation {
    engine: Engine,
    namespace: NamespaceId,
    flavor: FlavorId,
    queues: Vec<(QueueId, String, i64)>,
    classes: Vec<Class>,
    arrivals: Vec<Arrival>,
}

impl Simulation {
    fn new(plan: &Plan) -> Result<Self, PlanError> {
        let mut engine = Engine::new(Settings::default());
        let names = &mut engine.state.names;
        let namespace = names.namespaces.intern("default");
        let flavor_name = plan.resource_flavor.as_ref().map_or("default", |flavor| flavor.name.as_str());
        let flavor = names.flavors.intern(flavor_name);
        engine.set_namespace(namespace, Some(Labels::new()), START);
        let mut topology = None;
        if let Some(tree) = &plan.topology {
            let id = engine.state.names.topologies.intern(&tree.name);
            let levels = tree.levels.iter().map(|level| Arc::from(level.node_label.as_str())).collect();
            engine.state.set_topology(id, levels);
            let nodes = plan::nodes(tree, &mut engine.state.names)?;
            engine
                .state
                .tas
                .set_nodes(nodes.into_iter().map(|node: NodeInfo| (Arc::clone(&node.name), Some(node))));
            topology = Some(id);
        }
        engine.state.set_flavor(flavor, Flavor { topology, ..Flavor::default() });
        let mut simulation =
            Self { engine, namespace, flavor, queues: Vec::new(), classes: Vec::new(), arrivals: Vec::new() };
        let mut classes = BTreeSet::new();
        for cohorts in &plan.cohorts {
            if !classes.insert(&cohorts.class_name) {
                return Err(PlanError::Invalid {
                    field: "className",
                    owner: "cohorts".into(),
                    value: cohorts.class_name.clone(),
                    expected: "a name that no other cohort has",
                });
            }
            for number in 0..cohorts.count {
                simulation.add_cohort(cohorts, &format!("{}-{number}", cohorts.class_name))?;
            }
        }
        if simulation.arrivals.is_empty() {
            return Err(PlanError::Empty);
        }
        simulation.arrivals.sort_by_key(|arrival| arrival.at);
        simulation.shorten_names(plan);
        Ok(simulation)
    }

    fn add_cohort(&mut self, cohorts: &CohortSet, cohort_name: &str) -> Result<(), PlanError> {
        let cohort = self.engine.state.names.cohorts.intern(cohort_name);
        for (set, queues) in cohorts.queues_sets.iter().enumerate() {
            let templates = self.add_classes(queues)?;
            for index in 0..queues.count {
                let name = format!("{}-{set}-{index}-{cohort_name}", queues.class_name);
                let local_queue = self.add_queue(queues, &name, cohort)?;
                for (workloads, first) in queues.workloads_sets.iter().zip(&templates) {
                    let interval = Span::millis(workloads.creation_interval_ms);
                    let mut at = START;
                    for _ in 0..workloads.count {
                        at = at + interval;
                        let all = first..&(first + workloads.workloads.len());
                        self.arrivals.extend((*all.start..*all.end).map(|template| Arrival {
                            at,
                            local_queue,
                            template,
                        }));
                    }
                }
            }
        }
        Ok(())
    }

    /// Queues are named after their class where that is unique; the names of Kueue's
    /// `test/performance/scheduler/runner/generator`, which contain set, queue and cohort, are for many of a kind.
    fn shorten_names(&mut self, plan: &Plan) {
        let mut count_of: BTreeMap<&str, usize> = BTreeMap::new();
        for cohorts in &plan.cohorts {
            for queues in &cohorts.queues_sets {
                *count_of.entry(&queues.class_name).or_default() += cohorts.count * queues.count;
            }
        }
        // In the order in which they were added.
        let classes = plan.cohorts.iter().flat_map(|cohorts| {
            let queues = cohorts.queues_sets.iter();
            let of_one = queues.flat_map(|set| std::iter::repeat_n(set.class_name.as_str(), set.count));
            std::iter::repeat_n(of_one, cohorts.count).flatten()
        });
        for ((_, name, _), class) in self.queues.iter_mut().zip(classes) {
            if count_of.get(class) == Some(&1) {
                class.clone_into(name);
            }
        }
    }

    /// Reads the classes of a queue set; returns where those of each workload set begin.
    fn add_classes(&mut self, queues: &QueueSet) -> Result<Vec<usize>, PlanError> {
        let mut starts = Vec::new();
        for set in &queues.workloads_sets {
            starts.push(self.classes.len());
            for template in &set.workloads {
                let cpu = plan::quantity(&template.request, "request", &template.class_name)?.millis();
                let requests: Requests = [(ResourceId::CPU, cpu)].into_iter().collect();
                self.classes.push(Class {
                    name: template.class_name.clone(),
                    runtime: Span::millis(template.runtime_ms),
                    priority: template.priority,
                    pods: template.pod_count.max(1),
                    shape: Arc::new(PodShape { requests, ..PodShape::default() }),
                    topology: topology_request(template)?,
                });
            }
        }
        Ok(starts)
    }

    fn add_queue(
        &mut self,
        queues: &QueueSet,
        name: &str,
        cohort: crate::names::CohortId,
    ) -> Result<LocalQueueId, PlanError> {
        let names = &mut self.engine.state.names;
        let mut spec = QueueSpec::new(names.queues.intern(name));
        let local_queue = names.local_queues.intern(&format!("default/{name}"));
        let class = &queues.class_name;
        let cores = |value, field| Ok(Amount::of(plan::quantity(value, field, class)?, true));
        let nominal = cores(&queues.nominal_quota, "nominalQuota")?;
        let limit =
            queues.borrowing_limit.as_ref().map(|limit| cores(limit, "borrowingLimit")).transpose()?;
        let quota = Quota { nominal, borrowing_limit: limit, lending_limit: None };
        spec.cohort = Some(cohort);
        spec.groups = vec![ResourceGroup::single(ResourceId::CPU, self.flavor, quota)];
        spec.preemption.within_queue =
            plan::policy(&queues.within_cluster_queue, "withinClusterQueue", class)?;
        spec.preemption.reclaim_within_cohort =
            plan::policy(&queues.reclaim_within_cohort, "reclaimWithinCohort", class)?;
        self.queues.push((spec.id, name.to_owned(), nominal.get()));
        let feeds = LocalQueue::feeding(spec.id);
        self.engine.set_queue(spec, START);
        self.engine.set_local_queue(local_queue, Some(feeds));
        Ok(local_queue)
    }

    fn workload(&self, number: usize, arrival: &Arrival, class: &Class) -> Workload {
        let key = WorkloadKey { namespace: self.namespace, name: format!("{}-{number}", class.name).into() };
        let pod_set = PodSet {
            topology: class.topology.clone().map(Box::new),
            ..PodSet::new("main", class.pods, Arc::clone(&class.shape))
        };
        Workload {
            uid: format!("{number:012}").into(),
            created: arrival.at,
            priority: class.priority,
            spec_fingerprint: arrival.template as u64,
            shape: Some(ShapeHash::new(arrival.template as u128)),
            ..Workload::new(key, arrival.local_queue, vec![pod_set])
        }
    }

    fn run(mut self) -> Report {
        let engine = std::mem::take(&mut self.engine);
        let mut run = VirtualRun::new(engine, START, false);
        let mut recorder = report::Recorder::new(&self.queues);
        let mut class_of: BTreeMap<WorkloadId, usize> = BTreeMap::new();
        let mut next = 0;
        loop {
            let arriving = self.arrivals.get(next).map(|arrival| arrival.at);
            let Some(at) = [arriving, run.next_at()].into_iter().flatten().min() else {
                break;
            };
            let classes = &self.classes;
            run.advance_to(at, &mut |engine, at, transition| {
                recorder.record(engine, at, transition, &class_of, classes);
            });
            while let Some(arrival) = self.arrivals.get(next).filter(|arrival| arrival.at <= at) {
                if let Some(class) = self.classes.get(arrival.template) {
                    let id = run.arrive(self.workload(next, arrival, class));
                    recorder.arrived(&class.name, at);
                    class_of.insert(id, arrival.template);
                }
                next += 1;
            }
            let runtime = |_: &Engine, id: WorkloadId| {
                let class = class_of.get(&id).and_then(|class| classes.get(*class));
                class.map(|class| class.runtime)
            };
            run.run_until_idle(&runtime, &mut |engine, at, transition| {
                recorder.record(engine, at, transition, &class_of, classes);
            });
        }
        recorder.finish(run.livelock)
    }
}

fn topology_request(template: &WorkloadTemplate) -> Result<Option<TopologyRequest>, PlanError> {
    let (constraint, level) = match (&template.tas_constraint, &template.tas_level) {
        (None, None) => return Ok(None),
        (Some(constraint), Some(level)) => (constraint, level),
        (constraint, level) => {
            return Err(PlanError::Invalid {
                field: if constraint.is_some() { "tasConstraint" } else { "tasLevel" },
                owner: template.class_name.clone(),
                value: constraint.as_ref().or(level.as_ref()).cloned().unwrap_or_default(),
                expected: "both tasConstraint and tasLevel, or neither",
            });
        }
    };
    let level: Arc<str> = level.as_str().into();
    let mut request = TopologyRequest::default();
    match constraint.as_str() {
        "required" => request.required = Some(level),
        "preferred" => request.preferred = Some(level),
        "balanced" => {
            request.slices = vec![SliceLayer { level, size: template.slice_size.unwrap_or(1) }];
            request.slice_size_given = true;
        }
        other => {
            return Err(PlanError::Invalid {
                field: "tasConstraint",
                owner: template.class_name.clone(),
                value: other.to_owned(),
                expected: "required, preferred or balanced",
            });
        }
    }
    Ok(Some(request))
}
