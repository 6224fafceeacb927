//! What to do about the catalog.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::aihub::CatalogStatus;
use quintet_api::conditions::{self, Finding};
use quintet_api::modelregistry::conditions::AVAILABLE;
use quintet_api::modelregistry::reasons;
use quintet_controller::{
    Action, ApiKind, Error, Next, ObjectKey, OnError, Plan, StatusPatch, Step, finalizers,
};
use serde_json::{Value, json};

use super::objects::{self, Inputs, USER_SOURCES};
use super::observe::Observed;
use super::sources;
use crate::availability::{self, Availability, Server};
use crate::credentials::CredentialsRequest;
use crate::kinds;
use crate::managed::delete;
use crate::names::{CATALOG, CATALOG_FINALIZER, REFERENCE_GRANT, SOURCES_KEY};
use crate::pods::ContainerView;

type CatalogPlan = Plan<CredentialsRequest>;
type CatalogStep = Step<CredentialsRequest>;

/// Computes the plan for the catalog. Pure: no clock, no I/O.
pub(super) fn plan(observed: &Observed) -> CatalogPlan {
    let catalog = &observed.catalog;
    if catalog.deleting {
        return finalize(observed);
    }
    if let Some(older) = &observed.older {
        return Plan::awaiting(format!("the deletion of Catalog {older}: a cluster has one catalog"));
    }
    if let Some(add) = finalizers::add(catalog, &catalog.object.metadata, CATALOG_FINALIZER) {
        return Plan { steps: vec![CatalogStep::from(add)], ..Plan::default() };
    }
    let deployment = live(observed, &ApiKind::of::<Deployment>());
    let removed = sources::removed(deployment, &observed.labelled_sources);
    let inputs = Inputs {
        home: observed.home(),
        spec: &catalog.object.spec,
        settings: &observed.settings,
        apis: observed.apis,
        domain: &observed.domain,
        labelled_sources: &observed.labelled_sources,
        removed_sources: &removed,
        admin_groups: &observed.admin_groups,
    };
    let mut plan = CatalogPlan::default();
    plan.steps.extend(user_sources(observed));
    if observed.lacks_credentials {
        plan.steps.push(Action::Call(objects::credentials(&inputs.home, inputs.settings)).into());
    }
    for desired in objects::objects(&inputs) {
        plan.steps.extend(desired.step(&observed.live).map(|(action, _)| action.into()));
    }
    let found = availability(observed);
    plan.next = found.next.map_or(Next::AwaitChange, Next::After);
    if !found.holds {
        plan.awaits.push(found.message.clone());
    }
    Plan { status: status(observed, &found), ..plan }
}

/// The cached object of this kind that is named after the catalog.
fn live<'a>(observed: &'a Observed, kind: &ApiKind) -> &'a Value {
    let key = ObjectKey::new(observed.namespace(), CATALOG);
    observed.live.get(kind, &key).map_or(&Value::Null, |entry| &entry.object)
}

/// Makes ConfigMaps for users, and removes from theirs what former versions put there.
fn user_sources(observed: &Observed) -> Vec<CatalogStep> {
    let mut steps = Vec::new();
    for ((name, text), entry) in USER_SOURCES.iter().zip(&observed.user_sources) {
        match entry {
            None => {
                let desired = objects::user_sources(observed.namespace(), name, text);
                steps.extend(desired.step(&observed.live).map(|(action, _)| action.into()));
            }
            Some(entry) if !entry.deleting => {
                let text = entry.object.text().unwrap_or_default();
                let stripped = sources::without_former_default(text);
                steps.extend(stripped.map(|stripped| {
                    let patch = json!({ "data": { SOURCES_KEY: stripped } });
                    Action::merge_exactly(ApiKind::of::<ConfigMap>(), entry, patch).into()
                }));
            }
            Some(_) => {}
        }
    }
    steps
}

fn availability(observed: &Observed) -> Availability {
    let endpoints = live(observed, &ApiKind::of::<Endpoints>());
    let server = Server {
        name: CATALOG,
        deployment: live(observed, &ApiKind::of::<Deployment>()),
        endpoints: Some(endpoints).filter(|endpoints| !endpoints.is_null()),
        now: observed.now,
    };
    availability::of(&server, |_| {
        let trouble = |container: &ContainerView| {
            container.trouble().map(|why| format!("container {} waiting: {}", container.name, why.message))
        };
        let mut containers = observed.pods.iter().flat_map(|pod| &pod.object.statuses);
        let message = containers.find_map(trouble)?;
        Some(Availability::no(reasons::CONFIGURATION_ERROR, message))
    })
}

fn status(observed: &Observed, found: &Availability) -> Option<StatusPatch> {
    let before = observed.status();
    let mut status =
        CatalogStatus { observed_generation: observed.catalog.object.metadata.generation, ..before.clone() };
    let finding = Finding {
        type_: AVAILABLE,
        holds: Some(found.holds),
        reason: found.reason,
        message: &found.message,
        observed_generation: None,
    };
    conditions::set(status.conditions.get_or_insert_default(), &finding, &Time(observed.now));
    StatusPatch::between(&observed.catalog, &before, &status)
}

/// Deletes what has no owner. Unlike upstream's, the ReferenceGrant goes, too, if nobody else needs it.
fn finalize(observed: &Observed) -> CatalogPlan {
    let catalog = &observed.catalog;
    let metadata = &catalog.object.metadata;
    let Some(finalized) = finalizers::remove(catalog, metadata, CATALOG_FINALIZER) else {
        return Plan::nothing();
    };
    let mut unowned = objects::unowned(observed.namespace(), &observed.settings);
    if observed.is_alone_in_namespace {
        let grant = ObjectKey::new(observed.namespace(), REFERENCE_GRANT);
        unowned.push((kinds::reference_grant(), grant));
    }
    let mut plan = CatalogPlan::default();
    for (kind, key) in unowned {
        let entry = observed.live.get(&kind, &key).filter(|entry| !entry.deleting);
        plan.steps.extend(entry.map(|entry| delete(&kind, entry).into()));
    }
    plan.steps.push(CatalogStep::from(finalized).sequential());
    plan
}

/// What users learn of a write that the API server rejected.
pub(super) fn on_error(observed: &Observed, _: &Action<CredentialsRequest>, error: &Error) -> OnError {
    let code = error.status().map_or(0, |status| status.code);
    if !(400..500).contains(&code) || matches!(code, 409 | 429) || observed.catalog.deleting {
        return OnError::default();
    }
    let message = format!("unexpected reconcile error: {}", error.cause());
    let found = Availability::no(reasons::DEPLOYMENT_UNAVAILABLE, message);
    OnError { status: status(observed, &found), ..OnError::default() }
}
