//! The output of a process: written to its log, if it has one, and sent to everybody who is attached.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::log::Log;
use super::protocol::{Channel, write_frame};

/// An attached client that takes longer to read is disconnected: it must not stop the container.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the output of one process goes.
#[derive(Default)]
pub(super) struct Output(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    log: Option<Log>,
    attached: Vec<UnixStream>,
    is_finished: bool,
}

impl Output {
    /// The output of a container.
    pub(super) fn logged(log: Log) -> Self {
        Self(Mutex::new(Inner { log: Some(log), ..Inner::default() }))
    }

    /// Sends all further output to a client as well; returns false if there will be none.
    pub(super) fn attach(&self, client: UnixStream) -> io::Result<bool> {
        client.set_write_timeout(Some(PATIENCE))?;
        let mut inner = self.lock();
        if !inner.is_finished {
            inner.attached.push(client);
        }
        Ok(!inner.is_finished)
    }

    /// Takes what the process wrote. A log that cannot be written, as on a full disk, does not stop the process.
    pub(super) fn write(&self, channel: Channel, bytes: &[u8]) {
        let mut inner = self.lock();
        if let Some(log) = &mut inner.log {
            drop(log.write(channel, bytes, super::now()));
        }
        inner.attached.retain_mut(|client| write_frame(client, channel, bytes).is_ok());
    }

    /// The process is gone: its log is complete.
    pub(super) fn finish_log(&self) {
        if let Some(log) = &mut self.lock().log {
            drop(log.finish(super::now()));
        }
    }

    /// The process is gone: clients see the end of the streams.
    pub(super) fn finish(&self) {
        let mut inner = self.lock();
        inner.is_finished = true;
        for client in inner.attached.drain(..) {
            drop(client.shutdown(std::net::Shutdown::Write));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
