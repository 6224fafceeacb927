//! Match conditions of webhooks: expressions that decide whether a hook is asked at all.

use quintet_objects::cel::Condition;
use serde_json::{Value, json};

use super::Operation;
use crate::{
    json::{items, text},
    status::{Failure, Named},
    verbs::Ask,
};

/// A request as expressions see it.
pub(super) fn request(ask: &Ask, operation: Operation<'_>, object: Option<&Value>) -> Value {
    let resource = &ask.resource;
    let name = match (ask.name.as_str(), object) {
        ("", Some(object)) => text(object, "/metadata/name"),
        (name, _) => name,
    };
    let kind = json!({"group": &*resource.group, "version": &*resource.version, "kind": &*resource.kind});
    let place =
        json!({"group": &*resource.group, "version": &*resource.version, "resource": &*resource.plural});
    json!({
        "kind": kind, "requestKind": kind, "resource": place, "requestResource": place,
        "subResource": ask.subresource, "requestSubResource": ask.subresource, "name": name,
        "namespace": ask.namespace, "operation": operation.name(), "userInfo": ask.caller.to_value(),
        "dryRun": ask.options.is_dry_run, "options": super::webhooks::options(ask, operation),
    })
}

/// Whether all conditions of a hook hold. One that is false is enough to skip the hook, whatever the others say.
pub(super) fn hold(
    ask: &Ask,
    hook: &Value,
    operation: Operation<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<bool, Failure> {
    let conditions = items(hook, "/matchConditions");
    if conditions.is_empty() {
        return Ok(true);
    }
    let request = request(ask, operation, object.or(old));
    let variables = [
        ("object", object.unwrap_or(&Value::Null)),
        ("oldObject", old.unwrap_or(&Value::Null)),
        ("request", &request),
    ];
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
            let name = object.or(old).map(|object| text(object, "/metadata/name")).unwrap_or_default();
            Err(Failure::forbidden(Named { name, ..ask.named() }, &why))
        }
    }
}
