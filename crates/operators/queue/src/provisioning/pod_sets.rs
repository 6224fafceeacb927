//! For which pod sets capacity is requested, and which of them are requested as one. As `mergePodSets` of Kueue.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use quintet_api::Quantity;
use quintet_api::kueue::v1beta2::ProvisioningRequestConfigPodSetMergePolicy as MergePolicy;
use quintet_api::kueue::v1beta2::{PodSet, PodSetAssignment, ProvisioningRequestConfigSpec, Workload};
use serde::Serialize;
use serde_json::Value;

/// Pod sets that are requested as one.
pub(super) struct MergedPodSet<'w> {
    /// The first of them, whose template stands for all.
    pub(super) set: &'w PodSet,
    pub(super) assignment: Option<&'w PodSetAssignment>,
    /// The names of all of them.
    pub(super) members: Vec<&'w str>,
    pub(super) count: i32,
}

/// The name of a pod set.
pub(super) fn name(set: &PodSet) -> &str {
    set.name.as_deref().unwrap_or("main")
}

/// What has to be requested for a Workload with quota; nothing if its pods use none of the managed resources.
pub(super) fn merged<'w>(
    workload: &'w Workload,
    config: &ProvisioningRequestConfigSpec,
) -> Vec<MergedPodSet<'w>> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let assignments = admission.and_then(|admission| admission.pod_set_assignments.as_deref());
    let managed = config.managed_resources.as_deref().unwrap_or_default();
    let mut merged: Vec<MergedPodSet<'w>> = Vec::new();
    for set in workload.spec.pod_sets.iter().flatten() {
        let of_set = |own: &&PodSetAssignment| own.name.as_deref().unwrap_or("main") == name(set);
        let assignment = assignments.unwrap_or_default().iter().find(of_set);
        let asked = set.count.unwrap_or(1);
        let count = assignment.and_then(|own| own.count).unwrap_or(asked);
        if asked <= 0 || count <= 0 || !(managed.is_empty() || uses(set, managed)) {
            continue;
        }
        let is_like = |other: &&mut MergedPodSet<'_>| {
            config.pod_set_merge_policy.is_some_and(|policy| can_merge(other.set, set, policy))
        };
        match merged.iter_mut().find(is_like) {
            Some(like) => {
                like.count = like.count.saturating_add(count);
                like.members.push(name(set));
            }
            None => merged.push(MergedPodSet { set, assignment, members: vec![name(set)], count }),
        }
    }
    merged
}

/// Whether a container of a pod set requests one of these resources or has a limit of it.
fn uses(set: &PodSet, managed: &[String]) -> bool {
    let spec = set.template.spec.iter();
    let mut containers = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    containers.any(|container| {
        let lists = container.resources.iter().flat_map(|own| [own.requests.as_ref(), own.limits.as_ref()]);
        lists.flatten().any(|list| managed.iter().any(|name| list.contains_key(name)))
    })
}

fn can_merge(a: &PodSet, b: &PodSet, policy: MergePolicy) -> bool {
    match policy {
        MergePolicy::IdenticalPodTemplates => is_same(&a.template, &b.template),
        MergePolicy::IdenticalWorkloadSchedulingRequirements => needs_same(&a.template, &b.template),
    }
}

/// Whether pods of two templates need the same kind of node.
fn needs_same(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    let empty = PodSpec::default();
    let (a, b) = (a.spec.as_ref().unwrap_or(&empty), b.spec.as_ref().unwrap_or(&empty));
    let init = |spec: &PodSpec| spec.init_containers.clone().unwrap_or_default();
    request_same(&a.containers, &b.containers)
        && request_same(&init(a), &init(b))
        && is_same(&a.resources, &b.resources)
        && is_same(&a.node_selector, &b.node_selector)
        && is_same(&a.tolerations, &b.tolerations)
        && is_same(&a.affinity, &b.affinity)
        && is_same(&a.resource_claims, &b.resource_claims)
}

fn request_same(a: &[Container], b: &[Container]) -> bool {
    let requests = |container: &Container| {
        let requests = container.resources.as_ref().and_then(|own| own.requests.clone());
        serde_json::to_value(requests).unwrap_or_default()
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| means_same(&requests(a), &requests(b), true))
}

fn is_same(a: &impl Serialize, b: &impl Serialize) -> bool {
    let json = |value: Result<Value, _>| value.unwrap_or_default();
    means_same(&json(serde_json::to_value(a)), &json(serde_json::to_value(b)), false)
}

/// Whether two values mean the same to Kubernetes: what is empty is as good as missing, and quantities are amounts.
fn means_same(a: &Value, b: &Value, are_amounts: bool) -> bool {
    match (a, b) {
        (Value::Object(of_a), Value::Object(of_b)) => {
            let fields: BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
            fields.into_iter().all(|field| {
                let are_amounts = are_amounts || matches!(field.as_str(), "requests" | "limits");
                means_same(&a[field.as_str()], &b[field.as_str()], are_amounts)
            })
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| means_same(a, b, are_amounts))
        }
        (Value::String(a), Value::String(b)) if are_amounts && a != b => {
            let amounts = (a.parse::<Quantity>(), b.parse::<Quantity>());
            matches!(amounts, (Ok(a), Ok(b)) if a == b)
        }
        _ => a == b || (is_empty(a) && is_empty(b)),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(sets: &Value, counts: &Value) -> Workload {
        serde_json::from_value(json!({ "metadata": {}, "spec": { "podSets": sets },
            "status": { "admission": { "clusterQueue": "cq", "podSetAssignments": counts } } }))
        .unwrap()
    }

    fn config(value: &Value) -> ProvisioningRequestConfigSpec {
        let mut config = json!({ "provisioningClassName": "class" });
        config.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(config).unwrap()
    }

    /// Members and counts.
    #[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
    fn requested(workload: &Workload, with: Value) -> Vec<(String, i32)> {
        let merged = merged(workload, &config(&with));
        merged.iter().map(|own| (own.members.join("+"), own.count)).collect()
    }

    fn set(name: &str, count: i32, container: &Value) -> Value {
        json!({ "name": name, "count": count, "template": { "spec": { "containers": [container] } } })
    }

    #[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
    fn expect(found: Vec<(String, i32)>, expected: &[(&str, i32)]) {
        let expected: Vec<(String, i32)> =
            expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn capacity_is_requested_for_pods_that_use_a_managed_resource() {
        let plain = json!({ "name": "c", "resources": { "requests": { "cpu": "1" } } });
        let gpu = json!({ "name": "c", "resources": { "limits": { "gpu": "1" } } });
        let sets = json!([set("a", 2, &plain), set("b", 3, &gpu), set("c", 0, &gpu), set("d", 4, &gpu)]);
        let counts = json!([{ "name": "a", "count": 2 }, { "name": "b" }, { "name": "c", "count": 1 },
            { "name": "d", "count": 0 }]);
        let workload = workload(&sets, &counts);
        expect(requested(&workload, json!({})), &[("a", 2), ("b", 3)]);
        expect(requested(&workload, json!({ "managedResources": ["gpu"] })), &[("b", 3)]);
        expect(requested(&workload, json!({ "managedResources": ["tpu"] })), &[]);
    }

    #[test]
    fn like_pod_sets_are_requested_as_one() {
        let container = |image: &str, cpu: &str| json!({ "name": "c", "image": image, "env": [], "resources": { "requests": { "cpu": cpu } } });
        let mut same = container("one", "1000m");
        same.as_object_mut().unwrap().remove("env");
        let sets = json!([
            set("a", 1, &container("one", "1")),
            set("b", 2, &same),
            set("c", 3, &container("two", "1")),
            set("d", 4, &container("one", "2"))
        ]);
        let workload = workload(&sets, &json!([]));
        let with = |policy: &str| requested(&workload, json!({ "podSetMergePolicy": policy }));
        expect(requested(&workload, json!({})), &[("a", 1), ("b", 2), ("c", 3), ("d", 4)]);
        expect(with("IdenticalPodTemplates"), &[("a+b", 3), ("c", 3), ("d", 4)]);
        expect(with("IdenticalWorkloadSchedulingRequirements"), &[("a+b+c", 6), ("d", 4)]);
    }

    #[test]
    fn pods_that_need_other_nodes_are_requested_on_their_own() {
        let with = |field: &str, value: Value| {
            let mut other = set("b", 1, &json!({ "name": "c" }));
            other["template"]["spec"][field] = value;
            let sets = json!([set("a", 1, &json!({ "name": "c" })), other]);
            let policy = json!({ "podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements" });
            requested(&workload(&sets, &json!([])), policy).len()
        };
        let table = [
            ("priorityClassName", json!("high"), 1),
            ("nodeSelector", json!({}), 1),
            ("nodeSelector", json!({ "a": "b" }), 2),
            ("tolerations", json!([{ "operator": "Exists" }]), 2),
            (
                "affinity",
                json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                { "weight": 1, "preference": {} }] } }),
                2,
            ),
            ("resourceClaims", json!([{ "name": "claim" }]), 2),
            ("initContainers", json!([{ "name": "i" }]), 2),
            ("resources", json!({ "requests": { "cpu": "1" } }), 2),
        ];
        for (field, value, expected) in table {
            assert_eq!(with(field, value.clone()), expected, "{field}: {value}");
        }
    }
}
