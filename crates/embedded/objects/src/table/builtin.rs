//! The columns of built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, pod};
use crate::builtin::Kind;

/// One column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) priority: i64,
}

/// Makes the cells of an object.
pub(super) type Cells = fn(&Value, Timestamp) -> Vec<Value>;

const fn col(name: &'static str) -> Column {
    Column { name, kind: "string", priority: 0 }
}

const fn count(name: &'static str) -> Column {
    Column { name, kind: "integer", priority: 0 }
}

const fn wide(name: &'static str) -> Column {
    Column { name, kind: "string", priority: 1 }
}

macro_rules! columns {
    ($($column:expr),* $(,)?) => {{
        const COLUMNS: &[Column] = &[$($column),*];
        COLUMNS
    }};
}

/// The columns of a kind, and how to fill them.
pub(super) fn columns(kind: &Kind) -> (&'static [Column], Cells) {
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
        _ => (columns![col("Name"), col("Age")], |object, now| vec![name(object), born(object, now)]),
    }
}

pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

fn zero(value: &Value, pointer: &str) -> i64 {
    number(value, pointer).unwrap_or(0)
}

pub(super) fn items<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn length(value: &Value, pointer: &str) -> usize {
    value.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

pub(super) fn name(object: &Value) -> Value {
    json!(text(object, "/metadata/name"))
}

fn born(object: &Value, now: Timestamp) -> Value {
    json!(age::since(object.pointer("/metadata/creationTimestamp").and_then(Value::as_str), now))
}

fn created(object: &Value) -> Value {
    json!(text(object, "/metadata/creationTimestamp"))
}

pub(super) fn none_if_empty(text: &str) -> Value {
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

fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = template(object, "/spec/template/spec");
    vec![
        name(object),
        json!(format!("{}/{}", zero(object, "/status/readyReplicas"), zero(object, "/spec/replicas"))),
        json!(zero(object, "/status/updatedReplicas")),
        json!(zero(object, "/status/availableReplicas")),
        born(object, now),
        containers,
        images,
        json!(selector(object.pointer("/spec/selector"))),
    ]
}

fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = template(object, "/spec/template/spec");
    let found = object.pointer("/spec/selector");
    let is_plain = found
        .is_some_and(|found| found.get("matchLabels").is_none() && found.get("matchExpressions").is_none());
    vec![
        name(object),
        json!(zero(object, "/spec/replicas")),
        json!(zero(object, "/status/replicas")),
        json!(zero(object, "/status/readyReplicas")),
        born(object, now),
        containers,
        images,
        if is_plain { none_if_empty(&pairs(found)) } else { json!(selector(found)) },
    ]
}

fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = template(object, "/spec/template/spec");
    vec![
        name(object),
        json!(zero(object, "/status/desiredNumberScheduled")),
        json!(zero(object, "/status/currentNumberScheduled")),
        json!(zero(object, "/status/numberReady")),
        json!(zero(object, "/status/updatedNumberScheduled")),
        json!(zero(object, "/status/numberAvailable")),
        none_if_empty(&pairs(object.pointer("/spec/template/spec/nodeSelector"))),
        born(object, now),
        containers,
        images,
        json!(selector(object.pointer("/spec/selector"))),
    ]
}

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let has = |kind: &str| {
        items(object, "/status/conditions")
            .iter()
            .any(|one| text(one, "/type") == kind && text(one, "/status") == "True")
    };
    let status = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if object.pointer("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let succeeded = zero(object, "/status/succeeded");
    let completions = match (number(object, "/spec/completions"), number(object, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, Some(parallel)) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        _ => format!("{succeeded}/1"),
    };
    let time = |path: &str| text(object, path).parse::<Timestamp>().ok();
    let duration = match (time("/status/startTime"), time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), Some(end)) => age::age(end.as_second() - start.as_second()),
        (Some(start), None) => age::age(now.as_second() - start.as_second()),
    };
    let [containers, images] = template(object, "/spec/template/spec");
    vec![
        name(object),
        json!(status),
        json!(completions),
        json!(duration),
        born(object, now),
        containers,
        images,
        json!(selector(object.pointer("/spec/selector"))),
    ]
}

fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let last = match object.pointer("/status/lastScheduleTime").and_then(Value::as_str) {
        Some(last) => age::since(Some(last), now),
        None => "<none>".into(),
    };
    let suspended = object.pointer("/spec/suspend") == Some(&json!(true));
    let [containers, images] = template(object, "/spec/jobTemplate/spec/template/spec");
    vec![
        name(object),
        json!(text(object, "/spec/schedule")),
        none_if_empty(text(object, "/spec/timeZone")),
        json!(if suspended { "True" } else { "False" }),
        json!(items(object, "/status/active").len()),
        json!(last),
        born(object, now),
        containers,
        images,
        json!(selector(object.pointer("/spec/jobTemplate/spec/selector"))),
    ]
}

fn balanced(object: &Value) -> Vec<String> {
    items(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|one| {
            if text(one, "/ip").is_empty() { text(one, "/hostname").into() } else { text(one, "/ip").into() }
        })
        .collect()
}

fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = text(object, "/spec/type");
    let mut external: Vec<String> =
        items(object, "/spec/externalIPs").iter().filter_map(|one| one.as_str().map(Into::into)).collect();
    let external = match kind {
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let mut all = balanced(object);
            all.append(&mut external);
            if all.is_empty() { "<pending>".into() } else { all.join(",") }
        }
        _ => external.join(","),
    };
    let ports = joined(items(object, "/spec/ports"), |port| {
        let node = match number(port, "/nodePort") {
            Some(node) if node > 0 => format!(":{node}"),
            _ => String::new(),
        };
        format!("{}{node}/{}", zero(port, "/port"), text(port, "/protocol"))
    });
    vec![
        name(object),
        json!(kind),
        none_if_empty(text(object, "/spec/clusterIP")),
        none_if_empty(&external),
        none_if_empty(&ports),
        born(object, now),
        none_if_empty(&pairs(object.pointer("/spec/selector"))),
    ]
}

fn endpoints(object: &Value) -> Value {
    let mut all = Vec::new();
    for subset in items(object, "/subsets") {
        for address in items(subset, "/addresses") {
            let ip = text(address, "/ip");
            if items(subset, "/ports").is_empty() {
                all.push(ip.to_owned());
            }
            for port in items(subset, "/ports") {
                all.push(format!("{ip}:{}", zero(port, "/port")));
            }
        }
    }
    some_of(&all.iter().map(String::as_str).collect::<Vec<_>>())
}

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = items(object, "/status/conditions").iter().find(|one| text(one, "/type") == "Ready");
    let mut status = match ready.map(|one| text(one, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    let address = |kind: &str| {
        let found = items(object, "/status/addresses").iter().find(|one| text(one, "/type") == kind);
        none_if_empty(found.map_or("", |one| text(one, "/address")))
    };
    let info = |field: &str| {
        let shown = text(object, &format!("/status/nodeInfo/{field}"));
        json!(if shown.is_empty() { "<unknown>" } else { shown })
    };
    vec![
        name(object),
        json!(status),
        none_if_empty(&roles.join(",")),
        born(object, now),
        json!(text(object, "/status/nodeInfo/kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let pick = |core: &'static str, events: &'static str| {
        if object.pointer(core).is_some() { core } else { events }
    };
    let time = |value: &Value, pointers: &[&str]| -> Option<String> {
        pointers.iter().find_map(|pointer| value.pointer(pointer)?.as_str().map(Into::into))
    };
    let first = time(object, &["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let last = time(object, &["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp"])
        .or_else(|| first.clone());
    let about = pick("/involvedObject", "/regarding");
    let target = object.pointer(about).unwrap_or(&Value::Null);
    let source = pick("/source", "/deprecatedSource");
    let mut component = text(object, &format!("{source}/component")).to_owned();
    if component.is_empty() {
        component = text(object, pick("/reportingComponent", "/reportingController")).into();
    }
    let host = text(object, &format!("{source}/host"));
    if !host.is_empty() {
        component = format!("{component}, {host}");
    }
    let times = number(object, "/series/count")
        .or_else(|| number(object, "/count"))
        .or_else(|| number(object, "/deprecatedCount"))
        .unwrap_or(1);
    vec![
        json!(age::since(last.as_deref(), now)),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(format!("{}/{}", text(target, "/kind").to_lowercase(), text(target, "/name"))),
        json!(text(target, "/fieldPath")),
        json!(component),
        json!(text(object, pick("/message", "/note")).trim()),
        json!(age::since(first.as_deref(), now)),
        json!(times),
        name(object),
    ]
}

fn modes(object: &Value, pointer: &str) -> Value {
    json!(joined(items(object, pointer), |mode| {
        match mode.as_str().unwrap_or_default() {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        }
        .into()
    }))
}

fn unset_if_empty(text: &str) -> Value {
    json!(if text.is_empty() { "<unset>" } else { text })
}

fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let is_going = object.pointer("/metadata/deletionTimestamp").is_some();
    let is_bound = !text(object, "/spec/volumeName").is_empty();
    vec![
        name(object),
        json!(if is_going { "Terminating" } else { text(object, "/status/phase") }),
        json!(text(object, "/spec/volumeName")),
        json!(if is_bound { text(object, "/status/capacity/storage") } else { "" }),
        if is_bound { modes(object, "/status/accessModes") } else { json!("") },
        json!(text(object, "/spec/storageClassName")),
        unset_if_empty(text(object, "/spec/volumeAttributesClassName")),
        born(object, now),
        json!(text(object, "/spec/volumeMode")),
    ]
}

fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let is_going = object.pointer("/metadata/deletionTimestamp").is_some();
    let claimed = object
        .pointer("/spec/claimRef")
        .map_or_else(String::new, |claim| format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")));
    vec![
        name(object),
        json!(text(object, "/spec/capacity/storage")),
        modes(object, "/spec/accessModes"),
        json!(text(object, "/spec/persistentVolumeReclaimPolicy")),
        json!(if is_going { "Terminating" } else { text(object, "/status/phase") }),
        json!(claimed),
        json!(text(object, "/spec/storageClassName")),
        unset_if_empty(text(object, "/spec/volumeAttributesClassName")),
        json!(text(object, "/status/reason")),
        born(object, now),
        json!(text(object, "/spec/volumeMode")),
    ]
}

fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let of = |kind: &str| {
        let found = items(object, "/subjects").iter().filter(|one| text(one, "/kind") == kind);
        let shown = found.map(|one| match text(one, "/namespace") {
            "" => text(one, "/name").to_owned(),
            namespace => format!("{namespace}/{}", text(one, "/name")),
        });
        json!(shown.collect::<Vec<_>>().join(", "))
    };
    vec![
        name(object),
        json!(format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"))),
        born(object, now),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]
}

fn quota(object: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = object.pointer("/status/hard").or_else(|| object.pointer("/spec/hard"));
    for (resource, amount) in hard.and_then(Value::as_object).into_iter().flatten() {
        let used = object
            .pointer("/status/used")
            .and_then(|used| used.get(resource))
            .map_or_else(|| "0".into(), plain);
        let shown = format!("{resource}: {used}/{}", plain(amount));
        if resource.starts_with("limits.") { limits.push(shown) } else { requests.push(shown) }
    }
    vec![name(object), json!(requests.join(", ")), json!(limits.join(", ")), born(object, now)]
}

fn autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    let target = object.pointer("/spec/scaleTargetRef").unwrap_or(&Value::Null);
    let targets: Vec<String> = items(object, "/spec/metrics")
        .iter()
        .enumerate()
        .map(|(index, metric)| {
            let wanted = number(metric, "/resource/target/averageUtilization");
            let current = number(
                object,
                &format!("/status/currentMetrics/{index}/resource/current/averageUtilization"),
            );
            let current = current.map_or_else(|| "<unknown>".into(), |current| format!("{current}%"));
            if let Some(wanted) = wanted {
                format!("{}: {current}/{wanted}%", text(metric, "/resource/name"))
            } else {
                let target =
                    metric.pointer("/resource/target/averageValue").map_or_else(|| "<auto>".into(), plain);
                format!("<unknown>/{target}")
            }
        })
        .collect();
    let least =
        number(object, "/spec/minReplicas").map_or_else(|| "<unset>".into(), |least| least.to_string());
    vec![
        name(object),
        json!(format!("{}/{}", text(target, "/kind"), text(target, "/name"))),
        none_if_empty(&targets.join(", ")),
        json!(least),
        json!(zero(object, "/spec/maxReplicas")),
        json!(zero(object, "/status/currentReplicas")),
        born(object, now),
    ]
}

fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    let hosts: Vec<&str> = items(object, "/spec/rules")
        .iter()
        .map(|rule| text(rule, "/host"))
        .filter(|host| !host.is_empty())
        .collect();
    let hosts = if hosts.is_empty() { json!("*") } else { some_of(&hosts) };
    let ports = if items(object, "/spec/tls").is_empty() { "80" } else { "80, 443" };
    vec![
        name(object),
        none_if_empty(text(object, "/spec/ingressClassName")),
        hosts,
        json!(balanced(object).join(",")),
        json!(ports),
        born(object, now),
    ]
}

fn definition(object: &Value, _now: Timestamp) -> Vec<Value> {
    let established =
        items(object, "/status/conditions").iter().find(|one| text(one, "/type") == "Established");
    vec![
        name(object),
        json!(text(object, "/spec/scope")),
        json!(joined(items(object, "/spec/versions"), |version| text(version, "/name").into())),
        created(object),
        json!(text(object, "/spec/group")),
        json!(text(object, "/spec/names/kind")),
        json!(joined(items(object, "/spec/names/shortNames"), plain)),
        json!(established.map_or("", |one| text(one, "/status"))),
    ]
}
