//! What a client may leave out.

mod pod;

use serde_json::{Value, json};

use super::Kind;
use super::value::{each, fill, fill_text, is_set, items, number, object, text};
pub(super) use pod::qos_class;

/// Fills in the defaults of a kind.
pub(super) fn apply(kind: &Kind, new: &mut Value) {
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::pod(new),
        ("", "PodTemplate") => template(new),
        ("", "Service") => service(new),
        ("", "Secret") => secret(new),
        ("", "Namespace") => namespace(new),
        ("", "Node") => node(new),
        ("", "PersistentVolumeClaim") => claim(new),
        ("", "PersistentVolume") => volume(new),
        ("", "LimitRange") => limit_range(new),
        ("", "Endpoints") => {
            for subset in each(new, "subsets") {
                each(subset, "ports").for_each(|port| fill_text(port, "protocol", "TCP"));
            }
        }
        ("", "ReplicationController") => replication_controller(new),
        ("apps", "Deployment") => deployment(new),
        ("apps", "ReplicaSet") => {
            with_spec(new, |spec| fill(spec, "replicas", json!(1)));
            template_of_spec(new);
        }
        ("apps", "StatefulSet") => stateful_set(new),
        ("apps", "DaemonSet") => daemon_set(new),
        ("batch", "Job") => {
            with_spec(new, job_spec);
            labels_of_template(new);
        }
        ("batch", "CronJob") => cron_job(new),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaler(new, kind.version),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(new),
        ("networking.k8s.io", "IngressClass") => {
            if let Some(parameters) = new.pointer_mut("/spec/parameters") {
                fill_text(parameters, "scope", "Cluster");
            }
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            for port in each(new, "ports") {
                fill(port, "name", json!(""));
                fill_text(port, "protocol", "TCP");
            }
        }
        ("storage.k8s.io", "StorageClass") => {
            fill_text(new, "reclaimPolicy", "Delete");
            fill_text(new, "volumeBindingMode", "Immediate");
        }
        ("storage.k8s.io", "CSIDriver") => csi_driver(new),
        ("scheduling.k8s.io", "PriorityClass") => fill_text(new, "preemptionPolicy", "PreemptLowerPriority"),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding(new),
        ("admissionregistration.k8s.io", _) => admission(kind, new),
        ("apiextensions.k8s.io", _) => definition(new),
        ("apiregistration.k8s.io", _) => {
            if let Some(service) = new.pointer_mut("/spec/service") {
                fill(service, "port", json!(443));
            }
        }
        ("resource.k8s.io", "ResourceClaim") => with_spec(new, device_requests),
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            with_spec(new, |outer| with_spec(outer, device_requests));
        }
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            with_spec(new, |spec| fill(spec, "matchingPrecedence", json!(1000)));
        }
        _ => {}
    }
}

/// A request for devices asks for one of them.
fn device_requests(spec: &mut Value) {
    let Some(devices) = spec.get_mut("devices") else { return };
    for request in each(devices, "requests") {
        if let Some(exactly) = request.get_mut("exactly") {
            one_device(exactly);
        }
        each(request, "firstAvailable").for_each(one_device);
    }
}

fn one_device(request: &mut Value) {
    fill_text(request, "allocationMode", "ExactCount");
    if text(request, "/allocationMode") == "ExactCount" {
        fill(request, "count", json!(1));
    }
}

fn with_spec(new: &mut Value, then: impl FnOnce(&mut Value)) {
    if let Some(spec) = object(new, "spec") {
        then(spec);
    }
}

fn template(holder: &mut Value) {
    let Some(template) = object(holder, "template") else { return };
    // Go writes structs also when they are empty.
    fill(template, "metadata", json!({}));
    if let Some(spec) = object(template, "spec") {
        pod::spec(spec);
    }
}

fn template_of_spec(new: &mut Value) {
    with_spec(new, template);
}

fn service(new: &mut Value) {
    with_spec(new, |spec| {
        fill_text(spec, "type", "ClusterIP");
        fill_text(spec, "sessionAffinity", "None");
        if text(spec, "/sessionAffinity") == "ClientIP"
            && let Some(config) = object(spec, "sessionAffinityConfig")
            && let Some(client) = object(config, "clientIP")
        {
            fill(client, "timeoutSeconds", json!(10800));
        }
        if text(spec, "/sessionAffinity") == "None"
            && let Some(fields) = spec.as_object_mut()
        {
            fields.remove("sessionAffinityConfig");
        }
        for port in each(spec, "ports") {
            fill_text(port, "protocol", "TCP");
            let same = port.get("port").cloned().unwrap_or_else(|| json!(0));
            let is_absent = port.get("targetPort").is_none_or(|target| target == 0 || target == "");
            if is_absent && let Some(fields) = port.as_object_mut() {
                fields.insert("targetPort".into(), same);
            }
        }
        let kind = text(spec, "/type").to_owned();
        if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
            fill_text(spec, "internalTrafficPolicy", "Cluster");
        }
        let has_external_ips = kind == "ClusterIP" && !items(spec, "/externalIPs").is_empty();
        if kind == "NodePort" || kind == "LoadBalancer" || has_external_ips {
            fill_text(spec, "externalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            fill(spec, "allocateLoadBalancerNodePorts", json!(true));
        }
    });
}

fn secret(new: &mut Value) {
    use base64::Engine as _;
    fill_text(new, "type", "Opaque");
    let Some(plain) = new.as_object_mut().and_then(|fields| fields.remove("stringData")) else { return };
    let Some(data) = object(new, "data").and_then(Value::as_object_mut) else { return };
    for (key, value) in plain.as_object().into_iter().flatten() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        data.insert(key.clone(), json!(encoded));
    }
}

fn namespace(new: &mut Value) {
    let name = text(new, "/metadata/name").to_owned();
    if !name.is_empty()
        && let Some(metadata) = object(new, "metadata")
        && let Some(labels) = object(metadata, "labels").and_then(Value::as_object_mut)
    {
        labels.insert("kubernetes.io/metadata.name".into(), json!(name));
    }
    if let Some(status) = object(new, "status") {
        fill_text(status, "phase", "Active");
    }
}

fn node(new: &mut Value) {
    if let Some(status) = new.get_mut("status")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        fill(status, "allocatable", capacity);
    }
}

fn claim(new: &mut Value) {
    with_spec(new, |spec| fill_text(spec, "volumeMode", "Filesystem"));
    if let Some(status) = object(new, "status") {
        fill_text(status, "phase", "Pending");
    }
}

fn volume(new: &mut Value) {
    with_spec(new, |spec| {
        fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill_text(spec, "volumeMode", "Filesystem");
        if let Some(path) = spec.get_mut("hostPath") {
            fill(path, "type", json!(""));
        }
    });
    if let Some(status) = object(new, "status") {
        fill_text(status, "phase", "Pending");
    }
}

fn limit_range(new: &mut Value) {
    let Some(spec) = new.get_mut("spec") else { return };
    for limit in each(spec, "limits").filter(|limit| text(limit, "/type") == "Container") {
        let copy = |limit: &mut Value, from: &str, to: &str| {
            let Some(values) = limit.get(from).and_then(Value::as_object).cloned() else { return };
            if let Some(target) = object(limit, to) {
                for (name, value) in values {
                    fill(target, &name, value);
                }
            }
        };
        copy(limit, "max", "default");
        copy(limit, "default", "defaultRequest");
        copy(limit, "min", "defaultRequest");
    }
}

fn replication_controller(new: &mut Value) {
    let labels = new.pointer("/spec/template/metadata/labels").cloned();
    with_spec(new, |spec| {
        fill(spec, "replicas", json!(1));
        if let Some(labels) = &labels {
            fill(spec, "selector", labels.clone());
        }
        // Unlike that of other kinds, this template may be absent.
        if is_set(spec, "/template") {
            template(spec);
        }
    });
    if let (Some(labels), Some(metadata)) = (labels, object(new, "metadata")) {
        fill(metadata, "labels", labels);
    }
}

fn deployment(new: &mut Value) {
    with_spec(new, |spec| {
        fill(spec, "replicas", json!(1));
        fill(spec, "revisionHistoryLimit", json!(10));
        fill(spec, "progressDeadlineSeconds", json!(600));
        if let Some(strategy) = object(spec, "strategy") {
            fill_text(strategy, "type", "RollingUpdate");
            if text(strategy, "/type") == "RollingUpdate"
                && let Some(rolling) = object(strategy, "rollingUpdate")
            {
                fill(rolling, "maxUnavailable", json!("25%"));
                fill(rolling, "maxSurge", json!("25%"));
            }
        }
        template(spec);
    });
}

fn stateful_set(new: &mut Value) {
    with_spec(new, |spec| {
        fill(spec, "replicas", json!(1));
        fill_text(spec, "podManagementPolicy", "OrderedReady");
        fill(spec, "revisionHistoryLimit", json!(10));
        if let Some(strategy) = object(spec, "updateStrategy") {
            fill_text(strategy, "type", "RollingUpdate");
            if text(strategy, "/type") == "RollingUpdate"
                && let Some(rolling) = object(strategy, "rollingUpdate")
            {
                fill(rolling, "partition", json!(0));
            }
        }
        if let Some(policy) = object(spec, "persistentVolumeClaimRetentionPolicy") {
            fill_text(policy, "whenDeleted", "Retain");
            fill_text(policy, "whenScaled", "Retain");
        }
        for claim_template in each(spec, "volumeClaimTemplates") {
            fill_text(claim_template, "kind", "PersistentVolumeClaim");
            fill_text(claim_template, "apiVersion", "v1");
            claim(claim_template);
        }
        template(spec);
    });
}

fn daemon_set(new: &mut Value) {
    with_spec(new, |spec| {
        fill(spec, "revisionHistoryLimit", json!(10));
        if let Some(strategy) = object(spec, "updateStrategy") {
            fill_text(strategy, "type", "RollingUpdate");
            if text(strategy, "/type") == "RollingUpdate"
                && let Some(rolling) = object(strategy, "rollingUpdate")
            {
                fill(rolling, "maxUnavailable", json!(1));
                fill(rolling, "maxSurge", json!(0));
            }
        }
        template(spec);
    });
}

fn job_spec(spec: &mut Value) {
    if !is_set(spec, "/completions") && !is_set(spec, "/parallelism") {
        fill(spec, "completions", json!(1));
    }
    fill(spec, "parallelism", json!(1));
    let limit = if is_set(spec, "/backoffLimitPerIndex") { i32::MAX } else { 6 };
    fill(spec, "backoffLimit", json!(limit));
    fill_text(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", json!(false));
    fill(spec, "manualSelector", json!(false));
    let replacement = if is_set(spec, "/podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    fill_text(spec, "podReplacementPolicy", replacement);
    if let Some(policy) = spec.get_mut("podFailurePolicy") {
        for rule in each(policy, "rules") {
            each(rule, "onPodConditions").for_each(|condition| fill_text(condition, "status", "True"));
        }
    }
    template(spec);
}

/// A Job without labels takes those of its pods.
fn labels_of_template(new: &mut Value) {
    let labels = new.pointer("/spec/template/metadata/labels").cloned();
    let has_labels = |labels: &Value| labels.as_object().is_some_and(|labels| !labels.is_empty());
    if let Some(labels) = labels.filter(has_labels)
        && !new.pointer("/metadata/labels").is_some_and(has_labels)
        && let Some(Value::Object(metadata)) = object(new, "metadata")
    {
        metadata.insert("labels".into(), labels);
    }
}

fn cron_job(new: &mut Value) {
    with_spec(new, |spec| {
        fill_text(spec, "concurrencyPolicy", "Allow");
        fill(spec, "suspend", json!(false));
        fill(spec, "successfulJobsHistoryLimit", json!(3));
        fill(spec, "failedJobsHistoryLimit", json!(1));
        // The Job controller's defaults are filled in when a Job is made; the pod template's are filled in here.
        if let Some(job) = object(spec, "jobTemplate") {
            fill(job, "metadata", json!({}));
            if let Some(spec) = object(job, "spec") {
                template(spec);
            }
        }
    });
}

fn autoscaler(new: &mut Value, version: &str) {
    with_spec(new, |spec| {
        fill(spec, "minReplicas", json!(1));
        if version == "v2" && items(spec, "/metrics").is_empty() {
            let metric = json!([{ "type": "Resource", "resource": { "name": "cpu",
                "target": { "type": "Utilization", "averageUtilization": 80 } } }]);
            if let Some(fields) = spec.as_object_mut() {
                fields.insert("metrics".into(), metric);
            }
        }
        if version == "v2"
            && is_set(spec, "/behavior")
            && let Some(behavior) = object(spec, "behavior")
        {
            scaling_rules(behavior);
        }
    });
}

/// A behavior that is set has rules for both directions.
fn scaling_rules(behavior: &mut Value) {
    let all = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
    let four = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
    if let Some(up) = object(behavior, "scaleUp") {
        fill(up, "stabilizationWindowSeconds", json!(0));
        fill_text(up, "selectPolicy", "Max");
        fill(up, "policies", json!([four, all.clone()]));
    }
    if let Some(down) = object(behavior, "scaleDown") {
        fill_text(down, "selectPolicy", "Max");
        fill(down, "policies", json!([all]));
    }
}

fn network_policy(new: &mut Value) {
    with_spec(new, |spec| {
        fill(spec, "podSelector", json!({}));
        let has_egress = !items(spec, "/egress").is_empty();
        if items(spec, "/policyTypes").is_empty()
            && let Some(fields) = spec.as_object_mut()
        {
            let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            fields.insert("policyTypes".into(), types);
        }
        for direction in ["ingress", "egress"] {
            for rule in each(spec, direction) {
                each(rule, "ports").for_each(|port| fill_text(port, "protocol", "TCP"));
            }
        }
    });
}

fn csi_driver(new: &mut Value) {
    with_spec(new, |spec| {
        fill(spec, "attachRequired", json!(true));
        fill(spec, "podInfoOnMount", json!(false));
        fill(spec, "storageCapacity", json!(false));
        fill_text(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        fill(spec, "volumeLifecycleModes", json!(["Persistent"]));
        fill(spec, "requiresRepublish", json!(false));
        fill(spec, "seLinuxMount", json!(false));
    });
}

fn binding(new: &mut Value) {
    if let Some(role) = object(new, "roleRef") {
        fill_text(role, "apiGroup", "rbac.authorization.k8s.io");
    }
    for subject in each(new, "subjects") {
        if matches!(text(subject, "/kind"), "User" | "Group") {
            fill_text(subject, "apiGroup", "rbac.authorization.k8s.io");
        }
    }
}

fn admission(kind: &Kind, new: &mut Value) {
    let is_mutating = kind.kind == "MutatingWebhookConfiguration";
    for hook in each(new, "webhooks") {
        fill_text(hook, "failurePolicy", "Fail");
        fill_text(hook, "matchPolicy", "Equivalent");
        fill(hook, "timeoutSeconds", json!(10));
        fill(hook, "namespaceSelector", json!({}));
        fill(hook, "objectSelector", json!({}));
        if is_mutating {
            fill_text(hook, "reinvocationPolicy", "Never");
        }
        each(hook, "rules").for_each(|rule| fill_text(rule, "scope", "*"));
        if let Some(service) = hook.pointer_mut("/clientConfig/service") {
            fill(service, "port", json!(443));
        }
    }
    if kind.kind.ends_with("AdmissionPolicy") {
        with_spec(new, |spec| {
            fill_text(spec, "failurePolicy", "Fail");
            if let Some(constraints) = spec.get_mut("matchConstraints") {
                fill_text(constraints, "matchPolicy", "Equivalent");
                fill(constraints, "namespaceSelector", json!({}));
                fill(constraints, "objectSelector", json!({}));
                each(constraints, "resourceRules").for_each(|rule| fill_text(rule, "scope", "*"));
            }
        });
    }
}

fn definition(new: &mut Value) {
    let storage: Vec<Value> = items(new, "/spec/versions")
        .iter()
        .filter(|version| version.get("storage") == Some(&json!(true)))
        .filter_map(|version| version.get("name").cloned())
        .collect();
    with_spec(new, |spec| {
        let kind = text(spec, "/names/kind").to_owned();
        if let Some(names) = object(spec, "names")
            && !kind.is_empty()
        {
            fill_text(names, "singular", &kind.to_lowercase());
            fill_text(names, "listKind", &format!("{kind}List"));
        }
        if let Some(conversion) = object(spec, "conversion") {
            fill_text(conversion, "strategy", "None");
            if let Some(service) = conversion.pointer_mut("/webhook/clientConfig/service") {
                fill(service, "port", json!(443));
            }
        }
        for version in each(spec, "versions") {
            for column in each(version, "additionalPrinterColumns") {
                if number(column, "/priority") == Some(0)
                    && let Some(fields) = column.as_object_mut()
                {
                    fields.remove("priority");
                }
            }
        }
    });
    if let Some(status) = object(new, "status") {
        fill(status, "acceptedNames", json!({ "plural": "", "kind": "" }));
        fill(status, "storedVersions", Value::Array(storage));
        fill(status, "conditions", json!([]));
    }
}
