//! Empty databases for cases.

use std::sync::atomic::{AtomicUsize, Ordering};

use quintet_registry_server::Location;

use crate::support::mariadb::MariaDb;
use crate::support::postgres::Postgres;

/// A kind of database.
pub(crate) enum Databases {
    Sqlite(tempfile::TempDir),
    Postgres(Postgres),
    MariaDb(MariaDb),
}

/// An empty database.
pub(crate) struct Empty {
    pub(crate) location: Location,
    pub(crate) name: String,
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Databases {
    /// Those that can be had, or only the one called `only`.
    pub(crate) fn all(only: Option<&str>) -> Vec<Self> {
        let mut all = vec![Self::Sqlite(tempfile::tempdir().expect("a temporary directory"))];
        if only.is_none_or(|it| it == "PostgreSQL") {
            all.extend(Postgres::start().map(Self::Postgres));
        }
        if only.is_none_or(|it| it == "MariaDB") {
            all.extend(MariaDb::start().map(Self::MariaDb));
        }
        all.retain(|it| only.is_none_or(|only| only == it.name()));
        all
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
            Self::MariaDb(_) => "MariaDB",
        }
    }

    /// Makes an empty database.
    pub(crate) fn empty(&self) -> Empty {
        let name = format!("mr{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let location = match self {
            Self::Sqlite(directory) => Location::Sqlite(directory.path().join(&name)),
            Self::Postgres(postgres) => {
                postgres.run("postgres", &format!("CREATE DATABASE {name}"));
                postgres.location(&name)
            }
            Self::MariaDb(mariadb) => mariadb.create(&name),
        };
        Empty { location, name }
    }

    /// Runs a statement, as an administrator would.
    pub(crate) fn run(&self, database: &Empty, statement: &str) {
        match (self, &database.location) {
            (Self::Sqlite(_), Location::Sqlite(path)) => {
                let connection = rusqlite::Connection::open(path).expect("the file opens");
                connection.execute_batch(statement).expect("the statement runs");
            }
            (Self::Postgres(postgres), _) => postgres.run(&database.name, statement),
            (Self::MariaDb(mariadb), _) => mariadb.run(&database.name, statement),
            _ => unreachable!("a database belongs to its kind"),
        }
    }

    /// Drops a database while it is in use.
    pub(crate) fn drop_database(&self, database: &Empty) {
        match self {
            // A file cannot be dropped while it is open; what it holds can.
            Self::Sqlite(_) => {
                let Location::Sqlite(path) = &database.location else { unreachable!("it is a file") };
                let connection = rusqlite::Connection::open(path).expect("the file opens");
                let mut statement = connection
                    .prepare(
                        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
                    )
                    .expect("a statement");
                let tables: Vec<String> = statement
                    .query_map([], |row| row.get(0))
                    .expect("tables")
                    .collect::<Result<_, _>>()
                    .expect("names");
                let drops: Vec<String> =
                    tables.iter().map(|table| format!("DROP TABLE \"{table}\";")).collect();
                let script = format!("PRAGMA foreign_keys = OFF; {}", drops.join(" "));
                connection.execute_batch(&script).expect("the tables are dropped");
            }
            Self::Postgres(postgres) => {
                postgres.run("postgres", &format!("DROP DATABASE {} WITH (FORCE)", database.name));
            }
            Self::MariaDb(mariadb) => mariadb.run("", &format!("DROP DATABASE {}", database.name)),
        }
    }
}
