//! Flags of `quintet operator`: each overrides what the configuration file says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, bail};
use clap::{ArgAction, Args};
use quintet_api::config::{Component, Configuration};

use crate::cluster::ClusterArguments;

/// Run the operators against a cluster.
///
/// Needs the CustomResourceDefinitions (`quintet crds --apply`). Several replicas may run: one leads, the others
/// keep their caches warm and answer webhooks. Stops cleanly on SIGTERM and Ctrl-C.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    duties: Duties,
    /// The namespace Quintet keeps its Lease and its Secret in; otherwise the pod's own.
    #[arg(long)]
    namespace: Option<String>,
    /// Whether replicas elect a leader.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    leader_elect: Option<bool>,
    /// Objects worked on at the same time, per controller.
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,

    /// Where metrics are served; 0 turns them off.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Endpoints")]
    metrics_bind_address: Option<String>,
    /// Where /healthz and /readyz are served; 0 turns them off.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Endpoints")]
    health_probe_bind_address: Option<String>,
    /// The address webhooks are served at; all interfaces, unless one is named.
    #[arg(long, value_name = "HOST", help_heading = "Endpoints")]
    webhook_host: Option<String>,
    /// The port webhooks are served at.
    #[arg(long, value_name = "PORT", help_heading = "Endpoints")]
    webhook_port: Option<u16>,
    /// A directory with tls.crt and tls.key that somebody else keeps current, as cert-manager does.
    #[arg(long, value_name = "DIR", help_heading = "Endpoints")]
    webhook_cert_dir: Option<PathBuf>,

    /// What is logged: error, warn, info, debug, trace, or a filter like info,kube=warn.
    #[arg(long, value_name = "LEVEL", help_heading = "Log")]
    log_level: Option<String>,
    /// How it is logged; otherwise as text on a terminal and as JSON elsewhere.
    #[arg(long, value_name = "text|json", value_parser = log_format, help_heading = "Log")]
    log_format: Option<quintet_api::config::LogFormat>,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// What an operator has to do; the rights it needs follow from it.
#[derive(Args)]
pub(crate) struct Duties {
    /// A configuration file: Quintet's own format, KubeRay's, Kueue's or CodeFlare's, or several of them as
    /// YAML documents of one file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The components to run: ray, queue, codeflare, registry, mlflow. All, unless some are named.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = component)]
    components: Option<Vec<Component>>,
    /// Look after these namespaces only; all, unless some are named.
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    watch_namespaces: Option<Vec<String>>,
    /// Switch feature gates, by upstream's names: RayCronJob=true,PartialAdmission=false.
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',', value_parser = gate)]
    feature_gates: Vec<(String, bool)>,
}

impl Duties {
    /// The configuration file with the flags laid over it.
    pub(crate) fn into_configuration(self) -> anyhow::Result<Configuration> {
        let Self { config, components, watch_namespaces, feature_gates } = self;
        let mut configuration = config.as_deref().map(read).transpose()?.unwrap_or_default();
        configuration.components = components.or(configuration.components);
        configuration.feature_gates.extend(feature_gates.into_iter().collect::<BTreeMap<_, _>>());
        if let Some(namespaces) = watch_namespaces {
            configuration.process.watch_namespaces =
                namespaces.into_iter().filter(|name| !name.is_empty()).collect();
        }
        configuration.check().map_err(Error::msg)?;
        Ok(configuration)
    }

    /// The flags, as an operator takes them.
    pub(crate) fn flags(&self) -> anyhow::Result<Vec<String>> {
        let mut flags = Vec::new();
        if let Some(components) = &self.components {
            let names = components.iter().map(|component| match serde_json::to_value(component) {
                Ok(serde_json::Value::String(name)) => Ok(name),
                other => bail!("a component without a name: {other:?}"),
            });
            flags.push(format!("--components={}", names.collect::<Result<Vec<_>, _>>()?.join(",")));
        }
        if let Some(namespaces) = &self.watch_namespaces {
            flags.push(format!("--watch-namespaces={}", namespaces.join(",")));
        }
        if !self.feature_gates.is_empty() {
            let gates: Vec<_> = self.feature_gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
            flags.push(format!("--feature-gates={}", gates.join(",")));
        }
        Ok(flags)
    }
}

impl Arguments {
    /// The configuration file with the flags laid over it.
    pub(super) fn into_configuration(self) -> anyhow::Result<(Configuration, ClusterArguments)> {
        let Self {
            duties,
            namespace,
            leader_elect,
            concurrency,
            metrics_bind_address,
            health_probe_bind_address,
            webhook_host,
            webhook_port,
            webhook_cert_dir,
            log_level,
            log_format,
            cluster,
        } = self;
        let mut configuration = duties.into_configuration()?;
        let process = &mut configuration.process;
        process.namespace = namespace.or_else(|| process.namespace.take());
        process.leader_election.leader_elect = leader_elect.unwrap_or(process.leader_election.leader_elect);
        process.concurrency = concurrency.unwrap_or(process.concurrency);
        overlay(&mut process.metrics_bind_address, metrics_bind_address);
        overlay(&mut process.health_bind_address, health_probe_bind_address);
        overlay(&mut process.webhook.host, webhook_host);
        process.webhook.port = webhook_port.unwrap_or(process.webhook.port);
        let cert_dir = webhook_cert_dir.map(|directory| directory.display().to_string());
        process.webhook.cert_dir = cert_dir.or_else(|| process.webhook.cert_dir.take());
        overlay(&mut process.log.level, log_level);
        process.log.format = log_format.or(process.log.format);
        configuration.check().map_err(Error::msg)?;
        Ok((configuration, cluster))
    }
}

fn overlay(setting: &mut String, flag: Option<String>) {
    if let Some(flag) = flag {
        *setting = flag;
    }
}

fn read(file: &Path) -> anyhow::Result<Configuration> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("cannot read the configuration file {}", file.display()))?;
    Configuration::from_yaml(&text)
        .with_context(|| format!("cannot use the configuration file {}", file.display()))
}

fn component(text: &str) -> Result<Component, String> {
    named(text).ok_or_else(|| "choose from ray, queue, codeflare, registry, mlflow".into())
}

fn log_format(text: &str) -> Result<quintet_api::config::LogFormat, String> {
    named(text).ok_or_else(|| "choose from text, json".into())
}

/// A variant by its name in the configuration file.
fn named<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(text.into()).ok()
}

fn gate(text: &str) -> Result<(String, bool), String> {
    let wrong = || "write it as Gate=true or Gate=false".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    Ok((name.trim().into(), value.trim().parse().map_err(|_| wrong())?))
}
