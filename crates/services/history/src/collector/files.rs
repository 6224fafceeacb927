//! Event files on the local disk: what was acknowledged survives a crash of the collector.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::events::Event;
use crate::model::time;

/// Files that are open at a time: every job has one.
const MOST_OPEN: usize = 256;

/// An event file that is written to.
struct Open {
    file: File,
    path: PathBuf,
    bytes: u64,
    opened: Instant,
}

/// Limits of the files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) age: Duration,
    pub(super) bytes: u64,
}

/// The event files of one cluster.
pub(super) struct EventFiles {
    directory: PathBuf,
    limits: Limits,
    node: String,
    session: String,
    open: HashMap<String, Open>,
    /// Closed files that are to be uploaded.
    closed: Vec<PathBuf>,
    /// Bytes of all files.
    used: u64,
    last_number: i64,
}

impl EventFiles {
    pub(super) fn new(directory: PathBuf, limits: Limits, node: String) -> Self {
        Self {
            directory,
            limits,
            node,
            session: String::new(),
            open: HashMap::new(),
            closed: Vec::new(),
            used: 0,
            last_number: 0,
        }
    }

    /// Finds files of an earlier run. Half-compressed ones are removed; of two forms the compressed one is kept.
    pub(super) fn recover(&mut self) {
        let mut found = Vec::new();
        collect(&self.directory, &mut found);
        for path in found {
            if !self.is_event_file(&path) {
                continue;
            }
            let name = path.to_string_lossy();
            let is_superseded = name.ends_with(".jsonl") && Path::new(&format!("{name}.gz")).exists();
            if name.ends_with(".tmp") || is_superseded {
                // What cannot be removed is found again next time.
                let _ = std::fs::remove_file(&path);
            } else if name.ends_with(".jsonl") || name.ends_with(".jsonl.gz") {
                self.used += size(&path);
                self.closed.push(path);
            }
        }
    }

    /// Whether a file is where event files are: `SESSION/node_events` or `SESSION/job_events/JOB`.
    fn is_event_file(&self, path: &Path) -> bool {
        let relative = path.strip_prefix(&self.directory).ok().and_then(Path::to_str).unwrap_or_default();
        let elements: Vec<&str> = relative.split('/').collect();
        matches!(elements.as_slice(), [_, "node_events", _] | [_, "job_events", _, _])
    }

    /// Writes a batch. Everything is handed to the operating system before this returns.
    pub(super) fn append(&mut self, events: &[Event<'_>]) -> std::io::Result<()> {
        let mut lines: HashMap<&str, Vec<u8>> = HashMap::new();
        for event in events {
            if event.session != self.session {
                self.write(&mut lines)?;
                self.rotate(|_| true);
                event.session.as_ref().clone_into(&mut self.session);
            }
            event.write(lines.entry(event.category.as_ref()).or_default());
        }
        self.write(&mut lines)
    }

    fn write(&mut self, lines: &mut HashMap<&str, Vec<u8>>) -> std::io::Result<()> {
        for (category, lines) in lines.drain() {
            if !self.open.contains_key(category) {
                if self.open.len() >= MOST_OPEN {
                    self.rotate(|_| true);
                }
                let open = self.create(category)?;
                self.open.insert(category.to_owned(), open);
            }
            let Some(open) = self.open.get_mut(category) else { continue };
            let written = open.file.write_all(&lines);
            // Also of a failed write something may be there.
            open.bytes += lines.len() as u64;
            self.used += lines.len() as u64;
            if written.is_err() {
                self.rotate(|_| true);
            }
            written?;
        }
        Ok(())
    }

    fn create(&mut self, category: &str) -> std::io::Result<Open> {
        let folder = self.directory.join(&self.session).join(category);
        std::fs::create_dir_all(&folder)?;
        self.last_number = time::now().max(self.last_number + 1);
        let path = folder.join(format!("{}_{}.jsonl", self.node, self.last_number));
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Open { file, path, bytes: 0, opened: Instant::now() })
    }

    /// Closes the files that are old or large enough.
    pub(super) fn rotate_due(&mut self) {
        let limits = self.limits;
        self.rotate(|open| open.opened.elapsed() >= limits.age || open.bytes >= limits.bytes);
    }

    /// Closes all files.
    pub(super) fn rotate_all(&mut self) {
        self.rotate(|_| true);
    }

    fn rotate(&mut self, is_due: impl Fn(&Open) -> bool) {
        let closed = self.open.extract_if(|_, open| is_due(open)).map(|(_, open)| open.path);
        self.closed.extend(closed);
    }

    /// Later events belong to another node.
    pub(super) fn set_node(&mut self, node: &str) {
        if self.node != node {
            self.rotate_all();
            node.clone_into(&mut self.node);
        }
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// A closed file, to be uploaded.
    pub(super) fn next_closed(&mut self) -> Option<PathBuf> {
        self.closed.pop()
    }

    /// Puts a file back that could not be uploaded.
    pub(super) fn put_back(&mut self, path: PathBuf) {
        self.closed.insert(0, path);
    }

    pub(super) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// A file of so many bytes has another size now; 0 if it is gone.
    pub(super) fn replaced(&mut self, before: u64, after: u64) {
        self.used = self.used.saturating_sub(before) + after;
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }
}

pub(super) fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// When a file was last changed, in nanoseconds since 1970.
pub(super) fn changed(path: &Path) -> i64 {
    let changed = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since = changed.and_then(|it| it.duration_since(std::time::UNIX_EPOCH).ok());
    since.and_then(|it| i64::try_from(it.as_nanos()).ok()).unwrap_or_else(time::now)
}

/// All files below a directory. Links are not followed: programs of users write here.
pub(super) fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    if !std::fs::symlink_metadata(directory).is_ok_and(|metadata| metadata.is_dir()) {
        return;
    }
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}
