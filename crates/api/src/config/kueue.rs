//! Kueue's `config.kueue.x-k8s.io`, `v1beta1` and `v1beta2`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{ComponentConfig, ConfigurationError, gates, kueue_document};
use crate::Quantity;
use crate::duration::GoDuration;

/// Decides who gets quota.
pub const SCHEDULER: &str = "scheduler";
/// Writes the status of ClusterQueues, LocalQueues and Cohorts.
pub const QUEUE_STATUS: &str = "queue-status";
/// Reconciles Workloads.
pub const WORKLOAD: &str = "workload";
/// Keeps objects that others use from being deleted.
pub const PROTECTION: &str = "protection";
/// Lets Workloads follow their WorkloadPriorityClass.
pub const PRIORITY_CLASS: &str = "priority-class";
/// Lets pods be scheduled that topology-aware scheduling has placed.
pub const TOPOLOGY: &str = "topology";
/// Finds Workloads that topology-aware scheduling has placed on nodes that have failed.
pub const NODE_FAILURE: &str = "node-failure";
/// Deletes pods that cannot end, because their node is unreachable.
pub const FAILURE_RECOVERY: &str = "failure-recovery";
/// Sends Workloads to other clusters.
pub const MULTIKUEUE: &str = "multikueue";
/// Asks the cluster autoscaler for nodes: the admission check of ProvisioningRequests.
pub const PROVISIONING: &str = "provisioning-request";
/// Reconciles jobs of all enabled frameworks.
pub const JOBS: &str = "jobs";

const CONTROLLERS: &[&str] = &[
    FAILURE_RECOVERY,
    JOBS,
    MULTIKUEUE,
    NODE_FAILURE,
    PRIORITY_CLASS,
    PROTECTION,
    PROVISIONING,
    QUEUE_STATUS,
    SCHEDULER,
    TOPOLOGY,
    WORKLOAD,
];

/// What the queue operator adds to the configuration file.
pub const CONFIG: ComponentConfig = ComponentConfig {
    component: "queue",
    check: Some(|configuration| {
        let queue: QueueConfiguration = configuration.section("queue")?;
        queue.check(&configuration.feature_gates).map_err(ConfigurationError::Contradiction)
    }),
    gates: gates::QUEUE,
    controllers: CONTROLLERS,
    formats: &[kueue_document::FORMAT],
};

/// How queues and quotas behave. The defaults are those of Kueue without a configuration file.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct QueueConfiguration {
    /// Whether jobs that name no queue wait for one too.
    pub manage_jobs_without_queue_name: bool,
    /// Namespaces whose jobs are managed; absent, all but `kube-system` and Quintet's own.
    pub managed_jobs_namespace_selector: Option<LabelSelector>,
    /// Evicting workloads whose pods do not become ready; `None` is off, the default of v1beta1 documents.
    #[serialize_always]
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// Kinds of jobs that are managed.
    pub integrations: Integrations,
    /// Running workloads on other clusters.
    pub multi_kueue: MultiKueue,
    /// Sharing by weight among queues of a cohort; absent, off.
    pub fair_sharing: Option<FairSharing>,
    /// Ordering by past usage within a queue; absent, off.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Which resources of a pod count, and as what.
    pub resources: Resources,
    /// When finished workloads are deleted; absent, never.
    pub object_retention_policies: Option<ObjectRetentionPolicies>,
    /// Metrics beyond the usual.
    pub metrics: Metrics,
    /// The API that lists pending workloads.
    pub visibility_server: VisibilityServer,
    /// Pods that do not end on unreachable nodes.
    pub failure_recovery: FailureRecovery,
}

impl Default for QueueConfiguration {
    fn default() -> Self {
        Self {
            manage_jobs_without_queue_name: false,
            managed_jobs_namespace_selector: None,
            wait_for_pods_ready: Some(WaitForPodsReady::default()),
            integrations: Integrations::default(),
            multi_kueue: MultiKueue::default(),
            fair_sharing: None,
            admission_fair_sharing: None,
            resources: Resources::default(),
            object_retention_policies: None,
            metrics: Metrics::default(),
            visibility_server: VisibilityServer::default(),
            failure_recovery: FailureRecovery::default(),
        }
    }
}

impl QueueConfiguration {
    fn check(&self, gates: &BTreeMap<String, bool>) -> Result<(), String> {
        use PreemptionStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
        if let Some(fair_sharing) = &self.fair_sharing
            && !matches!(
                fair_sharing.preemption_strategies[..],
                [LessThanOrEqualToFinalShare | LessThanInitialShare]
                    | [LessThanOrEqualToFinalShare, LessThanInitialShare]
            )
        {
            return Err("fairSharing.preemptionStrategies: name LessThanOrEqualToFinalShare, LessThanInitialShare, or both in this order".into());
        }
        if self.resources.quota_check_strategy == QuotaCheckStrategy::IgnoreUndeclared
            && !self.resources.exclude_resource_prefixes.is_empty()
            && gates.get("QuotaCheckStrategy") != Some(&false)
        {
            return Err("resources.quotaCheckStrategy: leave out excludeResourcePrefixes, because IgnoreUndeclared already ignores resources without quota".into());
        }
        Ok(())
    }

    /// Namespaces whose jobs are managed; `namespace` is Quintet's own.
    pub fn managed_namespaces(&self, namespace: &str) -> LabelSelector {
        self.managed_jobs_namespace_selector.clone().unwrap_or_else(|| LabelSelector {
            match_labels: None,
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "kubernetes.io/metadata.name".into(),
                operator: "NotIn".into(),
                values: Some(vec!["kube-system".into(), namespace.into()]),
            }]),
        })
    }
}

/// Evicting workloads whose pods do not become ready.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct WaitForPodsReady {
    /// Time for all pods to become ready after admission.
    pub timeout: GoDuration,
    /// Time for pods that were ready to become so again; absent, as `timeout`, and `0s` is without limit.
    pub recovery_timeout: Option<GoDuration>,
    /// Whether nothing else is admitted meanwhile.
    pub block_admission: bool,
    /// Where an evicted workload goes in the queue.
    pub requeuing_strategy: RequeuingStrategy,
}

impl Default for WaitForPodsReady {
    fn default() -> Self {
        Self {
            timeout: GoDuration::from_secs(30 * 60),
            recovery_timeout: None,
            block_admission: false,
            requeuing_strategy: RequeuingStrategy::default(),
        }
    }
}

/// Where an evicted workload goes in the queue.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RequeuingStrategy {
    /// The time by which it queues.
    pub timestamp: RequeuingTimestamp,
    /// Evictions before the workload is deactivated; absent, never.
    pub backoff_limit_count: Option<i32>,
    /// The first pause, in seconds; each next one is twice as long.
    pub backoff_base_seconds: i32,
    /// The longest pause, in seconds.
    pub backoff_max_seconds: i32,
}

impl Default for RequeuingStrategy {
    fn default() -> Self {
        Self {
            timestamp: RequeuingTimestamp::Eviction,
            backoff_limit_count: None,
            backoff_base_seconds: 60,
            backoff_max_seconds: 3600,
        }
    }
}

/// The time by which an evicted workload queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequeuingTimestamp {
    /// When it was evicted: behind those that waited.
    #[default]
    Eviction,
    /// When it was created: where it was.
    Creation,
}

/// Pods that do not end on unreachable nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FailureRecovery {
    /// How long after the time by which they should have ended they are deleted.
    pub grace_period: GoDuration,
}

impl Default for FailureRecovery {
    fn default() -> Self {
        Self { grace_period: GoDuration::from_secs(60) }
    }
}

/// Kinds of jobs that are managed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Integrations {
    /// Built-in ones, by upstream's names, such as `batch/job`.
    pub frameworks: Vec<String>,
    /// Kinds that another controller manages, as `Kind.version.group`.
    pub external_frameworks: Vec<String>,
    /// Labels of a job that its workload gets too.
    pub label_keys_to_copy: Vec<String>,
}

impl Default for Integrations {
    fn default() -> Self {
        Self {
            frameworks: vec!["batch/job".into()],
            external_frameworks: Vec::new(),
            label_keys_to_copy: Vec::new(),
        }
    }
}

/// Running workloads on other clusters.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MultiKueue {
    /// How often left-overs on other clusters are removed; `0s` is never.
    pub gc_interval: GoDuration,
    /// The mark of this manager on what it creates elsewhere.
    pub origin: String,
    /// How long a lost cluster keeps its workloads.
    pub worker_lost_timeout: GoDuration,
    /// Who chooses the clusters to try.
    pub dispatcher_name: String,
    /// Settings of the incremental dispatcher, if it is the one.
    pub incremental_dispatcher_config: Option<IncrementalDispatcher>,
    /// Custom kinds that may run elsewhere.
    pub external_frameworks: Vec<ExternalFramework>,
    /// How to get credentials for ClusterProfiles.
    pub cluster_profile: Option<ClusterProfileAccess>,
}

impl Default for MultiKueue {
    fn default() -> Self {
        Self {
            gc_interval: GoDuration::from_secs(60),
            origin: "multikueue".into(),
            worker_lost_timeout: GoDuration::from_secs(15 * 60),
            dispatcher_name: "kueue.x-k8s.io/multikueue-dispatcher-all-at-once".into(),
            incremental_dispatcher_config: None,
            external_frameworks: Vec::new(),
            cluster_profile: None,
        }
    }
}

/// Settings of the incremental dispatcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IncrementalDispatcher {
    /// Clusters added with each round.
    pub step_size: i32,
}

impl Default for IncrementalDispatcher {
    fn default() -> Self {
        Self { step_size: 3 }
    }
}

/// A custom kind, as `Kind.version.group`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalFramework {
    /// Its name.
    pub name: String,
}

/// Programs that give credentials for the clusters of ClusterProfiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClusterProfileAccess {
    /// Preferred first.
    pub access_providers: Vec<AccessProvider>,
    /// The former name of `accessProviders`; not with it.
    pub credentials_providers: Vec<AccessProvider>,
}

impl ClusterProfileAccess {
    /// The providers, under whichever name they are given.
    pub fn providers(&self) -> &[AccessProvider] {
        if self.access_providers.is_empty() { &self.credentials_providers } else { &self.access_providers }
    }
}

/// A program that gives credentials for clusters whose ClusterProfiles name this provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AccessProvider {
    /// As in `status.accessProviders` of ClusterProfiles.
    pub name: String,
    /// The program.
    pub exec_config: ExecConfig,
}

/// A credential plugin, as in the kubeconfigs of client-go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ExecConfig {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables beyond those of this process.
    pub env: Vec<ExecVariable>,
    /// The version of the ExecCredentials that it reads and prints.
    pub api_version: String,
    /// Accepted without effect, as in Kueue.
    pub install_hint: String,
    /// Whether it is told of the cluster.
    pub provide_cluster_info: bool,
    /// Required, but without effect, as in Kueue: programs never get a standard input.
    pub interactive_mode: String,
}

/// An environment variable.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ExecVariable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl std::fmt::Debug for ExecVariable {
    /// Without the value, which may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecVariable").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Sharing by weight among queues of a cohort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FairSharing {
    /// When a queue may preempt another, in the order in which the rules are tried.
    pub preemption_strategies: Vec<PreemptionStrategy>,
}

/// When a queue may preempt another of its cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreemptionStrategy {
    /// If the preemptor's share, with its workload, is at most the victim's without.
    LessThanOrEqualToFinalShare,
    /// If the preemptor's share, with its workload, is below the victim's as it is.
    LessThanInitialShare,
}

/// Ordering by past usage within a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AdmissionFairSharing {
    /// The time in which past usage counts for half.
    pub usage_half_life_time: GoDuration,
    /// How often usage is taken.
    pub usage_sampling_interval: GoDuration,
    /// What a unit of a resource counts for; 1 unless given.
    pub resource_weights: BTreeMap<String, f64>,
}

impl Default for AdmissionFairSharing {
    fn default() -> Self {
        Self {
            usage_half_life_time: GoDuration::default(),
            usage_sampling_interval: GoDuration::from_secs(5 * 60),
            resource_weights: BTreeMap::new(),
        }
    }
}

/// Which resources of a pod count, and as what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Resources {
    /// What happens to workloads that ask for a resource no queue has quota for.
    pub quota_check_strategy: QuotaCheckStrategy,
    /// Resources whose names begin so are not counted.
    pub exclude_resource_prefixes: Vec<String>,
    /// Resources that count as others.
    pub transformations: Vec<Transformation>,
    /// Devices that count as resources.
    pub device_class_mappings: Vec<serde_json::Value>,
}

/// What happens to workloads that ask for a resource no queue has quota for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaCheckStrategy {
    /// They wait.
    #[default]
    BlockUndeclared,
    /// The resource is not counted.
    IgnoreUndeclared,
}

/// A resource that counts as others.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Transformation {
    /// The resource that pods ask for.
    pub input: String,
    /// Whether it still counts itself.
    #[serde(default)]
    pub strategy: TransformationStrategy,
    /// A resource whose amount multiplies the outputs.
    pub multiply_by: Option<String>,
    /// What a unit of the input counts for.
    #[serde(default)]
    pub outputs: BTreeMap<String, Quantity>,
}

/// Whether a transformed resource still counts itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransformationStrategy {
    /// It does.
    #[default]
    Retain,
    /// It does not.
    Replace,
}

/// When finished workloads are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ObjectRetentionPolicies {
    /// Of workloads.
    pub workloads: WorkloadRetention,
}

/// When workloads are deleted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct WorkloadRetention {
    /// This long after they finished; absent, never.
    pub after_finished: Option<GoDuration>,
    /// This long after the queue gave up on them, along with their jobs; absent, never.
    pub after_deactivated_by_kueue: Option<GoDuration>,
}

/// Metrics beyond the usual.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Metrics {
    /// Where metrics are served; part of the process, read here because upstream has it here.
    pub bind_address: Option<String>,
    /// Quotas and usage of ClusterQueues, one series per flavor and resource.
    pub enable_cluster_queue_resources: bool,
    /// Metrics per LocalQueue.
    pub local_queue_metrics: Option<LocalQueueMetrics>,
    /// Labels taken from objects.
    pub custom_labels: Vec<serde_json::Value>,
}

/// Metrics per LocalQueue.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LocalQueueMetrics {
    /// Whether there are any.
    pub enable: bool,
    /// Of which queues; absent, of all.
    pub local_queue_selector: Option<LabelSelector>,
}

/// The API that lists pending workloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct VisibilityServer {
    /// The address it listens on.
    pub bind_address: String,
    /// The port it listens on.
    pub bind_port: u16,
}

impl Default for VisibilityServer {
    fn default() -> Self {
        Self { bind_address: "0.0.0.0".into(), bind_port: 8082 }
    }
}
