//! What the operator asks of Ray itself, through the dashboard of a cluster.
//!
//! No decision waits for a dashboard: a [`Poller`] polls in the background, and its last response is part of the
//! observed state. Requests that change something (submit, stop, deploy) are calls of the plan.

mod http;
mod poll_schedule;
mod poller;
mod request;
pub mod simulated;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use quintet_api::ray::v1::{AuthMode, RayCluster};
use quintet_controller::{Class, Error, cache::Entry};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use http::{AUTHORIZATION, segment};
pub use http::{FixedToken, HttpDashboard, Route, SecretTokens, Tokens};
pub use poller::{Observation, Poll, Poller, Pollers};
pub use request::{JobRequest, ServeChange, ServeRequest};

use crate::{k8s_service, names, watches::ServiceView};

/// Where the dashboard of a cluster is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    /// Host and port.
    pub host: String,
    /// Namespace of the cluster.
    pub namespace: String,
    /// The Service in front of the head, by which the API server finds the dashboard.
    pub service: String,
    /// The Secret with the token that Ray demands, if it does.
    pub token_secret: Option<String>,
}

impl Address {
    /// The dashboard of `cluster`, which responds at `host`.
    pub fn of(cluster: &RayCluster, host: &str) -> Self {
        Self {
            host: host.to_owned(),
            namespace: cluster.metadata.namespace.clone().unwrap_or_default(),
            service: k8s_service::head_service_name(cluster),
            token_secret: token_secret(cluster),
        }
    }
}

/// Host and port of a dashboard, as the cluster's own head Service tells.
pub fn host(service: &Entry<ServiceView>, domain: &str) -> Option<String> {
    let port = service.object.port(k8s_service::DASHBOARD)?;
    let host = names::service_host(service.key.name(), service.key.namespace()?, domain);
    Some(format!("{host}:{port}"))
}

/// The Secret with the token of a cluster that demands one.
pub fn token_secret(cluster: &RayCluster) -> Option<String> {
    let options = cluster.spec.auth_options.as_ref()?;
    if options.mode != Some(AuthMode::Token) {
        return None;
    }
    let given = options.secret_name.clone().filter(|name| !name.is_empty());
    Some(given.unwrap_or_else(|| names::object_name(cluster.metadata.name.as_deref().unwrap_or_default())))
}

/// Where Serve's proxy on a pod is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProxyAddress {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Address of the pod.
    pub ip: String,
    /// Port of the proxy.
    pub port: i32,
}

/// What Ray says of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobInfo {
    /// Where the job is in its life.
    pub status: JobStatus,
    /// An explanation.
    pub message: String,
    /// When it began.
    pub start_time: Option<Timestamp>,
    /// When it ended.
    pub end_time: Option<Timestamp>,
}

/// Where a job is in its life, by Ray's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobStatus {
    /// Waiting for resources.
    Pending,
    /// Running.
    Running,
    /// Stopped on request.
    Stopped,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

impl JobStatus {
    /// Ray's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Stopped => "STOPPED",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
        }
    }

    /// Whether the job has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Stopped | Self::Succeeded | Self::Failed)
    }
}

/// A job to submit, as Ray reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Submission {
    /// The command.
    pub entrypoint: String,
    /// The name of the job in Ray; a second job of that name is refused.
    pub submission_id: String,
    /// The runtime environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_env: Option<serde_json::Map<String, Value>>,
    /// Metadata kept with the job.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// CPUs for the command.
    #[serde(skip_serializing_if = "is_zero")]
    pub entrypoint_num_cpus: f64,
    /// GPUs for the command.
    #[serde(skip_serializing_if = "is_zero")]
    pub entrypoint_num_gpus: f64,
    /// Custom resources for the command.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub entrypoint_resources: BTreeMap<String, f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

/// What Serve says of its applications.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Applications {
    /// By name; the nameless one is called `default`.
    pub applications: BTreeMap<String, Application>,
}

/// One application of Serve.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Application {
    /// Its state.
    pub status: String,
    /// An explanation.
    pub message: String,
    /// Its deployments by name.
    pub deployments: BTreeMap<String, Deployment>,
}

/// One deployment of an application.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Deployment {
    /// Its state.
    pub status: String,
    /// An explanation.
    pub message: String,
}

/// Why a dashboard did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DashboardError {
    /// No response, or not in time.
    #[error("no response from {url}: {cause}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// Why.
        cause: String,
    },
    /// A response that means no.
    #[error("{url} answered {code}: {body}")]
    Refused {
        /// What was asked.
        url: String,
        /// The HTTP status.
        code: u16,
        /// The beginning of the body.
        body: String,
    },
    /// A response that makes no sense.
    #[error("{url} answered something that cannot be read: {cause}")]
    Garbage {
        /// What was asked.
        url: String,
        /// Why.
        cause: String,
    },
    /// A job of that name exists.
    #[error("a Ray job with the submission id {0} exists already")]
    AlreadyUsed(String),
    /// The token that Ray demands cannot be read.
    #[error("cannot read the token for Ray from Secret {secret}: {cause}")]
    NoToken {
        /// Namespace and name of the Secret.
        secret: String,
        /// Why.
        cause: String,
    },
}

impl DashboardError {
    /// The error of a reconcile whose request failed.
    pub fn while_trying(self, attempt: impl Into<String>) -> Error {
        let class = match &self {
            // Ray has read it and does not want it; 404 and the like may mean that it is starting.
            Self::Refused { code: 400 | 422, .. } => Class::Invalid,
            _ => Class::Transient,
        };
        Error::new(class, attempt, self.to_string())
    }
}

/// The future of a response of Ray.
pub type DashboardResult<'a, T> = BoxFuture<'a, Result<T, DashboardError>>;

/// Everything the operator asks of Ray.
pub trait Dashboard: Send + Sync + 'static {
    /// The state of a job; `None` if Ray knows no job of that name.
    fn job<'a>(&'a self, at: &'a Address, id: &'a str) -> DashboardResult<'a, Option<JobInfo>>;

    /// Submits a job.
    fn submit<'a>(&'a self, at: &'a Address, job: &'a Submission) -> DashboardResult<'a, ()>;

    /// Stops a job; one that has ended or never was is as good.
    fn stop<'a>(&'a self, at: &'a Address, id: &'a str) -> DashboardResult<'a, ()>;

    /// The state of Serve's applications.
    fn applications<'a>(&'a self, at: &'a Address) -> DashboardResult<'a, Applications>;

    /// Makes Serve's applications be those of `config`.
    fn deploy<'a>(&'a self, at: &'a Address, config: &'a Value) -> DashboardResult<'a, ()>;

    /// Whether Serve's proxy on a pod takes requests.
    fn is_healthy<'a>(&'a self, at: &'a ProxyAddress) -> BoxFuture<'a, bool>;
}

/// Polls the state of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobPoll {
    /// Whom to ask.
    pub at: Address,
    /// The name of the job in Ray.
    pub id: String,
}

impl Poll for JobPoll {
    type Response = Option<JobInfo>;

    async fn ask(&self, dashboard: &dyn Dashboard) -> Result<Self::Response, DashboardError> {
        dashboard.job(&self.at, &self.id).await
    }
}

/// Polls the Serve applications of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServePoll(pub Address);

impl Poll for ServePoll {
    type Response = Applications;

    async fn ask(&self, dashboard: &dyn Dashboard) -> Result<Self::Response, DashboardError> {
        dashboard.applications(&self.0).await
    }
}

/// Polls whether Serve's proxy on a pod takes requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HealthPoll(pub ProxyAddress);

impl Poll for HealthPoll {
    type Response = bool;

    // Requests go to a head as soon as its proxy is up: that is waited for, and not only looked after.
    const LONGEST_WAIT: Duration = Duration::from_secs(5);

    fn is_good(response: &Result<bool, DashboardError>) -> bool {
        *response == Ok(true)
    }

    async fn ask(&self, dashboard: &dyn Dashboard) -> Result<Self::Response, DashboardError> {
        Ok(dashboard.is_healthy(&self.0).await)
    }
}
