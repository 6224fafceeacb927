//! What to do about an AIHub.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::aihub::Catalog;
use quintet_api::owners::{controller_reference, is_controlled_by};
use quintet_api::platform::{
    AIHubStatus, ComponentCondition, ComponentRelease, ConditionStatus, aihub_conditions as conditions,
    aihub_reasons as reasons,
};
use quintet_controller::{Action, ApiKind, Error, OnError, Plan, StatusPatch, Step, finalizers};
use serde_json::json;

use super::Observed;
use crate::names::{AIHUB_FINALIZER, OPERATOR, THE_CATALOG};

/// The severity of a condition that does not count against `Ready`.
const INFO: &str = "Info";

/// Computes the plan for an AIHub. Pure: no clock, no I/O.
pub(super) fn plan(observed: &Observed) -> Plan {
    let hub = &observed.hub;
    if hub.deleting {
        return finalize(observed);
    }
    if let Some(add) = finalizers::add(hub, &hub.object.metadata, AIHUB_FINALIZER) {
        return Plan { steps: vec![Step::from(add)], ..Plan::default() };
    }
    let namespace = &hub.object.spec.instances_namespace;
    let mut plan = Plan::default();
    if !observed.has_namespace {
        // It holds what users have made, and is never deleted.
        let object = json!({ "metadata": { "name": namespace } });
        let step = Step::from(Action::ensure(ApiKind::of::<Namespace>(), &object));
        plan.steps.push(step.sequential());
    }
    if observed.catalog.is_none() {
        let catalog = json!({
            "metadata": {
                "name": THE_CATALOG,
                "namespace": namespace,
                "ownerReferences": controller_reference(&hub.object).map(|owner| vec![owner]),
            },
            "spec": {},
        });
        plan.steps.push(Action::ensure(ApiKind::of::<Catalog>(), &catalog).into());
    }
    Plan { status: status(observed, None), ..plan }
}

/// The Catalog goes first, if it was made for this AIHub.
fn finalize(observed: &Observed) -> Plan {
    let hub = &observed.hub;
    let uid = hub.object.metadata.uid.as_deref().unwrap_or_default();
    let catalog = observed.catalog.as_ref();
    let catalog = catalog.filter(|catalog| is_controlled_by(&catalog.object.metadata, uid));
    if let Some(catalog) = catalog {
        let delete = (!catalog.deleting).then(|| Action::delete(ApiKind::of::<Catalog>(), catalog).into());
        let awaits = vec!["the deletion of the Catalog".to_owned()];
        return Plan { steps: delete.into_iter().collect(), awaits, ..Plan::default() };
    }
    let finalized = finalizers::remove(hub, &hub.object.metadata, AIHUB_FINALIZER);
    Plan { steps: finalized.map(Step::from).into_iter().collect(), ..Plan::default() }
}

/// The status, after everything was applied or `failure` kept it from being so.
fn status(observed: &Observed, failure: Option<&str>) -> Option<StatusPatch> {
    let hub = &observed.hub;
    let before = hub.object.status.clone().unwrap_or_default();
    let release = |name: &str, version: &str| ComponentRelease {
        name: name.to_owned(),
        version: Some(version.to_owned()),
        repo_url: None,
    };
    let platform = observed.platform_version.as_deref().map(|version| release("platform", version));
    let own = release(OPERATOR, env!("CARGO_PKG_VERSION"));
    let found = findings(observed, failure);
    let after = AIHubStatus {
        conditions: Some(found.into_iter().map(|found| since(observed, &before, found)).collect()),
        observed_generation: hub.object.metadata.generation,
        phase: Some(if failure.is_none() { "Ready" } else { "Not Ready" }.to_owned()),
        releases: Some([own].into_iter().chain(platform).collect()),
    };
    StatusPatch::between(hub, &before, &after)
}

fn findings(observed: &Observed, failure: Option<&str>) -> Vec<ComponentCondition> {
    let condition =
        |type_: &str, status: ConditionStatus, reason: &str, message: Option<&str>| ComponentCondition {
            type_: type_.to_owned(),
            status,
            reason: Some(reason.to_owned()),
            message: message.map(str::to_owned),
            observed_generation: observed.hub.object.metadata.generation,
            ..ComponentCondition::default()
        };
    let info =
        |condition: ComponentCondition| ComponentCondition { severity: Some(INFO.to_owned()), ..condition };
    let gateway = observed.hub.object.spec.gateway.as_ref();
    let domain = gateway.and_then(|gateway| gateway.domain.as_deref()).filter(|domain| !domain.is_empty());
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    let available = reasons::ALL_DEPLOYMENTS_AVAILABLE;
    let (ready, provisioned) = match failure {
        None => (
            condition(conditions::READY, yes, reasons::ALL_DEPENDENTS_HEALTHY, None),
            condition(conditions::PROVISIONING_SUCCEEDED, yes, reasons::ALL_RESOURCES_APPLIED, None),
        ),
        Some(_) => (
            condition(conditions::READY, no, reasons::DEPLOY_FAILED, failure),
            condition(conditions::PROVISIONING_SUCCEEDED, no, reasons::DEPLOY_FAILED, failure),
        ),
    };
    let degraded = match (failure, domain) {
        (Some(_), _) => condition(conditions::DEGRADED, yes, reasons::PROVISIONING_FAILED, failure),
        (None, None) => {
            let why = "set spec.gateway.domain to reach registries through the Gateway";
            info(condition(conditions::DEGRADED, yes, reasons::GATEWAY_DOMAIN_UNAVAILABLE, Some(why)))
        }
        (None, Some(_)) => info(condition(conditions::DEGRADED, no, reasons::NO_DEGRADATION, None)),
    };
    vec![
        ready,
        provisioned,
        // This process reconciles both.
        condition(conditions::MODEL_REGISTRY_READY, yes, available, None),
        condition(conditions::CATALOG_READY, yes, available, None),
        degraded,
    ]
}

/// The condition with the time at which its status began.
fn since(observed: &Observed, before: &AIHubStatus, found: ComponentCondition) -> ComponentCondition {
    let same = before.conditions.iter().flatten().find(|one| one.type_ == found.type_);
    let since =
        same.filter(|one| one.status == found.status).and_then(|one| one.last_transition_time.clone());
    ComponentCondition { last_transition_time: Some(since.unwrap_or(Time(observed.now))), ..found }
}

/// A write that the API server rejected is reported.
pub(super) fn on_error(observed: &Observed, _: &Action, error: &Error) -> OnError {
    let code = error.status().map_or(0, |status| status.code);
    if !(400..500).contains(&code) || matches!(code, 409 | 429) || observed.hub.deleting {
        return OnError::default();
    }
    OnError { status: status(observed, Some(&error.cause())), ..OnError::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quintet_api::platform::{AIHub, AIHubGateway};
    use quintet_controller::ObjectKey;
    use quintet_controller::cache::Entry;
    use serde_json::Value;

    use super::*;

    fn observed(has_namespace: bool, has_catalog: bool, domain: Option<&str>) -> Observed {
        let mut hub = AIHub::default();
        hub.metadata.name = Some("default-aihub".to_owned());
        hub.metadata.uid = Some("u".to_owned());
        hub.metadata.finalizers = Some(vec![AIHUB_FINALIZER.to_owned()]);
        hub.spec.instances_namespace = "models".to_owned();
        hub.spec.gateway = domain.map(|domain| AIHubGateway { domain: Some(domain.to_owned()) });
        let mut catalog = Catalog::default();
        catalog.metadata.owner_references = controller_reference(&hub).map(|owner| vec![owner]);
        let catalog = Entry::new(ObjectKey::new("models", THE_CATALOG), catalog);
        Observed {
            hub: Arc::new(Entry::new(ObjectKey::cluster("default-aihub"), hub)),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            has_namespace,
            catalog: has_catalog.then(|| Arc::new(catalog)),
            platform_version: Some("2.1.0".to_owned()),
        }
    }

    fn condition(plan: &Plan, type_: &str) -> Value {
        let status = &plan.status.as_ref().unwrap().status;
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().find(|one| one["type"] == type_).unwrap().clone()
    }

    #[test]
    fn namespace_and_catalog_are_made_once() {
        assert_eq!(plan(&observed(false, false, None)).steps.len(), 2);
        assert_eq!(plan(&observed(true, false, None)).steps.len(), 1);
        assert!(plan(&observed(true, true, None)).steps.is_empty());
    }

    #[test]
    fn a_missing_domain_is_no_obstacle() {
        let missing = plan(&observed(true, true, None));
        assert_eq!(condition(&missing, "Degraded")["reason"], "GatewayDomainUnavailable");
        assert_eq!(condition(&missing, "Degraded")["severity"], "Info");
        assert_eq!(condition(&missing, "Ready")["status"], "True");
        let present = plan(&observed(true, true, Some("gw.example.com")));
        assert_eq!(condition(&present, "Degraded")["reason"], "NoDegradation");
        let releases = &present.status.as_ref().unwrap().status["releases"];
        assert_eq!(releases[1]["version"], "2.1.0");
    }

    #[test]
    fn the_catalog_goes_before_the_hub() {
        let deleting = |has_catalog| {
            let mut observed = observed(true, has_catalog, None);
            let hub = Arc::get_mut(&mut observed.hub).unwrap();
            hub.deleting = true;
            observed
        };
        let waiting = plan(&deleting(true));
        assert!(matches!(waiting.steps[0].action, Action::Delete { .. }));
        let done = plan(&deleting(false));
        assert!(matches!(done.steps[0].action, Action::Patch { .. }));
    }
}
