//! `quintet crds`.

use anyhow::{Context as _, ensure};
use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use quintet_api::crd::{self, WebhookService};
use quintet_controller::api::FIELD_MANAGER;
use serde::{Deserialize, Serialize};
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
    /// Print YAML or JSON; the default is YAML, and a table with --list.
    #[arg(short, long)]
    output: Option<Format>,
    /// Print the kinds instead of their definitions.
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
        return print_kinds(&crds, output);
    }
    if apply {
        return crate::cluster::block_on(apply_all(&crds, cluster))?;
    }
    let objects: Vec<Value> = crds.into_iter().map(|crd| crd.manifest).collect();
    output::print_objects(&objects, output.unwrap_or_default())
}

fn service(text: &str) -> Result<WebhookService, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(WebhookService { namespace: namespace.into(), name: name.into() })
        }
        _ => Err("write it as NAMESPACE/NAME".into()),
    }
}

/// A CRD to print or apply, and what identifies it.
struct Crd {
    name: String,
    spec: Spec,
    manifest: Value,
}

#[derive(Deserialize)]
struct Spec {
    group: String,
    names: Names,
    scope: String,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Names {
    kind: String,
    plural: String,
    singular: String,
    #[serde(default, rename = "shortNames")]
    short: Vec<String>,
}

#[derive(Deserialize)]
struct Version {
    name: String,
}

/// A kind as `--list` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    kind: &'a str,
    plural: &'a str,
    group: &'a str,
    versions: Vec<&'a str>,
    scope: &'a str,
    short_names: &'a [String],
}

impl Crd {
    fn read(manifest: Value) -> anyhow::Result<Self> {
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let spec =
            Spec::deserialize(&manifest["spec"]).with_context(|| format!("cannot read the CRD {name}"))?;
        Ok(Self { name, spec, manifest })
    }

    fn is_named(&self, name: &str) -> bool {
        let names = &self.spec.names;
        [&self.name, &self.spec.group, &names.plural, &names.kind, &names.singular]
            .into_iter()
            .chain(&names.short)
            .any(|known| known.eq_ignore_ascii_case(name))
    }

    fn listed(&self) -> Listed<'_> {
        let Spec { group, names, scope, versions } = &self.spec;
        let versions = versions.iter().map(|version| version.name.as_str()).collect();
        let Names { kind, plural, singular: _, short } = names;
        Listed { kind, plural, group, versions, scope, short_names: short }
    }
}

fn selected(manifests: Vec<Value>, names: &[String]) -> anyhow::Result<Vec<Crd>> {
    let crds = manifests.into_iter().map(Crd::read).collect::<anyhow::Result<Vec<_>>>()?;
    for name in names {
        ensure!(
            crds.iter().any(|crd| crd.is_named(name)),
            "unknown kind \"{name}\"; see 'quintet crds --list'"
        );
    }
    let is_selected = |crd: &Crd| names.is_empty() || names.iter().any(|name| crd.is_named(name));
    Ok(crds.into_iter().filter(is_selected).collect())
}

fn print_kinds(crds: &[Crd], output: Option<Format>) -> anyhow::Result<()> {
    let kinds: Vec<Listed<'_>> = crds.iter().map(Crd::listed).collect();
    let row = |kind: &Listed<'_>| {
        let cells =
            [kind.kind, kind.group, &kind.versions.join(", "), kind.scope, &kind.short_names.join(", ")];
        cells.map(ToOwned::to_owned).to_vec()
    };
    match output {
        None => {
            let header = ["KIND", "GROUP", "VERSIONS", "SCOPE", "SHORT NAMES"];
            output::print(&output::table(&header, &kinds.iter().map(row).collect::<Vec<_>>()))
        }
        Some(Format::Yaml) => output::print_yaml(&kinds),
        Some(Format::Json) => output::print_json(&kinds),
    }
}

/// Applies CRDs, and takes over fields that another operator's installation owns: they have the same values.
async fn apply_all(crds: &[Crd], cluster: ClusterArguments) -> anyhow::Result<()> {
    let cluster = cluster.connect().await?;
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    for Crd { name, manifest, .. } in crds {
        api.patch(name, &parameters, &Patch::Apply(manifest))
            .await
            .with_context(|| format!("cannot apply {name} to {}", cluster.address))?;
        output::print(&format!("{name} applied\n"))?;
    }
    Ok(())
}
