//! The columns of built-in kinds, and how to fill those of them that are more than a word.

macro_rules! columns {
    ($($column:expr),* $(,)?) => {{
        const COLUMNS: &[Column] = &[$($column),*];
        COLUMNS
    }};
}

mod cluster;
mod infrastructure;
mod network;
mod storage;
mod workload;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, pod};
use crate::builtin::Kind;
use cluster::{binding, definition, event, node, quota};
use network::{endpoints, ingress, service};
use storage::{claim, volume};
use workload::{autoscaler, cron_job, daemon_set, deployment, job, replica_set};

/// One column.
#[derive(Clone, Copy, Debug)]
pub(in crate::table) struct Column {
    pub(in crate::table) name: &'static str,
    pub(in crate::table) kind: &'static str,
    pub(in crate::table) priority: i64,
}

/// Makes the cells of an object.
pub(in crate::table) type Cells = fn(&Value, Timestamp) -> Vec<Value>;

const fn col(name: &'static str) -> Column {
    Column { name, kind: "string", priority: 0 }
}

const fn count(name: &'static str) -> Column {
    Column { name, kind: "integer", priority: 0 }
}

const fn flag(name: &'static str) -> Column {
    Column { name, kind: "boolean", priority: 0 }
}

const fn wide(name: &'static str) -> Column {
    Column { name, kind: "string", priority: 1 }
}

/// The columns of a kind, and how to fill them.
pub(in crate::table) fn columns(kind: &Kind) -> (&'static [Column], Cells) {
    match (kind.group, kind.kind) {
        ("", "Pod") => (
            columns![
                col("Name"),
                col("Ready"),
                col("Status"),
                col("Restarts"),
                col("Age"),
                wide("IP"),
                wide("Node"),
                wide("Nominated Node"),
                wide("Readiness Gates")
            ],
            pod::cells,
        ),
        ("apps", "Deployment") => (
            columns![
                col("Name"),
                col("Ready"),
                count("Up-to-date"),
                count("Available"),
                col("Age"),
                wide("Containers"),
                wide("Images"),
                wide("Selector")
            ],
            deployment,
        ),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => (
            columns![
                col("Name"),
                count("Desired"),
                count("Current"),
                count("Ready"),
                col("Age"),
                wide("Containers"),
                wide("Images"),
                wide("Selector")
            ],
            replica_set,
        ),
        ("apps", "StatefulSet") => (
            columns![col("Name"), col("Ready"), col("Age"), wide("Containers"), wide("Images")],
            |set, now| {
                let ready = format!("{}/{}", zero(set, "/status/readyReplicas"), zero(set, "/spec/replicas"));
                let [containers, images] = template(set, "/spec/template/spec");
                vec![name(set), json!(ready), born(set, now), containers, images]
            },
        ),
        ("apps", "DaemonSet") => (
            columns![
                col("Name"),
                count("Desired"),
                count("Current"),
                count("Ready"),
                count("Up-to-date"),
                count("Available"),
                col("Node Selector"),
                col("Age"),
                wide("Containers"),
                wide("Images"),
                wide("Selector")
            ],
            daemon_set,
        ),
        ("batch", "Job") => (
            columns![
                col("Name"),
                col("Status"),
                col("Completions"),
                col("Duration"),
                col("Age"),
                wide("Containers"),
                wide("Images"),
                wide("Selector")
            ],
            job,
        ),
        ("batch", "CronJob") => (
            columns![
                col("Name"),
                col("Schedule"),
                col("Timezone"),
                col("Suspend"),
                count("Active"),
                col("Last Schedule"),
                col("Age"),
                wide("Containers"),
                wide("Images"),
                wide("Selector")
            ],
            cron_job,
        ),
        ("", "Service") => (
            columns![
                col("Name"),
                col("Type"),
                col("Cluster-IP"),
                col("External-IP"),
                col("Port(s)"),
                col("Age"),
                wide("Selector")
            ],
            service,
        ),
        ("", "Node") => (
            columns![
                col("Name"),
                col("Status"),
                col("Roles"),
                col("Age"),
                col("Version"),
                wide("Internal-IP"),
                wide("External-IP"),
                wide("OS-Image"),
                wide("Kernel-Version"),
                wide("Container-Runtime")
            ],
            node,
        ),
        ("" | "events.k8s.io", "Event") => (
            columns![
                col("Last Seen"),
                col("Type"),
                col("Reason"),
                col("Object"),
                wide("Subobject"),
                wide("Source"),
                col("Message"),
                wide("First Seen"),
                wide("Count"),
                wide("Name")
            ],
            event,
        ),
        ("", "PersistentVolumeClaim") => (
            columns![
                col("Name"),
                col("Status"),
                col("Volume"),
                col("Capacity"),
                col("Access Modes"),
                col("StorageClass"),
                col("VolumeAttributesClass"),
                col("Age"),
                wide("VolumeMode")
            ],
            claim,
        ),
        ("", "PersistentVolume") => (
            columns![
                col("Name"),
                col("Capacity"),
                col("Access Modes"),
                col("Reclaim Policy"),
                col("Status"),
                col("Claim"),
                col("StorageClass"),
                col("VolumeAttributesClass"),
                col("Reason"),
                col("Age"),
                wide("VolumeMode")
            ],
            volume,
        ),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => (
            columns![
                col("Name"),
                col("Role"),
                col("Age"),
                wide("Users"),
                wide("Groups"),
                wide("ServiceAccounts")
            ],
            binding,
        ),
        ("apiextensions.k8s.io", _) => (
            columns![
                col("Name"),
                col("Scope"),
                col("Versions"),
                col("Created At"),
                wide("Group"),
                wide("Kind"),
                wide("ShortNames"),
                wide("Established")
            ],
            definition,
        ),
        _ => smaller(kind),
    }
}

fn smaller(kind: &Kind) -> (&'static [Column], Cells) {
    match (kind.group, kind.kind) {
        ("", "Namespace") => (columns![col("Name"), col("Status"), col("Age")], |object, now| {
            vec![name(object), json!(text(object, "/status/phase")), born(object, now)]
        }),
        ("", "ConfigMap") => (columns![col("Name"), count("Data"), col("Age")], |object, now| {
            let entries = length(object, "/data") + length(object, "/binaryData");
            vec![name(object), json!(entries), born(object, now)]
        }),
        ("", "Secret") => (columns![col("Name"), col("Type"), count("Data"), col("Age")], |object, now| {
            vec![
                name(object),
                json!(text(object, "/type")),
                json!(length(object, "/data")),
                born(object, now),
            ]
        }),
        ("", "Endpoints") => (columns![col("Name"), col("Endpoints"), col("Age")], |object, now| {
            vec![name(object), endpoints(object), born(object, now)]
        }),
        ("discovery.k8s.io", _) => (
            columns![col("Name"), col("AddressType"), col("Ports"), col("Endpoints"), col("Age")],
            |object, now| {
                let ports = joined(items(object, "/ports"), |port| {
                    number(port, "/port").map_or_else(|| "*".into(), |port| port.to_string())
                });
                let addresses = items(object, "/endpoints").iter().flat_map(|one| items(one, "/addresses"));
                let addresses: Vec<&str> = addresses.filter_map(Value::as_str).collect();
                vec![
                    name(object),
                    json!(text(object, "/addressType")),
                    none_if_empty(&ports).replace_none("<unset>"),
                    some_of(&addresses).replace_none("<unset>"),
                    born(object, now),
                ]
            },
        ),
        ("storage.k8s.io", "StorageClass") => (
            columns![
                col("Name"),
                col("Provisioner"),
                col("ReclaimPolicy"),
                col("VolumeBindingMode"),
                col("AllowVolumeExpansion"),
                col("Age")
            ],
            |object, now| {
                let is_default =
                    text(object, "/metadata/annotations/storageclass.kubernetes.io~1is-default-class")
                        == "true";
                let shown = text(object, "/metadata/name");
                vec![
                    json!(if is_default { format!("{shown} (default)") } else { shown.into() }),
                    json!(text(object, "/provisioner")),
                    json!(text(object, "/reclaimPolicy")),
                    json!(text(object, "/volumeBindingMode")),
                    json!(object.get("allowVolumeExpansion") == Some(&json!(true))),
                    born(object, now),
                ]
            },
        ),
        ("", "ResourceQuota") => (columns![col("Name"), col("Request"), col("Limit"), col("Age")], quota),
        ("", "LimitRange") | ("rbac.authorization.k8s.io", _) => {
            (columns![col("Name"), col("Created At")], |object, _| vec![name(object), created(object)])
        }
        ("autoscaling", _) => (
            columns![
                col("Name"),
                col("Reference"),
                col("Targets"),
                col("MinPods"),
                count("MaxPods"),
                count("Replicas"),
                col("Age")
            ],
            autoscaler,
        ),
        ("policy", _) => (
            columns![
                col("Name"),
                col("Min Available"),
                col("Max Unavailable"),
                count("Allowed Disruptions"),
                col("Age")
            ],
            |object, now| {
                let shown = |path: &str| object.pointer(path).map_or_else(|| "N/A".into(), plain);
                vec![
                    name(object),
                    json!(shown("/spec/minAvailable")),
                    json!(shown("/spec/maxUnavailable")),
                    json!(zero(object, "/status/disruptionsAllowed")),
                    born(object, now),
                ]
            },
        ),
        ("networking.k8s.io", "Ingress") => (
            columns![col("Name"), col("Class"), col("Hosts"), col("Address"), col("Ports"), col("Age")],
            ingress,
        ),
        ("networking.k8s.io", "NetworkPolicy") => {
            (columns![col("Name"), col("Pod-Selector"), col("Age")], |object, now| {
                vec![name(object), json!(selector(object.pointer("/spec/podSelector"))), born(object, now)]
            })
        }
        ("scheduling.k8s.io", _) => (
            columns![col("Name"), count("Value"), col("Global-Default"), col("Age"), col("PreemptionPolicy")],
            |object, now| {
                vec![
                    name(object),
                    json!(zero(object, "/value")),
                    json!(object.get("globalDefault") == Some(&json!(true))),
                    born(object, now),
                    json!(text(object, "/preemptionPolicy")),
                ]
            },
        ),
        ("coordination.k8s.io", _) => (columns![col("Name"), col("Holder"), col("Age")], |object, now| {
            vec![name(object), json!(text(object, "/spec/holderIdentity")), born(object, now)]
        }),
        ("apiregistration.k8s.io", _) => {
            (columns![col("Name"), col("Service"), col("Available"), col("Age")], |object, now| {
                let service = match object.pointer("/spec/service") {
                    Some(service) => format!("{}/{}", text(service, "/namespace"), text(service, "/name")),
                    None => "Local".into(),
                };
                let available =
                    items(object, "/status/conditions").iter().find(|one| text(one, "/type") == "Available");
                let shown = match available {
                    Some(one) if text(one, "/status") == "True" => "True".into(),
                    Some(one) => format!("{} ({})", text(one, "/status"), text(one, "/reason")),
                    None => "Unknown".into(),
                };
                vec![name(object), json!(service), json!(shown), born(object, now)]
            })
        }
        ("admissionregistration.k8s.io", _) if kind.kind.ends_with("WebhookConfiguration") => {
            (columns![col("Name"), count("Webhooks"), col("Age")], |object, now| {
                vec![name(object), json!(items(object, "/webhooks").len()), born(object, now)]
            })
        }
        ("resource.k8s.io", "ResourceClaim") => {
            (columns![col("Name"), col("State"), col("Age")], |object, now| {
                let mut state =
                    if object.pointer("/status/allocation").is_some() { "allocated" } else { "pending" }
                        .to_owned();
                if !items(object, "/status/reservedFor").is_empty() {
                    state.push_str(",reserved");
                }
                if object.pointer("/metadata/deletionTimestamp").is_some() {
                    state.insert_str(0, "deleted,");
                }
                vec![name(object), json!(state), born(object, now)]
            })
        }
        _ => infrastructure::columns(kind).unwrap_or((columns![col("Name"), col("Age")], |object, now| {
            vec![name(object), born(object, now)]
        })),
    }
}

pub(in crate::table) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(in crate::table) fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

fn zero(value: &Value, pointer: &str) -> i64 {
    number(value, pointer).unwrap_or(0)
}

pub(in crate::table) fn items<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn length(value: &Value, pointer: &str) -> usize {
    value.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

pub(in crate::table) fn name(object: &Value) -> Value {
    json!(text(object, "/metadata/name"))
}

fn born(object: &Value, now: Timestamp) -> Value {
    json!(age::since(object.pointer("/metadata/creationTimestamp").and_then(Value::as_str), now))
}

fn created(object: &Value) -> Value {
    json!(text(object, "/metadata/creationTimestamp"))
}

pub(in crate::table) fn none_if_empty(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

trait ReplaceNone {
    /// Another word for nothing.
    fn replace_none(self, word: &str) -> Value;
}

impl ReplaceNone for Value {
    fn replace_none(self, word: &str) -> Value {
        if self == "<none>" { json!(word) } else { self }
    }
}

/// A few of many.
fn some_of(all: &[&str]) -> Value {
    match all {
        [] => json!("<none>"),
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            json!(format!("{first},{second},{third} + {} more...", rest.len()))
        }
        few => json!(few.join(",")),
    }
}

fn joined(all: &[Value], shown: impl Fn(&Value) -> String) -> String {
    all.iter().map(shown).collect::<Vec<_>>().join(",")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), Into::into)
}

/// Names and images of the containers of a template.
fn template(object: &Value, pointer: &str) -> [Value; 2] {
    let containers = items(object, &format!("{pointer}/containers"));
    [
        json!(joined(containers, |one| text(one, "/name").into())),
        json!(joined(containers, |one| text(one, "/image").into())),
    ]
}

fn pairs(labels: Option<&Value>) -> String {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    labels.map(|(key, value)| format!("{key}={}", plain(value))).collect::<Vec<_>>().join(",")
}

fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return "<none>".into() };
    let mut shown = pairs(selector.get("matchLabels"));
    for expression in items(selector, "/matchExpressions") {
        let values = joined(items(expression, "/values"), plain);
        let key = text(expression, "/key");
        let one = match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.into(),
        };
        if !shown.is_empty() {
            shown.push(',');
        }
        shown.push_str(&one);
    }
    if shown.is_empty() { "<none>".into() } else { shown }
}
