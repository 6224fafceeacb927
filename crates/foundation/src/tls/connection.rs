//! Whether a connection is idle, and since when.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Limits;

/// How long a connection that is closed for being idle may take to say goodbye.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The activity of a connection, shared by the accept loop, the connection and its requests.
pub(super) struct Connection {
    activity: Mutex<Activity>,
    evicted: CancellationToken,
}

#[derive(Clone, Copy)]
struct Activity {
    requests_in_progress: usize,
    had_request: bool,
    /// When the last request ended, or the connection was accepted.
    since: Instant,
}

impl Connection {
    pub(super) fn new() -> Self {
        let activity = Activity { requests_in_progress: 0, had_request: false, since: Instant::now() };
        Self { activity: Mutex::new(activity), evicted: CancellationToken::new() }
    }

    /// Marks a request as in progress until the guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> InProgress {
        let mut activity = self.activity.lock();
        activity.requests_in_progress += 1;
        activity.had_request = true;
        InProgress(Arc::clone(self))
    }

    /// Since when no request is in progress; `None` while one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let activity = *self.activity.lock();
        (activity.requests_in_progress == 0).then_some(activity.since)
    }

    /// Resolves once no request has been in progress for longer than the limits allow.
    pub(super) async fn idle_too_long(&self, limits: &Limits) {
        loop {
            let activity = *self.activity.lock();
            let now = Instant::now();
            let timeout = if activity.had_request { limits.idle_timeout } else { limits.header_timeout };
            let is_busy = activity.requests_in_progress > 0;
            let deadline = if is_busy { now } else { activity.since } + timeout;
            if deadline <= now {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }

    /// Closes the connection in favour of a new one.
    pub(super) fn evict(&self) {
        self.evicted.cancel();
    }

    pub(super) fn is_evicted(&self) -> bool {
        self.evicted.is_cancelled()
    }

    /// Resolves when the connection is to be closed in favour of a new one.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

/// A request in progress.
pub(super) struct InProgress(Arc<Connection>);

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut activity = self.0.activity.lock();
        activity.requests_in_progress -= 1;
        activity.since = Instant::now();
    }
}

/// The body of a response: its request is in progress until the last of it is sent.
pub(super) struct TrackedBody<B> {
    body: B,
    _in_progress: InProgress,
}

impl<B> TrackedBody<B> {
    pub(super) fn new(body: B, in_progress: InProgress) -> Self {
        Self { body, _in_progress: in_progress }
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
