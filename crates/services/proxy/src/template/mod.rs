//! Compute templates: named sizes of pods, in ConfigMaps, that groups of Ray resources refer to.

mod apply;
mod document;

pub(crate) use apply::groups;
pub(crate) use document::Document;

use serde_json::{Map, Value};

/// The annotation of a pod template that names the compute template it was made with.
const ANNOTATION: &str = "ray.io/compute-template";

/// The resource of a GPU whose template names none.
const DEFAULT_ACCELERATOR: &str = "nvidia.com/gpu";

/// A compute template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ComputeTemplate {
    name: String,
    cpu: String,
    memory: String,
    /// The resource and number of its GPUs.
    gpu: Option<(String, u32)>,
    extended_resources: Vec<(String, u32)>,
    /// `None` if the template has no readable list. An empty list counts.
    tolerations: Option<Vec<Value>>,
}

impl ComputeTemplate {
    /// Reads a ConfigMap. What is missing or malformed counts as none, as in upstream's
    /// `FromKubeToAPIComputeTemplate`.
    pub(crate) fn read(name: &str, config_map: &Value) -> Self {
        let data = |key: &str| config_map["data"][key].as_str().unwrap_or_default();
        let accelerator = Some(data("gpu_accelerator")).filter(|name| !name.is_empty());
        let accelerator = accelerator.unwrap_or(DEFAULT_ACCELERATOR);
        let gpus = number(data("gpu"));
        Self {
            name: config_map["metadata"]["name"].as_str().unwrap_or(name).to_owned(),
            cpu: number(data("cpu")).to_string(),
            memory: format!("{}{}", number(data("memory")), data("memory_unit")),
            gpu: (gpus != 0).then(|| (accelerator.to_owned(), gpus)),
            extended_resources: extended_resources(data("extended_resources")),
            tolerations: tolerations(data("tolerations")),
        }
    }
}

/// A decimal number of 32 bits: 0 if it is none, and the largest one if it is larger, as Go's `strconv.ParseUint`.
fn number(text: &str) -> u32 {
    match text.parse::<u32>() {
        Ok(number) if text.starts_with(|first: char| first.is_ascii_digit()) => number,
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow && !text.starts_with('+') => {
            u32::MAX
        }
        _ => 0,
    }
}

/// Amounts by resource, in JSON. An amount that is no number of 32 bits is 0.
fn extended_resources(text: &str) -> Vec<(String, u32)> {
    let amount = |value: &Value| value.as_u64().and_then(|amount| u32::try_from(amount).ok()).unwrap_or(0);
    let resources: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    resources.iter().map(|(name, value)| (name.clone(), amount(value))).collect()
}

/// A list of tolerations, in JSON: each with the same four texts.
fn tolerations(text: &str) -> Option<Vec<Value>> {
    let list: Vec<Value> = serde_json::from_str(text).ok()?;
    let field = |toleration: &Value, name: &str| {
        let fields = toleration.as_object().into_iter().flatten();
        let named = fields.rev().find(|(key, _)| key.eq_ignore_ascii_case(name));
        Value::from(named.and_then(|(_, value)| value.as_str()).unwrap_or_default())
    };
    let toleration = |toleration: &Value| {
        let fields = ["key", "operator", "value", "effect"];
        Value::Object(fields.map(|name| (name.to_owned(), field(toleration, name))).into_iter().collect())
    };
    Some(list.iter().filter(|one| !one.is_null()).map(toleration).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn config_maps_are_read_as_far_as_they_can_be() {
        let broken = json!({"metadata": {"name": "broken"}, "data": {
            "cpu": "many", "memory": "x", "gpu": "no", "extended_resources": "{bad", "tolerations": "{bad",
        }});
        let nothing = ComputeTemplate {
            name: "broken".to_owned(),
            cpu: "0".to_owned(),
            memory: "0".to_owned(),
            gpu: None,
            extended_resources: vec![],
            tolerations: None,
        };
        assert_eq!(ComputeTemplate::read("x", &broken), nothing);
        let full = json!({"metadata": {"name": "gpu"}, "data": {
            "cpu": "8", "memory": "32", "memory_unit": "Gi", "gpu": "2", "gpu_accelerator": "amd.com/gpu",
            "extended_resources": r#"{"a/b": 1, "c/d": "two", "e/f": null}"#,
            "tolerations": r#"[{"Key": "k", "operator": 1}, null]"#,
        }});
        let full = ComputeTemplate::read("gpu", &full);
        assert_eq!((full.cpu.as_str(), full.memory.as_str()), ("8", "32Gi"));
        assert_eq!(full.gpu, Some(("amd.com/gpu".to_owned(), 2)));
        let expected = [("a/b", 1), ("c/d", 0), ("e/f", 0)].map(|(name, amount)| (name.to_owned(), amount));
        assert_eq!(full.extended_resources, expected);
        let toleration = json!({"key": "k", "operator": "", "value": "", "effect": ""});
        assert_eq!(full.tolerations, Some(vec![toleration]));
    }

    #[test]
    fn numbers_are_those_of_go() {
        let numbers = [("", 0), ("7", 7), ("007", 7), ("+7", 0), ("-7", 0), ("1.5", 0), (" 1", 0)];
        for (text, expected) in numbers {
            assert_eq!(number(text), expected, "{text:?}");
        }
        assert_eq!((number("4294967295"), number("4294967296")), (u32::MAX, u32::MAX));
        assert_eq!(number("99999999999999999999999999"), u32::MAX);
    }
}
