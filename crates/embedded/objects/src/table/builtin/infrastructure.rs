//! Kinds that programs read more often than people: templates, certificates, drivers, policies, flow control.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Cells, Column, age, born, col, count, flag, items, joined, name, none_if_empty, number, pairs, plain,
    template, text, zero,
};
use crate::builtin::Kind;

/// The columns of a kind, and how to fill them; `None` for a kind without columns of its own.
pub(super) fn columns(kind: &Kind) -> Option<(&'static [Column], Cells)> {
    Some(match (kind.group, kind.kind) {
        ("", "PodTemplate") => {
            (columns![col("Name"), col("Containers"), col("Images"), col("Pod Labels")], |object, _| {
                let [containers, images] = template(object, "/template/spec");
                let labels = pairs(object.pointer("/template/metadata/labels"));
                vec![name(object), containers, images, none_if_empty(&labels)]
            })
        }
        ("apps", "ControllerRevision") => {
            (columns![col("Name"), col("Controller"), col("Revision"), col("Age")], |object, now| {
                vec![name(object), controller(object), json!(zero(object, "/revision")), born(object, now)]
            })
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => (
            columns![
                col("Name"),
                col("Age"),
                col("SignerName"),
                col("Requestor"),
                col("RequestedDuration"),
                col("Condition")
            ],
            signing_request,
        ),
        ("networking.k8s.io", "IngressClass") => {
            (columns![col("Name"), col("Controller"), col("Parameters"), col("Age")], ingress_class)
        }
        ("networking.k8s.io", "IPAddress") => (columns![col("Name"), col("ParentRef")], |object, _| {
            let parent = object.pointer("/spec/parentRef").map(|parent| {
                let resource = with_group(text(parent, "/resource"), text(parent, "/group"));
                let namespace = text(parent, "/namespace");
                let place = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
                format!("{}/{place}{}", resource.to_lowercase(), text(parent, "/name"))
            });
            vec![name(object), json!(parent.unwrap_or_else(|| "<none>".into()))]
        }),
        ("networking.k8s.io", "ServiceCIDR") => {
            (columns![col("Name"), col("CIDRs"), col("Age")], |object, now| {
                vec![name(object), json!(joined(items(object, "/spec/cidrs"), plain)), born(object, now)]
            })
        }
        ("storage.k8s.io", "CSINode") => {
            (columns![col("Name"), count("Drivers"), col("Age")], |object, now| {
                vec![name(object), json!(items(object, "/spec/drivers").len()), born(object, now)]
            })
        }
        ("storage.k8s.io", "CSIDriver") => (
            columns![
                col("Name"),
                flag("AttachRequired"),
                flag("PodInfoOnMount"),
                flag("StorageCapacity"),
                col("TokenRequests"),
                flag("RequiresRepublish"),
                col("Modes"),
                col("Age")
            ],
            csi_driver,
        ),
        ("storage.k8s.io", "CSIStorageCapacity") => {
            (columns![col("Name"), col("StorageClassName"), col("Capacity")], |object, _| {
                let capacity = object.get("capacity").map_or_else(|| "<unset>".into(), plain);
                vec![name(object), json!(text(object, "/storageClassName")), json!(capacity)]
            })
        }
        ("storage.k8s.io", "VolumeAttachment") => (
            columns![col("Name"), col("Attacher"), col("PV"), col("Node"), flag("Attached"), col("Age")],
            |object, now| {
                vec![
                    name(object),
                    json!(text(object, "/spec/attacher")),
                    json!(text(object, "/spec/source/persistentVolumeName")),
                    json!(text(object, "/spec/nodeName")),
                    json!(is_set(object, "/status/attached", false)),
                    born(object, now),
                ]
            },
        ),
        ("storage.k8s.io", "VolumeAttributesClass") => {
            (columns![col("Name"), col("DriverName"), col("Age")], |object, now| {
                vec![name(object), json!(text(object, "/driverName")), born(object, now)]
            })
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            (columns![col("Name"), count("Validations"), col("ParamKind"), col("Age")], |object, now| {
                policy(object, "/spec/validations", now)
            })
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => {
            (columns![col("Name"), count("Mutations"), col("ParamKind"), col("Age")], |object, now| {
                policy(object, "/spec/mutations", now)
            })
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
        ) => (columns![col("Name"), col("PolicyName"), col("ParamRef"), col("Age")], |object, now| {
            let policy = json!(text(object, "/spec/policyName"));
            vec![name(object), policy, parameters(object.pointer("/spec/paramRef")), born(object, now)]
        }),
        ("node.k8s.io", "RuntimeClass") => {
            (columns![col("Name"), col("Handler"), col("Age")], |object, now| {
                vec![name(object), json!(text(object, "/handler")), born(object, now)]
            })
        }
        ("resource.k8s.io", "ResourceSlice") => {
            (columns![col("Name"), col("Node"), col("Driver"), col("Pool"), col("Age")], |object, now| {
                let [node, driver, pool] = ["/spec/nodeName", "/spec/driver", "/spec/pool/name"]
                    .map(|path| json!(text(object, path)));
                vec![name(object), node, driver, pool, born(object, now)]
            })
        }
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => (
            columns![
                col("Name"),
                col("PriorityLevel"),
                col("MatchingPrecedence"),
                col("DistinguisherMethod"),
                col("Age"),
                col("MissingPL")
            ],
            flow_schema,
        ),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => (
            columns![
                col("Name"),
                col("Type"),
                col("NominalConcurrencyShares"),
                col("Queues"),
                col("HandSize"),
                col("QueueLengthLimit"),
                col("Age")
            ],
            priority_level,
        ),
        _ => return None,
    })
}

fn is_set(object: &Value, pointer: &str, default: bool) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or(default)
}

/// `resource.group`, or the resource alone.
fn with_group(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.into() } else { format!("{resource}.{group}") }
}

/// The owner that controls an object: `statefulset.apps/web`.
fn controller(object: &Value) -> Value {
    let owners = items(object, "/metadata/ownerReferences");
    let controller = owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    json!(controller.map_or_else(
        || "<none>".into(),
        |owner| {
            let (group, _) = text(owner, "/apiVersion").split_once('/').unwrap_or_default();
            let kind = with_group(text(owner, "/kind"), group).to_lowercase();
            format!("{kind}/{}", text(owner, "/name"))
        }
    ))
}

fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let has = |kind: &str| {
        items(object, "/status/conditions").iter().any(|condition| text(condition, "/type") == kind)
    };
    let mut condition = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (_, true) => "Approved",
        _ => "Pending",
    }
    .to_owned();
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let requested = number(object, "/spec/expirationSeconds").map_or_else(|| "<none>".into(), age::age);
    vec![
        name(object),
        born(object, now),
        none_if_empty(text(object, "/spec/signerName")),
        json!(text(object, "/spec/username")),
        json!(requested),
        json!(condition),
    ]
}

fn ingress_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let is_default =
        text(object, "/metadata/annotations/ingressclass.kubernetes.io~1is-default-class") == "true";
    let shown = text(object, "/metadata/name");
    let parameters = object.pointer("/spec/parameters").map(|parameters| {
        let kind = with_group(text(parameters, "/kind"), text(parameters, "/apiGroup"));
        format!("{kind}/{}", text(parameters, "/name"))
    });
    vec![
        json!(if is_default { format!("{shown} (default)") } else { shown.into() }),
        json!(text(object, "/spec/controller")),
        json!(parameters.unwrap_or_else(|| "<none>".into())),
        born(object, now),
    ]
}

fn csi_driver(object: &Value, now: Timestamp) -> Vec<Value> {
    let tokens = object.pointer("/spec/tokenRequests").and_then(Value::as_array).map_or_else(
        || "<unset>".into(),
        |requests| joined(requests, |request| text(request, "/audience").into()),
    );
    vec![
        name(object),
        json!(is_set(object, "/spec/attachRequired", true)),
        json!(is_set(object, "/spec/podInfoOnMount", false)),
        json!(is_set(object, "/spec/storageCapacity", false)),
        json!(tokens),
        json!(is_set(object, "/spec/requiresRepublish", false)),
        none_if_empty(&joined(items(object, "/spec/volumeLifecycleModes"), plain)),
        born(object, now),
    ]
}

fn policy(object: &Value, rules: &str, now: Timestamp) -> Vec<Value> {
    let kind = object.pointer("/spec/paramKind").map_or_else(
        || "<unset>".into(),
        |kind| format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")),
    );
    vec![name(object), json!(items(object, rules).len()), json!(kind), born(object, now)]
}

/// The parameters of a policy binding: by name, or else by selector.
fn parameters(reference: Option<&Value>) -> Value {
    let Some(reference) = reference else { return json!("<unset>") };
    json!(match (text(reference, "/namespace"), text(reference, "/name"), reference.get("selector")) {
        (_, "", Some(selector)) => go_selector(selector),
        (_, "", None) => "<unset>".into(),
        // Whether parameters without a namespace have one is not known here.
        ("", name, _) => format!("*/{name}"),
        (namespace, name, _) => format!("{namespace}/{name}"),
    })
}

/// A label selector as Go prints the struct.
fn go_selector(selector: &Value) -> String {
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let labels: String =
        labels.flat_map(|(key, value)| [key.clone(), ": ".into(), plain(value), ",".into()]).collect();
    let expressions = items(selector, "/matchExpressions").iter().map(|expression| {
        let values = items(expression, "/values").iter().map(plain).collect::<Vec<_>>().join(" ");
        let (key, operator) = (text(expression, "/key"), text(expression, "/operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

fn flow_schema(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut conditions = items(object, "/status/conditions").iter();
    let dangling = conditions.find(|condition| text(condition, "/type") == "Dangling");
    vec![
        name(object),
        json!(text(object, "/spec/priorityLevelConfiguration/name")),
        json!(zero(object, "/spec/matchingPrecedence")),
        none_if_empty(text(object, "/spec/distinguisherMethod/type")),
        born(object, now),
        json!(dangling.map_or("?", |condition| text(condition, "/status"))),
    ]
}

fn priority_level(object: &Value, now: Timestamp) -> Vec<Value> {
    let limited = |field: &str| {
        let path = format!("/spec/limited/{field}");
        number(object, &path).map_or_else(|| json!("<none>"), Value::from)
    };
    vec![
        name(object),
        json!(text(object, "/spec/type")),
        limited("nominalConcurrencyShares"),
        limited("limitResponse/queuing/queues"),
        limited("limitResponse/queuing/handSize"),
        limited("limitResponse/queuing/queueLengthLimit"),
        born(object, now),
    ]
}
