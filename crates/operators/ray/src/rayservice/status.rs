//! The conditions of a RayService.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use quintet_api::ray::reasons;
use quintet_api::{
    conditions::{self, Finding},
    ray::v1::RayServiceStatus,
};

pub(super) use quintet_api::ray::{
    conditions::{
        READY, ROLLBACK_IN_PROGRESS as ROLLING_BACK, SUSPENDED, SUSPENDING, UPGRADE_IN_PROGRESS as UPGRADING,
    },
    reasons::{INITIALIZING, INITIALIZING_TIMEOUT},
};

/// Records that a condition of the status holds, does not, or is not known to.
pub(super) fn set(
    status: &mut RayServiceStatus,
    now: Timestamp,
    type_: &str,
    holds: Option<bool>,
    reason: &str,
    message: &str,
) {
    let observed_generation = status.observed_generation;
    let finding = Finding { type_, holds, reason, message, observed_generation };
    conditions::set(status.conditions.get_or_insert_default(), &finding, &Time(now));
}

/// A condition of the status.
pub(super) fn find<'a>(status: &'a RayServiceStatus, type_: &str) -> Option<&'a Condition> {
    conditions::find(status.conditions.as_deref().unwrap_or_default(), type_)
}

/// Whether a condition holds.
pub(super) fn holds(status: &RayServiceStatus, type_: &str) -> bool {
    find(status, type_).is_some_and(|condition| condition.status == "True")
}

/// The reason of a condition, or empty.
pub(super) fn reason<'a>(status: &'a RayServiceStatus, type_: &str) -> &'a str {
    find(status, type_).map_or("", |condition| condition.reason.as_str())
}

/// Forgets a condition.
pub(super) fn remove(status: &mut RayServiceStatus, type_: &str) {
    if let Some(all) = &mut status.conditions {
        conditions::remove(all, type_);
    }
}

/// A service that is new, or begins anew.
pub(super) fn begin(status: &mut RayServiceStatus, now: Timestamp, message: &str) {
    for type_ in [READY, UPGRADING] {
        remove(status, type_);
        set(status, now, type_, Some(false), INITIALIZING, message);
    }
}

/// What the endpoints and clusters say.
pub(super) fn conclude(status: &mut RayServiceStatus, now: Timestamp) {
    if status.conditions.as_ref().is_none_or(Vec::is_empty) {
        begin(status, now, "RayService is initializing");
    }
    if status.num_serve_endpoints.unwrap_or_default() > 0 {
        let message = "Number of serve endpoints is greater than 0";
        set(status, now, READY, Some(true), reasons::NON_ZERO_SERVE_ENDPOINTS, message);
    } else if holds(status, READY) {
        let message = "Number of serve endpoints dropped to 0";
        set(status, now, READY, Some(false), reasons::ZERO_SERVE_ENDPOINTS, message);
    }
    let is_named = |side: &Option<quintet_api::ray::v1::RayServiceClusterStatus>| {
        side.as_ref().and_then(|side| side.ray_cluster_name.as_ref()).is_some_and(|name| !name.is_empty())
    };
    let (active, pending) =
        (is_named(&status.active_service_status), is_named(&status.pending_service_status));
    let starts = [INITIALIZING, INITIALIZING_TIMEOUT].contains(&reason(status, UPGRADING));
    match (active, pending) {
        (true, true) => {
            let message = "Both active and pending Ray clusters exist";
            set(status, now, UPGRADING, Some(true), reasons::BOTH_ACTIVE_PENDING_CLUSTERS_EXIST, message);
        }
        (true, false) => {
            let message = "Active Ray cluster exists and no pending Ray cluster";
            set(status, now, UPGRADING, Some(false), reasons::NO_PENDING_CLUSTER, message);
        }
        (false, _) if !starts => {
            let message = "No active Ray cluster exists, and the RayService is not initializing.";
            set(status, now, UPGRADING, None, reasons::NO_ACTIVE_CLUSTER, message);
        }
        (false, _) => {}
    }
    let is_ready = holds(status, READY);
    status.service_status = Some(if is_ready { "Running" } else { "" }.to_owned());
}
