//! What all components of one process share.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    duration::GoDuration,
    names::{MAX_LABEL, is_dns_label},
};

/// Settings of the process. Every address is `host:port`; an empty host means all interfaces, and `0` turns
/// an endpoint off. Without an address the program decides by where it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    /// The namespace Quintet runs in; absent, the pod's own.
    pub namespace: Option<String>,
    /// Namespaces to watch; all, unless some are named.
    pub watch_namespaces: Vec<String>,
    /// Where metrics are served.
    pub metrics_bind_address: Option<String>,
    /// Where `/healthz` and `/readyz` are served.
    pub health_bind_address: Option<String>,
    /// Who of several replicas does the work.
    pub leader_election: LeaderElection,
    /// The admission and conversion webhooks.
    pub webhook: Webhook,
    /// The connection to the API server.
    pub client: Client,
    /// What is logged, and how.
    pub log: Log,
    /// Objects worked on at the same time, per controller.
    pub concurrency: usize,
}

impl Process {
    /// Rejects names that no namespace can have: a misspelled one would silently select nothing.
    pub(super) fn check_namespaces(&self) -> Result<(), String> {
        match self.watch_namespaces.iter().find(|name| !is_dns_label(name)) {
            None => Ok(()),
            Some(name) => Err(format!(
                "watchNamespaces (watchNamespace in KubeRay's format): \"{name}\" is not a valid namespace name; use \
                 lower-case letters, digits and hyphens, at most {MAX_LABEL}"
            )),
        }
    }
}

impl Default for Process {
    fn default() -> Self {
        Self {
            namespace: None,
            watch_namespaces: Vec::new(),
            metrics_bind_address: None,
            health_bind_address: None,
            leader_election: LeaderElection::default(),
            webhook: Webhook::default(),
            client: Client::default(),
            log: Log::default(),
            concurrency: 8,
        }
    }
}

/// Leader election by Lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LeaderElection {
    /// Whether replicas elect a leader; without it there may be only one replica.
    pub leader_elect: bool,
    /// The name of the Lease.
    pub resource_name: String,
    /// The namespace of the Lease; absent, Quintet's own.
    pub resource_namespace: Option<String>,
    /// How long a leader that is not heard of keeps the lead.
    pub lease_duration: GoDuration,
    /// How long a leader tries to renew before it gives up the lead.
    pub renew_deadline: GoDuration,
    /// How long to wait between tries.
    pub retry_period: GoDuration,
    /// What the lead is kept in; only `leases` is known.
    pub resource_lock: ResourceLock,
}

/// What the lead is kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceLock {
    /// A Lease.
    #[default]
    Leases,
}

impl LeaderElection {
    /// Two replicas must never both believe that they lead, and none may spin.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_ordered = self.lease_duration > self.renew_deadline && self.renew_deadline > self.retry_period;
        if self.leader_elect && !(is_ordered && self.retry_period > GoDuration::default()) {
            return Err(format!(
                "leaderElection: leaseDuration ({}) must be longer than renewDeadline ({}), that longer than retryPeriod ({}), and that longer than 0s",
                self.lease_duration, self.renew_deadline, self.retry_period
            ));
        }
        Ok(())
    }
}

impl Default for LeaderElection {
    /// The durations every Kubernetes controller uses.
    fn default() -> Self {
        Self {
            leader_elect: true,
            resource_name: "quintet-leader".into(),
            resource_namespace: None,
            lease_duration: GoDuration::from_secs(15),
            renew_deadline: GoDuration::from_secs(10),
            retry_period: GoDuration::from_secs(2),
            resource_lock: ResourceLock::Leases,
        }
    }
}

/// The webhook server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Webhook {
    /// The address to listen on; empty means all interfaces.
    pub host: Option<String>,
    /// The port to listen on.
    pub port: u16,
    /// A directory with `tls.crt` and `tls.key` that another program provides; absent, Quintet issues its own.
    pub cert_dir: Option<String>,
    /// The Service through which the API server reaches the webhooks.
    pub service_name: String,
    /// The Secret in which Quintet keeps the certificate it made.
    pub secret_name: String,
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            host: None,
            port: 9443,
            cert_dir: None,
            service_name: "quintet-webhook".into(),
            secret_name: "quintet-webhook-cert".into(),
        }
    }
}

/// Limits of the connection to the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Client {
    /// Requests a second, on average; absent or negative, as many as the API server bears.
    #[serde(deserialize_with = "rate")]
    pub qps: Option<u32>,
    /// Requests at once after a pause.
    pub burst: Option<u32>,
}

/// Reads a rate, which upstream's formats write with or without a fraction. A negative one means no limit.
pub(super) fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let rate = Option::<f64>::deserialize(deserializer)?.filter(|rate| *rate > 0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and it saturates")]
    Ok(rate.map(|rate| rate.ceil() as u32))
}

/// The log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Log {
    /// What is logged: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,kube=warn`.
    pub level: String,
    /// How it is written; absent, as text on a terminal and as JSON elsewhere.
    pub format: Option<LogFormat>,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into(), format: None }
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[serde(alias = "console")]
    Text,
    /// For machines.
    Json,
}
