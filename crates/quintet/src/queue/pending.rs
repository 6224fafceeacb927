//! `quintet queue pending`.

use std::fmt::Write as _;

use clap::Args;
use jiff::Timestamp;
use quintet_api::kueue::WorkloadLifecycle as _;
use quintet_api::kueue::WorkloadPhase;
use quintet_objects::table::age;
use quintet_queue_engine::Mode;
use quintet_queue_engine::explain::Explanation;
use quintet_queue_engine::names::WorkloadId;
use serde::Serialize;

use super::runtimes::{self, ForecastArguments, Runtimes};
use super::snapshot::{EngineArguments, Key, Snapshot, owners};
use super::{ReportFormat, Scope};
use crate::catalog::Catalog;
use crate::output;

/// List what waits for quota: in which order it is tried, when it would start, and what it waits for.
///
/// The order is that of the scheduler. Starts are a forecast: every Workload runs as long as others of its LocalQueue
/// did, and nothing new arrives.
#[derive(Args)]
pub(super) struct Arguments {
    /// Only this ClusterQueue.
    #[arg(short, long, value_name = "NAME")]
    clusterqueue: Option<String>,
    /// Only this LocalQueue.
    #[arg(short, long, value_name = "NAME")]
    localqueue: Option<String>,
    /// List at most this many.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    forecast: ForecastArguments,
    /// Print a table, JSON or YAML.
    #[arg(short, long, default_value = "table")]
    output: ReportFormat,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    items: Vec<Item>,
    /// How many were left out.
    #[serde(skip_serializing_if = "is_zero")]
    more: usize,
    /// Workloads that would preempt each other forever.
    #[serde(skip_serializing_if = "Option::is_none")]
    livelock: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    cluster_queue: Option<String>,
    /// How many of the ClusterQueue are tried before it; none if it is not queued.
    position: Option<usize>,
    namespace: String,
    name: String,
    local_queue: Option<String>,
    job: String,
    priority: i32,
    created: Option<Timestamp>,
    /// None if it would not start within the horizon.
    expected_start: Option<Timestamp>,
    waits_for: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

pub(super) async fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let Arguments { clusterqueue, localqueue, limit, forecast, output, engine, scope } = arguments;
    runtimes::check(&forecast)?;
    let (cluster, namespace) = scope.connect().await?;
    // A ClusterQueue is listed as a whole.
    let namespace = namespace.filter(|_| clusterqueue.is_none());
    let mut snapshot = Snapshot::read(&cluster.client, &engine, catalog).await?;
    if let Some(queue) = clusterqueue.as_ref().filter(|queue| !snapshot.cluster_queues.contains(queue)) {
        anyhow::bail!("ClusterQueue {queue} does not exist; see 'quintet queue list clusterqueue'");
    }
    let mut waiting = waiting(&snapshot);
    waiting.retain(|(key, queue, _)| {
        let workload = snapshot.workloads.get(key);
        let local = workload.and_then(|workload| workload.spec.queue_name.as_ref());
        namespace.as_ref().is_none_or(|namespace| key.0 == *namespace)
            && clusterqueue.as_ref().is_none_or(|name| queue.as_ref() == Some(name))
            && localqueue.as_ref().is_none_or(|name| local == Some(name))
    });
    let more = waiting.len().saturating_sub(limit);
    waiting.truncate(limit);
    let (starts, livelock) = Runtimes::new(&snapshot, &forecast).forecast(&forecast);
    let now = snapshot.time();
    let items: Vec<Item> = waiting
        .into_iter()
        .filter_map(|(key, queue, position)| {
            let id = snapshot.engine.workload_id(&key.0, &key.1)?;
            let explanation = snapshot.engine.explain(id, now)?;
            let workload = snapshot.workloads.get(&key)?;
            Some(Item {
                cluster_queue: queue,
                position,
                local_queue: workload.spec.queue_name.clone(),
                job: owners(workload),
                priority: workload.spec.priority.unwrap_or(0),
                created: workload.metadata.creation_timestamp.as_ref().map(|time| time.0),
                expected_start: starts.get(&key).copied().flatten(),
                waits_for: waits_for(&explanation),
                namespace: key.0,
                name: key.1,
            })
        })
        .collect();
    let report = Report { items, more, livelock };
    if report.items.is_empty() && output == ReportFormat::Table {
        output::complain(&format!("Nothing is pending{}.\n", in_namespace(namespace.as_deref())));
        return Ok(());
    }
    super::print(&report, || text(&report, snapshot.now), output)
}

/// Where something was looked for.
pub(super) fn in_namespace(namespace: Option<&str>) -> String {
    namespace.map(|namespace| format!(" in the namespace {namespace}")).unwrap_or_default()
}

/// Pending Workloads: those of each ClusterQueue in order, then those that are not queued.
fn waiting(snapshot: &Snapshot) -> Vec<(Key, Option<String>, Option<usize>)> {
    let mut waiting = Vec::new();
    for queue in &snapshot.cluster_queues {
        let Some(id) = snapshot.engine.queue_id(queue) else { continue };
        let ordered: Vec<WorkloadId> = snapshot.engine.pending_in_order(id);
        let keys = ordered.into_iter().filter_map(|id| snapshot.key(id)).enumerate();
        waiting.extend(keys.map(|(position, key)| (key, Some(queue.clone()), Some(position))));
    }
    let queued: std::collections::BTreeSet<Key> = waiting.iter().map(|(key, ..)| key.clone()).collect();
    for (key, workload) in &snapshot.workloads {
        if workload.phase() == WorkloadPhase::Pending && !queued.contains(key) {
            let id = workload
                .spec
                .queue_name
                .as_ref()
                .and_then(|queue| snapshot.engine.local_queue(&key.0, queue));
            let queue = id.map(|(_, queue)| snapshot.engine.names().queue_name(queue).to_owned());
            waiting.push((key.clone(), queue, None));
        }
    }
    waiting
}

/// What a Workload waits for, in a line.
pub(super) fn waits_for(explanation: &Explanation) -> String {
    if !explanation.held_back.is_empty() {
        return explanation.held_back.join("; ");
    }
    match explanation.mode {
        Some(Mode::Fit) => "its turn: it fits".to_owned(),
        _ if !explanation.would_preempt.is_empty() => {
            format!("{} Workloads that it preempts", explanation.would_preempt.len())
        }
        _ => explanation.message.clone(),
    }
}

/// When something happens, for people.
pub(super) fn start_text(start: Option<Timestamp>, now: Timestamp) -> String {
    match start {
        None => "not foreseen".to_owned(),
        Some(start) if start <= now => "now".to_owned(),
        Some(start) => format!("in {}", age(start.duration_since(now).as_secs())),
    }
}

fn text(report: &Report, now: Timestamp) -> String {
    let rows: Vec<Vec<String>> = report
        .items
        .iter()
        .map(|item| {
            vec![
                item.cluster_queue.clone().unwrap_or_default(),
                item.position.map(|position| position.to_string()).unwrap_or_default(),
                item.namespace.clone(),
                item.name.clone(),
                item.priority.to_string(),
                item.created.map(|created| age(now.duration_since(created).as_secs())).unwrap_or_default(),
                start_text(item.expected_start, now),
                item.waits_for.clone(),
            ]
        })
        .collect();
    let header = [
        "CLUSTERQUEUE",
        "POSITION",
        "NAMESPACE",
        "WORKLOAD",
        "PRIORITY",
        "AGE",
        "EXPECTED START",
        "WAITS FOR",
    ];
    let mut text = output::table(&header, &rows);
    if report.more > 0 {
        let _ = writeln!(text, "and {} more; see --limit", report.more);
    }
    if let Some(livelock) = &report.livelock {
        let _ = writeln!(text, "\nWarning: {livelock}");
    }
    text
}
