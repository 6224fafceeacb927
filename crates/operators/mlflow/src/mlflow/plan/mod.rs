//! What to do about an MLflow.

mod failure;
mod migration;
mod module;

use std::borrow::Cow;

use k8s_openapi::api::batch::v1::Job;
use quintet_api::conditions;
use quintet_api::mlflow::conditions::{AVAILABLE, MLFLOW_OPERATOR_READY};
use quintet_api::mlflow::metadata::FORCE_MIGRATE;
use quintet_api::mlflow::{MLflow, messages, reasons};
use quintet_api::platform::MLflowOperatorSpec;
use quintet_controller::plan::Propagation;
use quintet_controller::{Action, ApiKind, Error, OnError, Plan};
use serde_json::json;

use self::migration::Report;
use super::objects::{self, Inputs, Rendered};
use super::observe::Observed;
use super::status::Draft;
use crate::names;
use crate::settings::Settings;

/// Computes the plan for the MLflow. Pure: no clock, no I/O.
pub(super) fn plan(observed: &Observed) -> Plan {
    let key = &observed.mlflow.key;
    if key.name() != names::MLFLOW {
        return Plan::awaiting(format!("only the MLflow named {} is reconciled", names::MLFLOW));
    }
    if observed.mlflow.deleting {
        // Everything has an owner reference.
        return Plan::awaiting("the deletion of what the MLflow owns");
    }
    let mut draft = Draft::new(observed);
    if observed.settings.module_mode {
        if let Err(wait) = module::gate(observed) {
            return module::waiting(&wait, draft);
        }
        draft.set(MLFLOW_OPERATOR_READY, Some(true), reasons::READY, messages::MODULE_READY);
    } else {
        draft.remove(MLFLOW_OPERATOR_READY);
    }
    let settings = effective_settings(observed);
    draft.set_address(&settings);
    let mut plan = Plan::default();
    plan.steps.extend(observed.leftovers.iter().map(|leftover| {
        let (kind, key, uid) = (leftover.kind.clone(), leftover.key.clone(), leftover.uid.clone());
        Action::Delete { kind, key, uid, propagation: Propagation::Background, grace_seconds: None }.into()
    }));
    if observed.custom_bundle_is_missing {
        let name = observed.bundles.custom.as_deref().unwrap_or_default();
        let message = messages::ca_bundle_not_found(name, &settings.namespace);
        draft.set(AVAILABLE, Some(false), reasons::CA_BUNDLE_CONFIG_MAP_ERROR, &message);
        return Plan { awaits: vec![message], status: draft.patch(), ..plan };
    }
    let inputs = inputs(observed, &settings);
    let rendered = match objects::render(&inputs) {
        Ok(rendered) => rendered,
        Err(error) => {
            let message = messages::render_failed(&error);
            draft.unavailable(false, reasons::RENDER_FAILED, &message);
            return Plan { awaits: vec![error], status: draft.patch(), ..plan };
        }
    };
    match migration::decide(observed, &settings) {
        Some(report) => hold(plan, draft, &inputs, &rendered, observed, report),
        None => serve(plan, draft, &inputs, &rendered, observed),
    }
}

/// The server is stopped while the database is migrated.
fn hold(
    mut plan: Plan,
    mut draft: Draft<'_>,
    inputs: &Inputs<'_>,
    rendered: &Rendered,
    observed: &Observed,
    report: Report,
) -> Plan {
    if report.scales_down {
        let rejected = rejected(observed);
        plan.steps.extend(rendered.actions(0, rejected.as_deref()).into_iter().map(Into::into));
    }
    plan.steps.extend(report.deletes.map(Into::into));
    if let Some(name) = &report.creates {
        let job = objects::migration_job(inputs, rendered, name);
        plan.steps.extend(job.map(|job| Action::create(ApiKind::of::<Job>(), &job).into()));
    }
    match report.reason {
        reasons::MIGRATION_FAILED => draft.migration_failed(&report.message),
        reason if report.is_requested => draft.migrating(true, reason, &report.message),
        reason => draft.unavailable(true, reason, &report.message),
    }
    Plan { awaits: vec![report.message], next: report.next, status: draft.patch(), ..plan }
}

/// The server runs, or is started.
fn serve(
    mut plan: Plan,
    mut draft: Draft<'_>,
    inputs: &Inputs<'_>,
    rendered: &Rendered,
    observed: &Observed,
) -> Plan {
    let Inputs { mlflow, settings, apis, .. } = *inputs;
    let desired = mlflow.spec.replicas.unwrap_or(1);
    let rejected = rejected(observed);
    plan.steps.extend(rendered.actions(desired, rejected.as_deref()).into_iter().map(Into::into));
    if apis.console_links {
        plan.steps.push(objects::console_link(mlflow, settings).into());
    }
    if apis.http_routes {
        plan.steps.push(objects::http_route(mlflow, settings).into());
    }
    let url = settings.url.trim_end_matches('/');
    let is_reachable = apis.http_routes && settings.url_is_configured && !url.is_empty();
    draft.set_url(is_reachable.then(|| format!("{url}/mlflow")));
    // One that does not exist yet has a status after it was applied, and is reconciled then.
    if let Some(deployment) = &observed.deployment {
        draft.set_readiness(deployment.ready_replicas, desired);
        let is_ready = desired > 0 && deployment.ready_replicas >= desired;
        if is_ready && migration::has_succeeded(observed, settings) {
            plan.steps.extend(clear_force(observed).map(Into::into));
            draft.migrated(&settings.version);
        }
        if !is_ready {
            plan.awaits.push(messages::deployment_not_ready(deployment.ready_replicas, desired));
        }
    }
    Plan { status: draft.patch(), ..plan }
}

/// What the API server rejected at the last attempt, as the status tells it: `Kind/name`.
fn rejected(observed: &Observed) -> Option<String> {
    let status = observed.status();
    let condition = conditions::find(status.conditions.as_deref()?, AVAILABLE)?;
    let is_told = matches!(&*condition.reason, reasons::MIGRATION_ERROR | reasons::APPLY_FAILED);
    let (_, told) = condition.message.split_once(": apply ").filter(|_| is_told)?;
    told.split_once(": ").map(|(named, _)| named.to_owned())
}

/// Removes the annotation that asked for a migration.
fn clear_force(observed: &Observed) -> Option<Action> {
    migration::is_forced(&observed.mlflow.object).then(|| {
        let patch = json!({ "metadata": { "annotations": { FORCE_MIGRATE: null } } });
        Action::merge(ApiKind::of::<MLflow>(), observed.mlflow.key.clone(), patch)
    })
}

/// The settings with what the module says laid over them.
fn effective_settings(observed: &Observed) -> Cow<'_, Settings> {
    match &observed.module {
        Some(module) => {
            let spec: &MLflowOperatorSpec = &module.object.spec;
            Cow::Owned(Settings::clone(&observed.settings).overlaid(spec))
        }
        None => Cow::Borrowed(&observed.settings),
    }
}

fn inputs<'a>(observed: &'a Observed, settings: &'a Settings) -> Inputs<'a> {
    Inputs { mlflow: &observed.mlflow.object, settings, apis: observed.apis, bundles: &observed.bundles }
}

/// What users learn of a write that the API server rejected.
pub(super) fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
    // What passes by itself is no news: a server that runs is not unavailable because of a timeout. Some malformed
    // applies are answered by 500.
    let is_rejected = error
        .status()
        .is_some_and(|status| status.code >= 400 && !matches!(status.code, 409 | 429 | 503 | 504));
    let Some((kind, named)) = action.kind().zip(objects::named(action)).filter(|_| is_rejected) else {
        return OnError::default();
    };
    let settings = effective_settings(observed);
    let mut draft = Draft::new(observed);
    draft.set_address(&settings);
    let cause = error.cause();
    // As upstream: only of what it renders as a chart, the message says what it is.
    let named = match action {
        Action::Apply { .. } | Action::Create { accept_existing: true, .. } => {
            format!("apply {named}: {cause}")
        }
        _ => cause.clone(),
    };
    match (&*kind.kind, migration::decide(observed, &settings)) {
        ("ConsoleLink", _) => {
            let message = format!("Failed to reconcile ConsoleLink: {cause}");
            draft.set(AVAILABLE, Some(false), reasons::CONSOLE_LINK_FAILED, &message);
        }
        ("HTTPRoute", _) => {
            draft.set_url(None);
            let message = format!("Failed to reconcile HttpRoute: {cause}");
            draft.set(AVAILABLE, Some(false), reasons::HTTP_ROUTE_FAILED, &message);
        }
        (_, Some(_)) => {
            let message = format!("Failed to reconcile migration: {named}");
            draft.migrating(false, reasons::MIGRATION_ERROR, &message);
        }
        (_, None) => {
            let message = format!("Failed to apply resources: {named}");
            draft.unavailable(false, reasons::APPLY_FAILED, &message);
        }
    }
    OnError { status: draft.patch(), ..OnError::default() }
}
