//! How fast the engine decides: plain numbers, no statistics.
//!
//! `cargo bench -p quintet-queue-engine` runs everything. Arguments choose the parts whose names contain
//! one of them, and `--list` prints the names: `cargo bench -p quintet-queue-engine -- topology-640 event`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the numbers are the product of this target")]
#![expect(clippy::cast_precision_loss, reason = "rates are for reading")]
#![expect(clippy::unwrap_used, reason = "a bench may stop when its setup is wrong")]

mod world;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use quintet_queue_engine::Engine;
use quintet_queue_engine::internals::cycle::{CycleReport, Outcome};
use quintet_queue_engine::names::WorkloadId;
use quintet_queue_engine::settings::Settings;
use quintet_queue_engine::testing;
use quintet_queue_engine::time::Time;
use world::World;

/// The allocator of the program this is a part of.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long one part may take; what it did until then is what it reports.
const LIMIT: Duration = Duration::from_mins(1);

const MEANING: &str = "\
What the numbers mean:
  decisions/s   workloads decided about (admitted, sent back, or told to wait for victims), per second
                in which the engine runs cycles
  admissions/s  workloads admitted, per second of everything: cycles, evictions and departures
  of processor  the same per second the processor worked for this program: on a busy machine the
                number to compare
  bytes         memory this process grew by, for each workload that waits
  event         from a change until everything that follows from it is decided
";

/// How many cohorts, queues in each, and pending workloads in all.
const SIZES: [(usize, usize, usize); 3] = [(5, 6, 15_000), (10, 100, 50_000), (100, 100, 1_000_000)];

const NODES: [usize; 3] = [0, 640, 10_000];

const BACKLOGS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];

#[derive(Clone, Copy)]
enum Part {
    Throughput { cohorts: usize, queues: usize, pending: usize, nodes: usize },
    PodSets { nodes: usize },
    Fair { cohorts: usize, queues: usize, pending: usize },
    Memory,
    Event { pending: usize },
}

impl Part {
    fn all() -> Vec<Self> {
        let sized = NODES.iter().flat_map(|nodes| {
            SIZES.iter().map(|(cohorts, queues, pending)| Self::Throughput {
                cohorts: *cohorts,
                queues: *queues,
                pending: *pending,
                nodes: *nodes,
            })
        });
        let events = BACKLOGS.iter().map(|pending| Self::Event { pending: *pending });
        let pod_sets = NODES.iter().filter(|nodes| **nodes > 0).map(|nodes| Self::PodSets { nodes: *nodes });
        let fair = SIZES.iter().take(2).map(|(cohorts, queues, pending)| Self::Fair {
            cohorts: *cohorts,
            queues: *queues,
            pending: *pending,
        });
        // Memory goes first: later it would use again what other parts gave back.
        [Self::Memory].into_iter().chain(sized).chain(pod_sets).chain(fair).chain(events).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Throughput { pending, nodes: 0, .. } => format!("queues/{pending}"),
            Self::Throughput { pending, nodes, .. } => format!("topology-{nodes}/{pending}"),
            Self::PodSets { nodes } => format!("pod-sets-{nodes}/15000"),
            Self::Fair { pending, .. } => format!("fair/{pending}"),
            Self::Memory => "memory".to_owned(),
            Self::Event { pending } => format!("event/{pending}"),
        }
    }

    fn run(self) {
        match self {
            Self::Throughput { cohorts, queues, pending, nodes } => {
                throughput(&self.name(), World::new(cohorts, queues, nodes), pending);
            }
            Self::PodSets { nodes } => {
                throughput(&self.name(), World::new(5, 6, nodes).with_two_pod_sets(), 15_000);
            }
            Self::Fair { cohorts, queues, pending } => {
                throughput(&self.name(), World::new(cohorts, queues, 0).sharing_fairly(), pending);
            }
            Self::Memory => memory(),
            Self::Event { pending } => event(pending),
        }
    }
}

/// Time that passed and time the processor worked for this program.
#[derive(Clone, Copy, Default)]
struct Spent {
    passed: f64,
    worked: f64,
}

impl Spent {
    fn on<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (start, worked) = (Instant::now(), processor_seconds());
        let result = work();
        self.passed += start.elapsed().as_secs_f64();
        self.worked += processor_seconds() - worked;
        result
    }

    fn rates(self, count: usize) -> String {
        let rate = |seconds: f64| count as f64 / seconds.max(1e-9);
        format!("{:.0}/s ({:.0} of processor)", rate(self.passed), rate(self.worked))
    }
}

/// CPU seconds of this thread.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split_whitespace().next().and_then(|field| field.parse::<u64>().ok());
    nanoseconds.unwrap_or(0) as f64 / 1e9
}

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()).unwrap_or(0) * 1024
}

/// Admits everything: victims leave at once, and whenever nothing more fits, all that runs finishes.
fn throughput(name: &str, mut world: World, pending: usize) {
    let mut queueing = Spent::default();
    queueing.on(|| world.fill(pending));
    let (mut cycles, mut decisions, mut admitted, mut preempted) = (0, 0, 0, 0);
    let (mut deciding, mut everything) = (Spent::default(), Spent::default());
    let mut running: BTreeSet<WorkloadId> = BTreeSet::new();
    let mut now = Time::from_secs(1);
    let start = Instant::now();
    let mut progress = Progress::default();
    let is_done = everything.on(|| {
        loop {
            let report = deciding.on(|| world.engine.schedule(now));
            if report.heads == 0 && running.is_empty() {
                return true;
            }
            if start.elapsed() > LIMIT {
                return false;
            }
            cycles += 1;
            decisions += report.decisions.len();
            let starting = report.decisions.iter().filter(|decision| decision.is_admission());
            running.extend(starting.map(|decision| decision.workload));
            admitted += report.admitted();
            preempted += evict(&mut world.engine, &report, &mut running, now);
            if report.admitted() == 0 {
                for id in std::mem::take(&mut running) {
                    finish(&mut world.engine, id, now);
                }
                world.engine.process_flushes(now, false);
            }
            now = Time::from_nanos(now.as_nanos() + 1_000_000);
            progress.report(|| format!("{name}: {admitted} admitted of {pending}"));
        }
    });
    println!(
        "{name}: {pending} pending over {} queues: decisions {}, admissions {}, queued {}",
        world.local_queues.len(),
        deciding.rates(decisions),
        everything.rates(admitted),
        queueing.rates(pending),
    );
    println!(
        "  {admitted} admitted, {preempted} preempted, {decisions} decisions in {cycles} cycles and {:.1} s{}",
        everything.passed,
        if is_done { "" } else { ", when time was up" },
    );
}

/// Lets all evictions happen; returns how many.
fn evict(engine: &mut Engine, report: &CycleReport, running: &mut BTreeSet<WorkloadId>, now: Time) -> usize {
    let mut evicted = 0;
    for decision in &report.decisions {
        if let Outcome::Unadmitted(unadmitted) = &decision.outcome {
            for target in &unadmitted.evict {
                evicted += 1;
                running.remove(&target.workload);
                engine.return_to_queue(target.workload, now);
            }
        }
    }
    evicted
}

fn finish(engine: &mut Engine, id: WorkloadId, now: Time) {
    let key = engine.state().workload(id).unwrap().key.clone();
    engine.remove_workload(&key, now);
}

fn memory() {
    let mut world = World::new(100, 100, 0);
    for pending in [200_000, 400_000, 400_000] {
        let before = resident();
        world.fill(pending);
        println!(
            "memory: {} bytes for each of {pending} more pending workloads",
            resident().saturating_sub(before) / pending
        );
    }
    let mut engine = Engine::new(Settings::default());
    let (before, read) = (resident(), 200_000);
    for number in 0..read {
        let object = testing::workload("default", &format!("workload-{number}"), "queue-0", 1);
        testing::add(&mut engine, &object);
    }
    println!(
        "memory: {} bytes for each of {read} workloads read from JSON",
        resident().saturating_sub(before) / read
    );
}

/// What one arrival, one end and one look cost while so many wait that do not fit.
fn event(pending: usize) {
    let mut world = World::new(10, 10, 0);
    world.fill(pending);
    let mut running = BTreeSet::new();
    let mut now = Time::from_secs(1);
    let mut progress = Progress::default();
    // Until everything that fits is admitted and nothing changes any more.
    for _ in 0..10_000 {
        let report = world.engine.schedule(now);
        let starting = report.decisions.iter().filter(|decision| decision.is_admission());
        running.extend(starting.map(|decision| decision.workload));
        let evicted = evict(&mut world.engine, &report, &mut running, now);
        now = Time::from_nanos(now.as_nanos() + 1);
        if !report.made_progress() && evicted == 0 {
            break;
        }
        progress.report(|| format!("event/{pending}: filling the queues, {} run", running.len()));
    }
    let each = |spent: Spent, count: usize| spent.worked / count as f64 * 1e6;

    let rounds = 20_000;
    let mut spent = Spent::default();
    spent.on(|| {
        for round in 0..rounds {
            let workload = world.workload(round % 100);
            let key = workload.key.clone();
            world.engine.set_workload(workload, now);
            world.engine.schedule(now);
            world.engine.remove_workload(&key, now);
        }
    });
    println!(
        "event: {:.1} µs for an arrival that does not fit and its departure, with {pending} pending",
        each(spent, rounds)
    );

    let (mut spent, mut decisions) = (Spent::default(), 0);
    spent.on(|| {
        for id in &running {
            finish(&mut world.engine, *id, now);
            world.engine.process_flushes(now, false);
            decisions += world.engine.schedule(now).decisions.len();
            now = Time::from_nanos(now.as_nanos() + 1);
        }
    });
    println!(
        "event: {:.1} µs for the end of a running workload, which flushes its cohort of 10 queues and makes {:.1} decisions, with {pending} pending",
        each(spent, running.len()),
        decisions as f64 / running.len() as f64
    );

    let looks = 500_000;
    let (mut spent, mut waiting) = (Spent::default(), 0);
    spent.on(|| {
        for round in 0..looks {
            let local_queue = world.local_queues[round % world.local_queues.len()];
            let queue = world.engine.state().local_queue(local_queue).unwrap().queue;
            let (active, inadmissible) = world.engine.counts_in(local_queue);
            waiting += active + inadmissible + world.engine.pending(queue).unwrap().pending_requests().len();
        }
    });
    assert!(waiting > 0, "some are pending");
    println!(
        "event: {:.2} µs to count the pending workloads of a LocalQueue and sum their requests, with {pending} pending",
        each(spent, looks)
    );
}

/// Prints the progress of a long part now and then.
struct Progress {
    next: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self { next: Instant::now() + Duration::from_secs(5) }
    }
}

impl Progress {
    fn report(&mut self, what: impl FnOnce() -> String) {
        if Instant::now() >= self.next {
            eprintln!("  … {}", what());
            *self = Self::default();
        }
    }
}

fn main() {
    let parts = Part::all();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        for part in parts {
            println!("{}", part.name());
        }
        return;
    }
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |part: &Part| wanted.is_empty() || wanted.iter().any(|own| part.name().contains(*own));
    let chosen: Vec<Part> = parts.into_iter().filter(is_wanted).collect();
    if chosen.is_empty() {
        eprintln!("no part is named like {wanted:?}; --list prints the names");
        std::process::exit(2);
    }
    println!("{MEANING}");
    for (number, part) in chosen.iter().enumerate() {
        eprintln!("  … {} of {}: {}", number + 1, chosen.len(), part.name());
        part.run();
    }
}
