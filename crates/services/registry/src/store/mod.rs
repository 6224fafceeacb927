//! The database.
//!
//! Statements are written once, for a [`Dialect`]; drivers run them in a [`Session`]. Reads and
//! writes are closures over a session, so that a driver decides where they run: SQLite on threads
//! of its own with writes grouped into one commit, the others on pooled connections.

mod connection;
mod mysql;
mod page;
mod postgres;
mod read;
mod schema;
mod sql;
mod sqlite;
mod write;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use connection::Location;
pub(crate) use connection::Session;
pub use mysql::MySqlSettings;
pub(crate) use page::Page;
pub(crate) use read::{ByName, Query};
pub(crate) use sql::{Sql, Value};

use crate::error::Error;
use crate::model::{Kind, Table};

/// Why the database did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum StoreError {
    /// A unique index holds another row with this value.
    #[error("duplicated key not allowed")]
    Duplicate,
    /// A value does not fit the type it is compared or stored as.
    #[error("{0}")]
    Data(String),
    /// The database cannot be reached.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// A future that a session's work returns.
pub(crate) type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Ids of the entity types, which differ between databases.
#[derive(Debug, Clone, Default)]
pub(crate) struct Types(Vec<(Kind, i32)>);

impl Types {
    pub(crate) fn id(&self, kind: Kind) -> i32 {
        // Types are upserted at start, so the fallback is never stored.
        self.0.iter().find(|(it, _)| *it == kind).map_or(-1, |(_, id)| *id)
    }

    pub(crate) fn kind(&self, id: i32) -> Option<Kind> {
        self.0.iter().find(|(_, it)| *it == id).map(|(kind, _)| *kind)
    }
}

/// A database that has the registry's schema.
#[derive(Clone)]
pub(crate) struct Database {
    driver: Driver,
    pub(crate) types: Arc<Types>,
}

#[derive(Clone)]
enum Driver {
    Sqlite(Arc<sqlite::Sqlite>),
    Postgres(Arc<postgres::Postgres>),
    MySql(Arc<mysql::MySql>),
}

impl Database {
    /// Connects, and creates the schema if there is none.
    pub(crate) async fn open(location: &Location) -> Result<Self, Error> {
        let driver = match location {
            Location::Sqlite(path) => Driver::Sqlite(Arc::new(sqlite::Sqlite::open(path)?)),
            Location::Postgres(settings) => Driver::Postgres(Arc::new(postgres::Postgres::new(settings))),
            Location::MySql(settings) => Driver::MySql(Arc::new(mysql::MySql::new(settings))),
        };
        let database = Self { driver, types: Arc::default() };
        let types =
            database.write(|session| Box::pin(async move { Ok(schema::prepare(session).await?) })).await?;
        Ok(Self { types: Arc::new(types), ..database })
    }

    /// Runs `work` in a transaction that is durable when this returns.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Session) -> Work<'a, T> + Send + 'static,
    {
        match &self.driver {
            Driver::Sqlite(driver) => driver.write(work).await,
            Driver::Postgres(driver) => driver.write(work).await,
            Driver::MySql(driver) => driver.write(work).await,
        }
    }

    /// Runs `work`, which reads only.
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Session) -> Work<'a, T> + Send + 'static,
    {
        match &self.driver {
            Driver::Sqlite(driver) => driver.read(work).await,
            Driver::Postgres(driver) => driver.read(work).await,
            Driver::MySql(driver) => driver.read(work).await,
        }
    }

    /// The version of the schema, and whether a migration was left unfinished.
    pub(crate) async fn migration_state(&self) -> Result<(i64, bool), Error> {
        self.read(|session| Box::pin(async move { Ok(schema::migration_state(session).await?) })).await
    }
}

impl Table {
    /// The columns that entities are read from, in the order [`read`] expects.
    fn columns(self) -> Vec<&'static str> {
        let common = [
            "id",
            "type_id",
            "name",
            "external_id",
            "create_time_since_epoch",
            "last_update_time_since_epoch",
        ];
        common.into_iter().chain(self.extra_columns().iter().copied()).collect()
    }
}
