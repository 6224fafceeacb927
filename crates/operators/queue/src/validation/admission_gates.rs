//! The annotation `kueue.x-k8s.io/admission-gated-by` of jobs and Workloads: a list of gates that keep a Workload out of
//! the queues. As Kueue's `pkg/util/webhook`.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::metadata::ADMISSION_GATED_BY;
use quintet_api::names::problems;

use super::field::Errors;

const PATH: &str = "metadata.annotations[kueue.x-k8s.io/admission-gated-by]";
const MAX_GATE: usize = 63;
const PATH_CHARACTERS: &str = "/-._~%!$&'()*+,;=:";

/// Whether the gates of an object are well-formed.
pub(crate) fn validate(value: &str, errors: &mut Errors) {
    let mut known = BTreeSet::new();
    for gate in parse(value) {
        if gate.is_empty() {
            errors.invalid(PATH, value, "cannot contain empty gate names");
        } else if !known.insert(gate) {
            errors.invalid(PATH, value, format!("duplicate gate name: {gate}"));
        } else {
            validate_gate(gate, errors);
        }
    }
}

/// Whether the gates may be changed like this: they are set at creation, and later only removed.
pub(crate) fn validate_update(new_value: &str, old_value: &str, errors: &mut Errors) {
    if old_value.is_empty() && !new_value.is_empty() {
        errors.forbidden(PATH, "cannot add admission gate after creation");
    }
    let before = parse(old_value);
    if !old_value.is_empty() && parse(new_value).iter().any(|gate| !before.contains(gate)) {
        errors.forbidden(PATH, "can only remove gates, not add new ones");
    }
}

/// The gates of an object, as they are written.
pub(crate) fn value(metadata: &ObjectMeta) -> &str {
    metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(ADMISSION_GATED_BY))
        .map_or("", String::as_str)
}

fn parse(value: &str) -> Vec<&str> {
    if value.trim().is_empty() { Vec::new() } else { value.split(',').map(str::trim).collect() }
}

/// A gate is a path after a domain, as `spec.managedBy` of a Job.
fn validate_gate(gate: &str, errors: &mut Errors) {
    match gate.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) {
        None => errors.invalid(PATH, gate, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        Some((host, path)) => {
            errors.each(PATH, host, problems::dns_subdomain(host));
            if !path.chars().all(|c| c.is_ascii_alphanumeric() || PATH_CHARACTERS.contains(c)) {
                let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                errors.invalid(PATH, path, why);
            }
        }
    }
    if gate.len() > MAX_GATE {
        errors.too_long(PATH, MAX_GATE);
    }
}
