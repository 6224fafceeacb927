//! `kueue.x-k8s.io/v1beta1`: the deprecated version; `v1beta2` is the one to write.

mod admission_check;
mod cluster_queue;
mod cohort;
mod local_queue;
mod multikueue_cluster;
mod multikueue_config;
mod provisioning_request_config;
mod resource_flavor;
mod topology;
mod workload;
mod workload_priority_class;

pub use admission_check::*;
pub use cluster_queue::*;
pub use cohort::*;
pub use local_queue::*;
pub use multikueue_cluster::*;
pub use multikueue_config::*;
pub use provisioning_request_config::*;
pub use resource_flavor::*;
pub use topology::*;
pub use workload::*;
pub use workload_priority_class::*;
