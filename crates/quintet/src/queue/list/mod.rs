//! `quintet queue list`: queues, Workloads, flavors and pods, with the flags and columns of kueuectl.

mod pods;
mod workloads;

use std::fmt::Debug;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use quintet_api::conditions;
use quintet_api::kueue::v1beta2::{ClusterQueue, LocalQueue, ResourceFlavor};
use quintet_controller::clock::Clock;
use quintet_objects::table::age;
use serde::Serialize;
use serde_json::Value;

use super::Scope;
use super::cluster_objects::{Selectors, select, select_all};
use super::pending::in_namespace;
use crate::cluster::ClusterArguments;
use crate::output::{self, Format};

/// List queues, Workloads, flavors or pods.
#[derive(Subcommand)]
pub(super) enum Command {
    /// List ClusterQueues.
    #[command(name = "clusterqueue", visible_alias = "cq", alias = "clusterqueues")]
    ClusterQueue(ClusterQueues),
    /// List LocalQueues.
    #[command(name = "localqueue", visible_alias = "lq", alias = "localqueues")]
    LocalQueue(LocalQueues),
    /// List Workloads.
    #[command(name = "workload", visible_alias = "wl", alias = "workloads")]
    Workload(workloads::Arguments),
    /// List ResourceFlavors.
    #[command(name = "resourceflavor", visible_alias = "rf", alias = "resourceflavors")]
    ResourceFlavor(ResourceFlavors),
    /// List the pods of a job.
    #[command(name = "pods", visible_alias = "po", alias = "pod")]
    Pods(pods::Arguments),
}

#[derive(Args)]
pub(super) struct ClusterQueues {
    /// Only those that can admit.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    active: Option<bool>,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Args)]
pub(super) struct LocalQueues {
    /// Only those of this ClusterQueue.
    #[arg(short, long, value_name = "NAME")]
    clusterqueue: Option<String>,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Args)]
pub(super) struct ResourceFlavors {
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// What is listed, and how it is printed.
#[derive(Args, Clone)]
struct Listing {
    #[command(flatten)]
    selectors: Selectors,
    /// Leave out the names of the columns.
    #[arg(long)]
    no_headers: bool,
    /// Print the objects as YAML or JSON.
    #[arg(short, long)]
    output: Option<Format>,
}

pub(super) async fn run(command: Command) -> anyhow::Result<()> {
    let now = Clock::system().now();
    match command {
        Command::ClusterQueue(arguments) => cluster_queues(arguments, now).await,
        Command::LocalQueue(arguments) => local_queues(arguments, now).await,
        Command::Workload(arguments) => workloads::run(arguments, now).await,
        Command::ResourceFlavor(arguments) => resource_flavors(arguments, now).await,
        Command::Pods(arguments) => pods::run(arguments, now).await,
    }
}

async fn cluster_queues(arguments: ClusterQueues, now: Timestamp) -> anyhow::Result<()> {
    let ClusterQueues { active, listing, cluster } = arguments;
    let client = cluster.connect().await?.client;
    let mut queues: Vec<ClusterQueue> = select_all(&client, &listing.selectors).await?;
    queues.retain(|queue| active.is_none_or(|active| is_active(queue) == active));
    let row = |queue: &ClusterQueue| {
        let status = queue.status.as_ref();
        let count = |count: Option<i32>| count.unwrap_or(0).to_string();
        vec![
            name(&queue.metadata),
            queue.spec.cohort_name.clone().unwrap_or_default(),
            count(status.and_then(|status| status.pending_workloads)),
            count(status.and_then(|status| status.admitted_workloads)),
            is_active(queue).to_string(),
            age_of(&queue.metadata, now),
        ]
    };
    let header = ["NAME", "COHORT", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "ACTIVE", "AGE"];
    print(&queues, &header, row, &listing, Listed::Cluster)
}

fn is_active(queue: &ClusterQueue) -> bool {
    let conditions: &[Condition] =
        queue.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions::is_true(conditions, "Active")
}

async fn local_queues(arguments: LocalQueues, now: Timestamp) -> anyhow::Result<()> {
    let LocalQueues { clusterqueue, listing, scope } = arguments;
    let (cluster, namespace) = scope.connect().await?;
    let mut queues: Vec<LocalQueue> =
        select(&cluster.client, namespace.as_deref(), &listing.selectors).await?;
    queues.retain(|queue| clusterqueue.is_none() || queue.spec.cluster_queue == clusterqueue);
    let row = |queue: &LocalQueue| {
        let status = queue.status.as_ref();
        let count = |count: Option<i32>| count.unwrap_or(0).to_string();
        vec![
            name(&queue.metadata),
            queue.spec.cluster_queue.clone().unwrap_or_default(),
            count(status.and_then(|status| status.pending_workloads)),
            count(status.and_then(|status| status.admitted_workloads)),
            age_of(&queue.metadata, now),
        ]
    };
    let header = ["NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "AGE"];
    print(&queues, &header, row, &listing, Listed::of(namespace.as_deref()))
}

async fn resource_flavors(arguments: ResourceFlavors, now: Timestamp) -> anyhow::Result<()> {
    let ResourceFlavors { listing, cluster } = arguments;
    let client = cluster.connect().await?.client;
    let flavors: Vec<ResourceFlavor> = select_all(&client, &listing.selectors).await?;
    let row = |flavor: &ResourceFlavor| {
        let labels = flavor.spec.node_labels.iter().flatten();
        let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        vec![name(&flavor.metadata), labels.join(", "), age_of(&flavor.metadata, now)]
    };
    print(&flavors, &["NAME", "NODE LABELS", "AGE"], row, &listing, Listed::Cluster)
}

fn name(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

fn age_of(metadata: &ObjectMeta, now: Timestamp) -> String {
    let created = metadata.creation_timestamp.as_ref();
    created.map_or_else(|| "<unknown>".to_owned(), |created| age(now.duration_since(created.0).as_secs()))
}

/// Where the objects were listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listed<'n> {
    /// They are in no namespace.
    Cluster,
    AllNamespaces,
    Namespace(&'n str),
}

impl<'n> Listed<'n> {
    fn of(namespace: Option<&'n str>) -> Self {
        namespace.map_or(Self::AllNamespaces, Self::Namespace)
    }
}

/// Prints objects as a table, or as they are.
fn print<K>(
    objects: &[K],
    header: &[&str],
    row: impl Fn(&K) -> Vec<String>,
    listing: &Listing,
    listed: Listed<'_>,
) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Serialize + Debug,
{
    if let Some(format) = listing.output {
        let objects: Result<Vec<Value>, _> = objects.iter().map(serde_json::to_value).collect();
        return output::print_objects(&objects?, format);
    }
    if objects.is_empty() {
        let place = match listed {
            Listed::Namespace(namespace) => in_namespace(Some(namespace)),
            Listed::Cluster | Listed::AllNamespaces => String::new(),
        };
        output::complain(&format!("No {} found{place}.\n", K::plural(&())));
        return Ok(());
    }
    let shows_namespace = listed == Listed::AllNamespaces;
    let rows: Vec<Vec<String>> = objects
        .iter()
        .map(|object| {
            let mut cells = row(object);
            if shows_namespace {
                cells.insert(0, object.meta().namespace.clone().unwrap_or_default());
            }
            cells
        })
        .collect();
    let mut header = header.to_vec();
    if shows_namespace {
        header.insert(0, "NAMESPACE");
    }
    let table = output::table(&header, &rows);
    let shown = if listing.no_headers { table.split_once('\n').map_or("", |(_, rows)| rows) } else { &table };
    output::print(shown)
}
