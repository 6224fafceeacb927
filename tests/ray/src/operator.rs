//! An operator process.

use std::sync::Arc;

use quintet_controller::{Runtime, clock::Clock, leader::LeaseSettings, metrics::MetricsRegistry};
use quintet_ray::{
    Context,
    dashboard::{Pollers, simulated::SimulatedDashboard},
    settings::Settings,
};

use crate::{Connection, FaultRates, Mortal, NAMESPACE, Rights, START, World};

/// How an operator is started.
#[derive(Clone)]
pub struct Start {
    /// What it is told.
    pub settings: Settings,
    /// The clock of its world.
    pub clock: Clock,
    /// What goes wrong between it and the API.
    pub fault_rates: FaultRates,
    /// The Ray it looks after jobs and services on, if it does.
    pub ray: Option<Arc<SimulatedDashboard>>,
    /// Its name among replicas, if there are others.
    pub identity: Option<String>,
}

impl Start {
    /// An operator for clusters, alone in a world that begins now.
    pub fn alone(fault_rates: FaultRates) -> Self {
        let clock = Clock::simulated(START.parse().unwrap());
        Self { settings: Settings::default(), clock, fault_rates, ray: None, identity: None }
    }
}

/// A running operator.
pub struct Operator {
    /// Its way to the API.
    pub connection: Connection,
    /// What runs in it.
    pub runtime: Runtime,
    /// What it counts.
    pub metrics: MetricsRegistry,
}

impl Operator {
    /// Starts an operator in a world, at the time it is there.
    pub fn start(world: &World, how: &Start) -> Self {
        let Start { settings, clock, fault_rates, ray, identity } = how;
        let connection = Connection::new(world, Rights::of(settings), *fault_rates);
        let seed = Some(world.rng.below(u64::MAX));
        let client = connection.client();
        let (runtime, metrics) = match identity {
            Some(identity) => {
                let lease = LeaseSettings::new(NAMESPACE, "quintet", identity);
                Runtime::replica(client, clock, lease, seed)
            }
            None => Runtime::alone(client, clock, "simulated", seed),
        };
        let settings = Arc::new(settings.clone());
        let context = Context { settings, clock: clock.clone(), seed, concurrency: 4 };
        quintet_ray::add(&runtime, &context).unwrap();
        if let Some(ray) = ray {
            let dashboard = Arc::new(Mortal { ray: Arc::clone(ray), connection: connection.clone() });
            let pollers = Pollers { dashboard, clock: clock.clone(), tasks: runtime.tasks().clone() };
            quintet_ray::add_workloads(&runtime, &context, &pollers, Some(&metrics)).unwrap();
        }
        runtime.start();
        Self { connection, runtime, metrics }
    }

    /// Whether it is dead, or stands by forever because it has lost the lease: then it is restarted.
    pub fn is_over(&self) -> bool {
        self.connection.is_dead() || self.runtime.tasks().is_stopping()
    }

    /// Ends it as `kill -9` would.
    pub fn kill(&self) {
        self.connection.kill();
        self.runtime.queue().close();
        self.runtime.tasks().stop();
    }
}
