//! The server's side of WebSockets (RFC 6455), as far as streams of containers need it.

use std::io;

use bytes::{Bytes, BytesMut};
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Appended to a client's key, as the protocol says.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The longest message of a client.
const MESSAGE_LIMIT: usize = 1 << 20;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// What proves to a client that the server understood its key.
pub(super) fn accept(key: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(Sha1::digest(format!("{key}{GUID}")))
}

/// A message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Text or bytes.
    Data(Bytes),
    /// To be sent back.
    Ping(Bytes),
    /// No more messages follow.
    Close,
}

/// Reads messages of a client.
pub(super) struct Reader<R>(pub R);

impl<R: AsyncRead + Unpin> Reader<R> {
    /// The next message; `None` if the client went without a word.
    pub(super) async fn next(&mut self) -> io::Result<Option<Message>> {
        let mut message = BytesMut::new();
        loop {
            let Some((is_last, opcode, payload)) = self.frame(message.len()).await? else { return Ok(None) };
            match opcode {
                PING => return Ok(Some(Message::Ping(payload.freeze()))),
                PONG => {}
                CLOSE => return Ok(Some(Message::Close)),
                TEXT | BINARY | CONTINUATION => {
                    message.extend(payload);
                    if is_last {
                        return Ok(Some(Message::Data(message.freeze())));
                    }
                }
                _ => return Err(invalid("unknown kind of frame")),
            }
        }
    }

    async fn frame(&mut self, so_far: usize) -> io::Result<Option<(bool, u8, BytesMut)>> {
        let mut head = [0; 2];
        match self.0.read_exact(&mut head).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            outcome => outcome.map(drop)?,
        }
        let [first, second] = head;
        let length = match second & 0x7f {
            126 => u64::from(self.0.read_u16().await?),
            127 => self.0.read_u64().await?,
            short => u64::from(short),
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length.saturating_add(so_far) > MESSAGE_LIMIT {
            return Err(invalid("a message is too long"));
        }
        if second & 0x80 == 0 {
            return Err(invalid("frames of clients are masked"));
        }
        let mut mask = [0; 4];
        self.0.read_exact(&mut mask).await?;
        let mut payload = BytesMut::zeroed(length);
        self.0.read_exact(&mut payload).await?;
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        Ok(Some((first & 0x80 != 0, first & 0x0f, payload)))
    }
}

/// Writes messages to a client.
pub(super) struct Writer<W>(pub W);

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Sends bytes, in parts that belong together.
    pub(super) async fn binary(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.frame(BINARY, parts).await
    }

    pub(super) async fn pong(&mut self, payload: &[u8]) -> io::Result<()> {
        self.frame(PONG, &[payload]).await
    }

    /// Says that no more messages follow, because all went well.
    pub(super) async fn close(&mut self) -> io::Result<()> {
        self.frame(CLOSE, &[&1000_u16.to_be_bytes()]).await
    }

    async fn frame(&mut self, opcode: u8, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut frame = vec![0x80 | opcode];
        match u16::try_from(length) {
            Ok(short @ 0..126) => frame.extend(short.to_be_bytes().get(1)),
            Ok(middle) => {
                frame.push(126);
                frame.extend(middle.to_be_bytes());
            }
            Err(_) => {
                frame.push(127);
                frame.extend(u64::try_from(length).unwrap_or(u64::MAX).to_be_bytes());
            }
        }
        for part in parts {
            frame.extend(*part);
        }
        self.0.write_all(&frame).await?;
        self.0.flush().await
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(opcode: u8, is_last: bool, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let length = u8::try_from(payload.len()).unwrap();
        let mut frame = vec![if is_last { 0x80 } else { 0 } | opcode, 0x80 | length];
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    #[test]
    fn a_key_is_proven() {
        // The example of the protocol's specification.
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[tokio::test]
    async fn messages_are_read_in_parts() {
        let wire = [
            masked(BINARY, false, b"on"),
            masked(CONTINUATION, true, b"e"),
            masked(PING, true, b"?"),
            masked(CLOSE, true, b""),
        ]
        .concat();
        let mut reader = Reader(wire.as_slice());
        assert_eq!(reader.next().await.unwrap(), Some(Message::Data(Bytes::from_static(b"one"))));
        assert_eq!(reader.next().await.unwrap(), Some(Message::Ping(Bytes::from_static(b"?"))));
        assert_eq!(reader.next().await.unwrap(), Some(Message::Close));
        assert_eq!(reader.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn hostile_frames_are_rejected() {
        let unmasked = [0x82, 0x01, b'x'];
        assert!(Reader(unmasked.as_slice()).next().await.is_err());
        let huge = [0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert!(Reader(huge.as_slice()).next().await.is_err());
    }

    #[tokio::test]
    async fn lengths_are_written_in_three_ways() {
        for (length, head) in [
            (5, vec![0x82, 5]),
            (300, vec![0x82, 126, 1, 44]),
            (70_000, vec![0x82, 127, 0, 0, 0, 0, 0, 1, 17, 112]),
        ] {
            let mut wire = Vec::new();
            Writer(&mut wire).binary(&[&vec![7; length]]).await.unwrap();
            assert_eq!((&wire[..head.len()], wire.len()), (head.as_slice(), head.len() + length));
        }
    }
}
