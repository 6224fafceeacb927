//! The way of a request through an API server that has Quintet's CRDs and webhooks.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use quintet_api::conversion::convert;
use quintet_api::crd::{self, WebhookService};
use quintet_objects::error::invalid_status;
use quintet_objects::patch::json_patch;
use quintet_objects::path::Path;
use quintet_objects::schema::Structural;
use quintet_queue::validation::Gates;
use quintet_queue::webhook;
use serde_json::{Value, json};

use crate::compare;

const STORED: &str = "kueue.x-k8s.io/v1beta2";
const LIMIT: Duration = Duration::from_secs(5);

/// Code, reason and message of a refusal.
struct Refusal {
    code: u16,
    reason: &'static str,
    message: String,
}

/// How the decision about a request differs from the recorded one.
pub(crate) async fn compare(recorded: &Value, gates: &BTreeMap<String, bool>) -> Option<String> {
    let gates = Gates::switched(gates);
    let request = Request { recorded, gates };
    let outcome = if recorded["asked"] == "directly" {
        request.directly().await.map(|()| None)
    } else {
        request.create().await.map(Some)
    };
    match (outcome, recorded["allowed"].as_bool()) {
        (Ok(None), Some(true)) => None,
        (Ok(Some(object)), Some(true)) => {
            let (got, want) = (json!(warning(&object)), &recorded["answer"]["warnings"][0]);
            if got != *want {
                return Some(format!("warns {got}, want {want}"));
            }
            compare::objects(&object, &recorded["result"])
        }
        (Err(refusal), Some(false)) => {
            let answer = &recorded["answer"];
            if answer["code"] != refusal.code || answer["reason"] != refusal.reason {
                return Some(format!(
                    "refused with {} {}: {}",
                    refusal.code, refusal.reason, refusal.message
                ));
            }
            compare::messages(&refusal.message, answer["message"].as_str().unwrap_or_default())
        }
        (Ok(_), _) => Some(format!("allowed, want {}", recorded["answer"])),
        (Err(refusal), _) => Some(format!("refused: {}", refusal.message)),
    }
}

struct Request<'r> {
    recorded: &'r Value,
    gates: Gates,
}

impl Request<'_> {
    fn kind(&self) -> &str {
        self.recorded["input"]["kind"].as_str().expect("a kind")
    }

    /// The request as the recorded program got it: only its validating webhook.
    async fn directly(&self) -> Result<(), Refusal> {
        let review = self.review(&timed(&self.recorded["input"]), &timed(&self.recorded["old"]));
        let denial = self.denial(review).await;
        denial.map_or(Ok(()), |message| Err(Refusal { code: 403, reason: "Forbidden", message }))
    }

    /// Defaults, mutation, schema and CEL rules, validation: the object as it would be stored.
    async fn create(&self) -> Result<Value, Refusal> {
        let mut object = self.recorded["input"].clone();
        let version = object["apiVersion"].as_str().expect("a version").to_owned();
        let schema = schema(&version, self.kind());
        schema.prune(&mut object);
        schema.apply_defaults(&mut object);
        object = in_version(object, STORED);
        self.mutate(&mut object).await;
        let mut object = in_version(object, &version);
        schema.apply_defaults(&mut object);
        let verdict = schema.validate(&object, None);
        if !verdict.errors.is_empty() {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let status = invalid_status("kueue.x-k8s.io", self.kind(), name, &verdict.errors);
            let message = status["message"].as_str().unwrap_or_default().to_owned();
            return Err(Refusal { code: 422, reason: "Invalid", message });
        }
        let review = self.review(&in_version(object.clone(), STORED), &Value::Null);
        if let Some(why) = self.denial(review).await {
            let webhook = format!("v{}.kb.io", self.kind().to_lowercase());
            let message = format!("admission webhook \"{webhook}\" denied the request: {why}");
            return Err(Refusal { code: 403, reason: "Forbidden", message });
        }
        Ok(object)
    }

    fn path(&self, action: &str) -> String {
        format!("/{action}-kueue-x-k8s-io-v1beta2-{}", self.kind().to_lowercase())
    }

    fn review(&self, object: &Value, old: &Value) -> Value {
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "operation": self.recorded["operation"], "object": object, "oldObject": old,
            "subResource": self.recorded["subresource"] } })
    }

    /// The response of a webhook; `None` if the kind has none.
    async fn ask(&self, action: &str, review: Value) -> Option<Value> {
        let routes = webhook::routes(&self.gates);
        let path = self.path(action);
        if !routes.paths().any(|known| known == path) {
            return None;
        }
        let review = routes.handle(&path, review, LIMIT).await.expect("a response");
        Some(review["response"].clone())
    }

    async fn mutate(&self, object: &mut Value) {
        let Some(response) = self.ask("mutate", self.review(object, &Value::Null)).await else { return };
        assert_eq!(response["allowed"], true, "{response}");
        if !response["patch"].is_null() {
            let ByteString(patch) = serde_json::from_value(response["patch"].clone()).expect("a patch");
            json_patch(object, &serde_json::from_slice(&patch).expect("a JSON patch"))
                .expect("a patch that fits");
        }
    }

    async fn denial(&self, review: Value) -> Option<String> {
        let response = self.ask("validate", review).await?;
        let message = response["status"]["message"].as_str().unwrap_or_default().to_owned();
        (response["allowed"] == false).then_some(message)
    }
}

/// With the times that are left out of recordings.
fn timed(object: &Value) -> Value {
    let mut object = object.clone();
    for list in ["/status/conditions", "/status/admissionChecks"] {
        for item in object.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            item["lastTransitionTime"] = "2025-01-01T00:00:00Z".into();
        }
    }
    object
}

/// What the API server warns of whoever uses this version.
fn warning(object: &Value) -> Option<String> {
    let service = WebhookService { namespace: "quintet-system".into(), name: "quintet-webhook".into() };
    let definitions = crd::manifests(&quintet_api::kueue::definitions(), &service);
    let definition = definitions.iter().find(|one| object["kind"] == one["spec"]["names"]["kind"])?;
    let used = object["apiVersion"].as_str()?.strip_prefix("kueue.x-k8s.io/")?;
    let version =
        definition["spec"]["versions"].as_array()?.iter().find(|version| version["name"] == used)?;
    version["deprecationWarning"].as_str().map(str::to_owned)
}

fn schema(version: &str, kind: &str) -> Structural {
    let known = crd::kinds().into_iter().find(|known| known.api_version == version && known.name == kind);
    let schema = (known.unwrap_or_else(|| panic!("{kind} is not served as {version}")).schema)();
    Structural::parse(&schema, &Path::new("schema")).expect("a structural schema")
}

/// Kinds whose versions do not differ in shape are not converted.
fn in_version(mut object: Value, version: &str) -> Value {
    if object["apiVersion"] == version {
        return object;
    }
    if let Ok(converted) = convert(object.clone(), version) {
        return converted;
    }
    object["apiVersion"] = version.into();
    object
}
