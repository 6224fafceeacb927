//! Defaults of pods and pod templates.

use quintet_api::Quantity;
use serde_json::{Value, json};

use super::super::value::{each, fill, fill_text, items, object, text};

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// A pod: a template's defaults, and what only pods have.
pub(super) fn pod(new: &mut Value) {
    let Some(pod_spec) = object(new, "spec") else { return };
    spec(pod_spec);
    fill(pod_spec, "enableServiceLinks", json!(true));
    let is_host = pod_spec.get("hostNetwork") == Some(&json!(true));
    for list in CONTAINERS {
        for container in each(pod_spec, list) {
            if is_host {
                for port in each(container, "ports") {
                    if let Some(same) = port.get("containerPort").cloned() {
                        fill(port, "hostPort", same);
                    }
                }
            }
            let Some(limits) = container.pointer("/resources/limits").and_then(Value::as_object).cloned()
            else {
                continue;
            };
            if let Some(resources) = container.get_mut("resources")
                && let Some(requests) = object(resources, "requests")
            {
                for (name, limit) in limits {
                    fill(requests, &name, limit);
                }
            }
        }
    }
}

/// The spec of a pod or template.
pub(super) fn spec(spec: &mut Value) {
    fill_text(spec, "restartPolicy", "Always");
    fill_text(spec, "dnsPolicy", "ClusterFirst");
    fill_text(spec, "schedulerName", "default-scheduler");
    fill(spec, "terminationGracePeriodSeconds", json!(30));
    fill(spec, "securityContext", json!({}));
    let account = text(spec, "/serviceAccountName").to_owned();
    let legacy = text(spec, "/serviceAccount").to_owned();
    if account.is_empty() && !legacy.is_empty() {
        fill_text(spec, "serviceAccountName", &legacy);
    } else if !account.is_empty()
        && let Some(fields) = spec.as_object_mut()
    {
        fields.insert("serviceAccount".into(), json!(account));
    }
    for list in CONTAINERS {
        each(spec, list).for_each(container);
    }
    each(spec, "volumes").for_each(volume);
}

fn container(container: &mut Value) {
    let image = text(container, "/image").to_owned();
    if image.is_empty() {
        fill_text(container, "imagePullPolicy", "IfNotPresent");
    } else {
        let last = image.rsplit('/').next().unwrap_or_default();
        let is_latest = !last.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest");
        fill_text(container, "imagePullPolicy", if is_latest { "Always" } else { "IfNotPresent" });
    }
    fill_text(container, "terminationMessagePath", "/dev/termination-log");
    fill_text(container, "terminationMessagePolicy", "File");
    fill(container, "resources", json!({}));
    each(container, "ports").for_each(|port| fill_text(port, "protocol", "TCP"));
    for variable in each(container, "env") {
        if let Some(reference) = variable.pointer_mut("/valueFrom/fieldRef") {
            fill_text(reference, "apiVersion", "v1");
        }
        if let Some(reference) = variable.pointer_mut("/valueFrom/resourceFieldRef") {
            fill(reference, "divisor", json!("0"));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name).filter(|probe| probe.is_object()) {
            for (field, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                if probe.get(field).is_none_or(|set| set == 0) {
                    fill(probe, field, json!(value));
                }
            }
            action(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = container.get_mut("lifecycle").and_then(|lifecycle| lifecycle.get_mut(hook)) {
            action(hook);
        }
    }
    round_up(container);
}

fn action(action: &mut Value) {
    if let Some(get) = action.get_mut("httpGet") {
        fill_text(get, "path", "/");
        fill_text(get, "scheme", "HTTP");
    }
    if let Some(call) = action.get_mut("grpc") {
        fill(call, "service", json!(""));
    }
}

/// Nothing finer than a thousandth is kept.
fn round_up(container: &mut Value) {
    for list in ["/resources/limits", "/resources/requests"] {
        let Some(Value::Object(amounts)) = container.pointer_mut(list) else { continue };
        for amount in amounts.values_mut() {
            let Some(quantity) = amount.as_str().and_then(|text| text.parse::<Quantity>().ok()) else {
                continue;
            };
            let rounded = Quantity::from_millis(quantity.millis(), quantity.notation());
            if rounded != quantity {
                *amount = json!(rounded.to_string());
            }
        }
    }
}

fn volume(volume: &mut Value) {
    let has_source = volume.as_object().is_some_and(|fields| fields.keys().any(|key| key != "name"));
    if !has_source {
        fill(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            fill(source, "defaultMode", json!(420));
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        fill(path, "type", json!(""));
    }
    let field_versions = |holder: &mut Value| {
        for item in each(holder, "items") {
            if let Some(reference) = item.get_mut("fieldRef") {
                fill_text(reference, "apiVersion", "v1");
            }
            if let Some(reference) = item.get_mut("resourceFieldRef") {
                fill(reference, "divisor", json!("0"));
            }
        }
    };
    if let Some(source) = volume.get_mut("downwardAPI") {
        field_versions(source);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in each(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                fill(token, "expirationSeconds", json!(3600));
            }
            if let Some(source) = source.get_mut("downwardAPI") {
                field_versions(source);
            }
        }
    }
    if let Some(template) = volume.pointer_mut("/ephemeral/volumeClaimTemplate")
        && let Some(spec) = object(template, "spec")
    {
        fill_text(spec, "volumeMode", "Filesystem");
    }
}

/// How well a pod is guaranteed its resources.
pub(in crate::builtin) fn qos_class(pod: &Value) -> &'static str {
    let containers: Vec<&Value> =
        items(pod, "/spec/containers").iter().chain(items(pod, "/spec/initContainers")).collect();
    let mut has_any = false;
    let mut is_guaranteed = !containers.is_empty();
    for container in &containers {
        for resource in ["cpu", "memory"] {
            let amount = |list: &str| {
                let text =
                    container.pointer(&format!("/resources/{list}/{resource}")).and_then(Value::as_str)?;
                text.parse::<Quantity>().ok().filter(|quantity| !quantity.is_zero())
            };
            let (request, limit) = (amount("requests"), amount("limits"));
            has_any |= request.is_some() || limit.is_some();
            is_guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (has_any, is_guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
