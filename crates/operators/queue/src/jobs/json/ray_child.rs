//! The RayCluster of an elastic RayJob or RayService. Its own autoscaler changes its size, and the job does not say so. As
//! `pkg/controller/jobs/raycluster/common.go` of Kueue.

use std::collections::BTreeMap;

use quintet_api::kueue::metadata::ELASTIC_JOB;
use quintet_api::kueue::v1beta2::PodSet;
use quintet_controller::{ApiKind, ObjectKey};
use quintet_queue_engine::settings::Gates;
use serde_json::Value;

use super::ray_cluster::{RayCluster, pod_count};
use super::{JsonJob, Reference, items, text};

/// Annotation of the job: the generation of its cluster.
const GENERATION: &str = "kueue.x-k8s.io/raycluster-generation";

fn is_elastic(job: &Value) -> bool {
    job["metadata"]["annotations"][ELASTIC_JOB] == "true"
}

/// The kind of the cluster.
pub(super) fn kind() -> ApiKind {
    ApiKind::of::<JsonJob<RayCluster>>()
}

/// The cluster of this name, as far as the job needs to know it.
pub(super) fn reference(job: &Value, name: &Value) -> Option<Reference> {
    let name = name.as_str().filter(|name| !name.is_empty() && is_elastic(job))?;
    Some(Reference { kind: kind(), key: ObjectKey::new(text(&job["metadata"]["namespace"]), name) })
}

/// The generation of the cluster, by which a change of its size is known as one of its job.
pub(super) fn annotations(job: &Value, cluster: Option<&Value>) -> BTreeMap<String, String> {
    let generation = cluster.and_then(|cluster| cluster["metadata"]["generation"].as_i64());
    let generation = generation.map_or_else(String::new, |generation| generation.to_string());
    is_elastic(job).then(|| (GENERATION.to_owned(), generation)).into_iter().collect()
}

/// The generations of a job and of its cluster.
pub(super) fn revision(job: &Value) -> String {
    let own = job["metadata"]["generation"].as_i64().unwrap_or_default();
    match text(&job["metadata"]["annotations"][GENERATION]) {
        "" => own.to_string(),
        of_cluster => format!("{own}_{of_cluster}"),
    }
}

/// Gives pod sets the size that the autoscaler of the cluster wants. The error is for users.
pub(super) fn resize(
    sets: &mut [PodSet],
    job: &Value,
    spec: &Value,
    cluster: Option<&Value>,
    gates: &Gates,
) -> Result<(), String> {
    let scales = gates.elastic_slices && is_elastic(job) && spec["enableInTreeAutoscaling"] == true;
    let Some(cluster) = cluster.filter(|_| scales) else { return Ok(()) };
    for group in items(&cluster["spec"]["workerGroupSpecs"]) {
        let name = text(&group["groupName"]);
        let set = sets.iter_mut().find(|set| set.name.as_deref() == Some(name.to_lowercase().as_str()));
        let Some(set) = set else {
            let (own, job) = (text(&cluster["metadata"]["name"]), text(&job["metadata"]["name"]));
            return Err(format!(
                "PodSet name mismatch: RayCluster {own} has worker group {name} which is not found in Ray object {job} spec"
            ));
        };
        if group["replicas"].is_i64() {
            set.count = Some(pod_count(group));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{JsonKind, RayJob, RayService};
    use super::*;

    fn job(autoscales: bool) -> Value {
        json!({ "metadata": { "name": "a", "namespace": "ns", "generation": 2,
                "annotations": { "kueue.x-k8s.io/elastic-job": "true" } },
            "spec": { "rayClusterSpec": { "enableInTreeAutoscaling": autoscales,
                "headGroupSpec": { "template": { "spec": { "containers": [] } } },
                "workerGroupSpecs": [{ "groupName": "Small", "replicas": 1, "template": {} },
                    { "groupName": "slices", "replicas": 1, "numOfHosts": 4, "template": {} }] } },
            "status": { "rayClusterName": "a-x" } })
    }

    fn cluster(groups: &Value) -> Value {
        json!({ "metadata": { "name": "a-x", "generation": 7 }, "spec": { "workerGroupSpecs": groups } })
    }

    fn counts(job: &Value, cluster: Option<Value>) -> Result<Vec<i32>, String> {
        let related: Vec<Value> = cluster.into_iter().collect();
        let sets = RayJob::pod_sets(job, &related, &Gates::default())?;
        Ok(sets.iter().filter_map(|set| set.count).collect())
    }

    #[test]
    fn the_autoscaler_of_the_cluster_says_how_many_workers_there_are() {
        let grown = || {
            cluster(
                &json!([{ "groupName": "Small", "replicas": 5 }, { "groupName": "slices", "numOfHosts": 4 }]),
            )
        };
        assert_eq!(counts(&job(true), None), Ok(vec![1, 1, 4]));
        assert_eq!(counts(&job(true), Some(grown())), Ok(vec![1, 5, 4]), "replicas may be missing");
        assert_eq!(counts(&job(false), Some(grown())), Ok(vec![1, 1, 4]), "it has no autoscaler");
        let other = cluster(&json!([{ "groupName": "other", "replicas": 5 }]));
        assert_eq!(
            counts(&job(true), Some(other)).unwrap_err(),
            "PodSet name mismatch: RayCluster a-x has worker group other which is not found in Ray object a spec"
        );
    }

    #[test]
    fn every_size_of_the_cluster_is_a_revision_of_the_job() {
        let mut job = job(true);
        assert_eq!(revision(&job), "2");
        let annotations = RayJob::annotations(&job, &[]);
        assert_eq!(annotations.get(GENERATION).map(String::as_str), Some(""));
        let annotations = RayJob::annotations(&job, &[cluster(&json!([]))]);
        assert_eq!(annotations.get(GENERATION).map(String::as_str), Some("7"));
        job["metadata"]["annotations"][GENERATION] = "7".into();
        assert_eq!(revision(&job), "2_7");
        job["metadata"]["annotations"] = json!({});
        assert!(RayJob::annotations(&job, &[cluster(&json!([]))]).is_empty(), "it is not elastic");
    }

    #[test]
    fn an_elastic_job_refers_to_its_cluster() {
        let names = |references: Vec<Reference>| -> Vec<String> {
            references.iter().map(|reference| reference.key.to_string()).collect()
        };
        assert_eq!(names(RayJob::references(&job(true))), ["ns/a-x"]);
        let mut service = job(true);
        assert!(RayService::references(&service).is_empty());
        service["status"] = json!({ "activeServiceStatus": { "rayClusterName": "a-y" } });
        assert_eq!(names(RayService::references(&service)), ["ns/a-y"]);
        service["metadata"]["annotations"] = json!({});
        assert!(RayService::references(&service).is_empty(), "it is not elastic");
    }

    #[test]
    fn groups_of_several_hosts_grow_only_as_a_whole() {
        assert_eq!(RayJob::min_counts(&job(true)), BTreeMap::from([("small".to_owned(), 1)]));
    }
}
