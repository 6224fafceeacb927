//! The log of a container: lines as the container runtime interface defines them, in files that are rotated.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::protocol::Channel;

/// A file that grows beyond this is rotated.
const ROTATE_AT: u64 = 10 << 20;
/// Files kept of one container instance, the one being written included.
const FILES: u32 = 5;
/// A line that is longer is written in pieces, all but the last marked as partial.
const LINE_LIMIT: usize = 16 << 10;

/// The log of one container instance.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    size: u64,
    rotate_at: u64,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Log {
    /// Opens the log, and continues one that exists.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let file = append(path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            size,
            rotate_at: ROTATE_AT,
            stdout: Vec::new(),
            stderr: Vec::new(),
        })
    }

    /// Adds what the process wrote to one of its streams.
    pub(super) fn write(&mut self, channel: Channel, output: &[u8], now: Timestamp) -> io::Result<()> {
        let mut pending = std::mem::take(self.pending(channel));
        pending.extend(output);
        let mut rest = pending.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            self.line(channel, line, now)?;
            rest = after.get(1..).unwrap_or_default();
        }
        while rest.len() > LINE_LIMIT {
            let (piece, after) = rest.split_at(LINE_LIMIT);
            self.record(channel, 'P', piece, now)?;
            rest = after;
        }
        *self.pending(channel) = rest.to_vec();
        Ok(())
    }

    /// Writes what was not ended by a newline.
    pub(super) fn finish(&mut self, now: Timestamp) -> io::Result<()> {
        for channel in [Channel::Stdout, Channel::Stderr] {
            let rest = std::mem::take(self.pending(channel));
            if !rest.is_empty() {
                self.record(channel, 'F', &rest, now)?;
            }
        }
        self.file.flush()
    }

    fn pending(&mut self, channel: Channel) -> &mut Vec<u8> {
        if channel == Channel::Stderr { &mut self.stderr } else { &mut self.stdout }
    }

    fn line(&mut self, channel: Channel, mut line: &[u8], now: Timestamp) -> io::Result<()> {
        while line.len() > LINE_LIMIT {
            let (piece, after) = line.split_at(LINE_LIMIT);
            self.record(channel, 'P', piece, now)?;
            line = after;
        }
        self.record(channel, 'F', line, now)
    }

    fn record(&mut self, channel: Channel, tag: char, text: &[u8], now: Timestamp) -> io::Result<()> {
        let stream = if channel == Channel::Stderr { "stderr" } else { "stdout" };
        let mut record = format!("{now:.9} {stream} {tag} ").into_bytes();
        record.extend(text);
        record.push(b'\n');
        self.file.write_all(&record)?;
        self.size += record.len() as u64;
        if self.size >= self.rotate_at { self.rotate() } else { Ok(()) }
    }

    /// `0.log` becomes `0.log.1`, and so on; the oldest goes. Readers keep the file they have open.
    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..FILES).rev() {
            let from = if number == 1 { self.path.clone() } else { rotated(&self.path, number - 1) };
            match fs::rename(from, rotated(&self.path, number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.file = append(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

/// The name of a rotated file: the higher the number, the older.
pub fn rotated(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// The files of a log that exist, oldest first.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let older = (1..FILES).rev().map(|number| rotated(path, number));
    older.chain([path.to_owned()]).filter(|path| path.exists()).collect()
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn lines_are_cut_at_newlines_and_keep_their_stream() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("web/0.log");
        let mut log = Log::open(&path).unwrap();
        log.write(Channel::Stdout, b"one\ntw", at(0)).unwrap();
        log.write(Channel::Stderr, b"oops\n", at(1)).unwrap();
        log.write(Channel::Stdout, b"o\n\nrest", at(2)).unwrap();
        log.finish(at(3)).unwrap();
        let expected = "1970-01-01T00:00:00.000000000Z stdout F one\n\
                        1970-01-01T00:00:01.000000000Z stderr F oops\n\
                        1970-01-01T00:00:02.000000000Z stdout F two\n\
                        1970-01-01T00:00:02.000000000Z stdout F \n\
                        1970-01-01T00:00:03.000000000Z stdout F rest\n";
        assert_eq!(fs::read_to_string(path).unwrap(), expected);
    }

    #[test]
    fn long_lines_are_written_in_marked_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let mut log = Log::open(&path).unwrap();
        log.write(Channel::Stdout, &vec![b'x'; LINE_LIMIT * 2 + 1], at(0)).unwrap();
        log.write(Channel::Stdout, b"\n", at(0)).unwrap();
        let text = fs::read_to_string(path).unwrap();
        let tags: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
        assert_eq!(tags, ["P", "P", "F"]);
    }

    #[test]
    fn files_are_rotated_and_only_the_newest_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let mut log = Log::open(&path).unwrap();
        log.rotate_at = 64;
        for number in 0..20 {
            log.write(Channel::Stdout, format!("line {number}\n").as_bytes(), at(number)).unwrap();
        }
        let files = files(&path);
        assert_eq!(files.len(), 5);
        let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        let last = text.lines().last().unwrap_or_default();
        assert!(last.ends_with("line 19"), "{text}");
        let seconds: Vec<&str> = text.lines().map(|line| &line[17..19]).collect();
        assert!(seconds.is_sorted(), "{text}");
    }
}
