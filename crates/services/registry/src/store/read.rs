//! Reading entities. A list is one statement, whatever its length.

use super::page::Page;
use super::sql::{Row, Sql, Value};
use super::{Session, StoreError, Types};
use crate::filter::{self, Condition};
use crate::model::{Entity, Kind, Property, PropertyValue, Table};

/// A name or an external id to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ByName {
    /// A LIKE pattern of the stored name.
    Name(String),
    StoredName(String),
    ExternalId(String),
}

/// Which entities a list holds.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) parent: Option<i32>,
    pub(crate) by_name: Option<ByName>,
    pub(crate) condition: Option<Condition>,
    /// Values of the property `step`; empty means all.
    pub(crate) steps: Vec<i32>,
    pub(crate) page: Page,
}

impl Query {
    pub(crate) fn new(kinds: &[Kind]) -> Self {
        Self {
            kinds: kinds.to_vec(),
            parent: None,
            by_name: None,
            condition: None,
            steps: Vec::new(),
            page: Page::all(),
        }
    }

    fn table(&self) -> Table {
        self.kinds.first().map_or(Table::Context, |kind| kind.table())
    }
}

impl Session {
    /// The entity with this id, if it is of one of these kinds.
    pub(crate) async fn get(
        &mut self,
        types: &Types,
        kinds: &[Kind],
        id: i32,
    ) -> Result<Option<Entity>, StoreError> {
        let Some(table) = kinds.first().map(|kind| kind.table()) else { return Ok(None) };
        let mut sql = self.sql("SELECT ");
        write_columns(&mut sql, table);
        sql.push(" FROM ");
        sql.table(table.name());
        sql.push(" e");
        write_property_join(&mut sql, table);
        sql.push(" WHERE e.id = ");
        sql.bind(Value::int(id));
        write_kinds(&mut sql, types, kinds);
        let rows = self.rows(sql).await?;
        Ok(entities(table, types, &rows).into_iter().next())
    }

    /// The entities of a list, and one more if there is another page.
    pub(crate) async fn list(&mut self, types: &Types, query: &Query) -> Result<Vec<Entity>, StoreError> {
        let table = query.table();
        let mut sql = self.sql("SELECT ");
        write_columns(&mut sql, table);
        sql.push(" FROM (SELECT ");
        sql.push(&table.columns().iter().map(|column| format!("e.{column}")).collect::<Vec<_>>().join(", "));
        sql.push(" FROM ");
        sql.table(table.name());
        sql.push(" e WHERE 1 = 1");
        write_kinds(&mut sql, types, &query.kinds);
        write_conditions(&mut sql, table, query);
        query.page.write_condition(&mut sql);
        query.page.write_order(&mut sql);
        if let Some(limit) = query.page.limit() {
            sql.push(" LIMIT ");
            sql.bind(Value::Int(limit));
        }
        sql.push(") e");
        write_property_join(&mut sql, table);
        query.page.write_order(&mut sql);
        let rows = self.rows(sql).await?;
        Ok(entities(table, types, &rows))
    }
}

fn write_kinds(sql: &mut Sql, types: &Types, kinds: &[Kind]) {
    sql.push(" AND e.type_id IN (");
    for (index, kind) in kinds.iter().enumerate() {
        if index > 0 {
            sql.push(", ");
        }
        sql.bind(Value::int(types.id(*kind)));
    }
    sql.push(")");
}

fn write_conditions(sql: &mut Sql, table: Table, query: &Query) {
    match &query.by_name {
        Some(ByName::Name(pattern)) => {
            sql.push(" AND ");
            sql.like("e.name", pattern);
        }
        Some(ByName::StoredName(name)) => {
            sql.push(" AND e.name = ");
            sql.bind(Value::text(name));
        }
        Some(ByName::ExternalId(id)) => {
            sql.push(" AND e.external_id = ");
            sql.bind(Value::text(id));
        }
        None => {}
    }
    if let Some(parent) = query.parent {
        let (relation, child_column, parent_column) = table.parents();
        sql.push(" AND EXISTS (SELECT 1 FROM ");
        sql.table(relation);
        sql.push(&format!(" r WHERE r.{child_column} = e.id AND r.{parent_column} = "));
        sql.bind(Value::int(parent));
        sql.push(")");
    }
    if !query.steps.is_empty() {
        sql.push(" AND EXISTS (SELECT 1 FROM ");
        sql.table(table.properties());
        sql.push(&format!(
            " s WHERE s.{} = e.id AND s.name = 'step' AND s.int_value IN (",
            table.owner_column()
        ));
        for (index, step) in query.steps.iter().enumerate() {
            if index > 0 {
                sql.push(", ");
            }
            sql.bind(Value::int(*step));
        }
        sql.push("))");
    }
    if let Some(condition) = &query.condition {
        sql.push(" AND ");
        filter::write(sql, table, condition);
    }
}

const PROPERTY_COLUMNS: [&str; 7] =
    ["name", "is_custom_property", "int_value", "double_value", "string_value", "bool_value", "byte_value"];

fn write_columns(sql: &mut Sql, table: Table) {
    let entity = table.columns().into_iter().map(|column| format!("e.{column}"));
    let property = PROPERTY_COLUMNS.iter().map(|column| format!("p.{column}"));
    sql.push(&entity.chain(property).collect::<Vec<_>>().join(", "));
}

fn write_property_join(sql: &mut Sql, table: Table) {
    sql.push(" LEFT JOIN ");
    sql.table(table.properties());
    sql.push(&format!(" p ON p.{} = e.id", table.owner_column()));
}

/// Gathers rows, one per property, into entities; rows of an entity follow each other.
fn entities(table: Table, types: &Types, rows: &[Row]) -> Vec<Entity> {
    let mut entities: Vec<Entity> = Vec::new();
    for row in rows {
        let Some(id) = row.int32(0) else { continue };
        if entities.last().is_none_or(|last| last.id != id) {
            match entity(table, types, id, row) {
                Some(entity) => entities.push(entity),
                None => continue,
            }
        }
        if let (Some(last), Some(property)) = (entities.last_mut(), property(table, row)) {
            last.properties.push(property);
        }
    }
    entities
}

fn entity(table: Table, types: &Types, id: i32, row: &Row) -> Option<Entity> {
    let (uri, state) = match table {
        Table::Context => (None, None),
        Table::Artifact => (row.text(6).map(str::to_owned), row.int32(7)),
        Table::Execution => (None, row.int32(6)),
    };
    Some(Entity {
        kind: types.kind(row.int32(1)?)?,
        id,
        name: row.text(2).map(str::to_owned),
        external_id: row.text(3).map(str::to_owned),
        created: row.int(4).unwrap_or_default(),
        updated: row.int(5).unwrap_or_default(),
        uri,
        state,
        properties: Vec::new(),
    })
}

fn property(table: Table, row: &Row) -> Option<Property> {
    let first = table.columns().len();
    let name = row.text(first)?.to_owned();
    let is_custom = row.bool(first + 1)?;
    let value = if let Some(number) = row.int32(first + 2) {
        PropertyValue::Int(number)
    } else if let Some(text) = row.text(first + 4) {
        PropertyValue::Text(text.to_owned())
    } else if let Some(flag) = row.bool(first + 5) {
        PropertyValue::Bool(flag)
    } else if let Some(number) = row.double(first + 3) {
        PropertyValue::Double(number)
    } else {
        PropertyValue::Bytes(row.bytes(first + 6)?.to_vec())
    };
    Some(Property { name, is_custom, value })
}
