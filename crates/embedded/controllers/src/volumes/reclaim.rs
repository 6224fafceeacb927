//! What becomes of a volume whose claim is gone.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeStatus};
use quintet_controller::cache::{Cache, Entry};
use quintet_controller::{Action, ApiKind, Class, Controller, Error, ObjectKey, Plan, Runtime, StatusPatch};
use serde::{Deserialize, Serialize};

use super::{PROVISIONED_BY, PROVISIONER, claim_of};
use crate::Context;

/// Everything that a decision about one volume needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObservedVolume {
    pub(super) volume: Arc<Entry<PersistentVolume>>,
    /// Whether the claim it is reserved for exists; uncached if the cache does not have it.
    pub(super) claim_exists: bool,
    /// Where directories of the built-in class are.
    pub(super) directory: Option<PathBuf>,
}

/// Removes the data of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RemoveDirectory(pub(super) PathBuf);

impl fmt::Display for RemoveDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "remove directory {}", self.0.display())
    }
}

/// The controller of volumes.
pub(super) struct VolumeController {
    volumes: Cache<PersistentVolume>,
    claims: Cache<PersistentVolumeClaim>,
    context: Context,
}

pub(super) fn add(
    runtime: &Runtime,
    context: &Context,
    volumes: &Cache<PersistentVolume>,
    claims: &Cache<PersistentVolumeClaim>,
) {
    let controller =
        VolumeController { volumes: volumes.clone(), claims: claims.clone(), context: context.clone() };
    runtime
        .add(controller, volumes, context.concurrency)
        .watches(claims, |claim| {
            let volume = claim.object.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
            volume.map(ObjectKey::cluster).into_iter().collect()
        })
        .done();
}

impl Controller for VolumeController {
    type Observed = ObservedVolume;
    type Call = RemoveDirectory;

    const NAME: &'static str = "persistentvolume-reclaimer";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<ObservedVolume>, Error> {
        let Some(volume) = self.volumes.get(key) else { return Ok(None) };
        let claim_exists = match claim_of(&volume.object) {
            Some((claim, uid)) => self.exists(&claim, uid).await?,
            None => false,
        };
        Ok(Some(ObservedVolume { volume, claim_exists, directory: self.context.volumes.clone() }))
    }

    fn plan(observed: &ObservedVolume) -> Plan<RemoveDirectory> {
        plan(observed)
    }

    async fn call(&self, RemoveDirectory(path): &RemoveDirectory) -> Result<(), Error> {
        let (path, shown) = (path.clone(), path.display().to_string());
        let removed = tokio::task::spawn_blocking(move || match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        });
        let failed = |cause: String| Error::new(Class::Transient, format!("cannot remove {shown}"), cause);
        removed.await.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
    }
}

impl VolumeController {
    /// Whether a claim exists. One of another uid is another claim.
    async fn exists(&self, claim: &ObjectKey, uid: Option<&str>) -> Result<bool, Error> {
        let Some(uid) = uid.filter(|uid| !uid.is_empty()) else { return Ok(true) };
        if self.claims.get(claim).is_some_and(|claim| claim.uid.as_str() == uid) {
            return Ok(true);
        }
        let live = self.context.api.get(&ApiKind::of::<PersistentVolumeClaim>(), claim).await?;
        let live = live.and_then(|text| serde_json::from_str::<PersistentVolumeClaim>(&text).ok());
        Ok(live.is_some_and(|live| live.metadata.uid.as_deref() == Some(uid)))
    }
}

/// Computes the plan.
pub(super) fn plan(observed: &ObservedVolume) -> Plan<RemoveDirectory> {
    let volume = &observed.volume;
    if volume.deleting {
        return Plan::nothing();
    }
    let current = volume.object.status.clone().unwrap_or_default();
    let phase = match claim_of(&volume.object) {
        None => "Available",
        // Binding is the matter of the claim.
        Some(_) if observed.claim_exists => return Plan::nothing(),
        Some(_) => "Released",
    };
    let desired = PersistentVolumeStatus { phase: Some(phase.to_owned()), ..current.clone() };
    let policy =
        volume.object.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    let mut plan = Plan { status: StatusPatch::between(volume, &current, &desired), ..Plan::default() };
    // First the phase, then the data: so that clients see a released volume.
    if phase == "Released"
        && policy == Some("Delete")
        && plan.status.is_none()
        && let Some(directory) = own_directory(observed)
    {
        plan.steps.push(Action::Call(RemoveDirectory(directory)).into());
        plan.steps.push(Action::delete(ApiKind::of::<PersistentVolume>(), volume).into());
    }
    plan
}

/// The directory of a volume that this provisioner made, directly below its own.
fn own_directory(observed: &ObservedVolume) -> Option<PathBuf> {
    let volume = &observed.volume.object;
    let provisioner = volume.metadata.annotations.as_ref()?.get(PROVISIONED_BY)?;
    let path = Path::new(&volume.spec.as_ref()?.host_path.as_ref()?.path).to_owned();
    let name = path.file_name()?.to_str()?;
    let is_own = provisioner == PROVISIONER && path.parent() == observed.directory.as_deref();
    (is_own && name.starts_with("pvc-")).then_some(path)
}
