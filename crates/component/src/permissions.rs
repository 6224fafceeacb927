//! RBAC rules of an operator.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// The verbs of a cache.
pub const READ: &[&str] = &["get", "list", "watch"];

/// The least that an operator needs to be allowed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Permissions {
    /// In the namespaces it watches: a ClusterRole if those are all, otherwise a Role in each of them.
    pub namespaced: Vec<PolicyRule>,
    /// For cluster-scoped objects, whatever namespaces it watches.
    pub cluster: Vec<PolicyRule>,
    /// In the namespace of the operator itself.
    pub own: Vec<PolicyRule>,
}

/// A rule of a Role.
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(owned(&[group])),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}
