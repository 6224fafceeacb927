//! Lifecycles: what users and others do, step by step, and what the operator makes of it.
//!
//! A step is equal if the cluster comes to the recorded state. How long that takes differs: recordings were made in real
//! time, with the delays of the recorded program.

use std::collections::{BTreeMap, BTreeSet};

use quintet_api::config::{Schema, kueue};
use quintet_golden::{Answer, Api, ObjectId, Setting, World, differences};
use quintet_node::NodeShape;
use serde_json::{Value, json};

use crate::bed::{nodes, pass};
use crate::canonical::{Names, compact, without_template_hashes};
use crate::{compare, job_webhooks, metrics, visibility};

/// How long a step may take to come to the recorded state.
const PATIENCE: u32 = 25;
/// Kinds whose objects are not recorded, or depend on the cluster.
const NOT_COMPARED: [&str; 18] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "ControllerRevision",
    "CustomResourceDefinition",
    "EndpointSlice",
    "Endpoints",
    "Event",
    "FlowSchema",
    "Lease",
    "Namespace",
    "Node",
    "PriorityLevelConfiguration",
    "PriorityClass",
    "ProvisioningRequestConfig",
    "ReplicaSet",
    "Secret",
    "ServiceAccount",
];
/// Cases in which users make the Workload. When Kueue adopts it, Go writes an empty `metadata` into its templates, which
/// counts as a change of the spec. Quintet changes the owner and a label only, so that the generation stays.
const ADOPTED: &str = "job-prebuilt-workload-";
/// A case that was recorded after another had deleted the first node.
const WITHOUT_FIRST_NODE: &str = "tas-node-tainted";

/// Compares a case; the error says what is not supported.
pub(crate) async fn compare(case: &Value, template: &Api) -> Result<Vec<String>, String> {
    let case = &without_template_hashes(case)?;
    let steps = case["steps"].as_array().ok_or("a case without steps")?;
    let name = case["case"].as_str().unwrap_or_default();
    let mut world = World::new(template, 1, &["ns".to_owned(), "ns-default".to_owned()]).await?;
    let created = || steps.iter().flat_map(|step| step["create"].as_array().into_iter().flatten());
    if created().any(|object| object["kind"] == "Topology") {
        run_with_topology(&mut world, name).await?;
    } else {
        world.run_cluster(nodes(4)).await?;
    }
    world.start(&quintet_queue::component(), &setting(case)?).await?;
    pass(2).await;
    let recorded = steps.iter().flat_map(|step| step["objects"].as_array().into_iter().flatten());
    let has_pods = recorded.into_iter().any(|object| object["kind"] == "Pod");
    let mut run = Run {
        world,
        has_pods,
        is_adopted: name.starts_with(ADOPTED),
        is_about_readiness: name.starts_with("podsready-"),
        names: Names::default(),
        seen: BTreeSet::new(),
        expected: BTreeSet::new(),
        found: Vec::new(),
    };
    run.observe().await?;
    for step in steps {
        run.step(step).await?;
        if !run.found.is_empty() {
            // What follows from a difference says nothing.
            break;
        }
    }
    if run.found.is_empty() {
        run.found = visibility::compare(case, &run.world, &run.names).await?;
        run.found.extend(metrics::lines(&case["metrics"], &run.world.exposition(), &run.names));
    }
    run.world.stop().await;
    Ok(run.found)
}

/// Eight nodes of four CPUs in two blocks of two racks.
async fn run_with_topology(world: &mut World, case: &str) -> Result<(), String> {
    let mut shape = NodeShape { name: "tas".to_owned(), ..nodes(8) };
    shape.capacity.insert("cpu".to_owned(), "4".parse().map_err(|_| "4 is no quantity")?);
    world.run_cluster(shape).await?;
    for number in 0..8 {
        let (block, rack) = (number / 4, number % 4 / 2);
        let labels = json!({ "tas": "yes", "cloud/block": format!("block-{block}"),
            "cloud/rack": format!("rack-{block}-{rack}") });
        let id = ObjectId { kind: "Node".into(), namespace: String::new(), name: format!("tas-{number}") };
        world.patch(&id, None, &json!({ "metadata": { "labels": labels } })).await?;
    }
    if case == WITHOUT_FIRST_NODE {
        let id = ObjectId { kind: "Node".into(), namespace: String::new(), name: "tas-0".into() };
        world.delete(&id).await?;
    }
    Ok(())
}

pub(crate) fn setting(case: &Value) -> Result<Setting, String> {
    let environment = &case["environment"];
    let mut document = json!({ "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration" });
    for (name, value) in environment["configuration"].as_object().into_iter().flatten() {
        document[name] = value.clone();
    }
    match &environment["feature gates"] {
        Value::Null => {}
        // As on the command line.
        Value::String(text) => {
            for (name, on) in text.split(',').filter_map(|gate| gate.split_once('=')) {
                document["featureGates"][name] = (on == "true").into();
            }
        }
        gates => document["featureGates"] = gates.clone(),
    }
    let configuration =
        Schema(&[kueue::CONFIG]).read(&document.to_string()).map_err(|error| error.to_string())?;
    Ok(Setting { configuration, ..Setting::default() })
}

pub(crate) struct Run {
    pub(crate) world: World,
    /// Whether the case records pods.
    has_pods: bool,
    /// Whether Workloads have other generations than those that are recorded.
    is_adopted: bool,
    /// Whether the case is about the readiness of pods.
    is_about_readiness: bool,
    pub(crate) names: Names,
    /// Events that were recorded or seen in earlier steps: repetitions depend on races.
    seen: BTreeSet<String>,
    expected: BTreeSet<String>,
    found: Vec<String>,
}

impl Run {
    async fn step(&mut self, step: &Value) -> Result<(), String> {
        let before = self.objects().await?;
        let answers = self.act(step).await?;
        let label = step["step"].as_str().unwrap_or_default();
        for (recorded, actual) in step["answers"].as_array().into_iter().flatten().zip(&answers) {
            if recorded["code"] != actual.code {
                self.found.push(format!("{label}: answer: recorded {}, is {actual:?}", recorded["code"]));
            }
            let denied =
                recorded["message"].as_str().and_then(|text| text.split_once("denied the request: "));
            if let (Some((_, wanted)), Some(message)) = (denied, &actual.message) {
                let message =
                    message.split_once("denied the request: ").map_or(message.as_str(), |(_, own)| own);
                self.found
                    .extend(compare::messages(message, wanted).map(|own| format!("{label}: answer: {own}")));
            }
        }
        self.expected.extend(events(step));
        if !self.found.is_empty() {
            return Ok(());
        }
        let mut found = Vec::new();
        for _ in 0..PATIENCE {
            pass(1).await;
            found = self.differences(step, &before, false).await?;
            if found.is_empty() {
                break;
            }
        }
        if !found.is_empty() && !self.is_about_readiness {
            found = self.differences(step, &before, true).await?;
        }
        self.seen.extend(self.events().await?);
        self.found.extend(found.iter().map(|difference| format!("{label}: {difference}")));
        Ok(())
    }

    /// Does what users and others do; returns the responses.
    async fn act(&mut self, step: &Value) -> Result<Vec<Answer>, String> {
        let mut answers = Vec::new();
        let created = || step["create"].as_array().into_iter().flatten();
        let has_children = created().any(|object| !object["metadata"]["ownerReferences"].is_null());
        for object in step["create"].as_array().into_iter().flatten() {
            let object = self.names.with_uids(object);
            answers.push(self.world.create(&object).await?);
            self.observe().await?;
            // Of equal jobs the older go first, and the API has whole seconds. Children come with their owners.
            if object["kind"] == "Job" && !has_children {
                pass(1).await;
            }
        }
        for patch in step["patch"].as_array().into_iter().flatten() {
            let id = self.names.resolve(&ObjectId::parse(patch["object"].as_str().unwrap_or_default())?);
            let subresource = patch["subresource"].as_str();
            answers.push(match self.denial(&id, subresource, &patch["body"]).await? {
                Some(denial) => denial,
                None => self.world.patch(&id, subresource, &patch["body"]).await?,
            });
        }
        let label = step["step"].as_str().unwrap_or_default();
        for object in step["delete"].as_array().into_iter().flatten() {
            let id = self.names.resolve(&ObjectId::parse(object.as_str().unwrap_or_default())?);
            let propagation = match label {
                label if label.contains("orphan") => "Orphan",
                label if label.contains("foreground") => "Foreground",
                _ => "Background",
            };
            answers.push(self.world.delete_with(&id, propagation).await?);
        }
        for sentence in step["act"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.follow(step, sentence).await?;
        }
        Ok(answers)
    }

    /// What the validating webhook of a kind, if it has one, says against a change.
    async fn denial(
        &self,
        id: &ObjectId,
        subresource: Option<&str>,
        change: &Value,
    ) -> Result<Option<Answer>, String> {
        let new = self.world.preview(id, subresource, change).await?;
        let (Some(old), Some(new)) = (self.world.get(id).await?, new) else { return Ok(None) };
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "operation": "UPDATE", "namespace": id.namespace, "object": new, "oldObject": old,
            "subResource": subresource.unwrap_or_default() } });
        let Ok(answer) = self.world.ask(&job_webhooks::path("validate", &new), review).await else {
            return Ok(None);
        };
        let status = &answer["response"]["status"];
        let message = status["message"].as_str().map(str::to_owned);
        Ok((answer["response"]["allowed"] == false).then_some(Answer { code: 403, reason: None, message }))
    }

    async fn observe(&mut self) -> Result<BTreeMap<ObjectId, Value>, String> {
        let objects = self.world.objects().await?;
        self.names.learn(&objects);
        Ok(objects)
    }

    /// All objects as recordings have them.
    async fn objects(&mut self) -> Result<BTreeMap<String, Value>, String> {
        let objects = self.observe().await?;
        let compared = objects.iter().filter(|(id, _)| !NOT_COMPARED.contains(&id.kind.as_str()));
        Ok(compared
            .map(|(_, object)| self.names.canonical(object))
            .map(|object| (key(&object), object))
            .collect())
    }

    async fn differences(
        &mut self,
        step: &Value,
        before: &BTreeMap<String, Value>,
        levels_readiness: bool,
    ) -> Result<Vec<String>, String> {
        let after = self.objects().await?;
        let mut found = Vec::new();
        let mut listed = BTreeSet::new();
        for recorded in step["objects"].as_array().into_iter().flatten() {
            let key = key(recorded);
            match after.get(&key) {
                Some(actual) => {
                    let mut recorded = crate::canonical::recorded(recorded);
                    let mut actual = actual.clone();
                    if self.is_adopted {
                        recorded = without_generations(recorded);
                        actual = without_generations(actual);
                    }
                    if levels_readiness {
                        level_readiness(&mut recorded, &actual);
                    }
                    found.extend(
                        differences(&compact(&recorded), &compact(&actual))
                            .iter()
                            .map(|own| format!("{key}{own}")),
                    );
                }
                None => found.push(format!("missing {key}")),
            }
            listed.insert(key);
        }
        let gone: BTreeSet<&str> =
            step["gone"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        found
            .extend(gone.iter().filter(|key| after.contains_key(**key)).map(|key| format!("not gone {key}")));
        for (key, actual) in after.iter().filter(|(key, _)| !listed.contains(*key)) {
            match before.get(key) {
                Some(before) if compact(before) == compact(actual) => {}
                Some(before) => {
                    let mut before = before.clone();
                    if levels_readiness {
                        level_readiness(&mut before, actual);
                    }
                    let own = differences(&compact(&before), &compact(actual));
                    found.extend(own.iter().map(|own| format!("changed {key}{own}")));
                }
                None if key.starts_with("Pod ") && !self.has_pods => {}
                None => found.push(format!("unexpected {key}")),
            }
        }
        let actual = self.events().await?;
        let recorded = events(step);
        let is_chance = |event: &String| {
            event.ends_with("WaitingForQuota Workload no longer fits after processing another workload")
        };
        found.extend(
            recorded
                .iter()
                .filter(|event| !actual.contains(*event) && !is_chance(event))
                .map(|event| format!("missing event {event}")),
        );
        let is_new = |event: &&String| !self.expected.contains(*event) && !self.seen.contains(*event);
        found.extend(actual.iter().filter(is_new).map(|event| format!("unexpected event {event}")));
        Ok(found)
    }

    /// All events of the operator so far.
    async fn events(&self) -> Result<BTreeSet<String>, String> {
        let events = self.world.events().await?;
        let ours =
            events.iter().filter(|event| is_ours(event["reportingController"].as_str().unwrap_or_default()));
        let text = ours.map(|event| {
            let regarding = &event["regarding"];
            let object = format!(
                "{} {}/{}",
                regarding["kind"].as_str().unwrap_or_default(),
                regarding["namespace"].as_str().unwrap_or_default(),
                regarding["name"].as_str().unwrap_or_default()
            );
            let line = format!(
                "{object} {} {} {}",
                plain(&event["type"]),
                plain(&event["reason"]),
                plain(&event["note"])
            );
            without_reporter(&self.names.canonical_text(&line))
        });
        Ok(text.collect())
    }
}

/// Which pod of a group reports what is about the group is a matter of chance. Recorded groups are called `g`.
fn without_reporter(line: &str) -> String {
    let is_of_group =
        [" Normal CreatedWorkload ", " Warning ErrWorkloadCompose "].iter().any(|part| line.contains(part));
    let is_group = |rest: &str| rest.ends_with("/g") || rest.contains("'g' group");
    match line.strip_prefix("Pod ").and_then(|rest| rest.split_once(' ')) {
        Some((_, rest)) if is_of_group && is_group(rest) => format!("a pod {rest}"),
        _ => line.to_owned(),
    }
}

/// Whether pods are ready when a step is recorded is a matter of chance, and so is whether pods of a job that was evicted
/// are told to recover or to start again.
fn level_readiness(recorded: &mut Value, actual: &Value) {
    let position = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        conditions.and_then(|all| all.iter().position(|one| one["type"] == "PodsReady"))
    };
    let (Some(of_recorded), Some(of_actual)) = (position(recorded), position(actual)) else { return };
    recorded["status"]["conditions"][of_recorded] = actual["status"]["conditions"][of_actual].clone();
}

fn without_generations(mut object: Value) -> Value {
    for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
        condition.as_object_mut().map(|condition| condition.remove("observedGeneration"));
    }
    object
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is_ours(reporter: &str) -> bool {
    reporter.starts_with("kueue-") || reporter.ends_with("-kueue-controller")
}

/// The recorded events of the operator.
fn events(step: &Value) -> BTreeSet<String> {
    let all = step["events"].as_array().cloned().unwrap_or_default();
    let ours = all.iter().filter(|event| is_ours(plain(&event["reporter"])));
    ours.map(|event| {
        without_reporter(&format!(
            "{} {} {} {}",
            plain(&event["object"]),
            plain(&event["type"]),
            plain(&event["reason"]),
            plain(&event["message"])
        ))
    })
    .collect()
}

/// `Kind namespace/name`.
pub(crate) fn key(object: &Value) -> String {
    ObjectId::of(object).to_string()
}
