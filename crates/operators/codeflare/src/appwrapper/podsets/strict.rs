//! Strict decoding: unknown fields are errors, as in Kubernetes' own strict decoder.

use k8s_openapi::api::core::v1::PodSpec;
use serde_ignored::Path;
use serde_json::Value;

/// What Kubernetes' decoder says of an amount that is none.
const MALFORMED_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Whether a value is a PodSpec without unknown fields; the error names all of them.
pub(super) fn check_pod_spec(value: &Value) -> Result<(), String> {
    let mut unknown = Vec::new();
    let decoded: Result<PodSpec, _> =
        serde_ignored::deserialize(value, |path| unknown.push(format!("unknown field {:?}", written(&path))));
    let spec = decoded.map_err(|error| in_words_of_go(&error.to_string()))?;
    if !amounts(&spec).all(|amount| amount.parse::<quintet_api::Quantity>().is_ok()) {
        return Err(MALFORMED_QUANTITY.to_owned());
    }
    if unknown.is_empty() {
        return Ok(());
    }
    unknown.sort();
    Err(format!("strict decoding error: {}", unknown.join(", ")))
}

/// The amounts that containers request and are limited to.
fn amounts(spec: &PodSpec) -> impl Iterator<Item = &str> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let resources = containers.filter_map(|container| container.resources.as_ref());
    let lists = resources.flat_map(|resources| [&resources.requests, &resources.limits]);
    lists
        .chain([&spec.overhead])
        .flatten()
        .flat_map(|amounts| amounts.values())
        .map(|amount| amount.0.as_str())
}

/// An error about the type of a value, as the converter of unstructured objects in apimachinery words it.
fn in_words_of_go(error: &str) -> String {
    let Some((found, expected)) =
        error.strip_prefix("invalid type: ").and_then(|error| error.rsplit_once(", expected "))
    else {
        return error.to_owned();
    };
    let (kind, type_) = match found.split_once(' ').map_or(found, |(first, _)| first) {
        "string" => ("string", "string"),
        "integer" => ("int64", "int64"),
        "floating" => ("float64", "float64"),
        "boolean" => ("bool", "bool"),
        "sequence" => ("slice", "[]interface {}"),
        "map" => ("map", "map[string]interface {}"),
        _ => return error.to_owned(),
    };
    match expected {
        "a sequence" => format!("cannot restore slice from {kind}"),
        "a map" => format!("cannot restore map from {kind}"),
        "a string" => format!("cannot convert {type_} to string"),
        "a boolean" => format!("cannot convert {type_} to bool"),
        "i32" => format!("cannot convert {type_} to int32"),
        "i64" => format!("cannot convert {type_} to int64"),
        _ => format!("cannot restore struct from: {kind}"),
    }
}

/// A path as Kubernetes writes it: `containers[0].ports`.
fn written(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", written(parent)),
        Path::Map { parent, key } => match written(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            written(parent)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_another_type_are_named_as_kubernetes_names_them() {
        let container = |container: Value| json!({"containers": [container]});
        let rows = [
            (json!({"containers": "x"}), "cannot restore slice from string"),
            (json!({"containers": ["x"]}), "cannot restore struct from: string"),
            (container(json!({"name": 1})), "cannot convert int64 to string"),
            (container(json!({"stdin": "yes"})), "cannot convert string to bool"),
            (container(json!({"command": {"a": "b"}})), "cannot restore slice from map"),
            (json!({"nodeSelector": [1]}), "cannot restore map from slice"),
            (json!({"terminationGracePeriodSeconds": "1"}), "cannot convert string to int64"),
            (container(json!({"resources": {"limits": {"cpu": "much"}}})), MALFORMED_QUANTITY),
        ];
        for (spec, error) in rows {
            assert_eq!(check_pod_spec(&spec), Err(error.to_owned()), "{spec}");
        }
        assert_eq!(
            check_pod_spec(&container(json!({"resources": {"limits": {"cpu": 1, "x": "2Gi"}}}))),
            Ok(())
        );
    }
}
