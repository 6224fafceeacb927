//! SQL text with its parameters.

use std::fmt::Write;

use crate::filter::pattern;

/// What differs between databases when writing a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    MySql,
}

/// A parameter, or a column of a result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// NULL of the type of the value inside, which PostgreSQL needs to know.
    Null(NullType),
    Int(i64),
    Double(f64),
    Text(String),
    Bool(bool),
    Bytes(Vec<u8>),
}

/// The type of a NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NullType {
    Int,
    Double,
    Text,
    Bool,
    Bytes,
}

impl Value {
    pub(crate) fn int(number: impl Into<i64>) -> Self {
        Self::Int(number.into())
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(crate) fn optional_text(text: Option<&str>) -> Self {
        text.map_or(Self::Null(NullType::Text), Self::text)
    }

    pub(crate) fn optional_int(number: Option<i32>) -> Self {
        number.map_or(Self::Null(NullType::Int), Self::int)
    }
}

/// A statement.
#[derive(Debug, Clone)]
pub(crate) struct Sql {
    pub(crate) dialect: Dialect,
    pub(crate) text: String,
    pub(crate) parameters: Vec<Value>,
}

impl Sql {
    pub(crate) fn new(dialect: Dialect, text: &str) -> Self {
        Self { dialect, text: text.to_owned(), parameters: Vec::new() }
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends a table or column name that needs quotes.
    pub(crate) fn table(&mut self, name: &str) {
        let _ = write!(self.text, "\"{name}\"");
    }

    /// Appends a parameter.
    pub(crate) fn bind(&mut self, value: Value) {
        self.parameters.push(value);
        let number = self.parameters.len();
        let _ = match self.dialect {
            Dialect::Sqlite => write!(self.text, "?{number}"),
            Dialect::Postgres => write!(self.text, "${number}"),
            Dialect::MySql => write!(self.text, "?"),
        };
    }

    /// Appends `column LIKE pattern`; without wildcards it is an equality that an index answers.
    pub(crate) fn like(&mut self, column: &str, pattern: &str) {
        if let Some(text) = pattern::literal(pattern) {
            self.push(&format!("{column} = "));
            self.bind(Value::Text(text));
        } else {
            self.push(&format!("{column} LIKE "));
            self.bind(Value::text(pattern));
        }
    }

    /// Appends a LIKE without regard to case.
    pub(crate) fn like_ignoring_case(&mut self, column: &str, pattern: &str) {
        match self.dialect {
            Dialect::Sqlite => {
                self.push("ilike(");
                self.bind(Value::text(pattern));
                self.push(&format!(", {column})"));
            }
            Dialect::Postgres => {
                self.push(&format!("{column} ILIKE "));
                self.bind(Value::text(pattern));
            }
            Dialect::MySql => {
                self.push(&format!("LOWER({column}) LIKE LOWER("));
                self.bind(Value::text(pattern));
                self.push(")");
            }
        }
    }

    /// Ends an insertion so that it returns the id of the new row. MySQL always does.
    pub(crate) fn returning_id(&mut self) {
        if self.dialect != Dialect::MySql {
            self.push(" RETURNING id");
        }
    }

    /// Ends an insertion so that a row with these keys is left as it is.
    pub(crate) fn or_ignore(&mut self, key: &str) {
        match self.dialect {
            Dialect::Sqlite | Dialect::Postgres => self.push(" ON CONFLICT DO NOTHING"),
            Dialect::MySql => self.push(&format!(" ON DUPLICATE KEY UPDATE {key} = {key}")),
        }
    }

    /// Ends an insertion so that a row with these keys gets these columns.
    pub(crate) fn or_update(&mut self, keys: &[&str], columns: &[&str]) {
        let assign = |column: &&str| match self.dialect {
            Dialect::Sqlite | Dialect::Postgres => format!("{column} = excluded.{column}"),
            Dialect::MySql => format!("{column} = VALUES({column})"),
        };
        let assignments = columns.iter().map(assign).collect::<Vec<_>>().join(", ");
        let keys = keys.join(", ");
        self.push(&match self.dialect {
            Dialect::Sqlite | Dialect::Postgres => {
                format!(" ON CONFLICT ({keys}) DO UPDATE SET {assignments}")
            }
            Dialect::MySql => format!(" ON DUPLICATE KEY UPDATE {assignments}"),
        });
    }
}

/// A row of a result.
#[derive(Debug, Clone)]
pub(crate) struct Row(pub(crate) Vec<Value>);

impl Row {
    fn get(&self, column: usize) -> Option<&Value> {
        self.0.get(column)
    }

    pub(crate) fn int(&self, column: usize) -> Option<i64> {
        match self.get(column) {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn int32(&self, column: usize) -> Option<i32> {
        self.int(column).and_then(|number| i32::try_from(number).ok())
    }

    pub(crate) fn double(&self, column: usize) -> Option<f64> {
        match self.get(column) {
            Some(Value::Double(number)) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn text(&self, column: usize) -> Option<&str> {
        match self.get(column) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Booleans are integers where the database has no type of their own.
    pub(crate) fn bool(&self, column: usize) -> Option<bool> {
        match self.get(column) {
            Some(Value::Bool(flag)) => Some(*flag),
            Some(Value::Int(number)) => Some(*number != 0),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self, column: usize) -> Option<&[u8]> {
        match self.get(column) {
            Some(Value::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }
}
