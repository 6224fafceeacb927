//! The tables: those of upstream's registry, so that either server can serve the other's database.
//!
//! Upstream creates them in numbered migrations and notes the last one in `schema_migrations`.
//! This server creates the result of migration 24 and leaves 25 to upstream, should it ever be
//! started on the database: it only adds views that upstream's catalog reads, in a syntax that
//! PostgreSQL 15 does not have. On MySQL, upstream's history ends with 21.

use super::sql::{Dialect, Value};
use super::{Session, StoreError, Types};
use crate::model::{Kind, Table};

/// The migrations that PostgreSQL databases made here contain.
const POSTGRES_VERSION: i64 = 24;
/// The migrations that MySQL databases made here contain.
const MYSQL_VERSION: i64 = 21;
/// SQLite has no history upstream; the number is that of the equal PostgreSQL schema.
const SQLITE_VERSION: i64 = 25;
/// The version of the ML Metadata schema that the tables descend from.
const MLMD_VERSION: i64 = 10;

const POSTGRES: &str = include_str!("schema/postgres.sql");
const MYSQL: &str = include_str!("schema/mysql.sql");
const SQLITE: &str = include_str!("schema/sqlite.sql");

/// Types that every ML Metadata database has, with their kind (0 execution, 1 artifact).
const MLMD_TYPES: [(&str, i64); 9] = [
    ("mlmd.Dataset", 1),
    ("mlmd.Model", 1),
    ("mlmd.Metrics", 1),
    ("mlmd.Statistics", 1),
    ("mlmd.Train", 0),
    ("mlmd.Transform", 0),
    ("mlmd.Process", 0),
    ("mlmd.Evaluate", 0),
    ("mlmd.Deploy", 0),
];

const INT: i64 = 1;
const TEXT: i64 = 3;
const STRUCT: i64 = 4;
const PROTO: i64 = 5;

/// Creates the schema if there is none, and finds the ids of the types.
pub(super) async fn prepare(session: &mut Session) -> Result<Types, StoreError> {
    if has_schema(session).await? {
        let (version, is_dirty) = migration_state(session).await?;
        if is_dirty {
            let why = format!(
                "a migration to version {version} of the database's schema was left unfinished (dirty)"
            );
            return Err(StoreError::Other(format!("{why}: finish it with the server that began it")));
        }
        let oldest = match session.dialect() {
            Dialect::Sqlite => SQLITE_VERSION,
            Dialect::Postgres => POSTGRES_VERSION,
            Dialect::MySql => MYSQL_VERSION,
        };
        if version != 0 && version < oldest {
            let why = format!("the database's schema has version {version}, older than {oldest}");
            return Err(StoreError::Other(format!("{why}: start a current upstream server on it once")));
        }
    } else {
        create(session).await?;
    }
    types(session).await
}

/// The last migration, and whether it was left unfinished; an empty table means version 0.
pub(super) async fn migration_state(session: &mut Session) -> Result<(i64, bool), StoreError> {
    let rows = session.rows(session.sql("SELECT version, dirty FROM schema_migrations")).await?;
    Ok(rows
        .first()
        .map_or((0, false), |row| (row.int(0).unwrap_or_default(), row.bool(1).unwrap_or_default())))
}

async fn has_schema(session: &mut Session) -> Result<bool, StoreError> {
    let query = match session.dialect() {
        Dialect::Sqlite => "SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'",
        Dialect::Postgres => "SELECT 1 WHERE to_regclass('schema_migrations') IS NOT NULL",
        Dialect::MySql => {
            "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'schema_migrations'"
        }
    };
    Ok(!session.rows(session.sql(query)).await?.is_empty())
}

async fn create(session: &mut Session) -> Result<(), StoreError> {
    let (tables, version) = match session.dialect() {
        Dialect::Sqlite => (SQLITE.to_owned(), SQLITE_VERSION),
        Dialect::MySql => {
            // MySQL commits each table by itself: the lock is the session's, and released once all is there.
            session.batch("DO GET_LOCK('quintet_registry_schema', 60)").await?;
            if has_schema(session).await? {
                return session.batch("DO RELEASE_LOCK('quintet_registry_schema')").await;
            }
            (MYSQL.replace("$COLLATION", collation(session).await?), MYSQL_VERSION)
        }
        Dialect::Postgres => {
            // Replicas may start together on an empty database; the number is arbitrary.
            session.batch("SELECT pg_advisory_xact_lock(7316120024)").await?;
            if has_schema(session).await? {
                return Ok(());
            }
            (POSTGRES.to_owned(), POSTGRES_VERSION)
        }
    };
    session.batch(&tables).await?;
    for (name, kind) in MLMD_TYPES {
        insert_type(session, name, kind).await?;
    }
    for kind in Kind::ALL {
        let id = insert_type(session, &kind.type_name(), type_kind(kind)).await?;
        for (name, data_type) in declared_properties(kind) {
            let mut sql = session.sql("INSERT INTO ");
            sql.table("TypeProperty");
            sql.push(" (type_id, name, data_type) VALUES (");
            sql.bind(Value::Int(id));
            sql.push(", ");
            sql.bind(Value::text(name));
            sql.push(", ");
            sql.bind(Value::Int(*data_type));
            sql.push(")");
            session.execute(sql).await?;
        }
    }
    let mut sql = session.sql("INSERT INTO ");
    sql.table("MLMDEnv");
    sql.push(" (schema_version) VALUES (");
    sql.bind(Value::Int(MLMD_VERSION));
    sql.push(")");
    session.execute(sql).await?;
    let mut sql = session.sql("INSERT INTO schema_migrations (version, dirty) VALUES (");
    sql.bind(Value::Int(version));
    sql.push(", ");
    sql.bind(Value::Bool(false));
    sql.push(")");
    session.execute(sql).await?;
    if session.dialect() == Dialect::MySql {
        session.batch("DO RELEASE_LOCK('quintet_registry_schema')").await?;
    }
    Ok(())
}

/// The collation that compares texts by their characters, blanks at the end included.
async fn collation(session: &mut Session) -> Result<&'static str, StoreError> {
    let rows = session.rows(session.sql("SELECT VERSION()")).await?;
    let is_mariadb = rows.first().and_then(|row| row.text(0)).is_some_and(|it| it.contains("MariaDB"));
    Ok(if is_mariadb { "utf8mb4_nopad_bin" } else { "utf8mb4_0900_bin" })
}

async fn insert_type(session: &mut Session, name: &str, kind: i64) -> Result<i64, StoreError> {
    let mut sql = session.sql("INSERT INTO ");
    sql.table("Type");
    sql.push(" (name, type_kind) VALUES (");
    sql.bind(Value::text(name));
    sql.push(", ");
    sql.bind(Value::Int(kind));
    sql.push(")");
    sql.returning_id();
    let rows = session.rows(sql).await?;
    let id = rows.first().and_then(|row| row.int(0));
    id.ok_or_else(|| StoreError::Other(format!("the type {name} has no id")))
}

/// Finds the types; those that are missing are added, as upstream does at its start.
async fn types(session: &mut Session) -> Result<Types, StoreError> {
    let mut found = Vec::new();
    for kind in Kind::ALL {
        let mut sql = session.sql("SELECT id FROM ");
        sql.table("Type");
        sql.push(" WHERE name = ");
        sql.bind(Value::Text(kind.type_name()));
        sql.push(" AND type_kind = ");
        sql.bind(Value::Int(type_kind(kind)));
        sql.push(" ORDER BY id");
        let id = match session.rows(sql).await?.first().and_then(|row| row.int(0)) {
            Some(id) => id,
            None => insert_type(session, &kind.type_name(), type_kind(kind)).await?,
        };
        let id = i32::try_from(id).map_err(|error| StoreError::Other(error.to_string()))?;
        found.push((kind, id));
    }
    Ok(Types(found))
}

fn type_kind(kind: Kind) -> i64 {
    match kind.table() {
        Table::Execution => 0,
        Table::Artifact => 1,
        Table::Context => 2,
    }
}

/// The rows of `TypeProperty`. Nothing reads them; what is stored does not follow them everywhere.
fn declared_properties(kind: Kind) -> &'static [(&'static str, i64)] {
    match kind {
        Kind::ServeModel => &[("description", TEXT), ("model_version_id", INT)],
        Kind::ModelArtifact => &[
            ("description", TEXT),
            ("model_format_name", TEXT),
            ("model_format_version", TEXT),
            ("service_account_name", TEXT),
            ("storage_key", TEXT),
            ("storage_path", TEXT),
        ],
        Kind::DocArtifact | Kind::ServingEnvironment => &[("description", TEXT)],
        Kind::DataSet => &[
            ("description", TEXT),
            ("digest", TEXT),
            ("profile", TEXT),
            ("schema", TEXT),
            ("source", TEXT),
            ("source_type", TEXT),
        ],
        Kind::Metric | Kind::MetricHistory => {
            &[("description", TEXT), ("step", INT), ("timestamp", TEXT), ("value", PROTO)]
        }
        Kind::Parameter => &[("description", TEXT), ("parameter_type", TEXT), ("value", TEXT)],
        Kind::RegisteredModel => &[
            ("description", TEXT),
            ("language", STRUCT),
            ("library_name", TEXT),
            ("license", TEXT),
            ("license_link", TEXT),
            ("logo", TEXT),
            ("maturity", TEXT),
            ("owner", TEXT),
            ("provider", TEXT),
            ("readme", TEXT),
            ("state", TEXT),
            ("tasks", STRUCT),
        ],
        Kind::ModelVersion => &[
            ("author", TEXT),
            ("description", TEXT),
            ("model_name", TEXT),
            ("state", TEXT),
            ("version", TEXT),
        ],
        Kind::InferenceService => &[
            ("description", TEXT),
            ("desired_state", TEXT),
            ("model_version_id", INT),
            ("registered_model_id", INT),
            ("runtime", TEXT),
            ("serving_environment_id", INT),
        ],
        Kind::Experiment => &[("description", TEXT), ("owner", TEXT), ("state", TEXT)],
        Kind::ExperimentRun => &[
            ("description", TEXT),
            ("end_time_since_epoch", INT),
            ("experiment_id", INT),
            ("owner", TEXT),
            ("start_time_since_epoch", INT),
            ("state", TEXT),
            ("status", TEXT),
        ],
    }
}
