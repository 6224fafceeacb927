//! Waiting for processes that are not children of this one.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A running process, which no other process is taken for when it has ended.
pub(crate) struct Running(OwnedFd);

impl Running {
    /// The process of an identifier; `None` if it has ended already.
    pub(crate) fn find(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    /// Returns when the process has ended, or after this time.
    pub(crate) async fn ended(self, at_most: Duration) {
        let wait = move || {
            let timeout = Timespec::try_from(at_most).ok();
            let mut ended = [PollFd::new(&self.0, PollFlags::IN)];
            // Readable when the process has ended.
            rustix::io::retry_on_intr(|| poll(&mut ended, timeout.as_ref()))
        };
        // An error would mean that it cannot be waited for.
        let _ = tokio::task::spawn_blocking(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_process_is_seen() {
        let mut child =
            tokio::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let running = Running::find(child.id().unwrap()).unwrap();
        drop(child.stdin.take());
        let waiting = running.ended(Duration::from_mins(1));
        let (status, ()) = futures::future::join(child.wait(), waiting).await;
        assert!(status.unwrap().success());
        assert!(Running::find(u32::MAX).is_none());
    }
}
