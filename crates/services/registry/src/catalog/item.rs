//! What a catalog holds: models, MCP servers, agents, and what belongs to them.

use crate::json::Json;

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ItemKind {
    Model,
    McpServer,
    Agent,
    ModelArtifact,
    MetricsArtifact,
    TemplateArtifact,
    Tool,
}

impl ItemKind {
    /// The value of `artifactType`.
    pub(crate) fn artifact_type(self) -> Option<&'static str> {
        match self {
            Self::ModelArtifact => Some("model-artifact"),
            Self::MetricsArtifact => Some("metrics-artifact"),
            Self::TemplateArtifact => Some("template-artifact"),
            _ => None,
        }
    }

    /// How messages call several of them.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Model => "catalog models",
            Self::McpServer => "MCP servers",
            Self::Agent => "agents",
            Self::Tool => "MCP server tools",
            Self::ModelArtifact | Self::MetricsArtifact => "catalog artifacts",
            Self::TemplateArtifact => "artifacts",
        }
    }
}

/// The value of a property.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Int(i32),
    Double(f64),
    Bool(bool),
    /// Texts; filters ask for membership.
    List(Vec<String>),
    /// A structure that is only shown.
    Json(Json),
}

impl Value {
    /// The text that filters and searches see; numbers and booleans have none.
    pub(crate) fn as_text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::List(items) => Some(Self::list_to_json(items).encode()),
            Self::Json(value) => Some(value.encode()),
            Self::Int(_) | Self::Double(_) | Self::Bool(_) => None,
        }
    }

    /// The value as answers show it outside of custom properties.
    pub(crate) fn to_json(&self) -> Json {
        match self {
            Self::Text(text) => Json::text(text.as_str()),
            Self::Int(number) => Json::Int(i64::from(*number)),
            Self::Double(number) => Json::Double(*number),
            Self::Bool(flag) => Json::Bool(*flag),
            Self::List(items) => Self::list_to_json(items),
            Self::Json(value) => value.clone(),
        }
    }

    fn list_to_json(items: &[String]) -> Json {
        Json::Array(items.iter().map(|item| Json::text(item.as_str())).collect())
    }
}

/// A property of an item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Property {
    pub(crate) name: String,
    pub(crate) is_custom: bool,
    pub(crate) value: Value,
}

/// An item of a catalog.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub(crate) kind: ItemKind,
    pub(crate) id: i32,
    /// The id of its source.
    pub(crate) source: String,
    /// The name with what makes it unique; artifacts may have none.
    pub(crate) stored_name: Option<String>,
    /// As filters see it: behind the source's id for models.
    pub(crate) external_id: Option<String>,
    pub(crate) created: i64,
    pub(crate) updated: i64,
    pub(crate) properties: Vec<Property>,
    /// Artifacts of a model or an agent, tools of a server.
    pub(crate) children: Vec<Self>,
}

impl Item {
    pub(crate) fn new(kind: ItemKind, source: &str) -> Self {
        Self {
            kind,
            id: 0,
            source: source.to_owned(),
            stored_name: None,
            external_id: None,
            created: 0,
            updated: 0,
            properties: Vec::new(),
            children: Vec::new(),
        }
    }

    /// The name as clients see it.
    pub(crate) fn name(&self) -> Option<&str> {
        let stored = self.stored_name.as_deref()?;
        Some(match self.kind {
            ItemKind::Model | ItemKind::Agent => stored.split_once(':').map_or(stored, |(_, name)| name),
            ItemKind::McpServer => stored.split_once('@').map_or(stored, |(name, _)| name),
            ItemKind::Tool | ItemKind::TemplateArtifact => {
                stored.rsplit_once(':').map_or(stored, |(_, name)| name)
            }
            ItemKind::ModelArtifact | ItemKind::MetricsArtifact => stored,
        })
    }

    /// The value of a property that is not custom.
    pub(crate) fn property(&self, name: &str) -> Option<&Value> {
        self.properties.iter().find(|it| !it.is_custom && it.name == name).map(|it| &it.value)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.property(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn custom(&self, name: &str) -> Option<&Value> {
        self.properties.iter().find(|it| it.is_custom && it.name == name).map(|it| &it.value)
    }

    /// Sets a property that is not custom, if there is a value.
    pub(crate) fn put(&mut self, name: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.properties.push(Property { name: name.to_owned(), is_custom: false, value });
        }
    }

    /// Sets a custom property, replacing one of the same name.
    pub(crate) fn put_custom(&mut self, name: &str, value: Value) {
        self.properties.retain(|it| !it.is_custom || it.name != name);
        self.properties.push(Property { name: name.to_owned(), is_custom: true, value });
    }
}
