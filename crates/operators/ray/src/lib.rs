//! Ray on Kubernetes: RayCluster, RayJob, RayService and RayCronJob.

pub mod labels;
pub mod names;
pub mod pod_view;
pub mod settings;
pub mod version;
