//! Deleting the components and their pods.

use k8s_openapi::api::core::v1::Pod;
use quintet_api::appwrapper::conditions::DELETING_RESOURCES;
use quintet_api::appwrapper::reasons;
use quintet_controller::plan::Propagation;
use quintet_controller::{Action, ApiKind, Next, ObjectKey, Plan, Step};

use super::{DELETION_POLL, write};
use crate::appwrapper::component::{is_errored, may_exist};
use crate::appwrapper::observe::{Live, LiveObject, Observed, ObservedComponent};
use crate::appwrapper::status::Draft;

/// Deletes what is left. `Ok` if there is nothing; the error is what to do now.
pub(super) fn remove(observed: &Observed, draft: &mut Draft<'_>) -> Result<(), Vec<Step>> {
    draft.set(DELETING_RESOURCES, true, reasons::DELETION_INITIATED, "");
    let grace = observed.options().forceful_deletion_grace();
    let is_overdue = draft.left(DELETING_RESOURCES, grace).is_zero();
    let mut left = Vec::new();
    let mut is_blocked = false;
    for (number, (component, status)) in
        observed.components.iter().zip(observed.component_status()).enumerate()
    {
        if !may_exist(status) {
            continue;
        }
        match &component.live {
            Live::Present(live) if observed.owns(live) => left.push((component, live)),
            // Not known to exist. If it cannot be read, the rights to create it are missing as well.
            _ if is_errored(status) => {}
            Live::Unreadable => is_blocked = true,
            Live::Absent | Live::Present(_) => {
                draft.set_component(number, Some(false), reasons::COMPONENT_DELETED);
            }
        }
    }
    let is_gone = left.is_empty() && !is_blocked;
    if is_gone && observed.pods.is_empty() {
        draft.clear(DELETING_RESOURCES, reasons::DELETION_COMPLETE);
        return Ok(());
    }
    Err(if !is_overdue {
        let live = left.iter().filter(|(_, live)| !live.deleting);
        live.map(|(component, live)| delete(observed, component, live, None)).collect()
    } else if observed.pods.is_empty() {
        left.iter().map(|(component, live)| delete(observed, component, live, Some(0))).collect()
    } else {
        observed
            .pods
            .iter()
            .map(|pod| {
                Action::Delete {
                    kind: ApiKind::of::<Pod>(),
                    key: pod.key.clone(),
                    uid: pod.uid.clone(),
                    propagation: Propagation::Background,
                    grace_seconds: Some(0),
                }
                .into()
            })
            .collect()
    })
}

fn delete(
    observed: &Observed,
    component: &ObservedComponent,
    live: &LiveObject,
    grace_seconds: Option<i64>,
) -> Step {
    let namespace = observed.appwrapper.key.namespace().unwrap_or_default();
    let kind = component.kind.clone();
    let action = Action::Delete {
        // An object that was read has a kind.
        kind: kind.unwrap_or_else(ApiKind::of::<Pod>),
        key: ObjectKey::new(namespace, &component.name),
        uid: live.uid.clone(),
        propagation: Propagation::Background,
        grace_seconds,
    };
    action.into()
}

/// Deletes, and requeues.
pub(super) fn wait(draft: Draft<'_>, steps: Vec<Step>) -> Plan {
    let awaits = vec!["the deletion of components and their pods".to_owned()];
    Plan { steps, awaits, next: Next::After(DELETION_POLL), ..write(draft) }
}
