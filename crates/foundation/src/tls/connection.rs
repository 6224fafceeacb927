//! What a connection is doing, and since when.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{BoxError, Limits, pool::ClientClass};

/// How long an idle connection may take to close.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The activity of a connection, shared by the accept loop, the connection and its requests.
pub(super) struct Connection {
    activity: Mutex<Activity>,
    class: Mutex<ClientClass>,
    evicted: CancellationToken,
}

struct Activity {
    /// The requests in progress, by their number.
    in_progress: BTreeMap<u64, RequestInProgress>,
    /// How many requests there were.
    requests: u64,
    /// When the last request ended, or the connection was accepted.
    since: Instant,
}

struct RequestInProgress {
    since: Instant,
    sending: Option<Sending>,
}

/// A response that its client has to read without pausing for long.
struct Sending {
    /// Since when a part of it waits for the client; `None` while the client waits for the next part.
    stalled_since: Option<Instant>,
    /// Drops what is left of it.
    abandon: Box<dyn FnOnce() + Send>,
}

impl Connection {
    pub(super) fn new() -> Self {
        let activity = Activity { in_progress: BTreeMap::new(), requests: 0, since: Instant::now() };
        Self { activity: Mutex::new(activity), class: Mutex::default(), evicted: CancellationToken::new() }
    }

    pub(super) fn class(&self) -> ClientClass {
        *self.class.lock()
    }

    pub(super) fn set_class(&self, class: ClientClass) {
        *self.class.lock() = class;
    }

    /// Marks a request as in progress until the guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> InProgress {
        let mut activity = self.activity.lock();
        activity.requests += 1;
        let number = activity.requests;
        activity.in_progress.insert(number, RequestInProgress { since: Instant::now(), sending: None });
        InProgress { connection: Arc::clone(self), number }
    }

    /// Since when no request is in progress; `None` while one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let activity = self.activity.lock();
        activity.in_progress.is_empty().then_some(activity.since)
    }

    /// When the oldest request in progress began.
    pub(super) fn busy_since(&self) -> Option<Instant> {
        self.activity.lock().in_progress.values().next().map(|request| request.since)
    }

    /// Resolves once no request has been in progress for longer than the limits allow.
    pub(super) async fn idle_too_long(&self, limits: &Limits) {
        passed(|now| {
            let has_had_request = self.activity.lock().requests > 0;
            let timeout = match self.class() {
                ClientClass::Known | ClientClass::Privileged => limits.known_idle_timeout,
                ClientClass::Unknown if has_had_request => limits.idle_timeout,
                ClientClass::Unknown => limits.header_timeout,
            };
            self.idle_since().unwrap_or(now) + timeout
        })
        .await;
    }

    /// Resolves once a request has been in progress for longer than the limits allow.
    pub(super) async fn busy_too_long(&self, limits: &Limits) {
        match limits.request_timeout {
            Some(timeout) => passed(|now| self.busy_since().unwrap_or(now) + timeout).await,
            None => std::future::pending().await,
        }
    }

    /// Abandons responses that their client has stopped reading, as they become too old. Resolves if that leaves the
    /// connection without use, which is so in HTTP/1; in HTTP/2 other requests go on.
    pub(super) async fn stalled_too_long(&self, limits: &Limits, is_http2: bool) {
        loop {
            passed(|now| self.stalled_since().unwrap_or(now) + limits.stall_timeout).await;
            self.abandon_stalled(limits.stall_timeout);
            if !is_http2 {
                return;
            }
        }
    }

    fn stalled_since(&self) -> Option<Instant> {
        let activity = self.activity.lock();
        activity.in_progress.values().filter_map(|request| request.sending.as_ref()?.stalled_since).min()
    }

    fn abandon_stalled(&self, timeout: Duration) {
        let mut activity = self.activity.lock();
        let mut abandoned = Vec::new();
        for request in activity.in_progress.values_mut() {
            let is_late = |since: Instant| since.elapsed() >= timeout;
            if let Some(sending) =
                request.sending.take_if(|sending| sending.stalled_since.is_some_and(is_late))
            {
                abandoned.push(sending.abandon);
            }
        }
        // What is dropped may use this connection.
        drop(activity);
        for abandon in abandoned {
            abandon();
        }
    }

    /// Resolves once a connection that was asked to close has had enough time for it: `goodbye` when it is idle,
    /// and the drain timeout for requests in progress, among them those that arrived when it was asked.
    pub(super) async fn had_time_to_close(&self, goodbye: Duration, limits: &Limits) {
        let asked = Instant::now();
        let drained = asked + limits.drain_timeout;
        passed(|_| self.idle_since().map_or(drained, |since| (since.max(asked) + goodbye).min(drained)))
            .await;
    }

    /// Closes the connection in favour of a new one.
    pub(super) fn evict(&self) {
        self.evicted.cancel();
    }

    /// Resolves when the connection is to be closed in favour of a new one.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

/// Resolves once a deadline that can move has passed.
async fn passed(deadline: impl Fn(Instant) -> Instant) {
    loop {
        let now = Instant::now();
        let deadline = deadline(now);
        if deadline <= now {
            return;
        }
        tokio::time::sleep_until(deadline).await;
    }
}

/// A request in progress.
pub(super) struct InProgress {
    connection: Arc<Connection>,
    number: u64,
}

impl InProgress {
    fn update(&self, change: impl FnOnce(&mut RequestInProgress)) {
        if let Some(request) = self.connection.activity.lock().in_progress.get_mut(&self.number) {
            change(request);
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut activity = self.connection.activity.lock();
        activity.in_progress.remove(&self.number);
        activity.since = Instant::now();
    }
}

/// The body of a response: its request is in progress until the last of it is sent.
pub(super) struct TrackedBody<B> {
    /// `None` once it is abandoned.
    body: Arc<Mutex<Option<B>>>,
    in_progress: InProgress,
}

impl<B: Send + 'static> TrackedBody<B> {
    /// A body that is abandoned if its client stops reading, unless it is long-running.
    pub(super) fn new(body: B, in_progress: InProgress, is_long_running: bool) -> Self {
        let body = Arc::new(Mutex::new(Some(body)));
        if !is_long_running {
            let abandoned = Arc::clone(&body);
            let abandon = Box::new(move || {
                let rest = abandoned.lock().take();
                drop(rest);
            });
            in_progress.update(|request| request.sending = Some(Sending { stalled_since: None, abandon }));
        }
        Self { body, in_progress }
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B>
where
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut body = self.body.lock();
        let Some(body) = body.as_mut() else {
            return Poll::Ready(Some(Err("the client stopped reading the response".into())));
        };
        let polled = Pin::new(body).poll_frame(context);
        let stalled_since = matches!(polled, Poll::Ready(Some(_))).then(Instant::now);
        self.in_progress.update(|request| {
            if let Some(sending) = &mut request.sending {
                sending.stalled_since = stalled_since;
            }
        });
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.lock().as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.lock().as_ref().map(Body::size_hint).unwrap_or_default()
    }
}
