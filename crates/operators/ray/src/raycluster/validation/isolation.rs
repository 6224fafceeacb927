//! Network policies and TLS.

use k8s_openapi::api::core::v1::{EnvVar, VolumeMount};
use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use quintet_api::names::is_dns_label;
use quintet_api::ray::v1::{NetworkPolicyMode, RayClusterSpec};

use super::{first_container, groups};
use crate::{
    pod::tls,
    settings::Settings,
    validation::{Verdict, ensure},
};

pub(crate) fn validate_network_policy(spec: &RayClusterSpec, settings: &Settings) -> Verdict {
    let Some(policy) = &spec.network_policy else {
        return Ok(());
    };
    ensure(settings.gates.network_policy, || {
        "networkPolicy needs the feature gate RayClusterNetworkPolicy".to_owned()
    })?;
    let mode = policy.mode.unwrap_or_default();
    for (place, rules) in [("head", &policy.head), ("worker", &policy.worker)] {
        if let Some(rules) = rules {
            validate_rules(place, mode, rules.ingress_rules.as_deref(), rules.egress_rules.as_deref())?;
        }
    }
    let names: Vec<_> = groups(spec).iter().map(|group| group.group_name.as_str()).collect();
    if let Some(name) = names.iter().find(|name| !is_dns_label(name)) {
        return Err(format!(
            "worker group name {name:?} becomes part of a NetworkPolicy's name and must be a valid DNS1123 label"
        ));
    }
    for group in policy.worker_groups.iter().flatten() {
        let name = &group.group_name;
        let place = format!("workerGroups[{name}]");
        validate_rules(&place, mode, group.ingress_rules.as_deref(), group.egress_rules.as_deref())?;
        ensure(names.contains(&name.as_str()), || {
            format!("networkPolicy.{place} does not match any group name in workerGroupSpecs")
        })?;
    }
    Ok(())
}

fn validate_rules(
    place: &str,
    mode: NetworkPolicyMode,
    ingress: Option<&[NetworkPolicyIngressRule]>,
    egress: Option<&[NetworkPolicyEgressRule]>,
) -> Verdict {
    let has_ingress = ingress.is_some_and(|rules| !rules.is_empty());
    let has_egress = egress.is_some_and(|rules| !rules.is_empty());
    let wrong = |field: &str, mode: &str, way: &str| {
        format!(
            "networkPolicy.{place}.{field} has no effect in mode {mode}, which does not restrict {way}; remove it"
        )
    };
    ensure(!(mode == NetworkPolicyMode::DenyAllEgress && has_ingress), || {
        wrong("ingressRules", "DenyAllEgress", "ingress")
    })?;
    ensure(!(mode == NetworkPolicyMode::DenyAllIngress && has_egress), || {
        wrong("egressRules", "DenyAllIngress", "egress")
    })
}

pub(crate) fn validate_tls(spec: &RayClusterSpec, settings: &Settings) -> Verdict {
    ensure(spec.tls_options.is_none() || settings.gates.mtls, || {
        "tlsOptions needs the feature gate RayClusterMTLS".to_owned()
    })?;
    if !tls::is_enabled(spec) {
        return Ok(());
    }
    let head =
        first_container(&spec.head_group_spec.template).map(|container| ("the head".to_owned(), container));
    let workers = groups(spec).iter().filter_map(|group| {
        Some((format!("worker group {}", group.group_name), first_container(&group.template)?))
    });
    for (place, container) in head.into_iter().chain(workers) {
        let (env, mounts) = (container.env.as_deref(), container.volume_mounts.as_deref());
        leaves_tls_alone(&place, env, mounts)?;
    }
    match &spec.autoscaler_options {
        Some(options) => {
            leaves_tls_alone("autoscalerOptions", options.env.as_deref(), options.volume_mounts.as_deref())
        }
        None => Ok(()),
    }
}

fn leaves_tls_alone(place: &str, env: Option<&[EnvVar]>, mounts: Option<&[VolumeMount]>) -> Verdict {
    let env = env.unwrap_or_default();
    let managed = tls::VARIABLES.iter().find(|(name, _)| env.iter().any(|variable| variable.name == *name));
    if let Some((name, _)) = managed {
        return Err(format!("{name} cannot be set in {place} while tlsOptions is enabled, which sets it"));
    }
    let is_taken = |mount: &VolumeMount| mount.name == tls::VOLUME || mount.mount_path == tls::PATH;
    ensure(!mounts.unwrap_or_default().iter().any(is_taken), || {
        format!(
            "the volume {} and the path {} cannot be used in {place} while tlsOptions is enabled; choose others",
            tls::VOLUME,
            tls::PATH
        )
    })
}
