//! Namespace RBAC: the platform's groups get access to the namespaces that are labelled as workspaces of an MLflow.

mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use quintet_api::mlflow::MLflow;
use quintet_api::mlflow::metadata::WORKSPACE;
use quintet_api::owners::controller_reference;
use quintet_controller::cache::{Cache, Entry, ObjectMetadata, WatchSpec};
use quintet_controller::{ApiKind, Controller, Error, NoCall, ObjectKey, Plan};
use serde::{Deserialize, Serialize};

use crate::watches::{self, Auth, RoleBindingView};
use crate::{Context, names};

/// Index of namespaces: by the MLflow that their label names.
const BY_MLFLOW: &str = "mlflow";

/// The controller of namespaces.
struct WorkspaceController {
    role_prefix: String,
    namespaces: Cache<ObjectMetadata>,
    mlflows: Cache<MLflow>,
    auths: Cache<Auth>,
    view_bindings: Cache<RoleBindingView>,
    edit_bindings: Cache<RoleBindingView>,
}

/// What was observed of a namespace.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    namespace: Arc<Entry<ObjectMetadata>>,
    /// What the names of the ClusterRoles begin with.
    role_prefix: String,
    /// The MLflow that the label names, as the owner of the RoleBindings.
    owner: Option<OwnerReference>,
    auth: Option<Auth>,
    view_binding: Option<Arc<Entry<RoleBindingView>>>,
    edit_binding: Option<Arc<Entry<RoleBindingView>>>,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let namespaces = WatchSpec::metadata(ApiKind::of::<Namespace>())
        .index(BY_MLFLOW, |entry| mlflow_of(&entry.object).map(str::to_owned).into_iter().collect());
    let controller = WorkspaceController {
        role_prefix: context.settings.role_prefix.clone(),
        namespaces: caches.watch(namespaces)?,
        mlflows: caches.watch(WatchSpec::<MLflow>::typed())?,
        auths: caches.watch(watches::auths())?,
        view_bindings: caches.watch(watches::role_bindings(names::VIEW_BINDING))?,
        edit_bindings: caches.watch(watches::role_bindings(names::EDIT_BINDING))?,
    };
    let namespaces = controller.namespaces.clone();
    let (mlflows, auths) = (controller.mlflows.clone(), controller.auths.clone());
    let bindings = [controller.view_bindings.clone(), controller.edit_bindings.clone()];
    let (of_mlflow, labelled) = (namespaces.clone(), namespaces.clone());
    let mut setup = context
        .runtime
        .add(controller, &namespaces, context.concurrency)
        .watches(&mlflows, move |mlflow| keys(&of_mlflow.by_index(BY_MLFLOW, mlflow.key.name())))
        .watches(&auths, move |_| {
            let all = labelled.all().into_iter();
            keys(&all.filter(|namespace| mlflow_of(&namespace.object).is_some()).collect::<Vec<_>>())
        });
    for bindings in &bindings {
        setup = setup.watches(bindings, |binding| {
            binding.key.namespace().map(ObjectKey::cluster).into_iter().collect()
        });
    }
    setup.done();
    Ok(())
}

fn keys(namespaces: &[Arc<Entry<ObjectMetadata>>]) -> Vec<ObjectKey> {
    namespaces.iter().map(|namespace| namespace.key.clone()).collect()
}

/// The MLflow whose workspace a namespace is.
fn mlflow_of(namespace: &ObjectMetadata) -> Option<&str> {
    namespace.labels.get(WORKSPACE).map(AsRef::as_ref).filter(|name| !name.is_empty())
}

impl Controller for WorkspaceController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "mlflow-workspace-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(namespace) = self.namespaces.get(key) else { return Ok(None) };
        let mlflow =
            mlflow_of(&namespace.object).and_then(|name| self.mlflows.get(&ObjectKey::cluster(name)));
        let binding = |name| ObjectKey::new(key.name(), name);
        Ok(Some(Observed {
            role_prefix: self.role_prefix.clone(),
            owner: mlflow.and_then(|mlflow| controller_reference(&mlflow.object)),
            auth: self.auths.get(&ObjectKey::cluster(names::AUTH)).map(|auth| auth.object.clone()),
            view_binding: self.view_bindings.get(&binding(names::VIEW_BINDING)),
            edit_binding: self.edit_bindings.get(&binding(names::EDIT_BINDING)),
            namespace,
        }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
