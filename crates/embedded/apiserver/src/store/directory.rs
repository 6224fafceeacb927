//! The data directory: segments of the log, and snapshots to start from.
//!
//! A data directory holds `log-<first version>` segments, at most one complete `snapshot-<version>`, `newest` (the first
//! version of the newest segment) and `lock`. A snapshot is written under a temporary name, synced and renamed, so that
//! it is either whole or not there; segments that it covers are removed afterwards.
//!
//! What is synced together is one record, a batch. A crash can tear only the last one: it was never acknowledged, and
//! is cut off. A bad record with a good batch behind it was whole once: that is damage, and nothing is thrown away.
//! Versions are consecutive, from the snapshot through all segments: where one is missing, something was removed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Read, Seek as _, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    StoreError,
    entry::Entry,
    log::{self, BATCH, HEADER, Record, frame, read_records, record_rv, replay},
    state::State,
};

/// Torn ends that are kept; older ones are removed.
const CUT_AT_MOST: usize = 4;

/// The version of the first write to an empty store.
pub(super) const FIRST: u64 = 2;
/// Holds the first version of the newest segment.
const NEWEST: &str = "newest";

fn segment_name(first: u64) -> String {
    format!("log-{first:020}")
}

/// The directory, locked for as long as this lives.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    _lock: File,
}

/// Why a segment is not replayed.
enum ReplayError {
    Io(io::Error),
    Store(StoreError),
}

impl From<io::Error> for ReplayError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StoreError> for ReplayError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The segment that writes go to.
#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    pub(super) bytes: u64,
    /// Bytes that the disk has left, for tests.
    #[cfg(test)]
    pub(super) room: Option<Arc<std::sync::atomic::AtomicU64>>,
}

impl Segment {
    fn of(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self {
            file,
            bytes,
            #[cfg(test)]
            room: None,
        })
    }

    /// Appends records as one batch, and waits until it is on disk.
    pub(super) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        let mut batch = Vec::with_capacity(records.len() + HEADER + 1);
        frame(&mut batch, |batch| {
            batch.push(BATCH);
            batch.extend_from_slice(records);
        });
        self.write(&batch)?;
        self.file.sync_data()?;
        self.bytes += batch.len() as u64;
        Ok(())
    }

    #[cfg(not(test))]
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    #[cfg(test)]
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = self.room.as_ref().map(|room| room.load(std::sync::atomic::Ordering::Relaxed));
        let room = room.and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX);
        self.file.write_all(&bytes[..bytes.len().min(room)])?;
        if bytes.len() > room { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Takes back everything after the first `bytes`.
    pub(super) fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        self.file.sync_data()?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Directory {
    /// Takes the directory for this process, creating it if need be.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |what: &'static str| {
            let path = path.to_owned();
            move |source| StoreError::Io { what, path, source }
        };
        let missing: Vec<&Path> = path.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
        fs::create_dir_all(path).map_err(failed("create the data directory"))?;
        restrict(path).map_err(failed("keep others out of the data directory"))?;
        // A new directory is only safe once the one that it is in is.
        for parent in missing.iter().filter_map(|made| made.parent()) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let synced = File::open(parent).and_then(|parent| parent.sync_all());
            synced.map_err(failed("sync the directory of the data directory"))?;
        }
        let mut lock = private(OpenOptions::new().create(true).truncate(false).read(true).write(true))
            .open(path.join("lock"))
            .map_err(failed("open the lock of the data directory"))?;
        if let Err(error) = lock.try_lock() {
            return Err(match error {
                fs::TryLockError::WouldBlock => {
                    let mut owner = String::new();
                    let _ = lock.read_to_string(&mut owner);
                    StoreError::InUse { path: path.to_owned(), owner: owner.trim().to_owned() }
                }
                fs::TryLockError::Error(source) => failed("lock the data directory")(source),
            });
        }
        let note = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        note.map_err(failed("write the lock of the data directory"))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(super) fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> StoreError {
        let path = self.path.clone();
        move |source| StoreError::Io { what, path, source }
    }

    /// Numbered files with this prefix, in order.
    pub(super) fn files(&self, prefix: &str) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut files = Vec::new();
        for file in fs::read_dir(&self.path)? {
            let file = file?;
            let name = file.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse().ok());
            files.extend(number.map(|number| (number, file.path())));
        }
        files.sort();
        Ok(files)
    }

    /// Loads what was stored, and opens the log for more.
    pub(super) fn recover(&self) -> Result<(State, Segment), StoreError> {
        let mut state = State::new(FIRST - 1);
        let snapshots = self.files("snapshot-").map_err(self.failed("list"))?;
        if let Some((_, path)) = snapshots.last() {
            let mut whole = None;
            let file = File::open(path).map_err(self.failed("open the snapshot in"))?;
            read_records(file, |record| {
                match record {
                    Record::End { rv } => whole = Some(rv),
                    other => replay(&mut state, other),
                }
                Ok(())
            })
            .map_err(self.failed("read the snapshot in"))?;
            let rv = whole.ok_or_else(|| StoreError::Damaged { path: path.clone() })?;
            state.rebase(rv);
        }
        let segments = self.files("log-").map_err(self.failed("list"))?;
        self.check_newest(&segments, !snapshots.is_empty())?;
        for (index, (first, path)) in segments.iter().enumerate() {
            check_next(&state, *first, path)?;
            self.replay_segment(&mut state, path, index + 1 == segments.len())?;
        }
        let segment = match segments.last() {
            Some((first, path)) => {
                self.note_newest(*first)?;
                let file = OpenOptions::new().append(true).open(path);
                Segment::of(file.map_err(self.failed("open the log in"))?)
                    .map_err(self.failed("read the log in"))?
            }
            None => self.new_segment(state.rv + 1)?,
        };
        Ok((state, segment))
    }

    /// Replays a segment, and cuts off what a crash left at the end of the last one.
    fn replay_segment(&self, state: &mut State, path: &Path, is_last: bool) -> Result<(), StoreError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(self.failed("open the log in"))?;
        let length = file.metadata().map_err(self.failed("read the log in"))?.len();
        let copy = file.try_clone().map_err(self.failed("read the log in"))?;
        let snapshot_rv = state.rv;
        let good = read_records(copy, |record| {
            let rv = record_rv(&record);
            if rv > snapshot_rv {
                check_next(state, rv, path)?;
                replay(state, record);
            }
            Ok::<_, ReplayError>(())
        })
        .map_err(|error| match error {
            ReplayError::Io(error) => self.failed("read the log in")(error),
            ReplayError::Store(error) => error,
        })?;
        if good == length {
            return Ok(());
        }
        let rest = tail(path, good).map_err(self.failed("read the log in"))?;
        if !is_last || log::find_batch(&rest).is_some() {
            return Err(StoreError::Damaged { path: path.to_owned() });
        }
        // Should it have been more than a torn write, nothing of it is lost.
        let aside = self.set_aside(path, good, &rest).map_err(self.failed("keep what is cut off in"))?;
        tracing::warn!(
            "the log ended in the middle of a write; {} bytes cut off and kept in {}",
            length - good,
            aside.display()
        );
        file.set_len(good).and_then(|()| file.sync_all()).map_err(self.failed("repair the log in"))
    }

    /// Fails if the newest segment, or all of them, is gone.
    fn check_newest(&self, segments: &[(u64, PathBuf)], has_snapshot: bool) -> Result<(), StoreError> {
        let newest = self.newest();
        let is_complete = match segments.last() {
            Some((last, _)) => newest.is_none_or(|newest| *last >= newest),
            None => newest.is_none() && !has_snapshot,
        };
        if is_complete {
            return Ok(());
        }
        let name = newest.map_or_else(|| "log-*".to_owned(), segment_name);
        Err(StoreError::NoLog { path: self.path.join(name) })
    }

    /// The first version of the newest segment, as far as it was noted.
    pub(super) fn newest(&self) -> Option<u64> {
        fs::read_to_string(self.path.join(NEWEST)).ok()?.trim().parse().ok()
    }

    /// Notes the first version of the newest segment, so that its loss is noticed.
    fn note_newest(&self, first: u64) -> Result<(), StoreError> {
        if self.newest() == Some(first) {
            return Ok(());
        }
        let temporary = self.path.join("newest.tmp");
        let write = || -> io::Result<()> {
            let mut file =
                private(OpenOptions::new().create(true).write(true).truncate(true)).open(&temporary)?;
            writeln!(file, "{first}")?;
            file.sync_all()?;
            fs::rename(&temporary, self.path.join(NEWEST))
        };
        write().map_err(self.failed("note what is newest in"))?;
        self.sync()
    }

    /// Copies what follows the good part of a log to a file of its own.
    fn set_aside(&self, log: &Path, good: u64, rest: &[u8]) -> io::Result<PathBuf> {
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        let aside = self.path.join(format!("cut-{name}-{good}"));
        private(OpenOptions::new().create(true).write(true).truncate(true)).open(&aside)?.write_all(rest)?;
        self.forget_old_cuts()?;
        Ok(aside)
    }

    /// Removes the oldest of what was cut off.
    fn forget_old_cuts(&self) -> io::Result<()> {
        let mut cuts = Vec::new();
        for file in fs::read_dir(&self.path)? {
            let file = file?;
            if file.file_name().to_string_lossy().starts_with("cut-log-") {
                cuts.push((file.metadata()?.modified()?, file.path()));
            }
        }
        cuts.sort();
        let surplus = cuts.len().saturating_sub(CUT_AT_MOST);
        cuts.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
    }

    /// Starts a segment whose first record will be `rv`.
    pub(super) fn new_segment(&self, rv: u64) -> Result<Segment, StoreError> {
        let path = self.path.join(segment_name(rv));
        let file = private(OpenOptions::new().create(true).append(true)).open(&path);
        let file = file.map_err(self.failed("create a log in"))?;
        self.sync().and_then(|()| self.note_newest(rv)).inspect_err(|_| {
            // The log goes on in the segment before, which must stay the last.
            let _ = fs::remove_file(&path);
        })?;
        Segment::of(file).map_err(self.failed("read the log in"))
    }

    /// A new file name is only safe once the directory is.
    fn sync(&self) -> Result<(), StoreError> {
        File::open(&self.path).and_then(|dir| dir.sync_all()).map_err(self.failed("sync"))
    }

    /// Writes a snapshot of the objects at `rv` and removes what it replaces: segments that begin
    /// before `next`, and older snapshots.
    pub(super) fn write_snapshot(
        &self,
        rv: u64,
        next: u64,
        objects: &[(Arc<str>, Arc<str>, Arc<Entry>)],
    ) -> Result<(), StoreError> {
        let temporary = self.path.join("snapshot.tmp");
        let write = || -> io::Result<()> {
            let file =
                private(OpenOptions::new().create(true).write(true).truncate(true)).open(&temporary)?;
            let mut file = BufWriter::with_capacity(1 << 20, file);
            let mut record = Vec::new();
            for (bucket, key, entry) in objects {
                record.clear();
                log::put(&mut record, entry.rv, bucket, key, &entry.version, &entry.body);
                file.write_all(&record)?;
            }
            record.clear();
            log::end(&mut record, rv);
            file.write_all(&record)?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            fs::rename(&temporary, self.path.join(format!("snapshot-{rv:020}")))
        };
        write().map_err(|error| {
            // What there is of it takes room that the log may need.
            let _ = fs::remove_file(&temporary);
            self.failed("write a snapshot in")(error)
        })?;
        self.sync()?;
        let old_logs = self.files("log-").map_err(self.failed("list"))?;
        let old_snapshots = self.files("snapshot-").map_err(self.failed("list"))?;
        let old = old_logs.into_iter().filter(|(first, _)| *first < next);
        for (_, path) in old.chain(old_snapshots.into_iter().filter(|(at, _)| *at < rv)) {
            fs::remove_file(path).map_err(self.failed("remove old logs in"))?;
        }
        Ok(())
    }
}

/// Fails unless a version follows the last one, or is known already.
fn check_next(state: &State, version: u64, at: &Path) -> Result<(), StoreError> {
    if version <= state.rv + 1 {
        return Ok(());
    }
    Err(StoreError::Gap { path: at.to_owned(), first: state.rv + 1, last: version - 1 })
}

/// What follows the good part of a log.
fn tail(log: &Path, good: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    file.seek(io::SeekFrom::Start(good))?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest)?;
    Ok(rest)
}

/// Secrets are in there: other users of the machine must not read them.
#[cfg(unix)]
fn restrict(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    // Earlier versions left it to the directory to keep others out.
    for file in fs::read_dir(path)? {
        let file = file?;
        if file.file_type()?.is_file() {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600))?;
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn restrict(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Files that only their owner can read.
#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600)
}

#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}
