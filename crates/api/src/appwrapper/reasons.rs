//! Reasons in conditions and events of an AppWrapper.

/// Why an event is recorded: the AppWrapper is suspended while it runs.
pub const SUSPENDING_EVENT: &str = "Suspending";
/// Why an event is recorded: the AppWrapper is unhealthy.
pub const UNHEALTHY_EVENT: &str = "Unhealthy";

/// A component could not be created.
pub const CREATE_FAILED: &str = "CreateFailed";
/// A component was deleted by another client.
pub const MISSING_COMPONENT: &str = "MissingComponent";
/// The controller of a component reports that it has failed.
pub const FAILED_COMPONENT: &str = "FailedComponent";
/// Pods have failed.
pub const FOUND_FAILED_PODS: &str = "FoundFailedPods";
/// No pod has failed, or none any more.
pub const FOUND_NO_FAILED_PODS: &str = "FoundNoFailedPods";
/// Pods use resources that Autopilot wants to be left.
pub const AUTOPILOT_NO_EXECUTE: &str = "AutopilotNoExecute";
/// As many pods as expected run or have succeeded.
pub const SUFFICIENT_PODS_READY: &str = "SufficientPodsReady";
/// Fewer pods than expected run or have succeeded.
pub const INSUFFICIENT_PODS_READY: &str = "InsufficientPodsReady";

/// Deletion of the components has begun.
pub const DELETION_INITIATED: &str = "DeletionInitiated";
/// The components and their pods are gone.
pub const DELETION_COMPLETE: &str = "DeletionComplete";
/// The components of a failed AppWrapper are kept for a while.
pub const DELETION_PAUSED: &str = "DeletionPaused";

/// A component is about to be created.
pub const COMPONENT_CREATION_INITIATED: &str = "ComponentCreationInitiated";
/// A component was created.
pub const COMPONENT_CREATED: &str = "ComponentCreatedSuccessfully";
/// A component could not be created.
pub const COMPONENT_CREATION_ERRORED: &str = "ComponentCreationErrored";
/// A component is gone. Upstream's spelling, which clients may compare with.
pub const COMPONENT_DELETED: &str = "CompononetDeleted";
