//! Runs the suite against the cluster of a kubeconfig.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use kube::config::Kubeconfig;

/// Does a cluster keep the Kubernetes API's promises?
///
/// Needs all permissions on the cluster; every case works in a namespace of its own and cleans up.
#[derive(Parser)]
struct Arguments {
    /// The kubeconfig of the cluster.
    #[arg(long, env = "KUBECONFIG_UNDER_TEST")]
    kubeconfig: PathBuf,
    /// Only promises whose area or sentence contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    /// How many cases run at a time.
    #[arg(long, default_value_t = 8)]
    at_a_time: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(&arguments.kubeconfig)
        .with_context(|| format!("cannot read {}", arguments.kubeconfig.display()))?;
    let client = quintet_conformance::connect(kubeconfig).await?;
    let report = quintet_conformance::run(client, &arguments.filter, arguments.at_a_time).await;
    let text = if arguments.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.text() };
    #[expect(clippy::print_stdout, reason = "this is what the program is for")]
    {
        print!("{text}");
    }
    Ok(if report.broken().count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
