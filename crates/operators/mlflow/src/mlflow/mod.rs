//! The MLflow server of the cluster.

mod metrics;
mod objects;
mod observe;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use quintet_api::mlflow::MLflow;
use quintet_controller::cache::{Entry, ObjectMetadata};
use quintet_controller::{Action, Controller, Error, NoCall, ObjectKey, OnError, Plan};

use crate::Context;
use crate::names;
pub use objects::{Bundles, OptionalApis};
pub(crate) use objects::{gc_rules, server_rules};
use observe::MLflowCaches;
pub use observe::Observed;

/// The controller of MLflows.
pub(crate) struct MLflowController {
    context: Context,
    caches: MLflowCaches,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = MLflowCaches::new(context.runtime.caches(), &context.settings)?;
    metrics::register(&context.metrics, &caches.mlflows);
    let mlflows = caches.mlflows.clone();
    let (deployments, jobs, pods) = (caches.deployments.clone(), caches.jobs.clone(), caches.pods.clone());
    let (config_maps, modules) = (caches.config_maps.clone(), caches.modules.clone());
    let parts: Vec<_> = caches.parts().cloned().collect();
    let optional = caches.optional().map(Clone::clone);
    let named = mlflows.clone();
    let controller = MLflowController { context: context.clone(), caches };
    let mut setup = context
        .runtime
        .add(controller, &mlflows, context.concurrency)
        .watches(&deployments, |entry| the_mlflow(entry.key.name() == names::MLFLOW))
        .watches(&jobs, |_| the_mlflow(true))
        .watches(&pods, |_| the_mlflow(true))
        .watches(&config_maps, move |entry| the_mlflow(concerns(entry, named.get(&key()).as_deref())));
    for part in &parts {
        setup = setup.watches(part, |_| the_mlflow(true));
    }
    for kind in &optional {
        setup = setup.watches_presence(kind, || the_mlflow(true));
    }
    if let Some(modules) = &modules {
        setup = setup.watches(modules, |_| the_mlflow(true));
    }
    setup.done();
    Ok(())
}

fn key() -> ObjectKey {
    ObjectKey::cluster(names::MLFLOW)
}

/// The only MLflow that there may be, if something concerns it.
fn the_mlflow(is_concerned: bool) -> Vec<ObjectKey> {
    is_concerned.then(key).into_iter().collect()
}

/// Whether a ConfigMap is a CA bundle of the MLflow, or belongs to its archival.
fn concerns(config_map: &Entry<ObjectMetadata>, mlflow: Option<&Entry<MLflow>>) -> bool {
    let name = config_map.key.name();
    let custom = mlflow.and_then(|mlflow| mlflow.object.spec.ca_bundle_config_map.as_ref());
    name == names::PLATFORM_CA
        || name == names::ARCHIVAL_CONFIG
        || custom.is_some_and(|custom| custom.name == name)
}

impl Controller for MLflowController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "mlflow-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Context { settings, clock, .. } = &self.context;
        Ok(self.caches.mlflows.get(key).map(|mlflow| self.caches.read(mlflow, settings, clock.now())))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
        plan::on_error(observed, action, error)
    }
}

/// Everything that is made for an MLflow whose database is migrated, in order, and its migration Job. The error is for
/// the user to fix.
pub fn preview(
    mlflow: &MLflow,
    settings: &crate::settings::Settings,
    apis: OptionalApis,
    bundles: &Bundles,
) -> Result<Vec<serde_json::Value>, String> {
    let mut mlflow = mlflow.clone();
    mlflow.metadata.uid.get_or_insert_with(|| "00000000-0000-0000-0000-000000000000".to_owned());
    let inputs = objects::Inputs { mlflow: &mlflow, settings, apis, bundles };
    let rendered = objects::render(&inputs)?;
    let mut actions = rendered.actions(mlflow.spec.replicas.unwrap_or(1), None);
    let name = names::migration_job(&settings.version, mlflow.metadata.generation.unwrap_or(1));
    let kind = quintet_controller::ApiKind::of::<k8s_openapi::api::batch::v1::Job>();
    actions.extend(objects::migration_job(&inputs, &rendered, &name).map(|job| Action::create(kind, &job)));
    actions.extend(apis.console_links.then(|| objects::console_link(&mlflow, settings)));
    actions.extend(apis.http_routes.then(|| objects::http_route(&mlflow, settings)));
    let object = |action: Action| match action {
        Action::Create { object, .. } | Action::Apply { object, .. } => Some(object),
        Action::Patch { .. }
        | Action::Status { .. }
        | Action::Delete { .. }
        | Action::CreateSubresource { .. }
        | Action::Call(_) => None,
    };
    Ok(actions.into_iter().filter_map(object).collect())
}
