//! `modelregistry.opendatahub.io`: model registries, stored as v1beta1; v1alpha1 is deprecated.

mod rules;
pub mod v1alpha1;
pub mod v1beta1;

use crate::crd::{Column, Definition, Version};

const DEPRECATED: &str = "v1alpha1 is deprecated; use modelregistry.opendatahub.io/v1beta1";

const MODEL_REGISTRY_COLUMNS: &[Column] = &[
    Column("Available", "string", r#".status.conditions[?(@.type=="Available")].status"#, 0),
    Column("KubeRBACProxy", "string", r#".status.conditions[?(@.type=="KubeRBACProxyAvailable")].status"#, 2),
    Column("Age", "date", ".metadata.creationTimestamp", 0),
    Column("Hosts", "string", ".status.hostsStr", 2),
    Column("Status", "string", r#".status.conditions[?(@.type=="Available")].message"#, 2),
];

const MODEL_REGISTRY_V1ALPHA1_COLUMNS: &[Column] = &[
    Column("Available", "string", r#".status.conditions[?(@.type=="Available")].status"#, 0),
    Column("Istio", "string", r#".status.conditions[?(@.type=="IstioAvailable")].status"#, 2),
    Column("Gateway", "string", r#".status.conditions[?(@.type=="GatewayAvailable")].status"#, 2),
    Column("OAuthProxy", "string", r#".status.conditions[?(@.type=="OAuthProxyAvailable")].status"#, 2),
    Column("Age", "date", ".metadata.creationTimestamp", 0),
    Column("Hosts", "string", ".status.hostsStr", 2),
    Column("Status", "string", r#".status.conditions[?(@.type=="Available")].message"#, 2),
];

/// The CRDs of this group.
pub fn definitions() -> Vec<Definition> {
    vec![
        Definition::stored::<v1beta1::ModelRegistry>(
            Version::plain().columns(MODEL_REGISTRY_COLUMNS).with_status(),
        )
        .served::<v1alpha1::ModelRegistry>(
            Version::plain().columns(MODEL_REGISTRY_V1ALPHA1_COLUMNS).with_status().deprecated(DEPRECATED),
        )
        .short_names(&["mr"])
        .converted(),
    ]
}

/// Types of conditions.
pub mod conditions {
    /// The server serves.
    pub const AVAILABLE: &str = "Available";
    /// Objects are being made.
    pub const PROGRESSING: &str = "Progressing";
    /// The proxy serves, if there is one.
    pub const KUBE_RBAC_PROXY_AVAILABLE: &str = "KubeRBACProxyAvailable";
    /// The former proxy; removed wherever it is found.
    pub const OAUTH_PROXY_AVAILABLE: &str = "OAuthProxyAvailable";
}

/// Reasons of conditions and events.
pub mod reasons {
    /// `Progressing`: objects are being made.
    pub const CREATING_DEPLOYMENT: &str = "CreatingDeployment";
    /// `Progressing`: all objects exist.
    pub const CREATED_DEPLOYMENT: &str = "CreatedDeployment";
    /// `Available`: it serves.
    pub const DEPLOYMENT_AVAILABLE: &str = "DeploymentAvailable";
    /// `Available`: it does not.
    pub const DEPLOYMENT_UNAVAILABLE: &str = "DeploymentUnavailable";
    /// `Available`: it has served for less than five seconds.
    pub const DEPLOYMENT_COOLDOWN: &str = "DeploymentCooldown";
    /// `Available`: the log of the server has an alert.
    pub const RESOURCES_ALERT: &str = "ResourcesAlert";
    /// `Available`: the server cannot use its database.
    pub const CONFIGURATION_ERROR: &str = "ConfigurationError";
    /// `KubeRBACProxyAvailable`: it serves.
    pub const RESOURCES_AVAILABLE: &str = "ResourcesAvailable";
    /// `KubeRBACProxyAvailable`: it does not.
    pub const RESOURCES_UNAVAILABLE: &str = "ResourcesUnavailable";
    /// Event: an object was created.
    pub const SERVICE_CREATED: &str = "ServiceCreated";
    /// Event: an object was changed.
    pub const SERVICE_UPDATED: &str = "ServiceUpdated";
    /// Event: a registry is deleted.
    pub const DELETING: &str = "Deleting";
}

/// Messages of conditions and events, which clients show.
pub mod messages {
    /// `Progressing`, while objects are made.
    pub const CREATING: &str = "Creating deployment";
    /// `Progressing`, when all objects exist.
    pub const CREATED: &str = "Deployment was successfully created";
    /// `Available`.
    pub const AVAILABLE: &str = "Deployment is available";
    /// `Available`, within five seconds.
    pub const COOLDOWN: &str = "Deployment only recently available";
    /// `Available`, without a ready pod.
    pub const NO_READY_ADDRESSES: &str = "Service endpoints not ready - no ready addresses available";
    /// `KubeRBACProxyAvailable`.
    pub const PROXY_CREATED: &str = "kube-rbac-proxy was successfully created";

    /// `Available`, when the Deployment is not.
    pub fn unavailable(why: &str) -> String {
        format!("Deployment is unavailable: {why}")
    }

    /// `Available`, when the Service has no Endpoints.
    pub fn endpoints_not_found(name: &str) -> String {
        format!("Service endpoints not found: Endpoints {name:?} not found")
    }

    /// Event: an object of a registry was created.
    pub fn created(name: &str, namespace: &str) -> String {
        format!("Created service for custom resource {name} in namespace {namespace}")
    }

    /// Event: an object of a registry was changed.
    pub fn updated(name: &str, namespace: &str) -> String {
        format!("Updated service for custom resource {name} in namespace {namespace}")
    }

    /// Event: a registry is deleted.
    pub fn deleting(name: &str, namespace: &str) -> String {
        format!("Custom Resource {name} is being deleted from the namespace {namespace}")
    }
}
