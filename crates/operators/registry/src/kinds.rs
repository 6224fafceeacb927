//! Kinds of others that a cluster may serve.

use quintet_controller::ApiKind;

/// OpenShift's Routes; their presence means OpenShift.
pub(crate) fn route() -> ApiKind {
    foreign("route.openshift.io", "v1", "Route", "routes", true)
}

/// OpenShift's groups of users. Clusters with an identity provider of their own lack them.
pub(crate) fn group() -> ApiKind {
    foreign("user.openshift.io", "v1", "Group", "groups", false)
}

/// OpenShift's configuration of its router.
pub(crate) fn ingress_config() -> ApiKind {
    foreign("config.openshift.io", "v1", "Ingress", "ingresses", false)
}

/// HTTPRoutes of the Gateway API.
pub(crate) fn http_route() -> ApiKind {
    foreign("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes", true)
}

/// ReferenceGrants of the Gateway API.
pub(crate) fn reference_grant() -> ApiKind {
    foreign("gateway.networking.k8s.io", "v1beta1", "ReferenceGrant", "referencegrants", true)
}

/// The platform's groups of users.
pub(crate) fn auth() -> ApiKind {
    foreign("services.platform.opendatahub.io", "v1alpha1", "Auth", "auths", false)
}

/// Migrations of stored versions, where the cluster does them.
pub(crate) fn storage_version_migration() -> ApiKind {
    foreign("migration.k8s.io", "v1alpha1", "StorageVersionMigration", "storageversionmigrations", false)
}

fn foreign(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> ApiKind {
    ApiKind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        plural: plural.into(),
        namespaced,
    }
}
