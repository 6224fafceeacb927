//! `quintet explain`: what the operator observes of an object, what it decides, and what it waits for.
//!
//! Runs the observe and plan steps of the operator in this process, read-only: no operator has to be reachable, and
//! nothing is written. Services in the cluster, such as Ray dashboards, are reached through the API server.

mod redact;
mod report;

use anyhow::{Context as _, Error, bail, ensure};
use clap::Args;
use quintet_api::crd::Kind;
use quintet_component::{Component, Platform};
use quintet_controller::{ObjectKey, Runtime, clock::Clock};

use crate::catalog::{Catalog, Configured};
use crate::cluster::{self, Cluster, ClusterArguments};
use crate::operator::ConfigurationArguments;
use crate::output::{self, Format};

/// Explain what the operator sees of an object, what it would do now, and what it waits for.
///
/// Reads the cluster and writes nothing. The output as YAML or JSON holds everything a decision depends on, so that a bug
/// report can carry it. Values that may be secret, such as those of environment variables, are left out.
#[derive(Args)]
#[command(after_help = "Examples:
  quintet explain rayjob/train                 why does this job not run?
  quintet explain raycluster/big -n team-a
  quintet explain rayjob/train -o yaml         everything that was observed, for a bug report")]
pub(crate) struct Arguments {
    /// The object, as KIND/NAME.
    #[arg(value_name = "KIND/NAME", value_parser = object)]
    object: (String, String),
    /// Namespace of the object; otherwise that of the context.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Print everything as YAML or JSON instead of a report.
    #[arg(short, long)]
    output: Option<Format>,
    /// Print values that may be secret too. An exact replay of the decision needs them.
    #[arg(long)]
    show_values: bool,
    #[command(flatten)]
    configuration: ConfigurationArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

fn object(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok((kind.into(), name.into())),
        _ => Err("write it as KIND/NAME, such as rayjob/train".into()),
    }
}

pub(crate) fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let Arguments { object: (kind, name), namespace, output, show_values, configuration, cluster } =
        arguments;
    let mut configuration = configuration.into_configuration(catalog)?;
    let (component, Kind { is_namespaced, .. }) = explained(catalog, &kind)?;
    cluster::block_on(async move {
        let cluster = cluster.connect().await?;
        let namespace = namespace.unwrap_or_else(|| cluster.namespace.clone());
        let key = if is_namespaced { ObjectKey::new(&namespace, &name) } else { ObjectKey::cluster(&name) };
        if is_namespaced {
            let watched = &mut configuration.process.watch_namespaces;
            ensure!(
                watched.is_empty() || watched.contains(&namespace),
                "the operator does not watch the namespace {namespace}; it watches {}",
                watched.join(", ")
            );
            *watched = vec![namespace];
        }
        let platform = Platform::discover(&cluster.client).await;
        let platform = platform.context("cannot discover the APIs of the cluster")?;
        let operators = catalog.configure_outside(&configuration, &platform)?;
        let runtime = read_only_runtime(operators, &cluster, &configuration.process.watch_namespaces)?;
        let mut explanations = runtime.explain(&kind, &key).await.map_err(Error::from)?;
        ensure!(!explanations.is_empty(), "{kind} {key} does not exist at {}", cluster.address);
        if !show_values {
            for explanation in &mut explanations {
                redact::redact(&mut explanation.observed, component.sensitive_fields);
                redact::redact(&mut explanation.plan, component.sensitive_fields);
            }
        }
        match output {
            None => output::print(&report::report(&kind, &key, &explanations)),
            Some(Format::Yaml) => output::print_yaml(&explanations),
            Some(Format::Json) => output::print_json(&explanations),
        }
    })?
}

/// The component with controllers that has a kind.
fn explained<'a>(catalog: &'a Catalog, name: &str) -> anyhow::Result<(&'a Component, Kind)> {
    let Some((component, kind)) = catalog.component_of(name) else {
        bail!("unknown kind \"{name}\"; see 'quintet components'")
    };
    ensure!(
        component.configure.is_some(),
        "{} has no controllers yet; see 'quintet components'",
        component.name()
    );
    Ok((component, kind))
}

/// A runtime with all controllers that is never started: it caches and observes, and writes nothing.
fn read_only_runtime(
    operators: Vec<Configured>,
    cluster: &Cluster,
    namespaces: &[String],
) -> anyhow::Result<Runtime> {
    let clock = Clock::system();
    let (runtime, registry) = Runtime::reader(cluster.client.clone(), &clock, namespaces);
    let process = quintet_component::Process {
        runtime: &runtime,
        client: &cluster.client,
        clock: &clock,
        metrics: &registry,
        concurrency: 1,
    };
    for Configured { component, operator } in operators {
        (operator.start)(&process).with_context(|| format!("cannot start {}", component.name()))?;
    }
    Ok(runtime)
}
