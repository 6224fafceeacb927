//! The format of the log: checksummed records, in batches that were synced together.
//!
//! A record is `length crc32 payload`, numbers little-endian. The payload of a batch is its records.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    sync::Arc,
};

use bytes::Bytes;

use super::{
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
pub(super) const BATCH: u8 = 4;
/// A batch that has grown this long is synced before more is added.
pub(super) const BATCH_BYTES: usize = 16 << 20;

/// One record.
#[derive(Debug, PartialEq)]
pub(super) enum Record {
    Put { rv: u64, bucket: String, key: String, version: String, body: Bytes },
    Delete { rv: u64, bucket: String, key: String },
    End { rv: u64 },
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes().get(..usize::from(length)).unwrap_or_default());
}

pub(super) fn frame(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
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

pub(super) fn end(out: &mut Vec<u8>, rv: u64) {
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

/// Reads records until the end, the first that is not whole, or an error; returns the bytes that were good.
pub(super) fn read_records<E: From<io::Error>>(
    file: File,
    mut each: impl FnMut(Record) -> Result<(), E>,
) -> Result<u64, E> {
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
        let Some(records) = decode_payload(&payload) else { return Ok(good) };
        records.into_iter().try_for_each(&mut each)?;
        good += HEADER as u64 + u64::from(length);
    }
}

/// The records of a payload: a batch, or one.
fn decode_payload(payload: &[u8]) -> Option<Vec<Record>> {
    match payload.split_first() {
        Some((&BATCH, records)) => decode_batch(records),
        _ => decode(payload).map(|record| vec![record]),
    }
}

/// Reads whatever is whole in the bytes; returns how many bytes were not.
pub(super) fn read_scattered(mut bytes: &[u8], mut each: impl FnMut(Record)) -> usize {
    let mut bad = 0;
    while !bytes.is_empty() {
        let good = whole(bytes).and_then(|payload| Some((payload.len(), decode_payload(payload)?)));
        let skip = if let Some((length, records)) = good {
            records.into_iter().for_each(&mut each);
            HEADER + length
        } else {
            let next = bytes.get(1..).and_then(find_batch).map_or(bytes.len(), |at| at + 1);
            bad += next;
            next
        };
        bytes = bytes.get(skip..).unwrap_or_default();
    }
    bad
}

pub(super) const HEADER: usize = 8;

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

/// Where the first whole batch in the bytes begins. What objects say cannot look like one: they are JSON, and have no
/// zero bytes, of which every header has some.
pub(super) fn find_batch(bytes: &[u8]) -> Option<usize> {
    let begins = bytes.windows(HEADER + 1).enumerate().filter(|(_, window)| window.last() == Some(&BATCH));
    begins.map(|(at, _)| at).find(|at| bytes.get(*at..).and_then(whole).is_some())
}

/// Fills the buffer; `false` if the file ends before.
fn read_whole(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn record_rv(record: &Record) -> u64 {
    match record {
        Record::Put { rv, .. } | Record::Delete { rv, .. } | Record::End { rv } => *rv,
    }
}

pub(super) fn replay(state: &mut State, record: Record) {
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
