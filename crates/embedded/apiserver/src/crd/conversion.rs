//! Conversion of custom resources between versions.

use std::time::Duration;

use serde_json::{Value, json};

use super::CustomVersion;
use crate::{
    api::Api,
    json::{self, text},
    status::Failure,
};

const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Converts an object to another version of its kind.
pub(crate) async fn convert(
    api: &Api,
    custom: &CustomVersion,
    object: Value,
    wanted: &str,
) -> Result<Value, Failure> {
    let converted = convert_all(api, custom, vec![object], wanted).await?.pop();
    converted.ok_or_else(|| Failure::internal("a converted object is missing"))
}

/// Converts objects of a kind to another of its versions. A webhook gets all of them in one request.
pub(crate) async fn convert_all(
    api: &Api,
    custom: &CustomVersion,
    mut objects: Vec<Value>,
    wanted: &str,
) -> Result<Vec<Value>, Failure> {
    let is_by_webhook = text(&custom.conversion, "/strategy") == "Webhook";
    let mut for_webhook = Vec::new();
    for object in objects.iter_mut().filter(|object| text(object, "/apiVersion") != wanted) {
        if !is_by_webhook {
            json::as_map(object).insert("apiVersion".into(), wanted.into());
        } else if let Some(outcome) = api.converter().and_then(|convert| convert(object, wanted)) {
            let converted = outcome.map_err(|why| failed(object, wanted, &why))?;
            *object = with_identity_of(object, converted);
        } else {
            for_webhook.push(object);
        }
    }
    if let Some(first) = for_webhook.first() {
        let request: Vec<&Value> = for_webhook.iter().map(|object| &**object).collect();
        let response = call_webhook(api, custom, &request, wanted).await;
        let converted = response.map_err(|why| failed(first, wanted, &why))?;
        for (object, converted) in for_webhook.into_iter().zip(converted) {
            *object = with_identity_of(object, converted);
        }
    }
    Ok(objects)
}

fn failed(object: &Value, wanted: &str, why: &str) -> Failure {
    let (group, version) = wanted.split_once('/').unwrap_or(("", wanted));
    let kind = text(object, "/kind");
    Failure::untyped(format!("conversion webhook for {group}/{version}, Kind={kind} failed: {why}"))
}

/// The objects as the webhook converts them, in the same order.
async fn call_webhook(
    api: &Api,
    custom: &CustomVersion,
    objects: &[&Value],
    wanted: &str,
) -> Result<Vec<Value>, String> {
    let uid = api.rng().uuid();
    let review = json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects},
    });
    let client_config = custom.conversion.pointer("/webhook/clientConfig").cloned().unwrap_or_default();
    let mut answer = api.webhooks().call(api, &client_config, &review, WEBHOOK_TIMEOUT).await?;
    if text(&answer, "/response/uid") != uid {
        return Err("the uid of the response is not that of the request".into());
    }
    if text(&answer, "/response/result/status") != "Success" {
        return Err(text(&answer, "/response/result/message").to_owned());
    }
    match answer.pointer_mut("/response/convertedObjects").map(Value::take) {
        Some(Value::Array(converted))
            if converted.len() == objects.len()
                && converted.iter().all(|one| text(one, "/apiVersion") == wanted) =>
        {
            Ok(converted)
        }
        _ => Err("it did not return every object in the version asked for".into()),
    }
}

/// A converted object with the metadata of the original, except labels and annotations: identity is not for webhooks to
/// change.
fn with_identity_of(original: &Value, mut converted: Value) -> Value {
    let before = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    let after = json::metadata(&mut converted);
    let (labels, annotations) = (after.get("labels").cloned(), after.get("annotations").cloned());
    *after = before;
    for (key, value) in [("labels", labels), ("annotations", annotations)] {
        match value {
            Some(value) => after.insert(key.into(), value),
            None => after.remove(key),
        };
    }
    converted
}
