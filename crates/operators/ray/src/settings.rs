//! What changes the behaviour of the Ray operator: feature gates, configuration, environment variables and the
//! platform it runs on.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{Container, EnvVar};
use quintet_api::config::{gates, ray::RayConfiguration};
use serde::{Deserialize, Serialize};

/// Everything that is the same for all objects while the process runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Settings {
    /// Features that are switched.
    pub gates: Gates,
    /// What is known of the cluster.
    pub platform: Platform,
    /// The gang scheduler to work with.
    pub batch_scheduler: Option<BatchScheduler>,
    /// Reach Ray dashboards through the API server.
    pub use_kubernetes_proxy: bool,
    /// Appended to every head pod.
    pub head_sidecars: Vec<Container>,
    /// Appended to every worker pod.
    pub worker_sidecars: Vec<Container>,
    /// Variables of every Ray container that does not set them itself.
    pub default_env: Vec<EnvVar>,
    /// Annotations of every pod that does not set them itself.
    pub default_annotations: BTreeMap<String, String>,
    /// Labels of every pod that does not set them itself.
    pub default_labels: BTreeMap<String, String>,
    /// Written on objects as the version of their maker.
    pub version: String,
    /// DNS domain of the cluster.
    pub cluster_domain: String,
    /// A cluster is looked at this often although nothing changed.
    pub resync: Duration,
    /// Whether Redis is cleared when a cluster is deleted.
    pub redis_cleanup: bool,
    /// Whether surplus workers are deleted although an autoscaler runs.
    pub random_pod_delete: bool,
    /// Whether workers wait for the head in an init container.
    pub wait_for_head: bool,
    /// Whether probes are added.
    pub probes: bool,
    /// Whether head services get an address of their own.
    pub head_cluster_ip: bool,
    /// Whether containers start a login shell.
    pub login_shell: bool,
    /// Whether the head pod's name is fixed.
    pub fixed_head_name: bool,
    /// Whether a changed RayService is upgraded by a new cluster if it does not say.
    pub zero_downtime: bool,
    /// Whether finished RayJobs are deleted, and not only their clusters.
    pub delete_finished_jobs: bool,
    /// How long a finished Ray job may wait for its submitter to finish.
    pub job_transition_grace: jiff::SignedDuration,
    /// How long asking for a job's status may fail.
    pub job_status_check_timeout: jiff::SignedDuration,
}

/// Gang schedulers that Ray pods can be handed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BatchScheduler {
    /// Volcano.
    Volcano,
    /// Apache YuniKorn.
    Yunikorn,
    /// KAI scheduler.
    Kai,
    /// The co-scheduling plugin of Kubernetes' scheduler.
    SchedulerPlugins,
}

/// What the cluster offers beyond Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Platform {
    /// Routes instead of Ingresses.
    pub routes: bool,
    /// cert-manager is installed.
    pub cert_manager: bool,
}

/// How far a feature has come: those in beta are on unless they are switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
}

/// Declares the gates with upstream's names and stages.
macro_rules! gates {
    ($( $(#[$doc:meta])* $field:ident = $name:literal, $stage:ident; )*) => {
        /// Features that are switched, by upstream's names.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Gates {
            $( $(#[$doc])* #[serde(rename = $name)] pub $field: bool, )*
        }

        impl Default for Gates {
            fn default() -> Self {
                Self { $( $field: Stage::$stage == Stage::Beta, )* }
            }
        }

        impl Gates {
            /// The names of all gates.
            pub const NAMES: &'static [&'static str] = &[ $( $name, )* ];

            fn set_all(&mut self, stage: Stage, on: bool) {
                $( if Stage::$stage == stage { self.$field = on; } )*
            }

            fn set(&mut self, name: &str, on: bool) {
                match name {
                    $( $name => self.$field = on, )*
                    _ => {}
                }
            }
        }
    };
}

gates! {
    /// Conditions in the status of clusters.
    status_conditions = "RayClusterStatusConditions", Beta;
    /// `deletionStrategy` of RayJobs, and worker groups that are suspended by it.
    job_deletion_policy = "RayJobDeletionPolicy", Beta;
    /// Index labels on workers, and multi-host replicas that live and die together.
    multi_host_indexing = "RayMultiHostIndexing", Beta;
    /// Upgrades of RayServices that move traffic in steps.
    incremental_upgrade = "RayServiceIncrementalUpgrade", Beta;
    /// RayCronJobs.
    cron_job = "RayCronJob", Alpha;
    /// Submitters in the head pod that are restarted when they fail.
    sidecar_submitter_restart = "SidecarSubmitterRestart", Alpha;
    /// NetworkPolicies for clusters.
    network_policy = "RayClusterNetworkPolicy", Alpha;
    /// The cluster's state on a volume of the head.
    embedded_storage = "GCSFaultToleranceEmbeddedStorage", Alpha;
    /// TLS between Ray processes.
    mtls = "RayClusterMTLS", Alpha;
    /// Collectors of history in every pod.
    history_server = "RayClusterHistoryServer", Alpha;
    /// Gang scheduling by Kubernetes' own scheduler.
    native_gang_scheduling = "KubernetesWAS", Alpha;
}

impl Gates {
    /// The defaults with some switched, first whole stages and then what is named by itself; names of other
    /// operators' gates are passed over.
    pub fn switched(switches: &BTreeMap<String, bool>) -> Self {
        let mut gates = Self::default();
        for (stage, name) in [(Stage::Alpha, gates::ALL_ALPHA), (Stage::Beta, gates::ALL_BETA)] {
            if let Some(on) = switches.get(name) {
                gates.set_all(stage, *on);
            }
        }
        for (name, on) in switches {
            gates.set(name, *on);
        }
        gates
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gates: Gates::default(),
            platform: Platform::default(),
            batch_scheduler: None,
            use_kubernetes_proxy: false,
            head_sidecars: Vec::new(),
            worker_sidecars: Vec::new(),
            default_env: Vec::new(),
            default_annotations: BTreeMap::new(),
            default_labels: BTreeMap::new(),
            version: concat!("quintet-", env!("CARGO_PKG_VERSION")).to_owned(),
            cluster_domain: "cluster.local".to_owned(),
            resync: Duration::from_mins(5),
            redis_cleanup: true,
            random_pod_delete: false,
            wait_for_head: true,
            probes: true,
            head_cluster_ip: false,
            login_shell: false,
            fixed_head_name: false,
            zero_downtime: true,
            delete_finished_jobs: false,
            job_transition_grace: jiff::SignedDuration::from_mins(5),
            job_status_check_timeout: jiff::SignedDuration::from_mins(5),
        }
    }
}

impl Settings {
    /// Puts together what the configuration, the gates and the environment say. The error is for the user to
    /// fix.
    pub fn read(
        configuration: &RayConfiguration,
        switches: &BTreeMap<String, bool>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let gates = Gates::switched(switches);
        let batch_scheduler = batch_scheduler(configuration)?;
        if gates.native_gang_scheduling && batch_scheduler.is_some() {
            return Err("the feature gate KubernetesWAS cannot be combined with a batch scheduler; \
                        switch one of them off"
                .to_owned());
        }
        let says =
            |name: &str, what: &str| environment(name).is_some_and(|value| value.eq_ignore_ascii_case(what));
        let seconds = |name: &str| environment(name).and_then(|text| text.trim().parse::<i64>().ok());
        let defaults = Self::default();
        let span = jiff::SignedDuration::from_secs;
        Ok(Self {
            gates,
            batch_scheduler,
            use_kubernetes_proxy: configuration.use_kubernetes_proxy,
            head_sidecars: configuration.head_sidecar_containers.clone(),
            worker_sidecars: configuration.worker_sidecar_containers.clone(),
            default_env: configuration.default_container_envs.clone(),
            default_annotations: configuration.default_pod_annotations.clone(),
            default_labels: configuration.default_pod_labels.clone(),
            cluster_domain: environment("CLUSTER_DOMAIN")
                .filter(|domain| !domain.is_empty())
                .unwrap_or(defaults.cluster_domain),
            resync: seconds("RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV")
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0)
                .map_or(defaults.resync, Duration::from_secs),
            redis_cleanup: !says("ENABLE_GCS_FT_REDIS_CLEANUP", "false"),
            random_pod_delete: says("ENABLE_RANDOM_POD_DELETE", "true"),
            wait_for_head: !says("ENABLE_INIT_CONTAINER_INJECTION", "false"),
            probes: !says("ENABLE_PROBES_INJECTION", "false"),
            head_cluster_ip: says("ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE", "true"),
            login_shell: says("ENABLE_LOGIN_SHELL", "true"),
            fixed_head_name: says("ENABLE_DETERMINISTIC_HEAD_POD_NAME", "true"),
            zero_downtime: !says("ENABLE_ZERO_DOWNTIME", "false"),
            // The key of the configuration file has no effect, as in KubeRay: files that are taken over must not begin
            // to delete jobs.
            delete_finished_jobs: says("DELETE_RAYJOB_CR_AFTER_JOB_FINISHES", "true"),
            job_transition_grace: seconds("RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS")
                .map_or(defaults.job_transition_grace, span),
            job_status_check_timeout: seconds("RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS")
                .filter(|seconds| *seconds > 0)
                .map_or(defaults.job_status_check_timeout, span),
            ..defaults
        })
    }

    /// Whether a server of this version has what the gates need; the error is for the user to fix.
    pub fn check_server(&self, major: &str, minor: &str) -> Result<(), String> {
        // Managed clusters append to the number: `35+`.
        let number = |text: &str| text.trim_end_matches(|last: char| !last.is_ascii_digit()).parse::<u32>();
        let version = (number(major).unwrap_or_default(), number(minor).unwrap_or_default());
        if self.gates.sidecar_submitter_restart && version < (1, 35) {
            return Err(format!(
                "the feature gate SidecarSubmitterRestart needs Kubernetes 1.35 or newer, and this is {major}.{minor}; \
                 switch it off, or update the cluster"
            ));
        }
        Ok(())
    }

    /// The shell that runs generated commands.
    pub fn shell(&self) -> Vec<String> {
        let flags = if self.login_shell { "-cl" } else { "-c" };
        ["/bin/bash", flags, "--"].map(str::to_owned).to_vec()
    }
}

fn batch_scheduler(configuration: &RayConfiguration) -> Result<Option<BatchScheduler>, String> {
    let name = configuration.batch_scheduler.as_deref().filter(|name| !name.is_empty());
    match (name, configuration.enable_batch_scheduler) {
        (Some(_), true) => Err("batchScheduler and enableBatchScheduler exclude each other; \
                                keep batchScheduler"
            .to_owned()),
        (None, true) | (Some("volcano"), false) => Ok(Some(BatchScheduler::Volcano)),
        (Some("yunikorn"), false) => Ok(Some(BatchScheduler::Yunikorn)),
        (Some("kai-scheduler"), false) => Ok(Some(BatchScheduler::Kai)),
        (Some("scheduler-plugins"), false) => Ok(Some(BatchScheduler::SchedulerPlugins)),
        (None, false) => Ok(None),
        (Some(other), false) => Err(format!(
            "the batch scheduler {other:?} is not known; choose volcano, yunikorn, kai-scheduler or \
             scheduler-plugins"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(environment: &[(&str, &str)]) -> Settings {
        let environment: BTreeMap<_, _> = environment.iter().copied().collect();
        let lookup = |name: &str| environment.get(name).map(|value| (*value).to_owned());
        Settings::read(&RayConfiguration::default(), &BTreeMap::new(), lookup).unwrap()
    }

    #[test]
    fn without_any_word_the_defaults_hold() {
        assert_eq!(read(&[]), Settings::default());
    }

    #[test]
    fn switches_are_compared_without_case() {
        assert!(!read(&[("ENABLE_PROBES_INJECTION", "FALSE")]).probes);
        assert!(read(&[("ENABLE_PROBES_INJECTION", "no")]).probes, "only false is false");
        assert!(read(&[("ENABLE_LOGIN_SHELL", "True")]).login_shell);
    }

    #[test]
    fn unusable_numbers_are_passed_over() {
        let grace = "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS";
        assert_eq!(read(&[(grace, "soon")]), Settings::default());
        assert_eq!(read(&[(grace, "0")]).job_transition_grace, jiff::SignedDuration::ZERO);
        assert_eq!(read(&[("RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS", "0")]), Settings::default());
    }

    #[test]
    fn a_scheduler_that_is_not_known_is_refused_with_those_that_are() {
        let configuration =
            RayConfiguration { batch_scheduler: Some("default".into()), ..RayConfiguration::default() };
        let error = Settings::read(&configuration, &BTreeMap::new(), |_| None).unwrap_err();
        assert!(error.contains("choose volcano, yunikorn, kai-scheduler or scheduler-plugins"), "{error}");
    }

    #[test]
    fn a_server_that_is_too_old_for_a_gate_is_refused() {
        let mut settings = Settings::default();
        assert_eq!(settings.check_server("1", "30"), Ok(()));
        settings.gates.sidecar_submitter_restart = true;
        for good in ["35", "35+", "40"] {
            assert_eq!(settings.check_server("1", good), Ok(()), "{good}");
        }
        let error = settings.check_server("1", "34+").unwrap_err();
        assert!(error.contains("needs Kubernetes 1.35 or newer, and this is 1.34+"), "{error}");
    }

    #[test]
    fn the_configuration_knows_all_gates() {
        let mut names = Gates::NAMES.to_vec();
        names.sort_unstable();
        assert_eq!(names, gates::RAY);
    }

    #[test]
    fn gates_have_upstreams_defaults_and_can_be_switched() {
        let gates = Gates::switched(&BTreeMap::from([
            ("RayCronJob".to_owned(), true),
            ("RayMultiHostIndexing".to_owned(), false),
            ("PartialAdmission".to_owned(), true),
        ]));
        assert!(gates.cron_job && !gates.multi_host_indexing && gates.incremental_upgrade);
    }

    #[test]
    fn a_whole_stage_is_switched_but_for_what_is_named_by_itself() {
        let switched = |switches: &[(&str, bool)]| {
            Gates::switched(&switches.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect())
        };
        let alpha = switched(&[("AllAlpha", true), ("KubernetesWAS", false)]);
        assert!(alpha.cron_job && alpha.mtls && !alpha.native_gang_scheduling && alpha.status_conditions);
        let none = switched(&[("AllBeta", false), ("RayMultiHostIndexing", true)]);
        assert!(!none.status_conditions && none.multi_host_indexing && !none.cron_job);
    }
}
