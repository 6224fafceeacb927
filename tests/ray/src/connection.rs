//! How an operator reaches the API of its world, and what goes wrong on the way.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, TryStreamExt, future::BoxFuture};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use parking_lot::{Mutex, RwLock};
use serde_json::json;
use tower::Service;

use crate::{Rights, Rng, World};

/// What goes wrong, in thousandths of all requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRates {
    /// Refused before anything happens.
    pub refused: u64,
    /// A write meets a conflict.
    pub conflict: u64,
    /// Carried out, but the answer is lost.
    pub lost: u64,
    /// The process dies before the request is sent, or before its answer is read.
    pub crash: u64,
    /// A request takes up to a minute.
    pub slow: u64,
    /// Carried out at once, but answered only when watches have long shown it.
    pub late: u64,
    /// Watches show what happened up to so many seconds ago.
    pub watch_lag: u64,
}

impl FaultRates {
    /// Everything goes wrong now and then.
    pub const ROUGH: Self =
        Self { refused: 30, conflict: 30, lost: 30, crash: 15, slow: 30, late: 30, watch_lag: 20 };
}

type Fault = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, Fault>>;

/// One process's connection to the API.
#[derive(Clone)]
pub struct Connection(Arc<State>);

struct State {
    world: World,
    rights: Rights,
    inner: kube::Client,
    rng: Rng,
    fault_rates: RwLock<FaultRates>,
    is_dead: AtomicBool,
    writes: Mutex<Vec<String>>,
}

impl Connection {
    /// Connects to the API of a world.
    pub fn new(world: &World, rights: Rights, fault_rates: FaultRates) -> Self {
        Self(Arc::new(State {
            inner: world.api.admin_client(),
            rng: world.rng.clone(),
            world: world.clone(),
            rights,
            fault_rates: RwLock::new(fault_rates),
            is_dead: AtomicBool::new(false),
            writes: Mutex::default(),
        }))
    }

    /// The client of the process.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), crate::NAMESPACE)
    }

    /// From now on nothing that the process does has an effect.
    pub fn kill(&self) {
        self.0.is_dead.store(true, Ordering::SeqCst);
    }

    /// Whether it has been killed, or has crashed by an injected fault.
    pub fn is_dead(&self) -> bool {
        self.0.is_dead.load(Ordering::SeqCst)
    }

    /// From now on other things go wrong.
    pub fn set_fault_rates(&self, fault_rates: FaultRates) {
        *self.0.fault_rates.write() = fault_rates;
    }

    /// Takes the writes that were carried out since the last time, except those of events.
    pub fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.writes.lock())
    }

    async fn carry(self, request: Request<Body>) -> Answer {
        let state = &self.0;
        let fault_rates = *state.fault_rates.read();
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let is_write = request.method() != Method::GET;
        let path = request.uri().path().to_owned();
        let write = format!("{} {path}", request.method());
        let query = request.uri().query().unwrap_or_default();
        if let Err(missing) = state.rights.check(request.method(), &path, query) {
            state.world.note_broken_promise(format!("an operator may not {missing}"));
        }
        self.alive().await;
        if state.rng.happens(fault_rates.crash) {
            self.kill();
        }
        self.alive().await;
        if state.rng.happens(fault_rates.slow) {
            tokio::time::sleep(Duration::from_secs(state.rng.below(60))).await;
            self.alive().await;
        }
        if state.rng.happens(fault_rates.refused) {
            return status(503, "ServiceUnavailable");
        }
        if is_write && state.rng.happens(fault_rates.conflict) {
            return status(409, "Conflict");
        }
        let answer = match state.inner.send(request).await {
            Ok(answer) => answer,
            Err(error) => panic!("the API of a world always answers: {error}"),
        };
        if is_write && !path.contains("/events") && answer.status().is_success() {
            let age = state.world.begun.elapsed().as_secs();
            state.writes.lock().push(format!("{write} after {age} s"));
            state.world.look_for_broken_promises(&path).await;
        }
        // By what goes wrong now: there may be peace since the request was sent.
        let fault_rates = *state.fault_rates.read();
        if is_write && state.rng.happens(fault_rates.crash) {
            self.kill();
        }
        if is_write && state.rng.happens(fault_rates.late) {
            tokio::time::sleep(Duration::from_secs(1 + state.rng.below(10))).await;
        }
        self.alive().await;
        if is_write && state.rng.happens(fault_rates.lost) {
            return status(504, "Timeout");
        }
        let answer = answer.map(|body| body.map_err(Fault::from).boxed_unsync());
        if is_watch { self.lagging(answer) } else { answer }
    }

    /// Never returns to a process that is dead.
    async fn alive(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    /// The same watch, seen later.
    fn lagging(self, answer: Answer) -> Answer {
        let (parts, body) = answer.into_parts();
        let stream = BodyStream::new(body).and_then(move |frame| {
            let connection = self.clone();
            async move {
                let lag = connection.0.fault_rates.read().watch_lag;
                if lag > 0 {
                    tokio::time::sleep(Duration::from_secs(connection.0.rng.below(lag))).await;
                }
                connection.alive().await;
                Ok(frame)
            }
        });
        Response::from_parts(parts, StreamBody::new(stream).boxed_unsync())
    }
}

fn status(code: u16, reason: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "message": "a simulated failure", "code": code,
    });
    let mut response = Response::new(Full::from(body.to_string()).map_err(Fault::from).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

impl Service<Request<Body>> for Connection {
    type Response = Answer;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().carry(request).map(Ok).boxed()
    }
}
