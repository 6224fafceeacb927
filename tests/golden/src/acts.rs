//! What controllers that do not exist here are said to do, in the words of recordings.

use regex::Regex;
use serde_json::{Value, json};

use crate::case::Step;
use crate::world::{ObjectId, World};

/// Carries out a sentence. `false` if it is not understood.
pub(crate) async fn act(
    world: &World,
    step: &Step,
    sentence: &str,
    extra: crate::Act,
) -> Result<bool, String> {
    for clause in clauses(sentence) {
        let is_known = job_complete(world, clause).await?
            || job_failed(world, step, clause).await?
            || deployment_ready(world, clause).await?
            || extra(world, step, clause).await?;
        if !is_known {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The parts of a sentence. How a pod ended belongs to the Job that failed.
fn clauses(sentence: &str) -> Vec<&str> {
    match sentence.find("; its pod ended") {
        Some(_) => vec![sentence],
        None => sentence.split("; ").collect(),
    }
}

async fn job_complete(world: &World, clause: &str) -> Result<bool, String> {
    let Some(found) = captures(r"^the Job controller reports Job (\S+) as complete$", clause)? else {
        return Ok(false);
    };
    let now = world.now();
    let condition = |type_: &str| {
        let reason = "CompletionsReached";
        json!({"type": type_, "status": "True", "reason": reason, "message": "Reached expected number of succeeded pods",
               "lastTransitionTime": now, "lastProbeTime": now})
    };
    let conditions = [condition("SuccessCriteriaMet"), condition("Complete")];
    let status = json!({
        "startTime": now, "completionTime": now, "succeeded": 1, "ready": 0, "terminating": 0,
        "uncountedTerminatedPods": {}, "conditions": conditions,
    });
    set_status(world, "Job", &found[0], status).await.map(|()| true)
}

async fn job_failed(world: &World, step: &Step, clause: &str) -> Result<bool, String> {
    let pattern = concat!(
        r"^the Job controller reports Job (\S+) as failed: (\w+)",
        r"(?:,? (\d+) (second|minute)s? ago)?",
        r"(?:; its pod ended with code (\d+), reason (\w+)(?:, message '(.*)')?)?$"
    );
    let Some(found) = captures(pattern, clause)? else { return Ok(false) };
    let [job, reason, ago, unit, code, pod_reason, message] = &found[..] else { return Ok(false) };
    if let Ok(code) = code.parse::<i32>() {
        let mut ended = json!({"exitCode": code});
        if pod_reason != "None" {
            ended["reason"] = pod_reason.clone().into();
        }
        if !message.is_empty() {
            ended["message"] = message.clone().into();
        }
        fail_pod(world, step, job, &ended).await?;
    }
    let message = match reason.as_str() {
        "BackoffLimitExceeded" => "Job has reached the specified backoff limit",
        "DeadlineExceeded" => "Job was active longer than specified deadline",
        _ => "",
    };
    let seconds = ago.parse::<i64>().unwrap_or_default() * if unit == "minute" { 60 } else { 1 };
    let now = world.now() - jiff::SignedDuration::from_secs(seconds);
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": reason, "message": message,
               "lastTransitionTime": now, "lastProbeTime": now})
    };
    let status = json!({
        "startTime": now, "failed": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
        "conditions": [condition("FailureTarget"), condition("Failed")],
    });
    set_status(world, "Job", job, status).await.map(|()| true)
}

/// Makes the pod that the recording shows, and lets its container end.
async fn fail_pod(world: &World, step: &Step, job: &str, ended: &Value) -> Result<(), String> {
    let is_of_job =
        |object: &&Value| object["kind"] == "Pod" && object["metadata"]["labels"]["job-name"] == job;
    let Some(recorded) = step.objects.iter().find(is_of_job) else {
        return Err(format!("the recording does not show the pod of Job {job}"));
    };
    let container = |container: &Value| json!({"name": container["name"], "image": container["image"]});
    let containers: Vec<_> =
        recorded["spec"]["containers"].as_array().into_iter().flatten().map(container).collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": recorded["metadata"],
        "spec": {"restartPolicy": recorded["spec"]["restartPolicy"], "containers": containers},
    });
    let answer = world.create(&pod).await?;
    if answer.code != 201 {
        return Err(format!("cannot create the pod of Job {job}: {answer:?}"));
    }
    let mut statuses = Vec::new();
    for container in &containers {
        statuses.push(json!({
            "name": container["name"], "image": container["image"], "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": ended},
        }));
    }
    let status = json!({"status": {"phase": "Failed", "containerStatuses": statuses}});
    let answer = world.patch(&ObjectId::of(&pod), Some("status"), &status).await?;
    if answer.code == 200 { Ok(()) } else { Err(format!("cannot end the pod of Job {job}: {answer:?}")) }
}

async fn deployment_ready(world: &World, clause: &str) -> Result<bool, String> {
    let pattern = r"^the Deployment controller reports (\d+) of (\d+) replicas of Deployment (\S+) ready$";
    let Some(found) = captures(pattern, clause)? else { return Ok(false) };
    let count = |text: &str| text.parse::<i32>().map_err(|error| error.to_string());
    let (ready, all) = (count(&found[0])?, count(&found[1])?);
    let is_available = if ready >= all { "True" } else { "False" };
    let now = world.now();
    let status = json!({
        "observedGeneration": 1, "replicas": all, "updatedReplicas": all, "readyReplicas": ready,
        "availableReplicas": ready, "unavailableReplicas": all - ready,
        "conditions": [{"type": "Available", "status": is_available, "reason": "MinimumReplicas", "message": "",
                        "lastTransitionTime": now, "lastUpdateTime": now}],
    });
    set_status(world, "Deployment", &found[2], status).await.map(|()| true)
}

/// Writes the status of the only object of this kind and name.
async fn set_status(world: &World, kind: &str, name: &str, status: Value) -> Result<(), String> {
    let objects = world.objects().await?;
    let id = objects.keys().find(|id| id.kind == kind && id.name == name);
    let id = id.ok_or_else(|| format!("there is no {kind} {name}"))?;
    let answer = world.patch(id, Some("status"), &json!({"status": status})).await?;
    if answer.code == 200 { Ok(()) } else { Err(format!("cannot write the status of {id}: {answer:?}")) }
}

/// What the groups of a pattern match; a group that takes no part is empty.
fn captures(pattern: &str, text: &str) -> Result<Option<Vec<String>>, String> {
    let pattern = Regex::new(pattern).map_err(|error| error.to_string())?;
    Ok(pattern.captures(text).map(|found| {
        found.iter().skip(1).map(|group| group.map_or("", |group| group.as_str()).to_owned()).collect()
    }))
}
