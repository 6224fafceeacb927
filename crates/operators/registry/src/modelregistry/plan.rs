//! What to do about a registry.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use quintet_api::modelregistry::v1beta1::{ModelRegistry, ModelRegistrySpec};
use quintet_api::modelregistry::{messages, reasons};
use quintet_controller::plan::Event;
use quintet_controller::{Action, ApiKind, Error, Next, ObjectKey, OnError, Plan, Step, finalizers};
use serde_json::{Value, json};

use super::defaulting::{forget_default_image, replace_oauth_proxy, set_defaults};
use super::effective::{filled_in, with_defaults, with_generated_database};
use super::objects::{self, Inputs};
use super::observe::Observed;
use super::status::Draft;
use super::validation;
use crate::credentials::CredentialsRequest;
use crate::kinds;
use crate::managed::{Change, controller_name, delete};
use crate::names::{REFERENCE_GRANT, REGISTRY_FINALIZER, RegistryNames, auth_delegator};
use crate::settings::Settings;

type RegistryPlan = Plan<CredentialsRequest>;
type RegistryStep = Step<CredentialsRequest>;

/// The spec of a registry in three stages.
pub(super) struct Specs {
    /// As users have written it.
    pub(super) stored: ModelRegistrySpec,
    /// With what the operator fills in.
    pub(super) filled: ModelRegistrySpec,
    /// With the connection to a database that the operator runs.
    pub(super) connected: ModelRegistrySpec,
}

impl Specs {
    fn of(observed: &Observed, spec: &ModelRegistrySpec) -> Self {
        let stored = observed.registry.object.spec.clone();
        Self::new(observed.name(), stored, spec, &observed.settings, &observed.domain)
    }

    /// The stages that follow from `admitted`, the spec as it counts.
    pub(super) fn new(
        name: &str,
        stored: ModelRegistrySpec,
        admitted: &ModelRegistrySpec,
        settings: &Settings,
        domain: &str,
    ) -> Self {
        let filled = with_defaults(name, admitted, settings, domain);
        let connected = with_generated_database(name, &filled);
        Self { stored, filled, connected }
    }

    /// What the operator fills in, for the status.
    pub(super) fn filled_in(&self) -> String {
        filled_in(&self.stored, &self.connected)
    }

    pub(super) fn inputs<'a>(&'a self, observed: &'a Observed) -> Inputs<'a> {
        Inputs {
            name: observed.name(),
            home: observed.home(),
            annotations: observed.registry.object.metadata.annotations.as_ref(),
            stored: &self.stored,
            spec: &self.filled,
            connected: &self.connected,
            settings: &observed.settings,
            apis: observed.apis,
        }
    }
}

/// Computes the plan for a registry. Pure: no clock, no I/O.
pub(super) fn plan(observed: &Observed) -> RegistryPlan {
    let registry = &observed.registry;
    if registry.deleting {
        return finalize(observed);
    }
    let metadata = &registry.object.metadata;
    if let Some(add) = finalizers::add(registry, metadata, REGISTRY_FINALIZER) {
        return Plan { steps: vec![RegistryStep::from(add)], ..Plan::default() };
    }
    if let Some(migrate) = migrate_proxy(observed) {
        return Plan { steps: vec![migrate.into()], ..Plan::default() };
    }
    let spec = match admitted_spec(observed) {
        Ok(spec) => spec,
        Err(why) => return Plan::awaiting(why),
    };
    let specs = Specs::of(observed, &spec);
    let inputs = specs.inputs(observed);
    let mut plan = RegistryPlan::default();
    if observed.lacks_credentials {
        let request = objects::credentials(inputs.name, &inputs.home);
        plan.steps.push(Action::Call(request).into());
    }
    for desired in objects::database(&inputs) {
        plan.steps.extend(desired.step(&observed.live).map(|(action, _)| action.into()));
    }
    let mut last_change = None;
    for desired in objects::objects(&inputs) {
        let Some((action, change)) = desired.step(&observed.live) else { continue };
        plan.steps.push(action.into());
        last_change = Some(change).filter(|change| *change != Change::Deleted).or(last_change);
    }
    plan.steps.extend(remove_legacy(observed));
    plan.events.extend(last_change.map(|change| event(observed, change)));
    let mut draft = Draft::new(observed, &specs);
    draft.set_addresses();
    draft.set_progress(last_change);
    if let Some(wait) = draft.set_availability(&mut plan.awaits) {
        plan.next = Next::After(wait);
    }
    plan.steps.extend(forget_defaults(observed, &specs));
    Plan { status: draft.patch(), ..plan }
}

fn event(observed: &Observed, change: Change) -> Event {
    let (name, namespace) = (observed.name(), observed.namespace());
    let (reason, note) = if change == Change::Created {
        (reasons::SERVICE_CREATED, messages::created(name, namespace))
    } else {
        (reasons::SERVICE_UPDATED, messages::updated(name, namespace))
    };
    Event::normal(reason, reason, note)
}

/// The former proxy becomes the current one, and OpenShift has one by default. Webhooks do the same for new registries.
fn migrate_proxy(observed: &Observed) -> Option<Action<CredentialsRequest>> {
    let current = &observed.registry.object;
    let has_former = current.spec.oauth_proxy.is_some();
    let needs_one = observed.apis.routes && current.spec.kube_rbac_proxy.is_none();
    if !has_former && !needs_one {
        return None;
    }
    let mut spec = json!(current.spec);
    replace_oauth_proxy(&mut spec);
    spec["oauthProxy"] = Value::Null;
    if spec["kubeRBACProxy"].is_null() {
        spec["kubeRBACProxy"] = json!({});
    }
    let patch = json!({ "spec": { "oauthProxy": null, "kubeRBACProxy": spec["kubeRBACProxy"] } });
    Some(Action::merge_exactly(ApiKind::of::<ModelRegistry>(), &observed.registry, patch))
}

/// The spec as it counts. Without webhooks, it has to be defaulted and checked here; the error is for users to fix.
fn admitted_spec(observed: &Observed) -> Result<ModelRegistrySpec, String> {
    let stored = &observed.registry.object;
    if observed.settings.webhooks {
        return Ok(stored.spec.clone());
    }
    let mut registry = json!(stored);
    // An image that users have chosen is kept, whatever its repository.
    registry["status"] = json!({ "specDefaults": "kept" });
    set_defaults(&mut registry, &observed.settings, observed.apis.routes);
    if let Some(why) = validation::check(&registry, &observed.settings) {
        return Err(why);
    }
    let spec: ModelRegistrySpec =
        serde_json::from_value(registry["spec"].take()).map_err(|error| error.to_string())?;
    // It has no effect, and what has none is not reported as filled in.
    Ok(ModelRegistrySpec { grpc: stored.spec.grpc.clone(), ..spec })
}

/// As upstream, a spec that says everything loses an image of the default repository.
fn forget_defaults(observed: &Observed, specs: &Specs) -> Option<RegistryStep> {
    if !observed.settings.webhooks || specs.filled_in() != "{}" {
        return None;
    }
    let mut spec = json!(specs.stored);
    forget_default_image(&mut spec, &observed.settings).then(|| {
        let patch = json!({ "spec": { "rest": { "image": null, "resources": null } } });
        let kind = ApiKind::of::<ModelRegistry>();
        Action::merge_exactly(kind, &observed.registry, patch).into()
    })
}

/// Registries of old versions had a catalog of their own.
fn remove_legacy(observed: &Observed) -> Vec<RegistryStep> {
    let legacy = objects::legacy(observed.namespace(), observed.name());
    let found = legacy.into_iter().filter_map(|(kind, key)| {
        let entry = observed.live.get(&kind, &key)?;
        let is_ours = controller_name(&entry.object, "ModelRegistry") == Some(observed.name());
        (is_ours && !entry.deleting).then(|| delete(&kind, entry).into())
    });
    found.collect()
}

/// Deletes what has no owner. Unlike upstream's, the ClusterRoleBinding and the ReferenceGrant do not stay behind, and a
/// cluster without the Gateway API is no obstacle.
fn finalize(observed: &Observed) -> RegistryPlan {
    let registry = &observed.registry;
    let Some(finalized) = finalizers::remove(registry, &registry.object.metadata, REGISTRY_FINALIZER) else {
        return Plan::nothing();
    };
    let names = RegistryNames(observed.name());
    let mut unowned = vec![
        (kinds::group(), ObjectKey::cluster(&names.users())),
        (
            kinds::http_route(),
            ObjectKey::new(&observed.settings.http_route_namespace, &names.gateway_route()),
        ),
        (ApiKind::of::<ClusterRoleBinding>(), ObjectKey::cluster(&auth_delegator(observed.name()))),
    ];
    if observed.is_last_in_namespace {
        let key = ObjectKey::new(observed.namespace(), REFERENCE_GRANT);
        unowned.push((kinds::reference_grant(), key));
    }
    let mut plan = RegistryPlan::default();
    for (kind, key) in unowned {
        let entry = observed.live.get(&kind, &key).filter(|entry| !entry.deleting);
        plan.steps.extend(entry.map(|entry| delete(&kind, entry).into()));
    }
    plan.steps.push(RegistryStep::from(finalized).sequential());
    let note = messages::deleting(observed.name(), observed.namespace());
    plan.events.push(Event::warning(reasons::DELETING, reasons::DELETING, note));
    plan
}

/// What users learn of a write that the API server rejected. A Deployment that cannot be changed is made again.
pub(super) fn on_error(observed: &Observed, action: &Action<CredentialsRequest>, error: &Error) -> OnError {
    let code = error.status().map_or(0, |status| status.code);
    // What passes by itself is no news.
    if code < 400 || matches!(code, 409 | 429) || code >= 500 || observed.registry.deleting {
        return OnError::default();
    }
    let specs = Specs::of(observed, &observed.registry.object.spec);
    let mut draft = Draft::new(observed, &specs);
    draft.set_error(&error.cause());
    let is_immutable = matches!(action, Action::Patch { .. })
        && action.kind() == Some(&ApiKind::of::<Deployment>())
        && (code == 403 || (code == 422 && error.cause().contains("field is immutable")));
    let entry = action.kind().zip(action.target()).and_then(|(kind, key)| observed.live.get(kind, &key));
    let instead = entry.filter(|_| is_immutable).map(|entry| delete(&ApiKind::of::<Deployment>(), entry));
    OnError { instead, status: draft.patch(), ..OnError::default() }
}
