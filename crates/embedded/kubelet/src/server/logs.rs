//! Logs of containers.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use super::{failure, query::Query};
use crate::kubelet::HandlerBody;
use crate::pod::status::status;
use crate::shim::log_files;
use crate::shim::protocol::ContainerState;
use crate::worker::{PodHandle, Pods};

/// Pieces that wait for a slow reader.
const PIECES: usize = 16;
/// Bytes of one piece.
const PIECE: usize = 32 << 10;

/// What of a log is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Options {
    follow: bool,
    previous: bool,
    timestamps: bool,
    tail_lines: Option<usize>,
    since: Option<Timestamp>,
    limit_bytes: Option<usize>,
}

impl Options {
    fn parse(query: &Query, now: Timestamp) -> Result<Self, String> {
        let number = |name: &str| {
            let text = query.get(name).filter(|text| !text.is_empty());
            let parsed = text.map(str::parse::<u32>).transpose();
            parsed.map_err(|_| format!("{name} has to be a number"))
        };
        let since_time = query.get("sinceTime").filter(|text| !text.is_empty());
        let since_time = since_time.map(str::parse::<Timestamp>).transpose();
        let since_time = since_time.map_err(|error| format!("sinceTime: {error}"))?;
        let since_seconds = number("sinceSeconds")?.map(|seconds| {
            now.checked_sub(SignedDuration::from_secs(seconds.into())).unwrap_or(Timestamp::UNIX_EPOCH)
        });
        let count =
            |name: &str| number(name).map(|found| found.and_then(|found| usize::try_from(found).ok()));
        Ok(Self {
            follow: query.is_set("follow"),
            previous: query.is_set("previous"),
            timestamps: query.is_set("timestamps"),
            tail_lines: count("tailLines")?,
            since: since_time.or(since_seconds),
            limit_bytes: count("limitBytes")?,
        })
    }
}

/// Serves the log of a container.
pub(super) fn serve(
    pods: &Pods,
    handle: &Arc<PodHandle>,
    container: &str,
    query: &Query,
) -> Response<HandlerBody> {
    let context = pods.context();
    let options = match Options::parse(query, context.clock.now()) {
        Ok(options) => options,
        Err(message) => return failure(StatusCode::BAD_REQUEST, message),
    };
    let instance = match instance(handle, container, options.previous, context.clock.now()) {
        Ok(instance) => instance,
        Err(message) => return failure(StatusCode::BAD_REQUEST, message),
    };
    let (sender, receiver) = mpsc::channel(PIECES);
    let handle = Arc::clone(handle);
    let container = container.to_owned();
    context.tasks.spawn(format!("log of {container} in {}", handle.key), async move {
        let cancel = handle.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = sender.closed() => {}
            () = send(&handle, &container, &instance, options, &sender) => {}
        }
    });
    let body = futures::stream::unfold(receiver, async |mut receiver: mpsc::Receiver<Bytes>| {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    });
    let mut response = Response::new(body.boxed());
    let content_type = http::HeaderValue::from_static("text/plain");
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}

/// The instance whose log is meant, or why there is none.
fn instance(
    handle: &PodHandle,
    container: &str,
    is_previous: bool,
    now: Timestamp,
) -> Result<ContainerState, String> {
    let (record, name) = (handle.record(), handle.key.name());
    let own = record.containers.get(container);
    let found = match own {
        Some(own) if is_previous => own.previous.clone(),
        Some(own) => own.state.clone(),
        None => None,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    if is_previous {
        return Err(format!("previous terminated container {container:?} in pod {name:?} not found"));
    }
    let pod = handle.pod().ok_or_else(|| format!("pod {name:?} is gone"))?;
    let statuses = status(&pod, &record, now);
    let mut all = statuses.container_statuses.into_iter().chain(statuses.init_container_statuses).flatten();
    let waiting = all.find(|one| one.name == container).and_then(|one| one.state?.waiting?.reason);
    Err(match waiting.as_deref() {
        Some("ErrImagePull" | "ImagePullBackOff") => format!(
            "container {container:?} in pod {name:?} is waiting to start: trying and failing to pull image"
        ),
        Some("ErrImageNeverPull") => {
            format!("container {container:?} in pod {name:?} is waiting to start: image can't be pulled")
        }
        reason => format!(
            "container {container:?} in pod {name:?} is waiting to start: {}",
            reason.unwrap_or("ContainerCreating")
        ),
    })
}

/// Sends the log, and what is added to it while the instance runs.
async fn send(
    handle: &PodHandle,
    container: &str,
    instance: &ContainerState,
    options: Options,
    sender: &mpsc::Sender<Bytes>,
) {
    // Attached before the log is read, so that nothing written in between is missed.
    let mut news = None;
    if options.follow && instance.exit.is_none() {
        news = handle.shim().attach(container, false).await.ok();
        let is_same = handle.shim().status().await.ok().and_then(|mut states| states.remove(container));
        if is_same.is_none_or(|state| state.id != instance.id) {
            news = None;
        }
    }
    let path = handle.log(container, instance.attempt);
    let Ok(mut reader) = tokio::task::spawn_blocking(|| LogReader::new(path, options)).await else { return };
    loop {
        match forward(reader, sender).await {
            Some(back) => reader = back,
            None => return,
        }
        let Some(streams) = &mut news else { return };
        match streams.receive().await {
            Ok(Some(_)) => {}
            // The instance has ended; what it wrote last is in the log.
            Ok(None) | Err(_) => news = None,
        }
    }
}

/// Sends everything that is there; returns the reader if more is wanted.
async fn forward(mut reader: LogReader, sender: &mpsc::Sender<Bytes>) -> Option<LogReader> {
    loop {
        let read = move || {
            let piece = reader.read();
            (reader, piece)
        };
        let (back, piece) = tokio::task::spawn_blocking(read).await.ok()?;
        reader = back;
        match piece {
            Ok(piece) if piece.is_empty() => return (!reader.is_exhausted()).then_some(reader),
            Ok(piece) => sender.send(piece.into()).await.ok()?,
            Err(error) => {
                tracing::debug!("cannot read a log: {error}");
                return None;
            }
        }
    }
}

/// Reads a log across its rotated files.
struct LogReader {
    path: PathBuf,
    options: Options,
    /// Older files, then the one being written.
    pending: VecDeque<PathBuf>,
    current: Option<BufReader<File>>,
    /// The beginning of a line whose end is not written yet.
    partial: Vec<u8>,
    is_in_line: bool,
    sent: usize,
}

impl LogReader {
    fn new(path: PathBuf, options: Options) -> Self {
        let mut reader = Self {
            pending: log_files(&path).into(),
            path,
            options,
            current: None,
            partial: Vec::new(),
            is_in_line: false,
            sent: 0,
        };
        if let Some(lines) = reader.options.tail_lines {
            reader.skip_to_tail(lines);
        }
        reader
    }

    /// Drops everything before the last lines.
    fn skip_to_tail(&mut self, lines: usize) {
        let mut left = lines;
        let mut kept = VecDeque::new();
        let mut start = 0;
        for path in self.pending.iter().rev() {
            let ends = line_ends(path).unwrap_or_default();
            kept.push_front(path.clone());
            if ends.len() >= left {
                start = if left == ends.len() {
                    0
                } else {
                    ends.get(ends.len() - left - 1).copied().unwrap_or(0)
                };
                break;
            }
            left -= ends.len();
        }
        self.pending = kept;
        if let Some(first) = self.pending.pop_front() {
            self.current = open_at(&first, start).ok();
        }
    }

    /// Whether no more bytes may be sent.
    fn is_exhausted(&self) -> bool {
        self.options.limit_bytes.is_some_and(|limit| self.sent >= limit)
    }

    /// The next piece; empty if there is nothing more at the moment.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = Vec::new();
        while piece.len() < PIECE && !self.is_exhausted() {
            let Some(line) = self.next_line()? else { break };
            self.render(&line, &mut piece);
        }
        Ok(piece)
    }

    /// The next complete line of the file, without its end.
    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if self.current.is_none() {
                match self.pending.pop_front() {
                    Some(path) => self.current = open_at(&path, 0).ok(),
                    None => return Ok(None),
                }
                continue;
            }
            let Some(file) = &mut self.current else { continue };
            let length = file.read_until(b'\n', &mut self.partial)?;
            if self.partial.last() == Some(&b'\n') {
                self.partial.pop();
                return Ok(Some(std::mem::take(&mut self.partial)));
            }
            if length > 0 {
                continue;
            }
            // The end of this file: another one may have taken its place.
            if !self.pending.is_empty() {
                self.current = None;
            } else if is_rotated(file.get_ref(), &self.path) {
                self.current = open_at(&self.path, 0).ok();
                if self.current.is_none() {
                    return Ok(None);
                }
            } else {
                return Ok(None);
            }
        }
    }

    /// Writes a line as the client wants it.
    fn render(&mut self, line: &[u8], piece: &mut Vec<u8>) {
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let (Some(time), Some(_), Some(tag), Some(text)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return;
        };
        let is_early = self.options.since.is_some_and(|since| {
            let time = std::str::from_utf8(time).ok().and_then(|time| time.parse::<Timestamp>().ok());
            time.is_some_and(|time| time < since)
        });
        if is_early {
            return;
        }
        let before = piece.len();
        if self.options.timestamps && !self.is_in_line {
            piece.extend(time);
            piece.push(b' ');
        }
        piece.extend(text);
        self.is_in_line = tag == b"P";
        if !self.is_in_line {
            piece.push(b'\n');
        }
        if let Some(limit) = self.options.limit_bytes {
            let room = limit.saturating_sub(self.sent);
            piece.truncate(before + room.min(piece.len() - before));
        }
        self.sent += piece.len() - before;
    }
}

fn open_at(path: &Path, position: u64) -> io::Result<BufReader<File>> {
    let mut file = File::open(path)?;
    file.seek(io::SeekFrom::Start(position))?;
    Ok(BufReader::new(file))
}

/// Where the lines of a file end.
fn line_ends(path: &Path) -> io::Result<Vec<u64>> {
    let mut ends = Vec::new();
    let mut at = 0;
    for byte in BufReader::with_capacity(64 << 10, File::open(path)?).bytes() {
        at += 1;
        if byte? == b'\n' {
            ends.push(at);
        }
    }
    Ok(ends)
}

/// Whether a file is not the one of its name any more.
fn is_rotated(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(theirs)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (ours.ino(), ours.dev()) != (theirs.ino(), theirs.dev())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path, options: Options) -> String {
        let mut reader = LogReader::new(path.to_owned(), options);
        let mut text = Vec::new();
        loop {
            let piece = reader.read().unwrap();
            if piece.is_empty() {
                return String::from_utf8(text).unwrap();
            }
            text.extend(piece);
        }
    }

    fn line(second: u32, tag: &str, text: &str) -> String {
        format!("2026-01-01T00:00:{second:02}.000000000Z stdout {tag} {text}\n")
    }

    fn log() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        std::fs::write(crate::shim::rotated_log(&path, 1), line(1, "F", "one") + &line(2, "F", "two"))
            .unwrap();
        std::fs::write(&path, line(3, "P", "thr") + &line(3, "F", "ee") + &line(4, "F", "four")).unwrap();
        (directory, path)
    }

    #[test]
    fn a_log_is_read_across_its_files() {
        let (_directory, path) = log();
        assert_eq!(read(&path, Options::default()), "one\ntwo\nthree\nfour\n");
        let stamped = read(&path, Options { timestamps: true, ..Options::default() });
        assert!(stamped.starts_with("2026-01-01T00:00:01.000000000Z one\n"), "{stamped}");
        assert!(stamped.contains("Z three\n"), "{stamped}");
    }

    #[test]
    fn options() {
        let (_directory, path) = log();
        let tail = |lines| read(&path, Options { tail_lines: Some(lines), ..Options::default() });
        assert_eq!(
            (tail(0).as_str(), tail(1).as_str(), tail(4).as_str()),
            ("", "four\n", "two\nthree\nfour\n")
        );
        assert_eq!(tail(99), "one\ntwo\nthree\nfour\n");
        let since = "2026-01-01T00:00:03Z".parse().ok();
        assert_eq!(read(&path, Options { since, ..Options::default() }), "three\nfour\n");
        assert_eq!(read(&path, Options { limit_bytes: Some(6), ..Options::default() }), "one\ntw");
        assert_eq!(read(Path::new("/no/such/log"), Options::default()), "");
    }

    #[test]
    fn what_is_added_is_read_also_after_a_rotation() {
        let (_directory, path) = log();
        let mut reader = LogReader::new(path.clone(), Options { tail_lines: Some(0), ..Options::default() });
        let mut next = || String::from_utf8(reader.read().unwrap()).unwrap();
        assert_eq!(next(), "");
        let append = |text: &str| {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
            io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        };
        let (begin, end) = (line(5, "F", "five"), line(6, "F", "six"));
        append(&begin[..20]);
        assert_eq!(next(), "");
        append(&begin[20..]);
        assert_eq!(next(), "five\n");
        std::fs::rename(&path, crate::shim::rotated_log(&path, 1)).unwrap();
        append(&end);
        assert_eq!(next(), "six\n");
    }

    #[test]
    fn options_are_parsed() {
        let now = Timestamp::from_second(100).unwrap();
        let parse = |text: &str| Options::parse(&Query::parse(text), now);
        let found = parse("follow=true&tailLines=5&sinceSeconds=40&timestamps=1&limitBytes=9").unwrap();
        assert_eq!((found.follow, found.tail_lines, found.timestamps), (true, Some(5), true));
        assert_eq!((found.since, found.limit_bytes), (Timestamp::from_second(60).ok(), Some(9)));
        assert!(parse("tailLines=x").is_err() && parse("sinceTime=x").is_err());
        assert_eq!(parse("tailLines=&previous=false"), Ok(Options::default()));
    }
}
