//! The scheduling engine, built from the objects of a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Node};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate, ResourceSlice};
use kube::Client;
use quintet_api::config::kueue::{self, QueueConfiguration};
use quintet_api::kueue::WorkloadLifecycle as _;
use quintet_api::kueue::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, Workload,
};
use quintet_controller::clock::Clock;
use quintet_queue_engine::Engine;
use quintet_queue_engine::names::WorkloadId;
use quintet_queue_engine::settings::Gates;
use quintet_queue_engine::time::Time;

use super::cluster_objects::{list_all, list_if_served};
use crate::catalog::Catalog;
use crate::operator::ConfigurationArguments;
use crate::output;

/// What the operator on the cluster is configured with: fair sharing and others change decisions.
#[derive(Args, Clone)]
pub(super) struct EngineArguments {
    /// The configuration file that the operator runs with, if it has one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Namespace and name.
pub(super) type Key = (String, String);

/// The engine with everything that decisions depend on.
pub(super) struct Snapshot {
    pub(super) engine: Engine,
    pub(super) now: Timestamp,
    pub(super) workloads: BTreeMap<Key, Workload>,
    /// Names of the ClusterQueues.
    pub(super) cluster_queues: Vec<String>,
}

impl Snapshot {
    /// Reads all objects. One that cannot be used is left out with a warning, as the operator does.
    pub(super) async fn read(
        client: &Client,
        arguments: &EngineArguments,
        catalog: &Catalog,
    ) -> anyhow::Result<Self> {
        let configuration =
            ConfigurationArguments::of_file(arguments.config.clone()).into_configuration(catalog)?;
        let settings: QueueConfiguration = configuration.section(kueue::CONFIG.component)?;
        let mut gates = Gates::default();
        for (name, on) in &configuration.feature_gates {
            gates.set(name, *on);
        }
        let mut engine = Engine::configured(&settings, gates);
        let now = Clock::system().now();
        let at = engine_time(now);
        let warn = |kind: &str, error: &dyn std::fmt::Display| {
            output::complain(&format!("warning: {kind} is left out: {error}\n"));
        };
        for namespace in list_all::<Namespace>(client).await? {
            engine.apply_namespace(&namespace, at);
        }
        for range in list_all::<LimitRange>(client).await? {
            engine.apply_limit_range(&range).unwrap_or_else(|error| warn("a LimitRange", &error));
        }
        for class in list_all::<RuntimeClass>(client).await? {
            engine.apply_runtime_class(&class);
        }
        for template in list_if_served::<ResourceClaimTemplate>(client).await? {
            engine
                .apply_resource_claim_template(&template)
                .unwrap_or_else(|error| warn("a ResourceClaimTemplate", &error));
        }
        for class in list_if_served::<DeviceClass>(client).await? {
            engine.apply_device_class(&class);
        }
        for slice in list_if_served::<ResourceSlice>(client).await? {
            engine.apply_resource_slice(&slice).unwrap_or_else(|error| warn("a ResourceSlice", &error));
        }
        for topology in list_all::<Topology>(client).await? {
            engine.apply_topology(&topology, at);
        }
        for flavor in list_all::<ResourceFlavor>(client).await? {
            engine
                .apply_resource_flavor(&flavor, at)
                .unwrap_or_else(|error| warn("a ResourceFlavor", &error));
        }
        for check in list_all::<AdmissionCheck>(client).await? {
            engine.apply_admission_check(&check, at);
        }
        let nodes = list_all::<Node>(client).await?;
        engine.apply_nodes(&nodes, at).unwrap_or_else(|error| warn("a Node", &error));
        for cohort in list_all::<Cohort>(client).await? {
            engine.apply_cohort(&cohort, at).unwrap_or_else(|error| warn("a Cohort", &error));
        }
        let mut cluster_queues = Vec::new();
        for queue in list_all::<ClusterQueue>(client).await? {
            match engine.apply_cluster_queue(&queue, at) {
                Ok(()) => cluster_queues.extend(queue.metadata.name),
                Err(error) => warn("a ClusterQueue", &error),
            }
        }
        for queue in list_all::<LocalQueue>(client).await? {
            engine.apply_local_queue(&queue).unwrap_or_else(|error| warn("a LocalQueue", &error));
        }
        let mut workloads = BTreeMap::new();
        for workload in list_all::<Workload>(client).await? {
            if let Err(error) = engine.apply_workload(&workload, at) {
                warn("a Workload", &error);
            }
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            workloads.insert((text(&workload.metadata.namespace), text(&workload.metadata.name)), workload);
        }
        cluster_queues.sort();
        Ok(Self { engine, now, workloads, cluster_queues })
    }

    /// The present in the engine's terms.
    pub(super) fn time(&self) -> Time {
        engine_time(self.now)
    }

    /// Namespace and name of a workload.
    pub(super) fn key(&self, id: WorkloadId) -> Option<Key> {
        key_in(&self.engine, id)
    }

    /// Finds a Workload by its own name, or as the one of `KIND/NAME`.
    pub(super) fn find(&self, namespace: &str, name: &str) -> anyhow::Result<(Key, &Workload)> {
        if let Some((kind, job)) = name.split_once('/').filter(|(kind, _)| !is_workload(kind)) {
            let owned = self
                .workloads
                .iter()
                .filter(|((own, _), workload)| own == namespace && is_owned_by(workload, kind, job));
            // A job may have had others before.
            let newest = owned.max_by_key(|(_, workload)| {
                let created = workload.metadata.creation_timestamp.as_ref().map(|time| time.0);
                (!workload.is_finished(), created)
            });
            let Some((key, workload)) = newest else {
                bail!(
                    "{kind} {job} has no Workload in the namespace {namespace}; is it labeled with a queue?"
                )
            };
            return Ok((key.clone(), workload));
        }
        let name = name.split_once('/').map_or(name, |(_, name)| name);
        let key = (namespace.to_owned(), name.to_owned());
        match self.workloads.get(&key) {
            Some(workload) => Ok((key, workload)),
            None => {
                bail!("Workload {name} does not exist in the namespace {namespace}; name a job as KIND/NAME")
            }
        }
    }
}

/// Namespace and name of a workload of an engine.
pub(super) fn key_in(engine: &Engine, id: WorkloadId) -> Option<Key> {
    let key = &engine.workload(id)?.key;
    Some((engine.names().namespaces.name(key.namespace).to_owned(), key.name.to_string()))
}

fn is_workload(kind: &str) -> bool {
    ["workload", "workloads", "wl"].iter().any(|own| kind.eq_ignore_ascii_case(own))
}

/// Whether a Workload is that of a job. Kinds are written as `job`, `jobs`, `job.batch` or `jobs.batch`.
pub(super) fn is_owned_by(workload: &Workload, kind: &str, name: &str) -> bool {
    let kind = kind.split_once('.').map_or(kind, |(kind, _)| kind).to_ascii_lowercase();
    workload.metadata.owner_references.iter().flatten().any(|owner| {
        let own = owner.kind.to_ascii_lowercase();
        owner.name == name && (own == kind || format!("{own}s") == kind)
    })
}

/// The jobs of a Workload, as `kind/name`.
pub(super) fn owners(workload: &Workload) -> String {
    let owners = workload.metadata.owner_references.iter().flatten();
    let texts: Vec<String> =
        owners.map(|owner| format!("{}/{}", owner.kind.to_ascii_lowercase(), owner.name)).collect();
    texts.join(",")
}

pub(super) fn engine_time(now: Timestamp) -> Time {
    i64::try_from(now.as_nanosecond()).map_or(Time::LAST, Time::from_nanos)
}

pub(super) fn timestamp(time: Time) -> Option<Timestamp> {
    Timestamp::from_nanosecond(time.as_nanos().into()).ok()
}
