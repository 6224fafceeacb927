//! `quintet simulate-nodes`.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use clap::Args;
use quintet_api::Quantity;
use quintet_api::config::Log;
use quintet_node::{Level, NodeShape, Settings, Simulation};

use crate::cluster::ClusterArguments;
use crate::{logging, output, signals::Signals};

/// Add nodes to a cluster that run nothing but say they do: for tests, at any scale
///
/// Pods bound to them start, become ready, end, fail, are evicted and removed as a
/// kubelet would report it. A pod without annotations starts at once and runs until
/// it is deleted; these annotations say otherwise:
///
///   node.quintet.dev/start-after: 2s    how long until its containers start
///   node.quintet.dev/init-for: 1s       how long every init container runs
///   node.quintet.dev/ready-after: 5s    how long containers run before being ready
///   node.quintet.dev/run-for: 1m        how long containers run before they end
///   node.quintet.dev/exit-code: "1"     how they end
///   node.quintet.dev/stop-for: 3s       how long they take to end when deleted
///   node.quintet.dev/stuck: ErrImagePull    why they never start
///   node.quintet.dev/evict: low on memory   evict it now, with this message
///
/// For example, 640 nodes with GPUs in 4 blocks of 8 racks, on a cluster of
/// `quintet up --no-node`:
///
///   quintet simulate-nodes --count 640 --schedule --resource nvidia.com/gpu=8 \
///     --level cloud.provider.com/topology-block=4 \
///     --level cloud.provider.com/topology-rack=8
///
/// It goes on until ctrl-c, and then removes the nodes.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// How many nodes.
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// What the nodes are called, before their number.
    #[arg(long, default_value = "simulated")]
    name: String,
    /// CPUs of each node.
    #[arg(long, default_value = "32")]
    cpu: Quantity,
    /// Memory of each node.
    #[arg(long, default_value = "256Gi")]
    memory: Quantity,
    /// How many pods each node takes.
    #[arg(long, default_value = "110")]
    pods: Quantity,
    /// Something else each node has, like `nvidia.com/gpu=8`; may be given several times.
    #[arg(long, value_name = "NAME=AMOUNT", value_parser = pair::<Quantity>)]
    resource: Vec<(String, Quantity)>,
    /// A label of each node; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair::<String>)]
    label: Vec<(String, String)>,
    /// A level of the topology, the widest first: a label, and into how many parts it divides the level above.
    #[arg(long, value_name = "LABEL=PARTS", value_parser = pair::<u32>)]
    level: Vec<(String, u32)>,
    /// Bind pending pods to the nodes: for clusters without a scheduler, like that of `quintet up --no-node`.
    #[arg(long)]
    schedule: bool,
    /// Leave the nodes there at the end.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Reads `name=value`.
fn pair<T: std::str::FromStr>(text: &str) -> Result<(String, T), String>
where
    T::Err: std::fmt::Display,
{
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    let value = value.parse().map_err(|error| format!("{value:?}: {error}"))?;
    Ok((name.to_owned(), value))
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    logging::start(&Log { level: "warn".into(), ..Log::default() })?;
    crate::cluster::block_on(simulate(arguments))?
}

async fn simulate(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { count, name, cpu, memory, pods, resource, label, level, schedule, keep, cluster } =
        arguments;
    ensure!(count > 0, "there is nothing to do for --count 0");
    let mut capacity =
        BTreeMap::from([("cpu".to_owned(), cpu), ("memory".to_owned(), memory), ("pods".to_owned(), pods)]);
    capacity.extend(resource);
    let levels = level.into_iter().map(|(label, parts)| Level { label, parts }).collect();
    let nodes = NodeShape { name, count, capacity, labels: label.into_iter().collect(), levels };
    let mut signals = Signals::listen()?;
    let cluster = cluster.connect().await?;
    let simulation = Simulation::start(cluster.client, Settings { nodes, schedule })
        .await
        .context("cannot simulate nodes")?;
    output::print(&format!(
        "{count} simulated nodes take pods at {}\nPress ctrl-c to stop.\n",
        cluster.address
    ))?;
    signals.next().await;
    if keep {
        simulation.leave().await;
    } else {
        simulation.stop().await.context("cannot remove the simulated nodes")?;
    }
    Ok(())
}
