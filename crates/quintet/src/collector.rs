//! `quintet collector`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use quintet_api::config::Log;
use quintet_history::{Collector, CollectorSettings, StorageConfig};
use tokio::net::TcpListener;

use crate::logging;
use crate::signals::Signals;

/// Store what happens in a Ray cluster, for the history server
///
/// It runs beside every Ray node, in the same pod: it takes Ray's events on a
/// port, stores the log files of ended sessions, and on the head also answers of
/// the dashboard. Ray needs these variables:
///
///   RAY_enable_ray_event                                   true
///   RAY_enable_core_worker_ray_event_to_aggregator         true
///   RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR
///                                        http://localhost:8084/v1/events
///   RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES
///          a list of types of events; docs/history.md has the whole one
///
/// POD_IP and FQ_RAY_IP say which node this is. Every option can be set by a
/// variable, which wins; docs/history.md lists them. The Ray operator adds the
/// collector to pods of clusters with spec.historyServerOptions.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// What the node is: Head or Worker.
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// The RayCluster.
    #[arg(long, value_name = "NAME")]
    ray_cluster_name: Option<String>,
    /// Its namespace.
    #[arg(long, value_name = "NAMESPACE")]
    ray_cluster_namespace: Option<String>,
    /// The kind of what the cluster belongs to: RayJob or RayService.
    #[arg(long, value_name = "KIND")]
    owner_kind: Option<String>,
    /// The name of what the cluster belongs to.
    #[arg(long, value_name = "NAME")]
    owner_name: Option<String>,
    /// Where to store: local, s3, gcs, azureblob or aliyunoss.
    #[arg(long, value_name = "NAME")]
    storage_backend: Option<String>,
    /// The directory of the back end 'local'.
    #[arg(long, env = "STORAGE_DIR", value_name = "DIR")]
    storage_dir: Option<PathBuf>,
    /// The root of all keys.
    #[arg(long, value_name = "PREFIX")]
    storage_root_dir: Option<String>,
    /// A JSON file with the settings of the back end.
    #[arg(long, value_name = "FILE")]
    storage_backend_config_path: Option<String>,
    /// The port for events [default: 8084].
    #[arg(long, value_name = "PORT")]
    events_port: Option<String>,
    /// Take events [default: true].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_event_collector: Option<String>,
    /// Store logs and answers of the dashboard [default: true].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_log_collector: Option<String>,
    /// The dashboard, for the head [default: http://localhost:8265].
    #[arg(long, value_name = "URL")]
    ray_dashboard_address: Option<String>,
    /// Where events are until they are stored [default: /tmp/ray/event-data].
    #[arg(long, value_name = "DIR")]
    event_data_dir: Option<String>,
    /// The age at which an event file is stored [default: 5m].
    #[arg(long, value_name = "DURATION")]
    event_rotation_interval: Option<String>,
    /// The size at which an event file is stored [default: 100].
    #[arg(long, value_name = "MEGABYTES")]
    event_max_file_size_mb: Option<String>,
    /// Disk for events; at four fifths of it, events are refused [default: 200].
    #[arg(long, value_name = "MEGABYTES")]
    event_max_disk_mb: Option<String>,
    /// Compress event files [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    event_compression_enabled: Option<String>,
    /// Has no effect; accepted for compatibility.
    #[arg(long, hide = true)]
    log_batching: Option<String>,
    /// Has no effect; accepted for compatibility.
    #[arg(long, hide = true)]
    push_interval: Option<String>,
}

/// Collects until a signal comes, then stores what is left.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    logging::start(&Log::default())?;
    let it = arguments;
    let flags: BTreeMap<&str, &Option<String>> = [
        ("role", &it.role),
        ("ray-cluster-name", &it.ray_cluster_name),
        ("ray-cluster-namespace", &it.ray_cluster_namespace),
        ("owner-kind", &it.owner_kind),
        ("owner-name", &it.owner_name),
        ("storage-backend", &it.storage_backend),
        ("storage-root-dir", &it.storage_root_dir),
        ("storage-backend-config-path", &it.storage_backend_config_path),
        ("events-port", &it.events_port),
        ("enable-event-collector", &it.enable_event_collector),
        ("enable-log-collector", &it.enable_log_collector),
        ("ray-dashboard-address", &it.ray_dashboard_address),
        ("event-data-dir", &it.event_data_dir),
        ("event-rotation-interval", &it.event_rotation_interval),
        ("event-max-file-size-mb", &it.event_max_file_size_mb),
        ("event-max-disk-mb", &it.event_max_disk_mb),
        ("event-compression-enabled", &it.event_compression_enabled),
    ]
    .into();
    let flag = |name: &str| flags.get(name).and_then(|value| (*value).clone());
    let settings =
        CollectorSettings::read(flag, |name| std::env::var(name).ok()).map_err(anyhow::Error::msg)?;
    let storage = StorageConfig {
        backend: settings.storage_backend.clone(),
        directory: arguments.storage_dir.clone(),
        root: settings.storage_root.clone(),
        config: settings.storage_config.clone(),
    };
    if !storage.is_supported() {
        anyhow::bail!(settings.unsupported_backend());
    }
    crate::cluster::block_on(collect(settings, &storage))?
}

async fn collect(settings: CollectorSettings, storage: &StorageConfig) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let port = settings.events_port;
    let store = storage.open().map_err(anyhow::Error::msg)?;
    let collector = Collector::start(settings, store).await.map_err(anyhow::Error::msg)?;
    // All interfaces of the pod, as Ray's aggregator may use any of them.
    let listener = TcpListener::bind(("0.0.0.0", port))
        .await
        .with_context(|| format!("cannot listen on port {port}; choose another --events-port"))?;
    collector
        .run(Some(listener), async {
            signals.next().await;
        })
        .await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Arguments;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn switches_need_no_value() {
        let flags =
            ["collector", "--event-compression-enabled", "--enable-log-collector=false", "--role=Head"];
        let it = Command::try_parse_from(flags).map(|command| command.arguments).expect("flags");
        assert_eq!(it.event_compression_enabled.as_deref(), Some("true"));
        assert_eq!(it.enable_log_collector.as_deref(), Some("false"));
        assert_eq!((it.enable_event_collector, it.role.as_deref()), (None, Some("Head")));
    }
}
