//! `filterQuery` over items in memory, with the meaning it has over PostgreSQL.

use std::cmp::Ordering;

use super::item::{Item, ItemKind, Value};
use crate::error::Error;
use crate::filter::{
    self, ColumnType, Expression, FilterError, Literal, Operand, Operator, PropertyColumn, Test, pattern,
};

/// A query whose names and types are known.
#[derive(Debug, Clone)]
pub(crate) enum Filter {
    All(Vec<Self>),
    Any(Vec<Self>),
    Column(Column, Test),
    Property {
        name: String,
        tests: Vec<(PropertyColumn, Test)>,
    },
    /// The property is a list that contains one of these texts, or none of them.
    Member {
        name: String,
        texts: Vec<String>,
        is_wanted: bool,
    },
    /// One artifact passes all of these.
    Artifact(Vec<Self>),
}

/// What every item has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Id,
    Name,
    ExternalId,
    Created,
    Updated,
    /// `state` of artifacts, which the catalog never sets.
    Unset,
}

/// The refusal of a comparison that cannot be made.
pub(crate) fn type_mismatch(kind: ItemKind) -> Error {
    let why = "invalid filter query, type mismatch or invalid value in comparison";
    Error::bad_request(format!("error listing {}: {why}", kind.words()))
}

impl Filter {
    /// Reads a query about items of this kind; a blank one is none.
    pub(crate) fn parse(query: &str, kind: ItemKind) -> Result<Option<Self>, Error> {
        let refuse = |error| match error {
            FilterError::Syntax(why) => Error::bad_request(why),
            FilterError::TypeMismatch => type_mismatch(kind),
        };
        let Some(expression) = filter::parse(query).map_err(refuse)? else { return Ok(None) };
        resolve(&expression, kind).map(Some).map_err(refuse)
    }

    pub(crate) fn accepts(&self, item: &Item) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.accepts(item)),
            Self::Any(parts) => parts.iter().any(|part| part.accepts(item)),
            Self::Column(column, test) => passes(test, column_value(*column, item).as_ref()),
            Self::Property { name, tests } => {
                let named = item.properties.iter().filter(|it| it.name == *name);
                named.into_iter().any(|it| {
                    tests
                        .iter()
                        .any(|(column, test)| passes(test, property_value(*column, &it.value).as_ref()))
                })
            }
            Self::Member { name, texts, is_wanted } => item.properties.iter().any(|it| {
                let Value::List(items) = &it.value else { return false };
                it.name == *name && items.iter().any(|item| texts.contains(item)) == *is_wanted
            }),
            Self::Artifact(parts) => {
                item.children.iter().any(|artifact| parts.iter().all(|part| part.accepts(artifact)))
            }
        }
    }

    /// The conditions on artifacts, wherever they are in the query.
    pub(crate) fn artifact_conditions(&self) -> Vec<&Self> {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().flat_map(Self::artifact_conditions).collect(),
            Self::Artifact(parts) => parts.iter().collect(),
            _ => Vec::new(),
        }
    }
}

fn resolve(expression: &Expression, kind: ItemKind) -> Result<Filter, FilterError> {
    match expression {
        Expression::Or(parts) => {
            Ok(Filter::Any(parts.iter().map(|part| resolve(part, kind)).collect::<Result<_, _>>()?))
        }
        Expression::And(_) => {
            // Conditions on artifacts that must all hold, must hold for the same artifact.
            let (mut parts, mut artifact) = (Vec::new(), Vec::new());
            let mut open = vec![expression];
            while let Some(part) = open.pop() {
                match part {
                    Expression::And(inner) => open.extend(inner.iter().rev()),
                    other => match resolve(other, kind)? {
                        Filter::Artifact(conditions) => artifact.extend(conditions),
                        resolved => parts.push(resolved),
                    },
                }
            }
            if !artifact.is_empty() {
                parts.push(Filter::Artifact(artifact));
            }
            Ok(Filter::All(parts))
        }
        Expression::Comparison { property, operator, value } => comparison(property, *operator, value, kind),
    }
}

fn comparison(
    property: &str,
    operator: Operator,
    value: &Literal,
    kind: ItemKind,
) -> Result<Filter, FilterError> {
    let (name, suffix) = match property.rsplit_once('.') {
        Some((name, suffix)) => match PropertyColumn::from_suffix(suffix) {
            Some(column) => (name, Some(column)),
            None => (property, None),
        },
        None => (property, None),
    };
    if kind == ItemKind::Model
        && let Some(name) = name.strip_prefix("artifacts.")
    {
        return Ok(Filter::Artifact(vec![untyped(name, suffix, operator, value)?]));
    }
    if let Some((column, ty)) = column(kind, name) {
        let (operator, value) = behind_prefix(column, kind, operator, value);
        return Ok(Filter::Column(column, filter::check(ty, operator, &value)?));
    }
    let name = if kind == ItemKind::McpServer && name == "name" { "base_name" } else { name };
    if is_list(kind, name)
        && suffix.is_none()
        && matches!(operator, Operator::Equal | Operator::NotEqual | Operator::In)
    {
        if operator != Operator::In && matches!(value, Literal::List(items) if items.len() > 1) {
            return Err(FilterError::TypeMismatch);
        }
        let texts = match filter::check(ColumnType::Text, Operator::In, value)? {
            Test::OneOf(items) => items,
            Test::Compare(_, item) => vec![item],
        };
        let text = |item| if let Operand::Text(text) = item { Some(text) } else { None };
        let texts = texts.into_iter().filter_map(text).collect();
        return Ok(Filter::Member {
            name: name.to_owned(),
            texts,
            is_wanted: operator != Operator::NotEqual,
        });
    }
    // As upstream, which looks for ILIKE in a column for lists that there is not.
    if is_list(kind, name) && operator == Operator::ILike {
        return Err(FilterError::TypeMismatch);
    }
    match declared(kind, name) {
        Some(column) => {
            let column = suffix.unwrap_or(column);
            let tests = vec![(column, filter::check(column.ty(), operator, value)?)];
            Ok(Filter::Property { name: name.to_owned(), tests })
        }
        None => untyped(name, suffix, operator, value),
    }
}

/// A condition on a property whose type follows from the literal.
fn untyped(
    name: &str,
    suffix: Option<PropertyColumn>,
    operator: Operator,
    value: &Literal,
) -> Result<Filter, FilterError> {
    let columns = suffix.map_or_else(|| filter::inferred(value, operator), |column| vec![column]);
    let tests = columns.into_iter().map(|column| Ok((column, filter::check(column.ty(), operator, value)?)));
    Ok(Filter::Property { name: name.to_owned(), tests: tests.collect::<Result<_, _>>()? })
}

/// The name and the external id of a model are stored behind its source; `=` looks behind that.
fn behind_prefix(column: Column, kind: ItemKind, operator: Operator, value: &Literal) -> (Operator, Literal) {
    match (column, value) {
        (Column::Name | Column::ExternalId, Literal::Text(text))
            if kind == ItemKind::Model
                && operator == Operator::Equal
                && !text.is_empty()
                && (column == Column::ExternalId || !text.contains(':')) =>
        {
            let literal = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
            (Operator::Like, Literal::Text(format!("%:{literal}")))
        }
        // As the registry's: names of states are numbers, and an unknown name is none of them.
        (Column::Unset, Literal::Text(_)) => (operator, Literal::Int(-1)),
        _ => (operator, value.clone()),
    }
}

fn column(kind: ItemKind, name: &str) -> Option<(Column, ColumnType)> {
    Some(match name {
        "id" => (Column::Id, ColumnType::Int32),
        "name" if kind != ItemKind::McpServer => (Column::Name, ColumnType::Text),
        "externalId" if kind != ItemKind::Tool => (Column::ExternalId, ColumnType::Text),
        "createTimeSinceEpoch" => (Column::Created, ColumnType::Int64),
        "lastUpdateTimeSinceEpoch" => (Column::Updated, ColumnType::Int64),
        "state" if kind.artifact_type().is_some() => (Column::Unset, ColumnType::Int32),
        _ => return None,
    })
}

fn is_list(kind: ItemKind, name: &str) -> bool {
    match kind {
        ItemKind::Model => matches!(name, "language" | "tasks" | "validated_tasks" | "tags"),
        ItemKind::McpServer => matches!(name, "tags" | "transports"),
        ItemKind::Agent => name == "labels",
        _ => false,
    }
}

/// The column of a property that the API declares.
fn declared(kind: ItemKind, name: &str) -> Option<PropertyColumn> {
    const MODEL: [&str; 14] = [
        "source_id",
        "description",
        "owner",
        "state",
        "language",
        "library_name",
        "license_link",
        "license",
        "logo",
        "maturity",
        "provider",
        "readme",
        "tasks",
        "validated_tasks",
    ];
    const SERVER: [&str; 21] = [
        "source_id",
        "base_name",
        "displayName",
        "description",
        "provider",
        "license",
        "license_link",
        "logo",
        "readme",
        "version",
        "tags",
        "transports",
        "deploymentMode",
        "documentationUrl",
        "repositoryUrl",
        "sourceCode",
        "publishedDate",
        "lastUpdated",
        "artifacts",
        "endpoints",
        "runtimeMetadata",
    ];
    let texts: &[&str] = match kind {
        ItemKind::Model => &MODEL,
        ItemKind::McpServer => &SERVER,
        ItemKind::Agent => &["displayName", "description", "framework", "repositoryUrl", "labels"],
        ItemKind::Tool => &["description", "accessType"],
        _ => &["uri", "artifactType"],
    };
    if texts.contains(&name) {
        return Some(PropertyColumn::Text);
    }
    let flags = ["verifiedSource", "secureEndpoint", "sast", "readOnlyTools"];
    let has_flags = matches!(kind, ItemKind::Model | ItemKind::McpServer);
    (has_flags && flags.contains(&name)).then_some(PropertyColumn::Bool)
}

fn column_value(column: Column, item: &Item) -> Option<Operand> {
    match column {
        Column::Id => Some(Operand::Int(i64::from(item.id))),
        Column::Name => item.stored_name.clone().map(Operand::Text),
        Column::ExternalId => item.external_id.clone().map(Operand::Text),
        Column::Created => Some(Operand::Int(item.created)),
        Column::Updated => Some(Operand::Int(item.updated)),
        Column::Unset => None,
    }
}

/// What a column of the property holds; a property fills only one.
pub(crate) fn property_value(column: PropertyColumn, value: &Value) -> Option<Operand> {
    match (column, value) {
        (PropertyColumn::Int, Value::Int(number)) => Some(Operand::Int(i64::from(*number))),
        (PropertyColumn::Double, Value::Double(number)) => Some(Operand::Double(*number)),
        (PropertyColumn::Bool, Value::Bool(flag)) => Some(Operand::Bool(*flag)),
        (PropertyColumn::Text, value) => value.as_text().map(Operand::Text),
        _ => None,
    }
}

/// Whether a value passes; what has none passes nothing, not even `!=`.
fn passes(test: &Test, value: Option<&Operand>) -> bool {
    let Some(value) = value else { return false };
    match test {
        Test::OneOf(items) => items.iter().any(|item| compare(value, item) == Some(Ordering::Equal)),
        Test::Compare(Operator::Like, Operand::Text(wanted)) => {
            matches!(value, Operand::Text(text) if pattern::matches(wanted, text))
        }
        Test::Compare(Operator::ILike, Operand::Text(wanted)) => {
            matches!(value, Operand::Text(text) if pattern::matches_ignoring_case(wanted, text))
        }
        Test::Compare(operator, operand) => {
            let Some(ordering) = compare(value, operand) else { return false };
            match operator {
                Operator::Equal
                | Operator::EqualAsStored
                | Operator::Like
                | Operator::ILike
                | Operator::In => ordering.is_eq(),
                Operator::NotEqual => ordering.is_ne(),
                Operator::Greater => ordering.is_gt(),
                Operator::GreaterOrEqual => ordering.is_ge(),
                Operator::Less => ordering.is_lt(),
                Operator::LessOrEqual => ordering.is_le(),
            }
        }
    }
}

/// Compares values of one type; texts by their bytes.
pub(crate) fn compare(left: &Operand, right: &Operand) -> Option<Ordering> {
    match (left, right) {
        (Operand::Int(left), Operand::Int(right)) => Some(left.cmp(right)),
        (Operand::Double(left), Operand::Double(right)) => left.partial_cmp(right),
        (Operand::Text(left), Operand::Text(right)) => Some(left.cmp(right)),
        (Operand::Bool(left), Operand::Bool(right)) => Some(left.cmp(right)),
        _ => None,
    }
}
