//! Feature gates by upstream's names. Unknown gates are rejected: a misspelled one would silently do nothing.

use std::collections::BTreeMap;

use super::ComponentConfig;

/// Switches all gates that are in alpha and are not named by themselves.
pub const ALL_ALPHA: &str = "AllAlpha";
/// The same of those in beta.
pub const ALL_BETA: &str = "AllBeta";

/// The gates of KubeRay.
pub const RAY: &[&str] = &[
    "GCSFaultToleranceEmbeddedStorage",
    "KubernetesWAS",
    "RayClusterHistoryServer",
    "RayClusterMTLS",
    "RayClusterNetworkPolicy",
    "RayClusterStatusConditions",
    "RayCronJob",
    "RayJobDeletionPolicy",
    "RayMultiHostIndexing",
    "RayServiceIncrementalUpgrade",
    "SidecarSubmitterRestart",
];

/// The gates of Kueue.
pub const QUEUE: &[&str] = &[
    "AdmissionFairSharing",
    "AdmissionGatedBy",
    "AssignQueueLabelsForPods",
    "CleanupProvisioningRequestsOnEviction",
    "ConcurrentAdmission",
    "CustomMetricLabels",
    "DeferRayServiceFinalizationForRedisCleanup",
    "DisableWaitForPodsReady",
    "ElasticJobsViaWorkloadSlices",
    "ElasticJobsViaWorkloadSlicesWithTAS",
    "FailureRecoveryPolicy",
    "FairSharingPreemptWithinNominal",
    "FairSharingPrioritizeNonBorrowing",
    "FastQuotaReleaseInPodIntegration",
    "FinishOrphanedWorkloads",
    "FlavorFungibility",
    "FlavorFungibilityPreserveScanProgress",
    "KueueDRAIntegration",
    "KueueDRAIntegrationConsumableCapacity",
    "KueueDRAIntegrationExtendedResource",
    "KueueDRAIntegrationPartitionableDevices",
    "KueueDRARejectWorkloadsWhenDRADisabled",
    "LWSImmutableGroupSize",
    "LocalQueueMetrics",
    "ManagedJobsNamespaceSelectorAlwaysRespected",
    "MetricForWorkloadCreationLatency",
    "MetricsForCohorts",
    "MultiKueue",
    "MultiKueueAdaptersForCustomJobs",
    "MultiKueueClusterProfile",
    "MultiKueueIncrementalDispatcherConfig",
    "MultiKueueIncrementalDispatcherRespectConfigOrder",
    "MultiKueueKubeConfigPathValidation",
    "MultiKueueManagerQuotaAutomation",
    "MultiKueueOrchestratedPreemption",
    "MultiKueueRemoteSpecSync",
    "PartialAdmission",
    "PodIntegrationValidateGroupOwner",
    "PrioritizePreemptorWorkloads",
    "PriorityBoost",
    "PrioritySortingWithinCohort",
    "QuotaCheckStrategy",
    "ReclaimablePods",
    "RecomputeAssignmentUponPreemptionTargetsOverlap",
    "RejectUpdatesToCQWithInvalidOnFlavors",
    "RemoveFinalizersWithStrictPatch",
    "SchedulerLibraryIntegration",
    "SchedulingEquivalenceHashing",
    "ShortWorkloadNames",
    "SkipAncestorCheckForDeletedWorkloads",
    "SkipReassignmentForPodOwnedWorkloads",
    "SparkApplicationIntegration",
    "TASAssignmentsEncodingByHostnamePrefix",
    "TASBalancedPlacement",
    "TASCacheNodeMatchResults",
    "TASCacheTopologyTree",
    "TASCachingRemainingResources",
    "TASFailedNodeReplacement",
    "TASFailedNodeReplacementFailFast",
    "TASHandleOverlappingFlavors",
    "TASMultiLayerTopology",
    "TASProfileMixed",
    "TASRecomputeAssignmentWithinSchedulingCycle",
    "TASReplaceNodeDueToNotReadyOverFixedTime",
    "TASReplaceNodeOnNodeTaints",
    "TASReplaceNodeOnPodTermination",
    "TASRespectNodeAffinityPreferred",
    "TASValidateWorkloadSliceSize",
    "TLSOptions",
    "TopologyAwareScheduling",
    "UnadmittedWorkloadsExplicitStatus",
    "UnadmittedWorkloadsObservability",
    "ValidateRayAndSparkJobUpdates",
    "VectorizedResourceRequests",
    "VisibilityOnDemand",
    "WorkloadIdentifierAnnotations",
    "WorkloadPriorityClassDefaulting",
    "WorkloadRequestUseMergePatch",
    "WorkloadValidateResourcesAreNonNegative",
    "WorkloadValidationForPodSetMetadata",
];

/// Rejects gates that no component has, with the names that are most like theirs.
pub(super) fn check(switches: &BTreeMap<String, bool>, components: &[ComponentConfig]) -> Result<(), String> {
    let stages = [ALL_ALPHA, ALL_BETA];
    let known: Vec<&str> =
        components.iter().flat_map(|component| component.gates).chain(&stages).copied().collect();
    let Some(unknown) = switches.keys().find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    let alike = match &nearest(unknown, &known)[..] {
        [] => String::new(),
        names => format!("did you mean {}? ", names.join(", ")),
    };
    Err(format!("unknown feature gate {unknown}; {alike}'quintet components -o yaml' lists all of them"))
}

/// The names most like an unknown one, the best first; none if none is alike.
fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Vec<&'a str> {
    const SUGGESTIONS: usize = 3;
    /// As clap suggests flags.
    const ALIKE: f64 = 0.7;
    let unknown = unknown.to_lowercase();
    let likeness = |name: &&str| strsim::jaro(&unknown, &name.to_lowercase());
    let mut names: Vec<(f64, &str)> = known.iter().map(|name| (likeness(name), *name)).collect();
    names.retain(|(likeness, _)| *likeness > ALIKE);
    names.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    names.into_iter().take(SUGGESTIONS).map(|(_, name)| name).collect()
}
