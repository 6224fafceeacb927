//! What the kubelet and the shim of a pod say to each other over the shim's Unix socket.
//!
//! A connection carries one request. Everything is a frame: a channel, a length and that many bytes. Requests and
//! responses are JSON on [`Channel::Control`]; `exec` and `attach` go on with the streams of the process, and a
//! forwarded port with plain bytes.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The longest frame. Longer payloads are sent in pieces.
pub const FRAME_LIMIT: usize = 1 << 20;

/// What a frame belongs to. The first three have the numbers of the file descriptors, as in `kubectl exec`'s protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Channel {
    /// Towards the process.
    Stdin = 0,
    /// From the process.
    Stdout = 1,
    /// From the process.
    Stderr = 2,
    /// Requests, responses, the exit of a process.
    Control = 3,
    /// A [`TerminalSize`] for the terminal of the process.
    Resize = 4,
}

impl TryFrom<u8> for Channel {
    type Error = io::Error;

    fn try_from(number: u8) -> io::Result<Self> {
        Ok(match number {
            0 => Self::Stdin,
            1 => Self::Stdout,
            2 => Self::Stderr,
            3 => Self::Control,
            4 => Self::Resize,
            _ => return Err(invalid(format!("unknown channel {number}"))),
        })
    }
}

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// What the kubelet wants.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// The containers and how they are: [`Response::Status`].
    Status,
    /// Sends the status now and after every change, until the connection is closed.
    Watch,
    /// Starts a container: [`Response::Done`] when its command was executed.
    Start(Box<ContainerConfig>),
    /// Sends a signal to the first process of a container.
    Signal {
        /// The container.
        container: String,
        /// The number of the signal.
        signal: i32,
    },
    /// Runs a command in a running container.
    Exec(ExecConfig),
    /// Connects to the streams of a running container.
    Attach {
        /// The container.
        container: String,
        /// Whether frames on [`Channel::Stdin`] will follow.
        stdin: bool,
    },
    /// Connects to a port on the pod's loopback interface; plain bytes follow the response.
    Forward {
        /// The port.
        port: u16,
    },
    /// Kills everything and ends.
    Shutdown,
}

/// What the shim answers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Response {
    /// It was done, or streams follow.
    Done,
    /// All containers by name: the newest instance of each.
    Status(BTreeMap<String, ContainerState>),
    /// The process of an `exec` ended.
    Exited(Exit),
    /// It could not be done.
    Failed {
        /// What failed.
        failure: Failure,
        /// Why, for the status of the container.
        message: String,
    },
}

/// What failed, where that decides what a pod's status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Failure {
    /// The file system of the container could not be prepared.
    Create,
    /// The command could not be executed.
    Start,
    /// No such container runs.
    NotRunning,
    /// Everything else.
    Other,
}

/// The newest instance of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerState {
    /// Its identifier, as in `containerID`.
    pub id: String,
    /// How many instances there were before.
    pub attempt: u32,
    /// The process identifier of its first process, as the host sees it.
    pub pid: i32,
    /// When its command was executed.
    pub started_at: Timestamp,
    /// How it ended; `None` while it runs.
    pub exit: Option<Exit>,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// Its exit code; 128 and the signal if one killed it.
    pub code: i32,
    /// The signal that killed it, or 0.
    pub signal: i32,
    /// When.
    pub finished_at: Timestamp,
    /// Whether the kernel killed it because the container had used up its memory.
    pub is_out_of_memory: bool,
}

/// A container to start. Paths are those of the host unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerConfig {
    /// Its name in the pod.
    pub name: String,
    /// Its identifier.
    pub id: String,
    /// How many instances there were before.
    pub attempt: u32,
    /// The directory of this instance.
    pub directory: PathBuf,
    /// Where the log of this instance is written.
    pub log: PathBuf,
    /// What to run.
    pub process: ProcessConfig,
    /// What it sees of the file system.
    pub root: RootConfig,
    /// Directories of control groups to join.
    pub cgroups: Vec<PathBuf>,
    /// Who is killed first when the machine runs out of memory.
    pub oom_score_adj: i32,
    /// Whether it keeps its standard input open for `attach`.
    pub stdin: bool,
    /// The container whose processes it sees, and which sees its own.
    #[serde(default)]
    pub processes_of: Option<String>,
}

/// A process in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessConfig {
    /// Program and arguments. The program is searched in `PATH` of `environment`.
    pub command: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// Where it starts, as the container sees it.
    pub working_directory: PathBuf,
    /// Who it is.
    pub identity: Identity,
    /// Whether it has a terminal.
    pub tty: bool,
}

/// Who a process is, and what it may do beyond that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Capabilities by their number in Linux.
    pub capabilities: Vec<u32>,
    /// Whether executing a file may give it more rights.
    pub may_gain_privileges: bool,
}

/// The file system of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootConfig {
    /// Mounted in this order.
    pub mounts: Vec<Mount>,
    /// Files and directories of the host that are not to be seen, as the container sees them.
    pub masked: Vec<PathBuf>,
    /// Whether nothing but volumes can be written.
    pub is_read_only: bool,
}

/// One mount of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Where, as the container sees it.
    pub target: PathBuf,
    /// What.
    pub source: MountSource,
    /// Whether it can only be read.
    pub is_read_only: bool,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MountSource {
    /// A file or a directory with everything mounted below it.
    Bind(PathBuf),
    /// Something below a volume; an empty directory is made if nothing is there. Links, which the containers of the pod
    /// may have made, are followed in the volume only.
    Part {
        /// The volume.
        volume: PathBuf,
        /// The path in it.
        path: PathBuf,
    },
    /// Memory, of at most this many bytes.
    Memory(Option<u64>),
    /// A directory of the host with changes kept in a directory of the container.
    Overlay {
        /// The host's directory, never changed.
        lower: PathBuf,
        /// Where changes are kept; a sibling directory serves the kernel.
        upper: PathBuf,
    },
}

/// A command to run in a running container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecConfig {
    /// The container, whose environment, user and working directory it has.
    pub container: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Whether frames on [`Channel::Stdin`] will follow. An empty one closes the standard input.
    pub stdin: bool,
}

/// Writes one frame.
pub fn write_frame(to: &mut impl Write, channel: Channel, payload: &[u8]) -> io::Result<()> {
    for piece in pieces(payload) {
        let length = u32::try_from(piece.len()).map_err(|_| invalid("a frame is too long".into()))?;
        let mut frame = Vec::with_capacity(5 + piece.len());
        frame.push(channel as u8);
        frame.extend(length.to_be_bytes());
        frame.extend(piece);
        to.write_all(&frame)?;
    }
    Ok(())
}

/// An empty payload is a frame too: the end of a stream.
fn pieces(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    let empty = payload.is_empty().then_some(payload);
    empty.into_iter().chain(payload.chunks(FRAME_LIMIT))
}

/// Reads one frame; `None` at the end of the stream.
pub fn read_frame(from: &mut impl Read) -> io::Result<Option<(Channel, Vec<u8>)>> {
    let mut channel = [0; 1];
    if from.read(&mut channel)? == 0 {
        return Ok(None);
    }
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(|error| invalid(error.to_string()))?;
    if length > FRAME_LIMIT {
        return Err(invalid(format!("a frame of {length} bytes is too long")));
    }
    let mut payload = vec![0; length];
    from.read_exact(&mut payload)?;
    Ok(Some((Channel::try_from(channel[0])?, payload)))
}

/// Writes a request or a response.
pub fn write_message(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    write_frame(to, Channel::Control, &serde_json::to_vec(message)?)
}

/// Reads a request or a response.
pub fn read_message<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    match read_frame(from)? {
        Some((Channel::Control, payload)) => Ok(serde_json::from_slice(&payload)?),
        Some((channel, _)) => Err(invalid(format!("a message was expected, not {channel:?}"))),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were_sent() {
        let long = vec![7; FRAME_LIMIT + 3];
        let mut wire = Vec::new();
        write_frame(&mut wire, Channel::Stdout, b"out").unwrap();
        write_frame(&mut wire, Channel::Stdin, b"").unwrap();
        write_frame(&mut wire, Channel::Stderr, &long).unwrap();
        let mut wire = wire.as_slice();
        assert_eq!(read_frame(&mut wire).unwrap(), Some((Channel::Stdout, b"out".to_vec())));
        assert_eq!(read_frame(&mut wire).unwrap(), Some((Channel::Stdin, Vec::new())));
        assert_eq!(read_frame(&mut wire).unwrap(), Some((Channel::Stderr, vec![7; FRAME_LIMIT])));
        assert_eq!(read_frame(&mut wire).unwrap(), Some((Channel::Stderr, vec![7; 3])));
        assert_eq!(read_frame(&mut wire).unwrap(), None);
    }

    #[test]
    fn hostile_frames_are_rejected_before_memory_is_taken() {
        let huge = [1, 0xff, 0xff, 0xff, 0xff];
        assert!(read_frame(&mut huge.as_slice()).is_err());
        let unknown = [9, 0, 0, 0, 0];
        assert!(read_frame(&mut unknown.as_slice()).is_err());
        let cut = [1, 0, 0, 0, 4, 1];
        assert!(read_frame(&mut cut.as_slice()).is_err());
    }
}
