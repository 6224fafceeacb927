//! `quintet logs`: the output of all pods of an object, however deep they are below it.

mod history;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use futures::io::AsyncBufReadExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, LogParams, WatchEvent, WatchParams};
use tokio::sync::mpsc;

use crate::catalog::Catalog;
use crate::cluster::{self, Cluster};
use crate::output;
use crate::session::PlaceArguments;
use history::{HistoryArguments, Past};

/// Print the output of all pods that belong to an object
///
/// Follows owner references down to pods: `rayjob/train` finds those of its cluster and of its submitter. Lines begin
/// with pod and container if there is more than one. Works on `quintet up` of this machine, or on the cluster of the
/// kubeconfig if none runs. With `--history`, logs of Ray clusters that are gone are read from a history server.
#[derive(Args)]
#[command(after_help = "Examples:
  quintet logs rayjob/train -f                       all of it, as it is written
  quintet logs rayjob/train -c ray-job-submitter     what the job itself prints
  quintet logs pod/train-head-x2x5k --tail 20
  quintet logs rayjob/train --history http://localhost:8080
                                                     what the job has printed, when its pods are gone")]
pub(crate) struct Arguments {
    /// The object, as KIND/NAME.
    #[arg(value_name = "KIND/NAME", value_parser = object)]
    object: (String, String),
    /// Namespace of the object; otherwise that of the context.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Go on as lines are written, also those of pods that start later, until ctrl-c.
    #[arg(short, long)]
    follow: bool,
    /// Only containers of this name.
    #[arg(short, long)]
    container: Option<String>,
    /// Only this many lines of each container, from the end.
    #[arg(long, value_name = "LINES")]
    tail: Option<i64>,
    #[command(flatten)]
    history: HistoryArguments,
    #[command(flatten)]
    place: PlaceArguments,
}

fn object(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok((kind.into(), name.into())),
        _ => Err("write it as KIND/NAME, such as rayjob/train".into()),
    }
}

pub(crate) fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let Arguments { object: (named, name), namespace, follow, container, tail, history, place } = arguments;
    let kinds = kinds(catalog);
    let is_known =
        |one: &ApiResource| one.kind.eq_ignore_ascii_case(&named) || one.plural.eq_ignore_ascii_case(&named);
    let kind = kinds.iter().find(|one| is_known(one)).cloned();
    let kind = kind.with_context(|| {
        format!("unknown kind \"{named}\"; try pod, job, deployment, or one that 'quintet components' lists")
    })?;
    cluster::block_on(async move {
        let cluster = match place.connect().await {
            Ok((cluster, _)) => Some(cluster),
            // The history outlives the cluster that Kubernetes ran on.
            Err(_) if history.is_given() => None,
            Err(error) => return Err(error),
        };
        let of_context = cluster.as_ref().map_or("default", |cluster| &cluster.namespace);
        let namespace = namespace.unwrap_or_else(|| of_context.to_owned());
        let past = Past { kind: &kind.kind, namespace: &namespace, name: &name, tail };
        let Some(cluster) = cluster.as_ref().filter(|_| !history.is_only()) else {
            return history.print(&past).await;
        };
        let root = match Root::find(cluster, &kind, &namespace, &name).await? {
            Some(root) => root,
            None if history.is_given() => return history.print(&past).await,
            None => bail!(
                "{} {namespace}/{name} does not exist at {}; --history URL asks a history server",
                kind.kind,
                cluster.address
            ),
        };
        let kinds = kinds.clone();
        let mut reader = Reader { cluster, root, kinds, follow, container, tail, owners: BTreeMap::new() };
        if follow {
            return reader.follow().await;
        }
        match reader.all_runs().await? {
            runs if runs.is_empty() && history.is_given() => history.print(&past).await,
            runs => reader.print(runs).await,
        }
    })?
}

/// Kinds that pods can be below of.
fn kinds(catalog: &Catalog) -> Vec<ApiResource> {
    let resource = |api_version: &str, kind: &str, plural: &str| {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        ApiResource {
            group: group.into(),
            version: version.into(),
            api_version: api_version.into(),
            kind: kind.into(),
            plural: plural.into(),
        }
    };
    let built_in = [
        ("v1", "Pod", "pods"),
        ("batch/v1", "Job", "jobs"),
        ("batch/v1", "CronJob", "cronjobs"),
        ("apps/v1", "Deployment", "deployments"),
        ("apps/v1", "ReplicaSet", "replicasets"),
        ("apps/v1", "StatefulSet", "statefulsets"),
        ("apps/v1", "DaemonSet", "daemonsets"),
    ];
    let own = catalog.components().iter().flat_map(quintet_component::Component::kinds);
    let own = own.filter(|kind| kind.is_namespaced).map(|kind| (kind.api_version, kind.name, kind.plural));
    built_in.into_iter().chain(own).map(|(version, kind, plural)| resource(version, kind, plural)).collect()
}

/// The object whose pods are wanted.
struct Root {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

impl Root {
    async fn find(
        cluster: &Cluster,
        kind: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<Option<Self>> {
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, kind);
        let found =
            api.get_metadata_opt(name).await.with_context(|| format!("cannot read {}", kind.plural))?;
        Ok(found.map(|found| {
            let uid = found.metadata.uid.unwrap_or_default();
            Self { kind: kind.kind.clone(), namespace: namespace.into(), name: name.into(), uid }
        }))
    }
}

struct Reader<'a> {
    cluster: &'a Cluster,
    root: Root,
    kinds: Vec<ApiResource>,
    follow: bool,
    container: Option<String>,
    tail: Option<i64>,
    /// Owners of objects by their UID, as far as they were read.
    owners: BTreeMap<String, Vec<OwnerReference>>,
}

/// One run of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    pod: String,
    container: String,
    id: String,
}

impl Reader<'_> {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client.clone(), &self.root.namespace)
    }

    async fn all_runs(&mut self) -> anyhow::Result<Vec<Run>> {
        let mut runs = Vec::new();
        for pod in self.pods().list(&ListParams::default()).await.context("cannot list pods")? {
            if self.belongs(&pod).await? {
                runs.extend(self.runs(&pod));
            }
        }
        Ok(runs)
    }

    async fn print(&self, runs: Vec<Run>) -> anyhow::Result<()> {
        let Root { kind, namespace, name, .. } = &self.root;
        ensure!(
            !runs.is_empty(),
            "{kind} {namespace}/{name} has no container that has started{}; 'quintet status' says why",
            self.container.as_ref().map(|name| format!(" of the name {name}")).unwrap_or_default()
        );
        let is_prefixed = runs.len() > 1;
        for run in runs {
            let mut lines = self.open(&run).await?;
            while let Some(line) = lines.next().await {
                output::print(&line_of(&run, &line?, is_prefixed))?;
            }
        }
        Ok(())
    }

    async fn follow(&mut self) -> anyhow::Result<()> {
        let (sender, mut lines) = mpsc::channel::<String>(256);
        let (mut running, mut seen) = (FuturesUnordered::new(), BTreeSet::new());
        let listed = self.pods().list(&ListParams::default()).await.context("cannot list pods")?;
        let version = listed.metadata.resource_version.clone().unwrap_or_default();
        let changes =
            self.pods().watch(&WatchParams::default(), &version).await.context("cannot watch pods")?;
        let mut changes =
            futures::stream::iter(listed).map(|pod| Ok(WatchEvent::Added(pod))).chain(changes).boxed();
        loop {
            tokio::select! {
                change = changes.next() => match change.context("the watch of pods ended; run it again")?? {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) if self.belongs(&pod).await? => {
                        for run in self.runs(&pod).into_iter().filter(|run| seen.insert(run.clone())).collect::<Vec<_>>() {
                            let (opened, sender) = (self.open(&run).await?, sender.clone());
                            running.push(async move { forward(run, opened, sender).await });
                        }
                    }
                    WatchEvent::Error(status) => bail!("the watch of pods ended: {}", status.message),
                    _ => {}
                },
                Some(line) = lines.recv() => output::print(&line)?,
                Some(()) = running.next(), if !running.is_empty() => {}
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
        }
    }

    async fn open(
        &self,
        run: &Run,
    ) -> anyhow::Result<futures::stream::BoxStream<'static, std::io::Result<String>>> {
        let parameters = LogParams {
            container: Some(run.container.clone()),
            follow: self.follow,
            tail_lines: self.tail,
            ..LogParams::default()
        };
        let stream = self.pods().log_stream(&run.pod, &parameters).await;
        let stream =
            stream.with_context(|| format!("cannot read the log of {}/{}", run.pod, run.container))?;
        Ok(stream.lines().boxed())
    }

    /// The containers of a pod that have started.
    fn runs(&self, pod: &Pod) -> Vec<Run> {
        let Some(status) = &pod.status else { return Vec::new() };
        let pod_name = pod.metadata.name.clone().unwrap_or_default();
        let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
        let started =
            containers.filter_map(|container| Some((&container.name, container.container_id.as_ref()?)));
        started
            .filter(|(name, _)| self.container.as_ref().is_none_or(|wanted| wanted == *name))
            .map(|(name, id)| Run { pod: pod_name.clone(), container: name.clone(), id: id.clone() })
            .collect()
    }

    /// Whether a pod is the object, or below it.
    async fn belongs(&mut self, pod: &Pod) -> anyhow::Result<bool> {
        if pod.metadata.uid.as_deref() == Some(&self.root.uid) {
            return Ok(true);
        }
        let mut above: Vec<OwnerReference> = pod.metadata.owner_references.clone().unwrap_or_default();
        let mut seen = BTreeSet::new();
        while let Some(owner) = above.pop() {
            if owner.uid == self.root.uid {
                return Ok(true);
            }
            if seen.insert(owner.uid.clone()) {
                above.extend(self.owners_of(&owner).await?);
            }
        }
        Ok(false)
    }

    async fn owners_of(&mut self, owner: &OwnerReference) -> anyhow::Result<Vec<OwnerReference>> {
        if let Some(known) = self.owners.get(&owner.uid) {
            return Ok(known.clone());
        }
        let kind =
            self.kinds.iter().find(|kind| kind.kind == owner.kind && kind.api_version == owner.api_version);
        let found = match kind {
            None => None,
            Some(kind) => {
                let client = self.cluster.client.clone();
                let api: Api<DynamicObject> = Api::namespaced_with(client, &self.root.namespace, kind);
                api.get_metadata_opt(&owner.name)
                    .await
                    .with_context(|| format!("cannot read {}", kind.plural))?
            }
        };
        let owners = found.and_then(|object| object.metadata.owner_references).unwrap_or_default();
        self.owners.insert(owner.uid.clone(), owners.clone());
        Ok(owners)
    }
}

async fn forward(
    run: Run,
    mut lines: futures::stream::BoxStream<'static, std::io::Result<String>>,
    sender: mpsc::Sender<String>,
) {
    while let Some(Ok(line)) = lines.next().await {
        if sender.send(line_of(&run, &line, true)).await.is_err() {
            return;
        }
    }
}

fn line_of(run: &Run, line: &str, is_prefixed: bool) -> String {
    if is_prefixed { format!("{}/{} | {line}\n", run.pod, run.container) } else { format!("{line}\n") }
}
