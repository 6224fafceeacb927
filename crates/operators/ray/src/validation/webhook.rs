//! What the webhooks of Ray's kinds refuse: names only, as KubeRay's `pkg/webhooks/v1` does. The rest is
//! reported in events and status.

use quintet_api::ray::v1::{RayCluster, RayJob, RayService};
use quintet_controller::webhook::{Routes, Verdict as Answer};

use super::Verdict;
use crate::{
    raycluster::validation as raycluster, rayjob::validation as rayjob, rayservice::validation as rayservice,
};

/// Where RayClusters are checked.
pub const RAY_CLUSTER_PATH: &str = "/validate-ray-io-v1-raycluster";

/// Where RayJobs are checked.
pub const RAY_JOB_PATH: &str = "/validate-ray-io-v1-rayjob";
/// Where RayServices are checked.
pub const RAY_SERVICE_PATH: &str = "/validate-ray-io-v1-rayservice";

/// Validates RayClusters at [`RAY_CLUSTER_PATH`].
pub(crate) fn add_ray_cluster(routes: Routes) -> Routes {
    routes.validate::<RayCluster, _>(RAY_CLUSTER_PATH, |asked| answer(ray_cluster(&asked.object)))
}

/// Validates RayJobs at [`RAY_JOB_PATH`].
pub(crate) fn add_ray_job(routes: Routes) -> Routes {
    routes.validate::<RayJob, _>(RAY_JOB_PATH, |asked| answer(ray_job(&asked.object)))
}

/// Validates RayServices at [`RAY_SERVICE_PATH`].
pub(crate) fn add_ray_service(routes: Routes) -> Routes {
    routes.validate::<RayService, _>(RAY_SERVICE_PATH, |asked| answer(ray_service(&asked.object)))
}

fn answer(verdict: Verdict) -> Answer {
    verdict.map_or_else(Answer::deny, |()| Answer::allow())
}

/// The verdict on a RayCluster that is created or changed: its name, and those of its groups.
pub fn ray_cluster(object: &RayCluster) -> Verdict {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    raycluster::validate_metadata(object).map_err(|error| invalid("RayCluster", name, &error))?;
    raycluster::validate_group_names(&object.spec).map_err(|(index, error)| {
        let groups = object.spec.worker_group_specs.as_deref().unwrap_or_default();
        let group = groups.get(index).map_or("", |group| &group.group_name);
        let field = format!("spec.workerGroupSpecs[{index}]");
        format!("RayCluster.ray.io {name:?} is invalid: {field}: Invalid value: {group:?}: {error}")
    })
}

/// The verdict on a RayJob that is created or changed.
pub fn ray_job(object: &RayJob) -> Verdict {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    rayjob::validate_metadata(object).map_err(|error| invalid("RayJob", name, &error))
}

/// The verdict on a RayService that is created or changed.
pub fn ray_service(object: &RayService) -> Verdict {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    rayservice::validate_metadata(object).map_err(|error| invalid("RayService", name, &error))
}

/// The words of the API server for a field that is wrong.
fn invalid(kind: &str, name: &str, error: &str) -> String {
    format!("{kind}.ray.io {name:?} is invalid: metadata.name: Invalid value: {name:?}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_cluster_have_names_of_their_own() {
        let group = serde_json::json!({"groupName": "a", "template": {}});
        let cluster: RayCluster = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "demo"},
            "spec": {"headGroupSpec": {"template": {}}, "workerGroupSpecs": [group, group]},
        }))
        .unwrap();
        let error = ray_cluster(&cluster).unwrap_err();
        assert!(
            error.contains(
                "spec.workerGroupSpecs[1]: Invalid value: \"a\": worker group names must be unique"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_in_the_api_servers_words() {
        let name = "n".repeat(48);
        let mut job = RayJob::default();
        job.metadata.name = Some(name.clone());
        let error = ray_job(&job).unwrap_err();
        assert!(error.starts_with(&format!("RayJob.ray.io {name:?} is invalid: metadata.name: ")), "{error}");
        job.metadata.name = Some("train".to_owned());
        job.spec.backoff_limit = Some(-1);
        assert_eq!(ray_job(&job), Ok(()), "a wrong spec is told in the status");
        let mut service = RayService::default();
        service.metadata.name = Some("Chat".to_owned());
        assert!(ray_service(&service).unwrap_err().contains("DNS1035"));
    }
}
