//! Filling in what a client left out.

use serde_json::Value;

use super::Structural;

pub(super) fn default(schema: &Structural, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, child) in &schema.properties {
                let is_null = fields.get(name).is_some_and(Value::is_null);
                if is_null && !child.is_nullable {
                    fields.remove(name);
                }
                if let Some(default) = &child.default
                    && !fields.contains_key(name)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            if let Some(additional) = &schema.additional
                && !additional.is_nullable
            {
                let is_absent =
                    |name: &String, value: &Value| value.is_null() && !schema.properties.contains_key(name);
                match &additional.default {
                    Some(default) => {
                        for (_, value) in fields.iter_mut().filter(|(name, value)| is_absent(name, value)) {
                            *value = default.clone();
                        }
                    }
                    None => fields.retain(|name, value| !is_absent(name, value)),
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(child) = schema.child(name) {
                    default(child, value);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for item in items {
                if item.is_null()
                    && !schema.is_nullable
                    && let Some(default) = &schema.default
                {
                    *item = default.clone();
                }
                default(schema, item);
            }
        }
        _ => {}
    }
}
