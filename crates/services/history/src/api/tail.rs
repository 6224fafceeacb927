//! Parts of logs: the end without reading all of it, or everything while it is sent.

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};

use crate::store::{PIECE, Store, StoreError};

/// Bytes are read in pieces of this size from the end.
const LAST_PIECE: u64 = 256 * 1024;

/// The last lines of a log are not searched beyond this many bytes.
const MOST_OF_END: u64 = 256 * 1024 * 1024;

/// What colours text is not longer than this.
const LONGEST_COLOUR: usize = 64;

/// A range of an object.
pub(super) struct Range<'a> {
    pub(super) store: &'a Store,
    pub(super) path: &'a str,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Range<'_> {
    /// All bytes, read piece by piece while they are sent. The first piece is read at once, so that a storage that is away
    /// is an error and no response that breaks off.
    pub(super) async fn whole(
        self,
    ) -> Result<impl Stream<Item = std::io::Result<Bytes>> + use<>, StoreError> {
        let Self { store, path, start, end } = self;
        let first = store.read(path, start, PIECE.min(end - start)).await?;
        let next = start + first.len() as u64;
        let rest = stream::try_unfold(
            (store.clone(), path.to_owned(), next),
            move |(store, path, from)| async move {
                if from >= end {
                    return Ok(None);
                }
                let piece =
                    store.read(&path, from, PIECE.min(end - from)).await.map_err(std::io::Error::other)?;
                if piece.is_empty() {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                let next = from + piece.len() as u64;
                Ok(Some((piece, (store, path, next))))
            },
        );
        Ok(stream::once(async { Ok(first) }).chain(rest))
    }

    /// The last lines, joined by line feeds, without one at the end. A carriage return at the end of a line is dropped.
    #[expect(clippy::naive_bytecount, reason = "a piece is small, and no crate is worth it")]
    pub(super) async fn last_lines(&self, count: usize) -> Result<Vec<u8>, StoreError> {
        let mut pieces: Vec<Bytes> = Vec::new();
        let mut start = self.end;
        let mut breaks = 0;
        // One break more than lines: the last line may end in one.
        while start > self.start && breaks <= count && self.end - start < MOST_OF_END {
            let from = start.saturating_sub(LAST_PIECE).max(self.start);
            let piece = self.store.read(self.path, from, start - from).await?;
            if piece.is_empty() {
                break;
            }
            breaks += piece.iter().filter(|byte| **byte == b'\n').count();
            pieces.push(piece);
            start = from;
        }
        pieces.reverse();
        let text = pieces.concat();
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        if text.is_empty() && self.end - self.start <= 1 {
            return Ok(Vec::new());
        }
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let lines = &lines[lines.len().saturating_sub(count)..];
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
        Ok(lines.join(&b'\n'))
    }
}

/// Removes what colours text on terminals: `ESC [ digits and semicolons m`.
pub(super) fn without_colours(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.windows(2).position(|it| it == b"\x1b[") {
        let after = &rest[start + 2..];
        let length = after.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
        if length > 0 && after.get(length) == Some(&b'm') {
            plain.extend_from_slice(&rest[..start]);
            rest = &after[length + 1..];
        } else {
            plain.extend_from_slice(&rest[..start + 2]);
            rest = after;
        }
    }
    plain.extend_from_slice(rest);
    plain
}

/// The same for text that comes in pieces, whose borders may be within what colours.
pub(super) fn pieces_without_colours(
    pieces: impl Stream<Item = std::io::Result<Bytes>>,
) -> impl Stream<Item = std::io::Result<Bytes>> {
    let ended = pieces.map(Some).chain(stream::once(async { None }));
    ended.scan(Vec::new(), |held: &mut Vec<u8>, piece| {
        let plain = match piece {
            None => Ok(without_colours(&std::mem::take(held)).into()),
            Some(Err(error)) => Err(error),
            Some(Ok(piece)) => {
                held.extend_from_slice(&piece);
                let rest = held.split_off(complete(held));
                Ok(without_colours(&std::mem::replace(held, rest)).into())
            }
        };
        std::future::ready(Some(plain))
    })
}

/// How much of a text does not end within what may be a colour.
fn complete(text: &[u8]) -> usize {
    let end = &text[text.len().saturating_sub(LONGEST_COLOUR)..];
    let Some(start) = end.iter().rposition(|byte| *byte == 0x1b) else { return text.len() };
    let after = &end[start + 1..];
    let is_open = after.iter().enumerate().all(|(index, byte)| match index {
        0 => *byte == b'[',
        _ => byte.is_ascii_digit() || *byte == b';',
    });
    if is_open { text.len() - end.len() + start } else { text.len() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::stream::{self, TryStreamExt as _};

    use super::{Range, pieces_without_colours, without_colours};
    use crate::store::{PIECE, Store};

    #[tokio::test]
    async fn a_whole_log_is_read_in_pieces() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::directory(directory.path(), "");
        let piece = usize::try_from(PIECE).expect("a size");
        for size in [0, 1, piece, 2 * piece + 3] {
            let content: Vec<u8> = (0..size).map(|it| u8::try_from(it % 251).expect("a byte")).collect();
            store.put("log", content.clone().into()).await.expect("stored");
            let range = Range { store: &store, path: "log", start: 0, end: size as u64 };
            let read = range.whole().await.expect("a log");
            let read: Vec<Bytes> = read.try_collect().await.expect("all pieces");
            assert!(read.iter().all(|it| it.len() <= piece));
            assert!(read.concat() == content, "{size} bytes");
        }
        let range = Range { store: &store, path: "none", start: 0, end: 3 };
        assert!(range.whole().await.is_err());
    }

    #[tokio::test]
    async fn colours_are_removed_across_pieces() {
        let text = "a\x1b[31mred\x1b[0m \x1b[2Kx \x1b";
        for size in 1..text.len() {
            let pieces = text.as_bytes().chunks(size).map(|it| Ok(Bytes::copy_from_slice(it)));
            let plain: Vec<Bytes> =
                pieces_without_colours(stream::iter(pieces)).try_collect().await.expect("text");
            assert_eq!(plain.concat(), without_colours(text.as_bytes()), "pieces of {size}");
        }
    }

    #[tokio::test]
    async fn the_last_lines_are_read_from_the_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::directory(directory.path(), "");
        let lines: Vec<String> = (0..100_000).map(|it| format!("line {it}\n")).collect();
        let long = lines.concat();
        let cases = [
            ("", 3, ""),
            ("a", 3, "a"),
            ("a\n", 3, "a"),
            ("a\n\n\n", 2, "\n"),
            ("a\r\nb\r\n", 5, "a\nb"),
            ("a\nb\nc", 2, "b\nc"),
            (long.as_str(), 1, "line 99999"),
            (long.as_str(), 2, "line 99998\nline 99999"),
        ];
        for (content, count, expected) in cases {
            store.put("log", content.to_owned().into()).await.expect("stored");
            let range = Range { store: &store, path: "log", start: 0, end: content.len() as u64 };
            let lines = range.last_lines(count).await.expect("lines");
            assert_eq!(String::from_utf8_lossy(&lines), expected);
        }
    }

    #[test]
    fn colours_are_removed() {
        let cases = [
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b[1;31mx", "x"),
            ("\x1b[m end", "\x1b[m end"),
            ("\x1b[2Kx", "\x1b[2Kx"),
        ];
        for (text, expected) in cases {
            assert_eq!(without_colours(text.as_bytes()), expected.as_bytes());
        }
    }
}
