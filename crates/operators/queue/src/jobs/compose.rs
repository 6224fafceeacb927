//! The Workload of a job.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use quintet_api::kueue::metadata::{
    ADMISSION_GATED_BY, JOB_UID, MAX_EXEC_TIME_SECONDS, PROVISIONING_PREFIX, QUEUE_NAME, RESOURCE_IN_USE,
};
use quintet_api::kueue::v1beta2::{PodSet, Workload, WorkloadSpec};
use quintet_api::names;
use serde_json::Value;

use super::priority::Priority;
use super::{JobKind, admission_gates};
use crate::settings::Settings;

/// Room for `-` and five digits in a name of at most 253 characters.
const MAX_PREFIX: usize = 247;
/// The same for names that fit into a label.
const MAX_SHORT_PREFIX: usize = 57;

/// The name of the Workload of an owner. As `GetWorkloadNameForOwnerWithGVK` of Kueue.
pub(crate) fn workload_name(kind: &str, group: &str, name: &str, uid: &str, settings: &Settings) -> String {
    let prefix = format!("{}-{name}", kind.to_lowercase());
    let hash = names::short_hash(&format!("{kind}\n{group}\n{name}\n{uid}"), 5);
    format!("{}-{hash}", names::head(&prefix, max_name_prefix(settings)))
}

/// How long the name of a Workload may be without its hash.
pub(crate) fn max_name_prefix(settings: &Settings) -> usize {
    if settings.gates.short_workload_names { MAX_SHORT_PREFIX } else { MAX_PREFIX }
}

/// The value of a label.
pub(crate) fn label<'m>(metadata: &'m ObjectMeta, name: &str) -> Option<&'m str> {
    metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// The value of an annotation.
pub(crate) fn annotation<'m>(metadata: &'m ObjectMeta, name: &str) -> Option<&'m str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// How long a job may run, by its label. The webhook refuses what is not a number.
pub(crate) fn max_execution_time(metadata: &ObjectMeta) -> Option<i32> {
    label(metadata, MAX_EXEC_TIME_SECONDS)?.parse().ok()
}

/// What the job runs, as a Workload has it.
pub(super) fn pod_sets<J: JobKind>(
    job: &J,
    related: &[Value],
    settings: &Settings,
) -> Result<Vec<PodSet>, String> {
    let mut sets = job.pod_sets(&settings.scheduling, related)?;
    for set in &mut sets {
        clean(&mut set.template);
    }
    Ok(sets)
}

/// Keeps of the metadata what a Workload has, and of equal variables the last, at the place of the first. Ports and probes get
/// the defaults of the schema, so that a Workload equals what it was made of.
pub(crate) fn clean(template: &mut PodTemplateSpec) {
    let metadata = template.metadata.take().unwrap_or_default();
    let has_some = |texts: &BTreeMap<String, String>| !texts.is_empty();
    template.metadata = Some(ObjectMeta {
        labels: metadata.labels.filter(has_some),
        annotations: metadata.annotations.filter(has_some),
        ..ObjectMeta::default()
    });
    let Some(spec) = &mut template.spec else { return };
    let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
    for container in containers {
        if let Some(env) = &mut container.env {
            collapse(env);
        }
        for port in container.ports.iter_mut().flatten() {
            port.protocol.get_or_insert_with(|| "TCP".to_owned());
        }
        let probes =
            [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
        for grpc in probes.into_iter().flatten().filter_map(|probe| probe.grpc.as_mut()) {
            grpc.service.get_or_insert_default();
        }
    }
}

fn collapse(env: &mut Vec<EnvVar>) {
    let mut kept: Vec<EnvVar> = Vec::with_capacity(env.len());
    for variable in env.drain(..) {
        match kept.iter_mut().find(|known| known.name == variable.name) {
            Some(known) => *known = variable,
            None => kept.push(variable),
        }
    }
    *env = kept;
}

/// The owner reference to a job that controls its Workload.
pub(super) fn owner_reference<J: JobKind>(job: &J, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: J::api_version(&()).into_owned(),
        kind: J::kind(&()).into_owned(),
        name: job.meta().name.clone().unwrap_or_default(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A Workload for a job that has none.
pub(super) fn workload<J: JobKind>(
    job: &J,
    uid: &str,
    pod_sets: Vec<PodSet>,
    priority: &Priority,
    settings: &Settings,
) -> Workload {
    let metadata = job.meta();
    let name = metadata.name.clone().unwrap_or_default();
    let mut labels = labels(metadata, settings);
    labels.insert(JOB_UID.to_owned(), uid.to_owned());
    Workload {
        metadata: ObjectMeta {
            name: Some(workload_name(&J::kind(&()), &J::group(&()), &name, uid, settings)),
            namespace: metadata.namespace.clone(),
            labels: Some(labels),
            annotations: annotations(metadata, settings),
            finalizers: Some(vec![RESOURCE_IN_USE.to_owned()]),
            owner_references: Some(vec![owner_reference(job, uid)]),
            ..ObjectMeta::default()
        },
        spec: spec(metadata, pod_sets, priority),
        status: None,
    }
}

/// The spec of a Workload that runs these pods in the queue that the metadata of its job names.
pub(super) fn spec(metadata: &ObjectMeta, pod_sets: Vec<PodSet>, priority: &Priority) -> WorkloadSpec {
    WorkloadSpec {
        pod_sets: Some(pod_sets),
        queue_name: label(metadata, QUEUE_NAME).map(str::to_owned),
        priority: Some(priority.value),
        priority_class_ref: priority.class.clone(),
        maximum_execution_time_seconds: max_execution_time(metadata),
        ..WorkloadSpec::default()
    }
}

/// Labels of a job that its Workload has, too.
pub(crate) fn labels(metadata: &ObjectMeta, settings: &Settings) -> BTreeMap<String, String> {
    let copied = settings.labels_to_copy().filter_map(|key| Some((key, label(metadata, key)?)));
    copied.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Annotations of a job that its Workload has, too.
pub(crate) fn annotations(metadata: &ObjectMeta, settings: &Settings) -> Option<BTreeMap<String, String>> {
    let own = metadata.annotations.iter().flatten();
    let gates = admission_gates::gates(metadata, settings);
    let copied: BTreeMap<String, String> = own
        .filter(|(name, _)| {
            name.starts_with(PROVISIONING_PREFIX) || settings.annotations_to_copy().any(|key| key == *name)
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .chain(gates.map(|gates| (ADMISSION_GATED_BY.to_owned(), gates.to_owned())))
        .collect();
    (!copied.is_empty()).then_some(copied)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn workload_names_are_those_of_kueue_and_fit() {
        let settings = Settings::default();
        let name = workload_name("Job", "batch", "a", "uid", &settings);
        assert!(name.starts_with("job-a-") && name.len() == "job-a-".len() + 5, "{name}");
        let long = workload_name("Job", "batch", &"n".repeat(253), "uid", &settings);
        assert_eq!(long.len(), 253);
        let mut short = Settings::default();
        short.gates.short_workload_names = true;
        assert_eq!(workload_name("Job", "batch", &"n".repeat(253), "uid", &short).len(), 63);
    }

    #[test]
    fn probes_have_the_default_of_the_schema() {
        let mut template: PodTemplateSpec = serde_json::from_value(json!({ "spec": { "containers": [
            { "name": "c", "livenessProbe": { "grpc": { "port": 1 } } }] } }))
        .unwrap();
        clean(&mut template);
        let probe = template.spec.unwrap().containers.remove(0).liveness_probe.unwrap();
        assert_eq!(probe.grpc.unwrap().service.as_deref(), Some(""));
    }

    #[test]
    fn of_equal_variables_the_last_counts_at_the_place_of_the_first() {
        let mut template: PodTemplateSpec =
            serde_json::from_value(json!({ "spec": { "containers": [{ "name": "c",
            "env": [{ "name": "a", "value": "1" }, { "name": "b" }, { "name": "a", "value": "2" }] }] } }))
            .unwrap();
        clean(&mut template);
        let env = template.spec.unwrap().containers[0].env.clone().unwrap();
        let found: Vec<_> = env.iter().map(|own| (own.name.as_str(), own.value.as_deref())).collect();
        assert_eq!(found, [("a", Some("2")), ("b", None)]);
    }
}
