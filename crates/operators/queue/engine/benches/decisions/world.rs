//! The objects of the benchmark.

use std::sync::Arc;

use quintet_queue_engine::Engine;
use quintet_queue_engine::internals::amount::Amount;
use quintet_queue_engine::internals::labels::Labels;
use quintet_queue_engine::internals::requests::Requests;
use quintet_queue_engine::internals::tas::NodeInfo;
use quintet_queue_engine::model::{
    Flavor, LocalQueue, PodSet, PodShape, Preemption, PreemptionPolicy, QueueSpec, Quota, ResourceGroup,
    ShapeHash, TopologyRequest, Workload, WorkloadKey,
};
use quintet_queue_engine::names::{LocalQueueId, NamespaceId, ResourceId};
use quintet_queue_engine::settings::Settings;
use quintet_queue_engine::time::Time;

/// The classes of Kueue's `test/performance/scheduler/configs`: cpu, priority and how many of a hundred.
const CLASSES: [(i64, i32, usize); 3] = [(1000, 50, 70), (5000, 100, 20), (20_000, 200, 10)];

/// Queues, nodes and workloads like those of Kueue's performance test.
pub(crate) struct World {
    pub(crate) engine: Engine,
    namespace: NamespaceId,
    pub(crate) local_queues: Vec<LocalQueueId>,
    shapes: Vec<Arc<PodShape>>,
    topology: Vec<Option<TopologyRequest>>,
    /// Pods of each class, and over how many pod sets they are spread.
    pods: [i32; 3],
    pod_sets: i32,
    made: usize,
}

impl World {
    /// `cohorts` × `queues` queues that may each borrow 100 cpu: of 20 cpu each, or on nodes of 96 cpu whose
    /// capacity they share, with pods that want to be in one rack of 64.
    pub(crate) fn new(cohorts: usize, queues: usize, nodes: usize) -> Self {
        let mut engine = Engine::new(Settings::default());
        let names = &mut engine.state_mut().names;
        let flavor = names.flavors.intern("default");
        let namespace = names.namespaces.intern("default");
        let tree = names.topologies.intern("topology");
        engine.set_namespace(namespace, Some(Labels::new()), Time::ZERO);
        let mut nominal = 20_000;
        if nodes > 0 {
            let levels = ["block", "rack", "kubernetes.io/hostname"];
            engine.state_mut().set_topology(tree, levels.iter().map(|level| Arc::from(*level)).collect());
            add_nodes(&mut engine, nodes);
            nominal = 96_000 * i64::try_from(nodes).unwrap() / i64::try_from(cohorts * queues).unwrap();
        }
        let topology = (nodes > 0).then_some(tree);
        engine.state_mut().set_flavor(flavor, Flavor { topology, ..Flavor::default() });
        let mut local_queues = Vec::new();
        for cohort in 0..cohorts {
            let cohort_id = engine.state_mut().names.cohorts.intern(&format!("cohort-{cohort}"));
            for queue in 0..queues {
                let name = format!("queue-{cohort}-{queue}");
                let mut spec = QueueSpec::new(engine.state_mut().names.queues.intern(&name));
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
                spec.groups = vec![ResourceGroup::single(ResourceId::CPU, flavor, quota)];
                let id = spec.id;
                engine.set_queue(spec, Time::ZERO);
                let local_queue = engine.state_mut().names.local_queues.intern(&format!("default/{name}"));
                engine.set_local_queue(local_queue, Some(LocalQueue::feeding(id)));
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
        Self { engine, namespace, local_queues, shapes, topology, pods, pod_sets: 1, made: 0 }
    }

    /// The same with the pods of each workload in two pod sets, as a Ray cluster has them.
    pub(crate) fn with_two_pod_sets(mut self) -> Self {
        self.pod_sets = 2;
        self
    }

    /// The same with quota shared fairly within cohorts.
    pub(crate) fn sharing_fairly(mut self) -> Self {
        self.engine.state_mut().settings.fair_sharing = Some(Settings::DEFAULT_STRATEGIES.to_vec());
        self
    }

    /// The next workload: seven of ten are small, two medium, one large and urgent.
    pub(crate) fn workload(&mut self, local_queue: usize) -> Workload {
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
        let key = WorkloadKey { namespace: self.namespace, name: format!("workload-{number}").into() };
        let pod_sets = (0..self.pod_sets).map(|index| PodSet {
            topology: request.clone().map(Box::new),
            ..PodSet::new(&format!("set-{index}"), self.pods[class] / self.pod_sets, Arc::clone(&shape))
        });
        Workload {
            uid: format!("{number:032x}").into(),
            created: Time::from_secs(i64::try_from(number).unwrap()),
            priority,
            spec_fingerprint: class as u64,
            shape: Some(ShapeHash::new((class * 10 + number % self.topology.len()) as u128)),
            ..Workload::new(key, self.local_queues[local_queue], pod_sets.collect())
        }
    }

    /// Queues so many more workloads, round-robin over all queues.
    pub(crate) fn fill(&mut self, pending: usize) {
        let queues = self.local_queues.len();
        for number in 0..pending {
            let workload = self.workload(number % queues);
            self.engine.set_workload(workload, Time::ZERO);
        }
    }
}

fn add_nodes(engine: &mut Engine, nodes: usize) {
    let names = &mut engine.state_mut().names;
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
    engine.state_mut().tas.set_nodes(all.collect::<Vec<_>>());
}
