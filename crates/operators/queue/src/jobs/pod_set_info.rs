//! What is injected into the pods of an admitted job, and how it is taken out again.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSchedulingGate, PodTemplateSpec, Toleration};
use quintet_api::kueue::metadata::{
    CLUSTER_QUEUE_NAME, LOCAL_QUEUE_NAME, MULTIKUEUE_ORIGIN, MULTIKUEUE_WORKER_POD, POD_SET, TOPOLOGY_GATE,
    WORKLOAD,
};
use quintet_api::kueue::v1beta2::{CheckState, PodSetAssignment, PodSetUpdate, ResourceFlavor, Workload};
use quintet_api::names::is_dns_label;
use serde_json::{Value, json};

use super::slices::{self, SLICE_NAME};
use super::topology_request::{PREFERRED, REQUIRED, UNCONSTRAINED};
use crate::settings::Settings;

type Texts = BTreeMap<String, String>;

/// What the pods of a pod set get.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSetInfo {
    pub(super) name: String,
    pub(super) count: i32,
    labels: Texts,
    annotations: Texts,
    node_selector: Texts,
    tolerations: Vec<Toleration>,
    pub(super) is_placed: bool,
    /// Whether its Workload asks for a topology.
    asks_topology: bool,
}

/// What every pod set of an admitted Workload gets. The error is for users: two sources want different values.
pub(super) fn of_workload(
    workload: &Workload,
    flavors: &BTreeMap<String, ResourceFlavor>,
    settings: &Settings,
) -> Result<Vec<PodSetInfo>, String> {
    let status = workload.status.as_ref();
    let Some(admission) = status.and_then(|status| status.admission.as_ref()) else {
        return Err("the workload has no admission".to_owned());
    };
    let assignments = admission.pod_set_assignments.as_deref().unwrap_or_default();
    let sets = workload.spec.pod_sets.as_deref().unwrap_or_default();
    if assignments.len() != sets.len() {
        return Err(format!(
            "invalid podset infos: the workload has {} pod sets and {} assignments",
            sets.len(),
            assignments.len()
        ));
    }
    let queue = admission.cluster_queue.as_deref().unwrap_or_default();
    let mut infos = Vec::new();
    for assignment in assignments {
        let mut info = of_assignment(assignment, flavors);
        info.labels.insert(POD_SET.to_owned(), info.name.clone());
        let set = sets.iter().find(|set| set.name == assignment.name);
        info.asks_topology = set.and_then(|set| set.topology_request.as_ref()).is_some_and(|request| {
            request.required.is_some() || request.preferred.is_some() || request.unconstrained.is_some()
        });
        if settings.scheduling.tas {
            let name = workload.metadata.name.clone().unwrap_or_default();
            info.annotations.insert(WORKLOAD.to_owned(), name);
        }
        if slices::is_elastic(&workload.metadata, settings) {
            let first = slices::first_of(workload).to_owned();
            info.annotations.insert(SLICE_NAME.to_owned(), first);
        }
        if workload.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MULTIKUEUE_ORIGIN)) {
            info.labels.insert(MULTIKUEUE_WORKER_POD.to_owned(), "true".to_owned());
        }
        if settings.gates.assign_queue_labels {
            let local_queue = workload.spec.queue_name.clone().unwrap_or_default();
            info.labels.insert(LOCAL_QUEUE_NAME.to_owned(), local_queue);
            if is_dns_label(queue) {
                info.labels.insert(CLUSTER_QUEUE_NAME.to_owned(), queue.to_owned());
            }
        }
        let checks = status.into_iter().flat_map(|status| status.admission_checks.iter().flatten());
        for check in checks.filter(|check| check.state == CheckState::Ready) {
            let updates = check.pod_set_updates.iter().flatten();
            for update in updates.filter(|update| Some(&update.name) == assignment.name.as_ref()) {
                info.update(update)
                    .map_err(|conflict| format!("in admission check {:?}: {conflict}", check.name))?;
            }
        }
        infos.push(info);
    }
    Ok(infos)
}

/// What the pods of a pod set get of the flavors that it was assigned.
pub(crate) fn of_assignment(
    assignment: &PodSetAssignment,
    flavors: &BTreeMap<String, ResourceFlavor>,
) -> PodSetInfo {
    let mut info = PodSetInfo {
        count: assignment.count.unwrap_or_default(),
        name: assignment.name.clone().unwrap_or_default(),
        is_placed: assignment.topology_assignment.is_some(),
        ..PodSetInfo::default()
    };
    let mut assigned: Vec<&String> = assignment.flavors.iter().flatten().map(|(_, flavor)| flavor).collect();
    assigned.sort();
    assigned.dedup();
    for flavor in assigned.into_iter().filter_map(|name| flavors.get(name)) {
        info.node_selector.extend(flavor.spec.node_labels.clone().unwrap_or_default());
        add_tolerations(&mut info.tolerations, flavor.spec.tolerations.iter().flatten());
    }
    info
}

impl PodSetInfo {
    fn update(&mut self, update: &PodSetUpdate) -> Result<(), String> {
        merge("labels", &mut self.labels, update.labels.as_ref())?;
        merge("annotations", &mut self.annotations, update.annotations.as_ref())?;
        merge("nodeSelector", &mut self.node_selector, update.node_selector.as_ref())?;
        add_tolerations(&mut self.tolerations, update.tolerations.iter().flatten());
        Ok(())
    }

    /// Injects it into a template.
    pub(crate) fn inject(&self, template: &mut PodTemplateSpec) -> Result<(), String> {
        let metadata = template.metadata.get_or_insert_default();
        if let Some(annotations) = metadata.annotations.as_mut()
            && self.annotations.contains_key(SLICE_NAME)
        {
            // Templates of an elastic job keep them from slices before.
            annotations.retain(|name, _| name != SLICE_NAME && name != WORKLOAD);
        }
        merge("annotations", metadata.annotations.get_or_insert_default(), Some(&self.annotations))?;
        merge("labels", metadata.labels.get_or_insert_default(), Some(&self.labels))?;
        let spec = template.spec.get_or_insert_default();
        if !self.node_selector.is_empty() {
            merge("nodeSelector", spec.node_selector.get_or_insert_default(), Some(&self.node_selector))?;
        }
        if !self.tolerations.is_empty() {
            add_tolerations(spec.tolerations.get_or_insert_default(), &self.tolerations);
        }
        if self.is_placed {
            let gates = spec.scheduling_gates.get_or_insert_default();
            if !gates.iter().any(|gate| gate.name == TOPOLOGY_GATE) {
                gates.push(PodSchedulingGate { name: TOPOLOGY_GATE.to_owned() });
            }
            let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
            let is_requested =
                [REQUIRED, PREFERRED, UNCONSTRAINED].iter().any(|name| annotations.contains_key(*name));
            if !is_requested {
                annotations.insert(UNCONSTRAINED.to_owned(), "true".to_owned());
            }
        }
        Ok(())
    }
}

/// Templates that are read and written as JSON, so that fields this version does not know stay as they are.
impl PodSetInfo {
    /// Injects it into a template.
    pub(super) fn inject_json(&self, template: &mut Value) -> Result<(), String> {
        let mut part = part_of(template)?;
        self.inject(&mut part)?;
        write_part(template, &part);
        Ok(())
    }

    /// What a controller that injects it itself is told.
    pub(super) fn to_json(&self) -> Value {
        let mut annotations = self.annotations.clone();
        if self.is_placed && !self.asks_topology {
            annotations.insert(UNCONSTRAINED.to_owned(), "true".to_owned());
        }
        let mut info = json!({});
        let mut put = |name: &str, value: Value, is_empty: bool| {
            if !is_empty {
                info[name] = value;
            }
        };
        put("annotations", json!(annotations), annotations.is_empty());
        put("labels", json!(self.labels), self.labels.is_empty());
        put("nodeSelector", json!(self.node_selector), self.node_selector.is_empty());
        put("tolerations", json!(self.tolerations), self.tolerations.is_empty());
        put("schedulingGates", json!([{ "name": TOPOLOGY_GATE }]), !self.is_placed);
        info
    }
}

/// As [`restore`].
pub(super) fn restore_json(template: &mut Value, original: &PodTemplateSpec) {
    let Ok(mut part) = part_of(template) else { return };
    restore(&mut part, original, Texts::new());
    write_part(template, &part);
}

/// The fields of a template that are injected.
const INJECTED: [(&str, &str); 5] = [
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec", "nodeSelector"),
    ("spec", "tolerations"),
    ("spec", "schedulingGates"),
];

fn part_of(template: &Value) -> Result<PodTemplateSpec, String> {
    let mut part = json!({ "metadata": {}, "spec": {} });
    for (section, field) in INJECTED {
        part[section][field] = template[section][field].clone();
    }
    serde_json::from_value(part).map_err(|error| format!("invalid podset infos: {error}"))
}

fn write_part(template: &mut Value, part: &PodTemplateSpec) {
    let part = serde_json::to_value(part).unwrap_or_default();
    for (section, field) in INJECTED {
        let value = &part[section][field];
        let is_empty = match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => true,
        };
        if !is_empty {
            template[section][field] = value.clone();
        } else if let Some(fields) = template[section].as_object_mut() {
            fields.remove(field);
        }
    }
}

fn merge(what: &str, into: &mut Texts, from: Option<&Texts>) -> Result<(), String> {
    for (key, value) in from.into_iter().flatten() {
        if let Some(known) = into.get(key).filter(|known| *known != value) {
            return Err(format!(
                "invalid admission check PodSetUpdate: conflict for {what}: conflict for key={key}, value1={known}, value2={value}"
            ));
        }
        into.insert(key.clone(), value.clone());
    }
    Ok(())
}

fn add_tolerations<'t>(into: &mut Vec<Toleration>, from: impl IntoIterator<Item = &'t Toleration>) {
    for toleration in from {
        if !into.contains(toleration) {
            into.push(toleration.clone());
        }
    }
}

/// Restores a template from the one of the Workload, which is as it was before the start, and keeps these labels.
pub(super) fn restore(template: &mut PodTemplateSpec, original: &PodTemplateSpec, kept: Texts) {
    let of = |template: &PodTemplateSpec| template.metadata.clone().unwrap_or_default();
    let metadata = template.metadata.get_or_insert_default();
    let mut labels = of(original).labels.unwrap_or_default();
    labels.extend(kept);
    metadata.labels = (!labels.is_empty()).then_some(labels);
    metadata.annotations = of(original).annotations.filter(|annotations| !annotations.is_empty());
    let spec = template.spec.get_or_insert_default();
    let was = original.spec.clone().unwrap_or_default();
    spec.node_selector = was.node_selector;
    spec.tolerations = was.tolerations;
    spec.scheduling_gates = was.scheduling_gates;
}
