//! One process that runs the gardener against the server.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use quintet_controller::{
    Runtime, RuntimeParts, RuntimeSettings,
    api::{Api, ApiSettings},
    cache::Caches,
    clock::Clock,
    events::Recorder,
    leader::{Election, Leadership, LeaseSettings},
    limiter::{Limiter, LimiterSettings},
    metrics::{Metrics, MetricsRegistry},
    queue::Queue,
    tasks::Tasks,
};

use super::{
    garden::{Gardener, garden_of},
    server::{Connection, Server},
};

pub struct Process {
    pub runtime: Runtime,
    pub api: Api,
    pub tasks: Tasks,
    pub connection: Connection,
    pub leadership: Leadership,
    pub registry: MetricsRegistry,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
}

impl Process {
    /// Everything but controllers and workers.
    pub fn bare(server: &Server, seed: u64, lease: Option<&str>) -> Self {
        let (client, connection) = server.client();
        let registry = MetricsRegistry::new();
        let metrics = Metrics::register(&registry);
        let tasks = Tasks::new();
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let limiter = Limiter::adaptive(LimiterSettings::default());
        let api = Api::new(client, limiter, ApiSettings::default(), Arc::clone(&metrics));
        let leadership = match lease {
            Some(identity) => {
                let settings = LeaseSettings::new("default", "quintet", identity);
                let election = Election::new(api.clone(), clock.clone(), settings);
                let leadership = election.leadership();
                tasks.spawn("election", election.run(tasks.clone()));
                leadership
            }
            None => Leadership::always(),
        };
        let caches = Caches::new(api.clone(), tasks.clone(), Arc::clone(&metrics), Some(seed));
        let queue = Queue::new(Arc::clone(&metrics), Some(seed));
        let recorder = Recorder::start(api.clone(), clock.clone(), Arc::clone(&metrics), &tasks, "test");
        let parts = RuntimeParts {
            api: api.clone(),
            caches,
            queue,
            recorder,
            leadership: leadership.clone(),
            metrics: Arc::clone(&metrics),
            tasks: tasks.clone(),
        };
        let settings =
            RuntimeSettings { shutdown_timeout: Duration::from_mins(1), ..RuntimeSettings::default() };
        let runtime = Runtime::new(parts, settings);
        Self { runtime, api, tasks, connection, leadership, registry, metrics, clock }
    }

    /// A process with the gardener at work.
    pub fn start(server: &Server, seed: u64, lease: Option<&str>) -> Self {
        let process = Self::bare(server, seed, lease);
        let gardener = Gardener::new(process.runtime.caches());
        let (gardens, plants) = (gardener.gardens.clone(), gardener.plants.clone());
        process.runtime.add(gardener, &gardens, 2).watches(&plants, |entry| vec![garden_of(entry)]).done();
        process.runtime.start();
        process
    }

    /// Ends it as `kill -9` would: nothing that it still does has an effect.
    pub fn kill(&self) {
        self.connection.kill();
        self.runtime.queue().close();
        self.tasks.stop();
    }

    /// Ends it in good order.
    pub async fn stop(&self) {
        assert_eq!(self.runtime.shut_down().await, Vec::<String>::new());
    }
}
