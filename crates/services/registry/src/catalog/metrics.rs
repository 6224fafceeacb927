//! Directories of benchmark results.
//!
//! A directory with a `metadata.json`, which names a model, may have `evaluations.ndjson`, `performance.ndjson` and
//! `security-evaluations.ndjson`: results, one JSON object a line. They become artifacts of the model of that name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::item::{Item, ItemKind, Value};

/// How deep directories are searched; results lie one or two levels below the root.
const MAX_DEPTH: usize = 8;

/// Results by the name of their model, in lower case.
#[derive(Debug, Default)]
pub(crate) struct Results(BTreeMap<String, Directory>);

#[derive(Debug)]
struct Directory {
    metadata: Map<String, Json>,
    evaluations: Vec<Map<String, Json>>,
    performance: Vec<Map<String, Json>>,
    security: Vec<Map<String, Json>>,
}

impl Results {
    /// Reads all results below these directories. What cannot be read is left out, and logged.
    pub(crate) fn read(roots: &[PathBuf]) -> Self {
        let mut results = Self::default();
        for root in roots {
            results.visit(root, 0);
        }
        results
    }

    fn visit(&mut self, directory: &Path, depth: usize) {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(%error, directory = %directory.display(), "cannot read benchmark results");
                return;
            }
        };
        if let Ok(text) = std::fs::read_to_string(directory.join("metadata.json")) {
            match serde_json::from_str::<Map<String, Json>>(&text) {
                Ok(metadata) => self.add(directory, &metadata),
                Err(error) => {
                    tracing::warn!(%error, directory = %directory.display(), "metadata.json is malformed");
                }
            }
        }
        let mut below: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        below.sort();
        for path in below.iter().filter(|path| path.is_dir() && depth < MAX_DEPTH) {
            self.visit(path, depth + 1);
        }
    }

    fn add(&mut self, path: &Path, metadata: &Map<String, Json>) {
        let Some(model) = metadata.get("id").and_then(Json::as_str).filter(|id| !id.is_empty()) else {
            tracing::warn!(directory = %path.display(), "metadata.json names no model: it needs an id");
            return;
        };
        let directory = Directory {
            evaluations: lines(&path.join("evaluations.ndjson")),
            performance: lines(&path.join("performance.ndjson")),
            security: lines(&path.join("security-evaluations.ndjson")),
            metadata: metadata.clone(),
        };
        self.0.insert(model.to_lowercase(), directory);
    }

    /// Adds results to a model, which has its id. New artifacts get theirs from `next_id`.
    pub(crate) fn enrich(&self, model: &mut Item, now: i64, mut next_id: impl FnMut(&str) -> i32) {
        let Some(directory) = model.name().and_then(|name| self.0.get(&name.to_lowercase())) else { return };
        for name in ["size", "tensor_type", "variant_group_id"] {
            if let Some(text) =
                directory.metadata.get(name).and_then(Json::as_str).filter(|it| !it.is_empty())
            {
                model.put_custom(name, Value::Text(text.to_owned()));
            }
        }
        if let Some(memory) = directory.metadata.get("min_vram_gb").and_then(Json::as_f64) {
            model.put_custom("min_vram_gb", Value::Double(memory));
        }
        let overall = directory.metadata.get("overall_accuracy").and_then(Json::as_f64);
        let mut artifacts = Vec::new();
        artifacts.extend(scores(model, "accuracy", &directory.evaluations, overall));
        artifacts.extend(scores(model, "security", &directory.security, None));
        artifacts.extend(directory.performance.iter().map(|record| performance(model, record, now)));
        for mut artifact in artifacts {
            let is_there = |it: &Item| it.external_id.is_some() && it.external_id == artifact.external_id;
            if !model.children.iter().any(is_there) {
                artifact.id = next_id(artifact.external_id.as_deref().unwrap_or_default());
                model.children.push(artifact);
            }
        }
    }
}

/// The objects of a file, one a line. Other lines are left out.
fn lines(path: &Path) -> Vec<Map<String, Json>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn time(record: &Map<String, Json>, name: &str) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "a time in milliseconds; what is beyond saturates")]
    record.get(name).and_then(Json::as_f64).map(|number| number as i64)
}

/// One artifact with the scores of all benchmarks.
fn scores(model: &Item, what: &str, records: &[Map<String, Json>], overall: Option<f64>) -> Option<Item> {
    if records.is_empty() {
        return None;
    }
    let mut item = Item::new(ItemKind::MetricsArtifact, &model.source);
    let name = format!("{what}-metrics-model-{}", model.id);
    (item.stored_name, item.external_id) = (Some(name.clone()), Some(name));
    item.created = records.iter().filter_map(|it| time(it, "created_at")).min().unwrap_or_default();
    item.updated = records.iter().filter_map(|it| time(it, "updated_at")).max().unwrap_or_default();
    item.put("metricsType", Some(Value::Text(format!("{what}-metrics"))));
    for record in records {
        let benchmark = record.get("benchmark").and_then(Json::as_str).unwrap_or_default();
        if let Some(score) = record.get("score").and_then(Json::as_f64) {
            item.put_custom(benchmark, Value::Double(score));
        }
    }
    if let Some(overall) = overall {
        item.put_custom("overall_average", Value::Double(overall));
    }
    Some(item)
}

/// A measurement: each member is a custom property.
fn performance(model: &Item, record: &Map<String, Json>, now: i64) -> Item {
    let mut item = Item::new(ItemKind::MetricsArtifact, &model.source);
    let id = record.get("id").and_then(Json::as_str).unwrap_or_default();
    item.stored_name = Some(format!("performance-{id}"));
    item.external_id = Some(id.to_owned());
    item.created = time(record, "created_at").unwrap_or(now);
    item.updated = time(record, "updated_at").unwrap_or(now);
    item.put("metricsType", Some(Value::Text("performance-metrics".to_owned())));
    for (name, value) in record {
        if name == "created_at" || name == "updated_at" {
            continue;
        }
        let value = match value {
            Json::String(text) => Value::Text(text.clone()),
            Json::Bool(flag) => Value::Bool(*flag),
            Json::Number(number) => match number.as_i64().and_then(|number| i32::try_from(number).ok()) {
                Some(number) => Value::Int(number),
                None => Value::Double(number.as_f64().unwrap_or_default()),
            },
            other => Value::Text(other.to_string()),
        };
        item.put_custom(name, value);
    }
    item
}
