//! `quintet history-server`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{ArgAction, Args};
use quintet_api::config::Log;
use quintet_api::quantity::Quantity;
use quintet_history::{CacheLimits, History, HistoryOptions, StorageConfig, parse_duration};
use tokio::net::TcpListener;

use crate::signals::Signals;
use crate::{logging, output};

/// Serve the history of Ray clusters
///
/// It answers as a Ray dashboard does, for clusters that are gone: from what
/// 'quintet collector' or KubeRay's collector stored. Requests for clusters that
/// still run go to their dashboards. There is no authentication: put a proxy in
/// front, or listen on this machine only.
///
///   quintet history-server --storage-backend local --storage-dir /var/ray-history
///   quintet history-server --storage-backend s3 --storage-root-dir log
///
/// Then open http://localhost:8080/ and choose a session.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The address to listen on.
    #[arg(long, default_value = "localhost", value_name = "HOST")]
    hostname: String,
    /// The port to listen on; 0 for any free one.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Where sessions are stored: local, s3, gcs, azureblob or aliyunoss. The variable STORAGE_BACKEND wins.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    storage_backend: String,
    /// The directory of the back end 'local'.
    #[arg(long, env = "STORAGE_DIR", value_name = "DIR")]
    storage_dir: Option<PathBuf>,
    /// The root of all keys. The variable STORAGE_ROOT_DIR wins.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "PREFIX")]
    storage_root_dir: String,
    /// A JSON file with the settings of the back end.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FILE")]
    storage_backend_config_path: String,
    /// The kubeconfig of the cluster whose RayClusters are shown; that of the pod if none is given.
    #[arg(long, alias = "kubeconfigs", default_value = "", hide_default_value = true, value_name = "FILE")]
    kubeconfig: String,
    /// Serve stored sessions only, without a Kubernetes API.
    #[arg(long)]
    without_kubernetes: bool,
    /// Reach running dashboards through the service proxy of the Kubernetes API.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true,
        action = ArgAction::Set
    )]
    use_kubernetes_proxy: bool,
    /// Authenticate at running dashboards with the tokens of their clusters.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true,
        action = ArgAction::Set
    )]
    use_auth_token_mode: bool,
    /// The front end of an installed Ray: ray/dashboard/client/build of the package ray[default].
    #[arg(long, value_name = "DIR")]
    dashboard_dir: Option<PathBuf>,
    /// Requests per second to the Kubernetes API; accepted for compatibility.
    #[arg(long, default_value_t = 100.0, hide = true, allow_negative_numbers = true)]
    kube_api_qps: f64,
    /// Requests at once to the Kubernetes API; accepted for compatibility.
    #[arg(long, default_value_t = 200, hide = true, allow_negative_numbers = true)]
    kube_api_burst: i64,
    /// How long loading a session may take.
    #[arg(long, default_value = "2m", value_name = "DURATION", value_parser = duration)]
    session_process_timeout: String,
    /// Sessions kept in memory.
    #[arg(long, default_value_t = 100, allow_negative_numbers = true, value_name = "N")]
    session_cache_size: i64,
    /// Memory for sessions; 0 for no limit.
    #[arg(long, default_value = "2Gi", value_name = "QUANTITY", allow_hyphen_values = true)]
    session_cache_max_memory: String,
    /// How long a session is kept after it was last read; 0 for no limit.
    #[arg(long, default_value = "0", value_name = "DURATION", allow_hyphen_values = true, value_parser = duration)]
    session_cache_ttl: String,
}

/// A duration, perhaps with a sign, which only some flags refuse.
fn duration(text: &str) -> Result<String, String> {
    match parse_duration(text.trim_start_matches('-')) {
        Some(_) => Ok(text.to_owned()),
        None => Err("write a duration as 90s or 5m".to_owned()),
    }
}

/// Serves until a signal comes.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    logging::start(&Log::default())?;
    let options = options(arguments)?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let backend = variable("STORAGE_BACKEND").unwrap_or_else(|| arguments.storage_backend.clone());
    if backend.is_empty() {
        bail!("--storage-backend or STORAGE_BACKEND environment variable is required");
    }
    let storage = StorageConfig {
        backend,
        directory: arguments.storage_dir.clone(),
        root: variable("STORAGE_ROOT_DIR").unwrap_or_else(|| arguments.storage_root_dir.clone()),
        config: arguments.storage_backend_config_path.clone(),
    };
    crate::cluster::block_on(serve(arguments, options, &storage))?
}

fn options(arguments: &Arguments) -> anyhow::Result<HistoryOptions> {
    if arguments.kube_api_qps <= 0.0 {
        bail!("--kube-api-qps must be > 0, got {}", arguments.kube_api_qps);
    }
    if arguments.kube_api_burst <= 0 {
        bail!("--kube-api-burst must be > 0, got {}", arguments.kube_api_burst);
    }
    let entries = usize::try_from(arguments.session_cache_size).ok().filter(|it| *it > 0);
    let Some(entries) = entries else {
        bail!("--session-cache-size must be > 0, got {}", arguments.session_cache_size);
    };
    let memory = &arguments.session_cache_max_memory;
    let quantity = memory.parse::<Quantity>().map_err(|error| {
        anyhow::anyhow!(
            "--session-cache-max-memory {memory:?}: {memory:?} is not a valid resource quantity: {error}"
        )
    })?;
    let bytes = u64::try_from(quantity.units()).map_err(|_| {
        anyhow::anyhow!("--session-cache-max-memory {memory:?}: {memory:?} cannot be negative")
    })?;
    let duration = |name: &str, text: &str| -> anyhow::Result<Duration> {
        if text.starts_with('-') {
            bail!("--{name} must be >= 0, got {text}");
        }
        parse_duration(text).with_context(|| format!("--{name}: {text:?} is no duration; write 90s or 5m"))
    };
    Ok(HistoryOptions {
        use_kubernetes_proxy: arguments.use_kubernetes_proxy,
        use_auth_token_mode: arguments.use_auth_token_mode,
        load_timeout: duration("session-process-timeout", &arguments.session_process_timeout)?,
        cache: CacheLimits {
            entries,
            bytes,
            ttl: duration("session-cache-ttl", &arguments.session_cache_ttl)?,
        },
        dashboard_directory: arguments.dashboard_dir.clone(),
        ray_root: std::env::var("RAY_TMP_ROOT")
            .ok()
            .filter(|it| !it.is_empty())
            .unwrap_or_else(|| "/tmp/ray".to_owned()),
    })
}

async fn serve(
    arguments: &Arguments,
    options: HistoryOptions,
    storage: &StorageConfig,
) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let kubernetes = if arguments.without_kubernetes {
        None
    } else {
        Some(config(&arguments.kubeconfig).await.context("Failed to create client manager")?)
    };
    let store = storage.open().map_err(anyhow::Error::msg)?;
    let history = History::new(store, kubernetes, options)?;
    let (hostname, port) = (arguments.hostname.as_str(), arguments.port);
    let listener = TcpListener::bind((hostname, port))
        .await
        .with_context(|| format!("cannot listen on {hostname}:{port}; choose another --port"))?;
    let address = listener.local_addr().context("cannot find out the port")?;
    output::print(&format!("The history of Ray clusters is at http://{address}\nPress ctrl-c to stop.\n"))?;
    history
        .serve(listener, async {
            signals.next().await;
        })
        .await;
    Ok(())
}

async fn config(kubeconfig: &str) -> anyhow::Result<kube::Config> {
    if kubeconfig.contains(',') {
        bail!("only one kubeconfig is supported");
    }
    if kubeconfig.is_empty() {
        return kube::Config::incluster().context(
            "this is no pod of a cluster; give --kubeconfig FILE, or --without-kubernetes to serve stored sessions only",
        );
    }
    let file = kube::config::Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("cannot read the kubeconfig {kubeconfig}"))?;
    kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default())
        .await
        .with_context(|| format!("the kubeconfig {kubeconfig} cannot be used"))
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
    fn switches_may_have_values_as_those_of_kuberay() {
        let read = |flag: &str| {
            let command = Command::try_parse_from(["history-server", flag]).expect("a flag");
            (command.arguments.use_kubernetes_proxy, command.arguments.use_auth_token_mode)
        };
        assert_eq!(read("--use-kubernetes-proxy"), (true, false));
        assert_eq!(read("--use-kubernetes-proxy=true"), (true, false));
        assert_eq!(read("--use-kubernetes-proxy=false"), (false, false));
        assert_eq!(read("--use-auth-token-mode=true"), (false, true));
    }
}
