//! `exec` and `attach`: the streams of a process over WebSockets or SPDY.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};

use super::query::Query;
use super::spdy::{self, Stream};
use super::upgrade::{self, Connection, Protocol, Upgrade};
use super::{failure, websocket};
use crate::kubelet::HandlerBody;
use crate::shim::protocol::{self, Channel, ExecConfig, TerminalSize};
use crate::shim::{StreamReceiver, StreamSender, Streams};
use crate::worker::{PodHandle, Pods};

/// Protocols of streams, the best first. They differ in how the end is reported, and how a client closes its input.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// The channel by which a client of the fifth protocol closes another one.
const CLOSE: u8 = 255;
/// How long a client may take to open its streams.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may take to go when everything was said.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// What to connect with.
pub(super) enum Action {
    Exec(Vec<String>),
    Attach,
}

/// The streams that a client wants.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "the parameters of the request")]
struct Wanted {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

/// Serves a request for the streams of a process.
pub(super) async fn serve(
    pods: &Pods,
    handle: &Arc<PodHandle>,
    (container, action): (&str, Action),
    query: &Query,
    mut request: Request<Bytes>,
) -> Response<HandlerBody> {
    let is_running =
        handle.record().containers.get(container).is_some_and(crate::pod::lifecycle::Record::is_running);
    if !is_running {
        let message = format!("unable to upgrade connection: container not found ({container:?})");
        return failure(StatusCode::INTERNAL_SERVER_ERROR, message);
    }
    let tty = query.is_set("tty");
    let wanted = Wanted {
        stdin: query.is_set("stdin"),
        stdout: query.is_set("stdout"),
        stderr: query.is_set("stderr") && !tty,
        tty,
    };
    let upgrade = match Upgrade::of(&mut request, &PROTOCOLS) {
        Ok(upgrade) => upgrade,
        Err(why) => return upgrade::refused(&why),
    };
    let streams = match action {
        Action::Exec(command) => {
            let config = ExecConfig { container: container.to_owned(), command, tty, stdin: wanted.stdin };
            handle.shim().exec(config).await
        }
        Action::Attach => handle.shim().attach(container, wanted.stdin).await,
    };
    let streams = match streams {
        Ok(streams) => streams,
        Err(error) => {
            let message = format!("unable to upgrade connection: {error}");
            return failure(StatusCode::INTERNAL_SERVER_ERROR, message);
        }
    };
    let protocol = upgrade.protocol.clone();
    let (response, on_upgrade) = upgrade.accept();
    let cancel = handle.cancel.clone();
    pods.context().tasks.spawn(format!("streams of {container} in {}", handle.key), async move {
        let Some(connection) = upgrade::connection(on_upgrade).await else { return };
        let session = async {
            match protocol {
                Protocol::WebSocket(_) => over_websocket(connection, streams, wanted).await,
                Protocol::Spdy(_) => over_spdy(connection, streams, wanted).await,
            }
        };
        let outcome = tokio::select! {
            () = cancel.cancelled() => Ok(()),
            outcome = session => outcome,
        };
        if let Err(error) = outcome {
            tracing::debug!("streams of a container ended: {error}");
        }
    });
    response
}

/// What a process did last.
enum Last {
    Exited(i32),
    Failed(String),
    /// Its streams ended, as those of an attached container do.
    Ended,
}

impl Last {
    fn of(message: &[u8]) -> Self {
        match serde_json::from_slice(message) {
            Ok(protocol::Response::Exited(exit)) => Self::Exited(exit.code),
            Ok(protocol::Response::Failed { message, .. }) => Self::Failed(message),
            other => Self::Failed(format!("unexpected response {other:?}")),
        }
    }

    /// The status that clients of the fourth and fifth protocol expect.
    fn status(&self) -> Value {
        match self {
            Self::Exited(0) | Self::Ended => json!({ "metadata": {}, "status": "Success" }),
            Self::Exited(code) => json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
            }),
            Self::Failed(message) => json!({
                "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
                "message": format!("Internal error occurred: error executing command in container: {message}"),
                "details": { "causes": [{ "message": message }] },
            }),
        }
    }
}

async fn over_websocket(connection: Connection, streams: Streams, wanted: Wanted) -> io::Result<()> {
    let (reader, writer) = tokio::io::split(connection);
    let (mut reader, writer) = (websocket::Reader(reader), Mutex::new(websocket::Writer(writer)));
    let (mut receiver, sender) = streams.split();
    // An empty message on the first channel means that the client is connected.
    let first = if wanted.stdout {
        Channel::Stdout
    } else if wanted.stderr {
        Channel::Stderr
    } else {
        Channel::Control
    };
    writer.lock().await.binary(&[&[first as u8]]).await?;
    let outward = async {
        let last = loop {
            match receiver.receive().await? {
                Some((channel @ (Channel::Stdout | Channel::Stderr), bytes)) => {
                    writer.lock().await.binary(&[&[channel as u8], &bytes]).await?;
                }
                Some((Channel::Control, message)) => break Last::of(&message),
                Some(_) => {}
                None => break Last::Ended,
            }
        };
        let mut writer = writer.lock().await;
        writer.binary(&[&[Channel::Control as u8], last.status().to_string().as_bytes()]).await?;
        writer.close().await
    };
    let inward = async {
        let mut input = Input { sender, wanted };
        while let Some(message) = reader.next().await? {
            match message {
                websocket::Message::Data(bytes) => input.message(&bytes).await?,
                websocket::Message::Ping(bytes) => writer.lock().await.pong(&bytes).await?,
                websocket::Message::Close => break,
            }
        }
        Ok(())
    };
    tokio::select! {
        outcome = outward => outcome,
        outcome = inward => outcome,
    }
}

/// What a client sends to a process.
struct Input {
    sender: StreamSender,
    wanted: Wanted,
}

impl Input {
    /// A message of a WebSocket: its first byte is the channel.
    async fn message(&mut self, message: &[u8]) -> io::Result<()> {
        match message.split_first() {
            Some((0, bytes)) if !bytes.is_empty() => self.stdin(bytes).await,
            Some((4, size)) => self.resize(size).await,
            Some((&CLOSE, [0])) => self.close_stdin().await,
            _ => Ok(()),
        }
    }

    async fn stdin(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.wanted.stdin {
            return Ok(());
        }
        self.sender.send(Channel::Stdin, bytes).await
    }

    async fn close_stdin(&mut self) -> io::Result<()> {
        self.sender.send(Channel::Stdin, b"").await
    }

    async fn resize(&mut self, size: &[u8]) -> io::Result<()> {
        // A client that sends something else gets no other size.
        let Ok(size) = serde_json::from_slice::<TerminalSize>(size) else { return Ok(()) };
        self.sender.send(Channel::Resize, &serde_json::to_vec(&size)?).await
    }
}

async fn over_spdy(connection: Connection, streams: Streams, wanted: Wanted) -> io::Result<()> {
    let (sender, mut opened) = mpsc::channel(8);
    let session = async {
        let mut found = open(&mut opened, wanted).await?;
        let (receiver, sender) = streams.split();
        let input = Input { sender, wanted };
        let (stdin, resize) = (found.remove("stdin"), found.remove("resize"));
        tokio::select! {
            outcome = spdy_output(receiver, &found) => outcome?,
            outcome = spdy_input(input, stdin, resize) => outcome?,
        }
        for (_, stream) in found {
            stream.sender.finish().await;
        }
        Ok(())
    };
    let serving = spdy::serve(connection, sender);
    tokio::pin!(serving);
    let outcome = tokio::select! {
        outcome = &mut serving => return outcome,
        outcome = session => outcome,
    };
    // What was said last has to reach the client, which then goes.
    let _ = tokio::time::timeout(LEAVE_TIMEOUT, serving).await;
    outcome
}

/// Waits for the streams that a client wants.
async fn open(opened: &mut mpsc::Receiver<Stream>, wanted: Wanted) -> io::Result<HashMap<String, Stream>> {
    let expected = [
        (true, "error"),
        (wanted.stdin, "stdin"),
        (wanted.stdout, "stdout"),
        (wanted.stderr, "stderr"),
        (wanted.tty, "resize"),
    ];
    let count = expected.iter().filter(|(is_wanted, _)| *is_wanted).count();
    let mut found = HashMap::new();
    let wait = async {
        while found.len() < count {
            let Some(stream) = opened.recv().await else {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            };
            let kind = stream.header("streamtype").unwrap_or_default().to_owned();
            found.insert(kind, stream);
        }
        Ok(())
    };
    tokio::time::timeout(OPEN_TIMEOUT, wait)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(found)
}

async fn spdy_output(mut receiver: StreamReceiver, found: &HashMap<String, Stream>) -> io::Result<()> {
    let last = loop {
        let (name, bytes) = match receiver.receive().await? {
            Some((Channel::Stdout, bytes)) => ("stdout", bytes),
            Some((Channel::Stderr, bytes)) => ("stderr", bytes),
            Some((Channel::Control, message)) => break Last::of(&message),
            Some(_) => continue,
            None => break Last::Ended,
        };
        if let Some(stream) = found.get(name) {
            stream.sender.send(bytes.into()).await?;
        }
    };
    match found.get("error") {
        Some(stream) => stream.sender.send(last.status().to_string().into()).await,
        None => Ok(()),
    }
}

/// Copies input until the process ends, which ends the other direction.
async fn spdy_input(
    mut input: Input,
    mut stdin: Option<Stream>,
    mut resize: Option<Stream>,
) -> io::Result<()> {
    async fn next(stream: &mut Option<Stream>) -> Option<Bytes> {
        match stream {
            Some(stream) => stream.receiver.recv().await,
            None => std::future::pending().await,
        }
    }
    loop {
        tokio::select! {
            bytes = next(&mut stdin) => {
                if let Some(bytes) = bytes {
                    input.stdin(&bytes).await?;
                } else {
                    stdin = None;
                    input.close_stdin().await?;
                }
            }
            size = next(&mut resize) => match size {
                Some(size) => input.resize(&size).await?,
                None => resize = None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_is_a_status() {
        assert_eq!(Last::Exited(0).status()["status"], "Success");
        assert_eq!(Last::Ended.status()["status"], "Success");
        let failed = Last::Exited(7).status();
        assert_eq!(failed["reason"], "NonZeroExitCode");
        assert_eq!(failed["details"]["causes"][0], json!({ "reason": "ExitCode", "message": "7" }));
        let broken = Last::of(br#"{"failed":{"failure":"start","message":"no such file"}}"#).status();
        assert!(broken["message"].as_str().unwrap().ends_with("no such file"), "{broken}");
    }
}
