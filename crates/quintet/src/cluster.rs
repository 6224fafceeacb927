//! Reaching a cluster.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use quintet_controller::error::innermost;

/// How long a cluster may take to answer its first request. A pod that gives up is started again.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

#[derive(Args, Clone)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArguments {
    /// The kubeconfig to use; otherwise $KUBECONFIG, ~/.kube/config, or the pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use, if not its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// A cluster that has answered.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) address: String,
    /// The namespace of the context or of the pod.
    pub(crate) namespace: String,
}

impl ClusterArguments {
    /// The cluster of a kubeconfig.
    pub(crate) fn of(kubeconfig: &Path) -> Self {
        Self { kubeconfig: Some(kubeconfig.to_owned()), context: None }
    }

    /// Whether the command line names a cluster.
    pub(crate) fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// Whether the user names no cluster.
    pub(crate) fn is_default(&self) -> bool {
        !self.is_given() && std::env::var_os("KUBECONFIG").is_none()
    }

    /// How to connect.
    pub(crate) async fn configure(self) -> anyhow::Result<Config> {
        let source = self.source();
        self.config().await.with_context(|| format!("cannot use {source}"))
    }

    /// Connects, and makes sure that the API server answers.
    pub(crate) async fn connect(self) -> anyhow::Result<Cluster> {
        let source = self.source();
        let config = self.configure().await?;
        let (address, namespace) = (config.cluster_url.to_string(), config.default_namespace.clone());
        let client =
            quintet_controller::api::connect(config).with_context(|| format!("cannot use {source}"))?;
        let answer = tokio::time::timeout(FIRST_ANSWER, client.apiserver_version()).await;
        let advice = format!("cannot reach the Kubernetes API at {address}, named by {source}");
        answer
            .map_err(|_| anyhow!("no answer within {} s", FIRST_ANSWER.as_secs()))
            .and_then(|answer| answer.map_err(|error| anyhow!(innermost(&error))))
            .context(advice)?;
        Ok(Cluster { client, address, namespace })
    }

    fn source(&self) -> String {
        let context = self.context.as_ref().map(|name| format!(", context {name}")).unwrap_or_default();
        match &self.kubeconfig {
            Some(file) => format!("--kubeconfig {}{context}", file.display()),
            None if std::env::var_os("KUBECONFIG").is_some() => format!("$KUBECONFIG{context}"),
            None => format!("~/.kube/config or the pod's service account{context}"),
        }
    }

    async fn config(self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context, ..KubeConfigOptions::default() };
        if let Some(file) = self.kubeconfig {
            let kubeconfig = Kubeconfig::read_from(file)?;
            return Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?);
        }
        if options.context.is_some() {
            return Ok(Config::from_kubeconfig(&options).await?);
        }
        Ok(Config::infer().await?)
    }
}

/// Whether this process runs in a pod of the cluster.
pub(crate) fn is_in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

static BEFORE_THREADS: OnceLock<fn()> = OnceLock::new();

/// Calls `start` before the first thread is started.
pub(crate) fn before_threads(start: fn()) {
    // The first one counts: a process runs one command.
    let _ = BEFORE_THREADS.set(start);
}

/// Runs an asynchronous command to its end.
pub(crate) fn block_on<F: Future>(future: F) -> anyhow::Result<F::Output> {
    if let Some(start) = BEFORE_THREADS.get() {
        start();
    }
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    // Fails only if one is installed already, which is as good.
    let _ = provider.install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    Ok(runtime.block_on(future))
}
