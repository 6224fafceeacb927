//! `quintet queue list pods`.

use std::collections::BTreeSet;

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use quintet_api::kueue::metadata::WORKLOAD;
use quintet_api::kueue::v1beta2::Workload;

use super::super::Scope;
use super::super::cluster_objects::{list, select};
use super::super::snapshot::is_owned_by;
use super::workloads::job;
use super::{Listed, Listing, age_of, name, print};

#[derive(Args)]
pub(in super::super) struct Arguments {
    /// The job, as TYPE/NAME such as job/train.
    #[arg(long = "for", value_name = "TYPE/NAME", value_parser = job)]
    job: (String, String),
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    scope: Scope,
}

pub(in super::super) async fn run(arguments: Arguments, now: Timestamp) -> anyhow::Result<()> {
    let Arguments { job: (kind, job_name), listing, scope } = arguments;
    let (cluster, namespace) = scope.connect().await?;
    let workloads: Vec<Workload> = list(&cluster.client, namespace.as_deref()).await?;
    let of_job: BTreeSet<(String, String)> = workloads
        .iter()
        .filter(|workload| is_owned_by(workload, &kind, &job_name))
        .map(|workload| (workload.metadata.namespace.clone().unwrap_or_default(), name(&workload.metadata)))
        .collect();
    let mut pods: Vec<Pod> = select(&cluster.client, namespace.as_deref(), &listing.selectors).await?;
    pods.retain(|pod| is_of(pod, &kind, &job_name, &of_job));
    let row = |pod: &Pod| {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.clone()).unwrap_or_default();
        let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let ready = statuses.iter().filter(|one| one.ready).count();
        let all = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        let restarts: i32 = statuses.iter().map(|one| one.restart_count).sum();
        vec![
            name(&pod.metadata),
            format!("{ready}/{all}"),
            phase,
            restarts.to_string(),
            age_of(&pod.metadata, now),
        ]
    };
    print(
        &pods,
        &["NAME", "READY", "STATUS", "RESTARTS", "AGE"],
        row,
        &listing,
        Listed::of(namespace.as_deref()),
    )
}

/// Whether a pod is of a job: it says so, or it runs for a Workload of the job.
fn is_of(pod: &Pod, kind: &str, job_name: &str, workloads: &BTreeSet<(String, String)>) -> bool {
    let kind = kind.split_once('.').map_or(kind, |(kind, _)| kind).to_ascii_lowercase();
    let is_pod = matches!(kind.as_str(), "pod" | "pods" | "po");
    if is_pod && pod.metadata.name.as_deref() == Some(job_name) {
        return true;
    }
    let owners = pod.metadata.owner_references.iter().flatten();
    let is_owned = owners.into_iter().any(|owner| {
        let own = owner.kind.to_ascii_lowercase();
        owner.name == job_name && (own == kind || format!("{own}s") == kind)
    });
    let workload = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(WORKLOAD));
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    is_owned || workload.is_some_and(|workload| workloads.contains(&(namespace, workload.clone())))
}
