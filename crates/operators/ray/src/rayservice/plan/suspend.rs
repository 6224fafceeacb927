//! A RayService that is asked to have nothing for a while.

use std::ops::ControlFlow;

use quintet_api::ray::reasons;
use quintet_controller::{Action, ApiKind, cache::Entry};

use super::{Draft, clusters};
use crate::rayservice::{
    Plan, Step,
    events::{self, Deletion},
    gateway,
    status::{self, READY, ROLLING_BACK, SUSPENDED, SUSPENDING, UPGRADING},
};

/// Breaks with the plan of a service that is suspended; otherwise continues with the draft.
pub(crate) fn consider(mut draft: Draft<'_>) -> ControlFlow<Plan, Draft<'_>> {
    let observed = draft.observed;
    let wanted = observed.object().spec.suspend == Some(true);
    if status::holds(&draft.status, SUSPENDING) {
        return ControlFlow::Break(clear(draft));
    }
    if status::holds(&draft.status, SUSPENDED) {
        if wanted {
            return ControlFlow::Break(Plan::awaiting("spec.suspend to be false"));
        }
        draft.observe_generation();
        let message = "Spec.Suspend is false; RayService has resumed.";
        status::set(
            &mut draft.status,
            observed.now,
            SUSPENDED,
            Some(false),
            reasons::RAY_SERVICE_RESUMED,
            message,
        );
        let message = "RayService is initializing after resuming from suspend.";
        status::begin(&mut draft.status, observed.now, message);
        return ControlFlow::Continue(draft);
    }
    if wanted {
        return ControlFlow::Break(begin(draft));
    }
    ControlFlow::Continue(draft)
}

/// Written down before anything is deleted, so that a suspension which has begun runs to its end.
fn begin(mut draft: Draft<'_>) -> Plan {
    let now = draft.observed.now;
    draft.observe_generation();
    let status = &mut draft.status;
    let message = "Spec.Suspend is true; will delete all Kubernetes resources owned by this RayService.";
    status::set(status, now, SUSPENDING, Some(true), reasons::SUSPEND_REQUESTED, message);
    for (type_, message) in stopped("RayService is suspending.") {
        status::set(status, now, type_, Some(false), reasons::SUSPEND_IN_PROGRESS, message);
    }
    status.active_service_status = None;
    status.pending_service_status = None;
    status.num_serve_endpoints = Some(0);
    status.service_status = Some(String::new());
    draft.done()
}

/// The conditions that do not hold while a service is suspended, with their messages.
fn stopped(why_not_ready: &str) -> [(&str, &str); 3] {
    [
        (READY, why_not_ready),
        (UPGRADING, "No upgrade in progress."),
        (ROLLING_BACK, "No rollback in progress."),
    ]
}

fn clear(mut draft: Draft<'_>) -> Plan {
    let observed = draft.observed;
    let now = observed.now;
    draft.observe_generation();
    let mut is_clear = true;
    for cluster in &observed.clusters {
        is_clear = false;
        if !cluster.deleting {
            draft.steps.push(clusters::delete(cluster, Deletion::Suspension));
        }
    }
    for service in &observed.services {
        is_clear = false;
        if !service.deleting {
            draft.steps.push(delete(ApiKind::of::<k8s_openapi::api::core::v1::Service>(), service));
        }
    }
    let routing = [(gateway::gateway_kind(), &observed.gateway), (gateway::route_kind(), &observed.route)];
    for (kind, object) in routing {
        let ours = object.as_ref().filter(|object| gateway::is_ours(&object.object, &observed.service));
        let Some(object) = ours else { continue };
        is_clear = false;
        if !object.deleting {
            draft.steps.push(delete(kind, object));
        }
    }
    let status = &mut draft.status;
    if is_clear {
        let message = "All owned resources have been deleted.";
        status::set(status, now, SUSPENDING, Some(false), reasons::SUSPEND_COMPLETE, message);
        status::set(status, now, SUSPENDED, Some(true), reasons::SUSPEND_COMPLETE, message);
        for (type_, message) in stopped("RayService is suspended.") {
            status::set(status, now, type_, Some(false), reasons::SUSPEND_COMPLETE, message);
        }
    } else {
        let message = "Waiting for all Kubernetes resources owned by this RayService to be deleted.";
        status::set(status, now, SUSPENDING, Some(true), reasons::SUSPEND_IN_PROGRESS, message);
    }
    draft.done()
}

fn delete<T>(kind: ApiKind, object: &Entry<T>) -> Step {
    let deleted = events::deleted(&kind.kind, &object.key, Deletion::Suspension);
    Action::delete(kind, object).with_event(deleted)
}
