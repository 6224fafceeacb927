//! The Job that removes a deleted cluster's keys from Redis.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Blueprint, environment, tls, volumes::equal_resources};
use crate::{labels, names};

/// Seconds the Job may take.
const DEADLINE: i64 = 300;

/// The Job, made from what the head would be. The caller adds the owner.
pub fn cleanup_job(blueprint: &Blueprint<'_>) -> Job {
    let name = names::redis_cleanup_job(blueprint.name());
    let head = blueprint.head_pod(&name);
    let mut pod = head.spec.unwrap_or_default();
    pod.containers.truncate(1);
    // No certificate will ever name the address of this pod.
    pod.init_containers.iter_mut().for_each(|all| all.retain(|one| one.name != tls::WAIT_NAME));
    pod.restart_policy = Some("Never".to_owned());
    for ray in &mut pod.containers {
        let has_user = environment::has(ray.env.as_deref(), "REDIS_USERNAME");
        ray.command = Some(blueprint.settings.shell());
        ray.args = Some(vec![script(has_user)]);
        ray.liveness_probe = None;
        ray.readiness_probe = None;
        ray.resources = Some(equal_resources("200m", "256Mi"));
        environment::set(ray, "RAY_redis_db_connect_retries", "120");
        environment::set(ray, "RAY_redis_db_connect_wait_milliseconds", "500");
    }
    let mut own_labels = head.metadata.labels.unwrap_or_default();
    own_labels.insert(labels::NODE_TYPE.to_owned(), labels::REDIS_CLEANUP.to_owned());
    let annotations = head.metadata.annotations;
    let template = ObjectMeta {
        labels: Some(own_labels.clone()),
        annotations: annotations.clone(),
        ..ObjectMeta::default()
    };
    Job {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: head.metadata.namespace,
            labels: Some(own_labels),
            annotations,
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(0),
            active_deadline_seconds: Some(DEADLINE),
            template: PodTemplateSpec { metadata: Some(template), spec: Some(pod) },
            ..JobSpec::default()
        }),
        ..Job::default()
    }
}

fn script(has_user: bool) -> String {
    let user = if has_user { " username=os.environ['REDIS_USERNAME']," } else { "" };
    format!(
        r#"python -c "
import os, sys
from urllib.parse import urlparse
from ray._private.gcs_utils import cleanup_redis_storage

first = os.getenv('RAY_REDIS_ADDRESS', '').split(',')[0]
redis = urlparse(first if '://' in first else 'redis://' + first)
cleared = cleanup_redis_storage(
    host=redis.hostname, port=redis.port,{user}
    password=os.getenv('REDIS_PASSWORD', redis.password or ''),
    use_ssl=redis.scheme == 'rediss',
    storage_namespace=os.getenv('RAY_external_storage_namespace'))
sys.exit(0 if cleared else 1)
""#
    )
}
