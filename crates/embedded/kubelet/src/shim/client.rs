//! The kubelet's side of a shim's socket.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Command;

use super::protocol::{
    Channel, ContainerConfig, ContainerState, ExecConfig, FRAME_LIMIT, Failure, Request, Response,
    write_frame,
};
use super::{COMMAND, SOCKET, SandboxConfig};

/// Why a shim did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// It cannot be reached.
    #[error("the shim of the pod cannot be reached: {0}")]
    Gone(#[from] io::Error),
    /// It could not do it.
    #[error("{message}")]
    Failed {
        /// What failed.
        failure: Failure,
        /// Why.
        message: String,
    },
}

/// The shim of one pod.
#[derive(Clone, Debug)]
pub struct Shim {
    directory: PathBuf,
}

impl Shim {
    /// Starts the shim of a new pod; `program` is the one that calls [`crate::hidden_command`]. Returns the process
    /// identifier of the shim, whose network namespace is that of the pod.
    pub async fn start(
        program: &Path,
        directory: &Path,
        sandbox: &SandboxConfig,
    ) -> Result<(Self, u32), ShimError> {
        let mut child = Command::new(program)
            .arg(COMMAND)
            .arg(directory)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = child.id().ok_or_else(|| io::Error::other("it ended at once"))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&message(sandbox)?).await?;
        }
        let mut first = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut first).await?;
        }
        if first != "ready\n" {
            let message = first.trim_end().to_owned();
            return Err(ShimError::Failed { failure: Failure::Create, message });
        }
        // It runs on when the handle is dropped; Tokio reaps it when it ends.
        Ok((Self { directory: directory.to_owned() }, pid))
    }

    /// The shim of a pod that an earlier kubelet started. It may be gone.
    pub fn of(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// The containers and how they are.
    pub async fn status(&self) -> Result<BTreeMap<String, ContainerState>, ShimError> {
        match self.request(&Request::Status).await? {
            Response::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    /// Reports the containers now and after every change.
    pub async fn watch(&self) -> Result<Watch, ShimError> {
        Ok(Watch(self.connect(&Request::Watch).await?))
    }

    /// Starts a container.
    pub async fn start_container(&self, config: ContainerConfig) -> Result<(), ShimError> {
        self.request(&Request::Start(Box::new(config))).await.and_then(done)
    }

    /// Sends a signal to the first process of a container.
    pub async fn signal(&self, container: &str, signal: i32) -> Result<(), ShimError> {
        self.request(&Request::Signal { container: container.to_owned(), signal }).await.and_then(done)
    }

    /// Runs a command in a container. The first frame on [`Channel::Control`] says how it ended.
    pub async fn exec(&self, config: ExecConfig) -> Result<Streams, ShimError> {
        Ok(Streams(self.connect(&Request::Exec(config)).await?))
    }

    /// Connects to the streams of a container.
    pub async fn attach(&self, container: &str, stdin: bool) -> Result<Streams, ShimError> {
        let mut stream = self.connect(&Request::Attach { container: container.to_owned(), stdin }).await?;
        done(response(&mut stream).await?)?;
        Ok(Streams(stream))
    }

    /// Connects to a port on the loopback interface of the pod.
    pub async fn forward(&self, port: u16) -> Result<UnixStream, ShimError> {
        let mut stream = self.connect(&Request::Forward { port }).await?;
        done(response(&mut stream).await?)?;
        Ok(stream)
    }

    /// Kills everything in the pod.
    pub async fn shut_down(&self) -> Result<(), ShimError> {
        self.request(&Request::Shutdown).await.and_then(done)
    }

    async fn request(&self, request: &Request) -> Result<Response, ShimError> {
        let mut stream = self.connect(request).await?;
        Ok(response(&mut stream).await?)
    }

    async fn connect(&self, request: &Request) -> Result<UnixStream, ShimError> {
        // A path of a socket has at most 107 bytes; the one through a handle is always short enough.
        let directory = std::fs::File::open(&self.directory)?;
        let short = format!("/proc/self/fd/{}/{SOCKET}", std::os::fd::AsRawFd::as_raw_fd(&directory));
        let mut stream = UnixStream::connect(short).await?;
        stream.write_all(&message(request)?).await?;
        Ok(stream)
    }
}

/// Successive states of a pod's containers.
#[derive(Debug)]
pub struct Watch(UnixStream);

impl Watch {
    /// The next state; an error if the shim is gone.
    pub async fn next(&mut self) -> Result<BTreeMap<String, ContainerState>, ShimError> {
        match response(&mut self.0).await? {
            Response::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }
}

/// The streams of a process.
#[derive(Debug)]
pub struct Streams(UnixStream);

impl Streams {
    /// The next output; `None` when the process is gone.
    pub async fn receive(&mut self) -> io::Result<Option<(Channel, Vec<u8>)>> {
        frame(&mut self.0).await
    }

    /// Sends input, or a new size of the terminal. An empty input closes the standard input.
    pub async fn send(&mut self, channel: Channel, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + 5);
        write_frame(&mut bytes, channel, payload)?;
        self.0.write_all(&bytes).await
    }
}

impl Streams {
    /// Both directions, for those who use them at the same time.
    pub fn split(self) -> (StreamReceiver, StreamSender) {
        let (reader, writer) = self.0.into_split();
        (StreamReceiver(reader), StreamSender(writer))
    }
}

/// The output of a process.
#[derive(Debug)]
pub struct StreamReceiver(OwnedReadHalf);

impl StreamReceiver {
    /// The next output; `None` when the process is gone.
    pub async fn receive(&mut self) -> io::Result<Option<(Channel, Vec<u8>)>> {
        frame(&mut self.0).await
    }
}

/// The input of a process.
#[derive(Debug)]
pub struct StreamSender(OwnedWriteHalf);

impl StreamSender {
    /// Sends input, or a new size of the terminal. An empty input closes the standard input.
    pub async fn send(&mut self, channel: Channel, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + 5);
        write_frame(&mut bytes, channel, payload)?;
        self.0.write_all(&bytes).await
    }
}

fn message(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, Channel::Control, &serde_json::to_vec(message)?)?;
    Ok(bytes)
}

async fn response(stream: &mut UnixStream) -> io::Result<Response> {
    match frame(stream).await? {
        Some((Channel::Control, payload)) => Ok(serde_json::from_slice(&payload)?),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

async fn frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(Channel, Vec<u8>)>> {
    let mut channel = [0; 1];
    if stream.read(&mut channel).await? == 0 {
        return Ok(None);
    }
    let length = usize::try_from(stream.read_u32().await?).map_err(io::Error::other)?;
    if length > FRAME_LIMIT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    Ok(Some((Channel::try_from(channel[0])?, payload)))
}

fn done(response: Response) -> Result<(), ShimError> {
    match response {
        Response::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(response: &Response) -> ShimError {
    match response {
        Response::Failed { failure, message } => {
            ShimError::Failed { failure: *failure, message: message.clone() }
        }
        other => ShimError::Gone(io::Error::other(format!("unexpected response {other:?}"))),
    }
}
