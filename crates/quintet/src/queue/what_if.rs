//! `quintet queue what-if`.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use quintet_queue_engine::Engine;
use quintet_queue_engine::names::WorkloadId;
use quintet_queue_engine::what_if::Change;
use serde::Serialize;
use serde_json::Value;

use super::snapshot::{EngineArguments, Snapshot, key_in};
use super::{Place, ReportFormat};
use crate::catalog::Catalog;

const KUEUE: &str = "kueue.x-k8s.io/";

/// Try out a change: what would start, what would be preempted, and what would have to wait.
///
/// Nothing is changed. Give objects as they would be applied: ClusterQueues, Cohorts, Workloads or Nodes.
#[derive(Args)]
#[command(after_help = "Examples:
  quintet queue what-if -f larger-queue.yaml          another quota, policy or cohort
  quintet queue what-if --finish job/train            if this job ended now
  quintet queue what-if --priority job/train=1000     if it were more important")]
pub(super) struct Arguments {
    /// A file with objects to create or replace; - reads standard input.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// A Workload that ends, or its job as KIND/NAME.
    #[arg(long, value_name = "WORKLOAD|KIND/NAME")]
    finish: Vec<String>,
    /// Another priority for a Workload, or for that of a job.
    #[arg(long, value_name = "WORKLOAD=PRIORITY", value_parser = priority)]
    priority: Vec<(String, i32)>,
    /// Print text, JSON or YAML.
    #[arg(short, long, default_value = "table")]
    output: ReportFormat,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    place: Place,
}

fn priority(text: &str) -> Result<(String, i32), String> {
    let wrong = || "write it as NAME=1000".to_owned();
    let (name, value) = text.rsplit_once('=').ok_or_else(wrong)?;
    Ok((name.to_owned(), value.parse().map_err(|_| wrong())?))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// Workloads that would run with the change and do not without.
    would_start: Vec<String>,
    would_be_preempted: Vec<String>,
    /// Workloads that would run without the change and wait with it.
    would_wait: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    livelock: Option<String>,
}

pub(super) async fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let Arguments { filename, finish, priority, output, engine, place } = arguments;
    ensure!(
        !(filename.is_empty() && finish.is_empty() && priority.is_empty()),
        "there is nothing to try out; give -f FILE, --finish or --priority"
    );
    let mut objects = Vec::new();
    for file in &filename {
        objects.extend(read(file, catalog)?);
    }
    let (cluster, namespace) = place.connect().await?;
    let mut snapshot = Snapshot::read(&cluster.client, &engine, catalog).await?;
    let now = snapshot.time();
    let mut changes = Vec::new();
    for name in &finish {
        changes.push(Change::Finish(found(&snapshot, &namespace, name)?));
    }
    for (name, value) in &priority {
        changes.push(Change::SetPriority(found(&snapshot, &namespace, name)?, *value));
    }
    for object in &mut objects {
        let is_workload = object["kind"] == "Workload";
        if is_workload && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = namespace.as_str().into();
        }
        changes.push(snapshot.engine.change_by(object)?);
    }
    let answer = snapshot.engine.what_if(&changes, now);
    // Workloads of the files get the same ids here as in the trial.
    for object in objects.iter().filter(|object| object["kind"] == "Workload") {
        snapshot.engine.apply_json(object, now)?;
    }
    let engine = &snapshot.engine;
    let report = Report {
        would_start: named(engine, &answer.admitted),
        would_be_preempted: named(engine, &answer.preempted),
        would_wait: named(engine, &answer.delayed),
        livelock: answer.livelock.map(|livelock| livelock.message(engine)),
    };
    super::print(&report, || text(&report), output)
}

fn found(snapshot: &Snapshot, namespace: &str, name: &str) -> anyhow::Result<WorkloadId> {
    let (key, _) = snapshot.find(namespace, name)?;
    snapshot
        .engine
        .workload_id(&key.0, &key.1)
        .ok_or_else(|| anyhow!("Workload {} cannot be scheduled; the warning above says why", key.1))
}

fn named(engine: &Engine, ids: &[WorkloadId]) -> Vec<String> {
    let text = |(namespace, name): (String, String)| format!("{namespace}/{name}");
    ids.iter().filter_map(|id| key_in(engine, *id)).map(text).collect()
}

/// The objects of a file, in the version that the engine reads.
fn read(file: &Path, catalog: &Catalog) -> anyhow::Result<Vec<Value>> {
    let name = file.display();
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("cannot read standard input")?;
        text
    } else {
        fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?
    };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{name} is not valid YAML"))?;
    let mut objects = Vec::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        if !["ClusterQueue", "Cohort", "Workload", "Node"].contains(&kind.as_str()) {
            bail!("{name}: a {kind:?} cannot be tried out; give ClusterQueues, Cohorts, Workloads or Nodes");
        }
        let version = document["apiVersion"].as_str().unwrap_or_default();
        let is_kueue = version.starts_with(KUEUE);
        objects.push(if is_kueue {
            let converted = catalog.convert(&document, "kueue.x-k8s.io/v1beta2");
            converted.with_context(|| format!("{name}: cannot read the {kind}"))?
        } else {
            document
        });
    }
    Ok(objects)
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let parts = [
        ("Would start", &report.would_start),
        ("Would be preempted", &report.would_be_preempted),
        ("Would have to wait", &report.would_wait),
    ];
    for (title, names) in parts.into_iter().filter(|(_, names)| !names.is_empty()) {
        let _ = writeln!(text, "{title}:");
        for name in names {
            let _ = writeln!(text, "- {name}");
        }
    }
    if text.is_empty() {
        text += "Nothing would change.\n";
    }
    if let Some(livelock) = &report.livelock {
        let _ = writeln!(text, "Warning: {livelock}");
    }
    text
}
