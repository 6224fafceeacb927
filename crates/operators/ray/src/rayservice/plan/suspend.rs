//! A RayService that is asked to have nothing for a while.

use std::ops::ControlFlow;

use quintet_api::ray::{events, reasons};
use quintet_controller::{Action, ApiKind, Event};

use super::{Draft, clusters};
use crate::rayservice::{
    Plan, gateway,
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
        let message = "RayService was resumed";
        status::set(
            &mut draft.status,
            observed.now,
            SUSPENDED,
            Some(false),
            reasons::RAY_SERVICE_RESUMED,
            message,
        );
        status::begin(&mut draft.status, observed.now);
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
    status::set(
        status,
        now,
        SUSPENDING,
        Some(true),
        reasons::SUSPEND_REQUESTED,
        "RayService is to be suspended",
    );
    for type_ in [READY, UPGRADING, ROLLING_BACK] {
        status::set(
            status,
            now,
            type_,
            Some(false),
            reasons::SUSPEND_IN_PROGRESS,
            "RayService is being suspended",
        );
    }
    status.active_service_status = None;
    status.pending_service_status = None;
    status.num_serve_endpoints = Some(0);
    status.service_status = Some(String::new());
    draft.done()
}

fn clear(mut draft: Draft<'_>) -> Plan {
    let observed = draft.observed;
    let now = observed.now;
    draft.observe_generation();
    let mut is_clear = true;
    for cluster in &observed.clusters {
        is_clear = false;
        if !cluster.deleting {
            draft.steps.push(clusters::delete(cluster));
        }
    }
    for service in &observed.services {
        is_clear = false;
        if !service.deleting {
            let kind = ApiKind::of::<k8s_openapi::api::core::v1::Service>();
            let note = format!("Deleted the Service {}", service.key);
            draft.steps.push(Action::delete(kind, service).with_event(Event::normal(
                events::DELETED_SERVICE,
                "Delete",
                note,
            )));
        }
    }
    let routing = [(gateway::gateway_kind(), &observed.gateway), (gateway::route_kind(), &observed.route)];
    for (kind, object) in routing {
        let ours = object.as_ref().filter(|object| gateway::is_ours(&object.object, &observed.service));
        let Some(object) = ours else { continue };
        is_clear = false;
        if !object.deleting {
            let note = format!("Deleted the {} {}", kind.kind, object.key);
            let reason = events::deleted(&kind.kind);
            draft.steps.push(Action::delete(kind, object).with_event(Event::normal(&reason, "Delete", note)));
        }
    }
    let status = &mut draft.status;
    if is_clear {
        let message = "RayService is suspended";
        status::set(status, now, SUSPENDING, Some(false), reasons::SUSPEND_COMPLETE, message);
        status::set(status, now, SUSPENDED, Some(true), reasons::SUSPEND_COMPLETE, message);
        for type_ in [READY, UPGRADING, ROLLING_BACK] {
            status::set(status, now, type_, Some(false), reasons::SUSPEND_COMPLETE, message);
        }
    } else {
        let message = "RayService is being suspended";
        status::set(status, now, SUSPENDING, Some(true), reasons::SUSPEND_IN_PROGRESS, message);
    }
    draft.done()
}
