//! Headers of SPDY/3 streams: compressed with a dictionary that both sides know.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use super::invalid;

/// Names that the dictionary begins with, each behind its length.
const NAMES: [&str; 65] = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];
/// The rest of the dictionary.
const TEXT: &str = concat!(
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505",
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Una",
    "uthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service",
    " UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, ",
    "Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,applicat",
    "ion/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf",
    "-8charset=iso-8859-1,utf-,*,enq=0.",
);
/// A reference reaches back this far.
const WINDOW: usize = 32 << 10;
/// Headers of streams are a few hundred bytes.
const LIMIT: usize = 64 << 10;

fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in NAMES {
        bytes.extend(u32::try_from(name.len()).unwrap_or_default().to_be_bytes());
        bytes.extend(name.as_bytes());
    }
    bytes.extend(TEXT.as_bytes());
    bytes
}

/// Reads the headers of one connection, which are one compressed stream.
pub(super) struct HeaderReader {
    state: Box<DecompressorOxide>,
    /// What was read so far, as far as references reach back.
    output: Vec<u8>,
    has_begun: bool,
}

impl HeaderReader {
    pub(super) fn new() -> Self {
        Self { state: Box::default(), output: dictionary(), has_begun: false }
    }

    /// Names and values of one block.
    pub(super) fn read(&mut self, block: &[u8]) -> std::io::Result<Vec<(String, String)>> {
        let mut input = block;
        if !self.has_begun {
            // The header of the stream: two bytes, and four that identify the dictionary.
            let skipped = if block.get(1).is_some_and(|flags| flags & 0x20 != 0) { 6 } else { 2 };
            input = block.get(skipped..).ok_or_else(|| invalid("a block of headers is cut"))?;
            self.has_begun = true;
        }
        let start = self.output.len();
        self.inflate(input)?;
        let headers = parse(self.output.get(start..).unwrap_or_default());
        let surplus = self.output.len().saturating_sub(WINDOW);
        self.output.drain(..surplus);
        headers
    }

    fn inflate(&mut self, mut input: &[u8]) -> std::io::Result<()> {
        let flags = inflate_flags::TINFL_FLAG_HAS_MORE_INPUT
            | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let begin = self.output.len();
        loop {
            let at = self.output.len();
            self.output.resize(at + 4096, 0);
            let (status, read, written) = decompress(&mut self.state, input, &mut self.output, at, flags);
            self.output.truncate(at + written);
            input = input.get(read..).unwrap_or_default();
            if self.output.len() - begin > LIMIT {
                return Err(invalid("headers are too long"));
            }
            match status {
                TINFLStatus::NeedsMoreInput => return Ok(()),
                TINFLStatus::HasMoreOutput => {}
                _ => return Err(invalid("headers cannot be decompressed")),
            }
        }
    }
}

fn parse(bytes: &[u8]) -> std::io::Result<Vec<(String, String)>> {
    let mut rest = bytes;
    let number = |rest: &mut &[u8]| -> std::io::Result<usize> {
        let (digits, after) = rest.split_at_checked(4).ok_or_else(|| invalid("headers are cut"))?;
        *rest = after;
        let number = u32::from_be_bytes(digits.try_into().unwrap_or_default());
        usize::try_from(number).map_err(std::io::Error::other)
    };
    let count = number(&mut rest)?;
    let mut headers = Vec::new();
    for _ in 0..count {
        let mut text = || {
            let length = number(&mut rest)?;
            let (text, after) = rest.split_at_checked(length).ok_or_else(|| invalid("headers are cut"))?;
            rest = after;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(text).into_owned())
        };
        let name = text()?;
        headers.push((name.to_ascii_lowercase(), text()?));
    }
    Ok(headers)
}

/// Writes headers without compressing them, which every reader understands.
#[derive(Default)]
pub(super) struct HeaderWriter {
    has_begun: bool,
}

impl HeaderWriter {
    /// One block without any headers.
    pub(super) fn empty(&mut self) -> Vec<u8> {
        let mut block = Vec::new();
        if !self.has_begun {
            // The header of a stream that uses no dictionary.
            block.extend([0x78, 0x01]);
            self.has_begun = true;
        }
        let count = 0_u32.to_be_bytes();
        let length = 4_u16;
        block.push(0);
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(count);
        // An empty piece makes readers give out what they have.
        block.extend([0, 0, 0, 0xff, 0xff]);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        let bytes = dictionary();
        assert_eq!(bytes.len(), 1423);
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in &bytes {
            low = (low + u32::from(*byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        assert_eq!(high << 16 | low, 0xe3c6_a7c2, "the checksum that clients send");
    }

    #[test]
    fn what_we_write_we_can_read() {
        let (mut writer, mut reader) = (HeaderWriter::default(), HeaderReader::new());
        for _ in 0..3 {
            assert_eq!(reader.read(&writer.empty()).unwrap(), Vec::new());
        }
        assert!(HeaderReader::new().read(&[0x78]).is_err());
        assert!(HeaderReader::new().read(&[0x78, 0x01, 0xff, 0xff]).is_err());
    }

    #[test]
    fn headers_of_a_client_are_read() {
        // As a client compresses `streamtype: error`, with the dictionary.
        let blocks = [&FIRST[..], &SECOND[..]];
        let mut reader = HeaderReader::new();
        let found: Vec<_> = blocks.iter().map(|block| reader.read(block).unwrap()).collect();
        assert_eq!(found[0], [("streamtype".to_owned(), "error".to_owned())]);
        assert_eq!(
            found[1],
            [("streamtype".to_owned(), "data".to_owned()), ("port".to_owned(), "80".to_owned())]
        );
    }

    const FIRST: [u8; 30] = [
        120, 249, 227, 198, 167, 194, 2, 166, 35, 70, 112, 58, 43, 41, 74, 77, 204, 133, 22, 37, 172, 169,
        160, 128, 6, 0, 0, 0, 255, 255,
    ];
    const SECOND: [u8; 23] =
        [2, 101, 28, 12, 41, 80, 41, 147, 8, 41, 176, 139, 64, 137, 155, 201, 194, 0, 0, 0, 0, 255, 255];
}
