//! The claim of the server's volume.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use quintet_controller::{Action, ApiKind};

use super::container::quantity;
use super::{Inputs, metadata};
use crate::names::{CLAIM, MLFLOW};

/// The claim, if the spec wants storage. It is created once and never changed: only the size, the class and the first
/// access mode count.
pub(super) fn claim(inputs: &Inputs<'_>) -> Option<Action> {
    let wanted = inputs.mlflow.spec.storage.as_ref()?;
    let requests = wanted.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let size = requests.and_then(|requests| requests.get("storage")).cloned();
    let mode = wanted.access_modes.iter().flatten().next().cloned();
    let claim = PersistentVolumeClaim {
        metadata: metadata(inputs, CLAIM, MLFLOW),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![mode.unwrap_or_else(|| "ReadWriteOnce".to_owned())]),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), size.unwrap_or_else(|| quantity("2Gi")))].into()),
                limits: None,
            }),
            storage_class_name: wanted.storage_class_name.clone().filter(|class| !class.is_empty()),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    };
    Some(Action::ensure(ApiKind::of::<PersistentVolumeClaim>(), &claim))
}
