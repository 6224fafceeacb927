//! `quintet crds`.

use anyhow::{Context as _, ensure};
use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use quintet_api::crd::{self, WebhookService};
use serde_json::Value;

use crate::catalog::Catalog;
use crate::cluster::ClusterArguments;
use crate::output::{self, Format};

/// Print the CustomResourceDefinitions, or apply them to a cluster.
///
/// The definitions equal those of the five operators, field for field: applying them to a cluster that already has them
/// changes nothing for its users.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only these, by plural, kind or group: `rayclusters`, `Workload`, `kueue.x-k8s.io`.
    names: Vec<String>,
    /// Print YAML or JSON.
    #[arg(short, long, default_value = "yaml")]
    output: Format,
    /// Print a table of the kinds instead of their definitions.
    #[arg(long, conflicts_with = "apply")]
    list: bool,
    /// Apply them to the cluster instead of printing them.
    #[arg(long)]
    apply: bool,
    /// The Service that converts between versions, as NAMESPACE/NAME.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "quintet-system/quintet-webhook", value_parser = service)]
    webhook_service: WebhookService,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(crate) fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let Arguments { names, output, list, apply, webhook_service, cluster } = arguments;
    let crds = selected(crd::manifests(&catalog.crds(), &webhook_service), &names)?;
    if list {
        let header = ["KIND", "GROUP", "VERSIONS", "SCOPE", "SHORT NAMES"];
        return output::print(&output::table(&header, &rows(&crds)));
    }
    if apply {
        return crate::cluster::block_on(apply_all(crds, cluster))?;
    }
    let objects = crds.iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>();
    output::print_objects(&objects.context("cannot write the definitions")?, output)
}

fn service(text: &str) -> Result<WebhookService, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(WebhookService { namespace: namespace.into(), name: name.into() })
        }
        _ => Err("write it as NAMESPACE/NAME".into()),
    }
}

fn selected(
    crds: Vec<CustomResourceDefinition>,
    names: &[String],
) -> anyhow::Result<Vec<CustomResourceDefinition>> {
    let is_named = |crd: &CustomResourceDefinition, name: &str| {
        let spec = &crd.spec;
        [&spec.names.plural, &spec.names.kind, &spec.group]
            .into_iter()
            .chain(&crd.metadata.name)
            .chain(&spec.names.singular)
            .chain(spec.names.short_names.iter().flatten())
            .any(|known| known.eq_ignore_ascii_case(name))
    };
    for name in names {
        ensure!(
            crds.iter().any(|crd| is_named(crd, name)),
            "unknown kind \"{name}\"; see 'quintet crds --list'"
        );
    }
    let is_selected =
        |crd: &CustomResourceDefinition| names.is_empty() || names.iter().any(|name| is_named(crd, name));
    Ok(crds.into_iter().filter(is_selected).collect())
}

fn rows(crds: &[CustomResourceDefinition]) -> Vec<Vec<String>> {
    let versions = |crd: &CustomResourceDefinition| {
        let names = crd.spec.versions.iter().map(|version| version.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    crds.iter()
        .map(|crd| {
            vec![
                crd.spec.names.kind.clone(),
                crd.spec.group.clone(),
                versions(crd),
                crd.spec.scope.clone(),
                crd.spec.names.short_names.as_ref().map(|names| names.join(", ")).unwrap_or_default(),
            ]
        })
        .collect()
}

async fn apply_all(crds: Vec<CustomResourceDefinition>, cluster: ClusterArguments) -> anyhow::Result<()> {
    let cluster = cluster.connect().await?;
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let parameters = PatchParams::apply("quintet").force();
    for crd in crds {
        let name = crd.metadata.name.clone().unwrap_or_default();
        api.patch(&name, &parameters, &Patch::Apply(&crd))
            .await
            .with_context(|| format!("cannot apply {name} to {}", cluster.address))?;
        output::print(&format!("{name} applied\n"))?;
    }
    Ok(())
}
