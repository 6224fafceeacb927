//! Compares this crate with recordings of Kubernetes' own packages (`tests/kubernetes/differential`).
//!
//! The recordings in `recorded/` are small. `make differential` records many more, and sets `QUINTET_DIFFERENTIAL` to
//! their directory.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a recording that cannot be read should stop the test; counts are part of its report"
)]

mod expressions;
mod objects;
mod sequences;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;

use serde_json::{Value, json};

/// Topics in which this crate is known to differ, one per line.
const KNOWN: &str = include_str!("known.txt");

/// Calls `compare` with every recorded case of a file.
fn each_case(file: &str, mut compare: impl FnMut(&Value, &mut Differences)) {
    let recorded = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/differential/recorded");
    let directory = std::env::var_os("QUINTET_DIFFERENTIAL").map_or(recorded, PathBuf::from);
    let path = directory.join(file);
    let mut differences = Differences::default();
    for (number, line) in BufReader::new(std::fs::File::open(path).unwrap()).lines().enumerate() {
        let case: Value = serde_json::from_str(&line.unwrap()).unwrap();
        differences.case = number;
        differences.cases += 1;
        compare(&case, &mut differences);
    }
    differences.report(file);
}

/// What differs, by topic, with an example of each.
#[derive(Default)]
struct Differences {
    case: usize,
    cases: usize,
    /// How many differences were known ones.
    known: usize,
    topics: BTreeMap<String, (usize, String)>,
}

impl Differences {
    fn add(&mut self, topic: impl Into<String>, example: impl FnOnce() -> String) {
        let (topic, case) = (topic.into(), self.case);
        if KNOWN.lines().any(|known| known == topic) {
            self.known += 1;
            return;
        }
        let entry = self.topics.entry(topic).or_insert_with(|| (0, format!("case {case}: {}", example())));
        entry.0 += 1;
    }

    fn report(&self, file: &str) {
        let mut text = String::new();
        for (topic, (count, example)) in &self.topics {
            writeln!(text, "{count} × {topic}\n    {example}").unwrap();
        }
        println!("{file}: {} cases, {} known differences", self.cases, self.known);
        assert!(text.is_empty(), "{file}: differences in {} cases:\n{text}", self.cases);
    }
}

/// Without what Kubernetes does not tell apart: null, and empty structs where no field set is meant.
fn comparable(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(name, _)| *name != "time")
                .map(|(name, value)| (name.clone(), comparable(value)))
                .filter(|(name, value)| {
                    let is_element =
                        name == "." || ["f:", "k:", "v:"].iter().any(|mark| name.starts_with(mark));
                    !value.is_null() && (is_element || *value != json!({}))
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(comparable).collect()),
        Value::Number(number) => number.as_f64().filter(|_| number.is_f64()).map_or_else(
            || value.clone(),
            // 2.0 is written as 2 by some encoders.
            |float| {
                if float.fract() == 0.0 && float.abs() < 1e15 { json!(integer(float)) } else { value.clone() }
            },
        ),
        other => other.clone(),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "only for whole numbers that fit")]
fn integer(float: f64) -> i64 {
    float as i64
}

/// Without fields that are zero: Go writes those that are required, whoever left them out.
fn without_zeros(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), without_zeros(value)));
            let zeros = [json!(null), json!(""), json!(0), json!(false), json!([]), json!({})];
            // A time, and what only a conversion to an internal version adds.
            let is_apart = |name: &str| {
                matches!(name, "lastTransitionTime" | "deprecated.daemonset.template.generation")
            };
            Value::Object(fields.filter(|(name, value)| !is_apart(name) && !zeros.contains(value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_zeros).collect()),
        other => other.clone(),
    }
}

/// The first place where two values differ, and how.
fn first_difference(path: &str, ours: &Value, theirs: &Value) -> Option<(String, String)> {
    match (ours, theirs) {
        (Value::Object(one), Value::Object(two)) => {
            let names: std::collections::BTreeSet<_> = one.keys().chain(two.keys()).collect();
            names.into_iter().find_map(|name| {
                let of = |fields: &serde_json::Map<String, Value>| {
                    fields.get(name).cloned().unwrap_or(Value::Null)
                };
                first_difference(&format!("{path}.{name}"), &of(one), &of(two))
            })
        }
        (Value::Array(one), Value::Array(two)) if one.len() == two.len() => {
            one.iter().zip(two).find_map(|(one, two)| first_difference(&format!("{path}[]"), one, two))
        }
        _ if ours == theirs => None,
        _ => Some((path.to_owned(), format!("ours {ours}, theirs {theirs}"))),
    }
}
