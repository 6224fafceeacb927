//! Reading a configuration file: which document is whose, and what to say when one is broken.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{API_VERSION, Configuration, KIND, codeflare, kueue_document, ray};

/// Why a configuration file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// Not YAML.
    #[error("it is not valid YAML: {0}")]
    Yaml(String),
    /// A document of a kind nobody here reads.
    #[error(
        "document {position} is a {what}, which is not a configuration Quintet reads; it reads Configuration of {API_VERSION}, config.ray.io/v1alpha1, config.kueue.x-k8s.io/v1beta1 and v1beta2, and those of CodeFlare and AppWrapper"
    )]
    Unknown {
        /// Which document of the file, from 1.
        position: usize,
        /// What it says it is.
        what: String,
    },
    /// Quintet's own document says everything, so what came before it would be lost.
    #[error("document {position} is Quintet's own and must be the first of the file")]
    NotFirst {
        /// Which document of the file, from 1.
        position: usize,
    },
    /// Settings that do not go together.
    #[error("{0}")]
    Contradiction(String),
    /// A key or a value that is wrong.
    #[error("document {position} ({what}): {reason}")]
    Invalid {
        /// Which document of the file, from 1.
        position: usize,
        /// Whose format it is in.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// The formats a document can be in.
enum Format {
    Quintet,
    KubeRay,
    Kueue,
    CodeFlare,
    AppWrapper,
}

impl Configuration {
    /// Reads a configuration file.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigurationError> {
        let documents = serde_saphyr::from_multiple::<Value>(text).map_err(|error| {
            ConfigurationError::Yaml(error.to_string().lines().next().unwrap_or_default().into())
        })?;
        let mut configuration = Self::default();
        for (index, document) in documents.into_iter().enumerate().filter(|(_, document)| !document.is_null())
        {
            configuration.read(without_nulls(document), index + 1)?;
        }
        configuration.check().map_err(ConfigurationError::Contradiction)?;
        Ok(configuration)
    }

    fn read(&mut self, document: Value, position: usize) -> Result<(), ConfigurationError> {
        let format = Format::of(&document)
            .ok_or_else(|| ConfigurationError::Unknown { position, what: description(&document) })?;
        let what = format.name();
        let invalid = |error: serde_json::Error| ConfigurationError::Invalid {
            position,
            what,
            reason: error.to_string(),
        };
        match format {
            Format::Quintet if *self != Self::default() => {
                return Err(ConfigurationError::NotFirst { position });
            }
            Format::Quintet => *self = parse(without_type(document)).map_err(invalid)?,
            Format::KubeRay => {
                let document: ray::Document = parse(document).map_err(invalid)?;
                document.apply(&mut self.process, &mut self.ray);
            }
            Format::Kueue => {
                let document: kueue_document::Document = parse(document).map_err(invalid)?;
                document.apply(self).map_err(invalid)?;
            }
            Format::CodeFlare => {
                let document: codeflare::Document = parse(document).map_err(invalid)?;
                document.apply(&mut self.process, &mut self.codeflare);
            }
            Format::AppWrapper => {
                let document: codeflare::AppWrapperDocument = parse(document).map_err(invalid)?;
                document.apply(&mut self.process, &mut self.codeflare);
            }
        }
        Ok(())
    }
}

impl Format {
    fn of(document: &Value) -> Option<Self> {
        let text = |key: &str| document.get(key).and_then(Value::as_str);
        match (text("apiVersion"), text("kind")) {
            (Some(API_VERSION), Some(KIND)) => Some(Self::Quintet),
            (Some("config.ray.io/v1alpha1"), Some(KIND)) => Some(Self::KubeRay),
            (Some("config.kueue.x-k8s.io/v1beta1" | "config.kueue.x-k8s.io/v1beta2"), Some(KIND)) => {
                Some(Self::Kueue)
            }
            (None, None) => Self::untyped(document),
            _ => None,
        }
    }

    /// CodeFlare's document and that of AppWrapper alone have no type; their keys tell them apart.
    fn untyped(document: &Value) -> Option<Self> {
        let has = |key: &str| document.get(key).is_some();
        if has("kuberay") || has("kubeRay") {
            return Some(Self::CodeFlare);
        }
        let appwrapper = document.get("appwrapper")?;
        let is_switch = ["enabled", "Config", "config"].iter().any(|key| appwrapper.get(key).is_some());
        Some(if is_switch { Self::CodeFlare } else { Self::AppWrapper })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Quintet => "Quintet",
            Self::KubeRay => "KubeRay",
            Self::Kueue => "Kueue",
            Self::CodeFlare => "CodeFlare",
            Self::AppWrapper => "AppWrapper",
        }
    }
}

fn parse<T: DeserializeOwned>(document: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(document)
}

/// A key without a value is a key that is not there.
fn without_nulls(document: Value) -> Value {
    match document {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        other => other,
    }
}

fn without_type(mut document: Value) -> Value {
    if let Value::Object(fields) = &mut document {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    document
}

fn description(document: &Value) -> String {
    let text = |key: &str| document.get(key).and_then(Value::as_str);
    match (text("kind"), text("apiVersion")) {
        (Some(kind), Some(api_version)) => format!("{kind} of {api_version}"),
        (Some(kind), None) => format!("{kind} without apiVersion"),
        _ => "document without apiVersion and kind".into(),
    }
}
