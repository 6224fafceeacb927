//! Ray on Kubernetes: RayCluster, RayJob, RayService and RayCronJob.

pub mod labels;
pub mod names;
pub mod pod;
pub mod pod_view;
pub mod services;
pub mod settings;
pub mod spec_hash;
pub mod validation;
pub mod version;
