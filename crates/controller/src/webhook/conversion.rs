//! Conversion between the versions of a custom resource.

use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Review {
    request: Request,
}

#[derive(Deserialize)]
struct Request {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    #[serde(default)]
    objects: Vec<Value>,
}

/// Answers a review with what `convert` makes of each object. The server wants all or nothing.
pub(super) fn answer(
    body: &[u8],
    convert: impl Fn(Value, &str) -> Result<Value, String>,
) -> Result<Value, String> {
    let Request { uid, desired_api_version, objects } = serde_json::from_slice::<Review>(body)
        .map_err(|error| format!("the body is no ConversionReview: {error}"))?
        .request;
    let convert = |object: Value| {
        let is_there = object["apiVersion"] == *desired_api_version;
        if is_there { Ok(object) } else { convert(object, &desired_api_version) }
    };
    let converted: Result<Vec<_>, _> = objects.into_iter().map(convert).collect();
    let response = match converted {
        Ok(objects) => json!({ "uid": uid, "result": { "status": "Success" }, "convertedObjects": objects }),
        Err(message) => json!({ "uid": uid, "result": { "status": "Failure", "message": message } }),
    };
    Ok(json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response }))
}
