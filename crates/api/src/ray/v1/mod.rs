//! `ray.io/v1`: Ray clusters, jobs, services and cron jobs.

mod cluster;
mod cron_job;
mod job;
mod service;

pub use cluster::*;
pub use cron_job::*;
pub use job::*;
pub use service::*;
