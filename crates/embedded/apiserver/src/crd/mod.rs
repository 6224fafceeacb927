//! CustomResourceDefinitions: kinds that are defined at run time.

pub(crate) mod conversion;
mod define;
mod establish;
pub(crate) mod removal;

use std::sync::{Arc, OnceLock};

use quintet_objects::{FieldError, Path, schema::Structural, table::Printer};
use serde_json::{Value, json};

use crate::{
    api::Api,
    json::{self, items, text},
    resources::{Registry, Resource, Subresource, api_version, bucket},
    store::Entry,
};

pub(crate) use establish::establish;

/// Where definitions are kept.
pub(crate) const BUCKET: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Holds a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// One served version of a definition.
#[derive(Debug)]
pub struct CustomVersion {
    /// Name of the definition.
    pub definition: String,
    /// Whether the definition is being deleted.
    pub is_terminating: bool,
    /// The stored definition; the schema is only read out of it once it is needed.
    source: Arc<Entry>,
    /// The name of the version.
    version: String,
    schema: OnceLock<Option<Structural>>,
    /// Whether the status has an address of its own.
    pub has_status: bool,
    /// The scale subresource, as the definition has it.
    pub scale: Option<Value>,
    /// Writes tables with the columns of the definition.
    pub printer: Printer,
    /// Fields that can be selected by, without the leading dot.
    pub selectable: Vec<String>,
    /// How versions are converted, as the definition says.
    pub conversion: Value,
    /// The warning for clients of this version.
    pub deprecation: Option<String>,
}

impl CustomVersion {
    /// The schema as it was written.
    pub fn raw_schema(&self) -> Value {
        let mut definition = self.source.parse();
        let versions = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
        let version = versions.into_iter().flatten().find(|version| text(version, "/name") == self.version);
        let schema = version.and_then(|version| version.pointer_mut("/schema/openAPIV3Schema"));
        schema.map_or_else(|| json!({}), Value::take)
    }

    /// The schema. Most kinds are never used in a small cluster, and schemas are large.
    pub fn schema(&self) -> Option<&Structural> {
        let schema = self.schema.get_or_init(|| match Structural::parse(&self.raw_schema(), &Path::ROOT) {
            Ok(schema) => Some(schema),
            Err(errors) => {
                // Definitions are checked when they are written; this one was written by an older version.
                let why = errors.first().map(ToString::to_string).unwrap_or_default();
                tracing::warn!("the schema of {} is not used: {why}", self.definition);
                None
            }
        });
        schema.as_ref()
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        if let Some(schema) = self.schema() {
            schema.apply_defaults(object);
        }
    }

    /// Drops unknown fields; returns which.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        self.schema().map(|schema| schema.prune(object)).unwrap_or_default()
    }

    /// What is wrong with an object, and what is only worth a warning.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> (Vec<FieldError>, Vec<String>) {
        match self.schema() {
            Some(schema) => {
                let verdict = schema.validate(new, old);
                (verdict.errors, verdict.warnings)
            }
            None => (Vec::new(), Vec::new()),
        }
    }
}

/// What a new definition starts with.
pub(crate) fn prepare_create(object: &mut Value) {
    let stored: Vec<Value> = items(object, "/spec/versions")
        .iter()
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .filter_map(|version| version.get("name").cloned())
        .collect();
    json::as_map(object).insert(
        "status".into(),
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}),
    );
}

/// Whether a condition of a definition is true.
pub(crate) fn is_true(definition: &Value, condition: &str) -> bool {
    items(definition, "/status/conditions")
        .iter()
        .any(|one| text(one, "/type") == condition && text(one, "/status") == "True")
}

/// The resources that an established definition serves.
fn resources(source: &Arc<Entry>) -> Vec<Arc<Resource>> {
    let definition = &source.to_value("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    if !is_true(definition, "Established") {
        return Vec::new();
    }
    resources_of(source, definition, |version| version.get("served") == Some(&Value::Bool(true)))
}

/// The version of a definition that its objects are stored in, whether or not it is served.
fn storage_resource(source: &Arc<Entry>) -> Option<Arc<Resource>> {
    let definition = &source.to_value("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let stored =
        resources_of(source, definition, |version| version.get("storage") == Some(&Value::Bool(true)));
    stored.into_iter().next()
}

fn resources_of(
    source: &Arc<Entry>,
    definition: &Value,
    is_wanted: impl Fn(&Value) -> bool,
) -> Vec<Arc<Resource>> {
    let epoch = source.rv;
    let name = |key: &str| text(definition, &format!("/status/acceptedNames/{key}")).to_owned();
    let list = |key: &str| -> Vec<String> {
        json::texts(definition, &format!("/status/acceptedNames/{key}")).map(str::to_owned).collect()
    };
    let group = text(definition, "/spec/group");
    let (plural, kind) = (name("plural"), name("kind"));
    let versions = items(definition, "/spec/versions");
    let storage = versions.iter().find(|version| version.get("storage") == Some(&Value::Bool(true)));
    let storage = storage.map(|version| text(version, "/name")).unwrap_or_default();
    let is_namespaced = text(definition, "/spec/scope") == "Namespaced";
    versions
        .iter()
        .filter(|version| is_wanted(version))
        .map(|version| {
            let custom = custom_version(source, definition, version, group, &kind);
            let version = text(version, "/name");
            let sub = |sub: &str, kind: &str, group: &str, version: &str| Subresource {
                name: sub.to_owned(),
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
                verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
            };
            let mut subresources = Vec::new();
            if custom.scale.is_some() {
                subresources.push(sub("scale", "Scale", "autoscaling", "v1"));
            }
            if custom.has_status {
                subresources.push(sub("status", &kind, group, version));
            }
            Arc::new(Resource {
                group: group.into(),
                version: version.into(),
                api_version: api_version(group, version).into(),
                kind: kind.as_str().into(),
                list_kind: name("listKind").into(),
                plural: plural.as_str().into(),
                singular: name("singular"),
                short_names: list("shortNames"),
                categories: list("categories"),
                is_namespaced,
                verbs: ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
                    .map(str::to_owned)
                    .to_vec(),
                subresources,
                bucket: bucket(group, &plural).into(),
                storage_version: storage.into(),
                storage_api_version: api_version(group, storage).into(),
                model: crate::resources::Model::Custom(Arc::new(custom)),
                epoch,
            })
        })
        .collect()
}

fn custom_version(
    source: &Arc<Entry>,
    definition: &Value,
    version: &Value,
    group: &str,
    kind: &str,
) -> CustomVersion {
    let is_deprecated = version.get("deprecated") == Some(&Value::Bool(true));
    let deprecation = is_deprecated.then(|| match text(version, "/deprecationWarning") {
        "" => format!("{} {kind} is deprecated", api_version(group, text(version, "/name"))),
        own => own.to_owned(),
    });
    CustomVersion {
        definition: text(definition, "/metadata/name").to_owned(),
        is_terminating: definition.pointer("/metadata/deletionTimestamp").is_some(),
        source: Arc::clone(source),
        version: text(version, "/name").to_owned(),
        schema: OnceLock::new(),
        has_status: version.pointer("/subresources/status").is_some(),
        scale: version.pointer("/subresources/scale").cloned(),
        printer: Printer::custom(version),
        selectable: items(version, "/selectableFields")
            .iter()
            .map(|field| text(field, "/jsonPath").trim_start_matches('.').to_owned())
            .collect(),
        conversion: definition.pointer("/spec/conversion").cloned().unwrap_or_else(|| json!({})),
        deprecation,
    }
}

/// Serves what the stored definitions say, from the next request on.
pub(crate) fn refresh(api: &Api) {
    api.renew_registry(|before| {
        let definitions = api.store().objects(BUCKET, "");
        let custom = definitions.into_iter().flat_map(|(name, entry)| {
            // What did not change is not parsed again.
            let known: Vec<Arc<Resource>> = before
                .all()
                .filter(|resource| resource.epoch == entry.rv)
                .filter(|resource| resource.as_custom().is_some_and(|custom| custom.definition == *name))
                .cloned()
                .collect();
            if known.is_empty() { resources(&entry) } else { known }
        });
        Registry::new(custom.collect())
    });
}
