//! PostgreSQL: a pool of connections, each with its prepared statements.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Statement};

use super::sql::{NullType, Row, Sql, Value};
use super::{Session, StoreError, Work};
use crate::error::Error;

/// Connections in use at a time. More do not help: each runs one statement at a time on the
/// server, which has a handful of processors.
const CONNECTIONS: usize = 16;
/// Prepared statements per connection. Filters make new texts, so the number is bounded.
const STATEMENTS: usize = 256;

/// A database and its idle connections.
pub(super) struct Postgres {
    config: tokio_postgres::Config,
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

/// A connection.
pub(crate) struct Connection {
    client: Client,
    statements: HashMap<String, Statement>,
}

impl Postgres {
    pub(super) fn new(config: &tokio_postgres::Config) -> Self {
        Self { config: config.clone(), permits: Semaphore::new(CONNECTIONS), idle: Mutex::default() }
    }

    pub(super) async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        F: for<'a> FnOnce(&'a mut Session) -> Work<'a, T> + Send,
    {
        self.with_connection(async |session| {
            session.batch("BEGIN").await?;
            let result = work(session).await;
            session.batch(if result.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
            result
        })
        .await
    }

    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, Error>
    where
        F: for<'a> FnOnce(&'a mut Session) -> Work<'a, T> + Send,
    {
        self.with_connection(async |session| work(session).await).await
    }

    async fn with_connection<T>(
        &self,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let closed = |error| StoreError::Unavailable(format!("{error}"));
        let _permit = self.permits.acquire().await.map_err(closed)?;
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) if !connection.client.is_closed() => connection,
            _ => self.connect().await?,
        };
        let mut session = Session::Postgres(connection);
        let result = work(&mut session).await;
        if let Session::Postgres(connection) = session
            && !connection.client.is_closed()
        {
            self.idle.lock().push(connection);
        }
        result
    }

    async fn connect(&self) -> Result<Connection, StoreError> {
        let (client, connection) =
            self.config.connect(NoTls).await.map_err(|error| StoreError::Unavailable(chain(&error)))?;
        #[expect(clippy::disallowed_methods, reason = "it ends when the client is dropped")]
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(%error, "the connection to the database ended");
            }
        });
        Ok(Connection { client, statements: HashMap::new() })
    }
}

impl Connection {
    pub(super) async fn rows(&mut self, sql: &Sql) -> Result<Vec<Row>, StoreError> {
        let statement = match self.statements.get(&sql.text) {
            Some(statement) => statement.clone(),
            None => self.prepare(sql).await?,
        };
        let parameters: Vec<&(dyn ToSql + Sync)> = sql.parameters.iter().map(as_parameter).collect();
        let rows = self.client.query(&statement, &parameters).await.map_err(|error| failure(&error))?;
        rows.iter().map(from_postgres).collect()
    }

    async fn prepare(&mut self, sql: &Sql) -> Result<Statement, StoreError> {
        let types: Vec<Type> = sql.parameters.iter().map(parameter_type).collect();
        let statement =
            self.client.prepare_typed(&sql.text, &types).await.map_err(|error| failure(&error))?;
        if self.statements.len() >= STATEMENTS {
            self.statements.clear();
        }
        self.statements.insert(sql.text.clone(), statement.clone());
        Ok(statement)
    }

    pub(super) async fn batch(&mut self, text: &str) -> Result<(), StoreError> {
        self.client.batch_execute(text).await.map_err(|error| failure(&error))
    }
}

fn parameter_type(value: &Value) -> Type {
    match value {
        Value::Int(_) | Value::Null(NullType::Int) => Type::INT8,
        Value::Double(_) | Value::Null(NullType::Double) => Type::FLOAT8,
        Value::Text(_) | Value::Null(NullType::Text) => Type::TEXT,
        Value::Bool(_) | Value::Null(NullType::Bool) => Type::BOOL,
        Value::Bytes(_) | Value::Null(NullType::Bytes) => Type::BYTEA,
    }
}

fn as_parameter(value: &Value) -> &(dyn ToSql + Sync) {
    match value {
        Value::Int(number) => number,
        Value::Double(number) => number,
        Value::Text(text) => text,
        Value::Bool(flag) => flag,
        Value::Bytes(bytes) => bytes,
        Value::Null(NullType::Int) => &None::<i64>,
        Value::Null(NullType::Double) => &None::<f64>,
        Value::Null(NullType::Text) => &None::<&str>,
        Value::Null(NullType::Bool) => &None::<bool>,
        Value::Null(NullType::Bytes) => &None::<&[u8]>,
    }
}

fn from_postgres(row: &tokio_postgres::Row) -> Result<Row, StoreError> {
    let unreadable = |error: tokio_postgres::Error| StoreError::Other(chain(&error));
    let column = |(index, column): (usize, &tokio_postgres::Column)| {
        let null = |ty| Value::Null(ty);
        Ok(match *column.type_() {
            Type::INT2 => optional(
                row.try_get::<_, Option<i16>>(index).map_err(unreadable)?,
                Value::int,
                null(NullType::Int),
            ),
            Type::INT4 => optional(
                row.try_get::<_, Option<i32>>(index).map_err(unreadable)?,
                Value::int,
                null(NullType::Int),
            ),
            Type::INT8 => optional(
                row.try_get::<_, Option<i64>>(index).map_err(unreadable)?,
                Value::Int,
                null(NullType::Int),
            ),
            Type::FLOAT8 => optional(
                row.try_get::<_, Option<f64>>(index).map_err(unreadable)?,
                Value::Double,
                null(NullType::Double),
            ),
            Type::BOOL => optional(
                row.try_get::<_, Option<bool>>(index).map_err(unreadable)?,
                Value::Bool,
                null(NullType::Bool),
            ),
            Type::BYTEA => optional(
                row.try_get::<_, Option<Vec<u8>>>(index).map_err(unreadable)?,
                Value::Bytes,
                null(NullType::Bytes),
            ),
            _ => optional(
                row.try_get::<_, Option<String>>(index).map_err(unreadable)?,
                Value::Text,
                null(NullType::Text),
            ),
        })
    };
    row.columns().iter().enumerate().map(column).collect::<Result<_, _>>().map(Row)
}

fn optional<T>(value: Option<T>, wrap: impl FnOnce(T) -> Value, null: Value) -> Value {
    value.map_or(null, wrap)
}

fn failure(error: &tokio_postgres::Error) -> StoreError {
    let Some(database) = error.as_db_error() else {
        return StoreError::Unavailable(chain(error));
    };
    let code = database.code();
    let text = format!("ERROR: {} (SQLSTATE {})", database.message(), code.code());
    if *code == SqlState::UNIQUE_VIOLATION {
        StoreError::Duplicate
    } else if code.code().starts_with("08") || code.code().starts_with("57") || code.code().starts_with("3D")
    {
        StoreError::Unavailable(text)
    } else if code.code().starts_with("22") || code.code().starts_with("42") {
        StoreError::Data(text)
    } else {
        StoreError::Other(text)
    }
}

/// The driver's error with its causes, which hold the details.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
