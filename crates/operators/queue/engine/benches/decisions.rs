//! How fast the engine decides: plain numbers, no statistics, for two cores.
//!
//! `cargo bench -p quintet-queue-engine` runs everything; names given as arguments choose a part:
//! `queues`, `topology`, `memory`, `event`.

#![expect(clippy::print_stdout, reason = "the numbers are the product of this target")]
#![expect(clippy::cast_precision_loss, reason = "rates are for reading")]
#![expect(clippy::unwrap_used, reason = "a bench may stop when its setup is wrong")]

use std::sync::Arc;
use std::time::Instant;

use quintet_queue_engine::Engine;
use quintet_queue_engine::amount::Amount;
use quintet_queue_engine::cycle::Outcome;
use quintet_queue_engine::labels::Labels;
use quintet_queue_engine::model::{
    Flavor, FlavorQuotas, LocalQueue, PodSet, PodShape, Preemption, PreemptionPolicy, QueueSpec, Quota,
    ResourceGroup, ShapeHash, TopologyRequest, Workload, WorkloadKey,
};
use quintet_queue_engine::names::{LocalQueueId, NamespaceId, ResourceId, WorkloadId};
use quintet_queue_engine::requests::Requests;
use quintet_queue_engine::settings::Settings;
use quintet_queue_engine::tas::NodeInfo;
use quintet_queue_engine::testing;
use quintet_queue_engine::time::Time;

/// Resident bytes of this process, by what Linux says.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()).unwrap_or(0) * 1024
}

/// The classes of upstream's performance test: cpu, priority and how many of a hundred.
const CLASSES: [(i64, i32, usize); 3] = [(1000, 50, 70), (5000, 100, 20), (20_000, 200, 10)];

struct Bench {
    engine: Engine,
    namespace: NamespaceId,
    local_queues: Vec<LocalQueueId>,
    shapes: Vec<Arc<PodShape>>,
    topology: Vec<Option<TopologyRequest>>,
    pods: [i32; 3],
    made: usize,
}

impl Bench {
    /// `cohorts` × `queues` queues with 20 cpu each that may borrow 100 more.
    fn new(cohorts: usize, queues: usize, nodes: usize) -> Self {
        let mut engine = Engine::new(Settings::default());
        let names = &mut engine.state.names;
        let flavor = names.flavors.intern("default");
        let namespace = names.namespaces.intern("default");
        let tree = names.topologies.intern("topology");
        engine.set_namespace(namespace, Some(Labels::new()), Time::ZERO);
        let mut nominal = 20_000;
        if nodes > 0 {
            let levels = ["block", "rack", "kubernetes.io/hostname"];
            engine.state.set_topology(tree, levels.iter().map(|level| Arc::from(*level)).collect());
            add_nodes(&mut engine, nodes);
            nominal = 96_000 * i64::try_from(nodes).unwrap() / i64::try_from(cohorts * queues).unwrap();
        }
        let topology = (nodes > 0).then_some(tree);
        engine.state.set_flavor(flavor, Flavor { topology, ..Flavor::default() });
        let mut local_queues = Vec::new();
        for cohort in 0..cohorts {
            let cohort_id = engine.state.names.cohorts.intern(&format!("cohort-{cohort}"));
            for queue in 0..queues {
                let name = format!("queue-{cohort}-{queue}");
                let mut spec = QueueSpec::new(engine.state.names.queues.intern(&name));
                spec.cohort = Some(cohort_id);
                spec.preemption = Preemption {
                    within_queue: PreemptionPolicy::LowerPriority,
                    reclaim_within_cohort: PreemptionPolicy::Any,
                    borrow_within_cohort: None,
                };
                let quota = Quota {
                    nominal: Amount::new(nominal),
                    borrowing_limit: Some(Amount::new(100_000)),
                    lending_limit: None,
                };
                let quotas = vec![(ResourceId::CPU, quota)];
                spec.groups = vec![ResourceGroup {
                    resources: vec![ResourceId::CPU],
                    flavors: vec![FlavorQuotas { flavor, quotas }],
                }];
                let id = spec.id;
                engine.set_queue(spec, Time::ZERO);
                let local_queue = engine.state.names.local_queues.intern(&format!("default/{name}"));
                let feeds = LocalQueue { queue: id, weight: 1.0, stopped: false };
                engine.set_local_queue(local_queue, Some(feeds));
                local_queues.push(local_queue);
            }
        }
        let with_topology = nodes > 0;
        let pods = if with_topology { [2, 4, 8] } else { [1, 1, 1] };
        let shapes = CLASSES
            .iter()
            .zip(pods)
            .map(|((cpu, ..), pods)| {
                let requests: Requests = [(ResourceId::CPU, cpu / i64::from(pods))].into_iter().collect();
                Arc::new(PodShape { requests, ..PodShape::default() })
            })
            .collect();
        let rack: Arc<str> = "rack".into();
        let required = TopologyRequest { required: Some(Arc::clone(&rack)), ..TopologyRequest::default() };
        let preferred = TopologyRequest { preferred: Some(rack), ..TopologyRequest::default() };
        let topology = if with_topology { vec![Some(required), Some(preferred)] } else { vec![None] };
        Self { engine, namespace, local_queues, shapes, topology, pods, made: 0 }
    }

    fn workload(&mut self, local_queue: usize) -> Workload {
        let number = self.made;
        self.made += 1;
        let spot = number.wrapping_mul(2_654_435_761) % 100;
        let class = CLASSES.iter().scan(0, |sum, (.., share)| {
            *sum += share;
            Some(*sum)
        });
        let class = class.into_iter().position(|limit| spot < limit).unwrap_or(0);
        let (_, priority, _) = CLASSES[class];
        let request = self.topology[number % self.topology.len()].clone();
        let shape = Arc::clone(&self.shapes[class]);
        let count = self.pods[class];
        Workload {
            key: WorkloadKey { namespace: self.namespace, name: format!("workload-{number}").into() },
            uid: format!("{number:032x}").into(),
            generation: 1,
            created: Time::from_secs(i64::try_from(number).unwrap()),
            local_queue: self.local_queues[local_queue],
            priority,
            boost: 0,
            active: true,
            spec_fingerprint: class as u64,
            reclaim_fingerprint: 0,
            shape: Some(ShapeHash::new((class * 10 + number % self.topology.len()) as u128)),
            pod_sets: vec![PodSet {
                name: "main".into(),
                count,
                min_count: None,
                effective_count: count,
                requests: shape.requests.clone(),
                pod: shape,
                topology: request.map(Box::new),
            }],
            conditions: Vec::new(),
            checks: Vec::new(),
            requeue_at: None,
            admission: None,
            unhealthy_nodes: Vec::new(),
            links: None,
        }
    }

    fn fill(&mut self, pending: usize) {
        let queues = self.local_queues.len();
        for number in 0..pending {
            let workload = self.workload(number % queues);
            self.engine.set_workload(workload, Time::ZERO);
        }
    }

    /// Admits everything: whenever nothing more fits, all that runs finishes.
    fn drain(&mut self, limit: std::time::Duration) -> Counts {
        let mut counts = Counts::default();
        let mut running: Vec<WorkloadId> = Vec::new();
        let mut now = Time::from_secs(1);
        let start = Instant::now();
        loop {
            let cycle = Instant::now();
            let report = self.engine.schedule(now);
            counts.deciding += cycle.elapsed().as_secs_f64();
            if report.heads == 0 && running.is_empty() || start.elapsed() > limit {
                break;
            }
            counts.cycles += 1;
            counts.decisions += report.decisions.len();
            let mut admitted = 0;
            for decision in &report.decisions {
                match &decision.outcome {
                    Outcome::Admitted(_) => {
                        admitted += 1;
                        running.push(decision.workload);
                    }
                    Outcome::Unadmitted(unadmitted) => {
                        for target in &unadmitted.evict {
                            counts.preempted += 1;
                            running.retain(|id| *id != target.workload);
                            self.engine.return_to_queue(target.workload, now);
                        }
                    }
                    _ => {}
                }
            }
            counts.admitted += admitted;
            if admitted == 0 {
                for id in running.drain(..) {
                    let key = self.engine.state.workload(id).unwrap().key.clone();
                    self.engine.remove_workload(&key, now);
                }
                self.engine.process_flushes(now, false);
            }
            now = Time::from_nanos(now.as_nanos() + 1_000_000);
        }
        counts.seconds = start.elapsed().as_secs_f64();
        counts
    }
}

#[derive(Default)]
struct Counts {
    cycles: usize,
    decisions: usize,
    admitted: usize,
    preempted: usize,
    /// Seconds in cycles.
    deciding: f64,
    /// Seconds in all, with arrivals and departures.
    seconds: f64,
}

fn add_nodes(engine: &mut Engine, nodes: usize) {
    let names = &mut engine.state.names;
    let memory = names.resource("memory");
    let all = (0..nodes).map(|number| {
        let name: Arc<str> = format!("node-{number:05}").into();
        let label = |key: &str, value: String| (Arc::from(key), Arc::from(value));
        let labels = [
            label("block", format!("block-{:02}", number / 640)),
            label("rack", format!("rack-{:03}", number / 64)),
            label("kubernetes.io/hostname", name.to_string()),
        ];
        let allocatable =
            [(ResourceId::CPU, 96_000), (memory, 256 << 30), (ResourceId::PODS, 110)].into_iter().collect();
        let node = NodeInfo {
            name: Arc::clone(&name),
            labels: labels.into_iter().collect(),
            allocatable,
            usable: true,
            ..NodeInfo::default()
        };
        (name, Some(node))
    });
    engine.state.tas.set_nodes(all.collect::<Vec<_>>());
}

fn throughput(chosen: &[String], title: &str, cohorts: usize, queues: usize, pending: usize, nodes: usize) {
    let kind = if nodes > 0 { "topology" } else { "queues" };
    if !chosen.is_empty() && !chosen.iter().any(|own| kind == own || title == own) {
        return;
    }
    let mut bench = Bench::new(cohorts, queues, nodes);
    let start = Instant::now();
    bench.fill(pending);
    let filled = start.elapsed().as_secs_f64();
    let counts = bench.drain(std::time::Duration::from_secs(30));
    println!(
        "{title}: {:.0} admissions/s, {:.0} decisions/s in cycles; {:.0} admissions/s with evictions and departures ({} admitted, {} preempted, {} decisions in {} cycles, {:.2} s; queued {:.0}/s)",
        counts.admitted as f64 / counts.deciding,
        counts.decisions as f64 / counts.deciding,
        counts.admitted as f64 / counts.seconds,
        counts.admitted,
        counts.preempted,
        counts.decisions,
        counts.cycles,
        counts.seconds,
        pending as f64 / filled,
    );
}

fn memory() {
    let mut bench = Bench::new(100, 100, 0);
    for pending in [200_000, 400_000, 400_000] {
        let before = resident();
        bench.fill(pending);
        println!(
            "memory: {} resident bytes for each of {pending} more pending workloads",
            (resident() - before) / pending
        );
    }
    let mut engine = Engine::new(Settings::default());
    let (before, read) = (resident(), 200_000);
    for number in 0..read {
        let object = testing::workload("default", &format!("workload-{number}"), "queue-0", 1);
        testing::add(&mut engine, &object);
    }
    println!(
        "memory: {} resident bytes for each of {read} workloads read from JSON",
        (resident() - before) / read
    );
}

/// One workload arrives, one cycle runs, one workload leaves: with a growing backlog that does not fit.
fn event() {
    for pending in [1_000, 10_000, 100_000, 1_000_000] {
        let mut bench = Bench::new(10, 10, 0);
        bench.fill(pending);
        let mut now = Time::from_secs(1);
        // Until everything that fits is admitted and nobody moves any more.
        for _ in 0..10_000 {
            let report = bench.engine.schedule(now);
            let mut moved = report.made_progress();
            for decision in &report.decisions {
                if let Outcome::Unadmitted(unadmitted) = &decision.outcome {
                    for target in &unadmitted.evict {
                        bench.engine.return_to_queue(target.workload, now);
                        moved = true;
                    }
                }
            }
            now = Time::from_nanos(now.as_nanos() + 1);
            if !moved {
                break;
            }
        }
        let rounds = 2_000;
        let start = Instant::now();
        for round in 0..rounds {
            let workload = bench.workload(round % 100);
            let key = workload.key.clone();
            bench.engine.set_workload(workload, now);
            bench.engine.schedule(now);
            bench.engine.remove_workload(&key, now);
        }
        let each = start.elapsed().as_secs_f64() / f64::from(u32::try_from(rounds).unwrap()) * 1e6;
        println!(
            "event: {each:.1} µs for an arrival that does not fit and its departure, with {pending} pending"
        );

        let running: Vec<WorkloadId> = bench
            .engine
            .state
            .workloads()
            .map(|(id, _)| id)
            .filter(|id| bench.engine.state.held(*id).is_some())
            .collect();
        let start = Instant::now();
        let mut decisions = 0;
        for id in &running {
            let key = bench.engine.state.workload(*id).unwrap().key.clone();
            bench.engine.remove_workload(&key, now);
            bench.engine.process_flushes(now, false);
            decisions += bench.engine.schedule(now).decisions.len();
            now = Time::from_nanos(now.as_nanos() + 1);
        }
        let each = start.elapsed().as_secs_f64() / running.len() as f64 * 1e6;
        println!(
            "event: {each:.1} µs for the end of a running workload, which wakes its cohort of 10 queues and makes {:.1} decisions, with {pending} pending",
            decisions as f64 / running.len() as f64
        );
    }
}

fn main() {
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wants = |part: &str| chosen.is_empty() || chosen.iter().any(|own| part.contains(own.as_str()));
    throughput(&chosen, "15,000 pending over 30 queues", 5, 6, 15_000, 0);
    throughput(&chosen, "50,000 pending over 1,000 queues", 10, 100, 50_000, 0);
    throughput(&chosen, "1,000,000 pending over 10,000 queues", 100, 100, 1_000_000, 0);
    throughput(&chosen, "15,000 pending over 30 queues, 640 nodes", 5, 6, 15_000, 640);
    throughput(&chosen, "50,000 pending over 1,000 queues, 640 nodes", 10, 100, 50_000, 640);
    throughput(&chosen, "15,000 pending over 30 queues, 10,000 nodes", 5, 6, 15_000, 10_000);
    if wants("memory") {
        memory();
    }
    if wants("event") {
        event();
    }
}
