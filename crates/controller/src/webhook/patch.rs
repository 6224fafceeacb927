//! JSON patches that contain what a handler changed and nothing else.

use json_patch::Patch;
use serde_json::Value;

/// The patch of `original`, the object as it was sent, for a change from `before` to `after`, both as the
/// handler's type writes them.
pub(super) fn changes(original: &Value, before: &Value, after: &Value) -> Patch {
    json_patch::diff(original, &graft(original, before, after))
}

/// Puts what changed from `before` to `after` into `original`, and nothing else: fields that the type does not
/// know, or writes differently, stay as they were sent.
fn graft(original: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return original.clone();
    }
    match (original, before, after) {
        (Value::Object(original), Value::Object(before), Value::Object(after)) => {
            let mut result = original.clone();
            for name in before.keys().filter(|name| !after.contains_key(*name)) {
                result.remove(name);
            }
            for (name, after) in after {
                let was = before.get(name).unwrap_or(&Value::Null);
                if was != after {
                    let original = original.get(name).unwrap_or(&Value::Null);
                    result.insert(name.clone(), graft(original, was, after));
                }
            }
            Value::Object(result)
        }
        (Value::Array(original), Value::Array(before), Value::Array(after))
            if original.len() == before.len() =>
        {
            let elements = after.iter().zip(origins(before, after)).map(|(after, origin)| match origin {
                Some(origin) => graft(&original[origin], &before[origin], after),
                None => after.clone(),
            });
            Value::Array(elements.collect())
        }
        _ => after.clone(),
    }
}

/// For each element of `after`, the index of the element of `before` that it was; `None` if it is new.
///
/// An element is the same if it is equal or has the same name. Of the others, one that stayed at its index was
/// changed there, unless its name says that it is another.
fn origins(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    let mut origins = vec![None; after.len()];
    let mut is_free = vec![true; before.len()];
    let mut pair = |is_same: &dyn Fn(usize, usize) -> bool| {
        for (index, origin) in origins.iter_mut().enumerate().filter(|(_, origin)| origin.is_none()) {
            *origin = (0..before.len()).find(|&was| is_free[was] && is_same(was, index));
            if let Some(was) = *origin {
                is_free[was] = false;
            }
        }
    };
    let names = |was: usize, is: usize| name(&before[was]).zip(name(&after[is]));
    if before.len() == after.len() {
        // Equal elements can differ in what the type does not know: in a list of the same length they stay.
        pair(&|was, is| was == is && before[was] == after[is]);
    }
    pair(&|was, is| before[was] == after[is]);
    pair(&|was, is| names(was, is).is_some_and(|(was, is)| was == is));
    pair(&|was, is| was == is && names(was, is).is_none());
    origins
}

fn name(element: &Value) -> Option<&str> {
    element.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_graft_changes_what_changed_and_nothing_else() {
        let cases = [
            (
                "unknown fields and other spellings stay",
                json!({"a": "1000m", "unknown": 1, "list": [{"x": 1, "unknown": 2}]}),
                json!({"a": "1", "b": null, "list": [{"x": 1}]}),
                json!({"a": "1", "b": 7, "list": [{"x": 2}, {"x": 3}]}),
                json!({"a": "1000m", "b": 7, "unknown": 1, "list": [{"x": 2, "unknown": 2}, {"x": 3}]}),
            ),
            ("removed", json!({"a": 1, "b": 2}), json!({"a": 1, "b": 2}), json!({"a": 1}), json!({"a": 1})),
            (
                "a parent that was missing",
                json!({}),
                json!({"m": {}}),
                json!({"m": {"k": 1}}),
                json!({"m": {"k": 1}}),
            ),
            ("a shorter list as a whole", json!([1, 2]), json!([1, 2]), json!([2]), json!([2])),
        ];
        for (name, original, before, after, expected) in cases {
            assert_eq!(graft(&original, &before, &after), expected, "{name}");
        }
    }

    #[test]
    fn unknown_fields_of_list_elements_stay_with_their_element() {
        // `u` is unknown to the type.
        let unnamed = json!([{"x": 1, "u": 1}, {"x": 2, "u": 2}, {"x": 3, "u": 3}]);
        let named = json!([{"name": "a", "x": 1, "u": 1}, {"name": "b", "x": 2, "u": 2}]);
        let cases = [
            (
                "insert at the front",
                &unnamed,
                json!([{"x": 0}, {"x": 1}, {"x": 2}, {"x": 3}]),
                json!([{"x": 0}, {"x": 1, "u": 1}, {"x": 2, "u": 2}, {"x": 3, "u": 3}]),
            ),
            (
                "remove the first",
                &unnamed,
                json!([{"x": 2}, {"x": 3}]),
                json!([{"x": 2, "u": 2}, {"x": 3, "u": 3}]),
            ),
            (
                "reorder",
                &unnamed,
                json!([{"x": 3}, {"x": 1}, {"x": 2}]),
                json!([{"x": 3, "u": 3}, {"x": 1, "u": 1}, {"x": 2, "u": 2}]),
            ),
            (
                "change in place",
                &unnamed,
                json!([{"x": 1}, {"x": 7}, {"x": 3}]),
                json!([{"x": 1, "u": 1}, {"x": 7, "u": 2}, {"x": 3, "u": 3}]),
            ),
            (
                "insert at the front and change another by its name",
                &named,
                json!([{"name": "new", "x": 0}, {"name": "a", "x": 1}, {"name": "b", "x": 7}]),
                json!([{"name": "new", "x": 0}, {"name": "a", "x": 1, "u": 1}, {"name": "b", "x": 7, "u": 2}]),
            ),
            (
                "remove the first and change the other by its name",
                &named,
                json!([{"name": "b", "x": 7}]),
                json!([{"name": "b", "x": 7, "u": 2}]),
            ),
            (
                "replace by one with another name",
                &named,
                json!([{"name": "new", "x": 1}, {"name": "b", "x": 2}]),
                json!([{"name": "new", "x": 1}, {"name": "b", "x": 2, "u": 2}]),
            ),
        ];
        for (name, original, after, expected) in cases {
            let mut before = original.clone();
            for element in before.as_array_mut().unwrap() {
                element.as_object_mut().unwrap().remove("u");
            }
            assert_eq!(graft(original, &before, &after), expected, "{name}");
            let mut patched = original.clone();
            json_patch::patch(&mut patched, &changes(original, &before, &after)).unwrap();
            assert_eq!(patched, expected, "{name}");
        }
    }

    #[test]
    fn equal_elements_keep_their_places_when_one_of_them_changes() {
        let original = json!([{"x": 1, "u": 1}, {"x": 1, "u": 2}]);
        let (before, after) = (json!([{"x": 1}, {"x": 1}]), json!([{"x": 7}, {"x": 1}]));
        assert_eq!(graft(&original, &before, &after), json!([{"x": 7, "u": 1}, {"x": 1, "u": 2}]));
    }
}
