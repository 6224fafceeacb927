//! Pods that use more of the disk than they may are evicted.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use quintet_api::quantity::Quantity;
use quintet_controller::Event;

use super::context::Context;
use super::handle::PodHandle;
use crate::pod::resources::{container_storage_limit, storage_limit};
use crate::pod::status::Verdict;

/// Between two looks at a pod.
const PERIOD: Duration = Duration::from_secs(10);

/// Something that may hold so many bytes.
struct Limit {
    paths: Vec<PathBuf>,
    bytes: u64,
    message: String,
}

/// Watches over the disk usage of a pod that has limits, until it is condemned or forgotten.
pub(super) async fn run(context: Arc<Context>, handle: Arc<PodHandle>) {
    let Some(pod) = handle.pod() else { return };
    let limits = Arc::new(limits(&handle, &pod));
    if limits.is_empty() {
        return;
    }
    loop {
        tokio::select! {
            () = handle.cancel.cancelled() => return,
            () = tokio::time::sleep(context.settings.usage_period.unwrap_or(PERIOD)) => {}
        }
        let measured = Arc::clone(&limits);
        let exceeded = tokio::task::spawn_blocking(move || exceeded(&measured)).await.ok().flatten();
        let Some(message) = exceeded.filter(|_| handle.record().has_sandbox) else { continue };
        context.event((&handle.key, &handle.uid), Event::warning("Evicted", "Evicting", message.clone()));
        handle.update(|record| {
            record.verdict.get_or_insert_with(|| Verdict { reason: "Evicted".into(), message });
        });
        return;
    }
}

fn limits(handle: &PodHandle, pod: &core::Pod) -> Vec<Limit> {
    let of_container = |name: &str| {
        vec![handle.directory.join("containers").join(name), handle.directory.join("logs").join(name)]
    };
    let mut limits = Vec::new();
    let spec = pod.spec.as_ref();
    for volume in spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let Some(source) = &volume.empty_dir else { continue };
        let limit = source.size_limit.as_ref().filter(|_| source.medium.as_deref() != Some("Memory"));
        let bytes = limit.and_then(|limit| Quantity::try_from(limit).ok());
        let bytes = bytes.and_then(|bytes| u64::try_from(bytes.units()).ok()).filter(|bytes| *bytes > 0);
        if let (Some(limit), Some(bytes)) = (limit, bytes) {
            let message =
                format!("Usage of EmptyDir volume {:?} exceeds the limit {:?}. ", volume.name, limit.0);
            limits.push(Limit { paths: vec![volume_path(handle, &volume.name)], bytes, message });
        }
    }
    let containers = || spec.iter().flat_map(|spec| &spec.containers);
    for container in containers() {
        if let Some(bytes) = container_storage_limit(container).filter(|bytes| *bytes > 0) {
            let message = format!(
                "Container {} exceeded its local ephemeral storage limit {:?}. ",
                container.name,
                shown(bytes)
            );
            limits.push(Limit { paths: of_container(&container.name), bytes, message });
        }
    }
    if let Some(bytes) = storage_limit(pod) {
        let message = format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {}. ",
            shown(bytes)
        );
        let disks = spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).filter(|volume| {
            volume.empty_dir.as_ref().is_some_and(|source| source.medium.as_deref() != Some("Memory"))
        });
        let volumes = disks.map(|volume| volume_path(handle, &volume.name));
        let paths = containers().flat_map(|container| of_container(&container.name)).chain(volumes).collect();
        limits.push(Limit { paths, bytes, message });
    }
    limits
}

fn volume_path(handle: &PodHandle, name: &str) -> PathBuf {
    handle.directory.join("volumes").join(name)
}

fn shown(bytes: u64) -> String {
    let units = i64::try_from(bytes).unwrap_or(i64::MAX);
    Quantity::from_units(units, quintet_api::quantity::Notation::BinarySi).to_string()
}

fn exceeded(limits: &[Limit]) -> Option<String> {
    let found =
        limits.iter().find(|limit| limit.paths.iter().map(|path| used(path)).sum::<u64>() > limit.bytes);
    found.map(|limit| limit.message.clone())
}

/// Bytes that a tree takes on its disk. Links are not followed, and other file systems are not entered.
fn used(path: &Path) -> u64 {
    fn below(path: &Path, device: u64) -> u64 {
        let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
        if metadata.dev() != device {
            return 0;
        }
        let own = metadata.blocks() * 512;
        if !metadata.is_dir() {
            return own;
        }
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        own + entries.map(|entry| below(&entry.path(), device)).sum::<u64>()
    }
    fs::symlink_metadata(path).map_or(0, |metadata| below(path, metadata.dev()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_that_a_tree_takes_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("deep")).unwrap();
        fs::write(directory.path().join("deep/file"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/usr", directory.path().join("link")).unwrap();
        let found = used(directory.path());
        assert!((100_000..200_000).contains(&found), "{found}");
        assert_eq!(used(Path::new("/no/such/place")), 0);
    }
}
