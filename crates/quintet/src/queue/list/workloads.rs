//! `quintet queue list workload`.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, ValueEnum};
use futures::StreamExt as _;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use kube::Client;
use quintet_api::conditions;
use quintet_api::kueue::WorkloadLifecycle as _;
use quintet_api::kueue::WorkloadPhase;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::v1beta2::{LocalQueue, Workload};
use quintet_objects::table::age;
use serde_json::Value;

use super::super::Scope;
use super::super::cluster_objects::{list, select};
use super::super::snapshot::{Key, is_owned_by};
use super::{Listed, Listing, age_of, name, print};

/// LocalQueues whose order is asked for at a time.
const REQUESTS: usize = 8;

#[derive(Args)]
pub(in super::super) struct Arguments {
    /// Only those of this ClusterQueue.
    #[arg(short, long, value_name = "NAME")]
    clusterqueue: Option<String>,
    /// Only those of this LocalQueue.
    #[arg(short = 'q', long, value_name = "NAME")]
    localqueue: Option<String>,
    /// Only those in these states.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Vec<Status>,
    /// Only those of this job, as TYPE/NAME such as job/train.
    #[arg(long = "for", value_name = "TYPE/NAME", value_parser = job)]
    job: Option<(String, String)>,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Status {
    All,
    Pending,
    #[value(name = "quotareserved")]
    QuotaReserved,
    Admitted,
    Finished,
}

impl Status {
    fn includes(self, phase: WorkloadPhase) -> bool {
        match self {
            Self::All => true,
            Self::Pending => phase == WorkloadPhase::Pending,
            Self::QuotaReserved => phase == WorkloadPhase::QuotaReserved,
            Self::Admitted => phase == WorkloadPhase::Admitted,
            Self::Finished => phase == WorkloadPhase::Finished,
        }
    }
}

/// A job, as TYPE/NAME.
pub(super) fn job(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok((kind.to_owned(), name.to_owned())),
        _ => Err("write it as TYPE/NAME, such as job/train".to_owned()),
    }
}

pub(in super::super) async fn run(arguments: Arguments, now: Timestamp) -> anyhow::Result<()> {
    let Arguments { clusterqueue, localqueue, status, job, listing, scope } = arguments;
    let (cluster, namespace) = scope.connect().await?;
    let client = cluster.client;
    let queues: Vec<LocalQueue> = list(&client, namespace.as_deref()).await?;
    let feeds: BTreeMap<Key, String> = queues
        .iter()
        .map(|queue| {
            let namespace = queue.metadata.namespace.clone().unwrap_or_default();
            ((namespace, name(&queue.metadata)), queue.spec.cluster_queue.clone().unwrap_or_default())
        })
        .collect();
    let mut workloads: Vec<Workload> = select(&client, namespace.as_deref(), &listing.selectors).await?;
    workloads.retain(|workload| {
        let queue = cluster_queue(workload, &feeds);
        clusterqueue.as_ref().is_none_or(|name| queue == Some(name.as_str()))
            && localqueue.as_ref().is_none_or(|name| workload.spec.queue_name.as_ref() == Some(name))
            && (status.is_empty() || status.iter().any(|status| status.includes(workload.phase())))
            && job.as_ref().is_none_or(|(kind, name)| is_owned_by(workload, kind, name))
    });
    let positions =
        if listing.output.is_some() { BTreeMap::new() } else { positions(&client, &workloads, &feeds).await };
    let row = |workload: &Workload| {
        let owners: Vec<&OwnerReference> = workload.metadata.owner_references.iter().flatten().collect();
        let all = |text: fn(&OwnerReference) -> String| {
            let texts: BTreeSet<String> = owners.iter().map(|owner| text(owner)).collect();
            texts.into_iter().collect::<Vec<_>>().join(", ")
        };
        let position = positions.get(&key(workload)).filter(|_| workload.phase() == WorkloadPhase::Pending);
        vec![
            name(&workload.metadata),
            all(job_type),
            all(|owner| owner.name.clone()),
            workload.spec.queue_name.clone().unwrap_or_default(),
            cluster_queue(workload, &feeds).unwrap_or_default().to_owned(),
            workload.phase().as_str().to_ascii_uppercase(),
            position.map(ToString::to_string).unwrap_or_default(),
            execution_time(workload, now),
            age_of(&workload.metadata, now),
        ]
    };
    let header = [
        "NAME",
        "JOB TYPE",
        "JOB NAME",
        "LOCALQUEUE",
        "CLUSTERQUEUE",
        "STATUS",
        "POSITION IN QUEUE",
        "EXEC TIME",
        "AGE",
    ];
    print(&workloads, &header, row, &listing, Listed::of(namespace.as_deref()))
}

fn key(workload: &Workload) -> Key {
    (workload.metadata.namespace.clone().unwrap_or_default(), name(&workload.metadata))
}

/// The kind of a job: `job.batch`, or `pod`.
fn job_type(owner: &OwnerReference) -> String {
    let kind = owner.kind.to_ascii_lowercase();
    match owner.api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind,
    }
}

/// The ClusterQueue that admitted it, or that it waits in.
fn cluster_queue<'w>(workload: &'w Workload, feeds: &'w BTreeMap<Key, String>) -> Option<&'w str> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    if let Some(queue) = admission.and_then(|admission| admission.cluster_queue.as_deref()) {
        return Some(queue);
    }
    let namespace = workload.metadata.namespace.clone().unwrap_or_default();
    feeds.get(&(namespace, workload.spec.queue_name.clone()?)).map(String::as_str)
}

/// How long it has run.
fn execution_time(workload: &Workload, now: Timestamp) -> String {
    let conditions: &[Condition] =
        workload.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let since = |condition: WorkloadCondition| {
        let found = conditions::find(conditions, condition.as_str());
        found.filter(|found| found.status == "True").map(|found| found.last_transition_time.0)
    };
    let Some(started) = since(WorkloadCondition::Admitted) else { return String::new() };
    let end = since(WorkloadCondition::Finished).unwrap_or(now);
    age(end.duration_since(started).as_secs())
}

/// Positions of pending Workloads in their LocalQueues, by the visibility API. Without it there are none.
async fn positions(
    client: &Client,
    workloads: &[Workload],
    feeds: &BTreeMap<Key, String>,
) -> BTreeMap<Key, u64> {
    let pending = workloads.iter().filter(|workload| workload.phase() == WorkloadPhase::Pending);
    let queues: BTreeSet<Key> = pending
        .filter_map(|workload| {
            Some((workload.metadata.namespace.clone()?, workload.spec.queue_name.clone()?))
        })
        .filter(|queue| feeds.contains_key(queue))
        .collect();
    let answers = futures::stream::iter(queues).map(|queue| async move { pending_in(client, &queue).await });
    answers.buffer_unordered(REQUESTS).flat_map(futures::stream::iter).collect().await
}

async fn pending_in(client: &Client, (namespace, queue): &Key) -> Vec<(Key, u64)> {
    let path = format!(
        "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues/{queue}/pendingworkloads"
    );
    let Ok(request) = Request::get(path).body(Vec::new()) else { return Vec::new() };
    let summary: Value = client.request(request).await.unwrap_or_default();
    let items = summary["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let position = |item: &Value| {
        let name = item["metadata"]["name"].as_str()?.to_owned();
        Some(((namespace.clone(), name), item["positionInLocalQueue"].as_u64()?))
    };
    items.iter().filter_map(position).collect()
}
