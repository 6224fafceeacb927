//! What the validating webhook rejects: RayClusters whose injected parts were changed by a webhook after ours.

mod derivative;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use self::derivative::is_derivative;
use super::names::{Names, VERSION};
use super::objects::pods;
use crate::field_errors::{invalid, required};
use crate::settings::Hardening;

const HEAD: &str = "spec.headGroupSpec.template.spec";

/// Errors of a RayCluster that is created.
pub(super) fn check_creation(cluster: &Value, hardening: &Hardening) -> Vec<String> {
    let mut errors = Vec::new();
    let ingress = &cluster["spec"]["headGroupSpec"]["enableIngress"];
    if *ingress == true {
        let why = "RayCluster with enableIngress set to true is not allowed";
        errors.push(invalid("spec.headGroupSpec.enableIngress", ingress, why));
    }
    if hardening.has_oauth() {
        check_oauth(cluster, hardening, &mut errors);
    }
    errors
}

/// Errors of a RayCluster that is changed.
pub(super) fn check_update(cluster: &Value, hardening: &Hardening, domain: &str) -> Vec<String> {
    if !cluster["metadata"]["deletionTimestamp"].is_null() {
        return Vec::new();
    }
    let mut errors = check_creation(cluster, hardening);
    if hardening.has_mtls() {
        check_mtls(cluster, hardening, domain, &mut errors);
    }
    errors
}

/// Names as the object itself has them: what is older than the hashes in names is not rejected.
fn names(cluster: &Value) -> Names<'_> {
    let metadata = &cluster["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    Names::new(text("name"), text("namespace"), !metadata["annotations"][VERSION].is_null())
}

fn check_oauth(cluster: &Value, hardening: &Hardening, errors: &mut Vec<String>) {
    let names = names(cluster);
    let spec = &cluster["spec"]["headGroupSpec"]["template"]["spec"];
    let container = pods::oauth_proxy(&names, hardening);
    errors.extend(check(
        &spec["containers"],
        &[container],
        &format!("{HEAD}.containers"),
        "OAuth Proxy container is immutable",
    ));
    errors.extend(check(
        &spec["volumes"],
        &[pods::serving_certificate(&names)],
        &format!("{HEAD}.volumes"),
        "OAuth Proxy TLS Secret volume is immutable",
    ));
    let account = spec["serviceAccountName"].as_str().unwrap_or_default();
    if account != names.oauth_service_account() {
        let why = "RayCluster head group service account is immutable";
        errors.push(invalid(&format!("{HEAD}.serviceAccountName"), &json!(account), why));
    }
}

fn check_mtls(cluster: &Value, hardening: &Hardening, domain: &str, errors: &mut Vec<String>) {
    let names = names(cluster);
    let head = (HEAD.to_owned(), &cluster["spec"]["headGroupSpec"]["template"]["spec"], Some(domain));
    let groups = cluster["spec"]["workerGroupSpecs"].as_array().into_iter().flatten().enumerate();
    let workers = groups.map(|(number, group)| {
        (format!("spec.workerGroupSpecs.{number}.template.spec"), &group["template"]["spec"], None)
    });
    let pods: Vec<_> = std::iter::once(head).chain(workers).collect();
    for (path, spec, domain) in &pods {
        errors.extend(check(
            &spec["initContainers"],
            &[pods::create_cert(&names, hardening, *domain)],
            &format!("{path}.initContainers"),
            "create-cert Init Container is immutable",
        ));
    }
    for (path, spec, _) in &pods {
        errors.extend(check(
            &spec["containers"][0]["env"],
            &pods::tls_environment(),
            &format!("{path}.containers.0.env"),
            "RAY_TLS related environment variables are immutable",
        ));
    }
    for volume in pods::tls_volumes(&names) {
        for (path, spec, _) in &pods {
            errors.extend(check(
                &spec["volumes"],
                std::slice::from_ref(&volume),
                &format!("{path}.volumes"),
                "ca-vol and server-cert Secret volumes are immutable",
            ));
        }
    }
}

/// Whether a list has these elements, by name; an error for each that is missing or differs.
fn check(list: &Value, expected: &[Value], path: &str, why: &str) -> Vec<String> {
    let problem = |expected: &Value| {
        let live = list.as_array().into_iter().flatten().find(|live| live["name"] == expected["name"]);
        match live {
            None => Some(required(path, why)),
            Some(live) if !is_derivative(expected, live) => Some(invalid(path, live, why)),
            Some(_) => None,
        }
    };
    expected.iter().filter_map(problem).collect()
}
