//! Just enough of WebSocket (RFC 6455) to read a stream of text from a server without TLS: one handshake, frames
//! in, pongs out.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use quintet_controller::rng::Rng;
use sha1::{Digest as _, Sha1};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// The server has this long to answer the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Ray sends logs in pieces far smaller than this.
const MAX_MESSAGE: usize = 16 << 20;
/// More than any server's answer to a handshake.
const MAX_HEAD: u64 = 16 << 10;
/// The text by which a server shows that it speaks WebSocket.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The close code of a conversation that ended as it should.
const NORMAL: u16 = 1000;

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// Reads messages until the server closes the conversation normally; anything else is an error.
pub(super) async fn read(
    host: &str,
    path: &str,
    header: Option<(&str, &str)>,
    mut take: impl FnMut(&str),
) -> Result<(), String> {
    let random = Rng::from_entropy();
    let connect = tokio::time::timeout(HANDSHAKE, shake_hands(host, path, header, &random));
    let mut stream = connect.await.map_err(|_| format!("no answer from {host} within {HANDSHAKE:?}"))??;
    let mut message = Vec::new();
    loop {
        let frame =
            read_frame(&mut stream).await.map_err(|error| format!("the connection broke: {error}"))?;
        match frame.opcode {
            PING => write_frame(&mut stream, PONG, &frame.payload, &random).await?,
            CLOSE => {
                let _ = write_frame(&mut stream, CLOSE, &frame.payload, &random).await;
                return closed(&frame.payload);
            }
            PONG => {}
            0 | TEXT | BINARY => {
                message.extend_from_slice(&frame.payload);
                if message.len() > MAX_MESSAGE {
                    return Err(format!("a message is larger than {MAX_MESSAGE} bytes"));
                }
                if frame.is_last {
                    take(&String::from_utf8_lossy(&message));
                    message.clear();
                }
            }
            other => return Err(format!("the server sent a frame of unknown kind {other}")),
        }
    }
}

fn closed(payload: &[u8]) -> Result<(), String> {
    let code = match payload {
        [high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => return Err("the server closed the conversation without a reason".to_owned()),
    };
    if code == NORMAL {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(payload.get(2..).unwrap_or_default());
    Err(format!("the server closed the conversation with code {code}: {reason}"))
}

async fn shake_hands(
    host: &str,
    path: &str,
    header: Option<(&str, &str)>,
    random: &Rng,
) -> Result<BufReader<TcpStream>, String> {
    let address = if host.rsplit(']').next().is_some_and(|rest| rest.contains(':')) {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let stream = TcpStream::connect(&address).await;
    let stream = stream.map_err(|error| format!("cannot connect to {address}: {error}"))?;
    let mut stream = BufReader::new(stream);
    let mut nonce = random.next_u64().to_be_bytes().to_vec();
    nonce.extend(random.next_u64().to_be_bytes());
    let key = STANDARD.encode(nonce);
    let extra = header.map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{extra}\r\n"
    );
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let (status, accept) = read_head(&mut stream).await.map_err(|error| error.to_string())?;
    if !status.contains(" 101 ") {
        return Err(format!("{host}{path} answered {:?} instead of switching to WebSocket", status.trim()));
    }
    let expected = STANDARD.encode(Sha1::digest(format!("{key}{MAGIC}")));
    if accept != expected {
        return Err(format!("{host} does not speak WebSocket: its answer to the handshake is wrong"));
    }
    Ok(stream)
}

/// The status line and the proof that the server speaks WebSocket.
async fn read_head(stream: &mut BufReader<TcpStream>) -> std::io::Result<(String, String)> {
    let mut head = stream.take(MAX_HEAD);
    let mut status = String::new();
    head.read_line(&mut status).await?;
    let mut accept = String::new();
    loop {
        let mut line = String::new();
        if head.read_line(&mut line).await? == 0 || line.trim().is_empty() {
            return Ok((status, accept));
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("sec-websocket-accept")
        {
            value.trim().clone_into(&mut accept);
        }
    }
}

struct Frame {
    is_last: bool,
    opcode: u8,
    payload: Vec<u8>,
}

async fn read_frame(stream: &mut BufReader<TcpStream>) -> std::io::Result<Frame> {
    let first = stream.read_u8().await?;
    let second = stream.read_u8().await?;
    let length = match second & 0x7f {
        126 => stream.read_u16().await?.into(),
        127 => stream.read_u64().await?,
        short => short.into(),
    };
    let too_large = || std::io::Error::other("a frame is too large");
    let length =
        usize::try_from(length).ok().filter(|length| *length <= MAX_MESSAGE).ok_or_else(too_large)?;
    // Servers do not mask; one that does is understood all the same.
    let mask = if second & 0x80 == 0 { [0; 4] } else { stream.read_u32().await?.to_be_bytes() };
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    apply_mask(&mut payload, mask);
    Ok(Frame { is_last: first & 0x80 != 0, opcode: first & 0x0f, payload })
}

async fn write_frame(
    stream: &mut BufReader<TcpStream>,
    opcode: u8,
    payload: &[u8],
    random: &Rng,
) -> Result<(), String> {
    // What a client answers is short: control frames have at most 125 bytes.
    let payload = payload.get(..payload.len().min(125)).unwrap_or_default();
    let [a, b, c, d, ..] = random.next_u64().to_be_bytes();
    let mask = [a, b, c, d];
    let mut frame = vec![0x80 | opcode, 0x80 | u8::try_from(payload.len()).unwrap_or_default()];
    frame.extend(mask);
    let mut masked = payload.to_vec();
    apply_mask(&mut masked, mask);
    frame.extend(masked);
    stream.write_all(&frame).await.map_err(|error| error.to_string())
}

fn apply_mask(payload: &mut [u8], mask: [u8; 4]) {
    for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}
