//! `quintet simulate`.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use quintet_queue_engine::simulate;

use crate::output;

/// Simulate queues and workloads in virtual time: wait times and utilization
///
/// The file describes queues and arriving workloads, in the format of Kueue's
/// scheduler performance tests. The engine is the one that decides in production.
/// For example:
///
///   cohorts:
///   - className: team
///     count: 1
///     queuesSets:
///     - className: queue
///       count: 2
///       nominalQuota: 20
///       borrowingLimit: 20
///       workloadsSets:
///       - count: 100
///         creationIntervalMs: 100
///         workloads:
///         - {className: small, runtimeMs: 2000, priority: 50, request: 5}
///
/// Quotas and requests are CPUs, per queue and per pod. Queues may also have
/// preemption policies (withinClusterQueue, reclaimWithinCohort), workloads a
/// number of pods (podCount). With nodes in racks (topology) workloads may request
/// a placement (tasConstraint, tasLevel, sliceSize). Preemption livelocks are
/// reported, with what can end them.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The file to simulate; - reads standard input.
    file: PathBuf,
    /// Print tables and a plot for people, or JSON for programs.
    #[arg(short, long, default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let file = &arguments.file;
    let name = if is_stdin(file) { "standard input".to_owned() } else { file.display().to_string() };
    let text = read(file).with_context(|| format!("cannot read {name}"))?;
    let report = simulate::simulate(&text).with_context(|| format!("cannot simulate {name}"))?;
    match arguments.output {
        Format::Text => output::print(&report.text()),
        Format::Json => output::print_json(&report),
    }
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

fn read(file: &Path) -> io::Result<String> {
    if !is_stdin(file) {
        return fs::read_to_string(file);
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}
