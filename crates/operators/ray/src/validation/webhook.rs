//! What the webhooks of RayJobs and RayServices refuse: names only, as upstream's do. The rest is told in the status.

use quintet_api::ray::v1::{RayJob, RayService};

use super::{Verdict, job, service};

/// Where RayJobs are checked.
pub const RAY_JOB_PATH: &str = "/validate-ray-io-v1-rayjob";
/// Where RayServices are checked.
pub const RAY_SERVICE_PATH: &str = "/validate-ray-io-v1-rayservice";

/// The verdict on a RayJob that is created or changed.
pub fn ray_job(object: &RayJob) -> Verdict {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    job::validate_metadata(object).map_err(|error| invalid("RayJob", name, &error))
}

/// The verdict on a RayService that is created or changed.
pub fn ray_service(object: &RayService) -> Verdict {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    service::validate_metadata(object).map_err(|error| invalid("RayService", name, &error))
}

/// The words of the API server for a field that is wrong.
fn invalid(kind: &str, name: &str, error: &str) -> String {
    format!("{kind}.ray.io {name:?} is invalid: metadata.name: Invalid value: {name:?}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

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
