//! Writing entities.

use std::collections::BTreeSet;

use super::sql::{Dialect, NullType, Sql, Value};
use super::{Session, StoreError, Types};
use crate::model::{Entity, Property, PropertyValue, Table};

/// What the columns for names and external ids hold, in characters.
const MAX_NAME: usize = 255;

impl Session {
    /// Inserts an entity and returns it with its id.
    pub(crate) async fn insert(
        &mut self,
        types: &Types,
        mut entity: Entity,
        parent: Option<i32>,
    ) -> Result<Entity, StoreError> {
        let table = entity.kind.table();
        let saving = |error| in_context(error, &format!("error saving {}", entity.kind.words_of_store()));
        check_length(self.dialect(), entity.name.as_deref()).map_err(saving)?;
        check_length(self.dialect(), entity.external_id.as_deref()).map_err(saving)?;
        // A row that a unique index refuses uses up its id, as in PostgreSQL.
        let id = self.allocate_id(table);
        let sql = insertion(self.sql("INSERT INTO "), types, &entity, id);
        let rows = self.rows(sql).await.map_err(saving)?;
        entity.id = match id.or_else(|| rows.first().and_then(|row| row.int32(0))) {
            Some(id) => id,
            None => return Err(StoreError::Other("the database gave the new row no id".to_owned())),
        };
        if let Some(parent) = parent {
            self.relate(table, entity.id, parent).await?;
        }
        self.put_properties(table, entity.id, &entity.properties).await?;
        Ok(entity)
    }

    /// Replaces `before` by `after`; only what differs is written.
    pub(crate) async fn update(
        &mut self,
        before: &Entity,
        after: Entity,
        parent: Option<i32>,
    ) -> Result<Entity, StoreError> {
        let table = after.kind.table();
        let saving = |error| in_context(error, &format!("error saving {}", after.kind.words_of_store()));
        check_length(self.dialect(), after.external_id.as_deref()).map_err(saving)?;
        let mut sql = self.sql("UPDATE ");
        sql.table(table.name());
        sql.push(" SET last_update_time_since_epoch = ");
        sql.bind(Value::Int(after.updated));
        sql.push(", external_id = ");
        sql.bind(Value::optional_text(after.external_id.as_deref()));
        match table {
            Table::Context => {}
            Table::Artifact => {
                sql.push(", uri = ");
                sql.bind(Value::optional_text(after.uri.as_deref()));
                sql.push(", state = ");
                sql.bind(Value::optional_int(after.state));
            }
            Table::Execution => {
                sql.push(", last_known_state = ");
                sql.bind(Value::optional_int(after.state));
            }
        }
        sql.push(" WHERE id = ");
        sql.bind(Value::int(after.id));
        self.execute(sql).await.map_err(saving)?;
        if let Some(parent) = parent {
            self.relate(table, after.id, parent).await?;
        }
        self.remove_properties(table, before, &after).await?;
        let changed = after.properties.iter().filter(|property| !before.properties.contains(property));
        let changed: Vec<Property> = changed.cloned().collect();
        self.put_properties(table, after.id, &changed).await?;
        Ok(after)
    }

    /// Keeps other writers off a row until the transaction ends. SQLite has one writer anyway.
    pub(crate) async fn lock(&mut self, table: Table, id: i32) -> Result<(), StoreError> {
        if self.dialect() == Dialect::Sqlite {
            return Ok(());
        }
        let mut sql = self.sql("SELECT id FROM ");
        sql.table(table.name());
        sql.push(" WHERE id = ");
        sql.bind(Value::int(id));
        sql.push(" FOR UPDATE");
        self.execute(sql).await
    }

    async fn relate(&mut self, table: Table, child: i32, parent: i32) -> Result<(), StoreError> {
        let (relation, child_column, parent_column) = table.parents();
        let mut sql = self.sql("INSERT INTO ");
        sql.table(relation);
        sql.push(&format!(" ({child_column}, {parent_column}) VALUES ("));
        sql.bind(Value::int(child));
        sql.push(", ");
        sql.bind(Value::int(parent));
        sql.push(")");
        sql.or_ignore(child_column);
        self.execute(sql).await
    }

    async fn put_properties(
        &mut self,
        table: Table,
        id: i32,
        properties: &[Property],
    ) -> Result<(), StoreError> {
        for property in properties {
            check_any_length(Some(&property.name))
                .map_err(|error| in_context(error, &format!("error creating property {}", property.name)))?;
        }
        // Databases limit the parameters of a statement; nine columns a row keep this far below.
        for chunk in properties.chunks(500) {
            let sql = property_insertion(self.sql("INSERT INTO "), table, id, chunk);
            self.execute(sql).await.map_err(|error| in_context(error, "error creating property"))?;
        }
        Ok(())
    }

    async fn remove_properties(
        &mut self,
        table: Table,
        before: &Entity,
        after: &Entity,
    ) -> Result<(), StoreError> {
        let custom = |entity: &Entity| -> BTreeSet<String> {
            entity.properties.iter().filter(|it| it.is_custom).map(|it| it.name.clone()).collect()
        };
        let (before, kept) = (custom(before), custom(after));
        for name in before.difference(&kept) {
            let mut sql = self.sql("DELETE FROM ");
            sql.table(table.properties());
            sql.push(&format!(" WHERE {} = ", table.owner_column()));
            sql.bind(Value::int(after.id));
            sql.push(" AND name = ");
            sql.bind(Value::text(name));
            sql.push(" AND is_custom_property = ");
            sql.bind(Value::Bool(true));
            self.execute(sql).await?;
        }
        Ok(())
    }
}

fn insertion(mut sql: Sql, types: &Types, entity: &Entity, id: Option<i32>) -> Sql {
    let table = entity.kind.table();
    let mut columns = vec![
        ("type_id", Value::int(types.id(entity.kind))),
        ("name", Value::optional_text(entity.name.as_deref())),
        ("external_id", Value::optional_text(entity.external_id.as_deref())),
        ("create_time_since_epoch", Value::Int(entity.created)),
        ("last_update_time_since_epoch", Value::Int(entity.updated)),
    ];
    columns.extend(id.map(|id| ("id", Value::int(id))));
    match table {
        Table::Context => {}
        Table::Artifact => columns.extend([
            ("uri", Value::optional_text(entity.uri.as_deref())),
            ("state", Value::optional_int(entity.state)),
        ]),
        Table::Execution => columns.push(("last_known_state", Value::optional_int(entity.state))),
    }
    sql.table(table.name());
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    sql.push(&format!(" ({}) VALUES (", names.join(", ")));
    for (index, (_, value)) in columns.into_iter().enumerate() {
        if index > 0 {
            sql.push(", ");
        }
        sql.bind(value);
    }
    sql.push(")");
    if id.is_none() {
        sql.returning_id();
    }
    sql
}

fn property_insertion(mut sql: Sql, table: Table, id: i32, properties: &[Property]) -> Sql {
    let owner = table.owner_column();
    sql.table(table.properties());
    sql.push(&format!(
        " ({owner}, name, is_custom_property, int_value, double_value, string_value, bool_value, byte_value) VALUES "
    ));
    for (index, property) in properties.iter().enumerate() {
        sql.push(if index > 0 { ", (" } else { "(" });
        sql.bind(Value::int(id));
        sql.push(", ");
        sql.bind(Value::text(&property.name));
        sql.push(", ");
        sql.bind(Value::Bool(property.is_custom));
        for value in value_columns(&property.value) {
            sql.push(", ");
            sql.bind(value);
        }
        sql.push(")");
    }
    let columns = ["int_value", "double_value", "string_value", "bool_value", "byte_value"];
    sql.or_update(&[owner, "name", "is_custom_property"], &columns);
    sql
}

/// The value in its column, and NULL in the others.
fn value_columns(value: &PropertyValue) -> [Value; 5] {
    let mut columns = [
        Value::Null(NullType::Int),
        Value::Null(NullType::Double),
        Value::Null(NullType::Text),
        Value::Null(NullType::Bool),
        Value::Null(NullType::Bytes),
    ];
    let [int, double, text, flag, bytes] = &mut columns;
    match value {
        PropertyValue::Int(number) => *int = Value::int(*number),
        PropertyValue::Double(number) => *double = Value::Double(*number),
        PropertyValue::Text(content) => *text = Value::text(content),
        PropertyValue::Bool(value) => *flag = Value::Bool(*value),
        PropertyValue::Bytes(content) => *bytes = Value::Bytes(content.clone()),
    }
    columns
}

/// SQLite does not limit the length of text, and MySQL refuses it in other words; the limit is part of the schema.
fn check_length(dialect: Dialect, text: Option<&str>) -> Result<(), StoreError> {
    if dialect == Dialect::Postgres { Ok(()) } else { check_any_length(text) }
}

/// The same on all databases, to name what is too long: properties are written by one statement.
fn check_any_length(text: Option<&str>) -> Result<(), StoreError> {
    if text.is_some_and(|text| text.chars().count() > MAX_NAME) {
        let text = format!("ERROR: value too long for type character varying({MAX_NAME}) (SQLSTATE 22001)");
        return Err(StoreError::Data(text));
    }
    Ok(())
}

fn in_context(error: StoreError, context: &str) -> StoreError {
    match error {
        StoreError::Data(text) => StoreError::Data(format!("{context}: {text}")),
        StoreError::Other(text) => StoreError::Other(format!("{context}: {text}")),
        other => other,
    }
}
