//! Everything a decision about a job needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::metadata::{PREBUILT_WORKLOAD_NAME, PRIORITY_CLASS};
use quintet_api::kueue::v1beta2::{PodSet, ReclaimablePod, ResourceFlavor, Workload};
use quintet_controller::cache::{Cache, Caches, Entry, WatchSpec};
use quintet_controller::{ApiKind, Error, ObjectKey};
use serde::{Deserialize, Serialize};

use super::ancestors::{Ancestor, Ancestors, controller_of, is_followed};
use super::compose::{annotation, label};
use super::priority::{MissingClass, Priority, PriorityClasses};
use super::related::Related;
use super::{JobKind, Reference, compose, related, slices};
use crate::settings::Settings;
use crate::watches::{self, BY_JOB, BY_OWNER};

/// A job, or what is left of it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "J: JobKind")]
pub enum ObservedJob<J: JobKind> {
    /// It exists.
    Present(Box<PresentJob<J>>),
    /// It is gone, and its Workloads are not.
    Gone(GoneJob),
}

/// What is left of a job.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GoneJob {
    pub(super) workloads: Vec<Arc<Entry<Workload>>>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: Timestamp,
}

/// What was observed of a job and of its Workloads.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "J: JobKind")]
pub struct PresentJob<J: JobKind> {
    pub(super) job: Arc<Entry<J>>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: Timestamp,
    pub(super) is_namespace_managed: bool,
    pub(super) ancestor: Ancestor,
    /// Whether the ancestor's Workload is admitted.
    pub(super) is_ancestor_admitted: bool,
    /// Those it owns.
    pub(super) workloads: Vec<Arc<Entry<Workload>>>,
    /// Those of jobs that had its name before.
    pub(super) leftovers: Vec<Arc<Entry<Workload>>>,
    /// The Workload that its user has made for it.
    pub(super) prebuilt: Option<Prebuilt>,
    /// Its priority; the error is the name of a class that does not exist.
    pub(super) priority: Result<Priority, MissingClass>,
    /// What it runs; the error says why that is not known.
    pub(super) pod_sets: Result<Vec<PodSet>, String>,
    /// Pods that will not run any more.
    pub(super) reclaimable_pods: Vec<ReclaimablePod>,
    /// Annotations that it gets if it is elastic.
    pub(super) annotations: BTreeMap<String, String>,
    /// The flavors that its Workload was assigned.
    pub(super) flavors: BTreeMap<String, ResourceFlavor>,
}

/// A Workload that a job names.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Prebuilt {
    pub(super) name: String,
    pub(super) workload: Option<Arc<Entry<Workload>>>,
}

/// The caches of a controller of jobs.
#[derive(Clone)]
pub(super) struct JobCaches<J> {
    pub(super) jobs: Cache<J>,
    pub(super) workloads: Cache<Workload>,
    pub(super) namespaces: Cache<Namespace>,
    pub(super) classes: PriorityClasses,
    /// Objects that jobs refer to, by kind.
    pub(super) related: Vec<Related>,
    flavors: Cache<ResourceFlavor>,
    ancestors: Ancestors,
}

impl<J: JobKind> JobCaches<J> {
    pub(super) fn new(caches: &Caches, settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            jobs: caches.watch(jobs())?,
            workloads: caches.watch(watches::workloads())?,
            namespaces: caches.watch(WatchSpec::typed())?,
            classes: PriorityClasses::watch(caches)?,
            related: related::watch(caches, J::related_kinds())?,
            flavors: caches.watch(watches::resource_flavors())?,
            ancestors: Ancestors::watch(caches, settings)?,
        })
    }

    pub(super) fn observe(
        &self,
        key: &ObjectKey,
        settings: &Arc<Settings>,
        now: Timestamp,
    ) -> Option<ObservedJob<J>> {
        let named = self.workloads.by_index(BY_JOB, &watches::job_index(&J::kind(&()), key));
        match self.jobs.get(key) {
            Some(job) if !job.object.is_job(settings) => None,
            Some(job) => Some(ObservedJob::Present(Box::new(self.read(job, named, settings, now)))),
            None if named.is_empty() => None,
            None => {
                Some(ObservedJob::Gone(GoneJob { workloads: named, settings: Arc::clone(settings), now }))
            }
        }
    }

    fn read(
        &self,
        job: Arc<Entry<J>>,
        named: Vec<Arc<Entry<Workload>>>,
        settings: &Arc<Settings>,
        now: Timestamp,
    ) -> PresentJob<J> {
        let namespace = job.key.namespace().unwrap_or_default();
        let labels =
            self.namespaces.get(&ObjectKey::cluster(namespace)).map(|entry| labels_of(&entry.object));
        let metadata = job.object.meta();
        let ancestor = if J::IS_TOP_LEVEL {
            Ancestor::None
        } else {
            self.ancestors.of(namespace, controller_of(metadata).as_ref(), settings)
        };
        let is_ancestor_admitted = match &ancestor {
            Ancestor::Managed(uid) => self.is_owner_admitted(uid.as_str(), settings),
            _ => false,
        };
        let workloads = self.workloads.by_index(BY_OWNER, job.uid.as_str());
        let leftovers =
            named.into_iter().filter(|entry| !workloads.iter().any(|own| own.key == entry.key)).collect();
        let prebuilt = prebuilt_name(metadata, settings).map(|name| Prebuilt {
            workload: self.workloads.get(&ObjectKey::new(namespace, name)),
            name: name.to_owned(),
        });
        let assigned = workloads.iter().chain(prebuilt.iter().filter_map(|own| own.workload.as_ref()));
        let flavors = assigned.flat_map(|entry| flavors_of(&entry.object)).filter_map(|name| {
            let flavor = self.flavors.get(&ObjectKey::cluster(&name))?;
            Some((name, flavor.object.clone()))
        });
        let flavors = flavors.collect();
        let related = related::referred(&self.related, &job.object.references());
        let pod_sets = compose::pod_sets(&job.object, &related, settings);
        let annotations = job.object.annotations(&related);
        let reclaimable_pods = job.object.reclaimable_pods(&related);
        let named = job.object.priority_class();
        let priority = self.classes.of(metadata, named.as_deref(), pod_sets.clone().unwrap_or_default());
        PresentJob {
            is_namespace_managed: labels.is_some_and(|labels| settings.manages_namespace(&labels)),
            settings: Arc::clone(settings),
            job,
            now,
            ancestor,
            is_ancestor_admitted,
            workloads,
            leftovers,
            prebuilt,
            priority,
            pod_sets,
            reclaimable_pods,
            annotations,
            flavors,
        }
    }

    /// The jobs that refer to an object.
    pub(super) fn jobs_that_refer(&self, kind: &ApiKind, key: &ObjectKey) -> Vec<ObjectKey> {
        let index = reference_index(&Reference { kind: kind.clone(), key: key.clone() });
        keys(&self.jobs.by_index(BY_REFERENCE, &index))
    }

    /// Whether the latest unfinished Workload of an owner is admitted. An elastic one runs while its next slice waits.
    fn is_owner_admitted(&self, uid: &str, settings: &Settings) -> bool {
        let mut workloads = self.workloads.by_index(BY_OWNER, uid);
        workloads.retain(|entry| !entry.object.is_finished());
        workloads.sort_by_key(|entry| entry.object.metadata.creation_timestamp.clone());
        workloads.last().is_some_and(|entry| {
            let is_elastic = slices::is_elastic(&entry.object.metadata, settings);
            (is_elastic || entry.object.is_admitted()) && !entry.object.is_evicted()
        })
    }

    /// The jobs that own a Workload, and the one that names it.
    pub(super) fn jobs_of_workload(&self, entry: &Entry<Workload>) -> Vec<ObjectKey> {
        let namespace = entry.key.namespace().unwrap_or_default();
        let owners = entry.object.metadata.owner_references.iter().flatten();
        let mut jobs: Vec<ObjectKey> = owners
            .filter(|owner| owner.kind == J::kind(&()))
            .map(|owner| ObjectKey::new(namespace, &owner.name))
            .collect();
        for job in self.jobs.by_index(BY_PREBUILT, entry.key.as_str()) {
            jobs.push(job.key.clone());
        }
        if !J::IS_TOP_LEVEL {
            // Children follow the Workloads of their ancestors.
            jobs.extend(keys(&self.jobs.by_index(CHILDREN, namespace)));
        }
        jobs
    }

    pub(super) fn jobs_in(&self, namespace: &str) -> Vec<ObjectKey> {
        keys(&self.jobs.by_index(BY_NAMESPACE, namespace))
    }

    pub(super) fn jobs_of_class(&self, class: &str) -> Vec<ObjectKey> {
        keys(&self.jobs.by_index(BY_CLASS, class))
    }
}

/// Jobs by the Workload they name.
const BY_PREBUILT: &str = "prebuilt";
/// Jobs whose owners are followed, by namespace.
const CHILDREN: &str = "children";
/// Jobs by namespace.
const BY_NAMESPACE: &str = "namespace";
/// Jobs by the objects that they refer to.
const BY_REFERENCE: &str = "reference";
/// Jobs by WorkloadPriorityClass.
const BY_CLASS: &str = "class";

fn reference_index(reference: &Reference) -> String {
    format!("{} {}", reference.kind.kind, reference.key)
}

pub(super) fn jobs<J: JobKind>() -> WatchSpec<J> {
    let jobs = WatchSpec::<J>::typed();
    let jobs = if J::IS_OPTIONAL { jobs.optional() } else { jobs };
    jobs.select(J::selector())
        .index(BY_REFERENCE, |entry| entry.object.references().iter().map(reference_index).collect())
        .index(BY_PREBUILT, |entry| {
            let namespace = entry.key.namespace().unwrap_or_default();
            let metadata = entry.object.meta();
            let name = annotation(metadata, PREBUILT_WORKLOAD_NAME)
                .or_else(|| label(metadata, PREBUILT_WORKLOAD_NAME));
            name.map(|name| ObjectKey::new(namespace, name).to_string()).into_iter().collect()
        })
        .index(CHILDREN, |entry| {
            let namespace = entry.key.namespace().unwrap_or_default();
            let owner = controller_of(entry.object.meta()).filter(is_followed);
            owner.map(|_| namespace.to_owned()).into_iter().collect()
        })
        .index(BY_NAMESPACE, |entry| entry.key.namespace().map(str::to_owned).into_iter().collect())
        .index(BY_CLASS, |entry| {
            label(entry.object.meta(), PRIORITY_CLASS).map(str::to_owned).into_iter().collect()
        })
}

fn keys<T>(entries: &[Arc<Entry<T>>]) -> Vec<ObjectKey> {
    entries.iter().map(|entry| entry.key.clone()).collect()
}

pub(crate) fn labels_of(namespace: &Namespace) -> BTreeMap<String, String> {
    namespace.metadata.labels.clone().unwrap_or_default()
}

/// The Workload that a job names: by annotation unless its gate is off, or by the label of older clients.
pub(crate) fn prebuilt_name<'m>(
    metadata: &'m k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    settings: &Settings,
) -> Option<&'m str> {
    let by_annotation = annotation(metadata, PREBUILT_WORKLOAD_NAME);
    by_annotation
        .filter(|_| settings.gates.identifier_annotations)
        .or_else(|| label(metadata, PREBUILT_WORKLOAD_NAME))
}

pub(crate) fn flavors_of(workload: &Workload) -> Vec<String> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let sets = admission.into_iter().flat_map(|admission| admission.pod_set_assignments.iter().flatten());
    sets.flat_map(|set| set.flavors.iter().flatten()).map(|(_, flavor)| flavor.clone()).collect()
}
