//! Webhook decisions about jobs, in a cluster whose namespace `ns-default` has a default queue.

use k8s_openapi::ByteString;
use quintet_golden::{Api, World, differences};
use quintet_objects::patch::json_patch;
use serde_json::{Value, json};

use crate::bed::{nodes, pass};
use crate::canonical::{Names, compact, pod, recorded as cut_down};
use crate::compare;
use crate::lifecycle::setting;

/// Compares a decision; the error says what is not supported.
pub(crate) async fn compare(case: &Value, template: &Api) -> Result<Vec<String>, String> {
    let recorded = &case["webhook"];
    let namespaces = ["ns", "ns-default"].map(str::to_owned);
    let mut world = World::new(template, 1, &namespaces).await?;
    world.run_cluster(nodes(1)).await?;
    world.start(&quintet_queue::component(), &setting(case)?).await?;
    for object in queues() {
        world.create(&object).await?;
    }
    pass(2).await;
    let found = if recorded["asked"] == "directly" {
        directly(&world, recorded).await?
    } else {
        created(&world, recorded).await?
    };
    world.stop().await;
    Ok(found)
}

fn queues() -> [Value; 4] {
    let runtime = |namespace: &str| {
        json!({ "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime",
            "metadata": { "name": "rt", "namespace": namespace },
            "spec": { "template": { "spec": { "replicatedJobs": [{ "name": "node", "template": { "spec": { "template": {
                "spec": { "containers": [{ "name": "node", "image": "example.com/image:1" }] } } } } }] } } } })
    };
    [
        runtime("ns"),
        runtime("ns-default"),
        json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "ns-unselected", "labels": { "managed": "no" } } }),
        json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": { "name": "default", "namespace": "ns-default" }, "spec": { "clusterQueue": "cq" } }),
    ]
}

/// A creation through the API: defaults, webhooks and validation.
async fn created(world: &World, recorded: &Value) -> Result<Vec<String>, String> {
    let answer = world.create(&recorded["input"]).await?;
    if recorded["allowed"] == false {
        let wanted = &recorded["answer"];
        if wanted["code"] != answer.code {
            return Ok(vec![format!("answers {answer:?}, want {wanted}")]);
        }
        let message = answer.message.unwrap_or_default();
        let wanted = wanted["message"].as_str().unwrap_or_default();
        return Ok(compare::messages(&message, wanted).into_iter().collect());
    }
    if answer.code != 201 {
        return Ok(vec![format!("answers {answer:?}")]);
    }
    let objects = world.objects().await?;
    let mut names = Names::default();
    names.learn(&objects);
    let id = quintet_golden::ObjectId::of(&recorded["input"]);
    let stored = objects.get(&id).ok_or("it is not stored")?;
    let wanted = compact(&cut_down(&as_created(&recorded["result"])));
    Ok(differences(&wanted, &compact(&as_created(&names.canonical(stored)))))
}

/// An object without what happens to it after its creation.
fn as_created(object: &Value) -> Value {
    let mut object = object.clone();
    if object["kind"] == "Pod" {
        object = pod(&object);
        object["spec"]["nodeName"].take();
    }
    object["status"].take();
    // The Deployment controller counts revisions.
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove("deployment.kubernetes.io/revision");
    }
    object
}

/// The path of a webhook.
pub(crate) fn path(action: &str, object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let version = format!("{}-{version}", group.replace('.', "-"));
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    format!("/{action}-{version}-{kind}")
}

/// The webhooks alone.
async fn directly(world: &World, recorded: &Value) -> Result<Vec<String>, String> {
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "operation": recorded["operation"], "object": recorded["input"], "oldObject": recorded["old"],
        "namespace": recorded["input"]["metadata"]["namespace"] } });
    let answer = world.ask(&path("validate", &recorded["input"]), review.clone()).await?;
    let response = &answer["response"];
    if response["allowed"] != recorded["allowed"] {
        return Ok(vec![format!("allowed: {}, want {}", response["allowed"], recorded["allowed"])]);
    }
    let message = response["status"]["message"].as_str().unwrap_or_default();
    let wanted = recorded["answer"]["message"].as_str().unwrap_or_default();
    let mut found: Vec<String> = compare::messages(message, wanted).into_iter().collect();
    if recorded["patch"].is_array() && recorded["input"]["kind"] != "Job" {
        let answer = world.ask(&path("mutate", &recorded["input"]), review).await?;
        found.extend(mutated(&recorded["input"], &answer["response"], &recorded["patch"])?);
    }
    Ok(found)
}

/// How the object that the mutating webhook makes differs from the recorded one. Go writes fields that are empty.
fn mutated(input: &Value, response: &Value, patch: &Value) -> Result<Vec<String>, String> {
    let go_only = ["/status", "/spec/strategy", "/spec/updateStrategy"];
    let is_meant = |one: &&Value| {
        !go_only.iter().any(|path| one["path"].as_str().is_some_and(|own| own.starts_with(path)))
    };
    let recorded: Value = patch.as_array().into_iter().flatten().filter(is_meant).cloned().collect();
    let mut wanted = input.clone();
    json_patch(&mut wanted, &recorded).map_err(|error| format!("{error:?}"))?;
    let mut got = input.clone();
    if !response["patch"].is_null() {
        let ByteString(own) =
            serde_json::from_value(response["patch"].clone()).map_err(|error| error.to_string())?;
        let own = serde_json::from_slice(&own).map_err(|error| error.to_string())?;
        json_patch(&mut got, &own).map_err(|error| format!("{error:?}"))?;
    }
    Ok(differences(&compact(&wanted), &compact(&got)))
}
