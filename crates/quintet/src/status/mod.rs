//! `quintet status`: the platform at a glance.

mod observe;
mod report;
mod unwell;

use clap::Args;
use quintet_controller::clock::Clock;

use crate::catalog::Catalog;
use crate::cluster;
use crate::output::{self, Format};
use crate::session::PlaceArguments;

/// Show the platform at a glance: nodes, the objects of all components, and what is unwell and why
///
/// Without options it looks at `quintet up` on this machine, and at the cluster of the kubeconfig if none runs.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Look at one namespace only.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Print everything as YAML or JSON instead of tables.
    #[arg(short, long)]
    output: Option<Format>,
    #[command(flatten)]
    place: PlaceArguments,
}

pub(crate) fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let Arguments { namespace, output, place } = arguments;
    cluster::block_on(async move {
        let (cluster, session) = place.connect().await?;
        let observed = observe::observe(&cluster, catalog, namespace.as_deref()).await?;
        let report = report::report(&observed, &cluster.address, session.as_ref(), Clock::system().now());
        match output {
            None => output::print(&report.text()),
            Some(Format::Yaml) => output::print_yaml(&report),
            Some(Format::Json) => output::print_json(&report),
        }
    })?
}
