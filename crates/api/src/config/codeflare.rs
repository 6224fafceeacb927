//! CodeFlare's and AppWrapper's configuration documents, which have neither `apiVersion` nor `kind`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_with::skip_serializing_none;

use super::process::rate;
use super::ray::set;
use super::{Client, ComponentConfig, Configuration, ConfigurationError, Format, Process};
use crate::duration::GoDuration;

/// What the CodeFlare operator adds to the configuration file. Neither format has a type; their keys tell them apart.
pub const CONFIG: ComponentConfig = ComponentConfig {
    component: "codeflare",
    check: Some(check),
    gates: &[],
    controllers: &[],
    formats: &[
        Format {
            name: "CodeFlare",
            description: "CodeFlare's (kuberay, appwrapper.enabled)",
            matches: |document| is_untyped(document) && (has(document, "kuberay") || has_switch(document)),
            apply: |document, configuration| Document::deserialize(canonical(document))?.apply(configuration),
        },
        Format {
            name: "AppWrapper",
            description: "AppWrapper's (appwrapper)",
            matches: |document| is_untyped(document) && APP_WRAPPER_KEYS.iter().any(|key| has(document, key)),
            apply: |document, configuration| {
                AppWrapperDocument::deserialize(canonical(document))?.apply(configuration)
            },
        },
    ],
};

fn is_untyped(document: &Value) -> bool {
    document.get("apiVersion").is_none() && document.get("kind").is_none()
}

/// Keys of the AppWrapper operator's own document.
const APP_WRAPPER_KEYS: [&str; 4] = ["appwrapper", "certManagement", "controllerManager", "webhooksEnabled"];

/// A field of an object, in whatever case its key is written: Go's JSON decoder does not mind.
fn field<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    let fields = object.as_object()?;
    fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
}

fn has(object: &Value, key: &str) -> bool {
    field(object, key).is_some()
}

/// In CodeFlare's document AppWrappers are switched on and off; alone, the AppWrapper operator always runs.
fn has_switch(document: &Value) -> bool {
    field(document, "appwrapper").is_some_and(|switch| has(switch, "enabled") || has(switch, "config"))
}

/// The same document with its keys in the case that the types below expect. Names of resources are values, not keys.
fn canonical(document: Value) -> Value {
    /// All keys that are read case-insensitively.
    const KEYS: [&str; 43] = [
        "admissionGracePeriod",
        "appwrapper",
        "autopilot",
        "bindAddress",
        "burst",
        "certManagement",
        "clientConnection",
        "Config",
        "controllerManager",
        "defaultQueueName",
        "deletionGracePeriod",
        "effect",
        "enabled",
        "failureGracePeriod",
        "faultTolerance",
        "gracePeriodCeiling",
        "health",
        "ingressDomain",
        "injectAntiAffinities",
        "key",
        "kuberay",
        "leaderElect",
        "leaderElection",
        "leaseDuration",
        "metrics",
        "monitorNodes",
        "mTLSEnabled",
        "preferNoScheduleWeight",
        "qps",
        "rayDashboardOAuthEnabled",
        "renewDeadline",
        "resetPause",
        "resourceName",
        "resourceNamespace",
        "resourceTaints",
        "retryLimit",
        "retryPeriod",
        "schedulerName",
        "successTTLCeiling",
        "userRBACAdmissionCheck",
        "value",
        "warmupGracePeriod",
        "webhooksEnabled",
    ];
    let known = |key: String| match KEYS.iter().find(|known| known.eq_ignore_ascii_case(&key)) {
        Some(known) => (*known).to_owned(),
        None => key,
    };
    match document {
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (known(key), canonical(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(canonical).collect(),
        other => other,
    }
}

/// Rejects settings that do not go together, as the AppWrapper operator's `ValidateAppWrapperConfig` does.
fn check(configuration: &Configuration) -> Result<(), ConfigurationError> {
    let codeflare: CodeFlareConfiguration = configuration.section(CONFIG.component)?;
    let Some(appwrapper) = codeflare.appwrapper.filter(|switch| switch.enabled) else { return Ok(()) };
    appwrapper.config.fault_tolerance.check().map_err(ConfigurationError::Contradiction)
}

/// Hardening of Ray clusters, and AppWrappers. CodeFlare's own document always has both parts: what it leaves out has
/// upstream's defaults.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CodeFlareConfiguration {
    /// What is added to Ray clusters; nothing if absent.
    #[serde(alias = "kubeRay")]
    pub kuberay: Option<KubeRayConfiguration>,
    /// AppWrappers; reconciled with the defaults if absent.
    pub appwrapper: Option<AppWrapperSwitch>,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppWrapperSwitch {
    /// Whether they are.
    pub enabled: bool,
    /// Whether their webhooks are served; a switch of the AppWrapper operator's own document.
    #[serde(rename = "webhooksEnabled")]
    pub webhooks_enabled: bool,
    /// How. Upstream writes this key with a capital letter.
    #[serde(rename = "Config", alias = "config")]
    pub config: AppWrapperConfiguration,
}

impl Default for AppWrapperSwitch {
    /// As CodeFlare's document has it.
    fn default() -> Self {
        Self { enabled: false, webhooks_enabled: true, config: AppWrapperConfiguration::default() }
    }
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
    #[serde(deserialize_with = "beside_defaults")]
    pub resource_taints: BTreeMap<String, Vec<ResourceTaint>>,
}

/// Resources that a document does not name keep their taints: Go decodes into the map with the defaults.
fn beside_defaults<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<ResourceTaint>>, D::Error> {
    let mut all = Autopilot::default().resource_taints;
    all.extend(BTreeMap::deserialize(deserializer)?);
    Ok(all)
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

impl FaultTolerance {
    /// Rejects periods that do not go together.
    pub fn check(&self) -> Result<(), String> {
        let ceiling = self.grace_period_ceiling;
        let exceeds = |name: &str, period: Nanoseconds, limit_name: &str, limit: Nanoseconds| {
            let text = |period: Nanoseconds| GoDuration(period.0);
            if period > limit {
                return Err(format!("{name} {} exceeds {limit_name} {}", text(period), text(limit)));
            }
            Ok(())
        };
        exceeds("DeletionGracePeriod", self.deletion_grace_period, "GracePeriodCeiling", ceiling)?;
        exceeds("ResetPause", self.reset_pause, "GracePeriodCeiling", ceiling)?;
        exceeds("FailureGracePeriod", self.failure_grace_period, "GracePeriodCeiling", ceiling)?;
        exceeds("AdmissionGracePeriod", self.admission_grace_period, "GracePeriodCeiling", ceiling)?;
        exceeds("WarmupGracePeriod", self.warmup_grace_period, "GracePeriodCeiling", ceiling)?;
        let (admission, warmup) = (self.admission_grace_period, self.warmup_grace_period);
        exceeds("AdmissionGracePeriod", admission, "WarmupGracePeriod", warmup)?;
        if self.success_ttl_ceiling.0.is_zero() {
            return Err("SuccessTTLCeiling must be greater than 0".to_owned());
        }
        Ok(())
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
    #[serde(default)]
    appwrapper: AppWrapperConfiguration,
    webhooks_enabled: Option<bool>,
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
    fn apply(mut self, configuration: &mut Configuration) -> Result<(), serde_json::Error> {
        self.codeflare.kuberay.get_or_insert_default();
        self.codeflare.appwrapper.get_or_insert_default();
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
        let webhooks_enabled = self.webhooks_enabled.unwrap_or(true);
        codeflare.appwrapper =
            Some(AppWrapperSwitch { enabled: true, webhooks_enabled, config: self.appwrapper });
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
