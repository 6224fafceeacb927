//! `quintet queue create`: ClusterQueues, LocalQueues and ResourceFlavors, with the flags of kueuectl.

use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Resource};
use quintet_api::Quantity;
use quintet_api::kueue::v1beta2::{
    ClusterQueue, ClusterQueuePreemption, ClusterQueueSpec, FlavorQuotas, LocalQueue, LocalQueueSpec,
    QueueingStrategy, ReclaimWithinCohortPolicy, ResourceFlavor, ResourceFlavorSpec, ResourceGroup,
    ResourceQuota, WithinClusterQueuePolicy,
};
use quintet_controller::api::FIELD_MANAGER;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Place;
use crate::cluster::{Cluster, ClusterArguments};
use crate::output::{self, Format};

/// Create a queue or a flavor.
#[derive(Subcommand)]
pub(super) enum Command {
    /// Create a ClusterQueue.
    #[command(name = "clusterqueue", visible_alias = "cq")]
    ClusterQueue(Box<ClusterQueueArguments>),
    /// Create a LocalQueue.
    #[command(name = "localqueue", visible_alias = "lq")]
    LocalQueue(LocalQueueArguments),
    /// Create a ResourceFlavor.
    #[command(name = "resourceflavor", visible_alias = "rf")]
    ResourceFlavor(ResourceFlavorArguments),
}

#[derive(Args)]
#[command(after_help = "Examples:
  quintet queue create cq research --nominal-quota 'default:cpu=8;memory=32Gi'
  quintet queue create cq research --cohort company --nominal-quota 'a100:nvidia.com/gpu=8,t4:nvidia.com/gpu=16' \\
      --borrowing-limit 'a100:nvidia.com/gpu=4' --reclaim-within-cohort Any")]
pub(super) struct ClusterQueueArguments {
    /// Its name.
    name: String,
    /// The Cohort it shares unused quota with.
    #[arg(long)]
    cohort: Option<String>,
    /// What a Workload that does not fit does to those behind it: StrictFIFO or BestEffortFIFO.
    #[arg(long, value_name = "STRATEGY", default_value = "BestEffortFIFO", value_parser = named::<QueueingStrategy>)]
    queuing_strategy: QueueingStrategy,
    /// The namespaces it serves, by labels: KEY=VALUE,... All, unless some are given.
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = pair)]
    namespace_selector: Vec<(String, String)>,
    /// Whom it preempts in its Cohort to get its quota back: Never, LowerPriority or Any.
    #[arg(long, value_name = "POLICY", value_parser = named::<ReclaimWithinCohortPolicy>)]
    reclaim_within_cohort: Option<ReclaimWithinCohortPolicy>,
    /// Whom it preempts in itself: Never, LowerPriority or LowerOrNewerEqualPriority.
    #[arg(long, value_name = "POLICY", value_parser = named::<WithinClusterQueuePolicy>)]
    preemption_within_cluster_queue: Option<WithinClusterQueuePolicy>,
    /// Its quota: FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT,FLAVOR:...
    #[arg(long, value_name = "QUOTA", value_delimiter = ',', value_parser = quota)]
    nominal_quota: Vec<FlavorAmounts>,
    /// How much it may use beyond that, in the same form.
    #[arg(long, value_name = "QUOTA", value_delimiter = ',', value_parser = quota)]
    borrowing_limit: Vec<FlavorAmounts>,
    /// How much of it others may use, in the same form.
    #[arg(long, value_name = "QUOTA", value_delimiter = ',', value_parser = quota)]
    lending_limit: Vec<FlavorAmounts>,
    #[command(flatten)]
    printing: Printing,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Args)]
pub(super) struct LocalQueueArguments {
    /// Its name.
    name: String,
    /// The ClusterQueue it submits to.
    #[arg(short, long, value_name = "NAME")]
    clusterqueue: String,
    /// Create it even if the ClusterQueue does not exist.
    #[arg(short, long)]
    ignore_unknown_cq: bool,
    #[command(flatten)]
    printing: Printing,
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
pub(super) struct ResourceFlavorArguments {
    /// Its name.
    name: String,
    /// Labels of its nodes: KEY=VALUE,...
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = pair)]
    node_labels: Vec<(String, String)>,
    /// Taints of its nodes, which Workloads must tolerate: KEY[=VALUE]:EFFECT,...
    #[arg(long, value_name = "TAINTS", value_delimiter = ',', value_parser = taint)]
    node_taints: Vec<Taint>,
    /// What its pods tolerate in addition: KEY=VALUE:EFFECT, KEY:EFFECT or KEY, ...
    #[arg(long, value_name = "TOLERATIONS", value_delimiter = ',', value_parser = toleration)]
    tolerations: Vec<Toleration>,
    #[command(flatten)]
    printing: Printing,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Whether and how the object is printed.
#[derive(Args, Clone)]
struct Printing {
    /// Only print what would be created (client), or let the API server try it out (server).
    #[arg(long, value_name = "none|client|server", default_value = "none")]
    dry_run: DryRun,
    /// Print the object as YAML or JSON.
    #[arg(short, long)]
    output: Option<Format>,
}

/// Whether something is done or only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DryRun {
    /// It is done.
    None,
    /// Nothing is sent.
    Client,
    /// The API server tries it out.
    Server,
}

impl DryRun {
    /// What is added to a message.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// Amounts of resources of a flavor.
#[derive(Clone, Debug, PartialEq)]
struct FlavorAmounts {
    flavor: String,
    amounts: Vec<(String, Quantity)>,
}

pub(super) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::ClusterQueue(arguments) => {
            let (object, printing, cluster) = cluster_queue(*arguments)?;
            create(&object, &printing, cluster).await
        }
        Command::LocalQueue(arguments) => create_local_queue(arguments).await,
        Command::ResourceFlavor(arguments) => {
            let ResourceFlavorArguments { name, node_labels, node_taints, tolerations, printing, cluster } =
                arguments;
            let spec = ResourceFlavorSpec {
                node_labels: some(node_labels.into_iter().collect::<BTreeMap<_, _>>()),
                node_taints: some(node_taints),
                tolerations: some(tolerations),
                ..ResourceFlavorSpec::default()
            };
            create(&ResourceFlavor { metadata: called(name), spec }, &printing, cluster).await
        }
    }
}

async fn create_local_queue(arguments: LocalQueueArguments) -> anyhow::Result<()> {
    let LocalQueueArguments { name, clusterqueue, ignore_unknown_cq, printing, place } = arguments;
    let (cluster, namespace) = place.connect().await?;
    if !ignore_unknown_cq && printing.dry_run != DryRun::Client {
        let queues: Api<ClusterQueue> = Api::all(cluster.client.clone());
        let known = queues.get_metadata_opt(&clusterqueue).await;
        ensure!(
            known.context("cannot read the ClusterQueue")?.is_some(),
            "ClusterQueue {clusterqueue} does not exist; create it first, or give --ignore-unknown-cq"
        );
    }
    let mut metadata = called(name);
    metadata.namespace = Some(namespace.clone());
    let spec = LocalQueueSpec { cluster_queue: Some(clusterqueue), ..LocalQueueSpec::default() };
    let object = LocalQueue { metadata, spec, status: None };
    let api: Api<LocalQueue> = Api::namespaced(cluster.client.clone(), &namespace);
    finish(&object, &api, &printing).await
}

fn cluster_queue(
    arguments: ClusterQueueArguments,
) -> anyhow::Result<(ClusterQueue, Printing, ClusterArguments)> {
    let ClusterQueueArguments {
        name,
        cohort,
        queuing_strategy,
        namespace_selector,
        reclaim_within_cohort,
        preemption_within_cluster_queue,
        nominal_quota,
        borrowing_limit,
        lending_limit,
        printing,
        cluster,
    } = arguments;
    let has_policies = reclaim_within_cohort.is_some() || preemption_within_cluster_queue.is_some();
    let spec = ClusterQueueSpec {
        cohort_name: cohort,
        queueing_strategy: Some(queuing_strategy),
        namespace_selector: Some(LabelSelector {
            match_labels: some(namespace_selector.into_iter().collect::<BTreeMap<_, _>>()),
            match_expressions: None,
        }),
        preemption: has_policies.then(|| ClusterQueuePreemption {
            reclaim_within_cohort,
            within_cluster_queue: preemption_within_cluster_queue,
            ..ClusterQueuePreemption::default()
        }),
        resource_groups: some(resource_groups(&nominal_quota, &borrowing_limit, &lending_limit)?),
        ..ClusterQueueSpec::default()
    };
    Ok((ClusterQueue { metadata: called(name), spec, status: None }, printing, cluster))
}

/// Flavors with the same resources are one group.
fn resource_groups(
    nominal: &[FlavorAmounts],
    borrowing: &[FlavorAmounts],
    lending: &[FlavorAmounts],
) -> anyhow::Result<Vec<ResourceGroup>> {
    for (flag, limits) in [("--borrowing-limit", borrowing), ("--lending-limit", lending)] {
        for limit in limits {
            let flavor = &limit.flavor;
            let own = nominal.iter().find(|own| own.flavor == *flavor);
            let own = own.ok_or_else(|| anyhow!("{flag}: flavor {flavor} has no --nominal-quota"))?;
            for (resource, _) in &limit.amounts {
                ensure!(
                    own.amounts.iter().any(|(known, _)| known == resource),
                    "{flag}: {resource} of flavor {flavor} has no --nominal-quota"
                );
            }
        }
    }
    let limit = |limits: &[FlavorAmounts], flavor: &str, resource: &str| {
        let amounts = limits.iter().filter(|limit| limit.flavor == flavor).flat_map(|limit| &limit.amounts);
        amounts
            .into_iter()
            .find(|(name, _)| name == resource)
            .map(|(_, amount)| ApiQuantity(amount.to_string()))
    };
    let mut groups: Vec<ResourceGroup> = Vec::new();
    for FlavorAmounts { flavor, amounts } in nominal {
        let resources = amounts.iter().map(|(name, amount)| ResourceQuota {
            name: name.clone(),
            nominal_quota: ApiQuantity(amount.to_string()),
            borrowing_limit: limit(borrowing, flavor, name),
            lending_limit: limit(lending, flavor, name),
        });
        let quotas = FlavorQuotas { name: flavor.clone(), resources: resources.collect() };
        let covered: Vec<String> = amounts.iter().map(|(name, _)| name.clone()).collect();
        let known =
            groups.iter_mut().find(|group| group.covered_resources.iter().any(|own| covered.contains(own)));
        match known {
            None => groups.push(ResourceGroup { covered_resources: covered, flavors: vec![quotas] }),
            Some(group) if group.covered_resources == covered => {
                if group.flavors.iter().any(|own| own.name == *flavor) {
                    bail!("--nominal-quota: flavor {flavor} is given twice");
                }
                group.flavors.push(quotas);
            }
            Some(group) => bail!(
                "--nominal-quota: flavor {flavor} has {}, and others of its resources have {}; flavors that share a \
                 resource must have the same ones in the same order",
                covered.join(", "),
                group.covered_resources.join(", ")
            ),
        }
    }
    Ok(groups)
}

/// Creates a cluster-scoped object.
async fn create<K>(object: &K, printing: &Printing, cluster: ClusterArguments) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    if printing.dry_run == DryRun::Client {
        return print_created(object, printing);
    }
    let Cluster { client, .. } = cluster.connect().await?;
    finish(object, &Api::all(client), printing).await
}

async fn finish<K>(object: &K, api: &Api<K>, printing: &Printing) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    if printing.dry_run == DryRun::Client {
        return print_created(object, printing);
    }
    let (kind, name) = (K::kind(&()), object.meta().name.clone().unwrap_or_default());
    let dry_run = printing.dry_run == DryRun::Server;
    let parameters = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
    match api.create(&parameters, object).await {
        Ok(created) => print_created(&created, printing),
        Err(kube::Error::Api(status)) if status.code == 409 => bail!("{kind} {name} already exists"),
        Err(kube::Error::Api(status)) => bail!("cannot create {kind} {name}: {}", status.message),
        Err(error) => Err(error).with_context(|| format!("cannot create {kind} {name}")),
    }
}

fn print_created<K: Resource<DynamicType = ()> + Serialize>(
    object: &K,
    printing: &Printing,
) -> anyhow::Result<()> {
    let mut value = serde_json::to_value(object).context("cannot encode the object")?;
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    match printing.output {
        Some(Format::Yaml) => output::print_yaml(&value),
        Some(Format::Json) => output::print_json(&value),
        None => {
            let name = object.meta().name.as_deref().unwrap_or_default();
            output::print(&format!("{}/{name} created{}\n", resource_name::<K>(), printing.dry_run.suffix()))
        }
    }
}

/// A kind as messages name it: `clusterqueue.kueue.x-k8s.io`.
pub(super) fn resource_name<K: Resource<DynamicType = ()>>() -> String {
    let kind = K::kind(&()).to_ascii_lowercase();
    match &*K::group(&()) {
        "" => kind,
        group => format!("{kind}.{group}"),
    }
}

fn called(name: String) -> ObjectMeta {
    ObjectMeta { name: Some(name), ..ObjectMeta::default() }
}

/// What is not empty.
fn some<C: IntoIterator>(collection: C) -> Option<C>
where
    for<'c> &'c C: IntoIterator,
{
    let is_empty = (&collection).into_iter().next().is_none();
    (!is_empty).then_some(collection)
}

/// A value of an enum of the API, by its name there.
fn named<T: DeserializeOwned + Clone + Send + Sync + 'static>(text: &str) -> Result<T, String> {
    serde_json::from_value(text.into()).map_err(|error| {
        let expected = error.to_string();
        let expected = expected.split_once("expected ").map_or("", |(_, expected)| expected);
        format!("expected {}", expected.replace('`', ""))
    })
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as KEY=VALUE".to_owned()),
    }
}

fn quota(text: &str) -> Result<FlavorAmounts, String> {
    let wrong = || "write it as FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT".to_owned();
    let (flavor, rest) = text.split_once(':').filter(|(flavor, _)| !flavor.is_empty()).ok_or_else(wrong)?;
    let mut amounts: Vec<(String, Quantity)> = Vec::new();
    for part in rest.split(';').filter(|part| !part.is_empty()) {
        let (resource, amount) =
            part.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
        let parsed: Quantity = amount.parse().map_err(|_| format!("{amount:?} is not a quantity"))?;
        if amounts.iter().any(|(known, _)| known == resource) {
            return Err(format!("{resource} is given twice"));
        }
        amounts.push((resource.to_owned(), parsed));
    }
    if amounts.is_empty() {
        return Err(wrong());
    }
    Ok(FlavorAmounts { flavor: flavor.to_owned(), amounts })
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn effect(text: &str) -> Result<String, String> {
    if EFFECTS.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("unknown effect {text:?}; choose from {}", EFFECTS.join(", ")))
}

fn taint(text: &str) -> Result<Taint, String> {
    let (rest, own) = text.rsplit_once(':').ok_or("write it as KEY=VALUE:EFFECT or KEY:EFFECT")?;
    let (key, value) = rest.split_once('=').map_or((rest, None), |(key, value)| (key, Some(value)));
    if key.is_empty() {
        return Err("the key is missing".to_owned());
    }
    Ok(Taint {
        key: key.to_owned(),
        value: value.map(ToOwned::to_owned),
        effect: effect(own)?,
        time_added: None,
    })
}

fn toleration(text: &str) -> Result<Toleration, String> {
    let (rest, own) = text.rsplit_once(':').map_or((text, None), |(rest, own)| (rest, Some(own)));
    let (key, value) = rest.split_once('=').map_or((rest, None), |(key, value)| (key, Some(value)));
    if key.is_empty() {
        return Err("the key is missing".to_owned());
    }
    let operator = if value.is_some() { "Equal" } else { "Exists" };
    Ok(Toleration {
        key: Some(key.to_owned()),
        value: value.map(ToOwned::to_owned),
        effect: own.map(effect).transpose()?,
        operator: Some(operator.to_owned()),
        toleration_seconds: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn groups(nominal: &[&str], borrowing: &[&str]) -> anyhow::Result<serde_json::Value> {
        let read = |texts: &[&str]| -> Vec<FlavorAmounts> {
            texts.iter().map(|text| quota(text).unwrap()).collect()
        };
        Ok(json!(resource_groups(&read(nominal), &read(borrowing), &[])?))
    }

    #[test]
    fn flavors_with_the_same_resources_are_one_group() {
        let made = groups(&["a:cpu=1;memory=1Gi", "b:cpu=2;memory=2Gi", "c:gpu=3"], &["a:cpu=5"]).unwrap();
        assert_eq!(made[0]["coveredResources"], json!(["cpu", "memory"]));
        assert_eq!(
            made[0]["flavors"][0]["resources"][0],
            json!({ "name": "cpu", "nominalQuota": "1", "borrowingLimit": "5" })
        );
        assert_eq!(made[0]["flavors"][1]["name"], "b");
        assert_eq!(made[1]["coveredResources"], json!(["gpu"]));
        for (nominal, borrowing, expected) in [
            (&["a:cpu=1", "b:cpu=1;memory=1"][..], &[][..], "must have the same ones"),
            (&["a:cpu=1", "a:cpu=1"], &[], "flavor a is given twice"),
            (&["a:cpu=1"], &["b:cpu=1"], "--borrowing-limit: flavor b has no --nominal-quota"),
            (&["a:cpu=1"], &["a:gpu=1"], "--borrowing-limit: gpu of flavor a has no --nominal-quota"),
        ] {
            let error = groups(nominal, borrowing).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn mistakes_in_flags_say_how_to_write_them() {
        assert_eq!(quota("cpu=1"), Err("write it as FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT".to_owned()));
        assert_eq!(quota("a:cpu=many"), Err("\"many\" is not a quantity".to_owned()));
        assert_eq!(quota("a:cpu=1;cpu=2"), Err("cpu is given twice".to_owned()));
        assert!(taint("a=b:Never").unwrap_err().contains("choose from NoSchedule"));
        assert_eq!(toleration("a").unwrap().operator.as_deref(), Some("Exists"));
        assert_eq!(toleration("a=b:NoExecute").unwrap().effect.as_deref(), Some("NoExecute"));
        let strategy = named::<QueueingStrategy>("Fifo").unwrap_err();
        assert!(strategy.contains("StrictFIFO") && strategy.contains("BestEffortFIFO"), "{strategy}");
    }
}
