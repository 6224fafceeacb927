//! The registry's entities.
//!
//! All thirteen kinds share one shape: a row with a few columns, and properties. What differs is
//! a table of fields per kind ([`fields`]), which decoding, storage and encoding all read.

pub(crate) mod custom;
mod encode;
pub(crate) mod fields;
pub(crate) mod structs;

pub(crate) use encode::{Hidden, encode};

/// The three entity tables of the schema, inherited from ML Metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Table {
    Context,
    Artifact,
    Execution,
}

impl Table {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Context => "Context",
            Self::Artifact => "Artifact",
            Self::Execution => "Execution",
        }
    }

    pub(crate) fn properties(self) -> &'static str {
        match self {
            Self::Context => "ContextProperty",
            Self::Artifact => "ArtifactProperty",
            Self::Execution => "ExecutionProperty",
        }
    }

    /// The column of the property table that names the entity.
    pub(crate) fn owner_column(self) -> &'static str {
        match self {
            Self::Context => "context_id",
            Self::Artifact => "artifact_id",
            Self::Execution => "execution_id",
        }
    }

    /// The table that relates an entity to its parent: its name, the column of the child and
    /// the column of the parent.
    pub(crate) fn parents(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Context => ("ParentContext", "context_id", "parent_context_id"),
            Self::Artifact => ("Attribution", "artifact_id", "context_id"),
            Self::Execution => ("Association", "execution_id", "context_id"),
        }
    }

    /// Columns that only this table has.
    pub(crate) fn extra_columns(self) -> &'static [&'static str] {
        match self {
            Self::Context => &[],
            Self::Artifact => &["uri", "state"],
            Self::Execution => &["last_known_state"],
        }
    }
}

/// What an entity is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    RegisteredModel,
    ModelVersion,
    ServingEnvironment,
    InferenceService,
    Experiment,
    ExperimentRun,
    ModelArtifact,
    DocArtifact,
    DataSet,
    Metric,
    Parameter,
    MetricHistory,
    ServeModel,
}

impl Kind {
    pub(crate) const ALL: [Self; 13] = [
        Self::ServeModel,
        Self::ModelArtifact,
        Self::DocArtifact,
        Self::DataSet,
        Self::Metric,
        Self::Parameter,
        Self::MetricHistory,
        Self::RegisteredModel,
        Self::ModelVersion,
        Self::ServingEnvironment,
        Self::InferenceService,
        Self::Experiment,
        Self::ExperimentRun,
    ];

    /// The kinds a client knows as artifacts.
    pub(crate) const ARTIFACTS: [Self; 5] =
        [Self::ModelArtifact, Self::DocArtifact, Self::DataSet, Self::Metric, Self::Parameter];

    pub(crate) fn table(self) -> Table {
        match self {
            Self::ServeModel => Table::Execution,
            Self::ModelArtifact
            | Self::DocArtifact
            | Self::DataSet
            | Self::Metric
            | Self::Parameter
            | Self::MetricHistory => Table::Artifact,
            _ => Table::Context,
        }
    }

    /// Its name in the API's schema.
    pub(crate) fn schema_name(self) -> &'static str {
        match self {
            Self::RegisteredModel => "RegisteredModel",
            Self::ModelVersion => "ModelVersion",
            Self::ServingEnvironment => "ServingEnvironment",
            Self::InferenceService => "InferenceService",
            Self::Experiment => "Experiment",
            Self::ExperimentRun => "ExperimentRun",
            Self::ModelArtifact => "ModelArtifact",
            Self::DocArtifact => "DocArtifact",
            Self::DataSet => "DataSet",
            Self::Metric => "Metric",
            Self::Parameter => "Parameter",
            Self::MetricHistory => "MetricHistory",
            Self::ServeModel => "ServeModel",
        }
    }

    /// Its name in the `Type` table.
    pub(crate) fn type_name(self) -> String {
        format!("kf.{}", self.schema_name())
    }

    /// How messages call it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::RegisteredModel => "registered model",
            Self::ModelVersion => "model version",
            Self::ServingEnvironment => "serving environment",
            Self::InferenceService => "inference service",
            Self::Experiment => "experiment",
            Self::ExperimentRun => "experiment run",
            Self::ModelArtifact => "model artifact",
            Self::DocArtifact => "doc artifact",
            Self::DataSet => "dataset artifact",
            Self::Metric => "metric artifact",
            Self::Parameter => "parameter artifact",
            Self::MetricHistory => "metric history",
            Self::ServeModel => "serve model",
        }
    }

    /// How messages about its storage call it.
    pub(crate) fn words_of_store(self) -> &'static str {
        match self {
            Self::DataSet => "dataset",
            Self::Metric => "metric",
            Self::Parameter => "parameter",
            other => other.words(),
        }
    }

    /// The value of `artifactType`.
    pub(crate) fn artifact_type(self) -> Option<&'static str> {
        match self {
            Self::ModelArtifact => Some("model-artifact"),
            Self::DocArtifact => Some("doc-artifact"),
            Self::DataSet => Some("dataset-artifact"),
            Self::Metric | Self::MetricHistory => Some("metric"),
            Self::Parameter => Some("parameter"),
            _ => None,
        }
    }

    pub(crate) fn from_artifact_type(name: &str) -> Option<Self> {
        Self::ARTIFACTS.into_iter().find(|kind| kind.artifact_type() == Some(name))
    }

    /// Whether the stored name is `<parent id>:<name>`.
    pub(crate) fn has_prefixed_name(self) -> bool {
        !matches!(self, Self::RegisteredModel | Self::Experiment | Self::ServingEnvironment)
    }
}

/// The value of a property.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PropertyValue {
    Int(i32),
    Double(f64),
    Text(String),
    Bool(bool),
    /// Written by other users of the schema; shown as a struct.
    Bytes(Vec<u8>),
}

/// A property of an entity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Property {
    pub(crate) name: String,
    pub(crate) is_custom: bool,
    pub(crate) value: PropertyValue,
}

/// An entity as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entity {
    pub(crate) kind: Kind,
    pub(crate) id: i32,
    /// The name with its prefix.
    pub(crate) name: Option<String>,
    pub(crate) external_id: Option<String>,
    pub(crate) created: i64,
    pub(crate) updated: i64,
    pub(crate) uri: Option<String>,
    /// `state` of artifacts, `last_known_state` of executions.
    pub(crate) state: Option<i32>,
    pub(crate) properties: Vec<Property>,
}

impl Entity {
    pub(crate) fn property(&self, name: &str) -> Option<&PropertyValue> {
        self.find(name, false)
    }

    pub(crate) fn custom_property(&self, name: &str) -> Option<&PropertyValue> {
        self.find(name, true)
    }

    fn find(&self, name: &str, is_custom: bool) -> Option<&PropertyValue> {
        let found = self.properties.iter().find(|it| it.is_custom == is_custom && it.name == name);
        found.map(|property| &property.value)
    }

    pub(crate) fn int_property(&self, name: &str) -> Option<i32> {
        match self.property(name) {
            Some(PropertyValue::Int(value)) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn text_property(&self, name: &str) -> Option<&str> {
        match self.property(name) {
            Some(PropertyValue::Text(value)) => Some(value),
            _ => None,
        }
    }

    /// Sets a property, replacing one of the same name.
    pub(crate) fn set(&mut self, name: &str, is_custom: bool, value: PropertyValue) {
        let existing = self.properties.iter_mut().find(|it| it.is_custom == is_custom && it.name == name);
        match existing {
            Some(property) => property.value = value,
            None => self.properties.push(Property { name: name.to_owned(), is_custom, value }),
        }
    }

    /// The name as clients see it: without the prefix, unless there is nothing else.
    pub(crate) fn shown_name(&self) -> Option<&str> {
        let name = self.name.as_deref()?;
        if !self.kind.has_prefixed_name() {
            return Some(name);
        }
        Some(match name.split_once(':') {
            Some((_, rest)) => rest,
            None => name,
        })
    }
}
