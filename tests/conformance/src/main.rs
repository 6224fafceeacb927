//! Runs the suite against the cluster of a kubeconfig.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use kube::config::Kubeconfig;
use quintet_conformance::{Report, Verdict};

/// Does a cluster keep the Kubernetes API's promises?
///
/// Needs all permissions on the cluster; every case works in a namespace of its own and cleans up.
#[derive(Parser)]
struct Arguments {
    /// The kubeconfig of the cluster.
    #[arg(long, env = "KUBECONFIG_UNDER_TEST", required_unless_present_any = ["table", "compare"])]
    kubeconfig: Option<PathBuf>,
    /// Only promises whose area or sentence contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Also write the results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// What to add to the version of the cluster in the results, such as what its nodes are.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Check nothing, but print the results in these files as a Markdown table, a column for each.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    table: Vec<PathBuf>,
    /// Check no promises, but record in this file what the cluster says to a table of roles, bindings and requests.
    #[arg(long, value_name = "FILE")]
    authorization: Option<PathBuf>,
    /// What that table is made from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many sets of roles and bindings, and requests to each, that table has.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Check nothing, but compare what two clusters said to that table.
    #[arg(long, value_name = "FILE", num_args = 2)]
    compare: Vec<PathBuf>,
    /// How many cases run at a time.
    #[arg(long, default_value_t = 8)]
    at_a_time: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if !arguments.table.is_empty() {
        let reports: Vec<Report> = arguments.table.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        print(&quintet_conformance::table(&reports));
        return Ok(ExitCode::SUCCESS);
    }
    if let [one, other] = &arguments.compare[..] {
        return compare(&read::<Vec<_>>(one)?, &read::<Vec<_>>(other)?);
    }
    let path = arguments.kubeconfig.context("give --kubeconfig")?;
    let kubeconfig =
        Kubeconfig::read_from(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let client = quintet_conformance::connect(kubeconfig).await?;
    if let Some(path) = &arguments.authorization {
        let verdicts = quintet_conformance::verdicts(client, arguments.seed, arguments.rounds).await?;
        let text = serde_json::to_string_pretty(&verdicts)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        print(&format!("authorization: {} cases recorded\n", verdicts.len()));
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = quintet_conformance::run(client, &arguments.filter, arguments.at_a_time).await?;
    if let Some(note) = &arguments.note {
        report.version = format!("{}, {note}", report.version);
    }
    print(&report.text());
    if let Some(path) = &arguments.report {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if report.broken().count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn compare(one: &[Verdict], other: &[Verdict]) -> anyhow::Result<ExitCode> {
    let found = quintet_conformance::differences(one, other)?;
    for difference in &found {
        print(&format!("{difference}\n"));
    }
    print(&format!("authorization: {} cases, {} differences\n", one.len(), found.len()));
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is not what this program writes", path.display()))
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn print(text: &str) {
    print!("{text}");
}
