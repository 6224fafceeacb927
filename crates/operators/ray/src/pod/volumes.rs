//! Volumes of Ray pods, and resources of the small containers beside Ray.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, PodSpec, ResourceRequirements, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::ray_start::Params;

const SHARED_MEMORY: (&str, &str) = ("shared-mem", "/dev/shm");
const LOGS: (&str, &str) = ("ray-logs", "/tmp/ray");

/// Memory for the object store, as large as the container may become.
pub(super) fn add_shared_memory(pod: &mut PodSpec, params: &Params) {
    let Some(ray) = pod.containers.first_mut() else {
        return;
    };
    // Whoever chooses a directory for the object store does not want this one.
    if params.get("plasma-directory").is_some() || !mount(ray, SHARED_MEMORY) {
        return;
    }
    let size = memory(ray);
    add_volume(
        pod,
        SHARED_MEMORY.0,
        EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit: size },
    );
}

/// Lets the container of that name and Ray see the same logs.
pub(super) fn share_logs(pod: &mut PodSpec, with: &str) {
    let mut mounts = false;
    for (index, container) in pod.containers.iter_mut().enumerate() {
        if index == 0 || container.name == with {
            mounts |= mount(container, LOGS);
        }
    }
    if mounts {
        add_volume(pod, LOGS.0, EmptyDirVolumeSource::default());
    }
}

/// Mounts a volume unless something is mounted there; tells whether it did.
fn mount(container: &mut Container, (name, path): (&str, &str)) -> bool {
    let mounts = container.volume_mounts.get_or_insert_default();
    if mounts.iter().any(|mount| mount.mount_path == path) {
        return false;
    }
    mounts.push(VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() });
    true
}

fn add_volume(pod: &mut PodSpec, name: &str, source: EmptyDirVolumeSource) {
    let volumes = pod.volumes.get_or_insert_default();
    if !volumes.iter().any(|volume| volume.name == name) {
        volumes.push(Volume { name: name.to_owned(), empty_dir: Some(source), ..Volume::default() });
    }
}

fn memory(container: &Container) -> Option<Quantity> {
    let resources = container.resources.as_ref()?;
    let of = |amounts: &Option<BTreeMap<String, Quantity>>| amounts.as_ref()?.get("memory").cloned();
    of(&resources.limits).or_else(|| of(&resources.requests))
}

/// As much as it asks for, and no more.
pub(super) fn equal_resources(cpu: &str, memory: &str) -> ResourceRequirements {
    resources((cpu, memory), (cpu, memory))
}

/// What a container asks for, and what it may use.
pub(super) fn resources(requests: (&str, &str), limits: (&str, &str)) -> ResourceRequirements {
    let amounts = |(cpu, memory): (&str, &str)| {
        let amounts = [("cpu", cpu), ("memory", memory)];
        Some(amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).into())
    };
    ResourceRequirements {
        requests: amounts(requests),
        limits: amounts(limits),
        ..ResourceRequirements::default()
    }
}
