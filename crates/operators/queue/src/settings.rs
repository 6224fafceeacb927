//! Settings of the controllers: the configuration file, and feature gates beyond those of the engine.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use quintet_api::config::kueue::{QueueConfiguration, WaitForPodsReady, WorkloadRetention};
use quintet_queue_engine::settings as engine;
use serde::{Deserialize, Serialize};

use crate::custom_labels::{CustomLabel, Source, SourceKind};

/// Frameworks that Kueue knows. Their kinds count as ancestors, whether enabled or not.
pub const FRAMEWORKS: [&str; 18] = [
    "batch/job",
    "deployment",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
];

/// Jobs of Kubernetes.
pub const BATCH_JOB: &str = "batch/job";
/// Deployments, whose pods are queued one by one.
pub const DEPLOYMENT: &str = "deployment";
/// Pods, single or in groups.
pub const POD: &str = "pod";
/// LeaderWorkerSets, whose pods are queued as groups.
pub const LEADER_WORKER_SET: &str = "leaderworkerset.x-k8s.io/leaderworkerset";
/// StatefulSets, whose pods are queued as a group.
pub const STATEFUL_SET: &str = "statefulset";

/// What changes the behaviour of the controllers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// The section of the configuration file.
    pub configuration: QueueConfiguration,
    /// Gates of the engine.
    pub scheduling: engine::Gates,
    /// Gates of the controllers.
    pub gates: Gates,
    /// Namespaces in which jobs are managed.
    pub managed_namespaces: LabelSelector,
    /// The namespace of the operator.
    #[serde(default)]
    pub namespace: String,
    /// Labels of metrics that are taken from objects; none without their gate.
    #[serde(default)]
    pub custom_labels: Vec<CustomLabel>,
}

/// Where Kueue is installed if nothing else is said.
pub const NAMESPACE: &str = "kueue-system";

impl Default for Settings {
    fn default() -> Self {
        let configuration = QueueConfiguration::default();
        let managed_namespaces = configuration.managed_namespaces(NAMESPACE);
        Self {
            configuration,
            scheduling: engine::Gates::default(),
            gates: Gates::default(),
            managed_namespaces,
            namespace: NAMESPACE.to_owned(),
            custom_labels: Vec::new(),
        }
    }
}

macro_rules! gates {
    ($($(#[$doc:meta])* $field:ident = $name:literal, $default:literal;)+) => {
        /// Feature gates of the controllers.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct Gates {
            $($(#[$doc])* pub $field: bool,)+
        }

        impl Default for Gates {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl Gates {
            /// The defaults with these gates switched, by their upstream names. Gates about other things are ignored.
            pub fn switched(switches: &BTreeMap<String, bool>) -> Self {
                let mut gates = Self::default();
                for (name, on) in switches {
                    match name.as_str() {
                        $($name => gates.$field = *on,)+
                        _ => {}
                    }
                }
                gates
            }
        }
    };
}

gates! {
    /// ProvisioningRequests of evicted Workloads are deleted.
    cleanup_provisioning_requests = "CleanupProvisioningRequestsOnEviction", true;
    /// Pods of jobs get labels with the names of their queues.
    assign_queue_labels = "AssignQueueLabelsForPods", true;
    /// Metrics have labels that are taken from objects.
    custom_metric_labels = "CustomMetricLabels", false;
    /// There is no timeout until pods are ready.
    disable_wait_for_pods_ready = "DisableWaitForPodsReady", false;
    /// Workloads whose job is gone are finished.
    finish_orphaned_workloads = "FinishOrphanedWorkloads", true;
    /// A RayService whose head is fault tolerant keeps its quota until it is deleted.
    defer_rayservice_finalization = "DeferRayServiceFinalizationForRedisCleanup", true;
    /// Deleted pods of a group release their quota before they have ended.
    fast_quota_release = "FastQuotaReleaseInPodIntegration", false;
    /// Names of other objects are annotations rather than labels, which are too short for them.
    identifier_annotations = "WorkloadIdentifierAnnotations", true;
    /// A Workload of another owner does not become that of a pod group.
    validate_group_owner = "PodIntegrationValidateGroupOwner", true;
    /// There are metrics of LocalQueues.
    local_queue_metrics = "LocalQueueMetrics", true;
    /// The size of the groups of a managed LeaderWorkerSet does not change.
    immutable_group_size = "LWSImmutableGroupSize", true;
    /// SparkApplications can be queued.
    spark_application = "SparkApplicationIntegration", false;
    /// Ray and Spark jobs that lose their queue are checked as those that have one.
    validate_ray_and_spark_updates = "ValidateRayAndSparkJobUpdates", true;
    /// Workloads can be sent to other clusters.
    multikueue = "MultiKueue", true;
    /// The incremental dispatcher tries clusters in the order of their configuration, rather than of their names.
    multikueue_config_order = "MultiKueueIncrementalDispatcherRespectConfigOrder", true;
    /// The incremental dispatcher is configured.
    multikueue_dispatcher_config = "MultiKueueIncrementalDispatcherConfig", true;
    /// The time from the creation of a job to that of its Workload is measured.
    creation_latency_metric = "MetricForWorkloadCreationLatency", true;
    /// There are metrics of Cohorts.
    cohort_metrics = "MetricsForCohorts", true;
    /// Jobs that are being deleted get no defaults, because their owners may be gone.
    skip_ancestors_of_deleted = "SkipAncestorCheckForDeletedWorkloads", true;
    /// Kinds beyond those with an integration can be sent to other clusters.
    multikueue_custom_jobs = "MultiKueueAdaptersForCustomJobs", true;
    /// Kubeconfig files have to be in a directory of their own.
    multikueue_path_validation = "MultiKueueKubeConfigPathValidation", true;
    /// Clusters can be found by ClusterProfiles.
    multikueue_cluster_profile = "MultiKueueClusterProfile", false;
    /// What users change of a RayService follows on the cluster that runs it.
    multikueue_spec_sync = "MultiKueueRemoteSpecSync", true;
    /// Quota can follow that of the clusters that Workloads run on.
    multikueue_quota = "MultiKueueManagerQuotaAutomation", false;
    /// The WorkloadPriorityClass called `default` is the default.
    priority_class_defaulting = "WorkloadPriorityClassDefaulting", true;
    /// Pods that do not end on an unreachable node are failed and deleted, where users allow it.
    failure_recovery = "FailureRecoveryPolicy", false;
    /// A node that is not ready for half a minute has failed, whatever pods are there.
    replace_after_time = "TASReplaceNodeDueToNotReadyOverFixedTime", false;
    /// A node has failed only when the pods there have ended.
    replace_on_pod_termination = "TASReplaceNodeOnPodTermination", true;
    /// A node with a taint that the pods do not tolerate has failed.
    replace_on_taints = "TASReplaceNodeOnNodeTaints", true;
    /// Workload names fit into a label.
    short_workload_names = "ShortWorkloadNames", false;
}

impl Settings {
    /// How long to wait for pods to be ready; `None` if there is no limit.
    pub fn pods_ready(&self) -> Option<&WaitForPodsReady> {
        self.configuration.wait_for_pods_ready.as_ref().filter(|_| !self.gates.disable_wait_for_pods_ready)
    }

    /// How long Workloads are kept.
    pub fn retention(&self) -> WorkloadRetention {
        self.configuration
            .object_retention_policies
            .as_ref()
            .map(|policies| policies.workloads.clone())
            .unwrap_or_default()
    }

    /// Whether an integration is enabled.
    pub fn is_enabled(&self, framework: &str) -> bool {
        self.configuration.integrations.frameworks.iter().any(|own| own == framework)
    }

    /// Whether any pods are queued. Those of Deployments, StatefulSets and LeaderWorkerSets need no integration of their
    /// own.
    pub fn manages_pods(&self) -> bool {
        [POD, DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET].iter().any(|framework| self.is_enabled(framework))
    }

    /// Labels of jobs that their Workloads have, too.
    pub fn labels_to_copy(&self) -> impl Iterator<Item = &str> {
        let of_metrics = self.of_workloads().filter_map(|label| match label.source() {
            Source::Label(key) => Some(key),
            Source::Annotation(_) => None,
        });
        self.configuration.integrations.label_keys_to_copy.iter().map(String::as_str).chain(of_metrics)
    }

    /// Annotations of jobs that their Workloads have, too.
    pub fn annotations_to_copy(&self) -> impl Iterator<Item = &str> {
        self.of_workloads().filter_map(|label| match label.source() {
            Source::Label(_) => None,
            Source::Annotation(key) => Some(key),
        })
    }

    fn of_workloads(&self) -> impl Iterator<Item = &CustomLabel> {
        self.custom_labels.iter().filter(|label| label.is_of(SourceKind::Workload))
    }

    /// Whether jobs in a namespace with these labels are managed.
    pub fn manages_namespace(&self, labels: &BTreeMap<String, String>) -> bool {
        matches(&self.managed_namespaces, labels)
    }
}

/// Whether labels match a selector. A requirement with an unknown operator matches nothing.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let of_labels = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let of_expressions = selector.match_expressions.iter().flatten().all(|requirement| {
        let value = labels.get(&requirement.key);
        let is_listed = || {
            let values = requirement.values.as_deref().unwrap_or_default();
            value.is_some_and(|value| values.contains(value))
        };
        match requirement.operator.as_str() {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    });
    of_labels && of_expressions
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_default_selector_leaves_out_the_namespaces_of_the_system() {
        let settings = Settings::default();
        let named =
            |name: &str| BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]);
        assert!(settings.manages_namespace(&named("team")));
        assert!(!settings.manages_namespace(&named("kube-system")));
        assert!(!settings.manages_namespace(&named("kueue-system")));
    }

    #[test]
    fn selectors_match_as_those_of_kubernetes() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let of = |selector: serde_json::Value| matches(&serde_json::from_value(selector).unwrap(), &labels);
        let one = |operator: &str, values: &[&str]| {
            of(json!({ "matchExpressions": [{ "key": "a", "operator": operator, "values": values }] }))
        };
        assert!(of(json!({})) && of(json!({ "matchLabels": { "a": "1" } })));
        assert!(!of(json!({ "matchLabels": { "a": "2" } })));
        assert!(one("In", &["1"]) && !one("In", &["2"]) && one("NotIn", &["2"]) && !one("NotIn", &["1"]));
        assert!(one("Exists", &[]) && !one("DoesNotExist", &[]) && !one("Like", &["1"]));
    }

    #[test]
    fn gates_are_switched_by_their_upstream_names() {
        let switches = BTreeMap::from([("ShortWorkloadNames".to_owned(), true), ("Other".to_owned(), true)]);
        let gates = Gates::switched(&switches);
        assert!(gates.short_workload_names && gates.finish_orphaned_workloads);
    }
}
