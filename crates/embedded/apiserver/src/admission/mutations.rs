//! MutatingAdmissionPolicies: expressions that change objects on their way in.

use std::sync::Arc;

use quintet_objects::cel::policy::{Patch, Request};
use serde_json::Value;

use super::{
    Operation, conditions,
    matching::{accept_changed, in_version_of},
    policies::{self, Action, Bound},
};
use crate::{
    json::text,
    model,
    resources::Resource,
    status::{Failure, Named},
    verbs::RequestContext,
};

/// Which policies are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    First,
    /// Others changed the object meanwhile: those with `reinvocationPolicy: IfNeeded`.
    Again,
}

/// Lets policies change an object.
pub(super) async fn mutate(
    context: &RequestContext,
    operation: Operation<'_>,
    object: &mut Value,
    old: Option<&Value>,
    round: Round,
) -> Result<(), Failure> {
    let bound = context.api.policies().bound(&context.api, Action::Mutate);
    for one in bound.iter().filter(|one| round == Round::First || one.is_reinvoked) {
        let Some(seen) = one.concerns(context, operation, Some(object), old) else { continue };
        if let Err(refusal) = one.change(context, &seen, operation, object, old).await?
            && one.policy.is_strict()
        {
            return Err(one.refuse(context, text(object, "/metadata/name"), &refusal));
        }
    }
    Ok(())
}

/// Why a policy could not be carried out, and the reason if there is one.
struct Refusal {
    message: String,
    reason: Option<String>,
}

impl Refusal {
    fn invalid(message: String) -> Self {
        Self { message, reason: Some("Invalid".to_owned()) }
    }
}

impl Bound {
    /// Carries out all changes of a policy, or none.
    async fn change(
        &self,
        context: &RequestContext,
        seen: &Arc<Resource>,
        operation: Operation<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Result<(), Refusal>, Failure> {
        let params = match self.params(context).await {
            Ok(params) => params,
            Err(message) => return Ok(Err(Refusal { message, reason: None })),
        };
        let old = in_version_of(context, seen, old).await?;
        let mut shown = [in_version_of(context, seen, Some(object)).await?, old];
        let before = shown[0].clone();
        let namespace = policies::namespace(context);
        for params in &params {
            for index in 0..self.policy.mutations() {
                let request = conditions::request(context, seen, operation, &shown);
                let asked = Request {
                    object: &shown[0],
                    old_object: &shown[1],
                    request: &request,
                    params,
                    namespace: &namespace,
                };
                let is_first = index == 0;
                match if is_first { self.policy.is_about(asked) } else { Ok(true) } {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(mut problems) => {
                        let why = problems.pop().map_or_else(String::new, |problem| problem.message);
                        return Ok(Err(Refusal::invalid(why)));
                    }
                }
                let patched =
                    self.policy.patch(index, asked).and_then(|patch| patched(seen, &shown[0], patch));
                match patched {
                    Ok(changed) => shown[0] = changed,
                    Err(why) => return Ok(Err(Refusal::invalid(why))),
                }
            }
        }
        if shown[0] != before {
            let [changed, _] = shown;
            match accept_changed(context, seen, changed).await {
                Ok(accepted) => *object = accepted,
                Err(why) => return Ok(Err(Refusal::invalid(why))),
            }
        }
        Ok(Ok(()))
    }

    fn refuse(&self, context: &RequestContext, name: &str, refusal: &Refusal) -> Failure {
        let binding = text(&self.binding, "/metadata/name");
        let message =
            format!("policy '{}' with binding '{binding}' denied request: {}", self.name, refusal.message);
        let named = Named { name, ..context.named() };
        let reason = refusal.reason.as_deref().unwrap_or("Forbidden");
        let failure = Failure::forbidden(named, "").with_code(403, reason);
        failure.with_cause("", &message, "").with_message(message)
    }
}

/// An object with a patch carried out.
fn patched(seen: &Resource, object: &Value, patch: Option<Patch>) -> Result<Value, String> {
    match patch {
        None => Ok(object.clone()),
        Some(Patch::Apply(config)) => model::merge_configuration(seen, object, &config)
            .map_err(|why| format!("error applying patch: invalid ApplyConfiguration: {why}")),
        Some(Patch::Json(patch)) => {
            let mut changed = object.clone();
            model::json_patch(&mut changed, &patch)
                .map_err(|failure| format!("error applying patch: {}", failure.message()))?;
            Ok(changed)
        }
    }
}
