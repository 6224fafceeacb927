//! What controllers and the scheduler promise for workloads, on any cluster that has nodes.
//!
//! Nodes may be real or simulated (`quintet simulate-nodes`): a container of these cases ends as annotations of its pod
//! say. Simulated nodes read them; in a real container the script [`OBEY`] does.

pub(super) mod cronjobs;
pub(super) mod daemonsets;
pub(super) mod deployments;
pub(super) mod disruption;
pub(super) mod jobs;
pub(super) mod replicasets;
pub(super) mod scheduling;
pub(super) mod services;
pub(super) mod statefulsets;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::kinds::with_account;
use crate::{Answer, World};

/// The exit code of the containers; they run until it is set.
const EXIT_CODE: &str = "node.quintet.dev/exit-code";
/// When simulated containers end.
const RUN_FOR: &str = "node.quintet.dev/run-for";
/// Why simulated containers do not start.
const STUCK: &str = "node.quintet.dev/stuck";

/// Waits for the annotation with the exit code.
const OBEY: &str = r#"trap 'exit 143' TERM
while :; do
  code=$(sed -n 's|^node.quintet.dev/exit-code="\(.*\)"$|\1|p' /control/annotations)
  [ -z "$code" ] || exit "$code"
  sleep 0.2
done"#;

/// A pod template with the label `app: NAME`, whose container runs until it is told to end.
fn template(name: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": name }, "annotations": { "version": "1" } },
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "containers": [{
                "name": "main", "image": "busybox", "command": ["sh", "-c", OBEY],
                "volumeMounts": [{ "name": "control", "mountPath": "/control" }],
            }],
            "volumes": [{ "name": "control", "downwardAPI": { "items": [
                { "path": "annotations", "fieldRef": { "fieldPath": "metadata.annotations" } },
            ] } }],
        },
    })
}

/// A template of a Job's pods.
fn job_template(name: &str) -> Value {
    let mut template = template(name);
    template["spec"]["restartPolicy"] = json!("Never");
    template
}

/// A template of pods that end at once.
fn ending_template(name: &str, code: u8) -> Value {
    let mut template = job_template(name);
    template["metadata"]["annotations"] = ends(code);
    template
}

fn ends(code: u8) -> Value {
    json!({ RUN_FOR: "0s", EXIT_CODE: code.to_string() })
}

/// A change of the template, as a merge patch.
fn version(version: &str) -> Value {
    json!({ "spec": { "template": { "metadata": { "annotations": { "version": version } } } } })
}

/// A change of the template to one whose pods never start.
fn broken_version() -> Value {
    json!({ "spec": { "template": {
        "metadata": { "annotations": { "version": "broken", STUCK: "ErrImagePull" } },
        "spec": { "containers": [{ "name": "main", "image": "example.invalid/missing:1" }] },
    } } })
}

/// Ends the container of a pod.
async fn end(world: &World, pod: &Value, code: u8) -> anyhow::Result<()> {
    let path = world.core(&format!("pods/{}", name_of(pod)));
    let patch = json!({ "metadata": { "annotations": ends(code) } });
    world.patch(&path, "merge-patch+json", &patch).await?.expect(200).map(drop)
}

/// A resource of a group in the namespace of the case.
struct Resource {
    group_version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

impl Resource {
    const fn new(group_version: &'static str, kind: &'static str, plural: &'static str) -> Self {
        Self { group_version, kind, plural }
    }

    fn path(&self, world: &World, name: &str) -> String {
        let path = world.path(self.group_version, self.plural);
        if name.is_empty() { path } else { format!("{path}/{name}") }
    }

    async fn create(&self, world: &World, name: &str, spec: Value) -> anyhow::Result<Value> {
        with_account(world).await?;
        let body = json!({
            "apiVersion": self.group_version, "kind": self.kind, "metadata": { "name": name }, "spec": spec,
        });
        world.post(&self.path(world, ""), &body).await?.expect(201)
    }

    async fn merge(&self, world: &World, name: &str, patch: &Value) -> anyhow::Result<Value> {
        world.patch(&self.path(world, name), "merge-patch+json", patch).await?.expect(200)
    }

    async fn until(
        &self,
        world: &World,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let is_so = |answer: &Answer| answer.code == 200 && holds(&answer.body);
        Ok(world.eventually(&self.path(world, name), what, is_so).await?.body)
    }

    async fn list(&self, world: &World) -> anyhow::Result<Vec<Value>> {
        items(world, &self.path(world, "")).await
    }

    async fn delete(&self, world: &World, name: &str, propagation: &str) -> anyhow::Result<()> {
        let options = json!({ "propagationPolicy": propagation });
        world.delete(&self.path(world, name), Some(&options)).await?.expect(200).map(drop)
    }
}

const REPLICA_SETS: Resource = Resource::new("apps/v1", "ReplicaSet", "replicasets");
const JOBS: Resource = Resource::new("batch/v1", "Job", "jobs");

async fn items(world: &World, path: &str) -> anyhow::Result<Vec<Value>> {
    let list = world.get(path).await?.expect(200)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// The pods with `app: NAME` that are not being deleted.
async fn pods(world: &World, name: &str) -> anyhow::Result<Vec<Value>> {
    let found = items(world, &format!("{}?labelSelector=app%3D{name}", world.core("pods"))).await?;
    Ok(found.into_iter().filter(is_staying).collect())
}

/// Waits until the pods with `app: NAME` that are not being deleted are as expected.
async fn until_pods(
    world: &World,
    name: &str,
    what: &str,
    holds: impl Fn(&[Value]) -> bool,
) -> anyhow::Result<Vec<Value>> {
    let path = format!("{}?labelSelector=app%3D{name}", world.core("pods"));
    let staying = |answer: &Answer| -> Vec<Value> {
        let items = answer.body["items"].as_array();
        items.into_iter().flatten().filter(|pod| is_staying(pod)).cloned().collect()
    };
    let answer = world.eventually(&path, what, |answer| holds(&staying(answer))).await?;
    Ok(staying(&answer))
}

/// Waits until this many pods with `app: NAME` run and are ready, and there are no others.
async fn until_ready(world: &World, name: &str, count: usize) -> anyhow::Result<Vec<Value>> {
    let what = format!("{count} ready pods");
    until_pods(world, name, &what, |pods| pods.len() == count && pods.iter().all(is_ready)).await
}

async fn until_pod(
    world: &World,
    name: &str,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    let path = world.core(&format!("pods/{name}"));
    Ok(world.eventually(&path, what, |answer| answer.code == 200 && holds(&answer.body)).await?.body)
}

/// Creates a pod from a template.
async fn create_pod(world: &World, name: &str, template: Value) -> anyhow::Result<Value> {
    with_account(world).await?;
    let mut body = template;
    (body["apiVersion"], body["kind"]) = (json!("v1"), json!("Pod"));
    body["metadata"]["name"] = json!(name);
    world.post(&world.core("pods"), &body).await?.expect(201)
}

/// Waits for an event about an object.
async fn until_event(world: &World, object: &str, reason: &str, message: &str) -> anyhow::Result<()> {
    let is_it = |event: &Value| {
        event["involvedObject"]["name"] == object
            && event["reason"] == reason
            && event["message"].as_str().is_some_and(|text| text.contains(message))
    };
    let what = format!("the event {reason} {message:?} of {object}");
    let path = world.core("events");
    world
        .eventually(&path, &what, |answer| {
            answer.body["items"].as_array().is_some_and(|all| all.iter().any(is_it))
        })
        .await
        .map(drop)
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_staying(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    is_true(pod, "Ready")
}

fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind)["status"] == "True"
}

/// A condition; null if there is none.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}

/// Fails unless the condition has this status, reason and message.
fn expect_condition(
    object: &Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> anyhow::Result<()> {
    let found = condition(object, kind);
    ensure!(
        found["status"] == status && found["reason"] == reason && found["message"] == message,
        "expected {kind} {status} {reason} {message:?}, got {found}"
    );
    Ok(())
}

fn is_owned_by(object: &Value, owner: &Value) -> bool {
    let references = object["metadata"]["ownerReferences"].as_array();
    references.into_iter().flatten().any(|reference| {
        reference["uid"] == owner["metadata"]["uid"]
            && reference["controller"] == true
            && reference["blockOwnerDeletion"] == true
    })
}

/// Whether the controller has seen the object as it is.
fn is_observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// The version from which a watch shows what happens next.
async fn current(world: &World, path: &str) -> anyhow::Result<String> {
    let list = world.get(path).await?.expect(200)?;
    let version = list["metadata"]["resourceVersion"].as_str();
    version.map(str::to_owned).context("a list without a resource version")
}

/// What happened to the pods of the namespace since a version, until `enough`.
async fn pod_events(
    world: &World,
    since: &str,
    enough: impl Fn(&[Value]) -> bool,
) -> anyhow::Result<Vec<Value>> {
    let path = format!("{}?watch=true&resourceVersion={since}", world.core("pods"));
    super::watch::events(world, &path, enough).await
}

/// The nodes that take pods.
async fn nodes(world: &World) -> anyhow::Result<Vec<Value>> {
    let all = items(world, "/api/v1/nodes").await?;
    let usable: Vec<Value> = all.into_iter().filter(is_ready).collect();
    ensure!(!usable.is_empty(), "the cluster has no ready node; add some with `quintet simulate-nodes`");
    Ok(usable)
}
