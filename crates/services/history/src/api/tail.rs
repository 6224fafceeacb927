//! The end of a log, without reading all of it.

use bytes::Bytes;

use crate::store::{Store, StoreError};

/// Bytes are read in pieces of this size from the end.
const PIECE: u64 = 256 * 1024;

/// Logs are not returned beyond this size.
const LARGEST: u64 = 512 * 1024 * 1024;

/// A range of an object.
pub(super) struct Range<'a> {
    pub(super) store: &'a Store,
    pub(super) path: &'a str,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Range<'_> {
    /// All bytes.
    pub(super) async fn whole(&self) -> Result<Bytes, StoreError> {
        let length = self.end - self.start;
        if length > LARGEST {
            return Err(StoreError(format!("{} has {length} bytes; ask for its last lines", self.path)));
        }
        if length == 0 {
            return Ok(Bytes::new());
        }
        self.store.read(self.path, self.start, length).await
    }

    /// The last lines, joined by line feeds, without one at the end. A carriage return at the end of a line is dropped.
    #[expect(clippy::naive_bytecount, reason = "a piece is small, and no crate is worth it")]
    pub(super) async fn last_lines(&self, count: usize) -> Result<Vec<u8>, StoreError> {
        let mut pieces: Vec<Bytes> = Vec::new();
        let mut start = self.end;
        let mut breaks = 0;
        // One break more than lines: the last line may end in one.
        while start > self.start && breaks <= count && self.end - start < LARGEST {
            let from = start.saturating_sub(PIECE).max(self.start);
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

#[cfg(test)]
mod tests {

    use super::{Range, without_colours};
    use crate::store::Store;

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
