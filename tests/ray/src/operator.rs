//! An operator process.

use std::sync::Arc;

use quintet_controller::{Runtime, clock::Clock};
use quintet_ray::{Context, settings::Settings};

use crate::{Connection, Odds, START, World};

/// A running operator.
pub struct Operator {
    /// Its way to the API.
    pub connection: Connection,
    runtime: Runtime,
}

impl Operator {
    /// Starts an operator in a world, at the time it is there.
    pub fn start(world: &World, settings: &Settings, clock: &Clock, odds: Odds) -> Self {
        let connection = Connection::new(world.api.admin_client(), world.dice.clone(), odds);
        let seed = world.dice.roll(u64::MAX);
        let (runtime, _) = Runtime::alone(connection.client(), clock, "simulated", Some(seed));
        let context = Context {
            settings: Arc::new(settings.clone()),
            clock: clock.clone(),
            seed: Some(seed),
            concurrency: 4,
        };
        quintet_ray::add(&runtime, &context).unwrap();
        runtime.start();
        Self { connection, runtime }
    }

    /// The clock of a world that begins now.
    pub fn clock() -> Clock {
        Clock::simulated(START.parse().unwrap())
    }

    /// Ends it as `kill -9` would.
    pub fn kill(&self) {
        self.connection.kill();
        self.runtime.queue().close();
        self.runtime.tasks().stop();
    }
}
