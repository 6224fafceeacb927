//! Creating the components.
//!
//! The status says what is about to be created, with its name, before it is: whatever becomes of the request and of this
//! process, the object is found again.

use std::time::Duration;

use quintet_api::appwrapper::conditions::{DELETING_RESOURCES, RESOURCES_DEPLOYED, UNHEALTHY};
use quintet_api::appwrapper::{AppWrapperComponentStatus, Phase, reasons};
use quintet_api::conditions;
use quintet_controller::{Action, ApiKind, Error, Event, Next, OnError, Plan, Step};
use serde_json::Value;

use super::{DELETION_POLL, plan, reset_or_fail, suspend, unhealthy_event, write};
use crate::appwrapper::component::{is_deployed, is_failed, is_recorded};
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
    let Todo { pending, fatal, mut is_all } = todo(observed);
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
    for (position, one) in pending.iter().enumerate() {
        let obstacle = match &one.observed.live {
            Live::Absent | Live::Unreadable => {
                steps.push(Step::from(Action::create(one.kind.clone(), &one.object)).sequential());
                None
            }
            Live::Present(live) if !observed.owns(live) => Some(Obstacle::Foreign),
            Live::Present(live) if live.deleting => Some(Obstacle::Dying),
            // An earlier attempt of ours succeeded.
            Live::Present(_) => None,
        };
        let Some(obstacle) = obstacle else {
            draft.set_component(one.number, Some(true), reasons::COMPONENT_CREATED);
            continue;
        };
        if position > 0 {
            // Those before it are created first, as upstream.
            is_all = false;
            break;
        }
        forget_rest(&mut draft, observed, pending.get(position + 1..).unwrap_or_default());
        let name = &one.observed.name;
        return match obstacle {
            Obstacle::Foreign => give_up(draft, &exists(name)),
            Obstacle::Dying => retry(observed, draft, &format!("{} is being deleted", named(one.kind, name))),
        };
    }
    if is_all {
        draft.set_phase(Phase::Running);
    }
    Plan { steps, ..write(draft) }
}

/// What is in the way of a component.
enum Obstacle {
    /// An object of others with its name.
    Foreign,
    /// An object of ours with its name, which is being deleted.
    Dying,
}

/// What is left to be done.
struct Todo<'a> {
    /// Components to create, in order.
    pending: Vec<Pending<'a>>,
    /// Why the component after them never can be.
    fatal: Option<Fatal>,
    /// Whether all components exist when these do.
    is_all: bool,
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

/// Components to create: up to the first that never can be, or whose creation has failed. As upstream, those after it are
/// not touched before it exists.
fn todo(observed: &Observed) -> Todo<'_> {
    let appwrapper = &observed.appwrapper.object;
    let mut pending = Vec::new();
    let until = |pending, fatal: Option<Fatal>| Todo { is_all: false, pending, fatal };
    for (number, component) in observed.components.iter().enumerate() {
        let status = observed.component_status().get(number);
        if status.is_some_and(is_deployed) {
            continue;
        }
        let Some((spec, status)) = appwrapper.spec.components.get(number).zip(status) else {
            let problem = "status.componentStatus does not match spec.components".to_owned();
            return until(pending, Some(problem.into()));
        };
        let kind = match &component.kind {
            Some(kind) if kind.namespaced => kind,
            Some(kind) => {
                return until(pending, Some(format!("cluster-scoped kind {kind} cannot be wrapped").into()));
            }
            None => {
                let problem = no_match(&spec.template);
                return until(pending, Some(Fatal { problem, unknown_kind: Some(number) }));
            }
        };
        match objects::render(appwrapper, spec, &status.pod_sets, &component.name, &observed.config) {
            Ok(object) => pending.push(Pending { number, kind, observed: component, object }),
            Err(problem) => return until(pending, Some(problem.into())),
        }
        if is_failed(status) {
            let is_last = number + 1 == observed.components.len();
            return Todo { is_all: is_last, ..until(pending, None) };
        }
    }
    Todo { pending, fatal: None, is_all: true }
}

/// Components after one that could not be created were recorded and not created. As upstream, their status says nothing of
/// an attempt.
fn forget_rest(draft: &mut Draft<'_>, observed: &Observed, rest: &[Pending<'_>]) {
    let conditions = observed.status().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let was_deployed = conditions::find(conditions, DELETING_RESOURCES).is_some();
    for one in rest.iter().filter(|one| one.observed.live == Live::Absent) {
        if was_deployed {
            draft.set_component(one.number, Some(false), reasons::COMPONENT_DELETED);
        } else if let Some(status) = draft.component(one.number) {
            let pod_sets = std::mem::take(&mut status.pod_sets);
            *status = AppWrapperComponentStatus { pod_sets, ..AppWrapperComponentStatus::default() };
        }
    }
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
    let Todo { pending, .. } = todo(observed);
    for (position, one) in pending.iter().enumerate() {
        let is_it = action.kind() == Some(one.kind)
            && action.target().is_some_and(|target| target.name() == one.observed.name);
        if is_it {
            draft.set_component(one.number, Some(false), reasons::COMPONENT_CREATION_ERRORED);
            forget_rest(&mut draft, observed, pending.get(position + 1..).unwrap_or_default());
            break;
        }
        draft.set_component(one.number, Some(true), reasons::COMPONENT_CREATED);
    }
    let problem = error.cause();
    // The object itself is wrong: it will be next time, too.
    let plan = if error.has_code(422) { give_up(draft, &problem) } else { retry(observed, draft, &problem) };
    OnError { status: plan.status, events: plan.events, requeue: Some(plan.next), ..OnError::default() }
}
