//! Kueue's configuration document: its versions differ in defaults, and it also speaks of the process.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::de::DeserializeOwned;
use serde::{Deserialize, de};
use serde_json::{Map, Value};

use super::document::is_typed;
use super::kueue::{
    AdmissionFairSharing, FailureRecovery, FairSharing, Integrations, Metrics, MultiKueue,
    ObjectRetentionPolicies, PreemptionStrategy, QueueConfiguration, Resources, VisibilityServer,
    WaitForPodsReady,
};
use super::process::{LeaderElection, rate};
use super::ray::set;
use super::{Configuration, Format, KIND, Process};
use crate::duration::GoDuration;

/// Kueue's format.
pub(super) const FORMAT: Format = Format {
    name: "Kueue",
    description: "Configuration of config.kueue.x-k8s.io/v1beta1 or v1beta2",
    matches: |document| {
        let versions = ["config.kueue.x-k8s.io/v1beta1", "config.kueue.x-k8s.io/v1beta2"];
        versions.iter().any(|version| is_typed(document, version, KIND))
    },
    apply: |document, configuration| Document::deserialize(document)?.apply(configuration),
};

/// Where Kueue expects certificates that another program provides.
const DEFAULT_CERT_DIR: &str = "/tmp/k8s-webhook-server/serving-certs";

/// The whole document. Unknown keys are errors, as they are for Kueue.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    #[serde(rename = "kind")]
    _kind: String,

    namespace: Option<String>,
    webhook: Option<Webhook>,
    health: Option<Health>,
    leader_election: Option<LeaderElection>,
    client_connection: Option<ClientConnection>,
    internal_cert_management: Option<CertManagement>,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,

    #[serde(default)]
    manage_jobs_without_queue_name: bool,
    managed_jobs_namespace_selector: Option<LabelSelector>,
    wait_for_pods_ready: Option<Map<String, Value>>,
    integrations: Option<Map<String, Value>>,
    #[serde(default)]
    multi_kueue: MultiKueue,
    fair_sharing: Option<Map<String, Value>>,
    admission_fair_sharing: Option<AdmissionFairSharing>,
    #[serde(default)]
    resources: Resources,
    object_retention_policies: Option<ObjectRetentionPolicies>,
    #[serde(default)]
    metrics: Metrics,
    #[serde(default)]
    visibility_server: VisibilityServer,

    // Accepted, because existing files have them; Quintet tunes or does without these by itself.
    #[serde(rename = "controller")]
    _controller: Option<Value>,
    #[serde(rename = "pprofBindAddress")]
    _pprof_bind_address: Option<String>,
    #[serde(rename = "tls")]
    _tls: Option<Value>,
    #[serde(rename = "queueVisibility")]
    _queue_visibility: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Webhook {
    host: Option<String>,
    port: Option<u16>,
    cert_dir: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Health {
    #[serde(rename = "healthProbeBindAddress")]
    bind_address: Option<String>,
    #[serde(rename = "readinessEndpointName")]
    _readiness: Option<String>,
    #[serde(rename = "livenessEndpointName")]
    _liveness: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClientConnection {
    #[serde(default, deserialize_with = "rate")]
    qps: Option<u32>,
    burst: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CertManagement {
    enable: Option<bool>,
    webhook_service_name: Option<String>,
    webhook_secret_name: Option<String>,
}

impl Document {
    /// Carries the document into the configuration.
    fn apply(self, configuration: &mut Configuration) -> Result<(), serde_json::Error> {
        let is_old = self.api_version.ends_with("/v1beta1");
        let queue = QueueConfiguration {
            manage_jobs_without_queue_name: self.manage_jobs_without_queue_name,
            managed_jobs_namespace_selector: self.managed_jobs_namespace_selector,
            wait_for_pods_ready: wait_for_pods_ready(self.wait_for_pods_ready, is_old)?,
            integrations: integrations(self.integrations, is_old)?,
            multi_kueue: self.multi_kueue,
            fair_sharing: fair_sharing(self.fair_sharing, is_old)?,
            admission_fair_sharing: self.admission_fair_sharing,
            resources: self.resources,
            object_retention_policies: self.object_retention_policies,
            metrics: self.metrics,
            visibility_server: self.visibility_server,
            failure_recovery: FailureRecovery::default(),
        };
        configuration.set_section(super::kueue::CONFIG.component, &queue)?;
        configuration.feature_gates.extend(self.feature_gates);
        let process = &mut configuration.process;
        process.namespace = self.namespace.or_else(|| process.namespace.take());
        set(&mut process.metrics_bind_address, queue.metrics.bind_address.map(Some));
        set(&mut process.health_bind_address, self.health.and_then(|health| health.bind_address).map(Some));
        set(&mut process.leader_election, self.leader_election);
        apply_client(process, self.client_connection);
        apply_webhook(process, self.webhook, self.internal_cert_management);
        Ok(())
    }
}

fn apply_client(process: &mut Process, connection: Option<ClientConnection>) {
    let Some(connection) = connection else { return };
    process.client.qps = connection.qps;
    process.client.burst = connection.burst.or(process.client.burst);
}

fn apply_webhook(process: &mut Process, webhook: Option<Webhook>, certificates: Option<CertManagement>) {
    let (mut cert_dir, settings) = (None, &mut process.webhook);
    if let Some(webhook) = webhook {
        set(&mut settings.host, webhook.host.map(Some));
        set(&mut settings.port, webhook.port);
        cert_dir = webhook.cert_dir;
    }
    let Some(certificates) = certificates else { return };
    if certificates.enable == Some(false) {
        settings.cert_dir = Some(cert_dir.unwrap_or_else(|| DEFAULT_CERT_DIR.into()));
    }
    set(&mut settings.service_name, certificates.webhook_service_name);
    set(&mut settings.secret_name, certificates.webhook_secret_name);
}

/// The newer version always waits; the older one only when told to, and then sooner and more strictly.
fn wait_for_pods_ready(
    block: Option<Map<String, Value>>,
    is_old: bool,
) -> Result<Option<WaitForPodsReady>, serde_json::Error> {
    let mut block = block.unwrap_or_default();
    if !is_old {
        return section("waitForPodsReady", block).map(Some);
    }
    if block.remove("enable") != Some(Value::Bool(true)) {
        return Ok(None);
    }
    let has_own_timeout = block.contains_key("timeout");
    let has_own_blocking = block.contains_key("blockAdmission");
    let mut settings: WaitForPodsReady = section("waitForPodsReady", block)?;
    if !has_own_timeout {
        settings.timeout = GoDuration::from_secs(5 * 60);
    }
    if !has_own_blocking {
        settings.block_admission = true;
    }
    Ok(Some(settings))
}

fn integrations(block: Option<Map<String, Value>>, is_old: bool) -> Result<Integrations, serde_json::Error> {
    let mut block = block.unwrap_or_default();
    if is_old {
        block.remove("podOptions");
    }
    section("integrations", block)
}

/// In the newer version the block's presence is the switch; in the older one it has a switch of its own.
fn fair_sharing(
    block: Option<Map<String, Value>>,
    is_old: bool,
) -> Result<Option<FairSharing>, serde_json::Error> {
    let Some(mut block) = block else { return Ok(None) };
    if is_old && block.remove("enable") != Some(Value::Bool(true)) {
        return Ok(None);
    }
    let mut settings: FairSharing = section("fairSharing", block)?;
    if is_old && settings.preemption_strategies.is_empty() {
        settings.preemption_strategies =
            vec![PreemptionStrategy::LessThanOrEqualToFinalShare, PreemptionStrategy::LessThanInitialShare];
    }
    Ok(Some(settings))
}

fn section<T: DeserializeOwned>(name: &str, block: Map<String, Value>) -> Result<T, serde_json::Error> {
    serde_json::from_value(Value::Object(block))
        .map_err(|error| de::Error::custom(format!("{name}: {error}")))
}
