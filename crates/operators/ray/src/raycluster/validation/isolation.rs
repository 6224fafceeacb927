//! Network policies and TLS.

use k8s_openapi::api::core::v1::{EnvVar, VolumeMount};
use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use quintet_api::names::problems;
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
        "spec.networkPolicy requires the RayClusterNetworkPolicy feature gate to be enabled".to_owned()
    })?;
    let mode = policy.mode.unwrap_or_default();
    for (place, rules) in [("head", &policy.head), ("worker", &policy.worker)] {
        if let Some(rules) = rules {
            validate_rules(place, mode, rules.ingress_rules.as_deref(), rules.egress_rules.as_deref())?;
        }
    }
    let names: Vec<_> = groups(spec).iter().map(|group| group.group_name.as_str()).collect();
    for name in &names {
        let problems = problems::dns_label(name);
        ensure(problems.is_empty(), || {
            format!(
                "worker group name {name:?} must be a valid DNS1123 label when networkPolicy is enabled (it is embedded \
                 in the NetworkPolicy name): [{}]",
                problems.join(" ")
            )
        })?;
    }
    for group in policy.worker_groups.iter().flatten() {
        let name = &group.group_name;
        let place = format!("workerGroups[{name:?}]");
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
        format!("networkPolicy.{place}.{field} cannot be set when mode is {mode:?} ({way} is not restricted)")
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
        "spec.tlsOptions requires the RayClusterMTLS feature gate to be enabled".to_owned()
    })?;
    if !tls::is_enabled(spec) {
        return Ok(());
    }
    let head =
        first_container(&spec.head_group_spec.template).map(|container| ("head Pod".to_owned(), container));
    let workers = groups(spec).iter().filter_map(|group| {
        Some((format!("worker group {:?}", group.group_name), first_container(&group.template)?))
    });
    for (place, container) in head.into_iter().chain(workers) {
        leaves_variables_alone(&place, "TLS configuration", container.env.as_deref())?;
        leaves_mounts_alone(&place, container.volume_mounts.as_deref())?;
    }
    let Some(options) = &spec.autoscaler_options else {
        return Ok(());
    };
    let what = "TLS configuration for the autoscaler";
    leaves_variables_alone("autoscalerOptions.env", what, options.env.as_deref())?;
    leaves_mounts_alone("autoscalerOptions.volumeMounts", options.volume_mounts.as_deref())
}

fn leaves_variables_alone(place: &str, managed: &str, env: Option<&[EnvVar]>) -> Verdict {
    let env = env.unwrap_or_default();
    let set = tls::VARIABLES.iter().find(|(name, _)| env.iter().any(|variable| variable.name == *name));
    match set {
        Some((name, _)) => Err(format!(
            "cannot set {name} environment variable in {place} when tlsOptions is set - the operator manages {managed} \
             automatically"
        )),
        None => Ok(()),
    }
}

fn leaves_mounts_alone(place: &str, mounts: Option<&[VolumeMount]>) -> Verdict {
    let taken = mounts.unwrap_or_default().iter().find_map(|mount| {
        if mount.name == tls::VOLUME {
            Some(format!("named {:?}", tls::VOLUME))
        } else {
            (mount.mount_path == tls::PATH).then(|| format!("at path {:?}", tls::PATH))
        }
    });
    match taken {
        Some(which) => Err(format!(
            "cannot use volume mount {which} in {place} when tlsOptions is set - the operator manages TLS configuration \
             automatically"
        )),
        None => Ok(()),
    }
}
