//! The log on disk: segments of checksummed records, and snapshots to start from.
//!
//! A data directory holds `log-<first version>` segments, at most one complete `snapshot-<version>`, and
//! `lock`. A record is `length crc32 payload`, numbers little-endian. A snapshot is written under a
//! temporary name, synced and renamed, so that it is either whole or not there; segments that it covers
//! are removed afterwards.
//!
//! What is synced together is one record, a batch. A crash can tear only the last one: it was never acknowledged, and
//! is cut off. A bad record with a good batch behind it was whole once: that is damage, and nothing is thrown away.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read, Seek as _, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    StoreError,
    entry::{Entry, Head, shared},
    state::State,
};

/// Longer records are none: request bodies are far smaller.
const RECORD_AT_MOST: u32 = 64 << 20;

const PUT: u8 = 1;
const DELETE: u8 = 2;
/// The end of a snapshot: what came before is all of it.
const END: u8 = 3;
/// Records that were synced together.
const BATCH: u8 = 4;
/// A batch that has grown this long is synced before more is added.
pub(super) const BATCH_BYTES: usize = 16 << 20;

/// One record.
#[derive(Debug, PartialEq)]
enum Record {
    Put { rv: u64, bucket: String, key: String, version: String, body: Bytes },
    Delete { rv: u64, bucket: String, key: String },
    End { rv: u64 },
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes().get(..usize::from(length)).unwrap_or_default());
}

fn frame(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    fill(out);
    let payload = out.get(start + HEADER..).unwrap_or_default();
    let (length, crc) = (u32::try_from(payload.len()).unwrap_or(u32::MAX), crc32fast::hash(payload));
    if let Some(header) = out.get_mut(start..start + HEADER) {
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Appends the record of a write.
pub(super) fn put(out: &mut Vec<u8>, rv: u64, bucket: &str, key: &str, version: &str, body: &[u8]) {
    frame(out, |out| {
        out.push(PUT);
        out.extend_from_slice(&rv.to_le_bytes());
        put_text(out, bucket);
        put_text(out, key);
        put_text(out, version);
        out.extend_from_slice(body);
    });
}

/// Appends the record of a deletion.
pub(super) fn delete(out: &mut Vec<u8>, rv: u64, bucket: &str, key: &str) {
    frame(out, |out| {
        out.push(DELETE);
        out.extend_from_slice(&rv.to_le_bytes());
        put_text(out, bucket);
        put_text(out, key);
    });
}

fn end(out: &mut Vec<u8>, rv: u64) {
    frame(out, |out| {
        out.push(END);
        out.extend_from_slice(&rv.to_le_bytes());
    });
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        String::from_utf8(self.take(usize::from(length))?.to_vec()).ok()
    }
}

fn decode(payload: &[u8]) -> Option<Record> {
    let mut cursor = Cursor(payload);
    let tag = *cursor.take(1)?.first()?;
    let rv = cursor.number()?;
    match tag {
        PUT => {
            let (bucket, key, version) = (cursor.text()?, cursor.text()?, cursor.text()?);
            Some(Record::Put { rv, bucket, key, version, body: Bytes::copy_from_slice(cursor.0) })
        }
        DELETE => Some(Record::Delete { rv, bucket: cursor.text()?, key: cursor.text()? }),
        END => Some(Record::End { rv }),
        _ => None,
    }
}

/// Reads records until the end or the first that is not whole; returns the bytes that were good.
fn read_records(file: File, mut each: impl FnMut(Record)) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let (mut good, mut payload) = (0_u64, Vec::new());
    loop {
        let mut header = [0_u8; HEADER];
        if !read_whole(&mut reader, &mut header)? {
            return Ok(good);
        }
        let (length, crc) = header_of(header);
        if length > RECORD_AT_MOST {
            return Ok(good);
        }
        payload.resize(length as usize, 0);
        if !read_whole(&mut reader, &mut payload)? || crc32fast::hash(&payload) != crc {
            return Ok(good);
        }
        let records = match payload.split_first() {
            Some((&BATCH, records)) => decode_batch(records),
            _ => decode(&payload).map(|record| vec![record]),
        };
        let Some(records) = records else { return Ok(good) };
        records.into_iter().for_each(&mut each);
        good += HEADER as u64 + u64::from(length);
    }
}

const HEADER: usize = 8;

/// Length and checksum.
fn header_of(header: [u8; HEADER]) -> (u32, u32) {
    let both = u64::from_le_bytes(header);
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    let length = both as u32;
    (length, (both >> 32) as u32)
}

/// The payload of the record that begins the bytes, if it is whole.
fn whole(bytes: &[u8]) -> Option<&[u8]> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let (length, crc) = header_of(*header);
    let payload = rest.get(..length as usize)?;
    (crc32fast::hash(payload) == crc).then_some(payload)
}

fn decode_batch(mut bytes: &[u8]) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let payload = whole(bytes)?;
        records.push(decode(payload)?);
        bytes = bytes.get(HEADER + payload.len()..)?;
    }
    Some(records)
}

/// Whether a whole batch lies somewhere in the bytes. What objects say cannot look like one: they are JSON, and have
/// no zero bytes, of which every header has some.
fn has_batch(bytes: &[u8]) -> bool {
    let begins = bytes.windows(HEADER + 1).enumerate().filter(|(_, window)| window.last() == Some(&BATCH));
    begins.into_iter().any(|(at, _)| bytes.get(at..).and_then(whole).is_some())
}

/// Fills the buffer; `false` if the file ends before.
fn read_whole(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The directory, locked for as long as this lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

/// The segment that writes go to.
#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    pub(super) bytes: u64,
}

impl Segment {
    /// Appends records as one batch, and waits until it is on disk.
    pub(super) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        let mut batch = Vec::with_capacity(records.len() + HEADER + 1);
        frame(&mut batch, |batch| {
            batch.push(BATCH);
            batch.extend_from_slice(records);
        });
        self.file.write_all(&batch)?;
        self.file.sync_data()?;
        self.bytes += batch.len() as u64;
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
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
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

    fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> StoreError {
        let path = self.path.clone();
        move |source| StoreError::Io { what, path, source }
    }

    /// Numbered files with this prefix, in order.
    fn files(&self, prefix: &str) -> io::Result<Vec<(u64, PathBuf)>> {
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
        let mut state = State::new(1);
        let snapshots = self.files("snapshot-").map_err(self.failed("list"))?;
        if let Some((_, path)) = snapshots.last() {
            let mut whole = None;
            let file = File::open(path).map_err(self.failed("open the snapshot in"))?;
            read_records(file, |record| match record {
                Record::End { rv } => whole = Some(rv),
                other => replay(&mut state, other),
            })
            .map_err(self.failed("read the snapshot in"))?;
            let rv = whole.ok_or_else(|| StoreError::Damaged { path: path.clone() })?;
            state.rebase(rv);
        }
        let segments = self.files("log-").map_err(self.failed("list"))?;
        let last = segments.last().map(|(number, _)| *number);
        for (number, path) in &segments {
            let file = OpenOptions::new().read(true).write(true).open(path);
            let file = file.map_err(self.failed("open the log in"))?;
            let length = file.metadata().map_err(self.failed("read the log in"))?.len();
            let copy = file.try_clone().map_err(self.failed("read the log in"))?;
            let snapshot_rv = state.rv;
            let good = read_records(copy, |record| {
                if record_rv(&record) > snapshot_rv {
                    replay(&mut state, record);
                }
            })
            .map_err(self.failed("read the log in"))?;
            if good < length {
                let rest = tail(path, good).map_err(self.failed("read the log in"))?;
                if Some(*number) != last || has_batch(&rest) {
                    return Err(StoreError::Damaged { path: path.clone() });
                }
                // Should it have been more than a torn write, nothing of it is lost.
                let aside =
                    self.set_aside(path, good, &rest).map_err(self.failed("keep what is cut off in"))?;
                tracing::warn!(
                    "the log ended in the middle of a write; {} bytes cut off and kept in {}",
                    length - good,
                    aside.display()
                );
                file.set_len(good)
                    .and_then(|()| file.sync_all())
                    .map_err(self.failed("repair the log in"))?;
            }
        }
        let segment = match segments.last() {
            Some((_, path)) => {
                let file = OpenOptions::new().append(true).open(path);
                let file = file.map_err(self.failed("open the log in"))?;
                let bytes = file.metadata().map_err(self.failed("read the log in"))?.len();
                Segment { file, bytes }
            }
            None => self.new_segment(state.rv + 1)?,
        };
        Ok((state, segment))
    }

    /// Copies what follows the good part of a log to a file of its own.
    fn set_aside(&self, log: &Path, good: u64, rest: &[u8]) -> io::Result<PathBuf> {
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        let aside = self.path.join(format!("cut-{name}-{good}"));
        fs::write(&aside, rest)?;
        Ok(aside)
    }

    /// Starts a segment whose first record will be `rv`.
    pub(super) fn new_segment(&self, rv: u64) -> Result<Segment, StoreError> {
        let path = self.path.join(format!("log-{rv:020}"));
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(self.failed("create a log in"))?;
        self.sync()?;
        Ok(Segment { file, bytes: 0 })
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
            let mut file = BufWriter::with_capacity(1 << 20, File::create(&temporary)?);
            let mut record = Vec::new();
            for (bucket, key, entry) in objects {
                record.clear();
                put(&mut record, entry.rv, bucket, key, &entry.version, &entry.body);
                file.write_all(&record)?;
            }
            record.clear();
            end(&mut record, rv);
            file.write_all(&record)?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            fs::rename(&temporary, self.path.join(format!("snapshot-{rv:020}")))
        };
        write().map_err(self.failed("write a snapshot in"))?;
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

/// What follows the good part of a log.
fn tail(log: &Path, good: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    file.seek(io::SeekFrom::Start(good))?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest)?;
    Ok(rest)
}

fn record_rv(record: &Record) -> u64 {
    match record {
        Record::Put { rv, .. } | Record::Delete { rv, .. } | Record::End { rv } => *rv,
    }
}

fn replay(state: &mut State, record: Record) {
    let now = tokio::time::Instant::now();
    match record {
        Record::Put { rv, bucket, key, version, body } => {
            let head = Head::of_body(&body);
            let entry = Entry { rv, version: shared(&version), body, head, epoch: 0 };
            state.apply(&bucket.into(), key.into(), rv, Some(Arc::new(entry)), now);
        }
        Record::Delete { rv, bucket, key } => {
            state.apply(&bucket.into(), key.into(), rv, None, now);
        }
        Record::End { .. } => {}
    }
}

/// Secrets are in there: other users of the machine must not read them.
#[cfg(unix)]
fn restrict(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
fn restrict(_path: &Path) -> io::Result<()> {
    Ok(())
}
