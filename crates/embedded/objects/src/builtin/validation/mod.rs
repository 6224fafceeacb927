//! Validation of built-in kinds, with Kubernetes' error messages.

mod cluster;
mod config;
mod definition;
mod pod;
mod policy;
mod service;
mod workload;

use serde_json::{Value, json};

use super::Kind;
use super::value::text;
use crate::error::{ErrorKind, FieldError};
use crate::meta::{self, NameRule};
use crate::path::Path;

const IMMUTABLE: &str = "field is immutable";

/// Everything wrong with a new object, or with a change from `old` to `new`.
pub(super) fn validate(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = meta::validate(new, name_rule(kind), kind.is_namespaced, true);
    if let Some(old) = old {
        errors.extend(meta::validate_update(new, old));
    }
    let all = &mut errors;
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::pod(new, old, all),
        ("", "PodTemplate") => pod::template(new.get("template"), &Path::new("template"), all),
        ("", "Service") => service::service(new, old, all),
        ("", "ConfigMap") => config::config_map(new, old, all),
        ("", "Secret") => config::secret(new, old, all),
        ("", "PersistentVolumeClaim") => config::claim(new, old, all),
        ("", "PersistentVolume") => config::volume(new, all),
        ("", "ResourceQuota") => config::amounts(new, all),
        ("", "LimitRange") => config::limits(new, all),
        ("", "Event") => cluster::event(new, old, all),
        ("", "Endpoints") => service::endpoints(new, all),
        ("discovery.k8s.io", "EndpointSlice") => service::endpoint_slice(new, all),
        ("", "ReplicationController") => workload::replication_controller(new, all),
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => workload::workload(kind, new, old, all),
        ("apps", "StatefulSet") => workload::stateful_set(new, old, all),
        ("batch", "Job") => workload::job(new, old, all),
        ("batch", "CronJob") => workload::cron_job(new, all),
        ("autoscaling", "HorizontalPodAutoscaler") => workload::autoscaler(new, all),
        ("policy", "PodDisruptionBudget") => workload::disruption_budget(new, all),
        ("networking.k8s.io", "Ingress") => service::ingress(new, all),
        ("networking.k8s.io", "NetworkPolicy") => service::network_policy(new, all),
        ("networking.k8s.io", "IPAddress") => service::ip_address(new, old, all),
        ("coordination.k8s.io", "Lease") => cluster::lease(new, all),
        ("scheduling.k8s.io", "PriorityClass") => cluster::priority_class(new, old, all),
        ("storage.k8s.io", "StorageClass") => cluster::storage_class(new, old, all),
        ("node.k8s.io", "RuntimeClass") => cluster::runtime_class(new, old, all),
        ("rbac.authorization.k8s.io", _) => cluster::rbac(kind, new, old, all),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => policy::policy(new, all),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => policy::binding(new, all),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => policy::mutating_policy(new, all),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => {
            policy::mutating_binding(new, all);
        }
        ("admissionregistration.k8s.io", _) => cluster::webhooks(kind, new, all),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition::definition(new, old, all),
        ("apiregistration.k8s.io", "APIService") => cluster::api_service(new, all),
        _ => {}
    }
    errors
}

/// The name validation of a kind.
pub(super) fn name_rule(kind: &Kind) -> NameRule {
    match (kind.group, kind.kind) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => NameRule::Label,
        ("batch", "CronJob") => NameRule::ShortSubdomain(52),
        ("rbac.authorization.k8s.io" | "certificates.k8s.io", _) | ("policy", "PodDisruptionBudget") => {
            NameRule::PathSegment
        }
        ("networking.k8s.io", "IPAddress") => NameRule::IpAddress,
        _ => NameRule::Subdomain,
    }
}

/// A field that must stay as it is.
fn immutable(new: &Value, old: &Value, pointer: &str, errors: &mut Vec<FieldError>) {
    let (now, before) = (new.pointer(pointer), old.pointer(pointer));
    if now != before {
        let path = pointer.trim_start_matches('/').replace('/', ".");
        errors.push(FieldError::invalid(&Path::new(&path), now.unwrap_or(&Value::Null), IMMUTABLE));
    }
}

/// A number that must not be negative.
fn not_negative(new: &Value, pointer: &str, errors: &mut Vec<FieldError>) {
    if let Some(number) = new.pointer(pointer).and_then(Value::as_i64)
        && number < 0
    {
        let path = pointer.trim_start_matches('/').replace('/', ".");
        errors.push(FieldError::invalid(
            &Path::new(&path),
            &json!(number),
            "must be greater than or equal to 0",
        ));
    }
}

/// A text that must be one of a few; empty is missing.
fn one_of(value: &str, allowed: &[&str], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !allowed.contains(&value) {
        errors.push(FieldError::not_supported(path, &json!(value), allowed));
    }
}

/// A label selector that can be used.
fn selector(selector: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(selector) = selector else { return };
    meta::labels(selector.get("matchLabels"), &path.field("matchLabels"), errors);
    let expressions = path.field("matchExpressions");
    for (index, expression) in
        selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        let path = expressions.index(index);
        let count = expression.get("values").and_then(Value::as_array).map_or(0, Vec::len);
        match text(expression, "/operator") {
            "In" | "NotIn" if count == 0 => errors.push(FieldError::required(
                &path.field("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if count > 0 => errors.push(FieldError::forbidden(
                &path.field("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                &path.field("operator"),
                &json!(other),
                "not a valid selector operator",
            )),
        }
        for problem in crate::names::qualified_name(text(expression, "/key")) {
            errors.push(FieldError::invalid(&path.field("key"), &json!(text(expression, "/key")), problem));
        }
    }
}

/// Whether a label selector selects these labels; a selector that cannot be read selects nothing.
fn selects(selector: &Value, labels: Option<&Value>) -> bool {
    let typed = serde_json::from_value::<k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>(
        selector.clone(),
    );
    let Ok(Ok(selector)) = typed.map(|typed| quintet_api::selector::Selector::try_from(&typed)) else {
        return false;
    };
    let labels = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    selector.matches(&labels)
}

fn forbidden(path: &str, detail: &str) -> FieldError {
    FieldError { path: path.into(), kind: ErrorKind::Forbidden, value: None, detail: detail.into() }
}
