//! Types of conditions of an AppWrapper.

/// The components may use quota: they exist, or are about to.
pub const QUOTA_RESERVED: &str = "QuotaReserved";
/// The components exist, or are being created or deleted.
pub const RESOURCES_DEPLOYED: &str = "ResourcesDeployed";
/// As many pods as expected run or have succeeded.
pub const PODS_READY: &str = "PodsReady";
/// Something is wrong with the pods or the components.
pub const UNHEALTHY: &str = "Unhealthy";
/// The components are being deleted.
pub const DELETING_RESOURCES: &str = "DeletingResources";
