//! Where the database is, and a connection to it.

use std::path::PathBuf;

use super::mysql::MySqlSettings;
use super::sql::{Dialect, Row, Sql};
use super::{StoreError, mysql, postgres, sqlite};
use crate::model::Table;

/// Where the registry's data is.
#[derive(Debug, Clone)]
pub enum Location {
    /// A file, made if there is none.
    Sqlite(PathBuf),
    /// A PostgreSQL database, which must exist.
    Postgres(Box<tokio_postgres::Config>),
    /// A MySQL or MariaDB database, which must exist.
    MySql(Box<MySqlSettings>),
}

impl Location {
    /// Reads a PostgreSQL URL or `key=value` list.
    pub fn postgres(dsn: &str) -> Result<Self, String> {
        let config = dsn.parse().map_err(|error| format!("cannot read the PostgreSQL DSN: {error}"))?;
        Ok(Self::Postgres(Box::new(config)))
    }

    /// Reads a MySQL DSN: `user:password@tcp(host:port)/database`.
    pub fn mysql(dsn: &str) -> Result<Self, String> {
        MySqlSettings::parse(dsn).map(|settings| Self::MySql(Box::new(settings)))
    }

    /// Whether a server has to be reached, which may start later than this one.
    pub(crate) fn is_remote(&self) -> bool {
        !matches!(self, Self::Sqlite(_))
    }
}

/// A connection inside a transaction.
pub(crate) enum Session {
    Sqlite(sqlite::Connection),
    Postgres(postgres::Connection),
    MySql(mysql::Connection),
}

impl Session {
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
            Self::MySql(_) => Dialect::MySql,
        }
    }

    pub(crate) fn sql(&self, text: &str) -> Sql {
        Sql::new(self.dialect(), text)
    }

    /// Runs a statement and returns its rows.
    pub(crate) async fn rows(&mut self, sql: Sql) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Sqlite(connection) => connection.rows(&sql),
            Self::Postgres(connection) => connection.rows(&sql).await,
            Self::MySql(connection) => connection.rows(&sql).await,
        }
    }

    /// Runs a statement without a result.
    pub(crate) async fn execute(&mut self, sql: Sql) -> Result<(), StoreError> {
        self.rows(sql).await.map(drop)
    }

    /// Runs statements without parameters, separated by semicolons.
    pub(crate) async fn batch(&mut self, text: &str) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(connection) => connection.batch(text),
            Self::Postgres(connection) => connection.batch(text).await,
            Self::MySql(connection) => connection.batch(text).await,
        }
    }

    /// The id of the next row of `table`, where the database leaves that to us.
    pub(crate) fn allocate_id(&mut self, table: Table) -> Option<i32> {
        match self {
            Self::Sqlite(connection) => Some(connection.allocate_id(table)),
            Self::Postgres(_) | Self::MySql(_) => None,
        }
    }
}
