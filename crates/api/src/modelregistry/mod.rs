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
