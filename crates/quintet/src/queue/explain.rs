//! `quintet queue explain`.

use std::fmt::Write as _;

use clap::Args;
use jiff::Timestamp;
use quintet_queue_engine::explain::{Explanation, QueuePosition, Shortage};
use quintet_queue_engine::{Amount, Engine};
use serde::Serialize;

use super::pending::start_text;
use super::runtimes::{self, ForecastArguments, Runtimes};
use super::snapshot::{EngineArguments, Snapshot, key_in, owners};
use super::{Place, ReportFormat};
use crate::catalog::Catalog;

/// Explain why a Workload waits: what is missing, who holds it, and when it would start.
#[derive(Args)]
pub(super) struct Arguments {
    /// The Workload, or its job as KIND/NAME.
    #[arg(value_name = "WORKLOAD|KIND/NAME")]
    name: String,
    #[command(flatten)]
    forecast: ForecastArguments,
    /// Print text, JSON or YAML.
    #[arg(short, long, default_value = "table")]
    output: ReportFormat,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    place: Place,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    namespace: String,
    workload: String,
    job: String,
    cluster_queue: Option<String>,
    /// `Reserved`, `Waiting`, `Inadmissible` or `NotQueued`.
    position: &'static str,
    /// Workloads before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead: Option<usize>,
    /// What keeps it from being tried.
    held_back: Vec<String>,
    message: String,
    missing: Vec<Missing>,
    would_preempt: Vec<String>,
    expected_start: Option<Timestamp>,
}

/// What a flavor lacks.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Missing {
    pod_set: String,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<Quota>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Quota {
    flavor: String,
    resource: String,
    requested: String,
    available: String,
    maximum: String,
    missing: String,
    holders: Vec<Holder>,
    /// Workloads whose end would be enough.
    enough_when_done: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Holder {
    workload: String,
    cluster_queue: String,
    amount: String,
}

pub(super) async fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let Arguments { name, forecast, output, engine, place } = arguments;
    runtimes::check(&forecast)?;
    let (cluster, namespace) = place.connect().await?;
    let mut snapshot = Snapshot::read(&cluster.client, &engine, catalog).await?;
    let (key, workload) = snapshot.find(&namespace, &name)?;
    let job = owners(workload);
    let (starts, _) = Runtimes::new(&snapshot, &forecast).forecast(&forecast);
    let now = snapshot.time();
    let id = snapshot.engine.workload_id(&key.0, &key.1);
    let explanation = id.and_then(|id| snapshot.engine.explain(id, now));
    let Some(explanation) = explanation else {
        anyhow::bail!("Workload {} cannot be scheduled; the warning above says why", key.1)
    };
    let expected_start = starts.get(&key).copied().flatten();
    let engine = &snapshot.engine;
    let text = || {
        let mut text = explanation.text(engine);
        if !matches!(explanation.position, QueuePosition::Reserved) {
            let _ = writeln!(text, "Expected start: {}", start_text(expected_start, snapshot.now));
        }
        text
    };
    let report = Report { expected_start, ..report(&explanation, engine, key, job) };
    super::print(&report, text, output)
}

fn report(
    explanation: &Explanation,
    engine: &Engine,
    (namespace, workload): (String, String),
    job: String,
) -> Report {
    let (position, ahead) = match explanation.position {
        QueuePosition::Reserved => ("Reserved", None),
        QueuePosition::Waiting { ahead } => ("Waiting", Some(ahead)),
        QueuePosition::Inadmissible => ("Inadmissible", None),
        QueuePosition::NotQueued => ("NotQueued", None),
    };
    Report {
        namespace,
        workload,
        job,
        cluster_queue: explanation.queue.map(|queue| engine.names().queue_name(queue).to_owned()),
        position,
        ahead,
        held_back: explanation.held_back.clone(),
        message: explanation.message.clone(),
        missing: explanation.shortages.iter().map(|shortage| missing(shortage, engine)).collect(),
        would_preempt: explanation.would_preempt.iter().map(|one| named(engine, one.workload)).collect(),
        expected_start: None,
    }
}

fn named(engine: &Engine, id: quintet_queue_engine::names::WorkloadId) -> String {
    key_in(engine, id).map(|(namespace, name)| format!("{namespace}/{name}")).unwrap_or_default()
}

fn missing(shortage: &Shortage, engine: &Engine) -> Missing {
    let names = engine.names();
    let quota = shortage.fr.zip(shortage.missing).map(|(fr, missing)| {
        let text = |amount: Amount| {
            if amount.is_unlimited() { amount.to_string() } else { names.format(fr.resource, amount.get()) }
        };
        let holders = shortage.holders.iter().map(|holder| Holder {
            workload: named(engine, holder.workload),
            cluster_queue: names.queue_name(holder.queue).to_owned(),
            amount: text(holder.amount),
        });
        Quota {
            flavor: names.flavor_name(fr.flavor).to_owned(),
            resource: names.resource_name(fr.resource).to_owned(),
            requested: text(shortage.requested),
            available: text(shortage.available),
            maximum: text(shortage.maximum),
            missing: text(missing),
            holders: holders.collect(),
            enough_when_done: shortage.enough.iter().map(|id| named(engine, *id)).collect(),
        }
    });
    Missing { pod_set: shortage.pod_set.to_string(), reason: shortage.text.clone(), quota }
}
