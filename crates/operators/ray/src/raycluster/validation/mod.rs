//! The spec of a RayCluster, alone or inside a RayJob or RayService.

mod fault_tolerance;
mod history;
mod isolation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use quintet_api::names::problems;
use quintet_api::{
    conditions::is_true,
    ray::{
        conditions,
        v1::{AutoscalerVersion, RayCluster, RayClusterSpec, RayClusterStatus, WorkerGroupSpec},
    },
};

use crate::{
    names::MAX_CLUSTER_NAME,
    pod::{Origin, auth, autoscaler_version, is_autoscaling},
    settings::Settings,
    validation::{Verdict, ensure, metadata},
    version::RayVersion,
};

const AUTOSCALER_ENV: &str = "RAY_enable_autoscaler_v2";
const AUTOSCALER_COMMAND_ENV: &str = "KUBERAY_GEN_AUTOSCALER_START_CMD";
const TOKENS_SINCE: RayVersion = RayVersion::new(2, 52, 0);
const KUBERNETES_TOKENS_SINCE: RayVersion = RayVersion::new(2, 55, 0);
const PRIORITIES_SINCE: RayVersion = RayVersion::new(2, 56, 0);

/// Annotations of whatever the cluster is described in.
pub type Annotations = BTreeMap<String, String>;

/// Whether a cluster's name will do.
pub fn validate_metadata(cluster: &RayCluster) -> Verdict {
    metadata::name("RayCluster", cluster.metadata.name.as_deref().unwrap_or_default(), MAX_CLUSTER_NAME)
}

/// Whether the names of worker groups are unique; what else the webhook asks.
pub fn validate_group_names(spec: &RayClusterSpec) -> Result<(), (usize, String)> {
    let mut observed = BTreeSet::new();
    for (index, group) in groups(spec).iter().enumerate() {
        if !observed.insert(&group.group_name) {
            return Err((index, "worker group names must be unique".to_owned()));
        }
    }
    Ok(())
}

/// Whether an upgrade strategy may be set: not in a cluster whose owner decides about upgrades.
pub fn validate_upgrade_strategy(cluster: &RayCluster) -> Verdict {
    let strategy = cluster.spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.type_);
    let origin = Origin::of(cluster);
    ensure(strategy.is_none() || origin == Origin::RayCluster, || {
        format!("upgradeStrategy cannot be set when RayCluster is created by {}", origin.kind())
    })
}

/// Whether the conditions can all be true.
pub fn validate_status(status: &RayClusterStatus) -> Verdict {
    let all = status.conditions.as_deref().unwrap_or_default();
    let holds = |type_| is_true(all, type_);
    ensure(!(holds(conditions::RAY_CLUSTER_SUSPENDING) && holds(conditions::RAY_CLUSTER_SUSPENDED)), || {
        "invalid RayCluster State: rayv1.RayClusterSuspending and rayv1.RayClusterSuspended conditions should not be \
         both true"
            .to_owned()
    })
}

/// Whether a spec can be carried out.
pub fn validate_spec(spec: &RayClusterSpec, annotations: &Annotations, settings: &Settings) -> Verdict {
    let Some(head) = first_container(&spec.head_group_spec.template) else {
        return Err("headGroupSpec should have at least one container".to_owned());
    };
    let group = &spec.head_group_spec;
    validate_flags("Head", group.ray_start_params.as_ref(), group.resources.as_ref(), group.labels.as_ref())?;
    for group in groups(spec) {
        validate_group(group, spec, head)?;
    }
    fault_tolerance::validate(spec, annotations, head, settings)?;
    validate_group_suspension(spec, settings)?;
    validate_autoscaling(spec, head)?;
    history::validate(spec, settings)?;
    validate_auth(spec)?;
    isolation::validate_network_policy(spec, settings)?;
    isolation::validate_tls(spec, settings)
}

/// Not a mistake, but probably not what was meant: pods that restart under an autoscaler that replaces them.
pub fn restart_warning(spec: &RayClusterSpec) -> Option<String> {
    let is_v1 = is_autoscaling(spec) && autoscaler_version(spec) == Some(AutoscalerVersion::V1);
    let restarts = groups(spec).iter().filter(|group| !is_never(&group.template));
    let names: Vec<_> = restarts.map(|group| group.group_name.as_str()).collect();
    (is_v1 && !names.is_empty()).then(|| {
        let names = names.join(", ");
        format!("restartPolicy for worker groups [{names}] should be Never or unset when using autoscaler V1")
    })
}

pub(crate) fn groups(spec: &RayClusterSpec) -> &[WorkerGroupSpec] {
    spec.worker_group_specs.as_deref().unwrap_or_default()
}

pub(crate) fn first_container(template: &PodTemplateSpec) -> Option<&Container> {
    template.spec.as_ref()?.containers.first()
}

pub(crate) fn has_env(container: &Container, name: &str) -> bool {
    env_value(container, name).is_some()
}

fn env_value<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    let found = container.env.iter().flatten().find(|variable| variable.name == name)?;
    Some(found.value.as_deref().unwrap_or_default())
}

fn is_never(template: &PodTemplateSpec) -> bool {
    let policy = template.spec.as_ref().and_then(|pod| pod.restart_policy.as_deref()).unwrap_or_default();
    matches!(policy, "" | "Never")
}

fn validate_flags(
    group: &str,
    params: Option<&BTreeMap<String, String>>,
    resources: Option<&BTreeMap<String, String>>,
    labels: Option<&BTreeMap<String, String>>,
) -> Verdict {
    let param = |name: &str| params.and_then(|params| params.get(name));
    let is_set = |name: &&str| param(name).is_some_and(|value| !value.is_empty());
    let has_flags = ["num-cpus", "num-gpus", "memory", "resources"].iter().any(is_set);
    let has_resources = resources.is_some_and(|resources| !resources.is_empty());
    ensure(!(has_flags && has_resources), || {
        format!(
            "resource fields should not be set in both rayStartParams and Resources for {group} group; please use \
             only one"
        )
    })?;
    ensure(param("labels").is_none(), || {
        format!(
            "rayStartParams['labels'] is not supported for {group} group; please use the top-level Labels field \
             instead"
        )
    })?;
    let wrong: Vec<_> =
        labels.into_iter().flatten().flat_map(|(key, value)| label_problems(group, key, value)).collect();
    ensure(wrong.is_empty(), || wrong.join("; "))
}

fn label_problems(group: &str, key: &str, value: &str) -> Vec<String> {
    let of_key = problems::qualified_name(key)
        .into_iter()
        .map(|problem| format!("invalid label key for {group} group: '{key}', error: {problem}"));
    let of_value = problems::label_value(value).into_iter().map(|problem| {
        format!("invalid label value for key '{key}' in {group} group: '{value}', error: {problem}")
    });
    of_key.chain(of_value).collect()
}

fn validate_group(group: &WorkerGroupSpec, spec: &RayClusterSpec, head: &Container) -> Verdict {
    let name = &group.group_name;
    ensure(first_container(&group.template).is_some(), || {
        "workerGroupSpec should have at least one container".to_owned()
    })?;
    let (min, max) = (group.min_replicas, group.max_replicas);
    ensure(is_autoscaling(spec) || (min.is_some() && max.is_some()), || {
        format!("worker group {name} must set both minReplicas and maxReplicas when autoscaling is disabled")
    })?;
    for (field, value) in [("minReplicas", min), ("maxReplicas", max)] {
        let value = value.unwrap_or_default();
        ensure(value >= 0, || format!("worker group {name} has negative {field} {value}"))?;
    }
    if let (Some(min), Some(max)) = (min, max) {
        ensure(min <= max, || {
            format!("worker group {name} has minReplicas {min} greater than maxReplicas {max}")
        })?;
    }
    // Upstream takes it and reports negative desired resources.
    let hosts = group.num_of_hosts.unwrap_or(1);
    ensure(hosts >= 0, || format!("worker group {name} has negative numOfHosts {hosts}"))?;
    let params = group.ray_start_params.as_ref();
    validate_flags(name, params, group.resources.as_ref(), group.labels.as_ref())?;
    let is_v2 = is_autoscaler_v2(spec, head);
    if let Some(seconds) = group.idle_timeout_seconds {
        ensure(seconds >= 0, || {
            format!("worker group {name}: idleTimeoutSeconds must be non-negative, got {seconds}")
        })?;
        ensure(is_v2, || {
            format!(
                "worker group {name}: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. Please set \
                 .spec.autoscalerOptions.version to 'v2' (or set {AUTOSCALER_ENV} environment variable to 'true' in \
                 the head pod if using KubeRay < 1.4.0)"
            )
        })?;
    }
    if let Some(priority) = group.priority.filter(|priority| *priority != 0) {
        let what = format!("worker group {name}: priority is set,");
        needs_version(&what, spec.ray_version.as_deref(), PRIORITIES_SINCE)?;
        ensure(is_v2, || {
            format!(
                "worker group {name}: priority is set to {priority}, but autoscaler v2 is not enabled. Priority is \
                 only supported with autoscaler v2 enabled"
            )
        })?;
    }
    Ok(())
}

/// The newer autoscaler, by option or by the head's environment.
fn is_autoscaler_v2(spec: &RayClusterSpec, head: &Container) -> bool {
    autoscaler_version(spec) == Some(AutoscalerVersion::V2)
        || matches!(env_value(head, AUTOSCALER_ENV), Some("1" | "true"))
}

fn needs_version(what: &str, given: Option<&str>, since: RayVersion) -> Verdict {
    let given = given.unwrap_or_default();
    ensure(!given.is_empty(), || {
        format!("{what} but RayVersion was not specified. Ray version {since} or later is required")
    })?;
    let version: RayVersion = given
        .parse()
        .map_err(|error| format!("{what} but RayVersion format is invalid: {given}, {error}"))?;
    ensure(version >= since, || format!("{what} but minimum Ray version is {since}, got {given}"))
}

fn validate_group_suspension(spec: &RayClusterSpec, settings: &Settings) -> Verdict {
    let Some(group) = groups(spec).iter().find(|group| group.suspend == Some(true)) else {
        return Ok(());
    };
    let name = &group.group_name;
    ensure(settings.gates.job_deletion_policy, || {
        format!(
            "worker group {name} can be suspended only when the RayJobDeletionPolicy feature gate is enabled"
        )
    })?;
    ensure(!is_autoscaling(spec), || {
        format!("worker group {name} cannot be suspended with Autoscaler enabled")
    })
}

fn validate_autoscaling(spec: &RayClusterSpec, head: &Container) -> Verdict {
    let env = env_value(head, AUTOSCALER_ENV);
    let options = spec.autoscaler_options.as_ref();
    if is_autoscaling(spec) {
        ensure(autoscaler_version(spec).is_none() || env.is_none(), || {
            format!(
                "both .spec.autoscalerOptions.version and head Pod env var {AUTOSCALER_ENV} are set, please only use \
                 the former"
            )
        })?;
        if autoscaler_version(spec) == Some(AutoscalerVersion::V2) {
            ensure(is_never(&spec.head_group_spec.template), || {
                "restartPolicy for head Pod should be Never or unset when using autoscaler V2".to_owned()
            })?;
            let restarts = groups(spec).iter().find(|group| !is_never(&group.template));
            ensure(restarts.is_none(), || {
                let name = restarts.map_or("", |group| &group.group_name);
                format!(
                    "restartPolicy for worker group {name} should be Never or unset when using autoscaler V2"
                )
            })?;
        }
    } else {
        let asked = env.filter(|value| matches!(*value, "1" | "true"));
        ensure(asked.is_none(), || {
            let value = asked.unwrap_or_default();
            format!(
                "environment variable {AUTOSCALER_ENV} cannot be set to '{value}' when enableInTreeAutoscaling is \
                 false. Please set enableInTreeAutoscaling: true to use autoscaler v2"
            )
        })?;
    }
    let idle = options.and_then(|options| options.idle_timeout_seconds).unwrap_or_default();
    ensure(idle >= 0, || format!("autoscalerOptions.idleTimeoutSeconds must be non-negative, got {idle}"))?;
    let own = options.and_then(|options| options.env.as_deref()).unwrap_or_default();
    ensure(!own.iter().any(|variable| variable.name == AUTOSCALER_COMMAND_ENV), || {
        format!(
            "autoscalerOptions.env must not contain {AUTOSCALER_COMMAND_ENV}: it is managed by KubeRay and \
             injected automatically into the autoscaler container"
        )
    })
}

fn validate_auth(spec: &RayClusterSpec) -> Verdict {
    let options = spec.auth_options.as_ref();
    let takes_kubernetes_tokens = auth::takes_kubernetes_tokens(options);
    if !auth::is_enabled(spec) {
        return ensure(!takes_kubernetes_tokens, || {
            "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'".to_owned()
        });
    }
    let version = spec.ray_version.as_deref();
    needs_version("authOptions.mode is 'token'", version, TOKENS_SINCE)?;
    if takes_kubernetes_tokens {
        needs_version("authOptions.enableK8sTokenAuth is enabled", version, KUBERNETES_TOKENS_SINCE)?;
        let secret = options.and_then(|options| options.secret_name.as_deref()).unwrap_or_default();
        ensure(secret.is_empty(), || {
            "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set".to_owned()
        })?;
    }
    Ok(())
}
