//! Module mode: the platform's MLflowOperator, which configures this operator.

mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use quintet_api::mlflow::MLflow;
use quintet_api::platform::MLflowOperator;
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{Controller, Error, NoCall, ObjectKey, Plan};
use serde::{Deserialize, Serialize};

use crate::watches::{self, ModuleConfig};
use crate::{Context, names};

/// The controller of MLflowOperators.
struct ModuleController {
    context: Context,
    modules: Cache<MLflowOperator>,
    mlflows: Cache<MLflow>,
    configs: Cache<ModuleConfig>,
}

/// What was observed of an MLflowOperator.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    module: Arc<Entry<MLflowOperator>>,
    now: Timestamp,
    /// The supported MLflow version.
    version: String,
    /// The version of the platform, as its ConfigMap says it.
    platform_version: Option<String>,
    /// MLflows that exist.
    instances: usize,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let modules = caches.watch(WatchSpec::<MLflowOperator>::typed())?;
    let mlflows = caches.watch(WatchSpec::<MLflow>::typed())?;
    let configs = caches.watch(watches::module_config(&context.settings.namespace))?;
    let controller = ModuleController {
        context: context.clone(),
        modules: modules.clone(),
        mlflows: mlflows.clone(),
        configs: configs.clone(),
    };
    let the_module = || vec![ObjectKey::cluster(names::MODULE)];
    context
        .runtime
        .add(controller, &modules, context.concurrency)
        .watches(&mlflows, move |_| the_module())
        .watches(&configs, move |_| the_module())
        .done();
    Ok(())
}

impl Controller for ModuleController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "mlflow-module-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Context { settings, clock, .. } = &self.context;
        let config = self.configs.get(&ObjectKey::new(&settings.namespace, names::MODULE_CONFIG));
        Ok(self.modules.get(key).map(|module| Observed {
            module,
            now: clock.now(),
            version: settings.version.clone(),
            platform_version: config.and_then(|config| config.object.data.get("platformVersion").cloned()),
            instances: self.mlflows.len(),
        }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
