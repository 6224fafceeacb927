//! Entities as answers show them.

use std::collections::BTreeMap;

use super::custom::{self, EXPERIMENT_ID, EXPERIMENT_RUN_ID};
use super::fields::{Field, Place, Type};
use super::{Entity, Kind, PropertyValue, structs};
use crate::json::Json;

/// Whether custom properties that the server itself has set are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// As in almost all answers.
    LeftOut,
    /// As in the answer to a metric sent to an experiment run.
    Shown,
}

/// Encodes an entity.
pub(crate) fn encode(entity: &Entity, hidden: Hidden) -> Json {
    let mut members = BTreeMap::new();
    let mut put = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            members.insert(name.to_owned(), value);
        }
    };
    put("id", Some(Json::text(entity.id.to_string())));
    put("name", shown_name(entity).map(Json::text));
    put("externalId", entity.external_id.as_deref().map(Json::text));
    put("description", entity.text_property("description").map(Json::text));
    put("createTimeSinceEpoch", Some(Json::text(entity.created.to_string())));
    put("lastUpdateTimeSinceEpoch", Some(Json::text(entity.updated.to_string())));
    put("customProperties", Some(encode_custom(entity, hidden)));
    if let Some(artifact_type) = entity.kind.artifact_type() {
        put("artifactType", Some(Json::text(artifact_type)));
        put("experimentId", hidden_id(entity, EXPERIMENT_ID));
        put("experimentRunId", hidden_id(entity, EXPERIMENT_RUN_ID));
    }
    for field in entity.kind.fields() {
        put(field.name, encode_field(entity, field));
    }
    Json::Object(members)
}

/// The name of a history record ends in the time it was written at.
fn shown_name(entity: &Entity) -> Option<&str> {
    let name = entity.shown_name()?;
    if entity.kind == Kind::MetricHistory {
        return Some(name.rsplit_once("__").map_or(name, |(metric, _)| metric));
    }
    Some(name)
}

fn encode_custom(entity: &Entity, hidden: Hidden) -> Json {
    let is_shown =
        |name: &str| hidden == Hidden::Shown || (name != EXPERIMENT_ID && name != EXPERIMENT_RUN_ID);
    let custom = entity.properties.iter().filter(|it| it.is_custom && is_shown(&it.name));
    Json::Object(custom.map(|it| (it.name.clone(), custom::encode(&it.value))).collect())
}

fn hidden_id(entity: &Entity, name: &str) -> Option<Json> {
    match entity.custom_property(name) {
        Some(PropertyValue::Int(id)) => Some(Json::text(id.to_string())),
        _ => None,
    }
}

fn encode_field(entity: &Entity, field: &Field) -> Option<Json> {
    match (field.place, field.ty) {
        (Place::Uri, _) => entity.uri.as_deref().map(Json::text),
        (Place::State, Type::Enum(values)) => entity.state.and_then(|it| values.value(it)).map(Json::text),
        (Place::Property(stored), ty) => encode_property(stored, ty, entity.property(stored)?),
        _ => None,
    }
}

fn encode_property(stored: &str, ty: Type, value: &PropertyValue) -> Option<Json> {
    Some(match (ty, value) {
        (Type::Text | Type::Enum(_), PropertyValue::Text(text)) => Json::text(text.as_str()),
        (Type::Id, PropertyValue::Int(id)) => Json::text(id.to_string()),
        (Type::Int, PropertyValue::Int(number)) => Json::Int(i64::from(*number)),
        (Type::Double, PropertyValue::Double(number)) => Json::Double(*number),
        (Type::List, PropertyValue::Text(text)) => {
            Json::Array(structs::decode_list(stored, text)?.into_iter().map(Json::Text).collect())
        }
        _ => return None,
    })
}
