//! Applies a body to an entity.

use crate::body::{Body, FieldValue};
use crate::error::Error;
use crate::model::custom;
use crate::model::fields::{Field, Place, Type};
use crate::model::{Entity, Kind, PropertyValue, structs};
use crate::text;

/// A new entity without content.
pub(super) fn blank(kind: Kind, name: String, now: i64) -> Entity {
    Entity {
        kind,
        id: 0,
        name: Some(name),
        external_id: None,
        created: now,
        updated: now,
        uri: None,
        state: None,
        properties: Vec::new(),
    }
}

/// Sets what the body has; fields it does not have stay as they are.
pub(super) fn apply(entity: &mut Entity, body: &Body) -> Result<(), Error> {
    if let Some(external_id) = &body.external_id {
        entity.external_id = Some(external_id.clone());
    }
    if let Some(description) = &body.description {
        entity.set("description", false, PropertyValue::Text(description.clone()));
    }
    for (field, value) in &body.fields {
        apply_field(entity, field, value)?;
    }
    if let Some(custom) = &body.custom {
        let properties = custom::to_properties(custom)
            .map_err(|why| Error::bad_request(format!("error setting field CustomProperties: {why}")))?;
        entity.properties.retain(|property| !property.is_custom);
        entity.properties.extend(properties);
    }
    Ok(())
}

fn apply_field(entity: &mut Entity, field: &Field, value: &FieldValue) -> Result<(), Error> {
    match (field.place, field.ty, value) {
        (Place::Uri, _, FieldValue::Text(text)) => entity.uri = Some(text.clone()),
        (Place::State, Type::Enum(values), FieldValue::Text(text)) => entity.state = values.index(text),
        (Place::Property(stored), ty, value) => {
            let value = property_value(stored, ty, value)?;
            entity.set(stored, false, value);
        }
        _ => {}
    }
    Ok(())
}

fn property_value(stored: &str, ty: Type, value: &FieldValue) -> Result<PropertyValue, Error> {
    Ok(match (ty, value) {
        (Type::Id, FieldValue::Text(text)) => {
            let refused = |why| {
                Error::bad_request(format!("error setting field Properties: invalid numeric string: {why}"))
            };
            PropertyValue::Int(text::int32(text).map_err(refused)?)
        }
        (_, FieldValue::Text(text)) => PropertyValue::Text(text.clone()),
        (_, FieldValue::List(items)) => PropertyValue::Text(structs::encode_list(stored, items)),
        (_, FieldValue::Double(number)) => PropertyValue::Double(*number),
        // The API's integer is wider than the column; upstream keeps the low half.
        #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are what is kept")]
        (_, FieldValue::Int(number)) => PropertyValue::Int(*number as i32),
    })
}

/// The stored name: the prefix, and the name behind it unless it is empty.
pub(super) fn prefixed(prefix: &str, name: &str) -> String {
    if name.is_empty() { prefix.to_owned() } else { format!("{prefix}:{name}") }
}

/// A new random name.
pub(super) fn generated_name() -> String {
    uuid::Uuid::new_v4().to_string()
}
