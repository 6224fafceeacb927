//! Labels of metrics that are taken from objects: `metrics.customLabels` of the configuration.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::config::kueue::QueueConfiguration;
use quintet_api::names::problems;
use serde::{Deserialize, Serialize};

const PATH: &str = "metrics.customLabels";
/// What stands for all values that are not tracked.
const UNTRACKED: &str = "kueue.x-k8s.io/_UNTRACKED_VALUE_";
/// Bounds of Kueue's, which keep the number of series small.
const MAX_LABELS: usize = 20;
const MAX_PER_KIND: usize = 6;
const MAX_OF_WORKLOADS: usize = 2;
const MAX_TRACKED: usize = 16;
const MAX_TRACKED_OF_WORKLOADS: usize = 12;

/// Whose labels and annotations they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SourceKind {
    /// ClusterQueues: for the metrics about them.
    #[default]
    ClusterQueue,
    /// Cohorts.
    Cohort,
    /// LocalQueues.
    LocalQueue,
    /// Workloads: for the number of those that are admitted.
    Workload,
}

/// A label of metrics that is taken from objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomLabel {
    /// Its name without `custom_`.
    name: String,
    /// The label that it is taken from; by default the one of its name.
    #[serde(default)]
    source_label_key: String,
    /// The annotation that it is taken from.
    #[serde(default)]
    source_annotation_key: String,
    /// Whose label or annotation that is.
    #[serde(default)]
    source_kind: SourceKind,
    /// The values that are told apart; all, if there are none.
    #[serde(default)]
    tracked_values: Vec<String>,
}

/// Where the value of a label comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source<'l> {
    /// A label.
    Label(&'l str),
    /// An annotation.
    Annotation(&'l str),
}

impl CustomLabel {
    /// Its name in metrics.
    pub(crate) fn metric_label(&self) -> String {
        format!("custom_{}", self.name)
    }

    /// Whether it is taken from objects of this kind.
    pub(crate) fn is_of(&self, kind: SourceKind) -> bool {
        self.source_kind == kind
    }

    /// Where its value comes from.
    pub(crate) fn source(&self) -> Source<'_> {
        match (self.source_label_key.as_str(), self.source_annotation_key.as_str()) {
            ("", "") => Source::Label(&self.name),
            (label, "") => Source::Label(label),
            (_, annotation) => Source::Annotation(annotation),
        }
    }

    /// Its value for an object.
    pub(crate) fn value(&self, metadata: &ObjectMeta) -> String {
        let of = |texts: &Option<BTreeMap<String, String>>, key: &str| {
            texts.as_ref().and_then(|texts| texts.get(key)).cloned().unwrap_or_default()
        };
        let value = match self.source() {
            Source::Label(key) => of(&metadata.labels, key),
            Source::Annotation(key) => of(&metadata.annotations, key),
        };
        if self.tracked_values.is_empty() || self.tracked_values.contains(&value) {
            value
        } else {
            UNTRACKED.to_owned()
        }
    }

    fn check(&self, path: &str) -> Result<(), String> {
        let mut letters = self.name.chars();
        let starts = letters.next().is_some_and(|first| first.is_ascii_alphabetic());
        if !starts || !letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
            return Err(format!("{path}.name: {:?} must match ^[a-zA-Z][a-zA-Z0-9_]*$", self.name));
        }
        if !self.source_label_key.is_empty() && !self.source_annotation_key.is_empty() {
            return Err(format!("{path}: sourceLabelKey and sourceAnnotationKey are mutually exclusive"));
        }
        let (Source::Label(key) | Source::Annotation(key)) = self.source();
        let field = match self.source() {
            Source::Label(_) if self.source_label_key.is_empty() => "name",
            Source::Label(_) => "sourceLabelKey",
            Source::Annotation(_) => "sourceAnnotationKey",
        };
        if let Some(problem) = problems::qualified_name(key).into_iter().next() {
            return Err(format!("{path}.{field}: {key:?}: {problem}"));
        }
        let is_of_workloads = self.is_of(SourceKind::Workload);
        if is_of_workloads && self.tracked_values.is_empty() {
            return Err(format!("{path}.trackedValues: name at least one value of Workloads"));
        }
        let max = if is_of_workloads { MAX_TRACKED_OF_WORKLOADS } else { MAX_TRACKED };
        if self.tracked_values.len() > max {
            return Err(format!("{path}.trackedValues: name at most {max} values"));
        }
        let values = &self.tracked_values;
        match values
            .iter()
            .enumerate()
            .find(|(index, value)| values.iter().take(*index).any(|own| own == *value))
        {
            Some((_, value)) => Err(format!("{path}.trackedValues: {value:?} is there already")),
            None => Ok(()),
        }
    }
}

/// The labels of a configuration. The error says what cannot be honoured.
pub(crate) fn read(configuration: &QueueConfiguration) -> Result<Vec<CustomLabel>, String> {
    let mut labels: Vec<CustomLabel> = Vec::new();
    for (index, value) in configuration.metrics.custom_labels.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        let label: CustomLabel =
            serde_json::from_value(value.clone()).map_err(|error| format!("{path}: {error}"))?;
        label.check(&path)?;
        if labels.iter().any(|known| known.name == label.name) {
            return Err(format!("{path}.name: {:?} is there already", label.name));
        }
        labels.push(label);
    }
    if labels.len() > MAX_LABELS {
        return Err(format!("{PATH}: name at most {MAX_LABELS} labels"));
    }
    for kind in [SourceKind::ClusterQueue, SourceKind::Cohort, SourceKind::LocalQueue, SourceKind::Workload] {
        let max = if kind == SourceKind::Workload { MAX_OF_WORKLOADS } else { MAX_PER_KIND };
        if labels.iter().filter(|label| label.is_of(kind)).count() > max {
            return Err(format!("{PATH}: name at most {max} labels of kind {kind:?}"));
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
    fn labels(labels: Value) -> Result<Vec<CustomLabel>, String> {
        let configuration = json!({ "metrics": { "customLabels": labels } });
        read(&serde_json::from_value(configuration).unwrap())
    }

    #[test]
    fn values_come_from_labels_and_annotations_and_only_tracked_ones_are_told_apart() {
        let metadata: ObjectMeta =
            serde_json::from_value(json!({ "labels": { "team": "a" }, "annotations": { "x/budget": "b" } }))
                .unwrap();
        let table = [
            (json!({ "name": "team" }), "a"),
            (json!({ "name": "other" }), ""),
            (json!({ "name": "other", "sourceLabelKey": "team" }), "a"),
            (json!({ "name": "other", "sourceAnnotationKey": "x/budget" }), "b"),
            (json!({ "name": "team", "trackedValues": ["a"] }), "a"),
            (json!({ "name": "team", "trackedValues": ["c"] }), UNTRACKED),
        ];
        for (label, expected) in table {
            let found = labels(json!([label])).unwrap();
            assert_eq!(found[0].value(&metadata), expected, "{label}");
        }
        assert_eq!(labels(json!([{ "name": "team" }])).unwrap()[0].metric_label(), "custom_team");
    }

    #[test]
    fn labels_that_cannot_be_honoured_are_refused_with_their_path() {
        let many = |kind: &str, count: usize| {
            let label =
                |index| json!({ "name": format!("l{index}"), "sourceKind": kind, "trackedValues": ["v"] });
            Value::Array((0..count).map(label).collect())
        };
        let table = [
            (json!([{ "name": "1a" }]), "metrics.customLabels[0].name:"),
            (
                json!([{ "name": "a" }, { "name": "a" }]),
                "metrics.customLabels[1].name: \"a\" is there already",
            ),
            (
                json!([{ "name": "a", "sourceLabelKey": "b", "sourceAnnotationKey": "c" }]),
                "metrics.customLabels[0]:",
            ),
            (
                json!([{ "name": "a", "sourceLabelKey": "not a key" }]),
                "metrics.customLabels[0].sourceLabelKey:",
            ),
            (json!([{ "name": "a", "sourceKind": "Job" }]), "metrics.customLabels[0]:"),
            (json!([{ "name": "a", "sourceKind": "Workload" }]), "metrics.customLabels[0].trackedValues:"),
            (json!([{ "name": "a", "trackedValues": ["v", "v"] }]), "metrics.customLabels[0].trackedValues:"),
            (many("Workload", 3), "metrics.customLabels: name at most 2"),
            (many("Cohort", 7), "metrics.customLabels: name at most 6"),
        ];
        for (value, expected) in table {
            let error = labels(value.clone()).unwrap_err();
            assert!(error.starts_with(expected), "{value}: {error}");
        }
    }
}
