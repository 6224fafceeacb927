//! Runs the suite against the cluster of a kubeconfig.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use kube::config::Kubeconfig;
use quintet_conformance::Report;

/// Does a cluster keep the Kubernetes API's promises?
///
/// Needs all permissions on the cluster; every case works in a namespace of its own and cleans up.
#[derive(Parser)]
struct Arguments {
    /// The kubeconfig of the cluster.
    #[arg(long, env = "KUBECONFIG_UNDER_TEST", required_unless_present = "table")]
    kubeconfig: Option<PathBuf>,
    /// Only promises whose area or sentence contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Also write the results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Check nothing, but print the results in these files as a Markdown table, a column for each.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    table: Vec<PathBuf>,
    /// How many cases run at a time.
    #[arg(long, default_value_t = 8)]
    at_a_time: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if !arguments.table.is_empty() {
        let reports: Vec<_> = arguments.table.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        print(&quintet_conformance::table(&reports));
        return Ok(ExitCode::SUCCESS);
    }
    let path = arguments.kubeconfig.context("give --kubeconfig")?;
    let kubeconfig =
        Kubeconfig::read_from(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let client = quintet_conformance::connect(kubeconfig).await?;
    let report = quintet_conformance::run(client, &arguments.filter, arguments.at_a_time).await?;
    print(&report.text());
    if let Some(path) = &arguments.report {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if report.broken().count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no report", path.display()))
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn print(text: &str) {
    print!("{text}");
}
