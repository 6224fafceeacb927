//! Persistent volumes: claims are bound to volumes, volumes of the built-in class are directories, and ephemeral volumes
//! of pods get claims.

mod claims;
mod ephemeral;
mod reclaim;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{ApiKind, Controller, Error, NoCall, ObjectKey, Plan, Runtime};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Context;

pub(crate) use ephemeral::is_for_pod;

/// The built-in class.
const CLASS: &str = "standard";
/// What provisions the volumes of the built-in class.
const PROVISIONER: &str = "quintet.dev/local-directory";
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// Everything that a decision about one claim needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObservedClaim {
    claim: Arc<Entry<PersistentVolumeClaim>>,
    /// All volumes.
    volumes: Vec<Arc<Entry<PersistentVolume>>>,
    /// The class that it names.
    class: Option<Arc<Entry<StorageClass>>>,
    /// Where directories of the built-in class are.
    directory: Option<PathBuf>,
    now: Timestamp,
}

/// The controller of claims.
struct ClaimController {
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    context: Context,
}

/// Adds the controllers of claims and volumes.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let caches = runtime.caches();
    let claims = caches.watch(WatchSpec::<PersistentVolumeClaim>::typed())?;
    let volumes = caches.watch(WatchSpec::<PersistentVolume>::typed())?;
    let classes = caches.watch(WatchSpec::<StorageClass>::typed())?;
    let controller = ClaimController {
        claims: claims.clone(),
        volumes: volumes.clone(),
        classes: classes.clone(),
        context: context.clone(),
    };
    let (of_volumes, of_classes) = (claims.clone(), claims.clone());
    runtime
        .add(controller, &claims, context.concurrency)
        .watches(&volumes, move |volume| match claim_of(&volume.object) {
            Some((claim, _)) => vec![claim],
            // Any claim that waits may get it.
            None => waiting(&of_volumes),
        })
        .watches(&classes, move |_| waiting(&of_classes))
        .done();
    reclaim::add(runtime, context, &volumes, &claims);
    ephemeral::add(runtime, context, &claims);
    Ok(())
}

/// Creates the built-in class, unless there is one of its name.
pub(crate) async fn create_class(api: &quintet_controller::api::Api) -> Result<(), Error> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": CLASS, "annotations": { IS_DEFAULT: "true" } },
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
    });
    match api.create(&ApiKind::of::<StorageClass>(), &ObjectKey::cluster(CLASS), &class).await {
        Err(error) if error.has_code(409) => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// The claim that a volume is reserved for, and its uid if it is known.
fn claim_of(volume: &PersistentVolume) -> Option<(ObjectKey, Option<&str>)> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let key = ObjectKey::new(reference.namespace.as_deref()?, reference.name.as_deref()?);
    Some((key, reference.uid.as_deref()))
}

/// Claims that are not bound.
fn waiting(claims: &Cache<PersistentVolumeClaim>) -> Vec<ObjectKey> {
    let is_waiting = |claim: &PersistentVolumeClaim| {
        claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref()).is_none()
    };
    claims.all().iter().filter(|claim| is_waiting(&claim.object)).map(|claim| claim.key.clone()).collect()
}

impl Controller for ClaimController {
    type Observed = ObservedClaim;
    type Call = NoCall;

    const NAME: &'static str = "persistentvolume-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<ObservedClaim>, Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(None) };
        let class = claim.object.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
        let class = class.and_then(|class| self.classes.get(&ObjectKey::cluster(class)));
        let volumes = self.volumes.all();
        let (directory, now) = (self.context.volumes.clone(), self.context.clock.now());
        Ok(Some(ObservedClaim { claim, volumes, class, directory, now }))
    }

    fn plan(observed: &ObservedClaim) -> Plan {
        claims::plan(observed)
    }
}
