//! Defaults of pod templates, as the API server would set them.
//!
//! Templates inside of AppWrappers are not defaulted by the API server. Kueue defaults them, so that a Workload has the same
//! templates whatever was left out.

use k8s_openapi::api::core::v1::{
    Container, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements,
};

/// Sets defaults in a template.
pub(super) fn set(template: &mut PodTemplateSpec) {
    let spec = template.spec.get_or_insert_default();
    let text = |field: &mut Option<String>, default: &str| {
        if field.as_deref().unwrap_or_default().is_empty() {
            *field = Some(default.to_owned());
        }
    };
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.scheduler_name, "default-scheduler");
    text(&mut spec.preemption_policy, "PreemptLowerPriority");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.security_context.get_or_insert_with(PodSecurityContext::default);
    set_volumes(spec);
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        let policy = pull_policy(container.image.as_deref().unwrap_or_default());
        text(&mut container.image_pull_policy, policy);
        text(&mut container.termination_message_path, "/dev/termination-log");
        text(&mut container.termination_message_policy, "File");
        set_container(container);
    }
}

/// Images without a tag, or with `latest`, change.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or(image);
    let is_fixed = name.contains('@') || name.split_once(':').is_some_and(|(_, tag)| tag != "latest");
    if is_fixed { "IfNotPresent" } else { "Always" }
}

fn set_container(container: &mut Container) {
    container.resources.get_or_insert_with(ResourceRequirements::default);
    for port in container.ports.iter_mut().flatten() {
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
    for variable in container.env.iter_mut().flatten() {
        let source = variable.value_from.as_mut().and_then(|source| source.field_ref.as_mut());
        if let Some(field) = source {
            field.api_version.get_or_insert_with(|| "v1".to_owned());
        }
    }
    let probes =
        [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    for probe in probes.into_iter().flatten() {
        set_probe(probe);
    }
}

fn set_probe(probe: &mut Probe) {
    probe.timeout_seconds.get_or_insert(1);
    probe.period_seconds.get_or_insert(10);
    probe.success_threshold.get_or_insert(1);
    probe.failure_threshold.get_or_insert(3);
    if let Some(get) = &mut probe.http_get {
        get.path.get_or_insert_with(|| "/".to_owned());
        get.scheme.get_or_insert_with(|| "HTTP".to_owned());
    }
}

fn set_volumes(spec: &mut PodSpec) {
    const MODE: i32 = 0o644;
    for volume in spec.volumes.iter_mut().flatten() {
        if let Some(secret) = &mut volume.secret {
            secret.default_mode.get_or_insert(MODE);
        }
        if let Some(config_map) = &mut volume.config_map {
            config_map.default_mode.get_or_insert(MODE);
        }
        if let Some(projected) = &mut volume.projected {
            projected.default_mode.get_or_insert(MODE);
        }
        if let Some(downward) = &mut volume.downward_api {
            downward.default_mode.get_or_insert(MODE);
        }
        if let Some(host_path) = &mut volume.host_path {
            host_path.type_.get_or_insert_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_that_may_change_are_always_pulled() {
        for (image, expected) in [
            ("a", "Always"),
            ("host:5000/a", "Always"),
            ("a:latest", "Always"),
            ("a:1", "IfNotPresent"),
            ("host:5000/a:1", "IfNotPresent"),
            ("a@sha256:0", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), expected, "{image}");
        }
    }
}
