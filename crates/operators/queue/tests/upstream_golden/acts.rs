//! What others do in a lifecycle: sentences of the recording, most of them with the body of a patch.

use std::collections::BTreeSet;

use quintet_golden::ObjectId;
use serde_json::{Value, json};

use crate::lifecycle::{Run, key};

/// Whether a condition was set or taken away.
const NO_MORE: [&str; 4] = ["loses", "removed", "no longer", "taken"];

impl Run {
    /// Plays the controller of a check or of a kind of jobs, the autoscaler, an administrator, or what happens to a node.
    pub(crate) async fn follow(&self, step: &Value, sentence: &str) -> Result<(), String> {
        let unknown = || format!("what others do: {sentence}");
        let Some((who, body)) = sentence.split_once(": {") else {
            return self.change_node(sentence).await?.ok_or_else(unknown);
        };
        let body: Value = serde_json::from_str(&format!("{{{body}")).map_err(|error| error.to_string())?;
        let now = json!(self.world.now());
        let words: Vec<&str> = who.split(' ').collect();
        let after = |word: &str| {
            let at = words.iter().position(|own| *own == word)?;
            words.get(at + 1).copied()
        };
        if let Some(name) = after("AdmissionCheck") {
            let id = ObjectId { kind: "AdmissionCheck".into(), namespace: String::new(), name: name.into() };
            return self.set_status(&id, &timed(body, &now)).await;
        }
        if let Some((kind, _)) = who.strip_prefix("the ").and_then(|rest| rest.split_once(" controller ")) {
            return self.report(kind, body, &now).await;
        }
        if who.starts_with("the autoscaler ") {
            return self.report("ProvisioningRequest", body, &now).await;
        }
        if who.starts_with("the controller of the check ") || who.starts_with("an administrator ") {
            return self.merge_into_workloads(step, &body, &now).await;
        }
        // A kind and a name, whoever it is.
        let objects = self.world.objects().await?;
        let is_named = |id: &&ObjectId| {
            let recorded = key(&self.names.canonical(&objects[*id]));
            sentence.contains(&recorded) || after(&id.kind) == Some(id.name.as_str())
        };
        let id = objects.keys().find(is_named).ok_or_else(unknown)?;
        if body["status"].is_object() {
            return self.set_status(id, &timed(body, &now)).await;
        }
        self.world.patch(id, None, &body).await.map(drop)
    }

    /// What happens to a node: `Node NAME gets the taint KEY=VALUE:EFFECT`, a label, or that it is not ready. `None` if the
    /// sentence says something else.
    async fn change_node(&self, sentence: &str) -> Result<Option<()>, String> {
        let words: Vec<&str> = sentence.split(' ').collect();
        let after = |word: &str| {
            let at = words.iter().position(|own| *own == word)?;
            words.get(at + 1).copied()
        };
        let Some(name) = after("Node") else { return Ok(None) };
        let id = ObjectId { kind: "Node".into(), namespace: String::new(), name: name.to_owned() };
        let Some(node) = self.world.get(&id).await? else { return Ok(None) };
        let is_over = NO_MORE.iter().any(|word| sentence.contains(word));
        let is_ready = || !sentence.to_lowercase().contains("not ready") && !sentence.contains("NotReady");
        if let Some(taint) = after("taint") {
            let (key, effect) = taint.rsplit_once(':').unwrap_or((taint, "NoSchedule"));
            let (key, value) = key.split_once('=').unwrap_or((key, ""));
            let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            taints.retain(|own| own["key"] != key);
            if !is_over {
                taints.push(json!({ "key": key, "value": value, "effect": effect }));
            }
            self.world.patch(&id, None, &json!({ "spec": { "taints": taints } })).await?;
        } else if let Some(label) = after("label") {
            let (key, value) = label.split_once('=').unwrap_or((label, ""));
            let value = if is_over { Value::Null } else { value.into() };
            self.world.patch(&id, None, &json!({ "metadata": { "labels": { key: value } } })).await?;
        } else if sentence.contains("deleted") || sentence.ends_with("gone") {
            self.world.delete(&id).await?;
        } else if sentence.to_lowercase().contains("ready") {
            let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            for condition in conditions.iter_mut().filter(|own| own["type"] == "Ready") {
                let status = if is_ready() { "True" } else { "False" };
                condition["status"] = status.into();
                condition["lastTransitionTime"] = json!(self.world.now());
            }
            self.set_status(&id, &json!({ "status": { "conditions": conditions } })).await?;
        } else {
            return Ok(None);
        }
        Ok(Some(()))
    }

    /// Plays the controller of a kind, which reports the same of all.
    async fn report(&self, kind: &str, body: Value, now: &Value) -> Result<(), String> {
        let body = timed(body, now);
        let objects = self.world.objects().await?;
        for id in objects.keys().filter(|id| id.kind == kind) {
            self.set_status(id, &body).await?;
        }
        Ok(())
    }

    async fn set_status(&self, id: &ObjectId, body: &Value) -> Result<(), String> {
        let answer = self.world.patch(id, Some("status"), body).await?;
        if answer.code == 200 { Ok(()) } else { Err(format!("cannot write the status of {id}: {answer:?}")) }
    }

    /// Merges lists of the status by their keys, as server-side apply does.
    async fn merge_into_workloads(&self, step: &Value, body: &Value, now: &Value) -> Result<(), String> {
        let objects = self.world.objects().await?;
        // Sentences do not say which: those that are recorded as changed.
        let recorded: BTreeSet<String> = step["objects"].as_array().into_iter().flatten().map(key).collect();
        let changes = |id: &ObjectId, object: &Value| {
            id.kind == "Workload" && recorded.contains(&key(&self.names.canonical(object)))
        };
        for (id, object) in objects.iter().filter(|(id, object)| changes(id, object)) {
            let mut status = object["status"].clone();
            let is_finished = status["conditions"].as_array().is_some_and(|all| {
                all.iter().any(|one| one["type"] == "Finished" && one["status"] == "True")
            });
            for (list, key) in [("admissionChecks", "name"), ("conditions", "type")] {
                for change in body["status"][list].as_array().into_iter().flatten() {
                    let mut change = change.clone();
                    change["lastTransitionTime"] = now.clone();
                    let items = status[list].as_array().cloned().unwrap_or_default();
                    let is_known = items.iter().any(|item| item[key] == change[key]);
                    if list == "admissionChecks" && (!is_known || is_finished) {
                        continue;
                    }
                    let mut items = items;
                    match items.iter_mut().find(|item| item[key] == change[key]) {
                        Some(known) => *known = change,
                        None => items.push(change),
                    }
                    status[list] = items.into();
                }
            }
            if status != object["status"] {
                self.set_status(id, &json!({ "status": status })).await?;
            }
        }
        Ok(())
    }
}

/// A status whose conditions have changed now.
fn timed(mut body: Value, now: &Value) -> Value {
    for condition in body["status"]["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = now.clone();
    }
    body
}
