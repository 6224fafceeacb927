//! What the server does to an object between decoding and validating it.

use serde_json::{Value, json};

use super::value::{fill, fill_text, is_set, object, text};
use super::{Kind, defaults};

/// Before an object is created: its status is not the client's, and its generation starts.
pub(super) fn create(kind: &Kind, new: &mut Value) {
    if kind.has_generation
        && let Some(Value::Object(metadata)) = object(new, "metadata")
    {
        metadata.insert("generation".into(), json!(1));
    }
    let initial = match (kind.group, kind.kind) {
        // Nodes register with their status.
        ("", "Node") => return,
        ("", "Pod") => {
            let qos = defaults::qos_class(new);
            let mut status = json!({ "phase": "Pending", "qosClass": qos });
            if !super::value::items(new, "/spec/schedulingGates").is_empty() {
                status["conditions"] = json!([{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates" }]);
            }
            Some(status)
        }
        ("", "Namespace") => {
            if let Some(spec) = object(new, "spec") {
                let has_finalizer = super::value::items(spec, "/finalizers")
                    .iter()
                    .any(|finalizer| finalizer == "kubernetes");
                if !has_finalizer {
                    fill(spec, "finalizers", json!([]));
                    if let Some(Value::Array(finalizers)) = spec.get_mut("finalizers") {
                        finalizers.push(json!("kubernetes"));
                    }
                }
            }
            Some(json!({ "phase": "Active" }))
        }
        ("", "PersistentVolumeClaim" | "PersistentVolume") => Some(json!({ "phase": "Pending" })),
        ("", "Service") | ("networking.k8s.io", "Ingress") => Some(json!({ "loadBalancer": {} })),
        ("apiextensions.k8s.io", _) => {
            let status = new.get("status").cloned().unwrap_or_default();
            Some(json!({ "acceptedNames": { "plural": "", "kind": "" }, "conditions": [],
                "storedVersions": status.get("storedVersions").cloned().unwrap_or_else(|| json!([])) }))
        }
        _ if kind.has_status() => Some(counts(kind)),
        _ => None,
    };
    if let (Some(status), Value::Object(fields)) = (initial, &mut *new) {
        fields.insert("status".into(), status);
    }
    match (kind.group, kind.kind) {
        ("batch", "Job") => job(new),
        ("", "PersistentVolumeClaim") => data_source(new),
        ("apps", "DaemonSet") => set_template_generation(new, template_generation(new).max(1)),
        _ => {}
    }
}

/// Where `apps/v1` keeps what older versions had as `spec.templateGeneration`.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(daemon_set: &Value) -> i64 {
    let annotations = daemon_set.pointer("/metadata/annotations");
    let annotation = annotations.and_then(|all| all.get(TEMPLATE_GENERATION)).and_then(Value::as_str);
    annotation.and_then(|generation| generation.parse().ok()).unwrap_or(0)
}

fn set_template_generation(daemon_set: &mut Value, generation: i64) {
    if let Some(metadata) = object(daemon_set, "metadata")
        && let Some(Value::Object(annotations)) = object(metadata, "annotations")
    {
        annotations.insert(TEMPLATE_GENERATION.into(), generation.to_string().into());
    }
}

/// The two ways to name what a volume is filled from say the same; `dataSource` can only name claims and snapshots.
fn data_source(new: &mut Value) {
    let Some(Value::Object(spec)) = object(new, "spec") else { return };
    let is_old_kind = |source: &Value| {
        matches!(
            (text(source, "/apiGroup"), text(source, "/kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    if spec.get("dataSource").is_some_and(|source| !is_old_kind(source)) {
        spec.remove("dataSource");
    }
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => drop(spec.insert("dataSourceRef".into(), source)),
        (None, Some(source)) if source.get("namespace").is_none() && is_old_kind(&source) => {
            drop(spec.insert("dataSource".into(), source));
        }
        _ => {}
    }
}

/// The initial status: its required counts are zero.
fn counts(kind: &Kind) -> Value {
    let required: &[&str] = match (kind.group, kind.kind) {
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &["replicas"],
        ("apps", "StatefulSet") => &["availableReplicas", "replicas"],
        ("apps", "DaemonSet") => {
            &["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"]
        }
        ("policy", "PodDisruptionBudget") => {
            &["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"]
        }
        ("autoscaling", "HorizontalPodAutoscaler") => &["desiredReplicas"],
        _ => &[],
    };
    required.iter().map(|name| ((*name).to_owned(), json!(0))).collect()
}

/// Jobs select their pods by their own uid, which the server has just given out.
fn job(new: &mut Value) {
    let (uid, name) = (text(new, "/metadata/uid").to_owned(), text(new, "/metadata/name").to_owned());
    if new.pointer("/spec/manualSelector") == Some(&json!(true)) || uid.is_empty() {
        return;
    }
    let labels = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    let had_labels = is_set(new, "/metadata/labels");
    if let Some(spec) = object(new, "spec") {
        if let Some(template) = object(spec, "template")
            && let Some(metadata) = object(template, "metadata")
            && let Some(Value::Object(all)) = object(metadata, "labels")
        {
            for (key, value) in labels {
                all.insert(key.into(), json!(value));
            }
        }
        if let Some(selector) = object(spec, "selector")
            && let Some(Value::Object(all)) = object(selector, "matchLabels")
        {
            all.insert("batch.kubernetes.io/controller-uid".into(), json!(uid));
        }
    }
    if !had_labels && let Some(metadata) = object(new, "metadata") {
        let all: serde_json::Map<String, Value> =
            labels.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
        fill(metadata, "labels", Value::Object(all));
    }
}

/// Before an update of the main resource: status stays, and the generation counts.
pub(super) fn update(kind: &Kind, new: &mut Value, old: &Value) {
    if kind.has_status() {
        keep(new, old, "status");
    }
    match (kind.group, kind.kind) {
        ("", "Namespace") => {
            if let (Some(finalizers), Some(spec)) =
                (old.pointer("/spec/finalizers").cloned(), object(new, "spec"))
                && let Value::Object(fields) = spec
            {
                fields.insert("finalizers".into(), finalizers);
            }
        }
        ("", "PersistentVolumeClaim") => data_source(new),
        // Only the server counts templates: what the client says is replaced.
        ("apps", "DaemonSet") => {
            let is_new = new.pointer("/spec/template") != old.pointer("/spec/template");
            let before = template_generation(old);
            set_template_generation(new, before.saturating_add(i64::from(is_new)));
        }
        ("", "Secret") => {
            if let Value::Object(fields) = new {
                fields.remove("stringData");
            }
        }
        ("", "Service") => {
            let kind = text(new, "/spec/type").to_owned();
            if let Some(spec) = object(new, "spec") {
                // An address once given stays, also for clients that do not send it back.
                if kind != "ExternalName" && !is_set(spec, "/clusterIP") {
                    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                        if let Some(value) = old.pointer(&format!("/spec/{field}")) {
                            fill(spec, field, value.clone());
                        }
                    }
                    fill_text(spec, "clusterIP", text(old, "/spec/clusterIP"));
                }
            }
        }
        _ => {}
    }
    generation(kind, new, old);
}

/// Before an update of the status: everything else stays.
pub(super) fn update_status(kind: &Kind, new: &mut Value, old: &Value) {
    let Value::Object(old_fields) = old else { return };
    if let Value::Object(fields) = new {
        fields.retain(|name, _| matches!(name.as_str(), "status" | "metadata" | "apiVersion" | "kind"));
        for (name, value) in old_fields {
            if name != "status" && name != "metadata" {
                fields.insert(name.clone(), value.clone());
            }
        }
    }
    // Labels and owners belong to the main resource; annotations and finalizers may travel with a status.
    let is_free = matches!((kind.group, kind.kind), ("", "Node" | "Pod"));
    if let Some(Value::Object(metadata)) = object(new, "metadata") {
        for name in ["labels", "ownerReferences"] {
            if is_free && name == "labels" {
                continue;
            }
            match old.pointer(&format!("/metadata/{name}")) {
                Some(value) => {
                    metadata.insert(name.into(), value.clone());
                }
                None => {
                    metadata.remove(name);
                }
            }
        }
        match old.pointer("/metadata/generation") {
            Some(value) => metadata.insert("generation".into(), value.clone()),
            None => metadata.remove("generation"),
        };
    }
}

fn keep(new: &mut Value, old: &Value, name: &str) {
    if let Value::Object(fields) = new {
        match old.get(name) {
            Some(value) => {
                fields.insert(name.into(), value.clone());
            }
            None => {
                fields.remove(name);
            }
        }
    }
}

fn generation(kind: &Kind, new: &mut Value, old: &Value) {
    let before = old.pointer("/metadata/generation").and_then(Value::as_i64);
    let is_new = kind.is_new_generation(old, new);
    if let Some(Value::Object(metadata)) = object(new, "metadata") {
        match before {
            Some(before) => {
                metadata.insert("generation".into(), json!(before.saturating_add(i64::from(is_new))));
            }
            None => {
                metadata.remove("generation");
            }
        }
    }
}
