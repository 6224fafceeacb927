//! Pods and their templates.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use quintet_api::Quantity;
use serde_json::{Value, json};

use super::super::value::{is_set, items, number, text};
use super::{forbidden, one_of};
use crate::error::FieldError;
use crate::names;
use crate::path::Path;

const UPDATE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

const SYSCTL: &str = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

pub(super) fn pod(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    spec(new.get("spec").unwrap_or(&Value::Null), &Path::new("spec"), errors);
    if let Some(old) = old {
        update(new, old, errors);
    }
}

/// The template of a workload.
pub(super) fn template(template: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(template) = template else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let metadata = path.field("metadata");
    crate::meta::labels(template.pointer("/metadata/labels"), &metadata.field("labels"), errors);
    spec(template.get("spec").unwrap_or(&Value::Null), &path.field("spec"), errors);
}

fn spec(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let volumes = volumes(spec, path, errors);
    if items(spec, "/containers").is_empty() {
        errors.push(FieldError::required(&path.field("containers"), ""));
    }
    let mut seen = BTreeSet::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let at = path.field(list);
        for (index, one) in items(spec, &format!("/{list}")).iter().enumerate() {
            let at = at.index(index);
            let name = text(one, "/name");
            if !name.is_empty() && !seen.insert(name.to_owned()) {
                errors.push(FieldError::duplicate(&at.field("name"), &json!(name)));
            }
            container(one, &volumes, &at, errors);
        }
    }
    one_of(
        text(spec, "/restartPolicy"),
        &["Always", "OnFailure", "Never"],
        &path.field("restartPolicy"),
        errors,
    );
    one_of(
        text(spec, "/dnsPolicy"),
        &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
        &path.field("dnsPolicy"),
        errors,
    );
    if let Some(seconds) = number(spec, "/activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.push(FieldError::invalid(
            &path.field("activeDeadlineSeconds"),
            &json!(seconds),
            "must be between 1 and 2147483647, inclusive",
        ));
    }
    placement(spec, path, errors);
    sysctls(spec, path, errors);
    let name = text(spec, "/serviceAccountName");
    if !name.is_empty() {
        for problem in names::dns_subdomain(name) {
            errors.push(FieldError::invalid(&path.field("serviceAccountName"), &json!(name), problem));
        }
    }
}

/// Kernel parameters.
fn sysctls(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let security = path.field("securityContext");
    let list = security.field("sysctls");
    let mut seen = BTreeSet::new();
    for (index, sysctl) in items(spec, "/securityContext/sysctls").iter().enumerate() {
        let item = list.index(index);
        let (at, name) = (item.field("name"), text(sysctl, "/name"));
        if name.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else if !names::is_sysctl(name) {
            errors.push(FieldError::invalid(&at, &json!(name), SYSCTL));
        } else if !seen.insert(name) {
            errors.push(FieldError::duplicate(&at, &json!(name)));
        }
    }
}

/// Where the pod may go.
fn placement(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    crate::meta::labels(spec.get("nodeSelector"), &path.field("nodeSelector"), errors);
    let name = text(spec, "/nodeName");
    if !name.is_empty() {
        for problem in names::dns_subdomain(name) {
            errors.push(FieldError::invalid(&path.field("nodeName"), &json!(name), problem));
        }
    }
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    if spec.pointer(required).is_some_and(Value::is_object)
        && items(spec, &format!("{required}/nodeSelectorTerms")).is_empty()
    {
        let place = required.trim_start_matches('/').replace('/', ".");
        let terms = path.field(&place);
        let terms = terms.field("nodeSelectorTerms");
        errors.push(FieldError::required(&terms, "must have at least one node selector term"));
    }
    for (index, toleration) in items(spec, "/tolerations").iter().enumerate() {
        let value = text(toleration, "/value");
        if text(toleration, "/operator") == "Exists" && !value.is_empty() {
            let list = path.field("tolerations");
            let at = list.index(index);
            let problem = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(&at.field("operator"), &json!(value), problem));
        }
    }
}

fn volumes<'v>(spec: &'v Value, path: &Path<'_>, errors: &mut Vec<FieldError>) -> BTreeSet<&'v str> {
    let mut seen = BTreeSet::new();
    let path = path.field("volumes");
    for (index, volume) in items(spec, "/volumes").iter().enumerate() {
        let at = path.index(index);
        let name = text(volume, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(&at.field("name"), ""));
        } else {
            for problem in names::dns_label(name) {
                errors.push(FieldError::invalid(&at.field("name"), &json!(name), problem));
            }
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(&at.field("name"), &json!(name)));
            }
        }
        let sources: Vec<&String> = volume
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .filter(|key| *key != "name")
            .collect();
        if sources.is_empty() {
            errors.push(FieldError::required(&at, "must specify a volume type"));
        }
        for source in sources.iter().skip(1) {
            errors.push(FieldError::forbidden(&at.field(source), "may not specify more than 1 volume type"));
        }
    }
    seen
}

fn container(container: &Value, volumes: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let name = text(container, "/name");
    if name.is_empty() {
        errors.push(FieldError::required(&path.field("name"), ""));
    } else {
        for problem in names::dns_label(name) {
            errors.push(FieldError::invalid(&path.field("name"), &json!(name), problem));
        }
    }
    let image = text(container, "/image");
    if image.is_empty() {
        errors.push(FieldError::required(&path.field("image"), ""));
    } else if image != image.trim() {
        errors.push(FieldError::invalid(
            &path.field("image"),
            &json!(image),
            "must not have leading or trailing whitespace",
        ));
    }
    one_of(
        text(container, "/imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
        &path.field("imagePullPolicy"),
        errors,
    );
    let ports = path.field("ports");
    for (index, port) in items(container, "/ports").iter().enumerate() {
        let at = ports.index(index);
        match number(port, "/containerPort").unwrap_or(0) {
            0 => errors.push(FieldError::required(&at.field("containerPort"), "")),
            1..=65535 => {}
            other => errors.push(FieldError::invalid(
                &at.field("containerPort"),
                &json!(other),
                "must be between 1 and 65535, inclusive",
            )),
        }
        one_of(text(port, "/protocol"), &["SCTP", "TCP", "UDP"], &at.field("protocol"), errors);
    }
    let env = path.field("env");
    for (index, variable) in items(container, "/env").iter().enumerate() {
        let at = env.index(index);
        let name = text(variable, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(&at.field("name"), ""));
        } else {
            for problem in names::env_name(name) {
                errors.push(FieldError::invalid(&at.field("name"), &json!(name), problem));
            }
        }
        if !text(variable, "/value").is_empty() && is_set(variable, "/valueFrom") {
            errors.push(FieldError::invalid(
                &at.field("valueFrom"),
                &json!(""),
                "may not be specified when `value` is not empty",
            ));
        }
    }
    let mounts = path.field("volumeMounts");
    let mut places = BTreeSet::new();
    for (index, mount) in items(container, "/volumeMounts").iter().enumerate() {
        let at = mounts.index(index);
        let (name, place) = (text(mount, "/name"), text(mount, "/mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(&at.field("name"), ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::new(
                crate::error::ErrorKind::NotFound,
                &at.field("name"),
                Some(json!(name)),
                "",
            ));
        }
        if place.is_empty() {
            errors.push(FieldError::required(&at.field("mountPath"), ""));
        } else if !places.insert(place) {
            errors.push(FieldError::invalid(&at.field("mountPath"), &json!(place), "must be unique"));
        }
    }
    resources(container, &path.field("resources"), errors);
}

fn resources(container: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let amount = |list: &str, name: &str| {
        let text = container.get("resources")?.get(list)?.get(name)?.as_str()?;
        Some((text, text.parse::<Quantity>().ok()?))
    };
    for list in ["limits", "requests"] {
        let at = path.field(list);
        let all = container.pointer(&format!("/resources/{list}")).and_then(Value::as_object);
        for (name, _) in all.into_iter().flatten() {
            if let Some((text, quantity)) = amount(list, name)
                && quantity.is_negative()
            {
                errors.push(FieldError::invalid(
                    &at.key(name),
                    &json!(text),
                    "must be greater than or equal to 0",
                ));
            }
            if !name.contains('/') && !is_standard(name) {
                let detail = "must be a standard resource for containers";
                errors.push(FieldError::invalid(&at.key(name), &json!(name), detail));
            }
        }
    }
    let requests = container.pointer("/resources/requests").and_then(Value::as_object);
    for (name, _) in requests.into_iter().flatten() {
        let at = path.field("requests");
        let (Some((text, request)), limit) = (amount("requests", name), amount("limits", name)) else {
            continue;
        };
        if let Some((shown, limit)) = limit
            && request > limit
        {
            errors.push(FieldError::invalid(
                &at,
                &json!(text),
                format!("must be less than or equal to {name} limit of {shown}"),
            ));
        }
    }
}

fn is_standard(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
}

fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (Some(mut changed), Some(before)) = (new.get("spec").cloned(), old.get("spec")) else { return };
    if changed == *before {
        return;
    }
    let gates = |value: &Value| -> BTreeSet<String> {
        items(value, "/schedulingGates").iter().map(|gate| text(gate, "/name").to_owned()).collect()
    };
    let (new_gates, old_gates) = (gates(&changed), gates(before));
    if !new_gates.is_subset(&old_gates) {
        errors.push(forbidden(
            "spec.schedulingGates",
            "only deletion is allowed, but found new scheduling gates",
        ));
    }
    let was_gated = !old_gates.is_empty();
    let is_kept =
        |one: &Value| items(&changed, "/tolerations").iter().any(|kept| tolerates_the_same(kept, one));
    if !items(before, "/tolerations").iter().all(is_kept) {
        errors.push(forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
    // What may change is made equal; the rest must already be.
    let mut free = vec!["activeDeadlineSeconds", "tolerations", "schedulingGates"];
    if was_gated {
        free.extend(["nodeSelector", "affinity"]);
    }
    let was_negative = number(before, "/terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0);
    if was_negative && number(&changed, "/terminationGracePeriodSeconds") == Some(1) {
        free.push("terminationGracePeriodSeconds");
    }
    if let Value::Object(fields) = &mut changed {
        for name in free {
            match before.get(name) {
                Some(value) => fields.insert(name.into(), value.clone()),
                None => fields.remove(name),
            };
        }
        for list in ["containers", "initContainers"] {
            let Some(Value::Array(containers)) = fields.get_mut(list) else { continue };
            for (one, before) in containers.iter_mut().zip(items(before, &format!("/{list}"))) {
                if let (Value::Object(one), Some(image)) = (one, before.get("image")) {
                    one.insert("image".into(), image.clone());
                }
            }
        }
    }
    if changed != *before {
        errors.push(forbidden("spec", &format!("{UPDATE}\n{}", difference(before, &changed))));
    }
}

/// Whether two tolerations differ at most in how long they last.
fn tolerates_the_same(one: &Value, other: &Value) -> bool {
    ["key", "operator", "value", "effect"].into_iter().all(|field| one.get(field) == other.get(field))
}

/// A short account of what changed.
fn difference(before: &Value, after: &Value) -> String {
    let names: BTreeSet<&String> =
        before.as_object().into_iter().chain(after.as_object()).flat_map(|fields| fields.keys()).collect();
    let mut out = String::from("  core.PodSpec{\n");
    for name in names {
        let (one, two) = (before.get(name), after.get(name));
        if one != two {
            let shown = |value: Option<&Value>| value.map_or_else(|| "nil".into(), ToString::to_string);
            // Writing to a String cannot fail.
            let _ = write!(out, "- \t{name}: {},\n+ \t{name}: {},\n", shown(one), shown(two));
        }
    }
    out.push_str("  }\n");
    out
}
