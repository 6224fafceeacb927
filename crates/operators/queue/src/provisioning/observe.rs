//! Everything a decision about the checks of a Workload needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use quintet_api::kueue::v1beta2::{
    AdmissionCheck, AdmissionCheckState, ProvisioningRequestConfig, ProvisioningRequestConfigSpec,
    ResourceFlavor, Workload,
};
use quintet_controller::cache::{Cache, Caches, Change, Entry, ObjectMetadata, WatchSpec};
use quintet_controller::{Error, ObjectKey};
use serde::{Deserialize, Serialize};

use super::request::{self, BY_WORKLOAD, ProvisioningRequest};
use super::{names, parameters, pod_sets, template};
use crate::settings::Settings;
use crate::watches::{self, BY_CONFIG, BY_STATE_OF_CHECK};

/// A Workload with checks of this controller, or with requests.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Observed {
    pub(super) workload: Arc<Entry<Workload>>,
    pub(super) checks: Vec<ObservedCheck>,
    /// Those that the Workload controls.
    pub(super) requests: Vec<Arc<Entry<ProvisioningRequest>>>,
    /// The templates of these requests, and those with the names of the next, by name.
    pub(super) templates: BTreeMap<String, Arc<Entry<ObjectMetadata>>>,
    /// The flavors that the Workload was assigned.
    pub(super) flavors: BTreeMap<String, ResourceFlavor>,
    /// Whether requests go with an eviction.
    pub(super) cleans_up: bool,
    /// Whether the cluster serves ProvisioningRequests.
    pub(super) is_served: bool,
    pub(super) now: Timestamp,
}

/// A check that this controller decides.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObservedCheck {
    pub(super) name: String,
    /// Its configuration; `None` if that does not exist.
    pub(super) config: Option<ProvisioningRequestConfigSpec>,
}

/// The caches of the controller.
#[derive(Clone)]
pub(super) struct ProvisioningCaches {
    pub(super) workloads: Cache<Workload>,
    pub(super) checks: Cache<AdmissionCheck>,
    pub(super) configs: Cache<ProvisioningRequestConfig>,
    pub(super) requests: Cache<ProvisioningRequest>,
    pub(super) templates: Cache<ObjectMetadata>,
    pub(super) flavors: Cache<ResourceFlavor>,
}

/// The checks that a Workload lists.
fn states(workload: &Workload) -> &[AdmissionCheckState] {
    let status = workload.status.as_ref();
    status.and_then(|status| status.admission_checks.as_deref()).unwrap_or_default()
}

impl ProvisioningCaches {
    pub(super) fn new(caches: &Caches) -> Result<Self, Error> {
        Ok(Self {
            workloads: caches.watch(watches::workloads())?,
            checks: caches.watch(watches::admission_checks())?,
            configs: caches.watch(WatchSpec::typed())?,
            requests: caches.watch(request::requests())?,
            templates: caches.watch(template::templates())?,
            flavors: caches.watch(watches::resource_flavors())?,
        })
    }

    /// `None` if the Workload has nothing to do with this controller.
    pub(super) fn read(&self, key: &ObjectKey, settings: &Settings, now: Timestamp) -> Option<Observed> {
        let workload = self.workloads.get(key)?;
        let checks: Vec<ObservedCheck> =
            states(&workload.object).iter().filter_map(|state| self.check(&state.name)).collect();
        let requests = self.requests.by_index(BY_WORKLOAD, workload.uid.as_str());
        if checks.is_empty() && requests.is_empty() {
            return None;
        }
        Some(Observed {
            templates: self.templates(&workload, &checks, &requests),
            flavors: self.flavors(&workload.object),
            cleans_up: settings.gates.cleanup_provisioning_requests,
            is_served: self.requests.is_served(),
            workload,
            checks,
            requests,
            now,
        })
    }

    fn check(&self, name: &str) -> Option<ObservedCheck> {
        let check = self.checks.get(&ObjectKey::cluster(name))?;
        parameters::is_ours(&check.object).then(|| {
            let config = parameters::config_name(&check.object).ok();
            let config = config.and_then(|name| self.configs.get(&ObjectKey::cluster(name)));
            ObservedCheck { name: name.to_owned(), config: config.map(|entry| entry.object.spec.clone()) }
        })
    }

    fn templates(
        &self,
        workload: &Entry<Workload>,
        checks: &[ObservedCheck],
        requests: &[Arc<Entry<ProvisioningRequest>>],
    ) -> BTreeMap<String, Arc<Entry<ObjectMetadata>>> {
        let requested = requests.iter().flat_map(|entry| &entry.object.spec.pod_sets);
        let mut wanted: BTreeSet<String> = requested.map(|set| set.pod_template_ref.name.clone()).collect();
        for check in checks {
            let state = states(&workload.object).iter().find(|state| state.name == check.name);
            let attempts = next_attempts(workload.key.name(), check, state, requests);
            let next = attempts.map(|attempt| names::request(workload.key.name(), &check.name, attempt));
            for request in next {
                let sets = workload.object.spec.pod_sets.iter().flatten();
                wanted.extend(sets.map(|set| names::template(&request, pod_sets::name(set))));
            }
        }
        let namespace = workload.key.namespace().unwrap_or_default();
        let found = wanted.into_iter().filter_map(|name| {
            let entry = self.templates.get(&ObjectKey::new(namespace, &name))?;
            Some((name, entry))
        });
        found.collect()
    }

    fn flavors(&self, workload: &Workload) -> BTreeMap<String, ResourceFlavor> {
        let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
        let sets = admission.into_iter().flat_map(|admission| admission.pod_set_assignments.iter().flatten());
        let assigned = sets.flat_map(|set| set.flavors.iter().flatten());
        let found = assigned.filter_map(|(_, name)| {
            Some((name.clone(), self.flavors.get(&ObjectKey::cluster(name))?.object.clone()))
        });
        found.collect()
    }

    /// The Workload whose request a template is for.
    pub(super) fn workloads_of_template(&self, entry: &Entry<ObjectMetadata>) -> Vec<ObjectKey> {
        let namespace = entry.key.namespace().unwrap_or_default();
        let Some(owner) = entry.object.controller() else { return Vec::new() };
        let key = ObjectKey::new(namespace, &owner.name);
        let of_request = || self.requests.get(&key).and_then(|request| request::workload_of(&request));
        if *owner.kind == *"Workload" { vec![key] } else { of_request().into_iter().collect() }
    }

    fn workloads_with(&self, check: &str) -> Vec<ObjectKey> {
        keys(&self.workloads.by_index(BY_STATE_OF_CHECK, check))
    }

    /// Those that list a check whose spec has changed. Its condition is written by this controller itself.
    pub(super) fn workloads_of_check(&self, change: &Change<AdmissionCheck>) -> Vec<ObjectKey> {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && old.object.spec == new.object.spec
        {
            return Vec::new();
        }
        let Some(entry) = change.states().next() else { return Vec::new() };
        let is_ours = change.states().any(|entry| parameters::is_ours(&entry.object));
        if is_ours { self.workloads_with(entry.key.name()) } else { Vec::new() }
    }

    pub(super) fn workloads_of_config(&self, change: &Change<ProvisioningRequestConfig>) -> Vec<ObjectKey> {
        let Some(entry) = change.states().next() else { return Vec::new() };
        let users = self.checks.by_index(BY_CONFIG, entry.key.name());
        users.iter().flat_map(|check| self.workloads_with(check.key.name())).collect()
    }

    /// Those that list any check of this controller.
    pub(super) fn workloads_with_checks(&self) -> Vec<ObjectKey> {
        let all = self.checks.all();
        let ours = all.iter().filter(|check| parameters::is_ours(&check.object));
        ours.flat_map(|check| self.workloads_with(check.key.name())).collect()
    }
}

/// The numbers that the next request of a check may have.
fn next_attempts(
    workload: &str,
    check: &ObservedCheck,
    state: Option<&AdmissionCheckState>,
    requests: &[Arc<Entry<ProvisioningRequest>>],
) -> impl Iterator<Item = i32> {
    let retries = state.and_then(|state| state.retry_count).unwrap_or(0);
    let known = requests.iter().filter_map(|entry| names::attempt(entry.key.name(), workload, &check.name));
    known.chain([retries]).map(|attempt| attempt.saturating_add(1)).collect::<BTreeSet<_>>().into_iter()
}

fn keys<T>(entries: &[Arc<Entry<T>>]) -> Vec<ObjectKey> {
    entries.iter().map(|entry| entry.key.clone()).collect()
}
