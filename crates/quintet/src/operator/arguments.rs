//! Flags of `quintet operator`: each overrides what the configuration file says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{ArgAction, Args};
use quintet_api::config::{Configuration, Controllers};

use crate::catalog::Catalog;
use crate::cluster::ClusterArguments;

/// Run the operators against a cluster.
///
/// Needs the CustomResourceDefinitions (`quintet crds --apply`). Several replicas may run: one leads, the others
/// keep their caches warm and serve webhooks. Stops cleanly on SIGTERM and Ctrl-C. Outside a pod it listens on
/// loopback only, and waits for an API server that does not respond; in a pod it exits then, to be restarted.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    configuration: ConfigurationArguments,
    /// The namespace Quintet keeps its Lease and its Secret in [default: the pod's own, otherwise quintet-system].
    #[arg(long)]
    namespace: Option<String>,
    /// Whether replicas elect a leader [default: true].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    leader_elect: Option<bool>,
    /// Objects reconciled at the same time, per controller [default: 8].
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,

    /// Where metrics are served; 0 disables them [default: 127.0.0.1:8081, in a pod :8080].
    #[arg(long, value_name = "HOST:PORT", help_heading = "Endpoints")]
    metrics_bind_address: Option<String>,
    /// Where /healthz and /readyz are served; 0 disables them [default: 127.0.0.1:8081, in a pod :8081].
    #[arg(long, value_name = "HOST:PORT", help_heading = "Endpoints")]
    health_probe_bind_address: Option<String>,
    /// The address webhooks are served at; "" means all interfaces [default: 127.0.0.1, in a pod all interfaces].
    #[arg(long, value_name = "HOST", help_heading = "Endpoints")]
    webhook_host: Option<String>,
    /// The port webhooks are served at [default: 9443].
    #[arg(long, value_name = "PORT", help_heading = "Endpoints")]
    webhook_port: Option<u16>,
    /// A directory with tls.crt and tls.key that another program keeps current, such as cert-manager.
    #[arg(long, value_name = "DIR", help_heading = "Endpoints")]
    webhook_cert_dir: Option<PathBuf>,

    /// What is logged: error, warn, info, debug, trace, or a filter like info,kube=warn [default: info].
    #[arg(long, value_name = "LEVEL", help_heading = "Log")]
    log_level: Option<String>,
    /// How it is logged [default: text on a terminal, JSON elsewhere].
    #[arg(long, value_name = "text|json", value_parser = log_format, help_heading = "Log")]
    log_format: Option<quintet_api::config::LogFormat>,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// What the operators run with; the permissions they need follow from it.
#[derive(Args, Clone)]
pub(crate) struct ConfigurationArguments {
    /// A configuration file: Quintet's own format, KubeRay's, Kueue's or CodeFlare's, or several of them as
    /// YAML documents of one file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The components to run; see 'quintet components'. All, unless some are named.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    components: Option<Vec<String>>,
    /// The controllers of the queue operator to run: * for all, NAME for one, -NAME to leave one out [default: *].
    #[arg(long, value_name = "NAME", value_delimiter = ',', allow_hyphen_values = true)]
    controllers: Option<Vec<String>>,
    /// Watch these namespaces only; all, unless some are named.
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    watch_namespaces: Option<Vec<String>>,
    /// Switch feature gates, by upstream's names: RayCronJob=true,PartialAdmission=false.
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',', value_parser = gate)]
    feature_gates: Vec<(String, bool)>,
}

impl ConfigurationArguments {
    /// A file alone.
    pub(crate) fn of_file(config: Option<PathBuf>) -> Self {
        Self {
            config,
            components: None,
            controllers: None,
            watch_namespaces: None,
            feature_gates: Vec::new(),
        }
    }

    /// The configuration file with the flags laid over it.
    pub(crate) fn into_configuration(self, catalog: &Catalog) -> anyhow::Result<Configuration> {
        let Self { config, components, controllers, watch_namespaces, feature_gates } = self;
        let mut configuration = match config.as_deref() {
            Some(file) => read(file, catalog)?,
            None => Configuration::default(),
        };
        configuration.components = components.or(configuration.components);
        overlay(&mut configuration.controllers, controllers.map(Controllers));
        configuration.feature_gates.extend(feature_gates.into_iter().collect::<BTreeMap<_, _>>());
        if let Some(namespaces) = watch_namespaces {
            configuration.process.watch_namespaces =
                namespaces.into_iter().filter(|name| !name.is_empty()).collect();
        }
        catalog.schema().check(&configuration)?;
        Ok(configuration)
    }

    /// The flags, as `quintet operator` takes them.
    pub(crate) fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        if let Some(components) = &self.components {
            flags.push(format!("--components={}", components.join(",")));
        }
        if let Some(controllers) = &self.controllers {
            flags.push(format!("--controllers={}", controllers.join(",")));
        }
        if let Some(namespaces) = &self.watch_namespaces {
            flags.push(format!("--watch-namespaces={}", namespaces.join(",")));
        }
        if !self.feature_gates.is_empty() {
            let gates: Vec<_> = self.feature_gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
            flags.push(format!("--feature-gates={}", gates.join(",")));
        }
        flags
    }
}

impl Arguments {
    /// The configuration file with the flags laid over it.
    pub(super) fn into_configuration(
        self,
        catalog: &Catalog,
    ) -> anyhow::Result<(Configuration, ClusterArguments)> {
        let Self {
            configuration,
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
        let mut configuration = configuration.into_configuration(catalog)?;
        let process = &mut configuration.process;
        process.namespace = namespace.or_else(|| process.namespace.take());
        process.leader_election.leader_elect = leader_elect.unwrap_or(process.leader_election.leader_elect);
        process.concurrency = concurrency.unwrap_or(process.concurrency);
        overlay(&mut process.metrics_bind_address, metrics_bind_address.map(Some));
        overlay(&mut process.health_bind_address, health_probe_bind_address.map(Some));
        overlay(&mut process.webhook.host, webhook_host.map(Some));
        process.webhook.port = webhook_port.unwrap_or(process.webhook.port);
        let cert_dir = webhook_cert_dir.map(|directory| directory.display().to_string());
        process.webhook.cert_dir = cert_dir.or_else(|| process.webhook.cert_dir.take());
        overlay(&mut process.log.level, log_level);
        process.log.format = log_format.or(process.log.format);
        catalog.schema().check(&configuration)?;
        Ok((configuration, cluster))
    }
}

fn overlay<T>(setting: &mut T, flag: Option<T>) {
    if let Some(flag) = flag {
        *setting = flag;
    }
}

fn read(file: &Path, catalog: &Catalog) -> anyhow::Result<Configuration> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("cannot read the configuration file {}", file.display()))?;
    catalog
        .schema()
        .read(&text)
        .with_context(|| format!("cannot use the configuration file {}", file.display()))
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
