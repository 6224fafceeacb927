//! Kinds of others that a cluster may serve.

use quintet_controller::ApiKind;

/// OpenShift's Routes; their presence means OpenShift.
pub(crate) fn route() -> ApiKind {
    ApiKind::namespaced("route.openshift.io", "v1", "Route", "routes")
}

/// OpenShift's groups of users. Clusters with an identity provider of their own lack them.
pub(crate) fn group() -> ApiKind {
    ApiKind::cluster_scoped("user.openshift.io", "v1", "Group", "groups")
}

/// OpenShift's configuration of its router.
pub(crate) fn ingress_config() -> ApiKind {
    ApiKind::cluster_scoped("config.openshift.io", "v1", "Ingress", "ingresses")
}

/// HTTPRoutes of the Gateway API.
pub(crate) fn http_route() -> ApiKind {
    ApiKind::namespaced("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
}

/// ReferenceGrants of the Gateway API.
pub(crate) fn reference_grant() -> ApiKind {
    ApiKind::namespaced("gateway.networking.k8s.io", "v1beta1", "ReferenceGrant", "referencegrants")
}

/// The platform's groups of users.
pub(crate) fn auth() -> ApiKind {
    ApiKind::cluster_scoped("services.platform.opendatahub.io", "v1alpha1", "Auth", "auths")
}

/// Migrations of stored versions, where the cluster does them.
pub(crate) fn storage_version_migration() -> ApiKind {
    ApiKind::cluster_scoped(
        "migration.k8s.io",
        "v1alpha1",
        "StorageVersionMigration",
        "storageversionmigrations",
    )
}
