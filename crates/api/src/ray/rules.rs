//! CEL rules of the Ray kinds. The API server enforces them; messages are what users see.

use crate::schema::Rules;

pub(super) const MANAGED_BY: Rules = &[
    ("self == oldSelf", "the managedBy field is immutable"),
    (
        "self == 'ray.io/kuberay-operator' || self == 'kueue.x-k8s.io/multikueue'",
        "the managedBy field value must be either 'ray.io/kuberay-operator' or 'kueue.x-k8s.io/multikueue'",
    ),
];

pub(super) const GCS_BACKEND: Rules = &[("self == oldSelf", "gcsFaultToleranceOptions.backend is immutable")];

pub(super) const DELETION_STRATEGY: Rules = &[
    (
        "!has(self.deletionRules) || !(has(self.onSuccess) || has(self.onFailure))",
        "legacy policies (onSuccess/onFailure) and deletionRules cannot be used together within the same deletionStrategy",
    ),
    (
        "has(self.deletionRules) || (has(self.onSuccess) && has(self.onFailure))",
        "deletionStrategy requires either BOTH onSuccess and onFailure, OR the deletionRules field (cannot be empty)",
    ),
];

pub(super) const DELETION_CONDITION: Rules = &[
    (
        "!has(self.jobStatus) || !has(self.jobDeploymentStatus)",
        "JobStatus and JobDeploymentStatus cannot be used together within the same deletion condition.",
    ),
    (
        "has(self.jobDeploymentStatus) || has(self.jobStatus)",
        "the deletion condition requires either the JobStatus or the JobDeploymentStatus field.",
    ),
];
