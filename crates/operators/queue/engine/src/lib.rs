//! Scheduling decisions of the queue as a pure library: no I/O, no clock, no Kubernetes client.

pub mod afs;
pub mod amount;
pub mod cycle;
pub mod engine;
pub mod explain;
pub mod fair;
pub mod flavors;
pub mod forecast;
pub mod intake;
pub mod labels;
pub mod model;
pub mod names;
pub mod outlet;
pub mod preemption;
pub mod quantity;
pub mod queue;
pub mod quota;
pub mod requests;
pub mod settings;
pub mod simulate;
pub mod state;
pub mod tas;
pub mod testing;
pub mod time;
pub mod what_if;

mod virtual_time;

pub use engine::Engine;
