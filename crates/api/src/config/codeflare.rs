//! CodeFlare's and AppWrapper's configuration documents, which have neither `apiVersion` nor `kind`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::process::rate;
use super::ray::set;
use super::{Client, ComponentConfig, Configuration, Format, Process};
use crate::duration::GoDuration;

/// What the CodeFlare operator adds to the configuration file. Neither format has a type; their keys tell them apart.
pub const CONFIG: ComponentConfig = ComponentConfig {
    component: "codeflare",
    check: Some(|configuration| configuration.section::<CodeFlareConfiguration>("codeflare").map(drop)),
    gates: &[],
    formats: &[
        Format {
            name: "CodeFlare",
            description: "CodeFlare's (kuberay, appwrapper.enabled)",
            matches: |document| is_untyped(document) && (has_kuberay(document) || has_switch(document)),
            apply: |document, configuration| Document::deserialize(document)?.apply(configuration),
        },
        Format {
            name: "AppWrapper",
            description: "AppWrapper's (appwrapper)",
            matches: |document| is_untyped(document) && document.get("appwrapper").is_some(),
            apply: |document, configuration| AppWrapperDocument::deserialize(document)?.apply(configuration),
        },
    ],
};

fn is_untyped(document: &Value) -> bool {
    document.get("apiVersion").is_none() && document.get("kind").is_none()
}

fn has_kuberay(document: &Value) -> bool {
    document.get("kuberay").or_else(|| document.get("kubeRay")).is_some()
}

/// In CodeFlare's document AppWrappers are switched on and off; alone, the AppWrapper operator always runs.
fn has_switch(document: &Value) -> bool {
    let appwrapper = &document["appwrapper"];
    ["enabled", "Config", "config"].iter().any(|key| appwrapper.get(key).is_some())
}

/// Hardening of Ray clusters, and AppWrappers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CodeFlareConfiguration {
    /// What is added to Ray clusters.
    #[serde(alias = "kubeRay")]
    pub kuberay: KubeRayConfiguration,
    /// AppWrappers.
    pub appwrapper: AppWrapperSwitch,
}

/// What is added to Ray clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeRayConfiguration {
    /// Put an OAuth proxy before the Ray dashboard.
    #[serde(rename = "rayDashboardOAuthEnabled")]
    pub ray_dashboard_oauth_enabled: bool,
    /// The DNS domain under which dashboards are reached; on OpenShift it is found out.
    pub ingress_domain: String,
    /// Have Ray clients and servers authenticate each other.
    #[serde(rename = "mTLSEnabled")]
    pub mtls_enabled: bool,
}

impl Default for KubeRayConfiguration {
    fn default() -> Self {
        Self { ray_dashboard_oauth_enabled: true, ingress_domain: String::new(), mtls_enabled: true }
    }
}

/// Whether AppWrappers are reconciled, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppWrapperSwitch {
    /// Whether they are.
    pub enabled: bool,
    /// How. Upstream writes this key with a capital letter.
    #[serde(rename = "Config", alias = "config")]
    pub config: AppWrapperConfiguration,
}

/// How AppWrappers are reconciled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AppWrapperConfiguration {
    /// Keeping away from unhealthy nodes.
    pub autopilot: Autopilot,
    /// Whether a user may wrap only what the user may create.
    #[serde(rename = "userRBACAdmissionCheck")]
    pub user_rbac_admission_check: bool,
    /// The scheduler of wrapped pods, if not the default one.
    pub scheduler_name: String,
    /// The queue of AppWrappers that name none.
    pub default_queue_name: String,
    /// When to give up, and how often to try again.
    pub fault_tolerance: FaultTolerance,
}

impl Default for AppWrapperConfiguration {
    fn default() -> Self {
        Self {
            autopilot: Autopilot::default(),
            user_rbac_admission_check: true,
            scheduler_name: String::new(),
            default_queue_name: String::new(),
            fault_tolerance: FaultTolerance::default(),
        }
    }
}

/// Keeping away from unhealthy nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Autopilot {
    /// Keep wrapped pods off nodes with the taints below.
    pub inject_anti_affinities: bool,
    /// Watch nodes, and move AppWrappers off those that must be left.
    pub monitor_nodes: bool,
    /// How strongly to prefer nodes without a `PreferNoSchedule` taint, 1 to 100.
    pub prefer_no_schedule_weight: Option<i32>,
    /// Per resource, the node labels that count as taints.
    pub resource_taints: BTreeMap<String, Vec<ResourceTaint>>,
}

impl Default for Autopilot {
    fn default() -> Self {
        let gpu_health = |value: &str, effect: &str| ResourceTaint {
            key: "autopilot.ibm.com/gpuhealth".into(),
            value: value.into(),
            effect: effect.into(),
        };
        let taints = vec![
            gpu_health("WARN", "PreferNoSchedule"),
            gpu_health("TESTING", "NoSchedule"),
            gpu_health("EVICT", "NoExecute"),
        ];
        Self {
            inject_anti_affinities: true,
            monitor_nodes: true,
            prefer_no_schedule_weight: Some(50),
            resource_taints: BTreeMap::from([("nvidia.com/gpu".into(), taints)]),
        }
    }
}

/// A node label that counts as a taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceTaint {
    /// The key of the label.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What it does: `PreferNoSchedule`, `NoSchedule` or `NoExecute`.
    pub effect: String,
}

/// When to give up, and how often to try again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultTolerance {
    /// Time for wrapped objects to be created.
    pub admission_grace_period: Nanoseconds,
    /// Time for all pods to be ready.
    pub warmup_grace_period: Nanoseconds,
    /// Time a failure may last before a reset.
    pub failure_grace_period: Nanoseconds,
    /// Pause between a reset and the next try.
    pub reset_pause: Nanoseconds,
    /// Resets before giving up.
    pub retry_limit: i32,
    /// Time for deleted objects to go before they are forced to.
    pub deletion_grace_period: Nanoseconds,
    /// The longest grace period a user may ask for.
    pub grace_period_ceiling: Nanoseconds,
    /// The longest time a finished AppWrapper is kept.
    #[serde(rename = "successTTLCeiling")]
    pub success_ttl_ceiling: Nanoseconds,
}

impl Default for FaultTolerance {
    fn default() -> Self {
        Self {
            admission_grace_period: Nanoseconds::from_secs(60),
            warmup_grace_period: Nanoseconds::from_secs(5 * 60),
            failure_grace_period: Nanoseconds::from_secs(60),
            reset_pause: Nanoseconds::from_secs(90),
            retry_limit: 3,
            deletion_grace_period: Nanoseconds::from_secs(10 * 60),
            grace_period_ceiling: Nanoseconds::from_secs(24 * 3600),
            success_ttl_ceiling: Nanoseconds::from_secs(168 * 3600),
        }
    }
}

/// A duration that upstream writes as a number of nanoseconds; texts such as `5m` are read too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanoseconds(pub Duration);

impl Nanoseconds {
    const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl Serialize for Nanoseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl<'de> Deserialize<'de> for Nanoseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a number of nanoseconds or a duration such as 5m")]
        enum Either {
            Number(u64),
            Text(GoDuration),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::Number(nanos) => Self(Duration::from_nanos(nanos)),
            Either::Text(duration) => Self(duration.0),
        })
    }
}

/// CodeFlare's whole document: what concerns CodeFlare, and what concerns the process. Unknown keys are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(flatten)]
    codeflare: CodeFlareConfiguration,
    client_connection: Option<ClientConnection>,
    #[serde(flatten)]
    endpoints: Endpoints,
}

/// The document of the AppWrapper operator when it runs alone.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AppWrapperDocument {
    appwrapper: AppWrapperConfiguration,
    controller_manager: Option<Endpoints>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoints {
    metrics: Option<BindAddress>,
    health: Option<BindAddress>,
    leader_election: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindAddress {
    bind_address: Option<String>,
}

#[derive(Deserialize)]
struct ClientConnection {
    #[serde(default, deserialize_with = "rate")]
    qps: Option<u32>,
    burst: Option<u32>,
}

impl Document {
    fn apply(self, configuration: &mut Configuration) -> Result<(), serde_json::Error> {
        configuration.set_section(CONFIG.component, &self.codeflare)?;
        let process = &mut configuration.process;
        set(
            &mut process.client,
            self.client_connection.map(|client| Client { qps: client.qps, burst: client.burst }),
        );
        self.endpoints.apply(process);
        Ok(())
    }
}

impl AppWrapperDocument {
    /// Keeps what an earlier document says of Ray clusters.
    fn apply(self, configuration: &mut Configuration) -> Result<(), serde_json::Error> {
        let mut codeflare: CodeFlareConfiguration =
            configuration.section(CONFIG.component).map_err(serde::de::Error::custom)?;
        codeflare.appwrapper = AppWrapperSwitch { enabled: true, config: self.appwrapper };
        configuration.set_section(CONFIG.component, &codeflare)?;
        if let Some(endpoints) = self.controller_manager {
            endpoints.apply(&mut configuration.process);
        }
        Ok(())
    }
}

impl Endpoints {
    fn apply(self, process: &mut Process) {
        set(
            &mut process.metrics_bind_address,
            self.metrics.and_then(|metrics| metrics.bind_address).map(Some),
        );
        set(&mut process.health_bind_address, self.health.and_then(|health| health.bind_address).map(Some));
        // A switch for AppWrapper alone, a section for CodeFlare, in which only what we know counts.
        let election = &mut process.leader_election;
        match self.leader_election {
            Some(Value::Bool(elect)) => election.leader_elect = elect,
            Some(section) => {
                fn part<T: serde::de::DeserializeOwned>(section: &Value, key: &str) -> Option<T> {
                    section.get(key).and_then(|value| serde_json::from_value(value.clone()).ok())
                }
                election.leader_elect = part(&section, "leaderElect").unwrap_or(false);
                set(&mut election.resource_name, part(&section, "resourceName"));
                set(&mut election.lease_duration, part(&section, "leaseDuration"));
                set(&mut election.renew_deadline, part(&section, "renewDeadline"));
                set(&mut election.retry_period, part(&section, "retryPeriod"));
                election.resource_namespace =
                    part(&section, "resourceNamespace").or_else(|| election.resource_namespace.take());
            }
            None => {}
        }
    }
}
