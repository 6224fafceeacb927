//! Admission policies: which of them a request concerns, with which parameters, and what their refusals mean.

use std::sync::Arc;

use parking_lot::RwLock;
use quintet_objects::{
    Path,
    cel::policy::{Policy, Refusal, Request},
};
use serde_json::{Map, Value};

use super::{
    Operation, conditions,
    matching::{in_version_of, matching_resource},
};
use crate::{
    api::Api,
    json::{text, texts},
    model,
    resources::Resource,
    status::{Failure, Named},
    store::{key_of, split_key},
    verbs::{RequestContext, filter::selects},
};

/// What policies do: refuse requests, or change their objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Validate,
    Mutate,
}

impl Action {
    /// Where policies and their bindings are kept.
    const fn buckets(self) -> (&'static str, &'static str) {
        match self {
            Self::Validate => (
                "admissionregistration.k8s.io/validatingadmissionpolicies",
                "admissionregistration.k8s.io/validatingadmissionpolicybindings",
            ),
            Self::Mutate => (
                "admissionregistration.k8s.io/mutatingadmissionpolicies",
                "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
            ),
        }
    }
}

/// The policies that are bound, compiled.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    validating: RwLock<Known>,
    mutating: RwLock<Known>,
}

/// The versions of policies and bindings, and what they were then.
type Known = ((u64, u64), Arc<[Bound]>);

/// A policy with one of its bindings.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) policy: Arc<Policy>,
    pub(super) name: String,
    pub(super) binding: Value,
    /// Whether it is reinvoked for objects that others changed after it.
    pub(super) is_reinvoked: bool,
    constraints: Value,
    param_kind: Option<(String, String)>,
    binding_constraints: Option<Value>,
}

impl Policies {
    /// Whether any policy may change objects.
    pub(super) fn has_mutating(&self, api: &Api) -> bool {
        !self.bound(api, Action::Mutate).is_empty()
    }

    pub(super) fn bound(&self, api: &Api, action: Action) -> Arc<[Bound]> {
        let (policies, bindings) = action.buckets();
        let versions = (api.store().bucket_version(policies), api.store().bucket_version(bindings));
        let cached = match action {
            Action::Validate => &self.validating,
            Action::Mutate => &self.mutating,
        };
        {
            let known = cached.read();
            if known.0 == versions {
                return Arc::clone(&known.1);
            }
        }
        let listed = |bucket: &str| -> Vec<Value> {
            api.store().objects(bucket, "").iter().map(|(_, entry)| entry.parse()).collect()
        };
        let bindings = listed(bindings);
        let policies = listed(policies);
        let bound: Arc<[Bound]> = policies.iter().flat_map(|policy| bind(policy, &bindings)).collect();
        *cached.write() = (versions, Arc::clone(&bound));
        bound
    }
}

fn bind(policy: &Value, bindings: &[Value]) -> Vec<Bound> {
    let name = text(policy, "/metadata/name");
    let spec = policy.get("spec").cloned().unwrap_or_default();
    let compiled = match Policy::parse(&spec, &Path::new("spec")) {
        Ok(policy) => Arc::new(policy),
        Err(errors) => {
            // Policies are checked when they are written; this one was written by an older version.
            let why = errors.first().map(ToString::to_string).unwrap_or_default();
            tracing::warn!("{} {name} is not used: {why}", text(policy, "/kind"));
            return Vec::new();
        }
    };
    let param_kind = spec
        .get("paramKind")
        .map(|kind| (text(kind, "/apiVersion").to_owned(), text(kind, "/kind").to_owned()));
    let bindings = bindings.iter().filter(|binding| text(binding, "/spec/policyName") == name);
    bindings
        .map(|binding| Bound {
            policy: Arc::clone(&compiled),
            name: name.to_owned(),
            is_reinvoked: text(&spec, "/reinvocationPolicy") == "IfNeeded",
            constraints: constraints(spec.get("matchConstraints")).unwrap_or_default(),
            param_kind: param_kind.clone(),
            binding: binding.clone(),
            binding_constraints: constraints(binding.pointer("/spec/matchResources")),
        })
        .collect()
}

/// Constraints of a policy in the words of those of a webhook.
fn constraints(given: Option<&Value>) -> Option<Value> {
    let mut constraints: Map<String, Value> = given?.as_object()?.clone();
    if let Some(rules) = constraints.remove("resourceRules") {
        constraints.insert("rules".into(), rules);
    }
    Some(Value::Object(constraints))
}

impl Bound {
    /// The resource as which the policy sees a request; `None` if it is not about it.
    pub(super) fn concerns(
        &self,
        context: &RequestContext,
        operation: Operation<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Option<Arc<Resource>> {
        let is_bound = self.binding_constraints.as_ref().is_none_or(|constraints| {
            // A binding narrows; without rules of its own it is about all that the policy is about.
            let mut constraints = constraints.clone();
            if constraints.get("rules").is_none()
                && let (Some(map), Some(rules)) = (constraints.as_object_mut(), self.constraints.get("rules"))
            {
                map.insert("rules".into(), rules.clone());
            }
            matching_resource(context, &constraints, operation, object, old).is_some()
        });
        matching_resource(context, &self.constraints, operation, object, old).filter(|_| is_bound)
    }

    /// What the binding configures the policy with: nothing, or each of some objects.
    pub(super) async fn params(&self, context: &RequestContext) -> Result<Vec<Value>, String> {
        let reference = self.binding.pointer("/spec/paramRef");
        let (Some((api_version, kind)), Some(reference)) = (&self.param_kind, reference) else {
            return Ok(vec![Value::Null]);
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let registry = context.api.registry();
        let resource = registry.by_kind(group, version, kind).ok_or_else(|| {
            format!("failed to configure policy: failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'")
        })?;
        let found = self.find(context, resource, reference).await?;
        if found.is_empty() && text(reference, "/parameterNotFoundAction") != "Allow" {
            return Err("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction".into());
        }
        Ok(found)
    }

    async fn find(
        &self,
        context: &RequestContext,
        resource: &Resource,
        reference: &Value,
    ) -> Result<Vec<Value>, String> {
        let namespace = match text(reference, "/namespace") {
            _ if !resource.is_namespaced => "",
            "" if context.namespace.is_empty() => {
                return Err("failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into());
            }
            "" => &context.namespace,
            own => own,
        };
        let store = context.api.store();
        let entries = match text(reference, "/name") {
            "" => {
                let selector = model::label_selector(reference.get("selector"));
                let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
                let mut entries = store.objects(&resource.bucket, &prefix);
                entries.retain(|(key, entry)| {
                    split_key(key).0 == namespace
                        && selector.as_ref().is_some_and(|selector| selects(selector, &entry.head))
                });
                entries.into_iter().map(|(_, entry)| entry).collect()
            }
            name => store.get(&resource.bucket, &key_of(namespace, name)).into_iter().collect::<Vec<_>>(),
        };
        let mut params = Vec::new();
        for entry in entries {
            params.push(context.api.load(resource, &entry).await.map_err(|failure| failure.to_string())?);
        }
        Ok(params)
    }

    /// Does what the binding says about a refusal.
    fn act(&self, context: &RequestContext, name: &str, refusal: &Refusal) -> Result<(), Failure> {
        let (policy, binding) = (&self.name, text(&self.binding, "/metadata/name"));
        let Refusal { message, reason } = refusal;
        let acts = |wanted: &str| texts(&self.binding, "/spec/validationActions").any(|one| one == wanted);
        if acts("Warn") {
            context.warn(format!("Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"));
        }
        if acts("Audit") {
            tracing::info!(
                policy,
                binding,
                resource = &*context.resource.plural,
                name,
                "policy violated: {message}"
            );
        }
        if !acts("Deny") {
            return Ok(());
        }
        let code = match reason.as_str() {
            "Unauthorized" => 401,
            "Forbidden" => 403,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        let why = format!(
            "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
        );
        let named = Named { name, ..context.named() };
        Err(Failure::forbidden(named, &why).with_code(code, reason).with_cause("", message, ""))
    }
}

/// The namespace of a request as policies see it.
pub(super) fn namespace(context: &RequestContext) -> Value {
    let namespace = context.api.store().get("core/namespaces", &context.namespace);
    namespace.map_or(Value::Null, |entry| entry.to_value("v1", "Namespace"))
}

/// Lets policies refuse a request.
pub(super) async fn validate(
    context: &RequestContext,
    operation: Operation<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let bound = context.api.policies().bound(&context.api, Action::Validate);
    let concerning: Vec<(&Bound, Arc<Resource>)> =
        bound.iter().filter_map(|one| Some((one, one.concerns(context, operation, object, old)?))).collect();
    if concerning.is_empty() {
        return Ok(());
    }
    let namespace = namespace(context);
    for (one, seen) in concerning {
        let shown = [in_version_of(context, &seen, object).await?, in_version_of(context, &seen, old).await?];
        let request = conditions::request(context, &seen, operation, &shown);
        let name = text(&request, "/name");
        let params = match one.params(context).await {
            Ok(params) => params,
            Err(message) => {
                if one.policy.is_strict() {
                    one.act(context, name, &Refusal { message, reason: "Invalid".into() })?;
                }
                continue;
            }
        };
        for params in &params {
            let refusals = one.policy.refusals(Request {
                object: &shown[0],
                old_object: &shown[1],
                request: &request,
                params,
                namespace: &namespace,
            });
            refusals.iter().try_for_each(|refusal| one.act(context, name, refusal))?;
        }
    }
    Ok(())
}
