//! The part of JSONPath that printer columns use: `.status.conditions[?(@.type=="Ready")].status`.

use serde_json::Value;

/// A compiled path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Slice),
    All,
    Filter { path: Vec<String>, test: Option<(Comparison, Value)> },
    Recursive(String),
}

/// A part of a list: `[start:end:step]`, where negative positions count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A wide path over a wide object still finds no more than this.
const MAX_FOUND: usize = 10_000;

impl JsonPath {
    /// Reads a path, with or without the braces around it. `None` if it is malformed.
    pub fn parse(path: &str) -> Option<Self> {
        let path = path.trim();
        let path = path.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(path);
        let mut rest = path.strip_prefix('$').unwrap_or(path);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix("..") {
                let (name, after) = name(after)?;
                steps.push(Step::Recursive(name));
                rest = after;
            } else if let Some(after) = rest.strip_prefix('.') {
                if after.is_empty() {
                    break;
                }
                if let Some(after) = after.strip_prefix('*') {
                    steps.push(Step::All);
                    rest = after;
                    continue;
                }
                if after.starts_with('[') {
                    rest = after;
                    continue;
                }
                let (name, after) = name(after)?;
                steps.push(Step::Field(name));
                rest = after;
            } else if let Some(after) = rest.strip_prefix('[') {
                let end = closing(after)?;
                steps.push(bracket(after.get(..end)?.trim())?);
                rest = after.get(end + 1..)?;
            } else if steps.is_empty() {
                let (name, after) = name(rest)?;
                steps.push(Step::Field(name));
                rest = after;
            } else {
                return None;
            }
        }
        Some(Self { steps })
    }

    /// Everything the path leads to.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in found {
                step.apply(value, &mut next);
                if next.len() > MAX_FOUND {
                    next.truncate(MAX_FOUND);
                    break;
                }
            }
            found = next;
        }
        found
    }

    /// The first thing the path leads to.
    pub fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.find(value).into_iter().next()
    }
}

impl Step {
    fn apply<'v>(&self, value: &'v Value, out: &mut Vec<&'v Value>) {
        match self {
            Self::Field(name) => out.extend(value.get(name)),
            Self::Index(at) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                out.extend(position(*at, items.len()).and_then(|at| items.get(at)));
            }
            Self::Slice(slice) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                out.extend(slice.of(items));
            }
            Self::All => match value {
                Value::Array(items) => out.extend(items),
                Value::Object(fields) => out.extend(fields.values()),
                _ => {}
            },
            Self::Filter { path, test } => {
                for item in value.as_array().into_iter().flatten() {
                    let found = path.iter().try_fold(item, |value, name| value.get(name));
                    let holds = match (found, test) {
                        (None, _) => false,
                        (Some(_), None) => true,
                        (Some(found), Some((comparison, wanted))) => comparison.holds(found, wanted),
                    };
                    if holds {
                        out.push(item);
                    }
                }
            }
            Self::Recursive(name) => recurse(value, name, out, 0),
        }
    }
}

fn recurse<'v>(value: &'v Value, name: &str, out: &mut Vec<&'v Value>, depth: usize) {
    if depth > 64 || out.len() > MAX_FOUND {
        return;
    }
    out.extend(value.get(name));
    match value {
        Value::Array(items) => items.iter().for_each(|item| recurse(item, name, out, depth + 1)),
        Value::Object(fields) => fields.values().for_each(|item| recurse(item, name, out, depth + 1)),
        _ => {}
    }
}

impl Slice {
    /// Nothing if it reaches beyond the list, as with kubectl.
    fn of(self, items: &[Value]) -> impl Iterator<Item = &Value> {
        let start = position(self.start.unwrap_or(0), items.len());
        let end = self.end.map_or(Some(items.len()), |end| position(end, items.len()));
        let part = start.zip(end).and_then(|(start, end)| items.get(start..end));
        part.unwrap_or_default().iter().step_by(self.step)
    }
}

/// A position in a list; negative ones count from its end.
fn position(at: i64, length: usize) -> Option<usize> {
    let at = if at < 0 { i64::try_from(length).ok()?.checked_add(at)? } else { at };
    usize::try_from(at).ok()
}

impl Comparison {
    fn holds(self, found: &Value, wanted: &Value) -> bool {
        let order = match (found, wanted) {
            (Value::Number(one), Value::Number(two)) => one.as_f64().partial_cmp(&two.as_f64()),
            (Value::String(one), Value::String(two)) => Some(one.cmp(two)),
            (one, two) if one == two => Some(std::cmp::Ordering::Equal),
            _ => None,
        };
        match self {
            Self::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
            Self::NotEqual => !order.is_some_and(std::cmp::Ordering::is_eq),
            Self::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Self::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Self::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

/// A name up to the next separator; `\.` stands for a dot.
fn name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.push(characters.next()?.1),
            '.' | '[' | '}' | ' ' => return (!name.is_empty()).then_some((name, text.get(at..)?)),
            other => name.push(other),
        }
    }
    (!name.is_empty()).then_some((name, ""))
}

/// Where the bracket closes, minding quotes and brackets inside.
fn closing(text: &str) -> Option<usize> {
    let (mut quote, mut depth) = (None, 0_usize);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (Some(_) | None, _) => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Step> {
    if inner == "*" || inner == ":" {
        return Some(Step::All);
    }
    if let Some(text) = unquoted(inner) {
        return Some(Step::Field(text));
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return filtered(filter.trim());
    }
    if inner.contains(':') {
        return sliced(inner);
    }
    inner.parse().ok().map(Step::Index)
}

fn sliced(inner: &str) -> Option<Step> {
    let bound = |text: Option<&str>| match text.map(str::trim) {
        None | Some("") => Some(None),
        Some(text) => text.parse().ok().map(Some),
    };
    let mut parts = inner.splitn(3, ':');
    let (start, end) = (bound(parts.next())?, bound(parts.next())?);
    let step = usize::try_from(bound(parts.next())?.unwrap_or(1)).ok().filter(|step| *step > 0)?;
    Some(Step::Slice(Slice { start, end, step }))
}

fn unquoted(text: &str) -> Option<String> {
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return Some(inner.replace("\\.", "."));
        }
    }
    None
}

fn filtered(filter: &str) -> Option<Step> {
    let operators = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let found =
        operators.iter().filter_map(|(sign, comparison)| Some((filter.find(sign)?, sign, *comparison)));
    let (left, test) = match found.min_by_key(|(at, sign, _)| (*at, std::cmp::Reverse(sign.len()))) {
        None => (filter, None),
        Some((at, sign, comparison)) => {
            let right = filter.get(at + sign.len()..)?.trim();
            let value = match unquoted(right) {
                Some(text) => Value::String(text),
                None => serde_json::from_str(right).ok()?,
            };
            (filter.get(..at)?, Some((comparison, value)))
        }
    };
    let path = field_names(left.trim().strip_prefix('@')?)?;
    Some(Step::Filter { path, test })
}

/// The field names of a simple path such as `.spec.foo['a.b']`; none if the path is invalid.
pub fn json_path_steps(path: &str) -> Vec<String> {
    field_names(path).unwrap_or_default()
}

fn field_names(path: &str) -> Option<Vec<String>> {
    let names = JsonPath::parse(path)?.steps.into_iter().filter_map(|step| match step {
        Step::Field(name) => Some(name),
        _ => None,
    });
    Some(names.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_find_their_values() {
        let object = json!({ "status": { "conditions": [
            { "type": "Ready", "status": "True" }, { "type": "Failed", "status": "False" }
        ], "n": 3 }, "metadata": { "labels": { "a.b/c": "x" } } });
        let first = |path: &str| JsonPath::parse(path).and_then(|path| path.first(&object).cloned());
        assert_eq!(first(".status.conditions[?(@.type==\"Ready\")].status"), Some(json!("True")));
        assert_eq!(first(".status.conditions[?(@.type=='Failed')].status"), Some(json!("False")));
        assert_eq!(first(".status.conditions[-1].type"), Some(json!("Failed")));
        assert_eq!(first(".status.conditions[*].type"), Some(json!("Ready")));
        assert_eq!(first(".metadata.labels.a\\.b/c"), Some(json!("x")));
        assert_eq!(first(".metadata.labels['a\\.b/c']"), Some(json!("x")));
        assert_eq!(first("{.status.n}"), Some(json!(3)));
        assert_eq!(first(".status.none"), None);
        assert_eq!(first(".status.conditions[-1:].type"), Some(json!("Failed")));
        assert_eq!(first(".status.conditions[0:1].type"), Some(json!("Ready")));
        assert_eq!(first(".status.conditions[::2].type"), Some(json!("Ready")));
        assert_eq!(first(".status.conditions[5:].type"), None);
        assert_eq!(first(".status.conditions[1:9].type"), None);
        assert_eq!(JsonPath::parse(".a[0:1:0]"), None);
        assert_eq!(JsonPath::parse(".a[x:]"), None);
        assert_eq!(JsonPath::parse(".a["), None);
        assert_eq!(json_path_steps(".spec['a-b'].c"), ["spec", "a-b", "c"]);
    }
}
