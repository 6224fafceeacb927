//! The role of a pod in its group: pods that ask for the same are alike, and make one pod set.

use aws_lc_rs::digest;
use quintet_api::Quantity;
use serde_json::{Value, json};

/// How much of the hash is kept.
const LENGTH: usize = 8;
/// Fields of quantities.
const QUANTITIES: [&str; 3] = ["overhead", "requests", "resources"];
const AFFINITIES: &[&str] =
    &["requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"];
const POD_AFFINITY_TERM: &[&str] = &[
    "nodeSelectorTerms",
    "labelSelector",
    "namespaces",
    "topologyKey",
    "namespaceSelector",
    "matchLabelKeys",
    "mismatchLabelKeys",
];
const REQUIREMENT: &[&str] = &["key", "operator", "values"];
const SELECTOR: &[&str] = &["matchLabels", "matchExpressions"];
const TERM: &[&str] = &["matchExpressions", "matchFields"];

/// The fields of the objects in a field, in the order in which Go declares and writes them.
const DECLARED: [(&str, &[&str]); 17] = [
    ("affinity", &["nodeAffinity", "podAffinity", "podAntiAffinity"]),
    ("labelSelector", SELECTOR),
    ("matchExpressions", REQUIREMENT),
    ("matchFields", REQUIREMENT),
    ("namespaceSelector", SELECTOR),
    ("nodeAffinity", AFFINITIES),
    ("nodeSelectorTerms", TERM),
    ("podAffinity", AFFINITIES),
    ("podAffinityTerm", POD_AFFINITY_TERM),
    ("podAntiAffinity", AFFINITIES),
    ("ports", &["name", "hostPort", "containerPort", "protocol", "hostIP"]),
    ("preference", TERM),
    ("preferredDuringSchedulingIgnoredDuringExecution", &["weight", "preference", "podAffinityTerm"]),
    ("requiredDuringSchedulingIgnoredDuringExecution", POD_AFFINITY_TERM),
    ("resourceClaims", &["name", "resourceClaimName", "resourceClaimTemplateName"]),
    ("tolerations", &["key", "operator", "value", "effect", "tolerationSeconds"]),
    (
        "topologySpreadConstraints",
        &[
            "maxSkew",
            "topologyKey",
            "whenUnsatisfiable",
            "labelSelector",
            "minDomains",
            "nodeAffinityPolicy",
            "nodeTaintsPolicy",
            "matchLabelKeys",
        ],
    ),
];

/// The hash of what matters to admission, over JSON as Go writes it: pods keep it as an annotation, and it has to be the
/// same whoever has computed it. As `GenerateRoleHash` of Kueue.
pub(in super::super) fn hash_of(spec: &Value) -> String {
    let mut text = String::new();
    write("", &json!({ "spec": shape_of(spec) }), &mut text);
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    let digits = digest.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).take(LENGTH).collect()
}

/// What matters to admission. Fields that are not set are `null`.
pub(in super::super) fn shape_of(spec: &Value) -> Value {
    let mut shape = json!({
        "initContainers": containers(&spec["initContainers"]),
        "containers": containers(&spec["containers"]),
    });
    let fields = [
        "nodeSelector",
        "affinity",
        "tolerations",
        "runtimeClassName",
        "priority",
        "topologySpreadConstraints",
        "overhead",
        "resourceClaims",
    ];
    for field in fields {
        shape[field] = spec[field].clone();
    }
    // Only where it is set, so that hashes of older pods stay as they are.
    if !spec["resources"].is_null() {
        shape["resources"] = spec["resources"]["requests"].clone();
    }
    shape
}

fn containers(list: &Value) -> Value {
    let shape = |container: &Value| json!({ "resources": { "requests": container["resources"]["requests"] }, "ports": container["ports"] });
    match list.as_array() {
        Some(list) if !list.is_empty() => list.iter().map(shape).collect(),
        _ => Value::Null,
    }
}

/// Writes the value of a field.
fn write(field: &str, value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let declared = DECLARED.iter().find(|(name, _)| *name == field).map(|(_, declared)| *declared);
            let rank = |name: &str| {
                declared
                    .and_then(|declared| declared.iter().position(|own| *own == name))
                    .unwrap_or(usize::MAX)
            };
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            if declared.is_some() {
                fields.retain(|(_, value)| !value.is_null());
                fields.sort_by_key(|(name, _)| rank(name));
            }
            text.push('{');
            for (index, (name, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_text(name, text);
                text.push(':');
                match value.as_str().and_then(|own| own.parse::<Quantity>().ok()) {
                    Some(quantity) if QUANTITIES.contains(&field) => {
                        write_text(&quantity.to_string(), text);
                    }
                    _ => write(name, value, text),
                }
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(field, item, text);
            }
            text.push(']');
        }
        Value::String(own) => write_text(own, text),
        other => text.push_str(&other.to_string()),
    }
}

/// Go escapes three characters more than JSON needs.
fn write_text(value: &str, text: &mut String) {
    let quoted = Value::from(value).to_string();
    text.push_str(&quoted.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the API server stores a pod.
    fn spec(requests: &Value, fields: &Value) -> Value {
        let mut spec = json!({ "containers": [{ "name": "c", "image": "i", "resources": { "requests": requests } }],
            "priority": 0, "tolerations": [
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }] });
        for (name, value) in fields.as_object().unwrap() {
            spec[name] = value.clone();
        }
        spec
    }

    #[test]
    fn hashes_are_those_of_kueue() {
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "a", "operator": "Exists" }] }] } } });
        let spread = json!([{ "maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {} }]);
        let table = [
            ("4b0469f7", spec(&json!({ "cpu": "1" }), &json!({}))),
            ("4b0469f7", spec(&json!({ "cpu": "1000m" }), &json!({}))),
            ("c3465716", spec(&json!({ "cpu": "2" }), &json!({}))),
            (
                "2977f64f",
                spec(
                    &json!({ "cpu": "1" }),
                    &json!({ "affinity": affinity, "topologySpreadConstraints": spread }),
                ),
            ),
        ];
        for (expected, spec) in table {
            assert_eq!(hash_of(&spec), expected, "{spec}");
        }
    }
}
