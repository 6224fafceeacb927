//! `quintet queue stop` and `resume`: ClusterQueues, LocalQueues and Workloads.

use std::fmt::Debug;

use clap::{Args, Subcommand};
use kube::{Api, Resource};
use quintet_api::kueue::v1beta2::{ClusterQueue, LocalQueue, Workload};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Place;
use super::cluster_objects::merge;
use super::create::resource_name;
use crate::cluster::ClusterArguments;
use crate::output;

/// Stop a queue or a Workload.
#[derive(Subcommand)]
pub(super) enum StopCommand {
    /// Let a ClusterQueue admit nothing, and stop what it has admitted.
    #[command(name = "clusterqueue", visible_alias = "cq")]
    ClusterQueue(StopClusterQueue),
    /// Let a LocalQueue admit nothing, and stop what it has admitted.
    #[command(name = "localqueue", visible_alias = "lq")]
    LocalQueue(StopLocalQueue),
    /// Stop Workloads and keep them out of the queue.
    #[command(name = "workload", visible_alias = "wl")]
    Workload(Workloads),
}

/// Resume what was stopped.
#[derive(Subcommand)]
pub(super) enum ResumeCommand {
    /// Let a ClusterQueue admit again.
    #[command(name = "clusterqueue", visible_alias = "cq")]
    ClusterQueue(ResumeClusterQueue),
    /// Let a LocalQueue admit again.
    #[command(name = "localqueue", visible_alias = "lq")]
    LocalQueue(ResumeLocalQueue),
    /// Put Workloads back into the queue.
    #[command(name = "workload", visible_alias = "wl")]
    Workload(Workloads),
}

#[derive(Args)]
pub(super) struct StopClusterQueue {
    /// Its name.
    name: String,
    /// Let what is admitted run to its end.
    #[arg(long)]
    keep_already_running: bool,
    #[command(flatten)]
    trial: Trial,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Args)]
pub(super) struct StopLocalQueue {
    /// Its name.
    name: String,
    /// Let what is admitted run to its end.
    #[arg(long)]
    keep_already_running: bool,
    #[command(flatten)]
    trial: Trial,
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
pub(super) struct ResumeClusterQueue {
    /// Its name.
    name: String,
    #[command(flatten)]
    trial: Trial,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Args)]
pub(super) struct ResumeLocalQueue {
    /// Its name.
    name: String,
    #[command(flatten)]
    trial: Trial,
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
pub(super) struct Workloads {
    /// Their names.
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    trial: Trial,
    #[command(flatten)]
    place: Place,
}

#[derive(Args, Clone, Copy)]
struct Trial {
    /// Let the API server try it out, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn stop(command: StopCommand) -> anyhow::Result<()> {
    let policy = |keeps: bool| policy(if keeps { "Hold" } else { "HoldAndDrain" });
    match command {
        StopCommand::ClusterQueue(StopClusterQueue { name, keep_already_running, trial, cluster }) => {
            let api: Api<ClusterQueue> = Api::all(cluster.connect().await?.client);
            change(&api, &name, &policy(keep_already_running), "stopped", trial).await
        }
        StopCommand::LocalQueue(StopLocalQueue { name, keep_already_running, trial, place }) => {
            let (cluster, namespace) = place.connect().await?;
            let api: Api<LocalQueue> = Api::namespaced(cluster.client, &namespace);
            change(&api, &name, &policy(keep_already_running), "stopped", trial).await
        }
        StopCommand::Workload(workloads) => set_active(workloads, false, "stopped").await,
    }
}

pub(super) async fn resume(command: ResumeCommand) -> anyhow::Result<()> {
    match command {
        ResumeCommand::ClusterQueue(ResumeClusterQueue { name, trial, cluster }) => {
            let api: Api<ClusterQueue> = Api::all(cluster.connect().await?.client);
            change(&api, &name, &policy("None"), "resumed", trial).await
        }
        ResumeCommand::LocalQueue(ResumeLocalQueue { name, trial, place }) => {
            let (cluster, namespace) = place.connect().await?;
            let api: Api<LocalQueue> = Api::namespaced(cluster.client, &namespace);
            change(&api, &name, &policy("None"), "resumed", trial).await
        }
        ResumeCommand::Workload(workloads) => set_active(workloads, true, "resumed").await,
    }
}

fn policy(name: &str) -> Value {
    json!({ "spec": { "stopPolicy": name } })
}

async fn set_active(workloads: Workloads, is_active: bool, done: &str) -> anyhow::Result<()> {
    let Workloads { names, trial, place } = workloads;
    let (cluster, namespace) = place.connect().await?;
    let api: Api<Workload> = Api::namespaced(cluster.client, &namespace);
    for name in &names {
        change(&api, name, &json!({ "spec": { "active": is_active } }), done, trial).await?;
    }
    Ok(())
}

async fn change<K>(api: &Api<K>, name: &str, patch: &Value, done: &str, trial: Trial) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    merge(api, name, patch, trial.dry_run).await?;
    let suffix = if trial.dry_run { " (server dry run)" } else { "" };
    output::print(&format!("{}/{name} {done}{suffix}\n", resource_name::<K>()))
}
