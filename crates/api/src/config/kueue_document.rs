//! Kueue's configuration document: its versions differ in defaults, and it also speaks of the process.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::de::DeserializeOwned;
use serde::{Deserialize, de};
use serde_json::{Map, Value};

use super::document::{decoded, is_typed};
use super::kueue::{
    AdmissionFairSharing, FailureRecovery, FairSharing, Integrations, Metrics, MultiKueue,
    ObjectRetentionPolicies, PreemptionStrategy, QueueConfiguration, Resources, VisibilityServer,
    WaitForPodsReady,
};
use super::process::{LeaderElection, rate};
use super::ray::set;
use super::{Configuration, Format, KIND, Process};
use crate::duration::GoDuration;
use crate::names::problems;

/// Kueue's format.
pub(super) const FORMAT: Format = Format {
    name: "Kueue",
    description: "Configuration of config.kueue.x-k8s.io/v1beta1 or v1beta2",
    matches: |document| {
        let versions = ["config.kueue.x-k8s.io/v1beta1", "config.kueue.x-k8s.io/v1beta2"];
        versions.iter().any(|version| is_typed(document, version, KIND))
    },
    apply: |document, configuration| decoded::<Document>(document)?.apply(configuration),
};

/// The dispatcher that asks a few clusters at a time.
const INCREMENTAL: &str = "kueue.x-k8s.io/multikueue-dispatcher-incremental";
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
    _controller: Option<Controller>,
    #[serde(rename = "pprofBindAddress")]
    _pprof_bind_address: Option<String>,
    tls: Option<Tls>,
    /// Of the older version only.
    queue_visibility: Option<Value>,
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Controller {
    #[serde(rename = "groupKindConcurrency")]
    _concurrency: Option<BTreeMap<String, i64>>,
    /// In nanoseconds, unlike other times.
    #[serde(rename = "cacheSyncTimeout")]
    _timeout: Option<i64>,
}

/// What the servers accept.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tls {
    #[serde(default)]
    min_version: String,
    #[serde(default)]
    cipher_suites: Vec<String>,
    #[serde(default)]
    curve_preferences: Vec<i32>,
}

impl Document {
    /// What is wrong beyond the types.
    fn check(&self, is_old: bool) -> Result<(), serde_json::Error> {
        let wrong = |text: String| Err(de::Error::custom(text));
        if self.queue_visibility.is_some() && !is_old {
            return wrong("queueVisibility: unknown field `queueVisibility`".to_owned());
        }
        if let Some(tls) = &self.tls {
            tls.check().map_err(de::Error::custom)?;
        }
        let Some(certificates) =
            self.internal_cert_management.as_ref().filter(|own| own.enable != Some(false))
        else {
            return Ok(());
        };
        let path = "internalCertManagement";
        if let Some(name) = &certificates.webhook_service_name
            && let Some(problem) = problems::dns1035_label(name).first()
        {
            return wrong(format!("{path}.webhookServiceName: {name:?}: {problem}"));
        }
        if let Some(name) = &certificates.webhook_secret_name
            && let Some(problem) = problems::dns_subdomain(name).first()
        {
            return wrong(format!("{path}.webhookSecretName: {name:?}: {problem}"));
        }
        Ok(())
    }

    /// Carries the document into the configuration.
    fn apply(self, configuration: &mut Configuration) -> Result<(), serde_json::Error> {
        let is_old = self.api_version.ends_with("/v1beta1");
        self.check(is_old)?;
        let queue = QueueConfiguration {
            manage_jobs_without_queue_name: self.manage_jobs_without_queue_name,
            managed_jobs_namespace_selector: self.managed_jobs_namespace_selector,
            wait_for_pods_ready: wait_for_pods_ready(self.wait_for_pods_ready, is_old)?,
            integrations: integrations(self.integrations, is_old)?,
            multi_kueue: multi_kueue(self.multi_kueue),
            fair_sharing: fair_sharing(self.fair_sharing, is_old)?,
            admission_fair_sharing: self.admission_fair_sharing.map(admission_fair_sharing),
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
        let mut settings: WaitForPodsReady = section("waitForPodsReady", block)?;
        // Nothing is waited for without a limit.
        if settings.timeout == GoDuration::default() {
            settings.timeout = WaitForPodsReady::default().timeout;
        }
        return Ok(Some(settings));
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
    let mut integrations: Integrations = section("integrations", block)?;
    if integrations.frameworks.is_empty() {
        integrations.frameworks = Integrations::default().frameworks;
    }
    Ok(integrations)
}

/// An empty origin is none, and the incremental dispatcher has settings.
fn multi_kueue(mut settings: MultiKueue) -> MultiKueue {
    if settings.dispatcher_name == INCREMENTAL {
        settings.incremental_dispatcher_config.get_or_insert_default();
    }
    if settings.origin.is_empty() {
        settings.origin = MultiKueue::default().origin;
    }
    settings
}

/// Usage is sampled at some time.
fn admission_fair_sharing(mut settings: AdmissionFairSharing) -> AdmissionFairSharing {
    if settings.usage_sampling_interval == GoDuration::default() {
        settings.usage_sampling_interval = AdmissionFairSharing::default().usage_sampling_interval;
    }
    settings
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
    decoded(Value::Object(block)).map_err(|error| de::Error::custom(format!("{name}.{error}")))
}

/// Names by which Go knows versions of TLS; older ones are refused.
const TLS_VERSIONS: [&str; 2] = ["VersionTLS12", "VersionTLS13"];
/// Cipher suites and curves that the servers know, by the names and numbers of Go.
const CIPHER_SUITES: [&str; 11] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];
/// P-256, P-384, P-521, X25519 and X25519MLKEM768.
const CURVES: [i32; 5] = [23, 24, 25, 29, 4588];

impl Tls {
    fn check(&self) -> Result<(), String> {
        let version = self.min_version.as_str();
        if !version.is_empty() && !TLS_VERSIONS.contains(&version) {
            return Err(format!(
                "tls.minVersion: unknown version {version:?}; choose from {}",
                TLS_VERSIONS.join(", ")
            ));
        }
        if let Some(unknown) = self.cipher_suites.iter().find(|own| !CIPHER_SUITES.contains(&own.as_str())) {
            let known = CIPHER_SUITES.join(", ");
            return Err(format!(
                "tls.cipherSuites: unknown or insecure cipher suite {unknown:?}; choose from {known}"
            ));
        }
        if let Some(unknown) = self.curve_preferences.iter().find(|own| !CURVES.contains(own)) {
            return Err(format!("tls.curvePreferences: unknown curve {unknown}; choose from {CURVES:?}"));
        }
        if version == "VersionTLS13" && !self.cipher_suites.is_empty() {
            return Err(
                "tls.cipherSuites: leave it out, because those of TLS 1.3 cannot be chosen".to_owned()
            );
        }
        Ok(())
    }
}
