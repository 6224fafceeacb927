//! SQLite: one file, one writer, several readers.
//!
//! Writes queue up on a thread of their own. It takes all that are waiting, gives each a
//! savepoint, and commits them together: one sync to disk serves many clients, and a reply is
//! only sent once that sync is done.

use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::{fs, io};

use futures::FutureExt;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{ErrorCode, OpenFlags};
use tokio::sync::oneshot;

use super::sql::{NullType, Row, Sql, Value};
use super::{Session, StoreError, Work};
use crate::error::Error;
use crate::filter::pattern::{self, DanglingEscape};
use crate::model::Table;

/// Threads that answer reads. SQLite reads are short and bound by the processor.
const READERS: usize = 4;
/// The most writes in one commit, so that no client waits for a long queue to be committed.
const GROUP: usize = 256;
/// How long a statement waits for a lock of another process.
const BUSY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

type Job = Box<dyn FnOnce(&mut Session) -> Reply + Send>;
/// Sends the result of a job. It gets the error of the commit, if that failed.
type Reply = Box<dyn FnOnce(Option<&StoreError>) + Send>;

/// A database file.
pub(super) struct Sqlite {
    writer: mpsc::Sender<Job>,
    readers: Vec<mpsc::Sender<Job>>,
    next_reader: AtomicUsize,
}

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let writer = spawn("registry-write", Connection::open(path)?, run_writer)?;
        let readers = (0..READERS).map(|index| {
            let name = format!("registry-read-{index}");
            spawn(&name, Connection::open(path)?, run_reader)
        });
        let readers = readers.collect::<Result<_, _>>()?;
        Ok(Self { writer, readers, next_reader: AtomicUsize::new(0) })
    }

    pub(super) async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Session) -> Work<'a, T> + Send + 'static,
    {
        submit(&self.writer, work).await
    }

    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Session) -> Work<'a, T> + Send + 'static,
    {
        let index = self.next_reader.fetch_add(1, Ordering::Relaxed) % self.readers.len().max(1);
        let reader = self.readers.get(index).unwrap_or(&self.writer);
        submit(reader, work).await
    }
}

async fn submit<T, F>(thread: &mpsc::Sender<Job>, work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: for<'a> FnOnce(&'a mut Session) -> Work<'a, T> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let job: Job = Box::new(move |session| {
        let result = transact(session, work);
        Box::new(move |commit_error| {
            let result = match commit_error {
                Some(error) => Err(error.clone().into()),
                None => result,
            };
            // The client may have gone away.
            let _ = sender.send(result);
        })
    });
    let stopped = || StoreError::Unavailable("its thread has stopped".to_owned());
    thread.send(job).map_err(|_| stopped())?;
    receiver.await.map_err(|_| stopped())?
}

/// Runs `work` in a savepoint, so that a failure undoes only its own changes.
fn transact<T, F>(session: &mut Session, work: F) -> Result<T, Error>
where
    F: for<'a> FnOnce(&'a mut Session) -> Work<'a, T>,
{
    savepoint(session, "SAVEPOINT request")?;
    // No statement of SQLite waits for anything, so the future is ready when it is first polled.
    let waited =
        || Err(StoreError::Other("a statement waited for something else than SQLite".to_owned()).into());
    let result = work(session).now_or_never().unwrap_or_else(waited);
    if result.is_err() {
        savepoint(session, "ROLLBACK TO request")?;
    }
    savepoint(session, "RELEASE request")?;
    result
}

fn savepoint(session: &mut Session, text: &str) -> Result<(), StoreError> {
    match session {
        Session::Sqlite(connection) => connection.batch(text),
        Session::Postgres(_) | Session::MySql(_) => Ok(()),
    }
}

fn spawn(
    name: &str,
    connection: Connection,
    run: fn(Session, &mpsc::Receiver<Job>),
) -> Result<mpsc::Sender<Job>, StoreError> {
    let (sender, receiver) = mpsc::channel();
    let session = Session::Sqlite(connection);
    let thread = std::thread::Builder::new().name(name.to_owned());
    let spawned = thread.spawn(move || run(session, &receiver));
    spawned.map_err(|error| StoreError::Other(format!("cannot start a thread: {error}")))?;
    Ok(sender)
}

fn run_reader(mut session: Session, jobs: &mpsc::Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        job(&mut session)(None);
    }
}

fn run_writer(mut session: Session, jobs: &mpsc::Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let waiting = jobs.try_iter().take(GROUP - 1);
        let group: Vec<Job> = std::iter::once(first).chain(waiting).collect();
        let begun = savepoint(&mut session, "BEGIN IMMEDIATE");
        let replies: Vec<Reply> = group.into_iter().map(|job| job(&mut session)).collect();
        let committed = begun.and_then(|()| savepoint(&mut session, "COMMIT"));
        if let Err(error) = &committed {
            tracing::error!(%error, "cannot commit");
            // There may be no transaction left to undo.
            let _ = savepoint(&mut session, "ROLLBACK");
        }
        for reply in replies {
            reply(committed.as_ref().err());
        }
    }
}

/// Creates the file if there is none, for its user alone. SQLite gives its log the same mode.
fn create_private(path: &Path) -> io::Result<()> {
    match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// A connection to the file.
pub(crate) struct Connection {
    inner: rusqlite::Connection,
    /// The last id given out, per table. Ids of refused rows are not given out again, as in PostgreSQL.
    ids: BTreeMap<Table, i32>,
    path: PathBuf,
}

impl Connection {
    fn open(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let unavailable = |error: rusqlite::Error| {
            StoreError::Unavailable(format!("cannot open {}: {error}", path.display()))
        };
        create_private(path)
            .map_err(|error| StoreError::Unavailable(format!("cannot create {}: {error}", path.display())))?;
        let inner = rusqlite::Connection::open_with_flags(path, flags).map_err(unavailable)?;
        inner.busy_timeout(BUSY_TIMEOUT).map_err(unavailable)?;
        // A commit is synced to the log before it is acknowledged; foreign keys are off in SQLite
        // unless asked for, and PostgreSQL's schema has them.
        let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
             PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192;";
        inner.execute_batch(pragmas).map_err(unavailable)?;
        inner.set_prepared_statement_cache_capacity(128);
        define_like(&inner, "like", pattern::compare).map_err(unavailable)?;
        define_like(&inner, "ilike", pattern::compare_ignoring_case).map_err(unavailable)?;
        Ok(Self { inner, ids: BTreeMap::new(), path: path.to_owned() })
    }

    pub(super) fn rows(&mut self, sql: &Sql) -> Result<Vec<Row>, StoreError> {
        let mut statement = self.inner.prepare_cached(&sql.text).map_err(|error| self.failure(&error))?;
        let columns = statement.column_count();
        let parameters = rusqlite::params_from_iter(&sql.parameters);
        let rows = statement.query_map(parameters, |row| {
            (0..columns).map(|column| row.get_ref(column).map(from_sqlite)).collect::<Result<_, _>>().map(Row)
        });
        let rows: Result<Vec<Row>, _> = rows.and_then(Iterator::collect);
        rows.map_err(|error| self.failure(&error))
    }

    pub(super) fn batch(&mut self, text: &str) -> Result<(), StoreError> {
        self.inner.execute_batch(text).map_err(|error| self.failure(&error))
    }

    pub(super) fn allocate_id(&mut self, table: Table) -> i32 {
        let last = match self.ids.get(&table) {
            Some(last) => *last,
            None => self.last_id(table),
        };
        let next = last.saturating_add(1);
        self.ids.insert(table, next);
        next
    }

    fn last_id(&self, table: Table) -> i32 {
        let text = format!("SELECT COALESCE(MAX(id), 0) FROM \"{}\"", table.name());
        // An unreadable table makes the insertion fail, which reports the reason.
        self.inner.query_row(&text, [], |row| row.get(0)).unwrap_or(0)
    }

    fn failure(&self, error: &rusqlite::Error) -> StoreError {
        let text = error.to_string();
        match error.sqlite_error() {
            Some(code) => match code.code {
                ErrorCode::ConstraintViolation
                    if matches!(
                        code.extended_code,
                        rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                    ) =>
                {
                    StoreError::Duplicate
                }
                ErrorCode::CannotOpen
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::ReadOnly
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase => {
                    StoreError::Unavailable(format!("{}: {text}", self.path.display()))
                }
                // The schema is made when the file is opened, so somebody has taken it away since.
                _ if text.contains("no such table") => {
                    StoreError::Unavailable(format!("{}: {text}", self.path.display()))
                }
                _ if text.contains(&DanglingEscape.to_string()) => StoreError::Data(text),
                _ => StoreError::Other(text),
            },
            None => StoreError::Other(text),
        }
    }
}

/// SQLite's LIKE is `like(pattern, text)`; NULL matches nothing.
fn define_like(
    connection: &rusqlite::Connection,
    name: &str,
    matches: fn(&str, &str) -> Result<bool, DanglingEscape>,
) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function(name, 2, flags, move |context| {
        let pattern: Option<String> = context.get(0)?;
        let text: Option<String> = context.get(1)?;
        let matched = pattern.zip(text).map(|(pattern, text)| matches(&pattern, &text)).transpose();
        matched.map_err(|error| rusqlite::Error::UserFunctionError(Box::new(error)))
    })
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null(_) => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Double(number) => ValueRef::Real(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bool(flag) => ValueRef::Integer(i64::from(*flag)),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn from_sqlite(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null(NullType::Text),
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Double(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}
