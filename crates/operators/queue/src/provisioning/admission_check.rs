//! The condition `Active` of AdmissionChecks: whether their ProvisioningRequestConfig exists.

use std::sync::Arc;

use jiff::Timestamp;
use quintet_api::conditions::{self, Finding};
use quintet_api::kueue::conditions::ACTIVE;
use quintet_api::kueue::reasons::AdmissionCheckActiveReason;
use quintet_api::kueue::v1beta2::{AdmissionCheck, ProvisioningRequestConfig};
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::clock::Clock;
use quintet_controller::{Controller, Error, NoCall, ObjectKey, Plan, StatusPatch};
use quintet_queue_engine::status::api_time;
use serde::{Deserialize, Serialize};

use super::parameters;
use super::request::{self, ProvisioningRequest};
use crate::Context;
use crate::scheduler::engine_time;
use crate::watches::{self, BY_CONFIG};

/// The controller of AdmissionChecks.
struct CheckController {
    checks: Cache<AdmissionCheck>,
    configs: Cache<ProvisioningRequestConfig>,
    requests: Cache<ProvisioningRequest>,
    clock: Clock,
}

/// A check, and what there is of what it needs.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Observed {
    pub(super) check: Arc<Entry<AdmissionCheck>>,
    pub(super) has_config: bool,
    /// Whether the cluster serves ProvisioningRequests.
    pub(super) is_served: bool,
    pub(super) now: Timestamp,
}

/// Adds the controller.
pub(super) fn add(context: &Context) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let checks = caches.watch(watches::admission_checks())?;
    let configs: Cache<ProvisioningRequestConfig> = caches.watch(WatchSpec::typed())?;
    let requests = caches.watch(request::requests())?;
    let (users, all) = (checks.clone(), checks.clone());
    let controller = CheckController {
        checks: checks.clone(),
        configs: configs.clone(),
        requests: requests.clone(),
        clock: context.clock.clone(),
    };
    context
        .runtime
        .add(controller, &checks, context.concurrency)
        .watches(&configs, move |entry| keys(&users.by_index(BY_CONFIG, entry.key.name())))
        .watches(&requests, |_| Vec::new())
        .watches_presence(&requests, move || keys(&all.all()))
        .done();
    Ok(())
}

fn keys(checks: &[Arc<Entry<AdmissionCheck>>]) -> Vec<ObjectKey> {
    checks.iter().map(|entry| entry.key.clone()).collect()
}

impl Controller for CheckController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "provisioning_admissioncheck";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(check) = self.checks.get(key).filter(|check| parameters::is_ours(&check.object)) else {
            return Ok(None);
        };
        let name = parameters::config_name(&check.object).ok();
        let has_config = name.is_some_and(|name| self.configs.get(&ObjectKey::cluster(name)).is_some());
        Ok(Some(Observed { check, has_config, is_served: self.requests.is_served(), now: self.clock.now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan(observed)
    }
}

/// Says whether the check can be used, unless it says so already.
pub(super) fn plan(observed: &Observed) -> Plan {
    let check = &observed.check.object;
    if !observed.is_served {
        return Plan::awaiting(format!("the API {}", request::API_VERSION));
    }
    let problem = match parameters::config_name(check) {
        Ok(name) if !observed.has_config => Some(parameters::not_found(name)),
        Ok(_) => None,
        Err(problem) => Some(problem),
    };
    let reason = match problem {
        None => AdmissionCheckActiveReason::Active,
        Some(_) => AdmissionCheckActiveReason::BadParametersRef,
    };
    let is_active = problem.is_none();
    let message = problem.unwrap_or_else(|| "The admission check is active".to_owned());
    let mut status = check.status.clone().unwrap_or_default();
    let conditions = status.conditions.get_or_insert_default();
    let known = conditions::find(conditions, ACTIVE);
    let status_text = if is_active { "True" } else { "False" };
    if known.is_some_and(|known| known.status == status_text && known.message == message) {
        return Plan::nothing();
    }
    let finding = Finding {
        type_: ACTIVE,
        holds: Some(is_active),
        reason: reason.as_str(),
        message: &message,
        observed_generation: check.metadata.generation,
    };
    conditions::set(conditions, &finding, &api_time(engine_time(observed.now)));
    let status = StatusPatch::between(&observed.check, &check.status, &Some(status));
    Plan { status, ..Plan::default() }
}
