//! Strict decoding: unknown fields are errors, as in Kubernetes' own strict decoder.

use k8s_openapi::api::core::v1::PodSpec;
use serde_ignored::Path;
use serde_json::Value;

/// Whether a value is a PodSpec without unknown fields; the error names all of them.
pub(super) fn check_pod_spec(value: &Value) -> Result<(), String> {
    let mut unknown = Vec::new();
    let decoded: Result<PodSpec, _> =
        serde_ignored::deserialize(value, |path| unknown.push(format!("unknown field {:?}", written(&path))));
    decoded.map_err(|error| error.to_string())?;
    if unknown.is_empty() {
        return Ok(());
    }
    Err(format!("strict decoding error: {}", unknown.join(", ")))
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
