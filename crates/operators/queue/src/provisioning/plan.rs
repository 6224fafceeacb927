//! The decision about the checks of one Workload.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::events::WorkloadEvent;
use quintet_api::kueue::v1beta2::{
    AdmissionCheckState, CheckState, PodSetUpdate, ProvisioningRequestConfigSpec, Workload,
};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, Error, Event, OnError, Plan, StatusPatch, Step};
use quintet_queue_engine::status::{api_time, condition_message};

use super::check::{self, Facts};
use super::observe::{Observed, ObservedCheck};
use super::pod_sets::{self, MergedPodSet};
use super::request::{self, CLASS, CONSUMES, ProvisioningRequest, RequestedPodSet, TemplateReference};
use super::{names, template};
use crate::field_managers;
use crate::scheduler::engine_time;

/// The plan for a Workload.
pub(super) fn plan(observed: &Observed) -> Plan {
    let Some(decision) = decide(observed) else { return Plan::nothing() };
    let status = decision.status_patch(observed);
    let Decision { mut steps, creations, events, awaits, .. } = decision;
    steps.extend(creations.into_iter().flat_map(|creation| creation.steps));
    Plan { steps, status, events, awaits, ..Plan::default() }
}

/// What users learn when a request or a template of it cannot be created.
pub(super) fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
    let is_answer = matches!(action, Action::Create { .. }) && error.status().is_some();
    let Some(mut decision) = decide(observed).filter(|_| is_answer) else { return OnError::default() };
    let of_action = |creation: &&Creation| creation.steps.iter().any(|step| step.action == *action);
    let found = decision.creations.iter().find(of_action).map(|creation| creation.check.clone());
    let (Some(check), Some(kind), Some(target)) = (found, action.kind(), action.target()) else {
        return OnError::default();
    };
    let message = format!("Error creating {} {:?}: {}", kind.kind, target.name(), error.cause());
    let events = vec![failed_create(&message)];
    decision.explain(&check, message);
    OnError { status: decision.status_patch(observed), events, ..OnError::default() }
}

fn failed_create(message: &str) -> Event {
    let reason = WorkloadEvent::FailedCreate.as_str();
    Event::warning(reason, reason, message)
}

/// What is to be done, and for which check.
struct Decision {
    workload: Workload,
    /// Deletions, and changes of owners.
    steps: Vec<Step>,
    creations: Vec<Creation>,
    events: Vec<Event>,
    awaits: Vec<String>,
}

/// The request of a check, after its templates.
struct Creation {
    check: String,
    steps: Vec<Step>,
}

/// `None` if the checks do not matter now.
fn decide(observed: &Observed) -> Option<Decision> {
    let workload = &observed.workload.object;
    if observed.workload.deleting {
        return None;
    }
    let mut decision = Decision {
        workload: workload.clone(),
        steps: Vec::new(),
        creations: Vec::new(),
        events: Vec::new(),
        awaits: Vec::new(),
    };
    if workload.is_finished() || (workload.is_evicted() && observed.cleans_up) {
        decision.delete_but(observed, &[]);
        return Some(decision);
    }
    let has_admission = workload.status.as_ref().is_some_and(|status| status.admission.is_some());
    if workload.is_evicted() || !workload.has_quota_reservation() || !has_admission {
        return None;
    }
    if !observed.is_served {
        decision.awaits.push(format!("the API {}", request::API_VERSION));
        return Some(decision);
    }
    let kept: Vec<&str> =
        observed.checks.iter().filter_map(|check| decision.follow(observed, check)).collect();
    decision.delete_but(observed, &kept);
    Some(decision)
}

/// The request of a check, and which attempt it is.
#[derive(Clone, Copy)]
struct Current<'o> {
    entry: &'o Entry<ProvisioningRequest>,
    attempt: i32,
}

/// The latest request of a check that is as its configuration wants it.
fn current<'o>(
    observed: &'o Observed,
    check: &str,
    config: &ProvisioningRequestConfigSpec,
) -> Option<Current<'o>> {
    let workload = &observed.workload;
    let requests = observed.requests.iter().filter(|entry| !entry.deleting);
    let of_check = requests.filter_map(|entry| {
        let attempt = names::attempt(entry.key.name(), workload.key.name(), check)?;
        entry.object.follows(&workload.object, config).then_some(Current { entry, attempt })
    });
    of_check.max_by_key(|current| current.attempt)
}

impl Decision {
    /// Lets a check follow its request; returns the name of the request to keep.
    fn follow<'o>(&mut self, observed: &'o Observed, check: &ObservedCheck) -> Option<&'o str> {
        let now = api_time(engine_time(observed.now));
        let Some(config) = &check.config else {
            self.change(&check.name, |state| check::deactivate(state, &now));
            return None;
        };
        let pods = pod_sets::merged(&observed.workload.object, config);
        if pods.is_empty() {
            self.change(&check.name, |state| check::skip(state, &now));
            return None;
        }
        let current = current(observed, &check.name, config);
        let next = match current {
            Some(current) => self.follow_request(observed, check, config, current, &pods, &now),
            None => self.first_attempt(&check.name),
        };
        if let Some(attempt) = next {
            self.create(observed, &check.name, config, attempt, &pods);
        }
        current.map(|current| current.entry.key.name())
    }

    /// Returns the number of the next attempt, if it is time for one.
    fn follow_request(
        &mut self,
        observed: &Observed,
        check: &ObservedCheck,
        config: &ProvisioningRequestConfigSpec,
        current: Current<'_>,
        pods: &[MergedPodSet<'_>],
        now: &Time,
    ) -> Option<i32> {
        let Current { entry, attempt } = current;
        self.hand_over_templates(observed, entry);
        let workload = &observed.workload.object;
        let facts = Facts {
            request: &entry.object,
            attempt,
            strategy: config.retry_strategy.as_ref(),
            is_admitted: workload.is_admitted(),
            is_active: workload.is_active(),
            updates: updates(entry, config, pods),
        };
        let has_failed = facts.has_failed();
        let state = self.change(&check.name, |state| check::follow(state, facts, now))?;
        // One that waits for its retry is evicted first. This one was, and its request has outlived that.
        (has_failed && state == CheckState::Pending).then(|| attempt.saturating_add(1))
    }

    /// The attempt of a check without a request. One that is ready stays so, whatever becomes of its request.
    fn first_attempt(&self, check: &str) -> Option<i32> {
        let state = self.states().iter().find(|state| state.name == check)?;
        (state.state != CheckState::Ready).then(|| state.retry_count.unwrap_or(0).saturating_add(1))
    }

    fn states(&self) -> &[AdmissionCheckState] {
        let status = self.workload.status.as_ref();
        status.and_then(|status| status.admission_checks.as_deref()).unwrap_or_default()
    }

    fn state_mut(&mut self, check: &str) -> Option<&mut AdmissionCheckState> {
        let checks = self.workload.status.as_mut()?.admission_checks.as_mut()?;
        checks.iter_mut().find(|state| state.name == check)
    }

    /// Changes a check, with an event if its state changes. Returns the state.
    fn change(&mut self, check: &str, how: impl FnOnce(&mut AdmissionCheckState)) -> Option<CheckState> {
        let state = self.state_mut(check)?;
        let before = state.state;
        how(state);
        let (after, message) = (state.state, state.message.clone());
        if before != after {
            let with = if message.is_empty() { String::new() } else { format!(" with message: {message}") };
            let note = format!("Admission check {check} updated state from {before:?} to {after:?}{with}");
            let reason = WorkloadEvent::AdmissionCheckUpdated.as_str();
            self.events.push(Event::normal(reason, reason, note));
        }
        Some(after)
    }

    /// Says in a check why its request cannot be created.
    fn explain(&mut self, check: &str, message: String) {
        if let Some(state) = self.state_mut(check) {
            state.message = condition_message(message);
        }
    }

    /// Creates a request and its templates, once nothing else has its name.
    fn create(
        &mut self,
        observed: &Observed,
        check: &str,
        config: &ProvisioningRequestConfigSpec,
        attempt: i32,
        pods: &[MergedPodSet<'_>],
    ) {
        let workload = &observed.workload;
        let name = names::request(workload.key.name(), check, attempt);
        if observed.requests.iter().any(|entry| entry.key.name() == name) {
            self.awaits.push(format!("the deletion of ProvisioningRequest {name}"));
            return;
        }
        let mut steps = Vec::new();
        let mut requested = Vec::new();
        for merged in pods {
            let template = names::template(&name, pod_sets::name(merged.set));
            match ensure_template(observed, &template, merged) {
                Ok(own) => steps.extend(own),
                Err(why) => {
                    self.refuse(check, &format!("Error creating PodTemplate {template:?}: {why}"));
                    return;
                }
            }
            let pod_template_ref = TemplateReference { name: template };
            requested.push(RequestedPodSet { count: merged.count, pod_template_ref });
        }
        let request = request::new(&name, workload, config, requested);
        let note = format!("Created ProvisioningRequest: {name:?}");
        let event = Event::normal(WorkloadEvent::ProvisioningRequestCreated.as_str(), "Created", note);
        steps.push(Action::create(request::kind(), &request).with_event(event));
        self.creations.push(Creation { check: check.to_owned(), steps });
    }

    /// Reports, once, that a request cannot be made as the Workload is.
    fn refuse(&mut self, check: &str, message: &str) {
        let is_known = self.states().iter().any(|state| state.name == check && state.message == message);
        if !is_known {
            self.events.push(failed_create(message));
            self.explain(check, message.to_owned());
        }
    }

    /// Templates are created before their request, and go with it.
    fn hand_over_templates(&mut self, observed: &Observed, request: &Entry<ProvisioningRequest>) {
        let names = request.object.spec.pod_sets.iter().map(|set| &set.pod_template_ref.name);
        let templates = names.filter_map(|name| observed.templates.get(name));
        let of_workload = templates.filter(|own| template::is_controlled_by(own, &*observed.workload));
        self.steps.extend(of_workload.map(|own| Step::from(template::hand_over(own, request))));
    }

    fn delete_but(&mut self, observed: &Observed, kept: &[&str]) {
        let unused = observed
            .requests
            .iter()
            .filter(|entry| !entry.deleting && !kept.contains(&entry.key.name()))
            .map(|entry| Action::delete(request::kind(), entry).into());
        self.steps.extend(unused);
    }

    fn status_patch(&self, observed: &Observed) -> Option<StatusPatch> {
        field_managers::status_patch(&observed.workload, self.workload.status.as_ref())
    }
}

/// The steps after which there is a template for pods. One that an older request of this name has left behind may have other
/// node selectors.
fn ensure_template(observed: &Observed, name: &str, pods: &MergedPodSet<'_>) -> Result<Vec<Step>, String> {
    let workload = &observed.workload;
    let known = observed.templates.get(name);
    if known.is_some_and(|known| template::is_controlled_by(known, workload) && !known.deleting) {
        return Ok(Vec::new());
    }
    let leftover = known.map(|known| Step::from(Action::delete(template::kind(), known)));
    let create = Action::create(template::kind(), &template::new(name, workload, pods, &observed.flavors)?);
    Ok(leftover.into_iter().chain([create.into()]).collect())
}

/// What the pods get that use the capacity of a request.
fn updates(
    request: &Entry<ProvisioningRequest>,
    config: &ProvisioningRequestConfigSpec,
    pods: &[MergedPodSet<'_>],
) -> Vec<PodSetUpdate> {
    let (name, object) = (request.key.name(), &request.object);
    let selectors = config.pod_set_updates.as_ref().map(|updates| updates.node_selector.iter().flatten());
    let node_selector = selectors.map(|selectors| {
        let found = selectors.filter_map(|selector| {
            let detail = &selector.value_from_provisioning_class_detail;
            Some((selector.key.clone(), object.status.provisioning_class_details.get(detail)?.clone()))
        });
        found.collect::<BTreeMap<_, _>>()
    });
    let node_selector = node_selector.filter(|selector| !selector.is_empty());
    let update = |pod_set: &&str| PodSetUpdate {
        name: (*pod_set).to_owned(),
        annotations: Some(
            [(CONSUMES, name), (CLASS, object.spec.provisioning_class_name.as_str())]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        ),
        node_selector: node_selector.clone(),
        ..PodSetUpdate::default()
    };
    let is_requested = |merged: &&MergedPodSet<'_>| {
        let template = names::template(name, pod_sets::name(merged.set));
        object.spec.pod_sets.iter().any(|own| own.pod_template_ref.name == template)
    };
    pods.iter().filter(is_requested).flat_map(|merged| merged.members.iter().map(update)).collect()
}
