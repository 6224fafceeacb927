//! `quintet queue delete workload`: Workloads together with the jobs they stand for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead as _};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, DynamicObject, Preconditions, PropagationPolicy};
use kube::core::GroupVersionKind;
use kube::{Api, Client, discovery};
use quintet_api::kueue::v1beta2::Workload;

use super::Scope;
use super::cluster_objects::{get, list};
use super::create::DryRun;
use crate::output;

/// Delete Workloads.
#[derive(Subcommand)]
pub(super) enum Command {
    /// Delete Workloads, and the jobs they stand for.
    #[command(name = "workload", visible_alias = "wl")]
    Workload(Arguments),
}

#[derive(Args)]
pub(super) struct Arguments {
    /// Their names.
    #[arg(required_unless_present = "all")]
    names: Vec<String>,
    /// All Workloads of the namespace.
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// Only print what would be deleted (client), or let the API server try it out (server).
    #[arg(long, value_name = "none|client|server", default_value = "none")]
    dry_run: DryRun,
    #[command(flatten)]
    scope: Scope,
}

/// An object to delete.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

pub(super) async fn run(command: Command) -> anyhow::Result<()> {
    let Command::Workload(Arguments { names, all, yes, dry_run, scope }) = command;
    let (cluster, namespace) = scope.connect().await?;
    let client = cluster.client;
    let workloads: Vec<Workload> = if all {
        list(&client, namespace.as_deref()).await?
    } else {
        let Some(namespace) = &namespace else { bail!("with -A, give --all instead of names") };
        let api: Api<Workload> = Api::namespaced(client.clone(), namespace);
        let mut found = Vec::new();
        for name in &names {
            found.push(get(&api, name).await?);
        }
        found
    };
    if workloads.is_empty() {
        output::complain("There are no Workloads to delete.\n");
        return Ok(());
    }
    let plan = targets(&workloads);
    if !yes && dry_run == DryRun::None {
        let jobs: Vec<_> = plan.iter().filter(|(target, _)| target.kind != "Workload").collect();
        if !jobs.is_empty() {
            let mut question = "This operation will also delete:\n".to_owned();
            for (target, workload) in jobs {
                let _ = writeln!(question, "  - {} associated with the {workload} workload", shown(target));
            }
            question += "Do you want to proceed (y/n)? ";
            output::print(&question)?;
            if !confirmed()? {
                return output::print("Deletion is canceled\n");
            }
        }
    }
    for target in plan.keys() {
        delete(&client, target, dry_run).await?;
        output::print(&format!("{} deleted{}\n", shown(target), dry_run.suffix()))?;
    }
    Ok(())
}

/// What to delete, with the name of its Workload: the jobs of Workloads, which take these with them, and Workloads that
/// have none.
fn targets(workloads: &[Workload]) -> BTreeMap<Target, String> {
    let mut targets = BTreeMap::new();
    for workload in workloads {
        let metadata = &workload.metadata;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
        let owners: Vec<&OwnerReference> = metadata.owner_references.iter().flatten().collect();
        for owner in &owners {
            let target = Target {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
                namespace: namespace.clone(),
                name: owner.name.clone(),
                uid: owner.uid.clone(),
            };
            targets.insert(target, name.clone());
        }
        if owners.is_empty() {
            let target = Target {
                api_version: "kueue.x-k8s.io/v1beta2".to_owned(),
                kind: "Workload".to_owned(),
                namespace,
                name: name.clone(),
                uid: text(&metadata.uid),
            };
            targets.insert(target, name);
        }
    }
    targets
}

fn shown(target: &Target) -> String {
    let kind = target.kind.to_ascii_lowercase();
    match target.api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", target.name),
        None => format!("{kind}/{}", target.name),
    }
}

/// Reads the answer to a question.
fn confirmed() -> anyhow::Result<bool> {
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    ensure!(read > 0, "there is no terminal to ask; give --yes to delete without being asked");
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

async fn delete(client: &Client, target: &Target, dry_run: DryRun) -> anyhow::Result<()> {
    if dry_run == DryRun::Client {
        return Ok(());
    }
    let (group, version) = target.api_version.split_once('/').unwrap_or(("", &target.api_version));
    let kind = GroupVersionKind::gvk(group, version, &target.kind);
    let attempt = || format!("cannot delete {}", shown(target));
    let (resource, _) = discovery::pinned_kind(client, &kind).await.with_context(attempt)?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &target.namespace, &resource);
    let parameters = DeleteParams {
        dry_run: dry_run == DryRun::Server,
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions { uid: Some(target.uid.clone()), resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(&target.name, &parameters).await {
        // Somebody else was faster.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => outcome.map(drop).with_context(attempt),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn jobs_are_deleted_instead_of_their_workloads() {
        let workload = |name: &str, owners: serde_json::Value| -> Workload {
            serde_json::from_value(json!({ "metadata": { "name": name, "namespace": "ns", "uid": name,
                "ownerReferences": owners }, "spec": {} }))
            .unwrap()
        };
        let job = json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1" }]);
        let plan = targets(&[workload("job-train", job), workload("alone", json!([]))]);
        let texts: Vec<String> = plan.iter().map(|(target, of)| format!("{} {of}", shown(target))).collect();
        assert_eq!(texts, ["job.batch/train job-train", "workload.kueue.x-k8s.io/alone alone"]);
    }
}
