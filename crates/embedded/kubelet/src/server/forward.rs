//! `port-forward`: connections to ports on the loopback interface of a pod.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use quintet_controller::tasks::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, mpsc};

use super::query::Query;
use super::spdy::{self, Stream};
use super::upgrade::{self, Connection, Protocol, Upgrade};
use super::{failure, websocket};
use crate::kubelet::HandlerBody;
use crate::worker::{PodHandle, Pods};

/// SPDY inside of WebSockets.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// Channels of WebSockets, two for each port that the request names.
const CHANNELS: &str = "v4.channel.k8s.io";
/// Streams of SPDY.
const STREAMS: &str = "portforward.k8s.io";
/// Bytes that are copied at a time.
const PIECE: usize = 16 << 10;

/// Serves a request to forward ports.
pub(super) fn serve(
    pods: &Pods,
    handle: &Arc<PodHandle>,
    query: &Query,
    mut request: Request<Bytes>,
) -> Response<HandlerBody> {
    if !handle.record().has_sandbox {
        let message = format!("unable to upgrade connection: pod {} does not run", handle.key.name());
        return failure(StatusCode::INTERNAL_SERVER_ERROR, message);
    }
    let upgrade = match Upgrade::of(&mut request, &[TUNNEL, STREAMS, CHANNELS]) {
        Ok(upgrade) => upgrade,
        Err(why) => return upgrade::refused(&why),
    };
    let ports: Vec<u16> =
        query.all("ports").flat_map(|list| list.split(',')).filter_map(|port| port.parse().ok()).collect();
    let protocol = upgrade.protocol.clone();
    let (response, on_upgrade) = upgrade.accept();
    let (handle, tasks) = (Arc::clone(handle), pods.context().tasks.clone());
    let name = format!("forwarded ports of {}", handle.key);
    pods.context().tasks.spawn(name, async move {
        let Some(connection) = upgrade::connection(on_upgrade).await else { return };
        let session = async {
            match protocol {
                Protocol::Spdy(_) => over_spdy(connection, &handle, &tasks).await,
                Protocol::WebSocket(protocol) if protocol == TUNNEL => {
                    tunnel(connection, &handle, &tasks).await
                }
                Protocol::WebSocket(_) => over_channels(connection, &handle, &ports).await,
            }
        };
        let outcome = tokio::select! {
            () = handle.cancel.cancelled() => Ok(()),
            outcome = session => outcome,
        };
        if let Err(error) = outcome {
            tracing::debug!("forwarded ports of a pod ended: {error}");
        }
    });
    response
}

/// Forwards every pair of streams that the client opens: one for data, one for what goes wrong.
async fn over_spdy(
    connection: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
    handle: &Arc<PodHandle>,
    tasks: &Tasks,
) -> io::Result<()> {
    let (sender, mut opened) = mpsc::channel::<Stream>(8);
    let pair_up = async {
        let mut waiting: HashMap<String, Stream> = HashMap::new();
        while let Some(stream) = opened.recv().await {
            let request = stream.header("requestid").unwrap_or_default().to_owned();
            let Some(other) = waiting.remove(&request) else {
                waiting.insert(request, stream);
                continue;
            };
            let is_data = stream.header("streamtype") == Some("data");
            let (data, error) = if is_data { (stream, other) } else { (other, stream) };
            let handle = Arc::clone(handle);
            let name = format!("forwarded port of {}", handle.key);
            tasks.spawn(name, async move {
                tokio::select! {
                    () = handle.cancel.cancelled() => {}
                    () = forward(&handle, data, error) => {}
                }
            });
        }
    };
    let (served, ()) = futures::future::join(spdy::serve(connection, sender), pair_up).await;
    served
}

async fn forward(handle: &PodHandle, data: Stream, error: Stream) {
    let port = data.header("port").and_then(|port| port.parse::<u16>().ok());
    let connected = match port {
        Some(port) => handle.shim().forward(port).await.map_err(|why| refused(handle, port, &why)),
        None => Err("the port is not a number".into()),
    };
    match connected {
        Ok(server) => {
            let Stream { receiver, sender, .. } = data;
            copy(server, receiver, &sender).await;
            sender.finish().await;
        }
        Err(message) => {
            // The client may have gone.
            let _ = error.sender.send(message.into()).await;
            data.sender.finish().await;
        }
    }
    error.sender.finish().await;
}

fn refused(handle: &PodHandle, port: u16, why: &crate::shim::ShimError) -> String {
    format!("error forwarding port {port} to pod {}, uid {}: {why}", handle.key.name(), handle.uid)
}

/// Copies both ways until both sides have ended.
async fn copy(server: UnixStream, mut receiver: mpsc::Receiver<Bytes>, sender: &spdy::Sender) {
    let (mut from, mut to) = server.into_split();
    let inward = async {
        while let Some(bytes) = receiver.recv().await {
            to.write_all(&bytes).await?;
        }
        to.shutdown().await
    };
    let outward = async {
        loop {
            let mut piece = vec![0; PIECE];
            let length = from.read(&mut piece).await?;
            if length == 0 {
                return Ok::<_, io::Error>(());
            }
            piece.truncate(length);
            sender.send(piece.into()).await?;
        }
    };
    // A server that has said everything does not wait for the client to do so.
    tokio::pin!(inward, outward);
    tokio::select! {
        _ = &mut outward => {}
        outcome = &mut inward => {
            if outcome.is_ok() {
                let _ = outward.await;
            }
        }
    }
}

/// Carries a SPDY connection in the messages of a WebSocket.
async fn tunnel(connection: Connection, handle: &Arc<PodHandle>, tasks: &Tasks) -> io::Result<()> {
    let (ours, theirs) = tokio::io::duplex(4 * PIECE);
    let (pumped, served) =
        futures::future::join(pump(connection, ours), over_spdy(theirs, handle, tasks)).await;
    pumped.and(served)
}

async fn pump(connection: Connection, inner: DuplexStream) -> io::Result<()> {
    let (reader, writer) = tokio::io::split(connection);
    let (mut reader, writer) = (websocket::Reader(reader), Mutex::new(websocket::Writer(writer)));
    let (mut from, mut to) = tokio::io::split(inner);
    let inward = async {
        while let Some(message) = reader.next().await? {
            match message {
                websocket::Message::Data(bytes) => to.write_all(&bytes).await?,
                websocket::Message::Ping(bytes) => writer.lock().await.pong(&bytes).await?,
                websocket::Message::Close => break,
            }
        }
        to.shutdown().await
    };
    let outward = async {
        let mut piece = vec![0; PIECE];
        loop {
            let length = from.read(&mut piece).await?;
            if length == 0 {
                return writer.lock().await.close().await;
            }
            writer.lock().await.binary(&[piece.get(..length).unwrap_or_default()]).await?;
        }
    };
    tokio::select! {
        outcome = inward => outcome,
        outcome = outward => outcome,
    }
}

/// Two channels for each port: data, and what goes wrong. The first message on each is the number of the port.
async fn over_channels(connection: Connection, handle: &PodHandle, ports: &[u16]) -> io::Result<()> {
    let (reader, writer) = tokio::io::split(connection);
    let (mut reader, writer) = (websocket::Reader(reader), Mutex::new(websocket::Writer(writer)));
    let mut servers = Vec::new();
    let mut outward = Vec::new();
    for (number, port) in (0_u8..).step_by(2).zip(ports) {
        for channel in [number, number + 1] {
            writer.lock().await.binary(&[&[channel], &port.to_le_bytes()]).await?;
        }
        match handle.shim().forward(*port).await {
            Ok(server) => {
                let (from, to) = server.into_split();
                servers.push(Some(to));
                outward.push(read_channel(from, number, &writer));
            }
            Err(why) => {
                let message = refused(handle, *port, &why);
                writer.lock().await.binary(&[&[number + 1], message.as_bytes()]).await?;
                servers.push(None);
            }
        }
    }
    let inward = async {
        while let Some(message) = reader.next().await? {
            match message {
                websocket::Message::Data(bytes) => {
                    let Some((channel, bytes)) = bytes.split_first() else { continue };
                    let server = servers.get_mut(usize::from(channel / 2)).and_then(Option::as_mut);
                    if let (Some(server), 0) = (server, channel % 2) {
                        server.write_all(bytes).await?;
                    }
                }
                websocket::Message::Ping(bytes) => writer.lock().await.pong(&bytes).await?,
                websocket::Message::Close => break,
            }
        }
        Ok(())
    };
    let outward = async {
        futures::future::join_all(outward).await;
        writer.lock().await.close().await
    };
    tokio::select! {
        outcome = inward => outcome,
        outcome = outward => outcome,
    }
}

async fn read_channel<W: tokio::io::AsyncWrite + Unpin>(
    mut from: tokio::net::unix::OwnedReadHalf,
    channel: u8,
    writer: &Mutex<websocket::Writer<W>>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return Ok(());
        }
        writer.lock().await.binary(&[&[channel], piece.get(..length).unwrap_or_default()]).await?;
    }
}
