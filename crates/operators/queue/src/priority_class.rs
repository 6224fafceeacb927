//! Workloads follow the value of their WorkloadPriorityClass.

use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::v1beta2::{PriorityClassKind, Workload, WorkloadPriorityClass};
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, Plan};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Context;
use crate::watches::{self, BY_PRIORITY_CLASS};

/// The controller of WorkloadPriorityClasses.
struct PriorityClassController {
    classes: Cache<WorkloadPriorityClass>,
    workloads: Cache<Workload>,
}

/// A class, and the Workloads of it that have another priority.
#[derive(Clone, Serialize, Deserialize)]
struct Observed {
    value: i32,
    outdated: Vec<Arc<Entry<Workload>>>,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let classes: Cache<WorkloadPriorityClass> = caches.watch(WatchSpec::typed())?;
    let workloads = caches.watch(watches::workloads())?;
    let controller = PriorityClassController { classes: classes.clone(), workloads };
    context.runtime.add(controller, &classes, context.concurrency).done();
    Ok(())
}

impl Controller for PriorityClassController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "workloadpriorityclass";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(class) = self.classes.get(key) else { return Ok(None) };
        let value = class.object.value;
        let is_outdated = |workload: &Workload| {
            let class = workload.spec.priority_class_ref.as_ref();
            class.is_some_and(|class| class.kind == PriorityClassKind::WorkloadPriorityClass)
                && workload.spec.priority != Some(value)
                && !workload.is_finished()
        };
        let mut outdated = self.workloads.by_index(BY_PRIORITY_CLASS, key.name());
        outdated.retain(|entry| is_outdated(&entry.object));
        Ok(Some(Observed { value, outdated }))
    }

    fn plan(observed: &Observed) -> Plan {
        let patch = json!({ "spec": { "priority": observed.value } });
        let steps = observed
            .outdated
            .iter()
            .map(|entry| Action::merge_exactly(ApiKind::of::<Workload>(), entry, patch.clone()).into());
        Plan { steps: steps.collect(), ..Plan::default() }
    }
}
