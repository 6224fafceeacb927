//! Which pod goes where. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::metadata::TOPOLOGY_GATE;
use quintet_api::kueue::v1beta2::{PodSetAssignment, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Plan, Step};
use serde_json::json;

use super::Observed;
use super::pod::PodView;

/// Ungates the pods of an admitted Workload that have a place.
pub(super) fn plan(observed: &Observed) -> Plan {
    let workload = &observed.workload.object;
    if !workload.is_admitted() || workload.is_evicted() || workload.is_finished() {
        return Plan::nothing();
    }
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let assignments =
        admission.into_iter().flat_map(|admission| admission.pod_set_assignments.iter().flatten());
    let steps = assignments.flat_map(|assignment| of_pod_set(assignment, workload, &observed.pods));
    Plan { steps: steps.collect(), ..Plan::default() }
}

fn of_pod_set(assignment: &PodSetAssignment, workload: &Workload, pods: &[Arc<Entry<PodView>>]) -> Vec<Step> {
    let Some(topology) = &assignment.topology_assignment else { return Vec::new() };
    // One that cannot be decoded was refused by the API, or is not ours.
    let Some(domains) = topology.domains() else { return Vec::new() };
    let name = assignment.name.as_deref();
    let of_set = |entry: &&Arc<Entry<PodView>>| {
        entry.object.pod_set() == name && !entry.deleting && !entry.object.has_ended()
    };
    let pods: Vec<&Arc<Entry<PodView>>> = pods.iter().filter(of_set).collect();
    let places: Vec<&[String]> = domains
        .iter()
        .flat_map(|(values, count)| {
            let count = usize::try_from(*count).unwrap_or_default();
            std::iter::repeat_n(values.as_slice(), count)
        })
        .collect();
    let label = index_label(workload, name);
    let assigned = label.and_then(|label| by_rank(&pods, &places, label, &topology.levels));
    let assigned = assigned.unwrap_or_else(|| greedily(&pods, &places, &topology.levels));
    assigned.into_iter().map(|(pod, values)| ungate(pod, &topology.levels, values)).collect()
}

fn index_label<'w>(workload: &'w Workload, set: Option<&str>) -> Option<&'w str> {
    let sets = workload.spec.pod_sets.as_deref().unwrap_or_default();
    let set = sets.iter().find(|own| own.name.as_deref() == set)?;
    set.topology_request.as_ref()?.pod_index_label.as_deref()
}

type Assigned<'p> = Vec<(&'p Entry<PodView>, &'p [String])>;

/// By index, so that neighbours are near each other. `None` if not every pod has an index and place of its own.
fn by_rank<'p>(
    pods: &[&'p Arc<Entry<PodView>>],
    places: &[&'p [String]],
    label: &str,
    levels: &[String],
) -> Option<Assigned<'p>> {
    let mut by_rank = BTreeMap::new();
    for pod in pods {
        let rank = pod.object.rank(label)?;
        let place = *places.get(rank)?;
        let is_elsewhere = !pod.object.is_gated() && !pod.object.is_in(levels, place);
        if is_elsewhere || by_rank.insert(rank, (&***pod, place)).is_some() {
            return None;
        }
    }
    Some(by_rank.into_values().filter(|(pod, _)| pod.object.is_gated()).collect())
}

/// In the order of names, wherever there is room.
fn greedily<'p>(
    pods: &[&'p Arc<Entry<PodView>>],
    places: &[&'p [String]],
    levels: &[String],
) -> Assigned<'p> {
    let mut free: Vec<&'p [String]> = places.to_vec();
    for pod in pods.iter().filter(|pod| !pod.object.is_gated()) {
        if let Some(taken) = free.iter().position(|values| pod.object.is_in(levels, values)) {
            free.remove(taken);
        }
    }
    let gated = pods.iter().filter(|pod| pod.object.is_gated()).map(|pod| &***pod);
    gated.zip(free).collect()
}

fn ungate(pod: &Entry<PodView>, levels: &[String], values: &[String]) -> Step {
    let selector: BTreeMap<&String, &String> = levels.iter().zip(values).collect();
    let gates = pod.object.gates_but(TOPOLOGY_GATE);
    let gates = (!gates.is_empty()).then_some(gates);
    let patch = json!({ "spec": { "nodeSelector": selector, "schedulingGates": gates } });
    Action::merge_exactly(ApiKind::of::<Pod>(), pod, patch).into()
}

#[cfg(test)]
mod tests {
    use quintet_controller::ObjectKey;
    use serde_json::Value;

    use super::*;

    const INDEX: &str = "batch.kubernetes.io/job-completion-index";

    fn workload() -> Arc<Entry<Workload>> {
        let condition = |kind: &str| {
            json!({ "type": kind, "status": "True", "reason": kind, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let domains = json!({ "levels": ["host"], "slices": [
            { "domainCount": 2, "podCounts": { "individual": [1, 2] },
                "valuesPerLevel": [{ "individual": { "roots": ["a", "b"] } }] }] });
        let object = json!({ "metadata": { "name": "w", "namespace": "ns" },
            "spec": { "podSets": [{ "name": "main", "count": 3, "template": {},
                "topologyRequest": { "podIndexLabel": INDEX } }] },
            "status": { "conditions": [condition("QuotaReserved"), condition("Admitted")],
                "admission": { "clusterQueue": "cq", "podSetAssignments": [
                    { "name": "main", "count": 3, "topologyAssignment": domains }] } } });
        Arc::new(Entry::new(ObjectKey::new("ns", "w"), serde_json::from_value(object).unwrap()))
    }

    /// A pod with an index; bound to a host, or gated.
    fn pod(name: &str, index: Option<&str>, host: Option<&str>) -> Arc<Entry<PodView>> {
        let gates = if host.is_some() { json!([]) } else { json!([{ "name": "kueue.x-k8s.io/topology" }]) };
        let mut object = json!({ "metadata": { "labels": { "kueue.x-k8s.io/podset": "main" } },
            "spec": { "schedulingGates": gates } });
        if let Some(index) = index {
            object["metadata"]["labels"][INDEX] = index.into();
        }
        if let Some(host) = host {
            object["spec"]["nodeSelector"] = json!({ "host": host });
        }
        Arc::new(Entry::new(ObjectKey::new("ns", name), serde_json::from_value(object).unwrap()))
    }

    fn placed(pods: Vec<Arc<Entry<PodView>>>) -> Vec<(String, Value)> {
        let plan = plan(&Observed { workload: workload(), pods });
        let placed = plan.steps.iter().map(|step| match &step.action {
            Action::Patch { key, patch, .. } => {
                (key.name().to_owned(), patch["spec"]["nodeSelector"]["host"].clone())
            }
            other => panic!("not a patch: {other:?}"),
        });
        placed.collect()
    }

    fn expect(pods: Vec<Arc<Entry<PodView>>>, expected: &[(&str, &str)]) {
        let expected: Vec<(String, Value)> =
            expected.iter().map(|(pod, host)| ((*pod).to_owned(), json!(host))).collect();
        assert_eq!(placed(pods), expected);
    }

    #[test]
    fn pods_go_to_the_place_of_their_index() {
        let pods = vec![pod("x", Some("2"), None), pod("y", Some("0"), None), pod("z", Some("1"), Some("b"))];
        expect(pods, &[("y", "a"), ("x", "b")]);
    }

    #[test]
    fn pods_without_an_index_go_where_there_is_room() {
        let pods = vec![pod("x", None, None), pod("y", None, Some("a")), pod("z", None, None)];
        expect(pods, &[("x", "b"), ("z", "b")]);
        let twice = vec![pod("x", Some("0"), None), pod("y", Some("0"), None)];
        expect(twice, &[("x", "a"), ("y", "b")]);
    }

    #[test]
    fn no_more_pods_are_ungated_than_there_are_places() {
        let pods = (0..5).map(|number| pod(&format!("p{number}"), None, None)).collect();
        assert_eq!(placed(pods).len(), 3);
    }
}
