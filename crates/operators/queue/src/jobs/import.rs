//! Import of pods that run already: which LocalQueue each goes to, and the admitted Workload it gets.
//!
//! As Kueue's `cmd/importer`. A pod keeps running; its quota counts from then on.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::conditions::{self, Finding};
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::metadata::{MANAGED, QUEUE_NAME};
use quintet_api::kueue::v1beta2::{Admission, ClusterQueue, PodSetAssignment, Workload};
use quintet_queue_engine::ingest::pod_requests;
use serde::Deserialize;

use super::compose;
use super::priority::Priority;
use crate::settings::Settings;

/// Why imported Workloads have their quota.
const IMPORTED: &str = "Imported";
/// The resource that counts pods.
const PODS: &str = "pods";

/// Which pods go to which LocalQueue: the first rule that matches counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Mapping(Vec<Rule>);

/// A rule of a mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    #[serde(default, rename = "match")]
    matching: Match,
    #[serde(default)]
    to_local_queue: String,
    #[serde(default)]
    skip: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Match {
    #[serde(default)]
    priority_class_name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Where a pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'m> {
    /// To this LocalQueue of its namespace.
    LocalQueue(&'m str),
    /// Nowhere: it is left alone.
    Skip,
}

impl Mapping {
    /// A mapping by the values of a label.
    pub fn of_label(label: &str, queues: impl IntoIterator<Item = (String, String)>) -> Self {
        let rule = |(value, queue)| Rule {
            matching: Match { labels: BTreeMap::from([(label.to_owned(), value)]), ..Match::default() },
            to_local_queue: queue,
            skip: false,
        };
        Self(queues.into_iter().map(rule).collect())
    }

    /// The first rule without an effect, counted from zero.
    pub fn idle_rule(&self) -> Option<usize> {
        self.0.iter().position(|rule| !rule.skip && rule.to_local_queue.is_empty())
    }

    /// Where a pod goes; `None` if no rule matches.
    pub fn destination(&self, pod: &Pod) -> Option<Destination<'_>> {
        let class =
            pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref()).unwrap_or_default();
        let matches = |rule: &&Rule| {
            let Match { priority_class_name, labels } = &rule.matching;
            (priority_class_name.is_empty() || priority_class_name == class)
                && labels.iter().all(|(key, value)| compose::label(&pod.metadata, key) == Some(value))
        };
        let rule = self.0.iter().find(matches)?;
        Some(if rule.skip { Destination::Skip } else { Destination::LocalQueue(&rule.to_local_queue) })
    }
}

/// Labels that a pod gets when it is imported.
pub fn labels(queue: &str, added: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut labels = added.clone();
    labels.insert(QUEUE_NAME.to_owned(), queue.to_owned());
    labels.insert(MANAGED.to_owned(), "true".to_owned());
    labels
}

/// The Workload of a pod in a LocalQueue, admitted by its ClusterQueue. The error says what the queue lacks.
pub fn workload(
    pod: &Pod,
    local_queue: &str,
    added: &BTreeMap<String, String>,
    cluster_queue: &ClusterQueue,
    excluded_prefixes: &[String],
    now: Timestamp,
) -> Result<Workload, String> {
    let mut pod = pod.clone();
    pod.metadata.labels.get_or_insert_default().extend(labels(local_queue, added));
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let class = spec.and_then(|spec| spec.priority_class_name.clone()).unwrap_or_default();
    let classes = [PriorityClass {
        metadata: kube::api::ObjectMeta { name: Some(class), ..kube::api::ObjectMeta::default() },
        value: spec.and_then(|spec| spec.priority),
        ..PriorityClass::default()
    }];
    let settings = Settings::default();
    let sets = compose::pod_sets(&pod, &[], &settings)?;
    // A pod that runs has its class, if it names one.
    let priority = Priority::of_pods(None, &sets, classes.iter()).unwrap_or_default();
    let mut workload = compose::workload(&pod, &uid, sets, &priority, &settings);
    if !added.is_empty() {
        workload.metadata.labels.get_or_insert_default().extend(added.clone());
    }
    let admission = admission(&pod, cluster_queue, excluded_prefixes)?;
    let message = format!("Imported into ClusterQueue {}", name_of(cluster_queue));
    let status = workload.status.get_or_insert_default();
    status.admission = Some(admission);
    let conditions = status.conditions.get_or_insert_default();
    for condition in [WorkloadCondition::QuotaReserved, WorkloadCondition::Admitted] {
        let finding = Finding {
            type_: condition.as_str(),
            holds: Some(true),
            reason: IMPORTED,
            message: &message,
            observed_generation: Some(1),
        };
        conditions::set(conditions, &finding, &Time(now));
    }
    Ok(workload)
}

fn name_of(queue: &ClusterQueue) -> &str {
    queue.metadata.name.as_deref().unwrap_or_default()
}

/// What a pod uses of the first flavor of each resource. It runs already, so it is not asked whether that is free.
fn admission(pod: &Pod, queue: &ClusterQueue, excluded_prefixes: &[String]) -> Result<Admission, String> {
    let groups = queue.spec.resource_groups.as_deref().unwrap_or_default();
    let flavor_of = |resource: &str| {
        let group = groups.iter().find(|group| group.covered_resources.iter().any(|own| own == resource))?;
        group.flavors.first().map(|flavor| flavor.name.clone())
    };
    let spec = pod.spec.clone().unwrap_or_default();
    let requests = pod_requests(&spec).map_err(|error| error.to_string())?;
    let (mut flavors, mut usage) = (BTreeMap::new(), BTreeMap::new());
    for (resource, amount) in requests {
        if excluded_prefixes.iter().any(|prefix| resource.starts_with(prefix)) {
            continue;
        }
        let Some(flavor) = flavor_of(&resource) else {
            return Err(format!("ClusterQueue {} has no quota for {resource}", name_of(queue)));
        };
        flavors.insert(resource.clone(), flavor);
        usage.insert(resource, Quantity(amount.to_string()));
    }
    if let Some(flavor) = flavor_of(PODS) {
        flavors.insert(PODS.to_owned(), flavor);
        usage.insert(PODS.to_owned(), Quantity("1".to_owned()));
    }
    let assignment = PodSetAssignment {
        name: Some("main".to_owned()),
        count: Some(1),
        flavors: Some(flavors),
        resource_usage: Some(usage),
        ..PodSetAssignment::default()
    };
    Ok(Admission {
        cluster_queue: Some(name_of(queue).to_owned()),
        pod_set_assignments: Some(vec![assignment]),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(labels: &serde_json::Value, class: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "u", "labels": labels },
            "spec": { "priorityClassName": class, "priority": 7, "containers": [{ "name": "c",
                "resources": { "requests": { "cpu": "500m", "networking.example.com/vpc": "1" } } }] },
        }))
        .unwrap()
    }

    fn queue() -> ClusterQueue {
        serde_json::from_value(json!({ "metadata": { "name": "cq" }, "spec": { "resourceGroups": [
            { "coveredResources": ["cpu"], "flavors": [
                { "name": "first", "resources": [{ "name": "cpu", "nominalQuota": "0" }] },
                { "name": "second", "resources": [{ "name": "cpu", "nominalQuota": "9" }] }] },
            { "coveredResources": ["pods"], "flavors": [
                { "name": "any", "resources": [{ "name": "pods", "nominalQuota": "9" }] }] }] } }))
        .unwrap()
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let mapping: Mapping = serde_json::from_value(json!([
            { "match": { "labels": { "project": "a" }, "priorityClassName": "high" }, "toLocalQueue": "fast" },
            { "match": { "labels": { "project": "a" } }, "toLocalQueue": "slow" },
            { "match": { "labels": { "project": "test" } }, "skip": true },
        ]))
        .unwrap();
        let of = |labels: serde_json::Value, class| mapping.destination(&pod(&labels, class));
        assert_eq!(of(json!({ "project": "a" }), "high"), Some(Destination::LocalQueue("fast")));
        assert_eq!(of(json!({ "project": "a" }), "low"), Some(Destination::LocalQueue("slow")));
        assert_eq!(of(json!({ "project": "test" }), ""), Some(Destination::Skip));
        assert_eq!(of(json!({}), "high"), None);
        assert_eq!(mapping.idle_rule(), None);
        let idle: Mapping = serde_json::from_value(json!([{ "match": {} }])).unwrap();
        assert_eq!(idle.idle_rule(), Some(0));
        let by_label = Mapping::of_label("project", [("a".to_owned(), "lq".to_owned())]);
        let destination = by_label.destination(&pod(&json!({ "project": "a" }), ""));
        assert_eq!(destination, Some(Destination::LocalQueue("lq")));
    }

    #[test]
    fn imported_workloads_are_admitted_with_the_first_flavors() {
        let added = BTreeMap::from([("team".to_owned(), "x".to_owned())]);
        let excluded = ["networking.example.com/".to_owned()];
        let now = Timestamp::UNIX_EPOCH;
        let made = workload(&pod(&json!({}), "high"), "lq", &added, &queue(), &excluded, now).unwrap();
        assert_eq!(made.spec.queue_name.as_deref(), Some("lq"));
        assert_eq!(made.spec.priority, Some(7));
        assert_eq!(made.metadata.labels.as_ref().unwrap()["team"], "x");
        let status = json!(made.status);
        let assigned = &status["admission"]["podSetAssignments"][0];
        assert_eq!(assigned["flavors"], json!({ "cpu": "first", "pods": "any" }));
        assert_eq!(assigned["resourceUsage"], json!({ "cpu": "500m", "pods": "1" }));
        assert_eq!(status["conditions"][1]["reason"], "Imported");
        assert_eq!(status["conditions"][1]["message"], "Imported into ClusterQueue cq");

        let refused = workload(&pod(&json!({}), ""), "lq", &added, &queue(), &[], now).unwrap_err();
        assert_eq!(refused, "ClusterQueue cq has no quota for networking.example.com/vpc");
    }
}
