//! MySQL and MariaDB: a pool of connections, each with its prepared statements.
//!
//! The protocol is spoken here ([`protocol`]) rather than by a driver: the registry needs prepared statements and
//! nothing else, and the drivers there are would bring second versions of a dozen crates.

mod protocol;
mod settings;
mod values;

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::protocol::Wire;
pub use self::settings::MySqlSettings;
use super::sql::{Row, Sql};
use super::{Session, StoreError, Work};
use crate::error::Error;

/// Connections in use at a time, as for PostgreSQL.
const CONNECTIONS: usize = 16;
/// Prepared statements per connection. Filters make new texts, so the number is bounded.
const STATEMENTS: usize = 256;
/// Names in double quotes, as in the other databases; values that do not fit are refused, not cut; and transactions see
/// what others have committed, as PostgreSQL's do.
const SESSION: &str = "SET SESSION sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'; \
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET NAMES utf8mb4";

/// A database and its idle connections.
pub(super) struct MySql {
    settings: MySqlSettings,
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

/// A connection.
pub(crate) struct Connection {
    wire: Wire,
    statements: HashMap<String, u32>,
}

impl MySql {
    pub(super) fn new(settings: &MySqlSettings) -> Self {
        Self { settings: settings.clone(), permits: Semaphore::new(CONNECTIONS), idle: Mutex::default() }
    }

    pub(super) async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        F: for<'a> FnOnce(&'a mut Session) -> Work<'a, T> + Send,
    {
        self.with_connection(async |session| {
            session.batch("START TRANSACTION").await?;
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
            Some(connection) if connection.wire.is_usable() => connection,
            _ => self.connect().await?,
        };
        let mut session = Session::MySql(connection);
        let result = work(&mut session).await;
        if let Session::MySql(connection) = session
            && connection.wire.is_usable()
        {
            self.idle.lock().push(connection);
        }
        result
    }

    async fn connect(&self) -> Result<Connection, StoreError> {
        let mut wire = Wire::connect(&self.settings).await?;
        wire.batch(SESSION).await?;
        Ok(Connection { wire, statements: HashMap::new() })
    }
}

impl Connection {
    /// Runs a statement. An insertion returns the id it has made, as if it had asked for it.
    pub(super) async fn rows(&mut self, sql: &Sql) -> Result<Vec<Row>, StoreError> {
        let statement = match self.statements.get(&sql.text) {
            Some(statement) => *statement,
            None => self.prepare(&sql.text).await?,
        };
        self.wire.execute(statement, &sql.parameters).await
    }

    async fn prepare(&mut self, text: &str) -> Result<u32, StoreError> {
        if self.statements.len() >= STATEMENTS {
            for (_, statement) in self.statements.drain() {
                self.wire.close_statement(statement).await?;
            }
        }
        let statement = self.wire.prepare(text).await?;
        self.statements.insert(text.to_owned(), statement);
        Ok(statement)
    }

    pub(super) async fn batch(&mut self, text: &str) -> Result<(), StoreError> {
        self.wire.batch(text).await
    }
}
