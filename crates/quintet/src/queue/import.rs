//! `quintet queue import`: running pods become admitted Workloads, as with Kueue's importer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use clap::{ArgAction, Args};
use futures::future::ready;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use quintet_api::kueue::WorkloadLifecycle as _;
use quintet_api::kueue::metadata::MANAGED;
use quintet_api::kueue::v1beta2::{ClusterQueue, LocalQueue, ResourceFlavor, Workload};
use quintet_controller::api::{Api, ApiSettings, PatchKind};
use quintet_controller::clock::Clock;
use quintet_controller::limiter::{Limiter, LimiterSettings};
use quintet_controller::metrics::{Metrics, MetricsRegistry};
use quintet_controller::{ApiKind, Class, ObjectKey};
use quintet_queue::field_managers;
use quintet_queue::jobs::import::{self, Destination, Mapping};
use serde_json::{Value, json};

use super::cluster_objects::{list, list_all};
use crate::cluster::ClusterArguments;
use crate::output;

/// How many pods are named with a problem that several have.
const NAMED: usize = 3;

/// Import pods that run already: give them admitted Workloads, so that their quota counts.
///
/// First all pods are checked: whether a LocalQueue is named for each, and whether its ClusterQueue has quota for what
/// they request. Without --dry-run=false nothing else happens. Import before the framework `pod` is enabled: its webhook does not
/// let running pods get a queue.
#[derive(Args)]
#[command(after_help = "Examples:
  quintet queue import -n team-a --queuelabel project --queuemapping train=team
                                     check: pods labeled project=train go to the LocalQueue team
  quintet queue import -n team-a --queuelabel project --queuemapping train=team --dry-run=false
  quintet queue import -n team-a --queuemapping-file rules.yaml

A file of rules, of which the first that matches counts:
  - match: {labels: {project: train}, priorityClassName: high}
    toLocalQueue: fast
  - match: {labels: {project: test}}
    skip: true")]
pub(super) struct Arguments {
    /// The namespaces of the pods.
    #[arg(short, long, required = true, value_delimiter = ',')]
    namespace: Vec<String>,
    /// The label whose values decide; pods without it are left alone.
    #[arg(long, value_name = "LABEL", requires = "queuemapping", conflicts_with = "queuemapping_file")]
    queuelabel: Option<String>,
    /// The LocalQueue of each value of the label.
    #[arg(long, value_name = "VALUE=LOCALQUEUE", value_delimiter = ',', value_parser = pair, requires = "queuelabel")]
    queuemapping: Vec<(String, String)>,
    /// A file with rules by labels and priority classes.
    #[arg(long, value_name = "FILE", required_unless_present = "queuelabel")]
    queuemapping_file: Option<PathBuf>,
    /// Labels that pods and Workloads get in addition.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    add_labels: Vec<(String, String)>,
    /// Resources that do not count, by the beginning of their names.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    exclude_resource_prefixes: Vec<String>,
    /// Requests per second.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    qps: u32,
    /// Requests at once before --qps counts.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    burst: u32,
    /// Pods at a time.
    #[arg(short, long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,
    /// Only check.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    dry_run: bool,
    #[command(flatten)]
    cluster: ClusterArguments,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as KEY=VALUE".to_owned()),
    }
}

/// The queues and flavors of the cluster.
struct Queues {
    local: BTreeMap<(String, String), String>,
    cluster: BTreeMap<String, ClusterQueue>,
    flavors: BTreeSet<String>,
}

/// What to do with pods.
struct Rules {
    mapping: Mapping,
    /// Pods without it are left alone.
    label: Option<String>,
    added: BTreeMap<String, String>,
    excluded: Vec<String>,
}

/// A pod to import.
struct Import {
    pod: ObjectKey,
    labels: BTreeMap<String, String>,
    workload: Workload,
}

/// What the check found.
#[derive(Default)]
struct Checked {
    imports: Vec<Import>,
    skipped: usize,
    /// Pods by what is wrong with them.
    problems: BTreeMap<String, Vec<String>>,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let rules = rules(&arguments)?;
    let Arguments { namespace, qps, burst, concurrency, dry_run, cluster, .. } = arguments;
    let client = cluster.connect().await?.client;
    let queues = Queues::read(&client).await?;
    let mut pods: Vec<Pod> = Vec::new();
    for namespace in &namespace {
        pods.extend(list::<Pod>(&client, Some(namespace)).await?);
    }
    let checked = check(&pods, &rules, &queues, Clock::system().now());
    output::print(&summary(&checked, pods.len()))?;
    let wrong: usize = checked.problems.values().map(Vec::len).sum();
    ensure!(wrong == 0, "{wrong} pods cannot be imported; nothing was changed");
    if dry_run {
        if !checked.imports.is_empty() {
            output::print("Nothing was changed; give --dry-run=false to import them.\n")?;
        }
        return Ok(());
    }
    let limits = LimiterSettings { rate: Some((qps, burst)), ..LimiterSettings::default() };
    let metrics = Metrics::register(&MetricsRegistry::new());
    let api = Api::new(client, Limiter::adaptive(limits), ApiSettings::default(), metrics);
    import_all(&api, checked.imports, usize::from(concurrency)).await
}

fn rules(arguments: &Arguments) -> anyhow::Result<Rules> {
    let mapping = if let Some(file) = &arguments.queuemapping_file {
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        let mapping: Mapping =
            serde_saphyr::from_str(&text).with_context(|| format!("{name} is not a list of rules"))?;
        if let Some(index) = mapping.idle_rule() {
            anyhow::bail!("{name}: rule {} has neither toLocalQueue nor skip", index + 1);
        }
        mapping
    } else {
        let label = arguments.queuelabel.as_deref().unwrap_or_default();
        Mapping::of_label(label, arguments.queuemapping.iter().cloned())
    };
    Ok(Rules {
        mapping,
        label: arguments.queuelabel.clone(),
        added: arguments.add_labels.iter().cloned().collect(),
        excluded: arguments.exclude_resource_prefixes.clone(),
    })
}

impl Queues {
    async fn read(client: &Client) -> anyhow::Result<Self> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let local = list_all::<LocalQueue>(client).await?.into_iter().map(|queue| {
            let key = (text(&queue.metadata.namespace), text(&queue.metadata.name));
            (key, text(&queue.spec.cluster_queue))
        });
        let cluster = list_all::<ClusterQueue>(client).await?;
        let flavors = list_all::<ResourceFlavor>(client).await?;
        Ok(Self {
            local: local.collect(),
            cluster: cluster.into_iter().map(|queue| (text(&queue.metadata.name), queue)).collect(),
            flavors: flavors.into_iter().map(|flavor| text(&flavor.metadata.name)).collect(),
        })
    }

    /// The ClusterQueue of a LocalQueue, if all its flavors exist.
    fn cluster_queue(&self, namespace: &str, local: &str) -> Result<&ClusterQueue, String> {
        let name = self
            .local
            .get(&(namespace.to_owned(), local.to_owned()))
            .ok_or_else(|| format!("LocalQueue {local} does not exist in the namespace {namespace}"))?;
        let queue = self.cluster.get(name);
        let queue =
            queue.ok_or_else(|| format!("ClusterQueue {name} of LocalQueue {local} does not exist"))?;
        let groups = queue.spec.resource_groups.iter().flatten();
        let mut flavors = groups.flat_map(|group| &group.flavors);
        match flavors.find(|flavor| !self.flavors.contains(&flavor.name)) {
            Some(missing) => {
                Err(format!("ResourceFlavor {} of ClusterQueue {name} does not exist", missing.name))
            }
            None => Ok(queue),
        }
    }
}

/// Decides about every pod. Pure.
fn check(pods: &[Pod], rules: &Rules, queues: &Queues, now: Timestamp) -> Checked {
    let mut checked = Checked::default();
    for pod in pods {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&pod.metadata.namespace), text(&pod.metadata.name));
        match check_one(pod, &namespace, rules, queues, now) {
            Ok(None) => checked.skipped += 1,
            Ok(Some((labels, workload))) => {
                checked.imports.push(Import { pod: ObjectKey::new(&namespace, &name), labels, workload });
            }
            Err(problem) => {
                checked.problems.entry(problem).or_default().push(format!("{namespace}/{name}"));
            }
        }
    }
    checked
}

type Decision = Option<(BTreeMap<String, String>, Workload)>;

fn check_one(
    pod: &Pod,
    namespace: &str,
    rules: &Rules,
    queues: &Queues,
    now: Timestamp,
) -> Result<Decision, String> {
    let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_ended =
        matches!(phase, Some("Succeeded" | "Failed")) || pod.metadata.deletion_timestamp.is_some();
    let has_label = rules.label.as_ref().is_none_or(|key| label(key).is_some());
    if has_ended || !has_label || label(MANAGED).is_some() {
        return Ok(None);
    }
    let queue = match rules.mapping.destination(pod) {
        Some(Destination::LocalQueue(queue)) => queue,
        Some(Destination::Skip) => return Ok(None),
        None => {
            return Err(match rules.label.as_ref().and_then(|key| Some((key, label(key)?))) {
                Some((key, value)) => format!("no --queuemapping for {key}={value}"),
                None => "no rule matches".to_owned(),
            });
        }
    };
    let cluster_queue = queues.cluster_queue(namespace, queue)?;
    let workload = import::workload(pod, queue, &rules.added, cluster_queue, &rules.excluded, now)?;
    Ok(Some((import::labels(queue, &rules.added), workload)))
}

fn summary(checked: &Checked, all: usize) -> String {
    let wrong: usize = checked.problems.values().map(Vec::len).sum();
    let mut text = format!(
        "Checked {all} pods: {} to import, {} left alone, {wrong} with problems.\n",
        checked.imports.len(),
        checked.skipped
    );
    for (problem, pods) in &checked.problems {
        let named = pods.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = pods.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(text, "- {problem}: {named}{more}");
    }
    text
}

async fn import_all(api: &Api, imports: Vec<Import>, concurrency: usize) -> anyhow::Result<()> {
    let count = imports.len();
    let api = Arc::new(api.clone());
    let outcomes = stream::iter(imports).map(|import| {
        let api = Arc::clone(&api);
        async move {
            let outcome = import_one(&api, &import).await;
            outcome.with_context(|| format!("cannot import pod {}", import.pod))
        }
    });
    let failed: Vec<anyhow::Error> =
        outcomes.buffer_unordered(concurrency).filter_map(|outcome| ready(outcome.err())).collect().await;
    output::print(&format!("Imported {} pods.\n", count - failed.len()))?;
    let remaining = failed.len();
    match failed.into_iter().next() {
        Some(first) => Err(first.context(format!("{remaining} pods were not imported; run it again"))),
        None => Ok(()),
    }
}

/// The labels first: if a webhook denies them, nothing is left behind. Every step can be repeated.
async fn import_one(api: &Api, import: &Import) -> anyhow::Result<()> {
    let Import { pod, labels, workload } = import;
    let patch = json!({ "metadata": { "labels": labels } });
    api.patch(&ApiKind::of::<Pod>(), pod, None, &PatchKind::Merge, &patch).await?;
    let kind = ApiKind::of::<Workload>();
    let key = ObjectKey::new(
        workload.metadata.namespace.as_deref().unwrap_or_default(),
        workload.metadata.name.as_deref().unwrap_or_default(),
    );
    let mut body: Value = serde_json::to_value(workload)?;
    let status = body["status"].take();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("status");
    }
    match api.create(&kind, &key, &body).await {
        Err(error) if error.class() != Class::Conflict => return Err(error.into()),
        _ => {}
    }
    let applied = json!({ "apiVersion": kind.api_version(), "kind": kind.kind, "status": status,
        "metadata": { "namespace": key.namespace(), "name": key.name() } });
    let as_scheduler = PatchKind::Apply { manager: field_managers::ADMISSION.to_owned(), force: true };
    if let Err(error) = api.patch(&kind, &key, Some("status"), &as_scheduler, &applied).await {
        // The scheduler may have been faster, where there is quota left.
        let known = api.get(&kind, &key).await?;
        let known = known.and_then(|text| serde_json::from_str::<Workload>(&text).ok());
        if !known.is_some_and(|known| known.has_quota_reservation()) {
            return Err(error.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_checked_one_by_one() {
        let pod = |name: &str, labels: Value, phase: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": { "name": name, "namespace": "ns", "uid": name, "labels": labels },
                "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] },
                "status": { "phase": phase },
            }))
            .unwrap()
        };
        let queue =
            serde_json::from_value(json!({ "metadata": { "name": "cq" }, "spec": { "resourceGroups": [
            { "coveredResources": ["cpu"], "flavors": [
                { "name": "f", "resources": [{ "name": "cpu", "nominalQuota": "1" }] }] }] } }))
            .unwrap();
        let local = |name: &str| ("ns".to_owned(), name.to_owned());
        let mut queues = Queues {
            local: BTreeMap::from([(local("lq"), "cq".to_owned()), (local("astray"), "none".to_owned())]),
            cluster: BTreeMap::from([("cq".to_owned(), queue)]),
            flavors: BTreeSet::from(["f".to_owned()]),
        };
        let pairs = [("a", "lq"), ("b", "missing"), ("c", "astray")];
        let pairs = pairs.map(|(value, queue)| (value.to_owned(), queue.to_owned()));
        let rules = Rules {
            mapping: Mapping::of_label("project", pairs),
            label: Some("project".to_owned()),
            added: BTreeMap::new(),
            excluded: Vec::new(),
        };
        let pods = vec![
            pod("fits", json!({ "project": "a" }), "Running"),
            pod("ended", json!({ "project": "a" }), "Succeeded"),
            pod("other", json!({}), "Running"),
            pod("managed", json!({ "project": "a", "kueue.x-k8s.io/managed": "true" }), "Running"),
            pod("b", json!({ "project": "b" }), "Running"),
            pod("c", json!({ "project": "c" }), "Running"),
            pod("d", json!({ "project": "d" }), "Running"),
        ];
        let checked = check(&pods, &rules, &queues, Timestamp::UNIX_EPOCH);
        assert_eq!(
            summary(&checked, pods.len()),
            "Checked 7 pods: 1 to import, 3 left alone, 3 with problems.\n\
             - ClusterQueue none of LocalQueue astray does not exist: ns/c\n\
             - LocalQueue missing does not exist in the namespace ns: ns/b\n\
             - no --queuemapping for project=d: ns/d\n"
        );
        assert_eq!(checked.imports[0].labels["kueue.x-k8s.io/queue-name"], "lq");
        queues.flavors.clear();
        let checked = check(&pods[..1], &rules, &queues, Timestamp::UNIX_EPOCH);
        assert!(checked.problems.contains_key("ResourceFlavor f of ClusterQueue cq does not exist"));
    }
}
