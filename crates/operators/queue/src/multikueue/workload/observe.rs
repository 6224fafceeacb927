//! Everything a decision about a Workload on other clusters needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use quintet_api::conditions;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::ACTIVE;
use quintet_api::kueue::metadata::{IS_GROUP_WORKLOAD, MULTIKUEUE_CONTROLLER};
use quintet_api::kueue::v1beta2::{AdmissionCheck, MultiKueueCluster, MultiKueueConfig, Workload};
use quintet_controller::cache::{Cache, Entry, Knowledge, WatchSpec};
use quintet_controller::{ApiKind, Error, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::check::config_of;
use super::super::connections::{Connection, ConnectionState, Connections};
use super::copies;
use crate::Context;
use crate::jobs::{JobFacts, RemoteKind};
use crate::settings::Settings;
use crate::watches;

/// A Workload, or what is left of it on other clusters.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Observed {
    /// It is gone, and copies of it are not.
    Gone(Vec<Copies>),
    /// It exists, and a check of MultiKueue decides about it.
    Present(Box<Present>),
}

/// A Workload, its job and its copies.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Present {
    pub(super) workload: Arc<Entry<Workload>>,
    /// The check of MultiKueue.
    pub(super) check: String,
    /// The clusters that its configuration names, in this order.
    pub(super) configured: Vec<String>,
    pub(super) job: Job,
    /// The clusters that are configured, and others with copies.
    pub(super) copies: Vec<Copies>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: Timestamp,
}

/// The job of a Workload.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Job {
    /// It is of a kind that cannot run elsewhere, or there is none.
    Unsupported(Option<String>),
    /// It is gone, or not seen yet.
    Missing,
    /// It exists: one, or the pods of a group.
    Found(Vec<LocalJob>),
}

/// A job on this cluster.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LocalJob {
    pub(super) kind: ApiKind,
    pub(super) entry: Arc<Entry<Value>>,
    /// The JSON pointer to the field that says who runs it.
    pub(super) managed_by: String,
    pub(super) facts: JobFacts,
    /// How many pods of each pod set it asks for, if it is elastic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) counts: Option<BTreeMap<String, i32>>,
}

/// What a cluster has of a Workload.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Copies {
    pub(super) cluster: String,
    pub(super) reach: Reach,
    pub(super) workload: Option<Arc<Entry<Workload>>>,
    pub(super) jobs: Vec<RemoteJob>,
}

fn local_job(kind: &RemoteKind, entry: Entry<Value>, settings: &Settings) -> LocalJob {
    let (facts, _) = kind.read(&entry.object);
    let counts = kind.counts(&entry.object, settings);
    let managed_by = kind.managed_by.to_owned();
    LocalJob { kind: kind.kind.clone(), entry: Arc::new(entry), managed_by, facts, counts }
}

/// Whether pods of a group own a Workload together.
fn is_group(workload: &Workload) -> bool {
    let annotations = workload.metadata.annotations.as_ref();
    annotations.is_some_and(|own| own.get(IS_GROUP_WORKLOAD).is_some_and(|value| value == "true"))
}

impl Copies {
    /// Whether this is what the cluster has now.
    pub(super) fn is_connected(&self) -> bool {
        self.reach == Reach::Connected
    }
}

/// Whether a cluster can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Reach {
    /// It can.
    Connected,
    /// Nothing says that it cannot: after a start, connections take a moment.
    Connecting,
    /// It is lost since then, as its MultiKueueCluster says.
    LostSince(Timestamp),
    /// There is no such MultiKueueCluster.
    Unknown,
}

/// A job on another cluster.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoteJob {
    pub(super) kind: ApiKind,
    pub(super) entry: Arc<Entry<Value>>,
    /// Its status, with the fields that this program knows.
    pub(super) status: Value,
    pub(super) facts: JobFacts,
}

/// The caches of the controller.
#[derive(Clone)]
pub(super) struct WorkloadCaches {
    pub(super) workloads: Cache<Workload>,
    pub(super) clusters: Cache<MultiKueueCluster>,
    pub(super) configs: Cache<MultiKueueConfig>,
    pub(super) checks: Cache<AdmissionCheck>,
    pub(super) connections: Arc<Connections>,
    pub(super) kinds: Arc<Vec<RemoteKind>>,
    context: Context,
    /// When this process began to look.
    started: Timestamp,
}

impl WorkloadCaches {
    pub(super) fn new(
        context: &Context,
        connections: &Arc<Connections>,
        kinds: Vec<RemoteKind>,
    ) -> Result<Self, Error> {
        let caches = context.runtime.caches();
        Ok(Self {
            workloads: caches.watch(watches::workloads())?,
            clusters: caches.watch(WatchSpec::typed())?,
            configs: caches.watch(WatchSpec::typed())?,
            checks: caches.watch(WatchSpec::typed())?,
            connections: Arc::clone(connections),
            kinds: Arc::new(kinds),
            context: context.clone(),
            started: context.clock.now(),
        })
    }

    pub(super) fn observe(
        &self,
        key: &ObjectKey,
        settings: &Arc<Settings>,
        now: Timestamp,
    ) -> Option<Observed> {
        let Some(workload) = self.workloads.get(key) else { return self.gone(key) };
        let (check, configured) = self.check_of(&workload.object)?;
        let job = self.job(&workload);
        let connected = self.connections.all();
        let mut copies: Vec<Copies> = configured
            .iter()
            .map(|cluster| self.copies(cluster, self.connections.get(cluster), key))
            .collect();
        for (cluster, connection) in connected {
            if !configured.contains(&cluster) && connection.workload(key).is_some() {
                copies.push(self.copies(&cluster, Some(connection), key));
            }
        }
        let object = &workload.object;
        let runs = object.has_quota_reservation() && !object.is_finished() && !object.is_evicted();
        if runs && !workload.deleting && copies::is_elastic(object) {
            self.find_resized(&workload, &job, &mut copies);
        }
        let settings = Arc::clone(settings);
        Some(Observed::Present(Box::new(Present { workload, check, configured, job, copies, settings, now })))
    }

    /// The job of an elastic Workload on its cluster runs for the slice before this one, until it is resized.
    fn find_resized(&self, workload: &Entry<Workload>, job: &Job, copies: &mut [Copies]) {
        let chosen = workload.object.status.as_ref().and_then(|status| status.cluster_name.as_deref());
        let Job::Found(jobs) = job else { return };
        for copies in
            copies.iter_mut().filter(|own| Some(own.cluster.as_str()) == chosen && own.jobs.is_empty())
        {
            let Some(connection) = self.connections.get(&copies.cluster) else { continue };
            for job in jobs {
                let found = connection.job(&job.kind, &job.entry.key);
                copies.jobs.extend(found.map(|entry| self.remote_job(job.kind.clone(), entry)));
            }
        }
    }

    fn remote_job(&self, kind: ApiKind, entry: Arc<Entry<Value>>) -> RemoteJob {
        let known = self.kinds.iter().find(|own| own.kind == kind);
        let (facts, object) =
            known.map_or_else(|| (JobFacts::default(), entry.object.clone()), |own| own.read(&entry.object));
        RemoteJob { kind, entry, status: object["status"].clone(), facts }
    }

    /// What is left of a Workload that is certainly gone, rather than out of sight.
    fn gone(&self, key: &ObjectKey) -> Option<Observed> {
        let kind = ApiKind::of::<Workload>();
        if self.context.runtime.caches().knowledge(&kind, key, &BTreeMap::new()) != Knowledge::Absent {
            return None;
        }
        let connected = self.connections.all().into_iter();
        let copies = connected.map(|(cluster, connection)| self.copies(&cluster, Some(connection), key));
        let copies: Vec<Copies> =
            copies.filter(|own| own.workload.is_some() || !own.jobs.is_empty()).collect();
        (!copies.is_empty()).then_some(Observed::Gone(copies))
    }

    /// The check of MultiKueue that decides about a Workload, and the clusters that it names.
    fn check_of(&self, workload: &Workload) -> Option<(String, Vec<String>)> {
        let status = workload.status.as_ref()?;
        let mut states = status.admission_checks.iter().flatten();
        states.find_map(|state| {
            let check = self.checks.get(&ObjectKey::cluster(&state.name))?;
            if check.object.spec.controller_name != MULTIKUEUE_CONTROLLER {
                return None;
            }
            let config =
                config_of(&check.object).and_then(|name| self.configs.get(&ObjectKey::cluster(name)));
            let clusters = config.map(|config| config.object.spec.clusters.clone());
            Some((state.name.clone(), clusters.unwrap_or_default()))
        })
    }

    fn job(&self, workload: &Entry<Workload>) -> Job {
        let owners = workload.object.metadata.owner_references.as_deref().unwrap_or_default();
        if is_group(&workload.object) {
            return self.pods(workload, owners);
        }
        let Some(owner) = owners.iter().find(|owner| owner.controller == Some(true)) else {
            return Job::Unsupported(None);
        };
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let is_of = |kind: &&RemoteKind| kind.kind.group == group && kind.kind.kind == owner.kind;
        let Some(kind) = self.kinds.iter().find(is_of) else {
            return Job::Unsupported(Some(format!("{}, Kind={}", owner.api_version, owner.kind)));
        };
        let key = ObjectKey::new(workload.key.namespace().unwrap_or_default(), &owner.name);
        let entry = kind.get(&key).filter(|entry| entry.uid.as_str() == owner.uid);
        entry.map_or(Job::Missing, |entry| Job::Found(vec![local_job(kind, entry, &self.context.settings)]))
    }

    /// The pods of a group.
    fn pods(&self, workload: &Entry<Workload>, owners: &[OwnerReference]) -> Job {
        let Some(kind) = self.kinds.iter().find(|kind| kind.kind == ApiKind::of::<Pod>()) else {
            return Job::Unsupported(Some("v1, Kind=Pod".to_owned()));
        };
        let namespace = workload.key.namespace().unwrap_or_default();
        let pods = owners.iter().filter(|owner| owner.kind == "Pod").filter_map(|owner| {
            let entry = kind.get(&ObjectKey::new(namespace, &owner.name))?;
            let is_it = entry.uid.as_str() == owner.uid && !entry.deleting;
            is_it.then(|| local_job(kind, entry, &self.context.settings))
        });
        let pods: Vec<LocalJob> = pods.collect();
        if pods.is_empty() { Job::Missing } else { Job::Found(pods) }
    }

    fn copies(&self, cluster: &str, connection: Option<Arc<Connection>>, key: &ObjectKey) -> Copies {
        let jobs = connection.iter().flat_map(|own| own.jobs(key));
        let jobs = jobs.map(|(kind, entry)| self.remote_job(kind, entry));
        Copies {
            cluster: cluster.to_owned(),
            reach: self.reach(cluster, connection.as_deref()),
            jobs: jobs.collect(),
            workload: connection.and_then(|own| own.workload(key)),
        }
    }

    fn reach(&self, cluster: &str, connection: Option<&Connection>) -> Reach {
        if connection.is_some_and(|own| own.state() == ConnectionState::Connected) {
            return Reach::Connected;
        }
        let Some(cluster) = self.clusters.get(&ObjectKey::cluster(cluster)) else { return Reach::Unknown };
        let conditions = cluster.object.status.as_ref().and_then(|status| status.conditions.as_deref());
        let active = conditions::find(conditions.unwrap_or_default(), ACTIVE);
        let inactive = active.filter(|own| own.status != "True");
        // What was lost before a start may come back as if it were lost then.
        inactive
            .map_or(Reach::Connecting, |own| Reach::LostSince(own.last_transition_time.0.max(self.started)))
    }

    /// Workloads that checks decide about.
    pub(super) fn checked(&self) -> Vec<ObjectKey> {
        let all = self.workloads.all();
        let is_checked = |entry: &&Arc<Entry<Workload>>| {
            entry.object.status.as_ref().is_some_and(|status| status.admission_checks.is_some())
        };
        all.iter().filter(is_checked).map(|entry| entry.key.clone()).collect()
    }

    /// Workloads that checks decide about, and those that a cluster has copies of.
    pub(super) fn workloads_of_cluster(&self, cluster: &str) -> Vec<ObjectKey> {
        let copied = self.connections.workloads_on(cluster);
        let mut keys: Vec<ObjectKey> = self.checked().into_iter().chain(copied).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}
