#![expect(clippy::needless_pass_by_value, clippy::unnecessary_wraps, reason = "tables are easier to read so")]

mod afterwards;
mod made;
mod mistakes;
mod scheduling;
mod states;

use std::sync::Arc;

use jiff::Timestamp;
use quintet_api::job::JobEnd;
use quintet_api::ray::v1::{RayCluster, RayJob, RayJobStatus};
use quintet_controller::{Class, Next, cache::Entry};
use serde_json::{Value, json};

use super::*;
use crate::{
    dashboard::{JobInfo, JobStatus, Observation},
    labels,
    pod_view::{ContainerState, ContainerView},
    testing::{ago, cluster_spec, entry, merge, now, replayed},
    watches::PortView,
};

pub(super) const NAMESPACE: &str = "ns";

/// A RayJob in a world of its own, described by what differs from the ordinary.
pub(super) struct World {
    pub(super) job: Value,
    pub(super) observed: Observed,
}

/// A RayJob whose spec and status have these fields too.
pub(super) fn world(spec: Value, status: Value) -> World {
    let mut job = json!({
        "metadata": {
            "name": "train", "namespace": NAMESPACE, "uid": "uid-of-train",
            "labels": {"team": "a"}, "annotations": {"note": "b"},
            "finalizers": [labels::JOB_FINALIZER],
        },
        "spec": {"entrypoint": "python train.py", "rayClusterSpec": cluster_spec()},
    });
    merge(&mut job["spec"], &spec);
    if !status.is_null() {
        job["status"] = status;
    }
    let object: RayJob = serde_json::from_value(job.clone()).unwrap();
    let observed = Observed {
        job: Arc::new(entry(NAMESPACE, "train", object)),
        cluster: None,
        cluster_service: None,
        head_service: None,
        submitter: None,
        heads: Vec::new(),
        ray_job: None,
        settings: Arc::new(Settings::default()),
        now: now(),
    };
    World { job, observed }
}

/// The status of a RayJob that runs, with these fields too.
pub(super) fn running(more: Value) -> Value {
    let mut status = json!({
        "jobDeploymentStatus": "Running", "jobId": "train-id", "rayClusterName": "train-c",
        "dashboardURL": "train-c-head-svc.ns.svc.cluster.local:8265", "startTime": ago(100),
        "failed": 0, "succeeded": 0,
    });
    merge(&mut status, &more);
    status
}

pub(super) fn cluster(state: &str) -> Entry<RayCluster> {
    let object = json!({
        "metadata": {
            "name": "train-c", "namespace": NAMESPACE, "uid": "uid-of-train-c",
            "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train",
                                 "uid": "uid-of-train", "controller": true}],
        },
        "spec": cluster_spec(),
        "status": {"state": state},
    });
    entry(NAMESPACE, "train-c", serde_json::from_value(object).unwrap())
}

impl World {
    pub(super) fn with_cluster(mut self, state: &str) -> Self {
        self.observed.cluster = Some(Arc::new(cluster(state)));
        let ports = vec![PortView { name: "dashboard".into(), port: 8265, ..PortView::default() }];
        let service = ServiceView { ports, ..ServiceView::default() };
        self.observed.cluster_service = Some(Arc::new(entry(NAMESPACE, "train-c-head-svc", service)));
        let selector = BTreeMap::from([(labels::CLUSTER.to_owned(), "train-c".to_owned())]);
        let service =
            ServiceView { selector, controller: Some("uid-of-train".into()), ..ServiceView::default() };
        self.observed.head_service = Some(Arc::new(entry(NAMESPACE, "train-head-svc", service)));
        self
    }

    /// A submitter that goes on, or ended `seconds` ago, well or badly.
    pub(super) fn with_submitter(mut self, ended: Option<(i64, bool)>) -> Self {
        let end = ended.map(|(seconds, failed)| JobEnd {
            failed,
            at: Some(ago(seconds)),
            reason: if failed { "BackoffLimitExceeded".to_owned() } else { String::new() },
            message: if failed {
                "Job has reached the specified backoff limit".to_owned()
            } else {
                String::new()
            },
        });
        let view = JobView { end, controller: Some("uid-of-train".into()), ..JobView::default() };
        self.observed.submitter = Some(Arc::new(entry(NAMESPACE, "train", view)));
        self
    }

    pub(super) fn with_sidecar(mut self, state: ContainerState, restarts: i32) -> Self {
        let container = ContainerView {
            name: submission::CONTAINER.into(),
            state,
            restarts,
            ended_before: restarts > 0,
            ..ContainerView::default()
        };
        let pod = PodView { containers: vec![container], ..PodView::default() };
        self.observed.heads = vec![Arc::new(entry(NAMESPACE, "train-c-head", pod))];
        self
    }

    /// Ray said this `seconds` ago.
    pub(super) fn heard(self, seconds: i64, response: Result<Option<JobInfo>, DashboardError>) -> Self {
        self.heard_since(seconds, seconds, response)
    }

    /// Ray said this `seconds` ago, and nothing of another kind since `first` seconds ago.
    pub(super) fn heard_since(
        mut self,
        seconds: i64,
        first: i64,
        response: Result<Option<JobInfo>, DashboardError>,
    ) -> Self {
        self.observed.ray_job = Some(Observation { at: ago(seconds), since: ago(first), response });
        self
    }

    pub(super) fn with_settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        change(&mut settings);
        self.observed.settings = Arc::new(settings);
        self
    }

    pub(super) fn deleted(mut self) -> Self {
        let mut job = entry(NAMESPACE, "train", self.observed.job.object.clone());
        job.deleting = true;
        self.observed.job = Arc::new(job);
        self
    }

    pub(super) fn plan(&self) -> Plan {
        replayed::<JobController>(&self.observed)
    }

    /// The status once a plan is carried out.
    pub(super) fn status_after(&self, plan: &Plan) -> RayJobStatus {
        let mut status = self.job.get("status").cloned().unwrap_or_else(|| json!({}));
        if let Some(patch) = &plan.status {
            merge(&mut status, &patch.status);
        }
        serde_json::from_value(status).unwrap()
    }

    /// The state, the reason and the job's status once the next plan is carried out.
    pub(super) fn outcome(&self) -> (String, String, String) {
        let status = self.status_after(&self.plan());
        let text = |field: Option<String>| field.unwrap_or_default();
        (text(status.job_deployment_status), text(status.reason), text(status.job_status))
    }
}

pub(super) fn info(status: JobStatus) -> Result<Option<JobInfo>, DashboardError> {
    Ok(Some(JobInfo {
        status,
        message: format!("it is {}", status.as_str()),
        start_time: Some(ago(50)),
        end_time: status.is_terminal().then(|| ago(5)),
    }))
}

pub(super) fn silence() -> Result<Option<JobInfo>, DashboardError> {
    Err(DashboardError::Unreachable { url: "http://train-c".to_owned(), cause: "refused".to_owned() })
}

pub(super) fn after(next: Next) -> Option<i64> {
    match next {
        Next::AwaitChange => None,
        Next::After(wait) => i64::try_from(wait.as_secs()).ok(),
    }
}

pub(super) fn time(timestamp: Timestamp) -> Value {
    json!(timestamp)
}
