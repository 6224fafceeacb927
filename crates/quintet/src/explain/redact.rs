//! Leaves values out that may be secret: explanations are pasted into bug reports.

use quintet_controller::plan::REDACTED;
use serde_json::Value;

/// An annotation with the whole object in it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Replaces the values of environment variables, and of all fields named in `sensitive`.
pub(super) fn redact(value: &mut Value, sensitive: &[&str]) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, sensitive)),
        Value::Object(fields) => {
            let is_variable = fields.contains_key("name");
            for (name, value) in fields {
                let is_sensitive = name == LAST_APPLIED || sensitive.contains(&name.as_str());
                if !value.is_null() && (is_sensitive || (is_variable && name == "value")) {
                    *value = REDACTED.into();
                } else {
                    redact(value, sensitive);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn environment_and_sensitive_fields_are_redacted_at_any_depth() {
        let mut value = json!({
            "job": {
                "metadata": { "annotations": { LAST_APPLIED: "{\"password\": 1}", "a": "b" } },
                "spec": { "runtimeEnvYAML": "env_vars: {TOKEN: x}", "entrypoint": "python x.py" },
            },
            "pods": [{ "env": [{ "name": "TOKEN", "value": "x" }, { "name": "POD", "valueFrom": { "fieldRef": {} } }] }],
            "runtimeEnv": null,
        });
        redact(&mut value, &["runtimeEnvYAML", "runtimeEnv"]);
        let expected = json!({
            "job": {
                "metadata": { "annotations": { LAST_APPLIED: REDACTED, "a": "b" } },
                "spec": { "runtimeEnvYAML": REDACTED, "entrypoint": "python x.py" },
            },
            "pods": [{ "env": [{ "name": "TOKEN", "value": REDACTED }, { "name": "POD", "valueFrom": { "fieldRef": {} } }] }],
            "runtimeEnv": null,
        });
        assert_eq!(value, expected);
    }
}
