//! The kubelet's Node: registers it, reports its status, renews its lease.

mod object;

pub(crate) use object::Description;

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use quintet_controller::api::{Api, PatchKind};
use quintet_controller::clock::Clock;
use quintet_controller::tasks::Tasks;
use quintet_controller::{ApiKind, Class, Error, ObjectKey};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::machine::Free;

/// Where nodes keep their leases.
const LEASES: &str = "kube-node-lease";
/// A lease is renewed this often; it lasts for 40 seconds.
const RENEWAL: Duration = Duration::from_secs(10);
/// A status that did not change is written this often, as the kubelet's `nodeStatusReportFrequency`.
const REPORT: Duration = Duration::from_mins(5);

/// What came of a report.
enum Reported {
    Written,
    Unchanged,
    /// There is no such node any more.
    Missing,
}

/// The kubelet's own node.
#[derive(Clone)]
pub(crate) struct Node {
    api: Api,
    clock: Clock,
    description: Description,
    data_directory: PathBuf,
}

impl Node {
    pub(crate) fn new(api: Api, clock: Clock, description: Description, data_directory: PathBuf) -> Self {
        Self { api, clock, description, data_directory }
    }

    /// Registers the node, or takes over the one of an earlier run. Returns its uid.
    pub(crate) async fn register(&self) -> Result<String, Error> {
        let node = self.description.node(self.free(), self.clock.now());
        let created = match self.api.create(&kind(), &self.key(), &node).await {
            Ok(text) => text,
            Err(error) if error.has_code(409) => {
                let labels = json!({ "metadata": { "labels": self.description.all_labels() } });
                self.api.patch(&kind(), &self.key(), None, &PatchKind::Merge, &labels).await?;
                self.report(true).await?;
                self.api.get(&kind(), &self.key()).await?.unwrap_or_default()
            }
            Err(error) => return Err(error),
        };
        let node = self.parse(&created)?;
        let uid = node["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.renew(&uid).await?;
        Ok(uid)
    }

    /// Keeps lease and status up to date until the tasks stop.
    pub(crate) async fn maintain(self, mut uid: String, tasks: Tasks) {
        let mut ticks = interval(RENEWAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = Instant::now();
        loop {
            tokio::select! {
                () = tasks.stopping() => return,
                _ = ticks.tick() => {}
            }
            if let Err(error) = self.renew(&uid).await {
                tracing::warn!("cannot renew the lease of the node; it may be marked unreachable: {error}");
            }
            let is_due = reported.elapsed() >= REPORT;
            match self.report(is_due).await {
                Ok(Reported::Written) => reported = Instant::now(),
                Ok(Reported::Unchanged) => {}
                // Deleted by a user: a kubelet registers again.
                Ok(Reported::Missing) => match self.register().await {
                    Ok(new) => uid = new,
                    Err(error) => tracing::warn!("cannot register the node again: {error}"),
                },
                Err(error) => tracing::warn!("cannot report the status of the node: {error}"),
            }
        }
    }

    /// Writes the status if it changed or `is_due`.
    async fn report(&self, is_due: bool) -> Result<Reported, Error> {
        let Some(text) = self.api.get(&kind(), &self.key()).await? else { return Ok(Reported::Missing) };
        let node = self.parse(&text)?;
        let status = self.description.status(&node["status"], self.free(), self.clock.now());
        let ours: Value = status
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| (key.clone(), node["status"][key].clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        if !is_due && !object::differs(&ours, &status) {
            return Ok(Reported::Unchanged);
        }
        let patch = json!({ "status": object::patch(&ours, &status) });
        self.api.patch(&kind(), &self.key(), Some("status"), &PatchKind::Merge, &patch).await?;
        Ok(Reported::Written)
    }

    async fn renew(&self, uid: &str) -> Result<(), Error> {
        let (leases, name) = (ApiKind::of::<Lease>(), &self.description.name);
        let key = ObjectKey::new(LEASES, name);
        let spec = json!({
            "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": format!("{:.6}", self.clock.now()),
        });
        let patch = json!({ "spec": spec });
        match self.api.patch(&leases, &key, None, &PatchKind::Merge, &patch).await {
            Err(error) if error.is_not_found() => {
                let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid });
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": { "name": name, "namespace": LEASES, "ownerReferences": [owner] },
                    "spec": spec,
                });
                self.api.create(&leases, &key, &lease).await.map(drop)
            }
            outcome => outcome.map(drop),
        }
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::cluster(&self.description.name)
    }

    fn free(&self) -> Free {
        Free::read(&self.data_directory)
    }

    fn parse(&self, text: &str) -> Result<Value, Error> {
        serde_json::from_str(text).map_err(|error| {
            let what = format!("cannot read node {}", self.description.name);
            Error::new(Class::Transient, what, error.to_string())
        })
    }
}

fn kind() -> ApiKind {
    ApiKind::of::<core::Node>()
}
