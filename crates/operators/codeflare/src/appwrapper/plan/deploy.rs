//! Creating the components.
//!
//! The status says what is about to be created, with its name, before it is: whatever becomes of the request and of this
//! process, the object is found again.

use std::time::Duration;

use quintet_api::appwrapper::conditions::{RESOURCES_DEPLOYED, UNHEALTHY};
use quintet_api::appwrapper::{AppWrapperComponentStatus, Phase, reasons};
use quintet_api::conditions;
use quintet_controller::{Action, ApiKind, Error, Event, Next, OnError, Plan, Step};
use serde_json::Value;

use super::{DELETION_POLL, plan, reset_or_fail, suspend, unhealthy_event, write};
use crate::appwrapper::objects;
use crate::appwrapper::observe::{Live, Observed, ObservedComponent};
use crate::appwrapper::status::Draft;

/// How soon a component is created again that could not be.
const RETRY: Duration = Duration::from_secs(1);

/// A component that does not exist yet, or whose status does not say so.
struct Pending<'a> {
    number: usize,
    kind: &'a ApiKind,
    observed: &'a ObservedComponent,
    object: Value,
}

pub(super) fn resuming(observed: &Observed) -> Plan {
    let mut draft = Draft::new(observed);
    if observed.is_suspended() {
        return suspend(observed, draft);
    }
    let (pending, fatal) = pending(observed);
    if pending.is_empty() {
        if let Some(fatal) = fatal {
            if let Some(unknown) = fatal.unknown_kind {
                record_unknown(&mut draft, unknown, observed);
            }
            return give_up(draft, &fatal.problem);
        }
        draft.set_phase(Phase::Running);
        return write(draft);
    }
    if pending.iter().any(|one| !is_recorded(observed.component_status().get(one.number))) {
        record(&mut draft, &pending);
        return write(draft);
    }
    let mut steps = Vec::new();
    for one in &pending {
        match &one.observed.live {
            Live::Absent | Live::Unreadable => {
                steps.push(Step::from(Action::create(one.kind.clone(), &one.object)).sequential());
            }
            Live::Present(live) if !observed.owns(live) => {
                return give_up(draft, &exists(&one.observed.name));
            }
            Live::Present(live) if live.deleting => {
                let problem = format!("{} is being deleted", named(one.kind, &one.observed.name));
                return retry(observed, draft, &problem);
            }
            // An earlier attempt of ours succeeded.
            Live::Present(_) => {}
        }
        draft.set_component(one.number, Some(true), reasons::COMPONENT_CREATED);
    }
    if fatal.is_none() {
        draft.set_phase(Phase::Running);
    }
    Plan { steps, ..write(draft) }
}

/// Why a component can never be created.
struct Fatal {
    problem: String,
    /// The number of a component whose kind the cluster does not serve.
    unknown_kind: Option<usize>,
}

impl From<String> for Fatal {
    fn from(problem: String) -> Self {
        Self { problem, unknown_kind: None }
    }
}

/// Components to create, in order, up to the first that never can be; and why that is.
fn pending(observed: &Observed) -> (Vec<Pending<'_>>, Option<Fatal>) {
    let appwrapper = &observed.appwrapper.object;
    let mut pending = Vec::new();
    for (number, component) in observed.components.iter().enumerate() {
        let status = observed.component_status().get(number);
        if status.is_some_and(is_deployed) {
            continue;
        }
        let Some((spec, status)) = appwrapper.spec.components.get(number).zip(status) else {
            let problem = "status.componentStatus does not match spec.components".to_owned();
            return (pending, Some(problem.into()));
        };
        let kind = match &component.kind {
            Some(kind) if kind.namespaced => kind,
            Some(kind) => {
                return (pending, Some(format!("cluster-scoped kind {kind} cannot be wrapped").into()));
            }
            None => {
                let problem = no_match(&spec.template);
                return (pending, Some(Fatal { problem, unknown_kind: Some(number) }));
            }
        };
        match objects::render(appwrapper, spec, &status.pod_sets, &component.name, &observed.config) {
            Ok(object) => pending.push(Pending { number, kind, observed: component, object }),
            Err(problem) => return (pending, Some(problem.into())),
        }
    }
    (pending, None)
}

fn condition(status: &AppWrapperComponentStatus) -> Option<(&str, &str)> {
    let condition = conditions::find(status.conditions.as_deref().unwrap_or_default(), RESOURCES_DEPLOYED)?;
    Some((&condition.status, &condition.reason))
}

fn is_deployed(status: &AppWrapperComponentStatus) -> bool {
    matches!(condition(status), Some(("True", _)))
}

/// Whether the status says that a component is about to be created. One that was deleted before is not.
fn is_recorded(status: Option<&AppWrapperComponentStatus>) -> bool {
    let recorded = status.and_then(condition);
    matches!(recorded, Some(("Unknown", _) | ("False", reasons::COMPONENT_CREATION_ERRORED)))
}

/// Whether there may be an object of a component, according to the status.
pub(super) fn may_exist(status: &AppWrapperComponentStatus) -> bool {
    !status.name.is_empty()
        && !matches!(condition(status), None | Some(("False", reasons::COMPONENT_DELETED)))
}

/// Whether a component certainly was not created, or is not known to have been.
pub(super) fn is_errored(status: &AppWrapperComponentStatus) -> bool {
    matches!(condition(status), Some(("False", _)))
}

fn record(draft: &mut Draft<'_>, pending: &[Pending<'_>]) {
    for one in pending {
        if let Some(status) = draft.component(one.number) {
            status.name.clone_from(&one.observed.name);
            status.kind = one.kind.kind.to_string();
            status.api_version = one.kind.api_version();
        }
        if !is_recorded(draft.component(one.number).as_deref()) {
            draft.set_component(one.number, None, reasons::COMPONENT_CREATION_INITIATED);
        }
    }
}

/// As upstream, a component of an unknown kind is one whose creation was tried.
fn record_unknown(draft: &mut Draft<'_>, number: usize, observed: &Observed) {
    let template =
        observed.appwrapper.object.spec.components.get(number).map(|component| &component.template);
    let text =
        |field: &str| template.and_then(|template| template[field].as_str()).unwrap_or_default().to_owned();
    if let Some(status) = draft.component(number) {
        if let Some(component) = observed.components.get(number) {
            status.name.clone_from(&component.name);
        }
        (status.kind, status.api_version) = (text("kind"), text("apiVersion"));
    }
    draft.set_component(number, Some(false), reasons::COMPONENT_CREATION_ERRORED);
}

/// The message of a client that looks for a kind.
fn no_match(template: &Value) -> String {
    let text = |field: &str| template[field].as_str().unwrap_or_default();
    format!("no matches for kind {:?} in version {:?}", text("kind"), text("apiVersion"))
}

/// An object as API servers name it: `deployments.apps "d"`.
fn named(kind: &ApiKind, name: &str) -> String {
    let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
    format!("{}{group} {name:?}", kind.plural)
}

fn exists(name: &str) -> String {
    format!("resource {name} exists, but is not controlled by appwrapper")
}

/// Says that components cannot be created.
fn report(draft: &mut Draft<'_>, problem: &str) -> Event {
    let message = format!("error creating components: {problem}");
    draft.set(UNHEALTHY, true, reasons::CREATE_FAILED, &message);
    unhealthy_event(format!("{}: {message}", reasons::CREATE_FAILED))
}

/// No retry can help.
fn give_up(mut draft: Draft<'_>, problem: &str) -> Plan {
    let event = report(&mut draft, problem);
    draft.set_phase(Phase::Failed);
    Plan { events: vec![event], ..write(draft) }
}

/// Creation is tried again until the grace period is over, and then from the beginning.
fn retry(observed: &Observed, mut draft: Draft<'_>, problem: &str) -> Plan {
    if draft.left(RESOURCES_DEPLOYED, observed.options().admission_grace()).is_zero() {
        let event = report(&mut draft, problem);
        reset_or_fail(observed, &mut draft, false, 1);
        return Plan { events: vec![event], ..write(draft) };
    }
    Plan { next: Next::After(RETRY), awaits: vec![problem.to_owned()], ..write(draft) }
}

/// What follows from a step that failed.
pub(crate) fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
    match action {
        Action::Create { .. } => on_creation_error(observed, action, error),
        // As upstream: what cannot be deleted still exists, and is looked at again.
        Action::Delete { .. } => OnError {
            status: plan(observed).status,
            requeue: Some(Next::After(DELETION_POLL)),
            ..OnError::default()
        },
        _ => OnError::default(),
    }
}

fn on_creation_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
    let mut draft = Draft::new(observed);
    let (pending, _) = pending(observed);
    for one in &pending {
        let is_failed = action.kind() == Some(one.kind)
            && action.target().is_some_and(|target| target.name() == one.observed.name);
        if is_failed {
            draft.set_component(one.number, Some(false), reasons::COMPONENT_CREATION_ERRORED);
            break;
        }
        draft.set_component(one.number, Some(true), reasons::COMPONENT_CREATED);
    }
    let problem = error.cause();
    // The object itself is wrong: it will be next time, too.
    let plan = if error.has_code(422) { give_up(draft, &problem) } else { retry(observed, draft, &problem) };
    OnError { status: plan.status, events: plan.events, requeue: Some(plan.next), ..OnError::default() }
}
