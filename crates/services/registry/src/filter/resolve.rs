//! Resolves the names in a query and checks its literals.
//!
//! PostgreSQL refuses a comparison whose literal does not fit the column's type; SQLite and MySQL
//! convert instead. Checking here makes all databases answer alike.

use super::{Expression, FilterError, Literal};
use crate::model::fields::{ARTIFACT_STATE, EXECUTION_STATE};
use crate::model::{Kind, Table};

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    /// `<>`, which upstream takes for `=`, except that it looks behind no prefix and into no list.
    EqualAsStored,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Like,
    ILike,
    In,
}

/// A query whose names and types are known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Condition {
    All(Vec<Self>),
    Any(Vec<Self>),
    /// A column of the entity table.
    Entity {
        column: Column,
        test: Test,
    },
    /// Some property of this name passes one of the tests.
    Property {
        name: String,
        tests: Vec<(PropertyColumn, Test)>,
    },
}

/// A comparison with a value of the column's own type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Test {
    Compare(Operator, Operand),
    /// Equal to one of these; none matches nothing.
    OneOf(Vec<Operand>),
}

/// A checked literal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    Int(i64),
    Double(f64),
    Text(String),
    Bool(bool),
}

/// A column of an entity table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Id,
    Name,
    ExternalId,
    Created,
    Updated,
    Uri,
    State,
    LastKnownState,
}

/// A value column of a property table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PropertyColumn {
    Int,
    Double,
    Text,
    Bool,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Int32,
    Int64,
    Double,
    Text,
    Bool,
}

impl Column {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Name => "name",
            Self::ExternalId => "external_id",
            Self::Created => "create_time_since_epoch",
            Self::Updated => "last_update_time_since_epoch",
            Self::Uri => "uri",
            Self::State => "state",
            Self::LastKnownState => "last_known_state",
        }
    }

    fn ty(self) -> ColumnType {
        match self {
            Self::Id | Self::State | Self::LastKnownState => ColumnType::Int32,
            Self::Created | Self::Updated => ColumnType::Int64,
            Self::Name | Self::ExternalId | Self::Uri => ColumnType::Text,
        }
    }
}

impl PropertyColumn {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Int => "int_value",
            Self::Double => "double_value",
            Self::Text => "string_value",
            Self::Bool => "bool_value",
        }
    }

    /// The column that the end of a property's name picks.
    pub(crate) fn from_suffix(suffix: &str) -> Option<Self> {
        [Self::Int, Self::Double, Self::Text, Self::Bool].into_iter().find(|it| it.name() == suffix)
    }

    pub(crate) fn ty(self) -> ColumnType {
        match self {
            Self::Int => ColumnType::Int32,
            Self::Double => ColumnType::Double,
            Self::Text => ColumnType::Text,
            Self::Bool => ColumnType::Bool,
        }
    }
}

/// Where a name of a query is found.
enum Known {
    Entity(Column),
    Property(&'static str, PropertyColumn),
}

/// Resolves an expression for entities of `kind`.
pub(crate) fn resolve(expression: &Expression, kind: Kind) -> Result<Condition, FilterError> {
    let resolve_all =
        |parts: &[Expression]| parts.iter().map(|part| resolve(part, kind)).collect::<Result<Vec<_>, _>>();
    Ok(match expression {
        Expression::And(parts) => Condition::All(resolve_all(parts)?),
        Expression::Or(parts) => Condition::Any(resolve_all(parts)?),
        Expression::Comparison { property, operator, value } => comparison(property, *operator, value, kind)?,
    })
}

fn comparison(
    property: &str,
    operator: Operator,
    value: &Literal,
    kind: Kind,
) -> Result<Condition, FilterError> {
    let (name, suffix) = match property.rsplit_once('.') {
        Some((name, suffix)) => match PropertyColumn::from_suffix(suffix) {
            Some(column) => (name, Some(column)),
            None => (property, None),
        },
        None => (property, None),
    };
    match known(kind, name) {
        Some(Known::Entity(column)) => {
            let (operator, value) = prepare(column, kind, operator, value);
            Ok(Condition::Entity { column, test: check(column.ty(), operator, &value)? })
        }
        Some(Known::Property(stored, column)) => {
            let column = suffix.unwrap_or(column);
            let tests = vec![(column, check(column.ty(), operator, value)?)];
            Ok(Condition::Property { name: stored.to_owned(), tests })
        }
        None => {
            let columns = match suffix {
                Some(column) => vec![column],
                None => inferred(value, operator),
            };
            let tests = columns.into_iter().map(|column| Ok((column, check(column.ty(), operator, value)?)));
            Ok(Condition::Property { name: name.to_owned(), tests: tests.collect::<Result<_, _>>()? })
        }
    }
}

/// The columns in which the value of an unknown property is looked for.
pub(crate) fn inferred(value: &Literal, operator: Operator) -> Vec<PropertyColumn> {
    match value {
        // ILIKE never looks at two columns.
        Literal::Int(_) if operator == Operator::ILike => vec![PropertyColumn::Int],
        Literal::Int(_) => vec![PropertyColumn::Int, PropertyColumn::Double],
        Literal::Float(_) => vec![PropertyColumn::Double],
        Literal::Bool(_) => vec![PropertyColumn::Bool],
        Literal::Text(_) | Literal::List(_) => vec![PropertyColumn::Text],
    }
}

/// Names of states become numbers, and a name of a child entity is compared behind its prefix.
fn prepare(column: Column, kind: Kind, operator: Operator, value: &Literal) -> (Operator, Literal) {
    match (column, value) {
        (Column::State, Literal::Text(state)) => {
            let states = if kind.table() == Table::Execution { &EXECUTION_STATE } else { &ARTIFACT_STATE };
            (operator, Literal::Int(i64::from(states.index(state).unwrap_or(-1))))
        }
        (Column::Name, Literal::Text(name)) if kind.has_prefixed_name() => match operator {
            Operator::Equal => (Operator::Like, Literal::Text(format!("%:{name}"))),
            Operator::Like if !name.contains(':') && !name.starts_with('%') => {
                (operator, Literal::Text(format!("%:{name}")))
            }
            _ => (operator, value.clone()),
        },
        _ => (operator, value.clone()),
    }
}

/// Checks a literal against the type of the column it is compared with.
pub(crate) fn check(ty: ColumnType, operator: Operator, value: &Literal) -> Result<Test, FilterError> {
    match operator {
        Operator::EqualAsStored => check(ty, Operator::Equal, value),
        Operator::Like | Operator::ILike => match (ty, alone(value)) {
            (ColumnType::Text, Literal::Text(pattern)) => {
                Ok(Test::Compare(operator, Operand::Text(pattern.clone())))
            }
            (ColumnType::Text, Literal::List(items)) if items.is_empty() => Ok(Test::OneOf(Vec::new())),
            _ => Err(FilterError::TypeMismatch),
        },
        Operator::In => match value {
            Literal::List(items) => one_of(ty, items),
            single => one_of(ty, std::slice::from_ref(single)),
        },
        // An empty list compares with NULL.
        _ => match alone(value) {
            Literal::List(items) if items.is_empty() => Ok(Test::OneOf(Vec::new())),
            single => Ok(Test::Compare(operator, operand(ty, single)?)),
        },
    }
}

/// A list of one is a value in parentheses.
fn alone(value: &Literal) -> &Literal {
    match value {
        Literal::List(items) => {
            if let [single] = items.as_slice() {
                single
            } else {
                value
            }
        }
        single => single,
    }
}

fn one_of(ty: ColumnType, items: &[Literal]) -> Result<Test, FilterError> {
    let items = items.iter().map(|item| operand(ty, item));
    Ok(Test::OneOf(items.collect::<Result<_, _>>()?))
}

fn operand(ty: ColumnType, value: &Literal) -> Result<Operand, FilterError> {
    let fitting = match (ty, value) {
        (ColumnType::Int32, value) => {
            integer(value).filter(|it| i32::try_from(*it).is_ok()).map(Operand::Int)
        }
        (ColumnType::Int64, value) => integer(value).map(Operand::Int),
        (ColumnType::Double, Literal::Int(number)) => Some(Operand::Double(whole(*number))),
        (ColumnType::Double, Literal::Float(number)) => Some(Operand::Double(*number)),
        (ColumnType::Double, Literal::Text(text)) => text.trim().parse().ok().map(Operand::Double),
        (ColumnType::Text, Literal::Text(text)) => Some(Operand::Text(text.clone())),
        (ColumnType::Bool, Literal::Bool(flag)) => Some(Operand::Bool(*flag)),
        (ColumnType::Bool, Literal::Text(text)) => boolean(text).map(Operand::Bool),
        _ => None,
    };
    fitting.ok_or(FilterError::TypeMismatch)
}

/// Digits in quotes are a number, and a fraction is cut off.
fn integer(value: &Literal) -> Option<i64> {
    match value {
        Literal::Int(number) => Some(*number),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the range is checked; the fraction is to be cut off"
        )]
        Literal::Float(number) if number.abs() < 9.2e18 => Some(*number as i64),
        Literal::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Integers beyond 2^53 are rounded, as a double column would hold them.
#[expect(clippy::cast_precision_loss, reason = "the column is a double")]
fn whole(number: i64) -> f64 {
    number as f64
}

/// The spellings PostgreSQL takes for a boolean.
fn boolean(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "t" | "tr" | "tru" | "true" | "y" | "ye" | "yes" | "on" | "1" => Some(true),
        "f" | "fa" | "fal" | "fals" | "false" | "n" | "no" | "of" | "off" | "0" => Some(false),
        _ => None,
    }
}

fn known(kind: Kind, name: &str) -> Option<Known> {
    let table = kind.table();
    let common = match name {
        "id" => Some(Column::Id),
        "name" => Some(Column::Name),
        "externalId" => Some(Column::ExternalId),
        "createTimeSinceEpoch" => Some(Column::Created),
        "lastUpdateTimeSinceEpoch" => Some(Column::Updated),
        "uri" if table == Table::Artifact => Some(Column::Uri),
        "state" if table == Table::Artifact => Some(Column::State),
        "lastKnownState" if table == Table::Execution => Some(Column::LastKnownState),
        _ => None,
    };
    if let Some(column) = common {
        return Some(Known::Entity(column));
    }
    let properties = properties(kind);
    let found = properties.iter().find(|(known, ..)| *known == name);
    found.map(|(_, stored, column)| Known::Property(stored, *column))
}

type KnownProperty = (&'static str, &'static str, PropertyColumn);

/// Properties a query may name as the API does. Others are looked up by their stored name.
/// Several columns are not those the values are in (`timestamp`, `value` of parameters): so it is upstream.
fn properties(kind: Kind) -> &'static [KnownProperty] {
    use PropertyColumn::{Double, Int, Text};
    const EXPERIMENT: KnownProperty = ("experimentId", "experiment_id", Int);
    const RUN: KnownProperty = ("experimentRunId", "experiment_run_id", Int);
    match kind {
        Kind::RegisteredModel | Kind::Experiment => &[("state", "state", Text), ("owner", "owner", Text)],
        Kind::ModelVersion => &[
            ("registeredModelId", "registered_model_id", Int),
            ("state", "state", Text),
            ("author", "author", Text),
        ],
        Kind::InferenceService => &[
            ("registeredModelId", "registered_model_id", Int),
            ("modelVersionId", "model_version_id", Int),
            ("servingEnvironmentId", "serving_environment_id", Int),
            ("runtime", "runtime", Text),
            ("desiredState", "desired_state", Text),
        ],
        Kind::ServingEnvironment => &[],
        Kind::ExperimentRun => &[
            EXPERIMENT,
            ("startTimeSinceEpoch", "start_time_since_epoch", Text),
            ("endTimeSinceEpoch", "end_time_since_epoch", Text),
            ("status", "status", Text),
            ("state", "state", Text),
            ("owner", "owner", Text),
        ],
        Kind::ModelArtifact => &[
            EXPERIMENT,
            RUN,
            ("modelFormatName", "model_format_name", Text),
            ("modelFormatVersion", "model_format_version", Text),
            ("storageKey", "storage_key", Text),
            ("storagePath", "storage_path", Text),
            ("serviceAccountName", "service_account_name", Text),
            ("modelSourceKind", "model_source_kind", Text),
            ("modelSourceClass", "model_source_class", Text),
            ("modelSourceGroup", "model_source_group", Text),
            ("modelSourceId", "model_source_id", Text),
            ("modelSourceName", "model_source_name", Text),
        ],
        Kind::DocArtifact => &[EXPERIMENT, RUN],
        Kind::DataSet => &[
            EXPERIMENT,
            RUN,
            ("digest", "digest", Text),
            ("sourceType", "source_type", Text),
            ("source", "source", Text),
            ("schema", "schema", Text),
            ("profile", "profile", Text),
        ],
        Kind::Metric | Kind::MetricHistory => &[
            EXPERIMENT,
            RUN,
            ("value", "value", Double),
            ("timestamp", "timestamp", Int),
            ("step", "step", Int),
        ],
        Kind::Parameter => {
            &[EXPERIMENT, RUN, ("value", "value", Double), ("parameterType", "parameter_type", Text)]
        }
        Kind::ServeModel => &[
            ("modelVersionId", "model_version_id", Int),
            ("inferenceServiceId", "inference_service_id", Int),
            ("registeredModelId", "registered_model_id", Int),
            ("servingEnvironmentId", "serving_environment_id", Int),
        ],
    }
}
