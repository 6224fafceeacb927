//! Environment variables of Ray containers.

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector};

use super::{Origin, Role};
use crate::{labels, settings::Settings};

/// Kinds of events that Ray hands to the history collector.
const EXPORTED_EVENTS: &str = "TASK_DEFINITION_EVENT,TASK_LIFECYCLE_EVENT,ACTOR_TASK_DEFINITION_EVENT,\
    TASK_PROFILE_EVENT,DRIVER_JOB_DEFINITION_EVENT,DRIVER_JOB_LIFECYCLE_EVENT,ACTOR_DEFINITION_EVENT,\
    ACTOR_LIFECYCLE_EVENT,NODE_DEFINITION_EVENT,NODE_LIFECYCLE_EVENT";

/// Whether a variable is set, to whatever.
pub(crate) fn has(env: Option<&[EnvVar]>, name: &str) -> bool {
    env.unwrap_or_default().iter().any(|variable| variable.name == name)
}

/// Appends a variable; of two with one name the kubelet takes the last.
pub(crate) fn set(container: &mut Container, name: &str, value: impl Into<String>) {
    push(container, EnvVar { name: name.to_owned(), value: Some(value.into()), value_from: None });
}

/// Appends a variable that is not set yet.
pub(crate) fn set_missing(container: &mut Container, name: &str, value: impl Into<String>) {
    if !has(container.env.as_deref(), name) {
        set(container, name, value);
    }
}

/// Appends a variable that is read from the pod itself.
pub(crate) fn set_from_field(container: &mut Container, name: &str, path: impl Into<String>) {
    let field = ObjectFieldSelector { field_path: path.into(), ..ObjectFieldSelector::default() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    push(container, EnvVar { name: name.to_owned(), value: None, value_from: Some(source) });
}

/// Appends a variable as it is.
pub(crate) fn push(container: &mut Container, variable: EnvVar) {
    container.env.get_or_insert_default().push(variable);
}

/// The path of a label in the pod's own description.
pub(super) fn label_path(label: &str) -> String {
    format!("metadata.labels['{label}']")
}

/// Where the head is, as a whole and by its first word.
pub(super) fn set_head_address(container: &mut Container, host: &str) {
    set(container, "FQ_RAY_IP", host);
    set(container, "RAY_IP", host.split('.').next().unwrap_or_default());
}

/// What the variables of a Ray container depend on.
pub(super) struct Environment<'a> {
    pub(super) role: Role,
    pub(super) origin: Origin,
    pub(super) head_host: &'a str,
    pub(super) head_port: &'a str,
    pub(super) command: &'a str,
    pub(super) has_collector: bool,
    pub(super) settings: &'a Settings,
}

impl Environment<'_> {
    /// Adds the variables, in the order upstream adds them.
    pub(super) fn fill(&self, container: &mut Container) {
        for variable in &self.settings.default_env {
            if !has(container.env.as_deref(), &variable.name) {
                push(container, variable.clone());
            }
        }
        let head = match self.role {
            Role::Head => "127.0.0.1",
            Role::Worker => {
                set_head_address(container, self.head_host);
                self.head_host
            }
        };
        set_from_field(container, "RAY_CLUSTER_NAME", label_path(labels::CLUSTER));
        set_from_field(container, "RAY_CLUSTER_NAMESPACE", "metadata.namespace");
        set_from_field(container, "RAY_CLOUD_INSTANCE_ID", "metadata.name");
        set_from_field(container, "RAY_NODE_TYPE_NAME", label_path(labels::GROUP));
        set(container, "KUBERAY_GEN_RAY_START_CMD", self.command);
        set_missing(container, "RAY_PORT", self.head_port);
        if self.origin == Origin::RayService {
            set_missing(container, "RAY_timeout_ms_task_wait_for_death_info", "0");
            set_missing(container, "RAY_gcs_server_request_timeout_seconds", "5");
            set_missing(container, "RAY_SERVE_KV_TIMEOUT_S", "5");
        }
        set_missing(container, "RAY_ADDRESS", format!("{head}:{}", self.head_port));
        set_missing(container, "RAY_USAGE_STATS_KUBERAY_IN_USE", "1");
        if self.role == Role::Head {
            let (version, kind) = (&self.settings.version, self.origin.kind());
            let tags = format!("kuberay_version={version};kuberay_crd={kind}");
            set(container, "RAY_USAGE_STATS_EXTRA_TAGS", tags);
        }
        set_missing(container, "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1");
        if self.has_collector {
            export_events(container);
        }
    }
}

fn export_events(container: &mut Container) {
    set_missing(container, "RAY_enable_ray_event", "true");
    set_missing(container, "RAY_enable_core_worker_ray_event_to_aggregator", "true");
    let agent = "RAY_DASHBOARD_AGGREGATOR_AGENT";
    set_missing(container, &format!("{agent}_EVENTS_EXPORT_ADDR"), "http://localhost:8084/v1/events");
    set_missing(container, &format!("{agent}_EXPOSABLE_EVENT_TYPES"), EXPORTED_EVENTS);
    let publisher = format!("{agent}_PUBLISHER_HTTP_ENDPOINT_EXPOSABLE_EVENT_TYPES");
    set_missing(container, &publisher, EXPORTED_EVENTS);
}
