//! Recorded cases, as they are in files.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// One file.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Its name, also that of the file.
    #[serde(rename = "case")]
    pub name: String,
    /// The operator that was recorded.
    #[serde(default)]
    pub operator: String,
    /// What is special about it.
    pub about: Option<String>,
    /// How the webhooks were asked, if not through an API server.
    pub asked: Option<String>,
    /// How the operator was started.
    #[serde(default)]
    pub environment: Environment,
    /// Steps, each with what the operator made of it.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// A decision of a webhook.
    pub webhook: Option<Decision>,
    /// A conversion between versions.
    pub conversion: Option<Conversion>,
    /// A start of the operator.
    pub startup: Option<Startup>,
    /// A request that the API server allows or rejects by the CRD.
    pub validation: Option<Validation>,
}

/// How the operator was started.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Environment {
    /// A name for all of this.
    pub variant: Option<String>,
    /// The namespace that the operator works in, if there is one.
    pub namespace: Option<String>,
    /// The namespace of the operator itself.
    pub operator_namespace: Option<String>,
    /// Environment variables.
    pub variables: BTreeMap<String, String>,
    /// Command line arguments.
    pub arguments: Vec<String>,
    /// The configuration file.
    pub config: Option<Value>,
    /// Kinds of others that the cluster serves.
    pub optional_kinds: Vec<String>,
    /// Whether the API server asks the operator's webhooks; they do not count if it is not said.
    #[serde(alias = "raycluster webhooks")]
    pub webhooks: Option<bool>,
    /// The domain that OpenShift says it has.
    pub ingress_domain: Option<String>,
}

/// One step.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Step {
    /// What it is about.
    pub step: String,
    /// Objects that are created.
    pub create: Vec<Value>,
    /// A merge patch.
    pub patch: Option<Patch>,
    /// An object that is deleted: `Kind namespace/name`.
    pub delete: Option<String>,
    /// What others do, in words.
    pub act: Option<String>,
    /// The responses of the API.
    pub answers: Vec<Answer>,
    /// Things had not come to rest when they were recorded.
    pub unsettled: bool,
    /// All objects that are new or differ from those of the step before.
    pub objects: Vec<Value>,
    /// Objects that were there and are no more.
    pub gone: Vec<String>,
    /// Objects that were deleted and made again.
    pub recreated: Vec<String>,
    /// Events.
    pub events: Vec<Value>,
}

/// A merge patch of an object.
#[derive(Clone, Debug, Deserialize)]
pub struct Patch {
    /// `Kind namespace/name`.
    pub object: String,
    /// The subresource, if not the object itself.
    pub subresource: Option<String>,
    /// The patch.
    pub body: Value,
}

/// A response of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The HTTP code.
    pub code: u16,
    /// One word, if the request was rejected.
    pub reason: Option<String>,
    /// Why, if the request was rejected.
    pub message: Option<String>,
}

/// A decision of the webhooks about a request.
#[derive(Clone, Debug, Deserialize)]
pub struct Decision {
    /// `CREATE` or `UPDATE`.
    pub operation: String,
    /// The object that is sent.
    pub input: Value,
    /// The object that is changed.
    pub old: Option<Value>,
    /// Who sends it, if not the administrator.
    #[serde(rename = "as")]
    pub as_user: Option<Value>,
    /// Whether it is allowed.
    pub allowed: bool,
    /// The response.
    #[serde(default)]
    pub answer: Answer,
    /// The object as it is stored.
    pub result: Option<Value>,
    /// The object as the webhooks change it, where they were asked directly.
    pub mutated: Option<Value>,
}

/// A conversion between versions.
#[derive(Clone, Debug, Deserialize)]
pub struct Conversion {
    /// The object.
    pub input: Value,
    /// The version that is asked for.
    pub to: String,
    /// The object in that version, if it can be converted.
    pub output: Option<Value>,
}

/// A start of the operator.
#[derive(Clone, Debug, Deserialize)]
pub struct Startup {
    /// The configuration, by the name of its key.
    #[serde(default, rename = "configMap")]
    pub config_map: BTreeMap<String, String>,
    /// What the process exits with; absent or a text if it goes on.
    pub exit: Option<Value>,
    /// The error it ends with.
    pub error: Option<String>,
}

/// A request that the API server allows or rejects by the CRD.
#[derive(Clone, Debug, Deserialize)]
pub struct Validation {
    /// The object that is created.
    pub input: Value,
    /// Whether it is allowed.
    pub allowed: bool,
    /// The response.
    pub answer: Answer,
    /// The object as it is stored.
    pub result: Option<Value>,
}

impl Case {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        // Texts such as `y` are not quoted in recordings.
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options(&text, options)
            .map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Whether the webhooks were asked one by one, without an API server.
    pub(crate) fn is_asked_directly(&self) -> bool {
        self.asked.as_deref().is_some_and(|asked| asked.starts_with("directly"))
    }

    /// Whether only the webhooks that decide were asked.
    pub(crate) fn is_validation_only(&self) -> bool {
        self.about.as_deref().is_some_and(|about| about.contains("validating webhook alone"))
    }

    /// The namespaces that exist before the first step: all that are mentioned and not created.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        let own = [&self.environment.namespace, &self.environment.operator_namespace];
        let mut all: Vec<String> = own.into_iter().flatten().cloned().collect();
        let mut created = Vec::new();
        for step in &self.steps {
            for object in step.create.iter().chain(&step.objects) {
                all.extend(object["metadata"]["namespace"].as_str().map(str::to_owned));
            }
            let named = step.create.iter().filter(|object| object["kind"] == "Namespace");
            created.extend(named.filter_map(|object| object["metadata"]["name"].as_str()).map(str::to_owned));
            let patched = step.patch.as_ref().and_then(|patch| patch.object.strip_prefix("Namespace "));
            all.extend(patched.map(str::to_owned));
        }
        all.sort();
        all.dedup();
        all.retain(|namespace| !created.contains(namespace) && namespace != "default");
        all
    }
}
