//! LeaderWorkerSets: the pods of every group wait together. As
//! `pkg/controller/jobs/leaderworkerset/leaderworkerset_webhook.go` of Kueue.

use quintet_api::kueue::metadata::{
    POD_GROUP_SERVING, POD_INDEX_OFFSET, POD_SUSPENDING_PARENT, PRIORITY_CLASS, QUEUE_NAME,
};
use quintet_controller::webhook::Verdict;
use serde_json::Value;

use super::super::json::TopologyOrder;
use super::super::leader_worker_set as lws;
use super::defaulting::{default_labels, label, put, waits};
use super::stateful_set::shape;
use super::{Facts, Kind, Template, serving, templates};
use crate::settings::{LEADER_WORKER_SET, Settings};
use crate::validation::Errors;

const GROUP: &str = "kueue.x-k8s.io/podset-group-name";
const MAX_REPLICAS: i64 = 1_000_000;

pub(super) const KIND: Kind = Kind {
    group: lws::GROUP,
    version: lws::VERSION,
    name: lws::KIND,
    resource: "leaderworkersets",
    mutating: "mleaderworkerset.kb.io",
    validating: "vleaderworkerset.kb.io",
    mutate_path: "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset",
    validate_path: "/validate-leaderworkerset-x-k8s-io-v1-leaderworkerset",
    mutates: &["CREATE", "UPDATE"],
    is_enabled: |settings| settings.is_enabled(LEADER_WORKER_SET),
    default,
    validate,
    is_suspended: |_| false,
    takes_prebuilt: false,
    takes_elastic: false,
    related_kinds: Vec::new,
    references: |_| Vec::new(),
};

/// The templates of leaders and workers: the field, and whether there is one.
fn fields(object: &Value) -> impl Iterator<Item = &'static str> + use<> {
    let has_leader = !object["spec"]["leaderWorkerTemplate"]["leaderTemplate"].is_null();
    has_leader.then_some("leaderTemplate").into_iter().chain(["workerTemplate"])
}

fn default(object: &mut Value, facts: &Facts, settings: &Settings) -> Result<(), String> {
    default_labels(object, facts);
    if !waits(object, facts, settings)? {
        return Ok(());
    }
    let copied = [QUEUE_NAME, PRIORITY_CLASS].map(|name| (name, label(object, name).map(str::to_owned)));
    let has_leader = fields(object).count() > 1;
    for field in fields(object) {
        let metadata = &mut object["spec"]["leaderWorkerTemplate"][field]["metadata"];
        for (name, value) in &copied {
            if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) {
                put(&mut metadata["labels"], name, value);
            }
        }
        let annotations = &mut metadata["annotations"];
        put(annotations, POD_SUSPENDING_PARENT, LEADER_WORKER_SET);
        put(annotations, POD_GROUP_SERVING, "true");
        // The leader is the first of its group. Groups of pod sets take care of that themselves.
        let is_worker = field == "workerTemplate" && has_leader;
        if settings.scheduling.tas && is_worker && annotations[GROUP].is_null() {
            put(annotations, POD_INDEX_OFFSET, "1");
        }
    }
    Ok(())
}

fn validate(object: &Value, old: Option<&Value>, kind: &Kind, facts: &Facts, settings: &Settings) -> Verdict {
    let mut errors = Errors::default();
    serving::check_state(object, kind, settings, &mut errors);
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
    if replicas < 0 {
        let why = format!("invalid LeaderWorkerSet replicas: must be >= 0, got {replicas}");
        errors.invalid("spec.replicas", replicas, why);
    } else if replicas > MAX_REPLICAS {
        let why = format!("invalid LeaderWorkerSet replicas: must be <= {MAX_REPLICAS}, got {replicas}");
        errors.invalid("spec.replicas", replicas, why);
    }
    super::validation::gates(object, settings, &mut errors);
    match topology_requests(object, settings) {
        Ok(found) => errors.add(found, ""),
        Err(why) => return Verdict::deny(why),
    }
    if let Some(old) = old {
        serving::check_change(object, old, settings, &mut errors);
        match waits(object, facts, settings) {
            Ok(false) => {}
            Ok(true) => immutable(object, old, settings, &mut errors),
            Err(why) => return Verdict::deny(why),
        }
    }
    errors.verdict()
}

fn topology_requests(object: &Value, settings: &Settings) -> Result<Errors, String> {
    if !settings.scheduling.tas {
        return Ok(Errors::default());
    }
    let templates = &object["spec"]["leaderWorkerTemplate"];
    let size = templates["size"].as_i64().unwrap_or(1);
    let has_leader = fields(object).count() > 1;
    let asks: Vec<Template<'_>> = fields(object)
        .map(|field| {
            let count = match (field, has_leader) {
                ("leaderTemplate", _) => 1,
                (_, true) => size - 1,
                (_, false) => size,
            };
            Template::at(&format!("spec.leaderWorkerTemplate.{field}"), &templates[field], count)
        })
        .collect();
    templates::check(&asks, TopologyOrder::Templates, true, &settings.scheduling)
}

/// What the Workloads were admitted for does not change.
fn immutable(new: &Value, old: &Value, settings: &Settings, errors: &mut Errors) {
    let [new, old] = [new, old].map(|object| &object["spec"]["leaderWorkerTemplate"]);
    for field in ["leaderTemplate", "workerTemplate"] {
        let path = format!("spec.leaderWorkerTemplate.{field}");
        if new[field].is_null() || old[field].is_null() {
            errors.immutable(path, &new[field], &old[field]);
        } else {
            shape(&new[field]["spec"], &old[field]["spec"], &format!("{path}.spec"), errors);
        }
    }
    if settings.gates.immutable_group_size {
        let size = |templates: &Value| templates["size"].as_i64().unwrap_or(1);
        errors.immutable("spec.leaderWorkerTemplate.size", &size(new), &size(old));
    }
}
