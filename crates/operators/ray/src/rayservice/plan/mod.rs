//! The plan for one RayService.

mod awaits;
pub(super) mod clusters;
mod incremental;
pub(super) mod serve;
mod suspend;

use std::{ops::ControlFlow, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Time};
use quintet_api::duration::GoDuration;
use quintet_api::ray::v1::{RayServiceClusterStatus, RayServiceStatus};
use quintet_api::ray::{events as event_reasons, reasons};
use quintet_controller::{Action, ApiKind, Event, Next, ObjectKey, StatusPatch, cache::Entry, finalizers};
use serde_json::json;

use super::events::Deletion;
use super::{
    Observed, Plan, Step, events, objects,
    status::{self, INITIALIZING, INITIALIZING_TIMEOUT, READY, UPGRADING},
    upgrade::{self, Direction, Side, Split},
    validation,
};
use crate::{
    k8s_service::{events as service_events, update},
    labels,
    watches::ServiceView,
};
use clusters::Decision;
use serve::Served;

/// Computes the plan for one RayService.
pub(super) fn plan(observed: &Observed) -> Plan {
    decide(observed, Pass::Whole)
}

/// What can be told of a service though a step of its plan failed: all that does not follow from the steps.
pub(super) fn status_after_failure(observed: &Observed) -> Option<StatusPatch> {
    decide(observed, Pass::WithoutMoves).status
}

/// Whether everything of the service is being deleted.
pub(super) fn is_suspending(observed: &Observed) -> bool {
    observed.object().status.as_ref().is_some_and(|status| status::holds(status, status::SUSPENDING))
}

/// How far a pass goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// To its end.
    Whole,
    /// Neither capacity nor traffic nor the service itself moves.
    WithoutMoves,
}

fn decide(observed: &Observed, pass: Pass) -> Plan {
    let service = observed.object();
    if labels::is_managed_elsewhere(service.spec.managed_by.as_deref()) {
        return Plan::awaiting(labels::managed_elsewhere(service.spec.managed_by.as_deref()));
    }
    if observed.service.deleting {
        return finalize(observed);
    }
    if let Some(finalizer) = finalizers::add(&observed.service, &service.metadata, labels::SERVICE_FINALIZER)
    {
        return Plan { steps: vec![finalizer.into()], ..Plan::default() };
    }
    let metadata = validation::validate_metadata(service);
    let metadata = metadata.map_err(|error| (event_reasons::INVALID_RAY_SERVICE_METADATA, error));
    let spec = || {
        let spec = validation::validate_spec(service, &observed.settings);
        spec.map_err(|error| (event_reasons::INVALID_RAY_SERVICE_SPEC, error))
    };
    if let Err((reason, error)) = metadata.and_then(|()| spec()) {
        return refuse(observed, reason, &error);
    }
    match suspend::consider(Draft::new(observed)) {
        ControlFlow::Continue(draft) => reconcile(draft, pass),
        ControlFlow::Break(plan) => plan,
    }
}

/// How long the proxy on a head may take to start. One that has not by then is not part of the Serve config.
const PROXY_START: SignedDuration = SignedDuration::from_secs(30);

/// A status in the making, and what has to be done before it is true.
pub(super) struct Draft<'a> {
    pub(super) observed: &'a Observed,
    pub(super) status: RayServiceStatus,
    pub(super) steps: Vec<Step>,
    /// How traffic is split, once there is something to split it between.
    pub(super) routing: Vec<Step>,
    /// What Ray is told, after everything else: a dashboard that does not answer holds nothing up.
    pub(super) requests: Vec<Step>,
    pub(super) events: Vec<Event>,
    next: Option<Timestamp>,
}

impl<'a> Draft<'a> {
    fn new(observed: &'a Observed) -> Self {
        let status = observed.object().status.clone().unwrap_or_default();
        Self {
            observed,
            status,
            steps: Vec::new(),
            routing: Vec::new(),
            requests: Vec::new(),
            events: Vec::new(),
            next: None,
        }
    }

    pub(super) fn active_name(&self) -> Option<&str> {
        name(self.status.active_service_status.as_ref())
    }

    pub(super) fn pending_name(&self) -> Option<&str> {
        name(self.status.pending_service_status.as_ref())
    }

    pub(super) fn split(&self) -> Split {
        Split::of(self.status.active_service_status.as_ref(), self.status.pending_service_status.as_ref())
    }

    pub(super) fn side_status(&mut self, side: Side) -> Option<&mut RayServiceClusterStatus> {
        match side {
            Side::Active => self.status.active_service_status.as_mut(),
            Side::Pending => self.status.pending_service_status.as_mut(),
        }
    }

    /// The capacity that a cluster of an incremental service should have.
    pub(super) fn capacity(&self, side: Side) -> Option<i32> {
        if !self.is_incremental() {
            return None;
        }
        match side {
            Side::Active => self.status.active_service_status.as_ref()?.target_capacity,
            Side::Pending => self.status.pending_service_status.as_ref()?.target_capacity,
        }
    }

    fn is_incremental(&self) -> bool {
        upgrade::is_incremental(&self.observed.object().spec, &self.observed.settings)
    }

    /// When the plan asks to be requeued.
    pub(super) fn requeue_time(&self) -> Option<Timestamp> {
        self.next
    }

    /// Requeue at this time at the latest.
    pub(super) fn requeue_at(&mut self, time: Timestamp) {
        self.next = Some(self.next.map_or(time, |other| other.min(time)));
    }

    pub(super) fn observe_generation(&mut self) {
        self.status.observed_generation = self.observed.object().metadata.generation;
    }

    /// Writes the status if something changed that is worth writing.
    pub(super) fn done(mut self) -> Plan {
        let before = self.observed.object().status.clone().unwrap_or_default();
        let status = if is_worth_writing(&before, &self.status) {
            self.status.last_update_time = Some(Time(self.observed.now));
            StatusPatch::between(&self.observed.service, &before, &self.status)
        } else {
            None
        };
        let awaits = awaits::awaits(&self);
        let next = self.next.map(|time| time.duration_since(self.observed.now));
        let next = next.map(|wait| Duration::try_from(wait).unwrap_or_default());
        self.steps.append(&mut self.routing);
        self.steps.append(&mut self.requests);
        Plan {
            steps: self.steps,
            status,
            events: self.events,
            awaits,
            next: next.map_or(Next::AwaitChange, Next::After),
        }
    }
}

fn name(side: Option<&RayServiceClusterStatus>) -> Option<&str> {
    side?.ray_cluster_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether a change is one that clients are told of; a cluster's own status alone is not.
fn is_worth_writing(before: &RayServiceStatus, after: &RayServiceStatus) -> bool {
    let lasting = |side: &Option<RayServiceClusterStatus>| {
        let side = side.clone().unwrap_or_default();
        let apps = side.application_statuses.clone().unwrap_or_default();
        RayServiceClusterStatus { ray_cluster_status: None, application_statuses: Some(apps), ..side }
    };
    before.service_status.clone().unwrap_or_default() != after.service_status.clone().unwrap_or_default()
        || before.num_serve_endpoints.unwrap_or_default() != after.num_serve_endpoints.unwrap_or_default()
        || before.conditions.clone().unwrap_or_default() != after.conditions.clone().unwrap_or_default()
        || lasting(&before.active_service_status) != lasting(&after.active_service_status)
        || lasting(&before.pending_service_status) != lasting(&after.pending_service_status)
}

/// The service is being deleted: its clusters go first.
fn finalize(observed: &Observed) -> Plan {
    let release =
        finalizers::remove(&observed.service, &observed.object().metadata, labels::SERVICE_FINALIZER);
    let steps = if observed.clusters.is_empty() {
        release.into_iter().map(Into::into).collect()
    } else {
        let live = observed.clusters.iter().filter(|cluster| !cluster.deleting);
        live.map(|cluster| clusters::delete(cluster, Deletion::Unused)).collect()
    };
    let awaits =
        observed.clusters.iter().map(|cluster| format!("RayCluster {} to be deleted", cluster.key.name()));
    Plan { steps, awaits: awaits.collect(), ..Plan::default() }
}

/// The user has to fix something first. What serves goes on serving, and what had to go before goes.
fn refuse(observed: &Observed, reason: &str, error: &str) -> Plan {
    let mut draft = Draft::new(observed);
    clusters::delete_dangling(&mut draft);
    draft.observe_generation();
    status::set(&mut draft.status, observed.now, READY, Some(false), reasons::VALIDATION_FAILED, error);
    let mut plan = draft.done();
    plan.awaits = vec![error.to_owned()];
    if plan.status.is_some() {
        plan.events.push(events::invalid(&observed.service.key, reason, error));
    }
    plan
}

fn reconcile(mut draft: Draft<'_>, pass: Pass) -> Plan {
    clusters::delete_dangling(&mut draft);
    if status::reason(&draft.status, READY) == INITIALIZING_TIMEOUT {
        return draft.done();
    }
    draft.observe_generation();
    let is_incremental = draft.is_incremental();
    let mut decision = clusters::decide(&draft);
    let both_exist = draft.observed.active.cluster.is_some() && draft.observed.pending.cluster.is_some();
    let waits = match decision {
        // The old cluster is left alone while it may still be needed.
        Decision::UpdateActive => status::holds(&draft.status, UPGRADING),
        // First back to where everything began, then on to somewhere else.
        Decision::Prepare => is_incremental && both_exist,
        _ => false,
    };
    if waits {
        decision = Decision::Nothing;
    }
    clusters::follow(&mut draft, decision);
    if decision == Decision::Prepare {
        // What was observed of the pending cluster is about one that is given up: no request may be led there.
        return conclude(draft);
    }
    if is_incremental {
        incremental::choose_direction(&mut draft);
    }
    label_heads(&mut draft);
    let (active, pending) = serve_on_both(&mut draft);
    if is_incremental && pass == Pass::Whole {
        incremental::route(&mut draft, pending.is_ready);
        incremental::move_capacity(&mut draft);
    }
    let serving = direct_requests(&mut draft, active.is_ready, pending.is_ready);
    describe(&mut draft, active, pending);
    if pass == Pass::WithoutMoves {
        return conclude(draft);
    }
    promote(&mut draft, serving.as_deref(), is_incremental);
    if is_incremental {
        incremental::finish_rollback(&mut draft);
    }
    conclude(draft)
}

/// Ends a pass with the conditions that follow from it.
fn conclude(mut draft: Draft<'_>) -> Plan {
    draft.status.num_serve_endpoints = Some(i32::try_from(draft.observed.endpoints).unwrap_or(i32::MAX));
    let now = draft.observed.now;
    status::conclude(&mut draft.status, now);
    give_up_initializing(&mut draft);
    draft.done()
}

/// Asks both clusters about their applications, and tells them what to serve.
fn serve_on_both(draft: &mut Draft<'_>) -> (Served, Served) {
    let unasked = || Served { statuses: Some(std::collections::BTreeMap::new()), ..Served::default() };
    // One with a name counts though it is not there yet: the old cluster must not get what is meant for it.
    let has_pending = draft.pending_name().is_some();
    if draft.is_incremental() {
        let goes_back = incremental::direction(draft) == Direction::Back;
        let both = has_pending && draft.observed.active.cluster.is_some();
        let pending =
            if has_pending { serve::reconcile(draft, Side::Pending, !goes_back) } else { unasked() };
        let active = serve::reconcile(draft, Side::Active, !both || goes_back);
        return (active, pending);
    }
    if has_pending {
        let pending = serve::reconcile(draft, Side::Pending, true);
        return (unasked(), pending);
    }
    (serve::reconcile(draft, Side::Active, true), unasked())
}

/// Heads take requests while Serve's proxy on them does, unless they are not to.
fn label_heads(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let excluded = observed.object().spec.exclude_head_pod_from_serve_svc == Some(true);
    for side in [&observed.active, &observed.pending] {
        let Some(head) = &side.head else { continue };
        let healthy = side.healthy.as_ref().and_then(|heard| heard.response.as_ref().ok()).copied();
        let wanted = if excluded { Some(false) } else { healthy };
        let Some(wanted) = wanted.map(|wanted| if wanted { "true" } else { "false" }) else { continue };
        if head.object.label(labels::SERVE) == wanted {
            continue;
        }
        let patch = json!({ "metadata": { "labels": { (labels::SERVE): wanted } } });
        let kind = ApiKind::of::<k8s_openapi::api::core::v1::Pod>();
        let updated = events::updated_serve_label(&head.key, wanted);
        draft.steps.push(Action::merge(kind, head.key.clone(), patch).with_event(updated));
    }
}

/// Whether the Services can lead to the pending cluster without a request failing: they do already, or its head would be
/// one of their endpoints, or is not going to be one.
fn takes_requests(draft: &Draft<'_>) -> bool {
    let (service, pending) = (draft.observed.object(), &draft.observed.pending);
    let serving = draft.observed.serve_service.as_ref();
    let is_selected = serving.is_some_and(|serving| {
        update::selected_cluster(&serving.object)
            == pending.cluster.as_ref().map(|cluster| cluster.key.name())
    });
    let Some(head) = pending.head.as_ref().filter(|head| !head.object.ip.is_empty()) else { return true };
    let is_labelled = head.object.label(labels::SERVE) == "true";
    let is_excluded = service.spec.exclude_head_pod_from_serve_svc == Some(true);
    let has_no_proxy = pending.healthy.as_ref().is_some_and(|heard| {
        !matches!(heard.response, Ok(true)) && draft.observed.now.duration_since(heard.since) >= PROXY_START
    });
    is_selected || is_labelled || is_excluded || has_no_proxy
}

/// Makes the Services lead to the cluster that serves, and says which one that is.
fn direct_requests(draft: &mut Draft<'_>, active_is_ready: bool, pending_is_ready: bool) -> Option<String> {
    let observed = draft.observed;
    let is_incremental = draft.is_incremental();
    let is_upgrading = draft.active_name().is_some() && observed.active.cluster.is_some();
    let prefers_pending = pending_is_ready && (!is_upgrading || !is_incremental && takes_requests(draft));
    let target = match (&observed.pending.cluster, &observed.active.cluster) {
        (Some(pending), _) if prefers_pending => Some(pending),
        (_, Some(active)) if active_is_ready || pending_is_ready => Some(active),
        _ => None,
    };
    let selected = |live: &Option<std::sync::Arc<Entry<ServiceView>>>| {
        let uid = observed.service.uid.as_str();
        let ours = live.as_ref().filter(|live| update::refuse_foreign(live, uid).is_ok());
        ours.and_then(|live| update::selected_cluster(&live.object)).map(str::to_owned)
    };
    let Some(target) = target else {
        let head = selected(&observed.head_service);
        let serve = if is_incremental { head.clone() } else { selected(&observed.serve_service) };
        if head.is_some() && serve.is_some() && head != serve {
            let note = format!(
                "The head Service leads to RayCluster {} and the serve Service to {}; they are put right as soon as \
                 a cluster is ready",
                head.unwrap_or_default(),
                serve.unwrap_or_default()
            );
            draft.events.push(Event::warning(event_reasons::FAILED_TO_UPDATE_SERVICE, "Update", note));
            return None;
        }
        return head.filter(|_| serve.is_some());
    };
    let service = observed.object();
    let mut wanted =
        vec![(&observed.head_service, objects::head_service(service, &target.object, &observed.settings))];
    if !is_incremental {
        match objects::serve_service(service, &target.object) {
            Ok(serve) => wanted.push((&observed.serve_service, serve)),
            Err(error) => {
                draft.events.push(Event::warning(event_reasons::FAILED_TO_CREATE_SERVICE, "Create", error));
                return None;
            }
        }
    }
    for (live, wanted) in wanted {
        match ensure_service(live.as_deref(), &wanted, observed.service.uid.as_str()) {
            Ok(step) => draft.steps.extend(step),
            Err(event) => draft.events.push(event),
        }
    }
    Some(target.key.name().to_owned())
}

fn ensure_service(
    live: Option<&Entry<ServiceView>>,
    wanted: &Service,
    root: &str,
) -> Result<Option<Step>, Event> {
    let Some(live) = live else {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let key = ObjectKey::new(&text(&wanted.metadata.namespace), &text(&wanted.metadata.name));
        let create = Action::create(ApiKind::of::<Service>(), wanted);
        return Ok(Some(create.with_event(service_events::created(&key))));
    };
    update::refuse_foreign(live, root)?;
    let update = update::to_select(live, wanted);
    Ok(update.map(|update| update.with_event(service_events::updated(&live.key))))
}

/// Takes over what the clusters say of themselves.
fn describe(draft: &mut Draft<'_>, active: Served, pending: Served) {
    let observed = draft.observed;
    let sides = [(Side::Active, &observed.active, active), (Side::Pending, &observed.pending, pending)];
    for (side, of_side, served) in sides {
        let Some(status) = draft.side_status(side) else { continue };
        if let Some(cluster) = &of_side.cluster
            && status.ray_cluster_name.as_deref() == Some(cluster.key.name())
        {
            status.ray_cluster_status.clone_from(&cluster.object.status);
        }
        if let Some(statuses) = served.statuses {
            status.application_statuses = Some(statuses).filter(|statuses| !statuses.is_empty());
        }
    }
}

/// The pending cluster becomes the active one when it serves.
fn promote(draft: &mut Draft<'_>, serving: Option<&str>, is_incremental: bool) {
    let Some(pending) = draft.pending_name() else { return };
    let takes_over =
        if is_incremental && draft.active_name().is_some() && draft.observed.active.cluster.is_some() {
            incremental::is_complete(draft)
        } else {
            serving == Some(pending)
        };
    if takes_over {
        draft.status.active_service_status = draft.status.pending_service_status.take();
    }
}

/// A service that has never served within the time it was given is given up.
fn give_up_initializing(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let Ok(Some(timeout)) = validation::initializing_timeout(observed.object()) else { return };
    let Some(ready) = status::find(&draft.status, READY) else { return };
    if ready.status != "False" || ready.reason != INITIALIZING {
        return;
    }
    let since = ready.last_transition_time.0;
    let Some(until) =
        jiff::SignedDuration::try_from(timeout).ok().and_then(|wait| since.checked_add(wait).ok())
    else {
        return;
    };
    if until > observed.now {
        draft.requeue_at(until);
        return;
    }
    draft.status.active_service_status = None;
    draft.status.pending_service_status = None;
    let spent = GoDuration(Duration::try_from(observed.now.duration_since(since)).unwrap_or_default());
    let timeout = GoDuration(timeout);
    let message = format!(
        "RayService failed to become ready within the configured timeout of {timeout}. Time spent initializing: {spent}"
    );
    status::set(&mut draft.status, observed.now, READY, Some(false), INITIALIZING_TIMEOUT, &message);
    draft.events.push(events::initializing_timeout(spent, timeout));
}
