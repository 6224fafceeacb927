//! Quota of ClusterQueues whose Workloads run on other clusters: the sum of what the worker clusters have, where their
//! MultiKueueConfig asks for it.
//!
//! A ClusterQueue of a worker counts if a LocalQueue there, of the same namespace and name as one of this ClusterQueue,
//! leads to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::conditions::{self, Finding};
use quintet_api::kueue::conditions::MULTIKUEUE_MANAGER_QUOTA_AUTOMATION as AUTOMATION;
use quintet_api::kueue::metadata::MULTIKUEUE_CONTROLLER;
use quintet_api::kueue::reasons::QuotaAutomationReason as Reason;
use quintet_api::kueue::v1beta2::{
    AdmissionCheck, ClusterQueue, LocalQueue, MultiKueueCluster, MultiKueueConfig, QuotaManagement,
};
use quintet_api::quantity::Quantity;
use quintet_controller::cache::{Cache, Change, Entry, WatchSpec};
use quintet_controller::controller::Trigger;
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, Plan, StatusPatch, Step};
use serde::{Deserialize, Serialize};

use super::check::config_of;
use super::connections::Connections;
use crate::Context;
use crate::watches::{self, BY_CHECK, BY_CLUSTER_QUEUE};

/// The controller.
struct QuotaController {
    context: Context,
    caches: QuotaCaches,
    connections: Arc<Connections>,
}

#[derive(Clone)]
struct QuotaCaches {
    queues: Cache<ClusterQueue>,
    local_queues: Cache<LocalQueue>,
    checks: Cache<AdmissionCheck>,
    configs: Cache<MultiKueueConfig>,
}

/// A ClusterQueue, and what the workers have.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Observed {
    queue: Arc<Entry<ClusterQueue>>,
    /// Who sets the quota; `None` if no check of MultiKueue decides about its Workloads.
    management: Option<Management>,
    now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Management {
    /// The configuration of the check is missing.
    Unknown,
    /// Users set it.
    Manual,
    /// It is the sum of this, by resource.
    Automated(BTreeMap<String, Vec<WireQuantity>>),
}

/// What is told of changes of quota on other clusters.
pub(super) struct QuotaListener {
    caches: QuotaCaches,
    trigger: Trigger,
}

impl QuotaListener {
    /// Queues of another cluster have changed.
    pub(super) fn changed(&self) {
        for key in self.caches.sent_elsewhere() {
            self.trigger.changed(key, "quota of another cluster");
        }
    }
}

/// Adds the controller.
pub(super) fn add(context: &Context, connections: &Arc<Connections>) -> Result<(), Error> {
    let watched = context.runtime.caches();
    let caches = QuotaCaches {
        queues: watched.watch(watches::cluster_queues())?,
        local_queues: watched.watch(watches::local_queues())?,
        checks: watched.watch(watches::admission_checks())?,
        configs: watched.watch(WatchSpec::typed())?,
    };
    let clusters = watched.watch(WatchSpec::<MultiKueueCluster>::typed())?;
    let QuotaCaches { queues, local_queues, checks, configs } = caches.clone();
    let (of_config, of_cluster) = (caches.clone(), caches.clone());
    let of_check = queues.clone();
    let (copied, told) = (context.clone(), caches.clone());
    let controller = QuotaController { context: copied, caches, connections: Arc::clone(connections) };
    let added = context
        .runtime
        .add(controller, &queues, 1)
        .watches(&local_queues, |entry: &Entry<LocalQueue>| {
            let queue = entry.object.spec.cluster_queue.as_deref();
            queue.map(ObjectKey::cluster).into_iter().collect()
        })
        .watches(&checks, move |entry| {
            of_check.by_index(BY_CHECK, entry.key.name()).iter().map(|queue| queue.key.clone()).collect()
        })
        .watches(&configs, move |_: &Entry<MultiKueueConfig>| of_config.sent_elsewhere())
        .watches_changes(&clusters, move |_: &Change<MultiKueueCluster>| of_cluster.sent_elsewhere());
    connections.tell_of_quota(QuotaListener { caches: told, trigger: added.trigger() });
    added.done();
    Ok(())
}

impl QuotaCaches {
    /// The first check of MultiKueue that a queue has.
    fn check_of(&self, queue: &ClusterQueue) -> Option<Arc<Entry<AdmissionCheck>>> {
        let rules = queue.spec.admission_checks_strategy.iter().flat_map(|own| &own.admission_checks);
        rules
            .filter_map(|rule| self.checks.get(&ObjectKey::cluster(&rule.name)))
            .find(|check| check.object.spec.controller_name == MULTIKUEUE_CONTROLLER)
    }

    /// Queues that have a check of MultiKueue.
    fn sent_elsewhere(&self) -> Vec<ObjectKey> {
        let checks = self.checks.all();
        let of_multikueue =
            checks.iter().filter(|check| check.object.spec.controller_name == MULTIKUEUE_CONTROLLER);
        let keys: BTreeSet<ObjectKey> = of_multikueue
            .flat_map(|check| self.queues.by_index(BY_CHECK, check.key.name()))
            .map(|queue| queue.key.clone())
            .collect();
        keys.into_iter().collect()
    }

    fn management(&self, queue: &Entry<ClusterQueue>, connections: &Connections) -> Option<Management> {
        let check = self.check_of(&queue.object)?;
        let config = config_of(&check.object).and_then(|name| self.configs.get(&ObjectKey::cluster(name)));
        let Some(config) = config else { return Some(Management::Unknown) };
        if config.object.spec.quota_management.unwrap_or_default() == QuotaManagement::Manual {
            return Some(Management::Manual);
        }
        let local = self.local_queues.by_index(BY_CLUSTER_QUEUE, queue.key.name());
        let local: BTreeSet<ObjectKey> = local.iter().map(|entry| entry.key.clone()).collect();
        let mut quota: BTreeMap<String, Vec<WireQuantity>> = BTreeMap::new();
        for cluster in &config.object.spec.clusters {
            // What a cluster that is away has counts again when it is back.
            let connection = connections.get(cluster).filter(|own| own.is_connected());
            for queue in connection.iter().flat_map(|own| own.queues_behind(&local)) {
                let groups = queue.object.spec.resource_groups.iter().flatten();
                let resources = groups.flat_map(|group| &group.flavors).flat_map(|flavor| &flavor.resources);
                for resource in resources {
                    quota.entry(resource.name.clone()).or_default().push(resource.nominal_quota.clone());
                }
            }
        }
        Some(Management::Automated(quota))
    }
}

impl Controller for QuotaController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "multikueue-clusterqueue";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(queue) = self.caches.queues.get(key) else { return Ok(None) };
        let management = self.caches.management(&queue, &self.connections);
        Ok(Some(Observed { queue, management, now: self.context.clock.now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan(observed)
    }
}

/// The quota, and then the condition that tells of it.
fn plan(observed: &Observed) -> Plan {
    let (holds, reason, message) = match &observed.management {
        None => return without_condition(observed),
        Some(Management::Unknown) => (
            false,
            Reason::UnsupportedConfiguration,
            "The MultiKueueConfig of the check is missing.".to_owned(),
        ),
        Some(Management::Manual) => {
            let message = "The MultiKueueConfig leaves the quota to users.";
            (false, Reason::NotRequested, message.to_owned())
        }
        Some(Management::Automated(quota)) => match with_quota(&observed.queue.object, quota) {
            Err(why) => (false, Reason::UnsupportedConfiguration, why),
            Ok(desired) => {
                let kind = ApiKind::of::<ClusterQueue>();
                if let Some(action) = Action::update(kind, &observed.queue, &desired) {
                    return Plan { steps: vec![Step::from(action)], ..Plan::default() };
                }
                let message = "The quota follows that of the worker clusters.";
                (true, Reason::QuotaAutomated, message.to_owned())
            }
        },
    };
    let before = observed.queue.object.status.clone().unwrap_or_default();
    let mut after = before.clone();
    let finding = Finding {
        type_: AUTOMATION,
        holds: Some(holds),
        reason: reason.as_str(),
        message: &message,
        observed_generation: observed.queue.object.metadata.generation,
    };
    conditions::set(after.conditions.get_or_insert_default(), &finding, &Time(observed.now));
    Plan { status: StatusPatch::between(&observed.queue, &before, &after), ..Plan::default() }
}

fn without_condition(observed: &Observed) -> Plan {
    let before = observed.queue.object.status.clone().unwrap_or_default();
    let mut after = before.clone();
    if let Some(conditions) = &mut after.conditions {
        conditions.retain(|condition| condition.type_ != AUTOMATION);
    }
    Plan { status: StatusPatch::between(&observed.queue, &before, &after), ..Plan::default() }
}

/// The queue with this quota. The error says why it cannot have it.
fn with_quota(
    queue: &ClusterQueue,
    quota: &BTreeMap<String, Vec<WireQuantity>>,
) -> Result<ClusterQueue, String> {
    let mut desired = queue.clone();
    let several = || "Quota follows worker clusters only in a queue with exactly one flavor.".to_owned();
    let [group] = desired.spec.resource_groups.as_deref_mut().unwrap_or_default() else {
        return Err(several());
    };
    let [flavor] = group.flavors.as_mut_slice() else { return Err(several()) };
    let is_missing = |name: &&String| !group.covered_resources.contains(name);
    let missing: Vec<&str> = quota.keys().filter(is_missing).map(String::as_str).collect();
    if !missing.is_empty() {
        let message = "coveredResources lacks resources of worker clusters";
        return Err(format!("{message}: {}.", missing.join(", ")));
    }
    for resource in &mut flavor.resources {
        let mut sum = Quantity::ZERO;
        for part in quota.get(&resource.name).into_iter().flatten() {
            sum += Quantity::try_from(part).map_err(|error| format!("{}: {error}.", resource.name))?;
        }
        if Quantity::try_from(&resource.nominal_quota).ok() != Some(sum) {
            resource.nominal_quota = sum.into();
        }
    }
    Ok(desired)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::entry;

    fn queue(flavors: &[&str], quota: &str, status: &Value) -> Arc<Entry<ClusterQueue>> {
        let flavor =
            |name: &&str| json!({ "name": name, "resources": [{ "name": "cpu", "nominalQuota": quota }] });
        let flavors: Vec<Value> = flavors.iter().map(flavor).collect();
        entry(&json!({ "metadata": { "name": "q", "generation": 2 }, "status": status,
            "spec": { "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": flavors }] } }))
    }

    fn planned(queue: &Arc<Entry<ClusterQueue>>, management: Option<Management>) -> Plan {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        plan(&Observed { queue: Arc::clone(queue), management, now })
    }

    fn automated(quota: &[(&str, &[&str])]) -> Management {
        let parts = |parts: &[&str]| parts.iter().map(|part| WireQuantity((*part).to_owned())).collect();
        let quota = quota.iter().map(|(name, own)| ((*name).to_owned(), parts(own)));
        Management::Automated(quota.collect())
    }

    #[test]
    fn quota_follows_the_sum_of_the_workers_and_then_the_condition_says_so() {
        let of_workers = || Some(automated(&[("cpu", &["5", "10"])]));
        let plan = planned(&queue(&["f"], "1", &json!({})), of_workers());
        assert!(plan.status.is_none(), "the condition is about the quota that is written");
        let Action::Patch { patch, .. } = &plan.steps[0].action else { panic!("{:?}", plan.steps) };
        let flavor = &patch["spec"]["resourceGroups"][0]["flavors"][0];
        assert_eq!(flavor["resources"], json!([{ "name": "cpu", "nominalQuota": "15" }]));

        let plan = planned(&queue(&["f"], "15000m", &json!({})), of_workers());
        assert!(plan.steps.is_empty(), "the same amount is not written again: {:?}", plan.steps);
        let condition = &plan.status.unwrap().status["conditions"][0];
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("QuotaAutomated")));
    }

    #[test]
    fn without_workers_there_is_no_quota() {
        let plan = planned(&queue(&["f"], "15", &json!({})), Some(automated(&[])));
        let Action::Patch { patch, .. } = &plan.steps[0].action else { panic!("{:?}", plan.steps) };
        assert_eq!(
            patch["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"],
            json!("0")
        );
    }

    #[test]
    fn what_cannot_follow_is_left_and_said() {
        let table = [
            (&["f"][..], Some(Management::Unknown), "UnsupportedConfiguration"),
            (&["f"], Some(Management::Manual), "NotRequested"),
            (&["f", "g"], Some(automated(&[("cpu", &["5"])])), "UnsupportedConfiguration"),
            (&["f"], Some(automated(&[("memory", &["5"])])), "UnsupportedConfiguration"),
        ];
        for (flavors, management, reason) in table {
            let plan = planned(&queue(flavors, "1", &json!({})), management);
            assert!(plan.steps.is_empty(), "{:?}", plan.steps);
            let condition = &plan.status.unwrap().status["conditions"][0];
            assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!(reason)));
        }
    }

    #[test]
    fn the_condition_goes_with_the_check() {
        let condition = json!({ "type": AUTOMATION, "status": "True", "reason": "QuotaAutomated",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let with = queue(&["f"], "1", &json!({ "conditions": [condition] }));
        assert_eq!(planned(&with, None).status.unwrap().status["conditions"], json!([]));
        assert!(planned(&queue(&["f"], "1", &json!({})), None).status.is_none());
    }
}
