//! The server's side of SPDY/3.1, as far as Kubernetes' clients use it: streams that the client opens.
//!
//! `kubectl port-forward` speaks it, also inside of WebSockets, and older clients speak it for all streams. There is no flow
//! control, as in the library that clients use.

mod headers;

use std::collections::HashMap;
use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use headers::{HeaderReader, HeaderWriter};

/// Frames that wait for a slow peer.
const FRAMES: usize = 64;
/// The longest frame of ours.
const FRAME: usize = 32 << 10;
/// The longest frame of a client.
const FRAME_LIMIT: usize = 1 << 20;
/// Streams of a connection at a time.
const STREAMS: usize = 4096;

/// Set in control frames, which are not of a stream.
const CONTROL: u32 = 1 << 31;
const FIN: u8 = 1;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;

pub(super) fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// A stream that the client opened.
pub(super) struct Stream {
    headers: Vec<(String, String)>,
    pub receiver: mpsc::Receiver<Bytes>,
    pub sender: Sender,
}

impl Stream {
    /// A header, by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Writes to a stream; dropping it ends our side of the stream.
pub(super) struct Sender {
    id: u32,
    frames: mpsc::Sender<Frame>,
}

enum Frame {
    Data(u32, Bytes),
    End(u32),
    Reply(u32),
    Ping(u32),
}

impl Sender {
    /// Writes bytes; an error means that the connection is gone.
    pub(super) async fn send(&self, bytes: Bytes) -> io::Result<()> {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(FRAME));
            let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
            self.frames.send(Frame::Data(self.id, piece)).await.map_err(gone)?;
        }
        Ok(())
    }

    /// Ends our side of the stream.
    pub(super) async fn finish(self) {
        // The connection may be gone, and with it the stream.
        let _ = self.frames.send(Frame::End(self.id)).await;
    }
}

/// Serves a connection until the client goes; the streams that it opens are sent to `streams`.
pub(super) async fn serve(
    connection: impl AsyncRead + AsyncWrite + Send + 'static,
    streams: mpsc::Sender<Stream>,
) -> io::Result<()> {
    let (reader, writer) = tokio::io::split(connection);
    let (frames, outgoing) = mpsc::channel(FRAMES);
    let write = write_frames(writer, outgoing);
    let read = async move {
        let outcome =
            Reading { reader, frames, open: HashMap::new(), headers: HeaderReader::new() }.run(streams).await;
        // The writer ends when all senders are gone, which may be after the last frame was read.
        outcome
    };
    let (read, written) = futures::future::join(read, write).await;
    read.and(written)
}

struct Reading<R> {
    reader: R,
    frames: mpsc::Sender<Frame>,
    open: HashMap<u32, mpsc::Sender<Bytes>>,
    headers: HeaderReader,
}

impl<R: AsyncRead + Unpin> Reading<R> {
    async fn run(mut self, streams: mpsc::Sender<Stream>) -> io::Result<()> {
        loop {
            let mut head = [0; 8];
            match self.reader.read_exact(&mut head).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                outcome => outcome.map(drop)?,
            }
            let [kind @ .., flags, high, middle, low] = head;
            let length =
                usize::try_from(u32::from_be_bytes([0, high, middle, low])).map_err(io::Error::other)?;
            if length > FRAME_LIMIT {
                return Err(invalid("a frame is too long"));
            }
            let mut payload = BytesMut::zeroed(length);
            self.reader.read_exact(&mut payload).await?;
            let payload = payload.freeze();
            let kind = u32::from_be_bytes(kind);
            if kind & CONTROL == 0 {
                self.data(kind, flags, payload).await;
                continue;
            }
            match u16::try_from(kind & 0xffff).unwrap_or_default() {
                SYN_STREAM => self.open(flags, payload, &streams).await?,
                RST_STREAM => {
                    self.open.remove(&number(&payload)?);
                }
                PING => drop(self.frames.send(Frame::Ping(number(&payload)?)).await),
                GOAWAY => return Ok(()),
                // Settings and windows: there is no flow control.
                _ => {}
            }
        }
    }

    async fn data(&mut self, id: u32, flags: u8, payload: Bytes) {
        if let Some(stream) = self.open.get(&id)
            && !payload.is_empty()
        {
            // A client that does not read any more does not need it.
            let _ = stream.send(payload).await;
        }
        if flags & FIN != 0 {
            self.open.remove(&id);
        }
    }

    async fn open(
        &mut self,
        flags: u8,
        mut payload: Bytes,
        streams: &mpsc::Sender<Stream>,
    ) -> io::Result<()> {
        let id = number(&payload)?;
        if payload.len() < 10 {
            return Err(invalid("a stream is cut"));
        }
        // The stream it belongs to, its priority and a slot that is not used.
        payload.advance(10);
        let headers = self.headers.read(&payload)?;
        if self.open.len() >= STREAMS {
            return Err(invalid("too many streams"));
        }
        let (sender, receiver) = mpsc::channel(FRAMES);
        if flags & FIN == 0 {
            self.open.insert(id, sender);
        }
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.frames.send(Frame::Reply(id)).await.map_err(|_| gone())?;
        let sender = Sender { id, frames: self.frames.clone() };
        streams.send(Stream { headers, receiver, sender }).await.map_err(|_| gone())
    }
}

fn number(payload: &[u8]) -> io::Result<u32> {
    let digits = payload.get(..4).and_then(|digits| digits.try_into().ok());
    digits.map(u32::from_be_bytes).ok_or_else(|| invalid("a frame is cut"))
}

async fn write_frames(
    mut writer: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Frame>,
) -> io::Result<()> {
    let mut headers = HeaderWriter::default();
    while let Some(frame) = frames.recv().await {
        let bytes = match frame {
            Frame::Data(id, bytes) => data_frame(id, 0, &bytes),
            Frame::End(id) => data_frame(id, FIN, &[]),
            Frame::Reply(id) => {
                control_frame(SYN_REPLY, &[&id.to_be_bytes(), headers.empty().as_slice()].concat())
            }
            Frame::Ping(id) => control_frame(PING, &id.to_be_bytes()),
        };
        writer.write_all(&bytes).await?;
        if frames.is_empty() {
            writer.flush().await?;
        }
    }
    writer.shutdown().await
}

fn data_frame(id: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame((id & 0x7fff_ffff).to_be_bytes(), flags, payload)
}

fn control_frame(kind: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = kind.to_be_bytes();
    frame([0x80, 3, high, low], 0, payload)
}

fn frame(head: [u8; 4], flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let [_, a, b, c] = length.to_be_bytes();
    [&head, &[flags, a, b, c], payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn streams_carry_bytes_both_ways() {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (sender, mut streams) = mpsc::channel(4);
        let serving = serve(server, sender);
        let talking = async {
            let (mut reader, mut writer) = tokio::io::split(client);
            let mut headers = HeaderWriter::default();
            let opening = [&1_u32.to_be_bytes(), [0; 6].as_slice(), &headers.empty()].concat();
            writer.write_all(&control_frame(SYN_STREAM, &opening)).await.unwrap();
            writer.write_all(&data_frame(1, FIN, b"ping")).await.unwrap();
            writer.write_all(&control_frame(PING, &7_u32.to_be_bytes())).await.unwrap();
            let Stream { mut receiver, sender, .. } = streams.recv().await.unwrap();
            assert_eq!(receiver.recv().await.unwrap(), "ping");
            assert_eq!(receiver.recv().await, None);
            sender.send(Bytes::from_static(b"pong")).await.unwrap();
            sender.finish().await;
            drop(writer);
            writer_gone(&mut reader).await
        };
        let (served, answer) = futures::future::join(serving, talking).await;
        served.unwrap();
        let has = |part: &[u8]| answer.windows(part.len()).any(|window| window == part);
        assert!(has(&control_frame(PING, &7_u32.to_be_bytes())));
        assert!(has(&data_frame(1, 0, b"pong")) && has(&data_frame(1, FIN, b"")));
    }

    async fn writer_gone(reader: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
        let mut bytes = Vec::new();
        let end = data_frame(1, FIN, b"");
        while !bytes.ends_with(&end) {
            let mut piece = [0; 256];
            let length = reader.read(&mut piece).await.unwrap();
            bytes.extend(&piece[..length]);
        }
        bytes
    }
}
