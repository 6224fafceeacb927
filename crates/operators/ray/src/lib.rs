//! Ray on Kubernetes: RayCluster, RayJob, RayService and RayCronJob.

pub mod cron;
pub mod dashboard;
mod finalizers;
mod gauges;
pub mod job;
pub mod labels;
pub mod names;
pub mod pod;
pub mod pod_view;
pub mod service;
mod service_update;
pub mod services;
pub mod settings;
pub mod spec_hash;
pub mod submitter;
#[cfg(test)]
mod testing;
pub mod validation;
pub mod version;
pub mod watches;
