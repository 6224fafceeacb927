//! Conversion of custom resources between versions.

use serde_json::{Value, json};

use super::CustomVersion;
use crate::{
    api::Api,
    json::{self, text},
    status::Failure,
};

/// Converts an object to another version of its kind.
pub(crate) async fn convert(
    api: &Api,
    custom: &CustomVersion,
    mut object: Value,
    wanted: &str,
) -> Result<Value, Failure> {
    if text(&object, "/apiVersion") == wanted {
        return Ok(object);
    }
    if text(&custom.conversion, "/strategy") != "Webhook" {
        json::as_map(&mut object).insert("apiVersion".into(), wanted.into());
        return Ok(object);
    }
    let (group, version) = wanted.split_once('/').unwrap_or(("", wanted));
    let failed = |why: &str| {
        let kind = text(&object, "/kind");
        Failure::untyped(format!("conversion webhook for {group}/{version}, Kind={kind} failed: {why}"))
    };
    let mut converted = if let Some(outcome) = api.converter().and_then(|convert| convert(&object, wanted)) {
        outcome.map_err(|why| failed(&why))?
    } else {
        let uid = api.rng().uuid();
        let review = json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": [object]},
        });
        let client_config = custom.conversion.pointer("/webhook/clientConfig").cloned().unwrap_or_default();
        let answer = api
            .webhooks()
            .call(api, &client_config, &review, std::time::Duration::from_secs(30))
            .await
            .map_err(|why| failed(&why))?;
        if text(&answer, "/response/uid") != uid {
            return Err(failed("the uid of the response is not that of the request"));
        }
        if text(&answer, "/response/result/status") != "Success" {
            return Err(failed(text(&answer, "/response/result/message")));
        }
        match json::items(&answer, "/response/convertedObjects") {
            [one] if text(one, "/apiVersion") == wanted => one.clone(),
            _ => return Err(failed("it did not return the object in the version asked for")),
        }
    };
    // Identity is not for webhooks to change.
    let before = object.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    let after = json::metadata(&mut converted);
    let (labels, annotations) = (after.get("labels").cloned(), after.get("annotations").cloned());
    *after = before;
    for (key, value) in [("labels", labels), ("annotations", annotations)] {
        match value {
            Some(value) => after.insert(key.into(), value),
            None => after.remove(key),
        };
    }
    Ok(converted)
}
