//! CustomResourceDefinitions made from the Rust types.
//!
//! schemars describes each type once, under its name; `kubernetes` adds what is known about Kubernetes'
//! own types; `structural` puts every definition in its place. Nothing here knows a single field of ours:
//! what a field promises is written at the field.

mod kubernetes;
mod structural;
#[cfg(test)]
mod tests;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceConversion, CustomResourceDefinition,
    CustomResourceDefinitionNames, CustomResourceDefinitionSpec, CustomResourceDefinitionVersion,
    CustomResourceSubresourceStatus, CustomResourceSubresources, SelectableField, ServiceReference,
    WebhookClientConfig, WebhookConversion,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::CustomResource;

/// The Service through which the API server reaches Quintet's webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The path that answers conversion reviews.
pub const CONVERSION_PATH: &str = "/convert";

/// The CRDs of all API groups of this crate, sorted by name (see [`manifests`]).
pub fn all(webhooks: &WebhookService) -> Vec<CustomResourceDefinition> {
    let crds = manifests(&definitions(), webhooks).into_iter();
    crds.filter_map(|crd| serde_json::from_value(crd).ok()).collect()
}

/// CRDs as they are applied to a cluster, sorted by name. Where versions differ in shape, the API server is told to
/// have objects converted by `webhooks`.
///
/// They are JSON and not structs because the structs write bounds as floats: `minimum: 0.0` where Kubernetes writes `0`.
/// Everything that prints, applies or installs a CRD writes it the same way, so that two of them never conflict.
pub fn manifests(definitions: &[Definition], webhooks: &WebhookService) -> Vec<Value> {
    let mut definitions: Vec<&Definition> = definitions.iter().collect();
    definitions.sort_by_key(|definition| definition.name());
    definitions.into_iter().filter_map(|definition| definition.json(webhooks)).collect()
}

/// Builds one CRD, as JSON, when it is called.
pub type Maker = Box<dyn FnOnce() -> Option<Value> + Send>;

/// CRDs, each to be built when it is needed: together they are large, and as structs their schemas take several times
/// the memory.
pub fn makers(definitions: Vec<Definition>, webhooks: &WebhookService) -> Vec<Maker> {
    let maker = |definition: Definition| -> Maker {
        let webhooks = webhooks.clone();
        Box::new(move || definition.json(&webhooks))
    };
    definitions.into_iter().map(maker).collect()
}

/// The CRDs of all API groups of this crate.
pub fn definitions() -> Vec<Definition> {
    [
        crate::appwrapper::definitions(),
        crate::aihub::definitions(),
        crate::kueue::definitions(),
        crate::mlflow::definitions(),
        crate::modelregistry::definitions(),
        vec![crate::platform::aihub(), crate::platform::mlflow_operator()],
        crate::ray::definitions(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Every kind in every served version, grouped as the CRDs are.
pub fn kinds() -> Vec<Kind> {
    definitions().into_iter().flat_map(|definition| definition.versions).map(|(kind, _)| kind).collect()
}

/// One kind in one version.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Group and version, such as `ray.io/v1`.
    pub api_version: &'static str,
    /// The version alone, such as `v1`.
    pub version: &'static str,
    /// Its name, such as `RayCluster`.
    pub name: &'static str,
    /// Its name in paths, such as `rayclusters`.
    pub plural: &'static str,
    /// Whether objects live in a namespace.
    pub is_namespaced: bool,
    /// Its structural schema.
    pub schema: fn() -> Value,
    /// Reads an object into its type and writes it again.
    pub reread: fn(Value) -> Result<Value, serde_json::Error>,
}

impl Kind {
    fn of<K: CustomResource + DeserializeOwned + Serialize>() -> Self {
        Self {
            api_version: K::API_VERSION,
            version: K::VERSION,
            name: K::KIND,
            plural: K::URL_PATH_SEGMENT,
            is_namespaced: K::NAMESPACED,
            schema: schema_of::<K>,
            reread: |object| serde_json::to_value(serde_json::from_value::<K>(object)?),
        }
    }
}

/// The structural schema of one kind in one version.
pub fn schema_of<K: CustomResource>() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let root = generator.root_schema_for::<K>();
    let mut definitions = generator.take_definitions(true);
    kubernetes::annotate(&mut definitions);
    let mut schema = structural::structural(root.as_value(), &definitions);
    add_type_fields(&mut schema);
    structural::canonical(&mut schema);
    schema
}

fn add_type_fields(root: &mut Value) {
    let fields = [
        ("apiVersion", "The API group and version of this object, such as `ray.io/v1`."),
        ("kind", "What this object is, such as `RayCluster`."),
    ];
    if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
        // A spec that Rust fills in stays absent in the API.
        for schema in properties.values_mut().filter_map(Value::as_object_mut) {
            schema.remove("default");
        }
        // The API server has its own schema of metadata, and rejects another.
        properties.insert("metadata".into(), json!({ "type": "object" }));
        for (field, description) in fields {
            properties.insert(field.into(), json!({ "type": "string", "description": description }));
        }
    }
    if let Some(required) = root.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|field| field != "metadata");
    }
}

/// Describes a CRD: start with the stored version, add the others that are served.
#[derive(Clone, Debug)]
pub struct Definition {
    group: &'static str,
    /// The stored version first.
    versions: Vec<(Kind, Version)>,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    is_converted: bool,
}

/// What a version of a CRD shows besides its schema.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    columns: &'static [Column],
    has_status: bool,
    selectable: &'static [&'static str],
    deprecated: Option<&'static str>,
}

/// A column of `kubectl get`: name, type, JSON path; priority 0 is always shown.
#[derive(Clone, Copy, Debug)]
pub struct Column(pub &'static str, pub &'static str, pub &'static str, pub i32);

impl Definition {
    /// A CRD with `K` as its stored version.
    pub fn stored<K: CustomResource + DeserializeOwned + Serialize>(version: Version) -> Self {
        Self {
            group: K::GROUP,
            versions: vec![(Kind::of::<K>(), version)],
            short_names: &[],
            categories: &[],
            is_converted: false,
        }
    }

    /// Also served as `K`.
    #[must_use]
    pub fn served<K: CustomResource + DeserializeOwned + Serialize>(mut self, version: Version) -> Self {
        self.versions.push((Kind::of::<K>(), version));
        self
    }

    /// Short names for `kubectl`.
    #[must_use]
    pub fn short_names(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    /// Categories such as `all`.
    #[must_use]
    pub fn categories(self, categories: &'static [&'static str]) -> Self {
        Self { categories, ..self }
    }

    /// Versions differ in shape, so the API server asks the webhook to convert.
    #[must_use]
    pub fn converted(self) -> Self {
        Self { is_converted: true, ..self }
    }

    /// The name of the CRD, such as `rayclusters.ray.io`.
    pub fn name(&self) -> Option<String> {
        let (stored, _) = self.versions.first()?;
        Some(format!("{}.{}", stored.plural, self.group))
    }

    /// Whether its versions are converted by webhook.
    pub fn is_converted(&self) -> bool {
        self.is_converted
    }

    /// The kind in all served versions, the stored one first.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.versions.iter().map(|(kind, _)| kind)
    }

    fn json(&self, webhooks: &WebhookService) -> Option<Value> {
        let mut crd = serde_json::to_value(self.frame(webhooks)?).ok()?;
        let versions = crd.pointer_mut("/spec/versions")?.as_array_mut()?;
        for (version, (kind, _)) in versions.iter_mut().zip(&self.versions) {
            let schema = json!({ "openAPIV3Schema": (kind.schema)() });
            version.as_object_mut()?.insert("schema".into(), schema);
        }
        Some(crd)
    }

    /// Everything but the schemas.
    fn frame(&self, webhooks: &WebhookService) -> Option<CustomResourceDefinition> {
        let (stored, _) = self.versions.first()?;
        let versions = self.versions.iter().enumerate();
        Some(CustomResourceDefinition {
            metadata: ObjectMeta { name: self.name(), ..ObjectMeta::default() },
            spec: CustomResourceDefinitionSpec {
                conversion: self.is_converted.then(|| conversion_by(webhooks)),
                group: self.group.into(),
                names: CustomResourceDefinitionNames {
                    kind: stored.name.into(),
                    list_kind: Some(format!("{}List", stored.name)),
                    plural: stored.plural.into(),
                    singular: Some(stored.name.to_lowercase()),
                    short_names: non_empty(self.short_names.iter().map(ToString::to_string).collect()),
                    categories: non_empty(self.categories.iter().map(ToString::to_string).collect()),
                },
                scope: if stored.is_namespaced { "Namespaced" } else { "Cluster" }.into(),
                versions: versions
                    .map(|(position, (kind, version))| version.of(kind, position == 0))
                    .collect(),
                ..CustomResourceDefinitionSpec::default()
            },
            status: None,
        })
    }
}

fn conversion_by(webhooks: &WebhookService) -> CustomResourceConversion {
    CustomResourceConversion {
        strategy: "Webhook".into(),
        webhook: Some(WebhookConversion {
            conversion_review_versions: vec!["v1".into()],
            client_config: Some(WebhookClientConfig {
                service: Some(ServiceReference {
                    namespace: webhooks.namespace.clone(),
                    name: webhooks.name.clone(),
                    path: Some(CONVERSION_PATH.into()),
                    port: None,
                }),
                ..WebhookClientConfig::default()
            }),
        }),
    }
}

impl Version {
    /// Nothing but the schema.
    pub const fn plain() -> Self {
        Self { columns: &[], has_status: false, selectable: &[], deprecated: None }
    }

    /// Columns of `kubectl get`.
    #[must_use]
    pub const fn columns(self, columns: &'static [Column]) -> Self {
        Self { columns, ..self }
    }

    /// `status` is a subresource of its own.
    #[must_use]
    pub const fn with_status(self) -> Self {
        Self { has_status: true, ..self }
    }

    /// Paths that field selectors may name.
    #[must_use]
    pub const fn selectable(self, paths: &'static [&'static str]) -> Self {
        Self { selectable: paths, ..self }
    }

    /// Users are asked to leave this version.
    #[must_use]
    pub const fn deprecated(self, warning: &'static str) -> Self {
        Self { deprecated: Some(warning), ..self }
    }

    fn of(&self, kind: &Kind, storage: bool) -> CustomResourceDefinitionVersion {
        CustomResourceDefinitionVersion {
            name: kind.version.into(),
            served: true,
            storage,
            deprecated: self.deprecated.map(|_| true),
            deprecation_warning: self.deprecated.map(Into::into),
            additional_printer_columns: non_empty(self.columns.iter().map(Column::definition).collect()),
            selectable_fields: non_empty(
                self.selectable.iter().map(|path| SelectableField { json_path: (*path).into() }).collect(),
            ),
            subresources: self.has_status.then(|| CustomResourceSubresources {
                status: Some(CustomResourceSubresourceStatus(json!({}))),
                ..CustomResourceSubresources::default()
            }),
            schema: None,
        }
    }
}

impl Column {
    fn definition(&self) -> CustomResourceColumnDefinition {
        let Self(name, type_, json_path, priority) = *self;
        CustomResourceColumnDefinition {
            name: name.into(),
            type_: type_.into(),
            json_path: json_path.into(),
            priority: (priority != 0).then_some(priority),
            ..CustomResourceColumnDefinition::default()
        }
    }
}

fn non_empty<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}
