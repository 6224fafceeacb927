//! `quintet queue`: what waits for quota and why, and what kueuectl and Kueue's importer do.
//!
//! Reports build the scheduling engine from the objects of the cluster, as the operator does, and ask it. Nothing has to
//! run on the cluster for them, and nothing is written.

mod borrowing;
mod cluster_objects;
mod create;
mod delete;
mod explain;
mod import;
mod list;
mod pending;
mod runtimes;
mod snapshot;
mod stop;
mod what_if;

use clap::{Args, Subcommand, ValueEnum};

use crate::catalog::Catalog;
use crate::cluster::{self, Cluster, ClusterArguments};
use crate::output;

/// See what waits for quota and why, and manage queues.
///
/// Reports ask the scheduling engine about the objects of the cluster, and write nothing. The other commands take
/// the flags of kueuectl.
#[derive(Args)]
#[command(after_help = "Examples:
  quintet queue pending                          what waits, in which order, until when, and why
  quintet queue explain job/train                what this job waits for, and who holds it
  quintet queue borrowing                        who uses more than their quota, and whose it is
  quintet queue what-if -f larger-queue.yaml     what would start and what would stop
  quintet queue create cq research --nominal-quota 'default:cpu=8;memory=32Gi'
  quintet queue create lq team -c research -n team-a
  quintet queue list workload -A --status pending
  quintet queue stop cq research
  quintet queue import -n team-a --queuelabel project --queuemapping train=team --dry-run=false")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

// Each command is explained at its arguments.
#[derive(Subcommand)]
enum Command {
    Pending(pending::Arguments),
    Explain(explain::Arguments),
    Borrowing(borrowing::Arguments),
    WhatIf(what_if::Arguments),
    #[command(subcommand)]
    Create(create::Command),
    #[command(subcommand)]
    List(list::Command),
    #[command(subcommand)]
    Stop(stop::StopCommand),
    #[command(subcommand)]
    Resume(stop::ResumeCommand),
    #[command(subcommand)]
    Delete(delete::Command),
    Import(Box<import::Arguments>),
}

pub(crate) fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let command = arguments.command;
    cluster::block_on(async move {
        match command {
            Command::Pending(arguments) => pending::run(arguments, catalog).await,
            Command::Explain(arguments) => explain::run(arguments, catalog).await,
            Command::Borrowing(arguments) => borrowing::run(arguments, catalog).await,
            Command::WhatIf(arguments) => what_if::run(arguments, catalog).await,
            Command::Create(command) => create::run(command).await,
            Command::List(command) => list::run(command).await,
            Command::Stop(command) => stop::stop(command).await,
            Command::Resume(command) => stop::resume(command).await,
            Command::Delete(command) => delete::run(command).await,
            Command::Import(arguments) => import::run(*arguments).await,
        }
    })?
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// Prints a report: as text for people, or all of it.
fn print(
    report: &impl serde::Serialize,
    text: impl FnOnce() -> String,
    format: ReportFormat,
) -> anyhow::Result<()> {
    match format {
        ReportFormat::Table => output::print(&text()),
        ReportFormat::Json => output::print_json(report),
        ReportFormat::Yaml => output::print_yaml(report),
    }
}

/// In which namespaces objects are.
#[derive(Args, Clone)]
struct Scope {
    /// The namespace; otherwise that of the context.
    #[arg(short, long)]
    namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    cluster: ClusterArguments,
}

impl Scope {
    /// Connects. Returns the namespace too, unless it is all of them.
    async fn connect(self) -> anyhow::Result<(Cluster, Option<String>)> {
        let cluster = self.cluster.connect().await?;
        let namespace =
            (!self.all_namespaces).then(|| self.namespace.unwrap_or_else(|| cluster.namespace.clone()));
        Ok((cluster, namespace))
    }
}

/// In which namespace an object is.
#[derive(Args, Clone)]
struct Place {
    /// The namespace; otherwise that of the context.
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

impl Place {
    async fn connect(self) -> anyhow::Result<(Cluster, String)> {
        let cluster = self.cluster.connect().await?;
        let namespace = self.namespace.unwrap_or_else(|| cluster.namespace.clone());
        Ok((cluster, namespace))
    }
}
