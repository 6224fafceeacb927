//! Requests and limits of containers as limits of processes. Pure.

use k8s_openapi::api::core::v1 as core;
use quintet_api::quantity::Quantity;

use crate::cgroups::Limits;

/// The limits of a container's control groups.
pub fn limits(container: &core::Container) -> Limits {
    Limits {
        memory: limit(container, "memory").and_then(|limit| u64::try_from(limit.units()).ok()),
        cpu: limit(container, "cpu").map(Quantity::millis),
        cpu_request: request(container, "cpu").map(Quantity::millis).unwrap_or_default(),
    }
}

/// Who is killed first when the machine runs out of memory, as upstream's `GetContainerOOMScoreAdjust` has it.
pub fn oom_score_adj(pod: &core::Pod, container: &core::Container, machine_memory: u64) -> i32 {
    match pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) {
        Some("Guaranteed") => -997,
        Some("BestEffort") => 1000,
        _ => {
            let request = request(container, "memory").map_or(0, Quantity::units);
            let capacity = i64::try_from(machine_memory).unwrap_or(i64::MAX).max(1);
            let share = i128::from(request) * 1000 / i128::from(capacity);
            i32::try_from(1000 - share).unwrap_or(3).clamp(3, 999)
        }
    }
}

/// Bytes of memory that a pod can use at most, if all its containers have a limit.
pub fn pod_memory(pod: &core::Pod) -> Option<u64> {
    let spec = pod.spec.as_ref()?;
    let limits = spec.containers.iter().map(|container| limits(container).memory);
    limits.sum::<Option<u64>>().filter(|bytes| *bytes > 0)
}

/// Bytes of the disk that the containers of a pod may use together, if all of them have a limit.
pub fn storage_limit(pod: &core::Pod) -> Option<u64> {
    let spec = pod.spec.as_ref()?;
    let limits = spec.containers.iter().map(container_storage_limit);
    limits.sum::<Option<u64>>().filter(|bytes| *bytes > 0)
}

/// Bytes of the disk that a container may use.
pub fn container_storage_limit(container: &core::Container) -> Option<u64> {
    limit(container, "ephemeral-storage").and_then(|limit| u64::try_from(limit.units()).ok())
}

/// Whether a container asks for some of a resource.
pub fn wants(container: &core::Container, resource: &str) -> bool {
    limit(container, resource)
        .or_else(|| request(container, resource))
        .is_some_and(|amount| !amount.is_zero())
}

fn limit(container: &core::Container, resource: &str) -> Option<Quantity> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    limits.get(resource).and_then(|amount| Quantity::try_from(amount).ok())
}

fn request(container: &core::Container, resource: &str) -> Option<Quantity> {
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    requests.get(resource).and_then(|amount| Quantity::try_from(amount).ok())
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(resources: Value) -> core::Container {
        serde_json::from_value(json!({ "name": "c", "resources": resources })).unwrap()
    }

    fn pod(class: &str, containers: Vec<Value>) -> core::Pod {
        let containers: Vec<Value> =
            containers.into_iter().map(|resources| json!({ "name": "c", "resources": resources })).collect();
        let pod = json!({ "spec": { "containers": containers }, "status": { "qosClass": class } });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn limits_are_those_of_the_container() {
        let found = limits(&container(
            json!({ "requests": { "cpu": "250m" }, "limits": { "cpu": "2", "memory": "1Gi" } }),
        ));
        assert_eq!(found, Limits { memory: Some(1 << 30), cpu: Some(2000), cpu_request: 250 });
        assert_eq!(limits(&container(json!({}))), Limits::default());
    }

    #[test]
    fn pods_that_asked_for_less_are_killed_first() {
        let score = |class: &str, memory: &str| {
            let resources = json!({ "requests": { "memory": memory } });
            oom_score_adj(&pod(class, Vec::new()), &container(resources), 4 << 30)
        };
        assert_eq!(score("Guaranteed", "1Gi"), -997);
        assert_eq!(score("BestEffort", "0"), 1000);
        assert_eq!(score("Burstable", "1Gi"), 750);
        assert_eq!(score("Burstable", "8Gi"), 3);
        assert_eq!(score("Burstable", "1"), 999);
    }

    #[test]
    fn a_pod_is_limited_if_all_its_containers_are() {
        let limited = |amount: &str| json!({ "limits": { "memory": amount, "ephemeral-storage": amount } });
        let both = pod("", vec![limited("1Gi"), limited("1Gi")]);
        assert_eq!((pod_memory(&both), storage_limit(&both)), (Some(2 << 30), Some(2 << 30)));
        let one = pod("", vec![limited("1Gi"), json!({})]);
        assert_eq!((pod_memory(&one), storage_limit(&one)), (None, None));
    }
}
