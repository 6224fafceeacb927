//! The client side of MySQL's protocol: packets, authentication, commands.

use std::io;
use std::time::Duration;

use aws_lc_rs::digest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::settings::{Address, MySqlSettings};
use super::values::{Column, Reader, put_parameters, read_row};
use crate::store::StoreError;
use crate::store::sql::{Row, Value};

/// What this client can do: the protocol since MySQL 4.1, plug-ins of authentication, several statements in one text.
const CAPABILITIES: u32 = 0x1 | 0x4 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x8_0000;
/// utf8mb4 with its general collation, which every server has.
const CHARSET: u8 = 45;
/// A packet holds less than this; what is longer continues in the next one.
const PACKET: usize = 0xff_ffff;
/// Results beyond this are refused: the largest column holds 16 MiB, and a list has many.
const MAX_RESULT: usize = 1024 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// In the status of an answer: another result follows.
const MORE_RESULTS: u16 = 0x8;

const QUERY: u8 = 0x03;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
const CLOSE: u8 = 0x19;

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection after its handshake.
pub(super) struct Wire {
    stream: Stream,
    sequence: u8,
    received: Vec<u8>,
    /// Whether an exchange broke off in the middle.
    is_broken: bool,
    /// The longest command that the server takes: it closes the connection at a longer one.
    max_packet: usize,
}

fn unavailable(error: impl std::fmt::Display) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

impl Wire {
    pub(super) async fn connect(settings: &MySqlSettings) -> Result<Self, StoreError> {
        let connecting = async {
            let stream = match &settings.address {
                Address::Tcp(host, port) => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unavailable)?;
                    // Requests are complete when they are written.
                    let _ = stream.set_nodelay(true);
                    Stream::Tcp(stream)
                }
                Address::Unix(path) => Stream::Unix(UnixStream::connect(path).await.map_err(unavailable)?),
            };
            let mut wire =
                Self { stream, sequence: 0, received: Vec::new(), is_broken: false, max_packet: PACKET };
            wire.authenticate(settings).await?;
            wire.learn_limits().await?;
            Ok(wire)
        };
        let late = |_| StoreError::Unavailable("MySQL did not answer in time".to_owned());
        tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.map_err(late)?
    }

    async fn learn_limits(&mut self) -> Result<(), StoreError> {
        let statement = self.prepare("SELECT @@max_allowed_packet").await?;
        let rows = self.execute(statement, &[]).await?;
        let limit = rows.first().and_then(|row| row.int(0)).and_then(|limit| usize::try_from(limit).ok());
        self.max_packet = limit.unwrap_or(PACKET);
        self.close_statement(statement).await
    }

    /// Whether it can be used for another exchange: nothing is left over, and the server has not closed it.
    pub(super) fn is_usable(&self) -> bool {
        let mut byte = [0];
        let read = match &self.stream {
            Stream::Tcp(stream) => stream.try_read(&mut byte),
            Stream::Unix(stream) => stream.try_read(&mut byte),
        };
        !self.is_broken && read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    async fn authenticate(&mut self, settings: &MySqlSettings) -> Result<(), StoreError> {
        self.receive().await?;
        let mut reader = Reader(&self.received);
        let version = reader.byte()?;
        if version == 0xff {
            return Err(failure(&self.received));
        }
        if version != 10 {
            return Err(StoreError::Other(format!("MySQL speaks version {version} of its protocol, not 10")));
        }
        reader.terminated();
        reader.long()?;
        let mut challenge = reader.bytes(8)?.to_vec();
        // Filler, capabilities, character set, status, more capabilities.
        reader.bytes(1 + 2 + 1 + 2 + 2)?;
        let length = usize::from(reader.byte()?);
        reader.bytes(10)?;
        challenge.extend(reader.bytes(length.saturating_sub(8).max(13))?);
        challenge.truncate(20);
        let plugin = String::from_utf8_lossy(reader.terminated()).into_owned();
        let proof = prove(&plugin, &settings.password, &challenge);

        let mut answer = CAPABILITIES.to_le_bytes().to_vec();
        answer.extend(u32::try_from(PACKET).unwrap_or(u32::MAX).to_le_bytes());
        answer.push(CHARSET);
        answer.extend([0; 23]);
        answer.extend(settings.user.as_bytes());
        answer.push(0);
        answer.push(u8::try_from(proof.len()).unwrap_or_default());
        answer.extend(&proof);
        answer.extend(settings.database.as_bytes());
        answer.push(0);
        answer.extend(plugin.as_bytes());
        answer.push(0);
        self.send(&answer).await?;
        self.finish_authentication(settings).await
    }

    async fn finish_authentication(&mut self, settings: &MySqlSettings) -> Result<(), StoreError> {
        loop {
            self.receive().await?;
            match self.received.split_first() {
                Some((0x00, _)) => return Ok(()),
                // The server wants another plug-in.
                Some((0xfe, rest)) => {
                    let mut reader = Reader(rest);
                    let plugin = String::from_utf8_lossy(reader.terminated()).into_owned();
                    let challenge = reader.terminated();
                    let proof = match plugin.as_str() {
                        "mysql_native_password" | "caching_sha2_password" => {
                            prove(&plugin, &settings.password, challenge)
                        }
                        other => {
                            let why =
                                format!("MySQL wants to authenticate by {other}, which is not supported");
                            return Err(StoreError::Other(format!(
                                "{why}: give the user mysql_native_password or caching_sha2_password"
                            )));
                        }
                    };
                    self.send(&proof).await?;
                }
                // The password is right, and known to the server.
                Some((0x01, [0x03])) => {}
                // It is not known yet, and must be sent itself, which nobody else may read.
                Some((0x01, [0x04])) => {
                    if !matches!(self.stream, Stream::Unix(_)) {
                        let why = "MySQL wants the password itself, and the connection is not encrypted";
                        return Err(StoreError::Other(format!(
                            "{why}: log in once on the server's machine, connect by unix(…), or use mysql_native_password"
                        )));
                    }
                    let mut password = settings.password.clone().into_bytes();
                    password.push(0);
                    self.send(&password).await?;
                }
                _ => return Err(failure(&self.received)),
            }
        }
    }

    /// Runs statements without parameters; their results are dropped.
    pub(super) async fn batch(&mut self, text: &str) -> Result<(), StoreError> {
        self.command(QUERY, text.as_bytes()).await?;
        loop {
            self.receive().await?;
            let status = match self.received.first() {
                Some(0x00) => self.read_ok()?.1,
                Some(0xff) => return Err(failure(&self.received)),
                _ => {
                    self.skip_until_end().await?;
                    self.skip_until_end().await?
                }
            };
            if status & MORE_RESULTS == 0 {
                return Ok(());
            }
        }
    }

    pub(super) async fn prepare(&mut self, text: &str) -> Result<u32, StoreError> {
        self.command(PREPARE, text.as_bytes()).await?;
        self.receive().await?;
        if self.received.first() != Some(&0x00) {
            return Err(failure(&self.received));
        }
        let mut reader = Reader(self.received.get(1..).unwrap_or_default());
        let (statement, columns, parameters) = (reader.long()?, reader.short()?, reader.short()?);
        for definitions in [parameters, columns] {
            if definitions > 0 {
                self.skip_until_end().await?;
            }
        }
        Ok(statement)
    }

    /// Runs a prepared statement. Without a result, the id of a row it has inserted is the result.
    pub(super) async fn execute(
        &mut self,
        statement: u32,
        parameters: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let mut content = statement.to_le_bytes().to_vec();
        content.extend([0, 1, 0, 0, 0]);
        put_parameters(&mut content, parameters);
        self.command(EXECUTE, &content).await?;
        self.receive().await?;
        let count = match self.received.first() {
            Some(0x00) => {
                let (id, _) = self.read_ok()?;
                let id = i64::try_from(id).unwrap_or_default();
                return Ok(if id == 0 { Vec::new() } else { vec![Row(vec![Value::Int(id)])] });
            }
            Some(0xff) => return Err(failure(&self.received)),
            _ => Reader(&self.received).length()?,
        };
        let mut columns = Vec::new();
        for _ in 0..count {
            self.receive().await?;
            columns.push(Column::read(&self.received)?);
        }
        self.receive().await?;
        let mut rows = Vec::new();
        loop {
            self.receive().await?;
            match self.received.first() {
                Some(0xff) => return Err(failure(&self.received)),
                Some(0xfe) if self.received.len() < 9 => return Ok(rows),
                _ => rows.push(read_row(&self.received, &columns)?),
            }
        }
    }

    /// Forgets a statement; the server does not answer.
    pub(super) async fn close_statement(&mut self, statement: u32) -> Result<(), StoreError> {
        self.command(CLOSE, &statement.to_le_bytes()).await
    }

    /// The id of an inserted row, and the status.
    fn read_ok(&self) -> Result<(u64, u16), StoreError> {
        let mut reader = Reader(self.received.get(1..).unwrap_or_default());
        reader.length()?;
        Ok((reader.length()?, reader.short()?))
    }

    /// Skips packets up to the one that ends a part of a result, and returns its status.
    async fn skip_until_end(&mut self) -> Result<u16, StoreError> {
        loop {
            self.receive().await?;
            match self.received.as_slice() {
                [0xff, ..] => return Err(failure(&self.received)),
                [0xfe, _, _, low, high, ..] if self.received.len() < 9 => {
                    return Ok(u16::from_le_bytes([*low, *high]));
                }
                _ => {}
            }
        }
    }

    async fn command(&mut self, command: u8, content: &[u8]) -> Result<(), StoreError> {
        if content.len() >= self.max_packet {
            let why = "Error 1153 (08S01): Got a packet bigger than 'max_allowed_packet' bytes";
            return Err(StoreError::Data(why.to_owned()));
        }
        self.sequence = 0;
        let mut packet = Vec::with_capacity(content.len() + 1);
        packet.push(command);
        packet.extend(content);
        self.send(&packet).await
    }

    async fn send(&mut self, packet: &[u8]) -> Result<(), StoreError> {
        let mut bytes = Vec::with_capacity(packet.len() + 4);
        let mut rest = packet;
        loop {
            let (part, after) = rest.split_at(rest.len().min(PACKET));
            let length = u32::try_from(part.len()).unwrap_or_default().to_le_bytes();
            bytes.extend(&length[..3]);
            bytes.push(self.sequence);
            self.sequence = self.sequence.wrapping_add(1);
            bytes.extend(part);
            rest = after;
            // A full packet is followed by another, which may be empty.
            if part.len() < PACKET {
                break;
            }
        }
        self.is_broken = true;
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(&bytes).await,
            Stream::Unix(stream) => stream.write_all(&bytes).await,
        }
        .map_err(unavailable)?;
        self.is_broken = false;
        Ok(())
    }

    /// Receives a packet, however many parts it has.
    async fn receive(&mut self) -> Result<(), StoreError> {
        self.is_broken = true;
        self.received.clear();
        loop {
            let mut header = [0; 4];
            self.read_exact(&mut header).await?;
            let [low, middle, high, sequence] = header;
            self.sequence = sequence.wrapping_add(1);
            let length = usize::try_from(u32::from_le_bytes([low, middle, high, 0])).unwrap_or_default();
            let start = self.received.len();
            if start + length > MAX_RESULT {
                return Err(StoreError::Other("MySQL sent more than can be held".to_owned()));
            }
            let mut received = std::mem::take(&mut self.received);
            received.resize(start + length, 0);
            self.read_exact(received.get_mut(start..).unwrap_or_default()).await?;
            self.received = received;
            if length < PACKET {
                break;
            }
        }
        self.is_broken = false;
        Ok(())
    }

    async fn read_exact(&mut self, into: &mut [u8]) -> Result<(), StoreError> {
        let read = match &mut self.stream {
            Stream::Tcp(stream) => stream.read_exact(into).await,
            Stream::Unix(stream) => stream.read_exact(into).await,
        };
        read.map(drop).map_err(|error| StoreError::Unavailable(format!("MySQL is gone: {error}")))
    }
}

/// Proves to know a password without sending it.
fn prove(plugin: &str, password: &str, challenge: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let (algorithm, challenge_first) = match plugin {
        "caching_sha2_password" => (&digest::SHA256, false),
        _ => (&digest::SHA1_FOR_LEGACY_USE_ONLY, true),
    };
    let hash = |parts: &[&[u8]]| {
        let mut context = digest::Context::new(algorithm);
        for part in parts {
            context.update(part);
        }
        context.finish().as_ref().to_vec()
    };
    let once = hash(&[password.as_bytes()]);
    let twice = hash(&[&once]);
    let mask = if challenge_first { hash(&[challenge, &twice]) } else { hash(&[&twice, challenge]) };
    once.iter().zip(mask).map(|(left, right)| left ^ right).collect()
}

/// What an error packet says.
fn failure(packet: &[u8]) -> StoreError {
    let mut reader = Reader(packet.get(1..).unwrap_or_default());
    let code = reader.short().unwrap_or_default();
    let text = String::from_utf8_lossy(reader.0).into_owned();
    // A state of five characters comes before the message, but for errors before the handshake.
    let text = match text.strip_prefix('#').and_then(|text| text.split_at_checked(5)) {
        Some((state, text)) => format!("Error {code} ({state}): {text}"),
        None => format!("Error {code}: {text}"),
    };
    match code {
        // The second is what deadlocks and locks that are not had in time end in: the request can be sent again.
        1062 => StoreError::Duplicate,
        1205 | 1213 => StoreError::Unavailable(text),
        // Connections, accounts, and databases or tables that are gone.
        1040 | 1044 | 1045 | 1046 | 1049 | 1053 | 1146 | 1152..=1161 | 1203 | 1226 => {
            StoreError::Unavailable(text)
        }
        // Values that do not fit.
        1264 | 1292 | 1366 | 1367 | 1406 => StoreError::Data(text),
        _ => StoreError::Other(text),
    }
}

#[cfg(test)]
mod tests {
    use super::{failure, prove};
    use crate::store::StoreError;

    #[test]
    fn passwords_are_proved_not_sent() {
        let challenge = b"01234567890123456789";
        assert_eq!(prove("mysql_native_password", "", challenge), Vec::<u8>::new());
        assert_eq!(prove("mysql_native_password", "secret", challenge).len(), 20);
        assert_eq!(prove("caching_sha2_password", "secret", challenge).len(), 32);
        assert_ne!(
            prove("mysql_native_password", "secret", challenge),
            prove("mysql_native_password", "secret", b"another challenge...")
        );
    }

    #[test]
    fn errors_are_sorted_by_their_numbers() {
        let packet = |code: u16| {
            let mut packet = vec![0xff];
            packet.extend(code.to_le_bytes());
            packet.extend(b"#23000Duplicate entry");
            packet
        };
        assert!(matches!(failure(&packet(1062)), StoreError::Duplicate));
        assert!(
            matches!(failure(&packet(1406)), StoreError::Data(text) if text == "Error 1406 (23000): Duplicate entry")
        );
        assert!(matches!(failure(&packet(1213)), StoreError::Unavailable(_)));
    }
}
