//! `ray.io` RayJobs: a cluster for the time of a job, and who submits it. As `pkg/controller/jobs/rayjob` of Kueue.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use k8s_openapi::api::core::v1::Container;
use quintet_api::kueue::v1beta2::PodSet;
use quintet_controller::ApiKind;
use quintet_queue_engine::settings::Gates;
use serde_json::{Value, json};

use super::ray_cluster::{
    check_cluster, has_ready, is_cluster_ready, min_counts_of, pod_count, pod_sets_of, roles_of,
};
use super::{
    Counts, JobEnd, JsonKind, KindNames, PodSetInfo, Ranks, Reference, Role, TopologyOrder, UpdateCheck,
    expect_infos, inject_into_roles, is_queued, names, pod_set, pod_set_info, ray_child, restore_roles, text,
};
use crate::settings::Settings;
use crate::validation::Errors;

pub(super) const SUBMITTER: &str = "submitter";
const SUBMITTER_CONTAINER: &str = "ray-job-submitter";

/// The kind.
#[derive(Clone, Debug)]
pub(in super::super) struct RayJob;

fn has_cluster_selector(job: &Value) -> bool {
    job["spec"]["clusterSelector"].as_object().is_some_and(|labels| !labels.is_empty())
}

/// Whether a Job of its own submits it.
fn has_submitter(job: &Value) -> bool {
    job["spec"]["submissionMode"] == "K8sJobMode"
}

/// As KubeRay makes it: requests and limits.
fn submitter_resources() -> Value {
    json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m", "memory": "200Mi" } })
}

/// The template of the submitter: that of the user, or the one that KubeRay makes.
fn submitter_template(job: &Value) -> Value {
    let own = &job["spec"]["submitterPodTemplate"];
    if !own.is_null() {
        return own.clone();
    }
    let head = &job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0];
    json!({ "spec": { "restartPolicy": "Never", "containers": [
        { "name": SUBMITTER_CONTAINER, "image": head["image"], "resources": submitter_resources() }] } })
}

fn submitter_role() -> Role {
    Role {
        name: SUBMITTER.to_owned(),
        count: 1,
        pointer: "/spec/submitterPodTemplate".to_owned(),
        path: "spec.submitterPodTemplate".to_owned(),
        ranks: Ranks::default(),
    }
}

impl JsonKind for RayJob {
    const NAMES: KindNames = names!("ray.io", "ray-io", "v1", "RayJob", "rayjob");
    const OMITS_SUSPEND: bool = true;
    const TAKES_ELASTIC: bool = true;
    const UPDATE: UpdateCheck = UpdateCheck::OfManaged;
    const TOPOLOGY_ORDER: TopologyOrder = TopologyOrder::Head;

    /// Those of the cluster. The submitter may have no template.
    fn roles(job: &Value) -> Vec<Role> {
        let cluster = &job["spec"]["rayClusterSpec"];
        if cluster.is_null() {
            return Vec::new();
        }
        roles_of(cluster, "/spec/rayClusterSpec", "spec.rayClusterSpec")
    }

    fn is_active(job: &Value) -> bool {
        !["", "Suspended"].contains(&text(&job["status"]["jobDeploymentStatus"]))
    }

    fn end(job: &Value) -> Option<JobEnd> {
        let status = &job["status"];
        ["Failed", "Complete"].contains(&text(&status["jobDeploymentStatus"])).then(|| JobEnd {
            succeeded: status["jobStatus"] == "SUCCEEDED",
            message: text(&status["message"]).to_owned(),
        })
    }

    fn is_ready(job: &Value) -> bool {
        is_cluster_ready(&job["status"]["rayClusterStatus"])
    }

    /// A job on a cluster that runs already needs no quota.
    fn is_managed(job: &Value) -> bool {
        !has_cluster_selector(job)
    }

    fn is_on_hold(job: &Value) -> bool {
        job["status"]["jobDeploymentStatus"] == "ValidationFailed"
    }

    fn related_kinds() -> Vec<ApiKind> {
        vec![ray_child::kind()]
    }

    fn references(job: &Value) -> Vec<Reference> {
        ray_child::reference(job, &job["status"]["rayClusterName"]).into_iter().collect()
    }

    fn revision(job: &Value) -> String {
        ray_child::revision(job)
    }

    /// It is not submitted before its cluster is complete: at its start, it needs all of it.
    fn min_counts(job: &Value) -> BTreeMap<String, i32> {
        min_counts_of(&job["spec"]["rayClusterSpec"], pod_count)
    }

    fn has_ready(job: &Value, counts: &Counts) -> bool {
        has_ready(&job["status"]["rayClusterStatus"], counts)
    }

    fn annotations(job: &Value, related: &[Value]) -> BTreeMap<String, String> {
        ray_child::annotations(job, related.first())
    }

    fn pod_sets(job: &Value, related: &[Value], gates: &Gates) -> Result<Vec<PodSet>, String> {
        let mut sets = pod_sets_of(job, &job["spec"]["rayClusterSpec"], &Self::roles(job), gates)?;
        if has_submitter(job) {
            let template = serde_json::from_value(submitter_template(job))
                .map_err(|error| format!("spec.submitterPodTemplate: {error}"))?;
            sets.push(pod_set(&submitter_role(), template, gates));
        } else if job["spec"]["submissionMode"] == "SidecarMode"
            && let Some(head) = sets.first_mut()
        {
            let resources =
                serde_json::from_value(submitter_resources()).map_err(|error| error.to_string())?;
            head.template.spec.get_or_insert_default().containers.push(Container {
                name: SUBMITTER_CONTAINER.to_owned(),
                resources: Some(resources),
                ..Container::default()
            });
        }
        ray_child::resize(&mut sets, job, &job["spec"]["rayClusterSpec"], related.first(), gates)?;
        Ok(sets)
    }

    fn inject(job: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
        let roles = Self::roles(job);
        let has_submitter = has_submitter(job);
        expect_infos(roles.len() + usize::from(has_submitter), infos)?;
        let (of_cluster, of_submitter) = infos.split_at(roles.len());
        inject_into_roles(job, &roles, of_cluster)?;
        for info in of_submitter {
            let mut template = submitter_template(job);
            info.inject_json(&mut template)?;
            job["spec"]["submitterPodTemplate"] = template;
        }
        Ok(())
    }

    fn restore(job: &mut Value, sets: &[PodSet]) {
        let roles = Self::roles(job);
        if sets.len() != roles.len() + usize::from(has_submitter(job)) {
            return;
        }
        let (of_cluster, of_submitter) = sets.split_at(roles.len());
        restore_roles(job, &roles, of_cluster);
        if let (Some(set), Some(template)) =
            (of_submitter.first(), job.pointer_mut("/spec/submitterPodTemplate"))
        {
            pod_set_info::restore_json(template, &set.template);
        }
    }

    fn check(job: &Value, settings: &Settings, errors: &mut Errors) -> ControlFlow<()> {
        if !is_queued(job, settings) {
            return ControlFlow::Continue(());
        }
        let spec = &job["spec"];
        match (has_cluster_selector(job), !spec["rayClusterSpec"].is_null()) {
            (true, true) => {
                let why = "a kueue managed job should not use an existing cluster";
                errors.invalid("spec.clusterSelector", &spec["clusterSelector"], why);
                return ControlFlow::Break(());
            }
            (true, false) => return ControlFlow::Break(()),
            (false, false) => {
                let why = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector";
                errors.required("spec.rayClusterSpec", why);
                return ControlFlow::Break(());
            }
            (false, true) => {}
        }
        if spec["shutdownAfterJobFinishes"] != true {
            let why = "a kueue managed job should delete the cluster after finishing";
            errors.invalid("spec.shutdownAfterJobFinishes", false, why);
        }
        check_cluster(job, &spec["rayClusterSpec"], "spec.rayClusterSpec", settings, errors);
        ControlFlow::Continue(())
    }
}
