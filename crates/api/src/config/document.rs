//! Reading a configuration file: which document is whose, and what to say when one is broken.

use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;

use super::{API_VERSION, Configuration, KIND, Schema};

/// Why a configuration file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// Not YAML.
    #[error("it is not valid YAML: {0}")]
    Yaml(String),
    /// A document in an unknown format.
    #[error("document {position} is a {what}, which is not a known configuration format; known are {known}")]
    Unknown {
        /// Which document of the file, from 1.
        position: usize,
        /// What it says it is.
        what: String,
        /// The known formats.
        known: String,
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
    /// A section of a component that cannot be decoded.
    #[error("{component}: {reason}")]
    Section {
        /// Whose section.
        component: String,
        /// What is wrong with it.
        reason: String,
    },
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

impl Schema<'_> {
    /// Reads a configuration file.
    pub fn read(&self, text: &str) -> Result<Configuration, ConfigurationError> {
        let documents = serde_saphyr::from_multiple::<Value>(text).map_err(|error| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            ConfigurationError::Yaml(line.trim_start_matches("error: ").to_owned())
        })?;
        let mut configuration = Configuration::default();
        for (index, document) in documents.into_iter().enumerate().filter(|(_, document)| !document.is_null())
        {
            self.read_document(&mut configuration, without_nulls(document), index + 1)?;
        }
        self.check(&configuration)?;
        Ok(configuration)
    }

    fn read_document(
        &self,
        configuration: &mut Configuration,
        document: Value,
        position: usize,
    ) -> Result<(), ConfigurationError> {
        let invalid =
            |what: &'static str, reason: String| ConfigurationError::Invalid { position, what, reason };
        if is_own(&document) {
            if *configuration != Configuration::default() {
                return Err(ConfigurationError::NotFirst { position });
            }
            *configuration = self.read_own(document).map_err(|reason| invalid("Quintet", reason))?;
            return Ok(());
        }
        let mut formats = self.0.iter().flat_map(|component| component.formats);
        let Some(format) = formats.find(|format| (format.matches)(&document)) else {
            let (what, known) = (description(&document), self.known_formats());
            return Err(ConfigurationError::Unknown { position, what, known });
        };
        (format.apply)(document, configuration).map_err(|error| invalid(format.name, error.to_string()))
    }

    fn read_own(&self, document: Value) -> Result<Configuration, String> {
        let configuration: Configuration =
            serde_json::from_value(without_type(document)).map_err(|error| error.to_string())?;
        let has_section = |name: &str| {
            self.0.iter().any(|component| component.component == name && component.check.is_some())
        };
        match configuration.sections.keys().find(|name| !has_section(name)) {
            Some(unknown) => Err(format!("unknown field `{unknown}`")),
            None => Ok(configuration),
        }
    }

    fn known_formats(&self) -> String {
        let own = format!("{KIND} of {API_VERSION}");
        let formats = self.0.iter().flat_map(|component| component.formats);
        let formats = formats.map(|format| format.description.to_owned());
        std::iter::once(own).chain(formats).collect::<Vec<_>>().join(", ")
    }
}

/// Decodes a value. Errors begin with the path of the field.
pub(super) fn decoded<T: DeserializeOwned>(value: Value) -> Result<T, serde_json::Error> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        match error.into_inner() {
            inner if path == "." => inner,
            inner => serde_json::Error::custom(format!("{path}: {inner}")),
        }
    })
}

/// Whether a document says that it is of this type.
pub(super) fn is_typed(document: &Value, api_version: &str, kind: &str) -> bool {
    document["apiVersion"] == api_version && document["kind"] == kind
}

fn is_own(document: &Value) -> bool {
    is_typed(document, API_VERSION, KIND)
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
        Value::Array(elements) => Value::Array(elements.into_iter().map(without_nulls).collect()),
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
