//! Fields that objects can be selected by.

use std::borrow::Cow;

use serde_json::Value;

use super::Kind;

/// The fields a kind can be selected by, besides name and namespace.
pub(super) fn names(kind: &Kind) -> &'static [&'static str] {
    match (kind.group, kind.kind) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "Namespace") => &["status.phase"],
        ("", "Node") => &["spec.unschedulable"],
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &["status.replicas"],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("batch", "Job") => &["status.successful"],
        ("certificates.k8s.io", _) => &["spec.signerName"],
        ("resource.k8s.io", "ResourceSlice") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

/// The text of a field, empty if it is absent.
pub fn value_of<'v>(object: &'v Value, field: &str) -> Cow<'v, str> {
    let path = match field {
        "source" => "source.component",
        "status.successful" => "status.succeeded",
        other => other,
    };
    let found = path.split('.').try_fold(object, |value, name| value.get(name));
    match (field, found) {
        ("spec.hostNetwork" | "spec.unschedulable", None) => Cow::Borrowed("false"),
        ("status.replicas" | "status.successful", None) => Cow::Borrowed("0"),
        ("source", None) => {
            Cow::Borrowed(object.get("reportingComponent").and_then(Value::as_str).unwrap_or_default())
        }
        ("status.podIPs", Some(Value::Array(items))) => Cow::Owned(
            items
                .iter()
                .filter_map(|item| item.get("ip").and_then(Value::as_str))
                .collect::<Vec<_>>()
                .join(","),
        ),
        (_, None | Some(Value::Null)) => Cow::Borrowed(""),
        (_, Some(Value::String(text))) => Cow::Borrowed(text),
        (_, Some(other)) => Cow::Owned(other.to_string()),
    }
}
