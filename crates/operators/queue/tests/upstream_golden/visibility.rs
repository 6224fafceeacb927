//! Responses of the visibility API.

use quintet_golden::{Caller, World, differences};
use serde_json::Value;

use crate::canonical::Names;

/// Sends the recorded requests and compares codes and bodies.
pub(crate) async fn compare(case: &Value, world: &World, names: &Names) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for recorded in case["visibility"].as_array().into_iter().flatten() {
        let path = recorded["request"].as_str().unwrap_or_default();
        let (code, body) = world.read_as(Caller::known("admin", ["system:masters".to_owned()]), path).await?;
        if recorded["code"] != code {
            found.push(format!("{path}: recorded {}, is {code}", recorded["code"]));
        }
        let different = differences(&recorded["answer"], &names.texts(&without_identity(body)));
        found.extend(different.iter().map(|difference| format!("{path}: {difference}")));
    }
    Ok(found)
}

/// A response without what recordings leave out.
fn without_identity(mut body: Value) -> Value {
    for item in body["items"].as_array_mut().into_iter().flatten() {
        let Some(metadata) = item["metadata"].as_object_mut() else { continue };
        metadata.remove("creationTimestamp");
        let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
            owner.remove("uid");
        }
    }
    body
}
