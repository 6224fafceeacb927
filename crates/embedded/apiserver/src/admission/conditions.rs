//! Match conditions: CEL expressions that decide whether a webhook is called.

use quintet_objects::cel::Condition;
use serde_json::{Value, json};

use super::Operation;
use crate::{
    json::{items, text},
    resources::Resource,
    status::{Failure, Named},
    verbs::RequestContext,
};

/// A request as expressions see it that are about a version of its resource.
pub(super) fn request(
    context: &RequestContext,
    seen: &Resource,
    operation: Operation<'_>,
    [object, old]: &[Value; 2],
) -> Value {
    let name = match context.name.as_str() {
        "" if object.is_null() => text(old, "/metadata/name"),
        "" => text(object, "/metadata/name"),
        name => name,
    };
    let kind = |of: &Resource| match operation {
        Operation::Connect => json!({"group": "", "version": "v1", "kind": text(object, "/kind")}),
        _ => json!({"group": &*of.group, "version": &*of.version, "kind": &*of.kind}),
    };
    let place =
        |of: &Resource| json!({"group": &*of.group, "version": &*of.version, "resource": &*of.plural});
    json!({
        "kind": kind(seen), "requestKind": kind(&context.resource), "resource": place(seen),
        "requestResource": place(&context.resource),
        "subResource": context.subresource, "requestSubResource": context.subresource, "name": name,
        "namespace": context.namespace, "operation": operation.name(), "userInfo": context.caller.to_value(),
        "dryRun": context.options.is_dry_run, "options": super::webhooks::options(context, operation),
    })
}

/// Whether all conditions of a hook hold. One that is false is enough to skip the hook, whatever the others say.
pub(super) fn hold(
    context: &RequestContext,
    seen: &Resource,
    hook: &Value,
    operation: Operation<'_>,
    shown: &[Value; 2],
) -> Result<bool, Failure> {
    let conditions = items(hook, "/matchConditions");
    if conditions.is_empty() {
        return Ok(true);
    }
    let request = request(context, seen, operation, shown);
    let [object, old] = shown;
    let variables = [("object", object), ("oldObject", old), ("request", &request)];
    let mut problem = None;
    for condition in conditions {
        let (name, expression) = (text(condition, "/name"), text(condition, "/expression"));
        let outcome = match Condition::compile(name, expression) {
            Ok(condition) => condition.holds(&variables),
            Err(error) => Err(format!("expression '{expression}' resulted in error: {error}")),
        };
        match outcome {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => problem = Some(why),
        }
    }
    match problem {
        None => Ok(true),
        Some(_) if text(hook, "/failurePolicy") == "Ignore" => Ok(false),
        Some(why) => {
            let name = text(&request, "/name");
            Err(Failure::forbidden(Named { name, ..context.named() }, &why))
        }
    }
}
