//! The objects of an MLflow, as pure functions of its spec, the settings and what the cluster serves.

mod archival;
mod ca;
mod console_link;
mod container;
mod cors;
mod gc;
mod migration_job;
mod network_policy;
mod rbac;
mod route;
mod server;
mod service;
mod service_monitor;
mod storage;
mod stores;
mod workspaces;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use quintet_api::mlflow::MLflow;
use quintet_api::owners::controller_reference;
use quintet_controller::{Action, ApiKind, object::Scoped};
use serde::{Deserialize, Serialize};

use crate::names::{MANAGER, MLFLOW};
use crate::settings::Settings;

pub use ca::Bundles;
pub(super) use console_link::console_link;
pub(super) use migration_job::{CONTAINER as MIGRATION_CONTAINER, migration_job};
pub(crate) use rbac::{gc_rules, server_rules};
pub(super) use route::http_route;

/// Which optional kinds the cluster serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OptionalApis {
    /// ConsoleLinks, which mean OpenShift.
    pub console_links: bool,
    /// HTTPRoutes.
    pub http_routes: bool,
    /// ServiceMonitors.
    pub service_monitors: bool,
}

/// What the objects of an MLflow follow from.
pub(super) struct Inputs<'a> {
    /// The MLflow.
    pub mlflow: &'a MLflow,
    /// The settings, with those of the module.
    pub settings: &'a Settings,
    /// What the cluster serves.
    pub apis: OptionalApis,
    /// The CA bundles to trust.
    pub bundles: &'a Bundles,
}

/// The objects, in the order in which they are applied.
pub(super) struct Rendered {
    /// All but the Deployment and what comes after it.
    before: Vec<Action>,
    /// The server.
    deployment: k8s_openapi::api::apps::v1::Deployment,
    /// What comes after it.
    after: Vec<Action>,
}

impl Rendered {
    /// The actions that bring the objects about, with so many replicas of the server. What the API server has rejected
    /// before (`Kind/name`) comes last but one, so that it does not hold back the others.
    pub(super) fn actions(&self, replicas: i32, rejected: Option<&str>) -> Vec<Action> {
        let mut deployment = self.deployment.clone();
        if let Some(spec) = &mut deployment.spec {
            spec.replicas = Some(replicas);
        }
        let mut actions = self.before.clone();
        actions.push(apply(&deployment));
        actions.extend(self.after.iter().cloned());
        let is_rejected = |action: &Action| rejected.is_some() && named(action).as_deref() == rejected;
        if let Some(position) = actions.iter().position(is_rejected) {
            let action = actions.remove(position);
            // As upstream, the NetworkPolicy of migrations is missing meanwhile.
            actions.insert(actions.len().saturating_sub(1).max(position), action);
        }
        actions
    }

    /// The pods of the server.
    pub(super) fn server_pod(&self) -> Option<&PodTemplateSpec> {
        self.deployment.spec.as_ref().map(|spec| &spec.template)
    }
}

/// Renders everything but the migration Job and what is made after a migration. The error is for the user to fix.
pub(super) fn render(inputs: &Inputs<'_>) -> Result<Rendered, String> {
    let workspaces = workspaces::selector(inputs)?;
    let archival = archival::settings(inputs)?;
    let image = container::image(inputs)?;
    let pod = container::PodInputs {
        inputs,
        image,
        workspaces: workspaces.as_deref(),
        archives: archival.is_some(),
    };
    let mut before = rbac::service_accounts(inputs, archival.is_some());
    before.extend(rbac::roles(inputs, archival.is_some()));
    before.extend(storage::claim(inputs));
    before.extend(archival.map(|archival| archival::config_map(inputs, archival)));
    before.push(network_policy::server(inputs));
    before.push(service::service(inputs));
    let mut after: Vec<Action> = gc::cron_job(&pod).into_iter().collect();
    after.extend(archival.map(|archival| archival::cron_job(&pod, archival)));
    after.extend(service_monitor::service_monitor(inputs));
    // Upstream applies it last, so it is missing while the Deployment is rejected.
    after.push(network_policy::migration(inputs));
    Ok(Rendered { before, deployment: server::deployment(&pod), after })
}

/// An object in messages: `Kind/name`.
pub(super) fn named(action: &Action) -> Option<String> {
    let (kind, target) = action.kind().zip(action.target())?;
    Some(format!("{}/{}", kind.kind, target.name()))
}

/// Applies a typed object.
fn apply<K>(object: &K) -> Action
where
    K: kube::Resource<DynamicType = ()> + Serialize,
    K::Scope: Scoped,
{
    Action::apply(ApiKind::of::<K>(), MANAGER, object)
}

/// Labels of an object of `app`.
fn labels(app: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), app.to_owned()), ("component".to_owned(), MLFLOW.to_owned())])
}

/// Metadata of an object of `app` in the namespace, which goes with the MLflow.
fn metadata(inputs: &Inputs<'_>, name: &str, app: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(inputs.settings.namespace.clone()),
        labels: Some(labels(app)),
        owner_references: owners(inputs.mlflow),
        ..ObjectMeta::default()
    }
}

/// The MLflow as the controller of what is made for it.
fn owners(mlflow: &MLflow) -> Option<Vec<OwnerReference>> {
    controller_reference(mlflow).map(|owner| vec![owner])
}
