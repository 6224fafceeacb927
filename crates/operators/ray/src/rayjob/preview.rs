//! What a RayJob becomes, without a cluster to try it on.

use quintet_api::ray::v1::{RayJob, RayJobStatus};
use serde_json::{Value, json};

use super::objects;
use crate::{
    k8s_service, names,
    rayjob::validation::{self as rules, Mode},
    settings::Settings,
};

/// The objects that would be made for a new RayJob, in order. The error is for the user to fix.
///
/// Names end with characters that differ every time; here they are always the same.
pub fn preview(job: &RayJob, settings: &Settings) -> Result<Vec<Value>, String> {
    rules::validate(job, settings).map_err(|invalid| invalid.message)?;
    let mut job = job.clone();
    let metadata = &mut job.metadata;
    let namespace = metadata.namespace.get_or_insert_with(|| "default".to_owned()).clone();
    metadata.uid.get_or_insert_with(|| "00000000-0000-0000-0000-000000000000".to_owned());
    let name = format!("{}-xxxxx", metadata.name.as_deref().unwrap_or_default());
    let status = RayJobStatus {
        job_id: Some(name.clone()),
        ray_cluster_name: Some(name.clone()),
        dashboard_url: Some(format!(
            "{}.{namespace}.svc.{}:{}",
            names::head_service(&name),
            settings.cluster_domain,
            k8s_service::DASHBOARD_PORT
        )),
        ..RayJobStatus::default()
    };
    // The cluster is made before it is known where its dashboard will be.
    job.status = Some(RayJobStatus { dashboard_url: None, ..status.clone() });
    let cluster = objects::cluster(&job, &name, settings)?;
    let mut made = vec![json!(cluster)];
    if Mode::of(&job.spec) == Mode::K8sJob {
        made.push(json!(objects::submitter(&job, &status, &cluster, settings)?));
    }
    made.push(json!(objects::head_service(&job, &cluster, settings)));
    Ok(made)
}
