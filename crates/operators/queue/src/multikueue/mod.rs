//! MultiKueue: Workloads that wait here and run on other clusters.
//!
//! ```text
//!   MultiKueueCluster ── cluster ──> connections ──> caches of copies on worker clusters
//!   AdmissionCheck ───── check ────> Active                    │
//!   Workload, job <───── workload ─────────────────────────────┘
//! ```
//!
//! - `access` says how a cluster is reached: by a kubeconfig, or by a ClusterProfile.
//! - `cluster` keeps a connection to every MultiKueueCluster, `connections` has them and what they show.
//! - `check` says whether an AdmissionCheck has clusters that can be used.
//! - `quota` lets the quota of ClusterQueues follow that of the worker clusters.
//! - `workload` decides where a Workload runs, and reports here what happens there.
//!
//! As `pkg/controller/admissionchecks/multikueue` of Kueue.

mod access;
mod check;
mod cluster;
mod connections;
mod kubeconfig;
mod quota;
mod workload;

use quintet_controller::Error;

use crate::Context;
use crate::jobs;
use connections::Connections;

/// Adds the controllers.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let kinds = jobs::remote_kinds(context)?;
    let served = kinds.iter().map(|kind| kind.kind.clone()).collect();
    let connections = Connections::new(context, served)?;
    if context.settings.gates.multikueue_quota {
        quota::add(context, &connections)?;
    }
    let workloads = workload::add(context, &connections, kinds)?;
    cluster::add(context, &connections, workloads)?;
    check::add(context)
}
