//! What the MLflow controllers watch, and what they keep of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::rbac::v1::RoleBinding;
use quintet_api::job::{JobConditions, JobEnd};
use quintet_api::mlflow::metadata::MIGRATION_JOB;
use quintet_controller::ApiKind;
use quintet_controller::cache::{ObjectMetadata, Selector, WatchSpec};
use serde::{Deserialize, Serialize};

use crate::names;

/// ConsoleLinks; their presence means OpenShift.
pub(crate) fn console_link_kind() -> ApiKind {
    ApiKind::cluster_scoped("console.openshift.io", "v1", "ConsoleLink", "consolelinks")
}

/// HTTPRoutes of the Gateway API.
pub(crate) fn http_route_kind() -> ApiKind {
    ApiKind::namespaced("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
}

/// ServiceMonitors of the Prometheus operator.
pub(crate) fn service_monitor_kind() -> ApiKind {
    ApiKind::namespaced("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors")
}

/// The platform's groups of users.
pub(crate) fn auth_kind() -> ApiKind {
    ApiKind::cluster_scoped("services.platform.opendatahub.io", "v1alpha1", "Auth", "auths")
}

/// Metadata of objects of ours in a namespace: all that carry a `component` label.
pub(crate) fn parts(kind: ApiKind, namespace: &str) -> WatchSpec<ObjectMetadata> {
    WatchSpec::metadata(kind).select(Selector::all().in_namespace(namespace).has_label("component"))
}

/// Metadata of the object of one name outside of namespaces.
pub(crate) fn cluster_part(kind: ApiKind, name: &str) -> WatchSpec<ObjectMetadata> {
    WatchSpec::metadata(kind).select(Selector::all().named(name))
}

/// Metadata of all ConfigMaps in a namespace: that of a CA bundle may have any name and no label.
pub(crate) fn config_maps(namespace: &str) -> WatchSpec<ObjectMetadata> {
    WatchSpec::metadata(ApiKind::of::<ConfigMap>()).select(Selector::all().in_namespace(namespace))
}

/// The Deployment of the server.
pub(crate) fn deployments(namespace: &str) -> WatchSpec<DeploymentView> {
    WatchSpec::projected(ApiKind::of::<Deployment>(), DeploymentView::project)
        .select(Selector::all().in_namespace(namespace).has_label("component"))
}

/// Migration Jobs.
pub(crate) fn jobs(namespace: &str) -> WatchSpec<JobView> {
    WatchSpec::projected(ApiKind::of::<Job>(), JobView::project)
        .select(Selector::all().in_namespace(namespace).label(MIGRATION_JOB, "true"))
}

/// Pods of migration Jobs.
pub(crate) fn pods(namespace: &str) -> WatchSpec<PodView> {
    WatchSpec::projected(ApiKind::of::<Pod>(), PodView::project)
        .select(Selector::all().in_namespace(namespace).label(MIGRATION_JOB, "true"))
}

/// The ConfigMap with the version of the platform.
pub(crate) fn module_config(namespace: &str) -> WatchSpec<ModuleConfig> {
    WatchSpec::projected(ApiKind::of::<ConfigMap>(), |text| serde_json::from_str(text))
        .select(Selector::all().in_namespace(namespace).named(names::MODULE_CONFIG))
}

/// The Auths of the platform.
pub(crate) fn auths() -> WatchSpec<Auth> {
    WatchSpec::projected(auth_kind(), |text| serde_json::from_str(text))
        .select(Selector::all().named(names::AUTH))
        .optional()
}

/// RoleBindings of one name in all namespaces.
pub(crate) fn role_bindings(name: &str) -> WatchSpec<RoleBindingView> {
    WatchSpec::projected(ApiKind::of::<RoleBinding>(), |text| serde_json::from_str(text))
        .select(Selector::all().named(name))
}

/// How far a Deployment is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentView {
    /// Pods that exist.
    pub replicas: i32,
    /// Pods that are ready.
    pub ready_replicas: i32,
}

impl DeploymentView {
    fn project(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            status: DeploymentView,
        }
        serde_json::from_str::<Raw>(text).map(|raw| raw.status)
    }
}

/// How far a migration Job is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobView {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether one of its pods has succeeded.
    pub succeeded: bool,
    /// How many of its pods have failed.
    pub failed_pods: i32,
    /// Whether it has ended, one way or the other.
    pub finished: bool,
    /// Why it failed, if it has.
    pub failure: Option<JobEnd>,
}

impl JobView {
    /// What is kept of a Job.
    pub(crate) fn project(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: Metadata,
            #[serde(default)]
            status: Status,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            #[serde(default)]
            labels: BTreeMap<String, String>,
            creation_timestamp: Option<Timestamp>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            succeeded: i32,
            failed: i32,
            conditions: JobConditions,
        }
        let Raw { metadata, status } = serde_json::from_str(text)?;
        let end = status.conditions.end;
        Ok(Self {
            labels: metadata.labels,
            created: metadata.creation_timestamp,
            succeeded: status.succeeded > 0,
            failed_pods: status.failed,
            finished: end.is_some(),
            failure: end.filter(|end| end.failed),
        })
    }
}

/// How a migration pod ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodView {
    /// The Job it belongs to, or empty.
    pub job: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Its containers that have ended.
    pub terminated: Vec<Terminated>,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Terminated {
    /// Which container.
    pub container: String,
    /// What it exited with.
    pub exit_code: i32,
    /// One word about it, or empty.
    pub reason: String,
}

impl PodView {
    /// What is kept of a pod.
    pub(crate) fn project(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: Metadata,
            #[serde(default)]
            status: Status,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            #[serde(default)]
            labels: BTreeMap<String, String>,
            creation_timestamp: Option<Timestamp>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            container_statuses: Vec<Container>,
        }
        #[derive(Deserialize)]
        struct Container {
            name: String,
            #[serde(default)]
            state: State,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct State {
            terminated: Option<Ended>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Ended {
            exit_code: i32,
            #[serde(default)]
            reason: Option<String>,
        }
        let Raw { metadata, status } = serde_json::from_str(text)?;
        let terminated = status
            .container_statuses
            .into_iter()
            .filter_map(|container| {
                let Ended { exit_code, reason } = container.state.terminated?;
                let reason = reason.unwrap_or_default();
                Some(Terminated { container: container.name, exit_code, reason })
            })
            .collect();
        Ok(Self {
            job: metadata.labels.get("job-name").cloned().unwrap_or_default(),
            created: metadata.creation_timestamp,
            terminated,
        })
    }
}

/// What is kept of the ConfigMap with the version of the platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ModuleConfig {
    /// Its data.
    pub data: BTreeMap<String, String>,
}

/// The platform's groups of users. Its lists are read where they are used, so that a malformed one is reported there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Auth {
    /// Its spec.
    pub spec: serde_json::Map<String, serde_json::Value>,
}

/// What is kept of a RoleBinding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RoleBindingView {
    /// What it binds.
    pub role_ref: RoleRefView,
}

/// What a RoleBinding binds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RoleRefView {
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_has_failed_only_when_a_condition_says_so() {
        let job = |status: serde_json::Value| {
            JobView::project(&json!({"metadata": {}, "status": status}).to_string()).unwrap()
        };
        assert_eq!(job(json!({"failed": 3})).failure, None, "its pods may be replaced");
        let failed =
            job(json!({"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}));
        assert_eq!(failed.failure.map(|failure| failure.reason).as_deref(), Some("DeadlineExceeded"));
        let done = job(json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}));
        assert!(done.succeeded && done.finished && done.failure.is_none());
        assert!(!job(json!({"conditions": [{"type": "Failed", "status": "False"}]})).finished);
    }

    #[test]
    fn a_pod_tells_which_of_its_containers_have_ended() {
        let pod = json!({
            "metadata": {"labels": {"job-name": "j"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"containerStatuses": [
                {"name": "db-migrate", "state": {"terminated": {"exitCode": 11, "reason": null}}},
                {"name": "other", "state": {"running": {}}},
            ]},
        });
        let view = PodView::project(&pod.to_string()).unwrap();
        let ended = Terminated { container: "db-migrate".into(), exit_code: 11, reason: String::new() };
        assert_eq!((view.job.as_str(), view.terminated), ("j", vec![ended]));
    }
}
