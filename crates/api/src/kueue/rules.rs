//! CEL rules of the queue kinds. The API server enforces them; messages are what users see.

use crate::schema::Rules;

/// Whether a condition of an object is `True`, as a CEL expression.
macro_rules! is_true {
    ($object:literal, $condition:literal) => {
        concat!(
            "(has(",
            $object,
            ".status) && has(",
            $object,
            ".status.conditions) && ",
            $object,
            ".status.conditions.exists(c, c.type == '",
            $condition,
            "' && c.status == 'True'))"
        )
    };
}

/// Whether quota was reserved before a change, as a CEL expression.
macro_rules! was_reserved {
    () => {
        is_true!("oldSelf", "QuotaReserved")
    };
}

/// Whether a field is set before and after a change, as a CEL expression.
macro_rules! stays_set {
    ($field:literal) => {
        concat!("has(oldSelf.", $field, ") && has(self.", $field, ")")
    };
}

const POD_SET_ASSIGNMENTS: (&str, &str) = (
    concat!(
        "!(",
        is_true!("self", "QuotaReserved"),
        " && has(self.status.admission))",
        " || size(self.status.admission.podSetAssignments) == size(self.spec.podSets)"
    ),
    "podSetAssignments must have the same number of podSets as the spec",
);

const QUEUE_NAME: (&str, &str) = (
    concat!(
        "!(",
        was_reserved!(),
        " && ",
        is_true!("self", "QuotaReserved"),
        ")",
        " || (has(self.spec.queueName) == has(oldSelf.spec.queueName)",
        " && (!has(self.spec.queueName) || self.spec.queueName == oldSelf.spec.queueName))"
    ),
    "queueName is immutable while workload quota reserved",
);

const EXECUTION_TIME: (&str, &str) = (
    concat!(
        "!(",
        is_true!("oldSelf", "Admitted"),
        " && ",
        is_true!("self", "Admitted"),
        ")",
        " || (has(self.spec.maximumExecutionTimeSeconds) ? self.spec.maximumExecutionTimeSeconds : 0)",
        " == (has(oldSelf.spec.maximumExecutionTimeSeconds) ? oldSelf.spec.maximumExecutionTimeSeconds : 0)"
    ),
    "maximumExecutionTimeSeconds is immutable while workload quota reserved",
);

pub(super) const WORKLOAD: Rules = &[
    POD_SET_ASSIGNMENTS,
    (
        concat!(
            "!",
            was_reserved!(),
            " || has(self.spec.priorityClassRef) == has(oldSelf.spec.priorityClassRef)"
        ),
        "priorityClassRef is immutable while workload quota reserved",
    ),
    (
        concat!(
            "!(",
            was_reserved!(),
            " && ",
            stays_set!("spec.priorityClassRef"),
            ")",
            " || self.spec.priorityClassRef.group == oldSelf.spec.priorityClassRef.group"
        ),
        "priorityClassRef.group is immutable while workload quota reserved",
    ),
    (
        concat!(
            "!(",
            was_reserved!(),
            " && ",
            stays_set!("spec.priorityClassRef"),
            ")",
            " || self.spec.priorityClassRef.kind == oldSelf.spec.priorityClassRef.kind"
        ),
        "priorityClassRef.kind is immutable while workload quota reserved",
    ),
    (
        concat!(
            "!(",
            was_reserved!(),
            " && ",
            stays_set!("spec.priorityClassRef"),
            " && self.spec.priorityClassRef.group == 'scheduling.k8s.io'",
            " && self.spec.priorityClassRef.kind == 'PriorityClass')",
            " || self.spec.priorityClassRef.name == oldSelf.spec.priorityClassRef.name"
        ),
        "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
    ),
    QUEUE_NAME,
    EXECUTION_TIME,
];

pub(super) const WORKLOAD_V1BETA1: Rules = &[
    POD_SET_ASSIGNMENTS,
    (
        concat!(
            "!(",
            was_reserved!(),
            " && ",
            stays_set!("spec.priorityClassSource"),
            ")",
            " || self.spec.priorityClassSource == oldSelf.spec.priorityClassSource"
        ),
        "priorityClassSource is immutable while workload quota reserved",
    ),
    (
        concat!(
            "!(",
            was_reserved!(),
            " && ",
            stays_set!("spec.priorityClassSource"),
            " && ",
            stays_set!("spec.priorityClassName"),
            " && self.spec.priorityClassSource != 'kueue.x-k8s.io/workloadpriorityclass')",
            " || self.spec.priorityClassName == oldSelf.spec.priorityClassName"
        ),
        "priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal to kueue.x-k8s.io/workloadpriorityclass",
    ),
    QUEUE_NAME,
    EXECUTION_TIME,
];

pub(super) const WORKLOAD_SPEC: Rules = &[(
    "has(self.priority) || !has(self.priorityClassRef)",
    "priority should not be nil when priorityClassRef is set",
)];

pub(super) const WORKLOAD_SPEC_V1BETA1: Rules = &[(
    "has(self.priority) || !has(self.priorityClassName)",
    "priority should not be nil when priorityClassName is set",
)];

pub(super) const WORKLOAD_STATUS: Rules = &[
    (
        "!(has(self.clusterName) && has(oldSelf.clusterName)) || self.clusterName == oldSelf.clusterName",
        "clusterName is immutable once set",
    ),
    (
        "!(has(self.clusterName) && has(self.nominatedClusterNames)) || size(self.nominatedClusterNames) == 0",
        "clusterName and nominatedClusterNames are mutually exclusive",
    ),
];

pub(super) const POD_SET: Rules = &[(
    "!has(self.minCount) || self.minCount <= self.count",
    "minCount should be positive and less or equal to count",
)];

pub(super) const PRIORITY_CLASS_REF: Rules = &[
    (
        "self.group != 'scheduling.k8s.io' || self.kind == 'PriorityClass'",
        "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
    ),
    (
        "self.group != 'kueue.x-k8s.io' || self.kind == 'WorkloadPriorityClass'",
        "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
    ),
];

pub(super) const TOPOLOGY_ASSIGNMENT: Rules = &[(
    "self.slices.all(slice, size(slice.valuesPerLevel) == size(self.levels))",
    "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
)];

pub(super) const TOPOLOGY_SLICE: Rules = &[
    (
        "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
        "podCounts.individual must have length equal to domainCount",
    ),
    (
        "self.valuesPerLevel.all(level, !has(level.individual) || size(level.individual.roots) == self.domainCount)",
        "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this TopologyAssignmentSlice",
    ),
];

pub(super) const UNIVERSAL_OR_INDIVIDUAL: Rules = &[(
    "has(self.universal) != has(self.individual)",
    "exactly one of the fields in [universal individual] must be set",
)];

pub(super) const TOLERATIONS: Rules = &[
    (
        "self.all(t, has(t.key) || t.operator == 'Exists')",
        "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
    ),
    (
        "self.all(t, !has(t.tolerationSeconds) || t.effect == 'NoExecute')",
        "effect must be 'NoExecute' when 'tolerationSeconds' is set",
    ),
    (
        "self.all(t, !has(t.operator) || t.operator in ['Equal', 'Exists'])",
        "supported toleration values: 'Equal'(default), 'Exists'",
    ),
    (
        "self.all(t, !(has(t.operator) && t.operator == 'Exists') || !has(t.value))",
        "a value must be empty when 'operator' is 'Exists'",
    ),
    (
        "self.all(t, !has(t.effect) || t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
        "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
    ),
];

pub(super) const TAINTS: Rules = &[(
    "self.all(taint, taint.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
    "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
)];

pub(super) const CLUSTER_QUEUE_SPEC: Rules = &[(
    "has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(group, group.flavors.all(flavor, flavor.resources.all(resource, !has(resource.borrowingLimit))))",
    "borrowingLimit must be nil when cohort is empty",
)];

pub(super) const CLUSTER_QUEUE_SPEC_V1BETA1: Rules = &[(
    "has(self.cohort) || !has(self.resourceGroups) || self.resourceGroups.all(group, group.flavors.all(flavor, flavor.resources.all(resource, !has(resource.borrowingLimit))))",
    "borrowingLimit must be nil when cohort is empty",
)];

pub(super) const FLAVOR_FUNGIBILITY: Rules = &[(
    "!has(self.preference) || (self.whenCanPreempt == 'TryNextFlavor' && self.whenCanBorrow == 'TryNextFlavor')",
    "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
)];

pub(super) const PREEMPTION: Rules = &[(
    "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) || self.borrowWithinCohort.policy == 'Never'",
    "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
)];

pub(super) const RESOURCE_GROUP: Rules = &[(
    "self.flavors.all(flavor, size(flavor.resources) == size(self.coveredResources))",
    "flavors must have the same number of resources as the coveredResources",
)];

pub(super) const CLUSTER_SOURCE: Rules = &[(
    "has(self.kubeConfig) != has(self.clusterProfileRef)",
    "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
)];

const UNIQUE: (&str, &str) = ("self.all(one, self.exists_one(other, other == one))", "must be unique");

pub(super) const CLUSTERS: Rules = &[UNIQUE];

pub(super) const RESOURCE_FLAVOR_SPEC: Rules = &[
    (
        "!has(self.topologyName) || size(self.nodeLabels) > 0",
        "at least one nodeLabel is required when topology is set",
    ),
    (
        "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
        "topologyName is immutable when topologyName is set",
    ),
];

const HOST_IS_LOWEST: (&str, &str) = (
    "!self.exists(level, level.nodeLabel == 'kubernetes.io/hostname') || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
    "the kubernetes.io/hostname label can only be used at the lowest level of topology",
);

pub(super) const TOPOLOGY_LEVELS: Rules = &[
    (
        "self == oldSelf || [self[size(self) - 1], oldSelf[size(oldSelf) - 1]].all(level, level.nodeLabel == 'kubernetes.io/hostname')",
        "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change",
    ),
    UNIQUE,
    HOST_IS_LOWEST,
];

pub(super) const TOPOLOGY_LEVELS_V1BETA1: Rules =
    &[("self == oldSelf", "field is immutable"), UNIQUE, HOST_IS_LOWEST];
