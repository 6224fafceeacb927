//! Contact with the API server: an outage is logged when it begins and when it ends, not once per request.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::Error;

/// How long requests fail before that is an outage. A server that restarts refuses some requests while it still responds
/// to others.
const GRACE: Duration = Duration::from_secs(1);

/// Whether the API server responds, as far as the requests of this process show.
#[derive(Clone, Debug)]
pub struct Contact(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    address: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the last response arrived, whatever it said.
    responded: Option<Instant>,
    /// Set while no request gets a response.
    silence: Option<Silence>,
}

#[derive(Clone, Copy, Debug)]
struct Silence {
    /// When the first request without a response was sent.
    since: Instant,
    /// It lasts, and was logged.
    is_outage: bool,
}

impl Default for Contact {
    fn default() -> Self {
        Self::new("an address that is not known here")
    }
}

impl Contact {
    /// Contact with the API server at `address`.
    pub fn new(address: impl Into<String>) -> Self {
        Self(Arc::new(Inner { address: address.into(), state: Mutex::default() }))
    }

    /// Where the API server is.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Whether no request gets a response.
    pub fn is_lost(&self) -> bool {
        self.0.state.lock().silence.is_some()
    }

    /// Takes note of the result of a request that was sent at `sent`.
    pub(crate) fn record<T>(&self, sent: Instant, result: Result<T, Error>) -> Result<T, Error> {
        match result {
            Err(error) if error.is_without_response() => Err(self.no_response(sent, error)),
            other => {
                self.responded();
                other
            }
        }
    }

    /// A request got no response. If others did meanwhile, that says nothing of the server.
    fn no_response(&self, sent: Instant, error: Error) -> Error {
        let mut state = self.0.state.lock();
        if state.responded.is_some_and(|at| at > sent) {
            return error;
        }
        let silence = state.silence.get_or_insert(Silence { since: sent, is_outage: false });
        if !silence.is_outage && silence.since.elapsed() >= GRACE {
            silence.is_outage = true;
            tracing::warn!(
                address = self.0.address,
                reason = error.cause(),
                "lost contact with the Kubernetes API; retrying until it responds"
            );
        }
        error.in_outage()
    }

    fn responded(&self) {
        let mut state = self.0.state.lock();
        let now = Instant::now();
        state.responded = Some(now);
        if let Some(Silence { since, is_outage: true }) = state.silence.take() {
            let after = Duration::from_secs(now.duration_since(since).as_secs());
            tracing::info!(address = self.0.address, ?after, "the Kubernetes API responds again");
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::Status;

    use super::*;
    use crate::object::ApiKind;

    fn silence() -> Result<(), Error> {
        Err(Error::deadline("list", &ApiKind::of::<Pod>(), None, Duration::from_secs(5)))
    }

    fn refusal() -> Result<(), Error> {
        let status = Status::failure("no", "Forbidden").with_code(403);
        Err(Error::request("list", &ApiKind::of::<Pod>(), None, kube::Error::Api(Box::new(status))))
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_begins_with_the_first_silence_and_ends_with_any_response() {
        let contact = Contact::new("https://127.0.0.1:6443");
        let sent = Instant::now();
        tokio::time::advance(Duration::from_secs(5)).await;
        let first = contact.record(sent, silence()).unwrap_err();
        assert!(first.is_quiet(), "the outage is logged instead");
        assert!(contact.is_lost());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(contact.record(Instant::now(), silence()).unwrap_err().is_quiet());
        let refused = contact.record(Instant::now(), refusal()).unwrap_err();
        assert!(!refused.is_quiet(), "a response is a response, and is reported");
        assert!(!contact.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_restarts_at_once_has_no_outage() {
        let contact = Contact::default();
        let refused = || -> Result<(), Error> {
            let error = kube::Error::Service("connection refused".into());
            Err(Error::request("watch", &ApiKind::of::<Pod>(), None, error))
        };
        let is_outage = || contact.0.state.lock().silence.is_some_and(|silence| silence.is_outage);
        let sent = Instant::now();
        assert!(contact.record(sent, refused()).unwrap_err().is_quiet());
        tokio::time::advance(Duration::from_millis(500)).await;
        contact.record(sent, Ok(())).unwrap();
        assert!(contact.record(sent, refused()).unwrap_err().is_quiet(), "sent before the last response");
        tokio::time::advance(Duration::from_millis(600)).await;
        assert!(contact.record(Instant::now(), refused()).unwrap_err().is_quiet());
        assert!(!is_outage(), "a new outage");
        tokio::time::advance(GRACE).await;
        assert!(contact.record(Instant::now(), refused()).unwrap_err().is_quiet());
        assert!(is_outage());
    }

    #[tokio::test(start_paused = true)]
    async fn one_slow_request_among_others_is_no_outage() {
        let contact = Contact::default();
        let sent = Instant::now();
        tokio::time::advance(Duration::from_secs(5)).await;
        contact.record(sent, Ok(())).unwrap();
        let slow = contact.record(sent, silence()).unwrap_err();
        assert!(!slow.is_quiet());
        assert!(!contact.is_lost());
    }
}
