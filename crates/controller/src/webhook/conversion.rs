//! Conversion between the versions of a custom resource.

use serde::Deserialize;
use serde_json::{Value, json};

use super::HandlerError;

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

/// Responds to a ConversionReview with what `convert` makes of each object. API servers want all objects or an
/// error.
pub(super) fn respond(
    review: Value,
    convert: impl Fn(Value, &str) -> Result<Value, String>,
) -> Result<Value, HandlerError> {
    let Request { uid, desired_api_version, objects } = serde_json::from_value::<Review>(review)
        .map_err(|error| HandlerError::BadRequest(format!("cannot decode the ConversionReview: {error}")))?
        .request;
    let convert = |object: Value| {
        let is_converted = object["apiVersion"] == *desired_api_version;
        if is_converted { Ok(object) } else { convert(object, &desired_api_version) }
    };
    let converted: Result<Vec<_>, _> = objects.into_iter().map(convert).collect();
    let response = match converted {
        Ok(objects) => json!({ "uid": uid, "result": { "status": "Success" }, "convertedObjects": objects }),
        Err(message) => json!({ "uid": uid, "result": { "status": "Failure", "message": message } }),
    };
    Ok(json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response }))
}
