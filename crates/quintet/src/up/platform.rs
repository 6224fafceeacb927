//! What runs beside the API: workload controllers, scheduler, node, operators. A part that is off costs nothing.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use quintet_api::config::Configuration;
use quintet_apiserver::Cluster;
use quintet_controller::clock::Clock;
use quintet_controllers::Controllers;
use quintet_kubelet::Kubelet;
use quintet_node::{NodeShape, Settings as SimulationSettings, Simulation};

use super::operators::{self, Operators};
use super::pulls;
use super::screen::Screen;
use crate::catalog::Catalog;
use crate::signals::Signals;

/// Which parts run.
pub(super) struct Parts {
    pub(super) has_operators: bool,
    /// The nodes, and with them what brings pods to them.
    pub(super) node: Option<NodeSettings>,
    /// Whether pods are removed when the platform stops. Otherwise they run on, and the next start finds them.
    pub(super) removes_pods: bool,
}

/// What takes pods.
pub(super) enum NodeSettings {
    /// One node, which runs them as processes.
    Processes(Box<quintet_kubelet::Settings>),
    /// Nodes that run nothing; volumes are below the directory.
    Simulated { count: u32, directory: PathBuf },
}

/// Everything that runs beside the API.
pub(super) struct Platform {
    operators: Option<Operators>,
    node: Option<Node>,
    removes_pods: bool,
}

/// The nodes, and the controllers that bring pods to them.
struct Node {
    controllers: Controllers,
    pods: Pods,
}

/// What takes pods, running.
enum Pods {
    Processes { kubelet: Kubelet, directory: PathBuf },
    Simulated(Simulation),
}

impl Platform {
    /// Starts the parts.
    pub(super) async fn start(
        cluster: &Cluster,
        parts: Parts,
        configuration: &Configuration,
        catalog: &Catalog,
        screen: &mut Screen,
    ) -> anyhow::Result<Self> {
        let node = match parts.node {
            Some(settings) => Some(Node::start(cluster, settings, screen).await?),
            None => None,
        };
        let operators = if parts.has_operators {
            screen.begin("operators");
            let operators = Operators::start(configuration, cluster, catalog).await?;
            screen.done(&operators.summary());
            Some(operators)
        } else {
            operators::unregister_all(cluster).await.context("cannot remove webhooks")?;
            None
        };
        Ok(Self { operators, node, removes_pods: parts.removes_pods })
    }

    /// Runs until a signal.
    pub(super) async fn run(&self, cluster: &Cluster, signals: &mut Signals) {
        if self.node.is_none() {
            signals.next().await;
            return;
        }
        tokio::select! {
            _ = signals.next() => {}
            () = pulls::show(cluster.api().admin_client()) => {
                signals.next().await;
            }
        }
    }

    /// Stops the parts in reverse order.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        if let Some(operators) = self.operators {
            operators.stop().await;
        }
        let Some(node) = self.node else { return Ok(()) };
        node.controllers.stop().await;
        match node.pods {
            Pods::Simulated(nodes) => nodes.stop().await.context("cannot remove the simulated nodes")?,
            Pods::Processes { kubelet, directory } => {
                kubelet.stop().await;
                if self.removes_pods {
                    let cleared = quintet_kubelet::clear(&directory).await;
                    cleared.context("cannot remove all pods; run 'quintet down'")?;
                }
            }
        }
        Ok(())
    }
}

impl Node {
    async fn start(cluster: &Cluster, settings: NodeSettings, screen: &mut Screen) -> anyhow::Result<Self> {
        let client = cluster.api().admin_client();
        screen.begin("controllers");
        let volumes = match &settings {
            NodeSettings::Processes(settings) => settings.data_directory.join("volumes"),
            NodeSettings::Simulated { directory, .. } => directory.join("volumes"),
        };
        let controllers = quintet_controllers::Settings {
            volumes: Some(volumes),
            ..quintet_controllers::Settings::default()
        };
        let controllers = quintet_controllers::start(client.clone(), &Clock::system(), &controllers).await;
        let controllers = controllers.context("cannot start the workload controllers")?;
        screen.done("workloads, volumes, endpoints, scheduler");
        screen.begin("node");
        let pods = match settings {
            NodeSettings::Processes(settings) => start_kubelet(cluster, *settings, screen).await?,
            NodeSettings::Simulated { count, .. } => {
                let settings = SimulationSettings { nodes: NodeShape::plain(count), schedule: false };
                let nodes = Simulation::start(client, settings).await.context("cannot simulate nodes")?;
                screen.done(&format!("{count} simulated"));
                Pods::Simulated(nodes)
            }
        };
        Ok(Self { controllers, pods })
    }
}

async fn start_kubelet(
    cluster: &Cluster,
    settings: quintet_kubelet::Settings,
    screen: &Screen,
) -> anyhow::Result<Pods> {
    let (directory, name) = (settings.data_directory.clone(), settings.node_name.clone());
    let kubelet = quintet_kubelet::start(cluster.api().admin_client(), &Clock::system(), settings).await?;
    cluster.api().kubelets().register(&name, kubelet.handler());
    let metrics =
        cluster.api().serve_group(("metrics.k8s.io", "v1beta1"), "metrics-server", kubelet.handler());
    metrics.await.context("cannot serve metrics.k8s.io")?;
    if let SocketAddr::V4(address) = cluster.address() {
        kubelet.network().publish(address)?;
    }
    screen.done(&name);
    kubelet.network().limitations().iter().for_each(|limitation| screen.note(limitation));
    Ok(Pods::Processes { kubelet, directory })
}
