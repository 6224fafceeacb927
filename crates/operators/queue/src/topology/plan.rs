//! Which pod goes where. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::metadata::TOPOLOGY_GATE;
use quintet_api::kueue::v1beta2::{PodSetAssignment, PodSetTopologyRequest, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Plan, Step};
use serde_json::json;

use super::Observed;
use super::pod::{HOSTNAME, PodView};

/// Ungates the pods of an admitted Workload that have a place.
pub(super) fn plan(observed: &Observed) -> Plan {
    let workload = &observed.workload.object;
    if !workload.is_admitted() || workload.is_evicted() || workload.is_finished() {
        return Plan::nothing();
    }
    let Some(status) = &workload.status else { return Plan::nothing() };
    let admission = status.admission.as_ref();
    let assignments: Vec<&PodSetAssignment> =
        admission.into_iter().flat_map(|admission| admission.pod_set_assignments.iter().flatten()).collect();
    let failed: Vec<&str> = status.unhealthy_nodes.iter().flatten().map(|node| node.name.as_str()).collect();
    let of_pod_set = |assignment: &&PodSetAssignment| {
        let first = first_rank(assignment, &assignments, workload);
        PodSetPods::of(assignment, workload, &observed.pods)
            .map(|pods| pods.ungate(first, &failed))
            .unwrap_or_default()
    };
    Plan { steps: assignments.iter().flat_map(of_pod_set).collect(), ..Plan::default() }
}

fn topology_request<'w>(workload: &'w Workload, set: Option<&str>) -> Option<&'w PodSetTopologyRequest> {
    let sets = workload.spec.pod_sets.as_deref().unwrap_or_default();
    sets.iter().find(|own| own.name.as_deref() == set)?.topology_request.as_ref()
}

/// The index of the first pod of a pod set. In a group of a leader and its workers, workers are numbered after the leader,
/// which is the smaller pod set.
fn first_rank(assignment: &PodSetAssignment, all: &[&PodSetAssignment], workload: &Workload) -> i32 {
    let group = |own: &PodSetAssignment| {
        topology_request(workload, own.name.as_deref())?.pod_set_group_name.as_deref()
    };
    let Some(name) = group(assignment) else { return 0 };
    let members: Vec<_> = all.iter().filter(|own| group(own) == Some(name)).collect();
    let [one, other, ..] = members[..] else { return 0 };
    let leader = if one.count > other.count { other } else { one };
    if leader.name == assignment.name { 0 } else { leader.count.unwrap_or_default() }
}

/// A pod set that has a placement, and its pods.
struct PodSetPods<'o> {
    /// The domain of every pod, in order of ranks.
    places: Vec<Vec<String>>,
    levels: &'o [String],
    count: i32,
    request: Option<&'o PodSetTopologyRequest>,
    pods: Vec<&'o Entry<PodView>>,
}

type Assigned<'p> = Vec<(&'p Entry<PodView>, &'p [String])>;

impl<'o> PodSetPods<'o> {
    fn of(
        assignment: &'o PodSetAssignment,
        workload: &'o Workload,
        pods: &'o [Arc<Entry<PodView>>],
    ) -> Option<Self> {
        let topology = assignment.topology_assignment.as_ref()?;
        // One that cannot be decoded was refused by the API, or is not ours.
        let domains = topology.domains()?;
        let name = assignment.name.as_deref();
        // Pods that are about to end use their places until they have.
        let is_of_set = |pod: &&Entry<PodView>| {
            let view = &pod.object;
            view.pod_set() == name && !view.has_ended() && !(pod.deleting && view.is_gated())
        };
        let places = domains.into_iter().flat_map(|(values, count)| {
            std::iter::repeat_n(values, usize::try_from(count).unwrap_or_default())
        });
        Some(Self {
            places: places.collect(),
            levels: &topology.levels,
            count: assignment.count.unwrap_or_default(),
            request: topology_request(workload, name),
            pods: pods.iter().map(|pod| &**pod).filter(is_of_set).collect(),
        })
    }

    /// Lets pods go to their places. Those whose node has failed wait for another.
    fn ungate(&self, first: i32, failed: &[&str]) -> Vec<Step> {
        let by_host = self.levels.last().is_some_and(|level| level == HOSTNAME);
        let has_failed =
            |values: &[String]| by_host && values.last().is_some_and(|host| failed.contains(&host.as_str()));
        let assigned = self.by_rank(first).unwrap_or_else(|| self.greedily());
        let assigned = assigned.into_iter().filter(|(_, values)| !has_failed(values));
        assigned.map(|(pod, values)| ungate(pod, self.levels, values)).collect()
    }

    /// By index, so that neighbours are near each other. `None` if not every pod has an index and place of its own.
    fn by_rank(&self, first: i32) -> Option<Assigned<'_>> {
        let ranks = Ranks::of(self, first)?;
        let mut by_rank = BTreeMap::new();
        for pod in &self.pods {
            let rank = ranks.of_pod(&pod.object)?;
            let place = self.places.get(rank)?.as_slice();
            let is_elsewhere = !pod.object.is_gated() && !pod.object.is_in(self.levels, place);
            if is_elsewhere || by_rank.insert(rank, (*pod, place)).is_some() {
                return None;
            }
        }
        Some(by_rank.into_values().filter(|(pod, _)| pod.object.is_gated()).collect())
    }

    /// In the order of names, wherever there is room.
    fn greedily(&self) -> Assigned<'_> {
        let mut free: Vec<&[String]> = self.places.iter().map(Vec::as_slice).collect();
        for pod in self.pods.iter().filter(|pod| !pod.object.is_gated()) {
            if let Some(taken) = free.iter().position(|values| pod.object.is_in(self.levels, values)) {
                free.remove(taken);
            }
        }
        self.pods.iter().copied().filter(|pod| pod.object.is_gated()).zip(free).collect()
    }
}

/// How the ranks of pods follow from their labels.
struct Ranks<'o> {
    label: &'o str,
    /// The index of the first pod.
    first: i32,
    /// How many pods there are.
    count: i32,
    /// The label of the group that a pod belongs to, and how many groups there are.
    groups: Option<(&'o str, i32)>,
}

impl<'o> Ranks<'o> {
    fn of(set: &PodSetPods<'o>, first: i32) -> Option<Self> {
        let request = set.request?;
        let label = request.pod_index_label.as_deref()?;
        let groups = match request.sub_group_index_label.as_deref() {
            Some(label) => Some((label, request.sub_group_count.filter(|count| *count > 0)?)),
            None => None,
        };
        // All pods of a template have the same.
        let offset = set.pods.first().and_then(|pod| pod.object.index_offset());
        let offset: i32 = offset.map_or(Some(0), |text| text.parse().ok())?;
        Some(Self { label, first: first.checked_add(offset)?, count: set.count, groups })
    }

    fn of_pod(&self, pod: &PodView) -> Option<usize> {
        let index = pod.index(self.label)?;
        let index = match self.groups {
            None => index,
            Some((label, groups)) => {
                let (group, size) = (pod.index(label)?, self.count / groups);
                if group >= groups || index >= size {
                    return None;
                }
                group.checked_mul(size)?.checked_add(index)?
            }
        };
        let rank = index.checked_sub(self.first).filter(|rank| *rank < self.count)?;
        usize::try_from(rank).ok()
    }
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
    use crate::testing::entry;

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

    #[test]
    fn pods_of_a_failed_node_wait_for_another() {
        let mut object = serde_json::to_value(&workload().object).unwrap();
        object["status"]["unhealthyNodes"] = json!([{ "name": "b" }]);
        object["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]["levels"] =
            json!([HOSTNAME]);
        let pods = vec![pod("x", Some("0"), None), pod("y", Some("1"), None)];
        let plan = plan(&Observed { workload: entry(&object), pods });
        assert_eq!(plan.steps.len(), 1);
    }

    #[test]
    fn a_pod_that_is_about_to_end_keeps_its_place() {
        let ending = |name: &str, index: Option<&str>, host: Option<&str>| {
            let mut pod = Arc::into_inner(pod(name, index, host)).unwrap();
            pod.deleting = true;
            Arc::new(pod)
        };
        expect(vec![ending("x", None, Some("a")), pod("y", None, None)], &[("y", "b")]);
        expect(vec![ending("x", None, None), pod("y", None, None)], &[("y", "a")]);
    }

    /// A set of pods with ranks by these labels, offsets and sizes.
    fn ranked(request: Value, count: i32) -> PodSetPods<'static> {
        let request: PodSetTopologyRequest = serde_json::from_value(request).unwrap();
        let (places, levels) = (Vec::new(), &[]);
        PodSetPods { places, levels, count, request: Some(Box::leak(Box::new(request))), pods: Vec::new() }
    }

    #[test]
    fn ranks_count_groups_and_offsets() {
        let view = |labels: Value| -> PodView {
            serde_json::from_value(json!({ "metadata": { "labels": labels } })).unwrap()
        };
        let rank = |set: &PodSetPods<'static>, first, labels: Value| {
            Ranks::of(set, first).and_then(|ranks| ranks.of_pod(&view(labels)))
        };
        let plain = ranked(json!({ "podIndexLabel": "i" }), 3);
        assert_eq!(rank(&plain, 0, json!({ "i": "2" })), Some(2));
        assert_eq!(rank(&plain, 0, json!({ "i": "3" })), None, "more than there are pods");
        assert_eq!(rank(&plain, 0, json!({ "i": "-1" })), None);
        assert_eq!(rank(&plain, 0, json!({})), None);
        assert_eq!(rank(&plain, 1, json!({ "i": "3" })), Some(2), "workers are numbered after their leader");
        assert_eq!(rank(&plain, 1, json!({ "i": "0" })), None);
        let groups = json!({ "podIndexLabel": "i", "subGroupIndexLabel": "j", "subGroupCount": 2 });
        let groups = ranked(groups, 4);
        assert_eq!(rank(&groups, 0, json!({ "i": "1", "j": "1" })), Some(3));
        assert_eq!(rank(&groups, 0, json!({ "i": "2", "j": "0" })), None, "a group has two pods");
        assert_eq!(rank(&groups, 0, json!({ "i": "0", "j": "2" })), None);
        let without_count = ranked(json!({ "podIndexLabel": "i", "subGroupIndexLabel": "j" }), 4);
        assert_eq!(rank(&without_count, 0, json!({ "i": "0", "j": "0" })), None);
        assert_eq!(rank(&ranked(json!({}), 3), 0, json!({ "i": "0" })), None);
    }

    #[test]
    fn workers_of_a_group_are_numbered_after_the_leader() {
        let set = |name: &str, group: Option<&str>| json!({ "name": name, "count": 1, "template": {}, "topologyRequest": { "podSetGroupName": group } });
        let assignment = |name: &str, count: i32| PodSetAssignment {
            name: Some(name.to_owned()),
            count: Some(count),
            ..PodSetAssignment::default()
        };
        let workload: Workload = serde_json::from_value(json!({ "metadata": {}, "spec": { "podSets": [
            set("workers", Some("g")), set("leader", Some("g")), set("other", None)] } }))
        .unwrap();
        let all = [assignment("workers", 3), assignment("leader", 1), assignment("other", 2)];
        let all: Vec<&PodSetAssignment> = all.iter().collect();
        let ranks: Vec<i32> = all.iter().map(|own| first_rank(own, &all, &workload)).collect();
        assert_eq!(ranks, [1, 0, 0]);
    }
}
