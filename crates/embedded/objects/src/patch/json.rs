//! JSON patch (RFC 6902).

use serde_json::Value;

use super::PatchError;

/// The operations one patch may have.
pub const MAX_OPERATIONS: usize = 10_000;

/// What all copies of one patch may add up to, in bytes of JSON: as much as a request may bring.
const COPIED_AT_MOST: usize = 3 << 20;
/// No object is this deep; deeper ones could not be read again.
const MAX_DEPTH: usize = 100;

/// Applies a JSON patch. The target is unchanged if any operation fails.
pub fn json_patch(target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::Malformed("json patch must be a list of operations".into()));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLong(operations.len()));
    }
    let mut copy = target.clone();
    let mut copied = COPIED_AT_MOST;
    for operation in operations {
        apply(&mut copy, operation, &mut copied)?;
    }
    *target = copy;
    Ok(())
}

fn apply(target: &mut Value, operation: &Value, left: &mut usize) -> Result<(), PatchError> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let path = text("path").ok_or_else(|| rejected("operation without path"))?;
    let value = || operation.get("value").cloned().ok_or_else(|| rejected("operation without value"));
    match text("op") {
        Some("add") => add(target, path, value()?),
        Some("replace") => replace(target, path, value()?),
        Some("remove") => remove(target, path).map(|_| ()),
        Some("test") => {
            let wanted = operation.get("value").unwrap_or(&Value::Null);
            let found = member(target, path)?;
            if found == wanted { Ok(()) } else { Err(rejected(&format!("testing value {path} failed"))) }
        }
        Some("copy") => {
            let from = text("from").ok_or_else(|| rejected("copy without from"))?;
            let value = member(target, from)?;
            *left = left
                .checked_sub(size(value))
                .ok_or_else(|| rejected("the copies of the patch are too large"))?;
            let value = value.clone();
            add(target, path, value)
        }
        Some("move") => {
            let from = text("from").ok_or_else(|| rejected("move without from"))?;
            if path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
                return Err(rejected("cannot move a value into itself"));
            }
            let value = remove(target, from)?;
            add(target, path, value)
        }
        _ => Err(rejected("unexpected kind of operation")),
    }
}

/// About the bytes a value takes as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(size).sum::<usize>() + items.len() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>() + 2
        }
        _ => 8,
    }
}

/// Whether a value has more than this many levels.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let below = |value: &Value| levels == 0 || is_deeper(value, levels - 1);
    match value {
        Value::Array(items) => items.iter().any(below),
        Value::Object(fields) => fields.values().any(below),
        _ => false,
    }
}

fn rejected(cause: &str) -> PatchError {
    PatchError::Rejected { cause: cause.into() }
}

fn missing(path: &str) -> PatchError {
    PatchError::Rejected { cause: format!("path {path} does not exist") }
}

fn tokens(path: &str) -> Option<impl Iterator<Item = String>> {
    if path.is_empty() {
        return None;
    }
    path.strip_prefix('/')
        .map(|rest| rest.split('/').map(|token| token.replace("~1", "/").replace("~0", "~")))
}

fn position(token: &str, length: usize) -> Option<usize> {
    if let Some(back) = token.strip_prefix('-').filter(|back| !back.is_empty()) {
        return length.checked_sub(back.parse().ok()?);
    }
    let is_padded = token.len() > 1 && token.starts_with('0');
    if is_padded { None } else { token.parse().ok() }
}

fn find<'v>(target: &'v Value, path: &str) -> Option<&'v Value> {
    if path.is_empty() {
        return Some(target);
    }
    tokens(path)?.try_fold(target, |value, token| match value {
        Value::Object(fields) => fields.get(&token),
        Value::Array(items) => items.get(position(&token, items.len())?),
        _ => None,
    })
}

/// The value at a path whose container is there. A member that an object does not have is null, as in the library
/// Kubernetes uses; an element that a list does not have is an error.
fn member<'v>(target: &'v Value, path: &str) -> Result<&'v Value, PatchError> {
    let Some((above, last)) = path.rsplit_once('/') else {
        return find(target, path).ok_or_else(|| missing(path));
    };
    match find(target, above) {
        Some(Value::Object(fields)) => {
            Ok(fields.get(&last.replace("~1", "/").replace("~0", "~")).unwrap_or(&Value::Null))
        }
        _ => find(target, path).ok_or_else(|| missing(path)),
    }
}

fn find_mut<'v>(target: &'v mut Value, path: &str) -> Result<&'v mut Value, PatchError> {
    if path.is_empty() {
        return Ok(target);
    }
    let found = tokens(path).and_then(|mut tokens| {
        tokens.try_fold(target, |value, token| match value {
            Value::Object(fields) => fields.get_mut(&token),
            Value::Array(items) => {
                let at = position(&token, items.len())?;
                items.get_mut(at)
            }
            _ => None,
        })
    });
    found.ok_or_else(|| missing(path))
}

/// The container a path ends in, and the last token.
fn parent<'v>(target: &'v mut Value, path: &str) -> Result<(&'v mut Value, String), PatchError> {
    let (above, last) = path.rsplit_once('/').ok_or_else(|| missing(path))?;
    Ok((find_mut(target, above)?, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    let depth = path.matches('/').count();
    if depth > MAX_DEPTH || is_deeper(&value, MAX_DEPTH - depth) {
        return Err(rejected("the patch nests too deeply"));
    }
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    match parent(target, path)? {
        (Value::Object(fields), name) => {
            fields.insert(name, value);
            Ok(())
        }
        (Value::Array(items), token) => {
            let at = if token == "-" { Some(items.len()) } else { position(&token, items.len() + 1) };
            match at.filter(|at| *at <= items.len()) {
                Some(at) => {
                    items.insert(at, value);
                    Ok(())
                }
                None => Err(missing(path)),
            }
        }
        _ => Err(missing(path)),
    }
}

/// Sets a member of an object, whether it is there or not, as the library Kubernetes uses does; or an element that a
/// list has.
fn replace(target: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    if !path.is_empty()
        && let (Value::Object(fields), name) = parent(target, path)?
    {
        fields.insert(name, value);
        return Ok(());
    }
    *find_mut(target, path)? = value;
    Ok(())
}

fn remove(target: &mut Value, path: &str) -> Result<Value, PatchError> {
    if path.is_empty() {
        return Err(rejected("cannot remove the object itself"));
    }
    match parent(target, path)? {
        (Value::Object(fields), name) => fields.remove(&name).ok_or_else(|| missing(path)),
        (Value::Array(items), token) => match position(&token, items.len()).filter(|at| *at < items.len()) {
            Some(at) => Ok(items.remove(at)),
            None => Err(missing(path)),
        },
        _ => Err(missing(path)),
    }
}
