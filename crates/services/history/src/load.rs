//! Cold loads: all events of a stored session, streamed from the storage into the model.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::read::MultiGzDecoder;

use crate::json::trimmed;
use crate::layout;
use crate::model::snapshot::Snapshot;
use crate::store::{Store, StoreError};

/// Longer lines are skipped.
const LONGEST_LINE: usize = 100 * 1024 * 1024;

/// Larger files of the older format, one array, are not read: they have to be in memory at once.
const LARGEST_ARRAY: u64 = 256 * 1024 * 1024;

/// Loads a session from its directory. `label` names it in errors. Reading stops when `stop` is set.
pub(crate) async fn load(
    store: &Store,
    directory: &str,
    label: &str,
    stop: Arc<AtomicBool>,
) -> Result<Snapshot, StoreError> {
    let nodes: Vec<String> =
        store.list(directory).await?.into_iter().filter(|it| it.ends_with('/')).collect();
    let mut logs = Vec::new();
    let mut job_files = Vec::new();
    let mut node_files = Vec::new();
    for node in nodes.iter().map(|node| format!("{directory}/{node}")) {
        logs.extend(list_files(store, &format!("{node}logs/events"), is_log).await?);
        let jobs = store.list(&format!("{node}job_events")).await?;
        for job in jobs.iter().filter(|job| job.ends_with('/')) {
            let folder = format!("{node}job_events/{job}");
            job_files.extend(list_files(store, folder.trim_end_matches('/'), layout::is_event_file).await?);
        }
        node_files.extend(list_files(store, &format!("{node}node_events"), layout::is_event_file).await?);
    }
    job_files.append(&mut node_files);
    let store = store.clone();
    let total = job_files.len();
    let reading = tokio::task::spawn_blocking({
        let stop = Arc::clone(&stop);
        move || {
            let mut snapshot = Snapshot::default();
            for (path, size) in logs {
                // Log events are an extra: what cannot be read of them is left out.
                let events = &mut snapshot.log_events;
                let _ = lines(store.reader(&path, size), &stop, |line| events.ingest(line));
            }
            let mut read = 0;
            for (path, size) in job_files {
                match read_events(&store, &path, size, &stop, &mut snapshot) {
                    Ok(()) => read += 1,
                    Err(error) => tracing::warn!(path, %error, "an event file cannot be read"),
                }
            }
            snapshot.finish();
            (snapshot, read)
        }
    });
    let (snapshot, read) =
        reading.await.map_err(|_| StoreError(format!("reading the events of {label} failed")))?;
    if stop.load(Ordering::Relaxed) {
        return Err(StoreError(format!("reading the events of {label} was stopped")));
    }
    if total > 0 && read == 0 {
        return Err(StoreError(format!(
            "read 0 of {total} event files for {label}: likely transient storage outage"
        )));
    }
    Ok(snapshot)
}

#[expect(clippy::case_sensitive_file_extension_comparisons, reason = "Ray writes lower case")]
fn is_log(name: &str) -> bool {
    name.starts_with("event_") && name.ends_with(".log")
}

/// The files of a directory whose names fit, with their sizes.
async fn list_files(
    store: &Store,
    directory: &str,
    fits: impl Fn(&str) -> bool,
) -> Result<Vec<(String, u64)>, StoreError> {
    let mut files = Vec::new();
    for name in store.list(directory).await?.into_iter().filter(|name| fits(name)) {
        let path = format!("{directory}/{name}");
        let size = store.size(&path).await?.unwrap_or(0);
        files.push((path, size));
    }
    Ok(files)
}

#[expect(clippy::case_sensitive_file_extension_comparisons, reason = "collectors write lower case")]
fn read_events(
    store: &Store,
    path: &str,
    size: u64,
    stop: &AtomicBool,
    snapshot: &mut Snapshot,
) -> std::io::Result<()> {
    let file = store.reader(path, size);
    if path.ends_with(".gz") {
        events(BufReader::new(MultiGzDecoder::new(file)), stop, snapshot)
    } else {
        events(BufReader::new(file), stop, snapshot)
    }
}

fn events(mut reader: impl BufRead, stop: &AtomicBool, snapshot: &mut Snapshot) -> std::io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        let white = buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if white == 0 {
            break;
        }
        reader.consume(white);
    }
    if reader.fill_buf()?.first() == Some(&b'[') {
        let mut array = Vec::new();
        reader.take(LARGEST_ARRAY).read_to_end(&mut array)?;
        // As upstream: a file that was read but is malformed counts as read.
        let _ = snapshot.ingest_array(&array);
        return Ok(());
    }
    lines(reader, stop, |line| {
        // Bad lines are skipped.
        let _ = snapshot.ingest(trimmed(line));
    })
}

/// Calls `each` for every line. Lines that are too long are skipped without being kept.
fn lines(reader: impl Read, stop: &AtomicBool, mut each: impl FnMut(&[u8])) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(256 * 1024, reader);
    let mut partial: Vec<u8> = Vec::new();
    let mut is_too_long = false;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            if !partial.is_empty() && !is_too_long {
                each(&partial);
            }
            return Ok(());
        }
        let consumed = buffer.len();
        let mut rest = buffer;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = &rest[..end];
            if is_too_long {
                is_too_long = false;
            } else if partial.is_empty() {
                if !line.is_empty() {
                    each(line);
                }
            } else {
                partial.extend_from_slice(line);
                each(&partial);
            }
            partial.clear();
            rest = &rest[end + 1..];
        }
        if !is_too_long {
            partial.extend_from_slice(rest);
            if partial.len() > LONGEST_LINE {
                partial = Vec::new();
                is_too_long = true;
            }
        }
        reader.consume(consumed);
    }
}
