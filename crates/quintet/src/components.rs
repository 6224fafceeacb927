//! `quintet components`.

use clap::Args;
use quintet_component::Component;
use serde_json::{Value, json};

use crate::{
    catalog::Catalog,
    output::{self, Format},
};

/// List the components: what each replaces, its kinds, and its feature gates.
///
/// `--components` of `up`, `operator` and `manifests` takes these names.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Print everything as YAML or JSON instead of a table.
    #[arg(short, long)]
    output: Option<Format>,
}

pub(crate) fn run(arguments: &Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let components = catalog.components();
    let details = || components.iter().map(details).collect::<Vec<_>>();
    match arguments.output {
        None => {
            let header = ["NAME", "REPLACES", "CONTROLLERS", "KINDS"];
            output::print(&output::table(&header, &components.iter().map(row).collect::<Vec<_>>()))
        }
        Some(Format::Yaml) => output::print_yaml(&details()),
        Some(Format::Json) => output::print_json(&details()),
    }
}

fn row(component: &Component) -> Vec<String> {
    let state = if component.configure.is_some() { "yes" } else { "not yet" };
    vec![component.name().into(), component.replaces.into(), state.into(), kinds(component).join(", ")]
}

fn details(component: &Component) -> Value {
    let crds = (component.crds)();
    json!({
        "name": component.name(),
        "replaces": component.replaces,
        "hasControllers": component.configure.is_some(),
        "kinds": kinds(component),
        "crds": crds.iter().filter_map(quintet_api::crd::Definition::name).collect::<Vec<_>>(),
        "featureGates": component.config.gates,
        "controllers": component.config.controllers,
        "environment": component.environment,
        "configurationFormats": component.config.formats.iter().map(|format| format.description).collect::<Vec<_>>(),
    })
}

/// Kinds without their versions.
fn kinds(component: &Component) -> Vec<&'static str> {
    let mut kinds: Vec<_> = component.kinds().iter().map(|kind| kind.name).collect();
    kinds.dedup();
    kinds
}
