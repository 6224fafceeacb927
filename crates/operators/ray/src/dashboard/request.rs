//! Requests to Ray that a plan asks for. They are data: plans are compared and stored with them.

use std::fmt;

use quintet_controller::ObjectKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Address, Submission};

/// What the controller of RayJobs asks of Ray.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobRequest {
    /// Run this job.
    SubmitJob {
        /// The RayJob.
        root: ObjectKey,
        /// The dashboard.
        at: Address,
        /// The job.
        job: Submission,
    },
    /// Stop that job.
    StopJob {
        /// The dashboard.
        at: Address,
        /// The job's name in Ray.
        id: String,
    },
}

impl fmt::Display for JobRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SubmitJob { job, .. } => write!(f, "submit Ray job {}", job.submission_id),
            Self::StopJob { id, .. } => write!(f, "stop Ray job {id}"),
        }
    }
}

/// What the controller of RayServices asks of Ray.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServeRequest {
    /// Make the Serve applications of a cluster be those of a config.
    DeployServeConfig {
        /// The RayService.
        root: ObjectKey,
        /// The cluster.
        cluster: ObjectKey,
        /// Its dashboard.
        at: Address,
        /// The config, with the target capacity.
        config: Value,
        /// What differs from the config that the cluster has.
        change: ServeChange,
    },
}

/// What a new Serve config changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServeChange {
    /// The applications.
    Applications,
    /// Only the share of their capacity that the cluster provides.
    TargetCapacity,
}

impl fmt::Display for ServeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::DeployServeConfig { cluster, .. } = self;
        write!(f, "deploy Serve config on RayCluster {cluster}")
    }
}
