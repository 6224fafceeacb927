//! The admission check of ProvisioningRequests: Workloads with quota wait until the cluster autoscaler has made room.
//!
//! ```text
//!   AdmissionCheck ── parameters ──> ProvisioningRequestConfig
//!         │                                   │
//!   Workload with quota ── request ──> ProvisioningRequest, PodTemplates ──> autoscaler
//!         ^                                   │
//!         └───── state of the check <── conditions
//! ```
//!
//! As `pkg/controller/admissionchecks/provisioning` of Kueue. ProvisioningRequests are an external kind: while the cluster
//! does not serve it, nothing is done.

mod admission_check;
mod check;
mod names;
mod observe;
mod parameters;
mod plan;
mod pod_sets;
mod request;
mod template;
#[cfg(test)]
mod tests;

use quintet_api::kueue::events::PROVISIONING_CONTROLLER;
use quintet_controller::{Action, Controller, Error, NoCall, ObjectKey, OnError, Plan};

use crate::Context;
use observe::{Observed, ProvisioningCaches};

/// The controller of Workloads with such checks.
struct ProvisioningController {
    context: Context,
    caches: ProvisioningCaches,
}

/// Adds the controllers.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    admission_check::add(context)?;
    let caches = ProvisioningCaches::new(context.runtime.caches())?;
    let (of_check, of_config, of_template, of_kind) =
        (caches.clone(), caches.clone(), caches.clone(), caches.clone());
    let ProvisioningCaches { workloads, checks, configs, requests, templates, flavors } = caches.clone();
    let controller = ProvisioningController { context: context.clone(), caches };
    context
        .runtime
        .add(controller, &workloads, context.concurrency)
        .watches(&requests, |entry| request::workload_of(entry).into_iter().collect())
        .watches(&templates, move |entry| of_template.workloads_of_template(entry))
        .watches_changes(&checks, move |change| of_check.workloads_of_check(change))
        .watches_changes(&configs, move |change| of_config.workloads_of_config(change))
        // Flavors are read; those of a reservation do not change what was requested.
        .watches(&flavors, |_| Vec::new())
        .watches_presence(&requests, move || of_kind.workloads_with_checks())
        .done();
    Ok(())
}

impl Controller for ProvisioningController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = PROVISIONING_CONTROLLER;

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Context { settings, clock, .. } = &self.context;
        Ok(self.caches.read(key, settings, clock.now()))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
        plan::on_error(observed, action, error)
    }
}
