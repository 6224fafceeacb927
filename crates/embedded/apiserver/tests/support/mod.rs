//! An API in memory, and plain requests to it.
#![allow(dead_code, reason = "each suite uses a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

pub(crate) mod backend;

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use quintet_apiserver::{Api, Caller, Clock, Parts, Rng, Store, Tokens, request::body::ResponseBody};
use serde_json::Value;

/// A fresh API.
pub(crate) async fn api() -> Api {
    api_on(Store::in_memory()).await
}

/// A directory for a store, which goes with the value.
pub(crate) struct Disk(std::path::PathBuf);

impl Disk {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quintet-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    /// The store in it; its writes take their time.
    pub(crate) fn store(&self) -> Store {
        Store::open(&self.0).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An API on a store.
pub(crate) async fn api_on(store: Store) -> Api {
    api_of(store, |_| {}).await
}

/// An API on a store that is set up in another way than usual.
pub(crate) async fn api_of(store: Store, change: impl FnOnce(&mut Parts)) -> Api {
    let (tokens, _) = Tokens::generate().unwrap();
    let mut parts = Parts {
        store,
        tokens,
        converter: None,
        ca: "certificate".into(),
        front_proxy: None,
        disabled_controllers: BTreeSet::new(),
        address: "127.0.0.1:6443".into(),
        clock: Clock::system(),
        rng: Rng::from_entropy(),
    };
    change(&mut parts);
    Api::start(parts).await.unwrap()
}

/// The administrator.
pub(crate) fn admin() -> Caller {
    Caller::known("admin", ["system:masters".to_owned()])
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) bytes: Bytes,
    pub(crate) body: Value,
}

impl Reply {
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", String::from_utf8_lossy(&self.bytes));
        self.body
    }

    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect()
    }
}

/// Sends anything.
pub(crate) async fn send_as(api: &Api, caller: Caller, request: Request<Bytes>) -> Reply {
    let response = tokio::time::timeout(Duration::from_secs(20), api.handle(request, caller)).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    Reply { code: parts.status.as_u16(), headers: parts.headers, bytes, body }
}

/// Sends a request with a JSON body as the administrator.
pub(crate) async fn send(api: &Api, method: &str, path: &str, body: impl Into<Option<Value>>) -> Reply {
    send_typed(api, method, path, "application/json", body).await
}

pub(crate) async fn send_typed(
    api: &Api,
    method: &str,
    path: &str,
    content_type: &str,
    body: impl Into<Option<Value>>,
) -> Reply {
    let body = body.into().map(|body| body.to_string()).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("user-agent", "tester/1.0")
        .body(Bytes::from(body))
        .unwrap();
    send_as(api, admin(), request).await
}

/// A watch that is read event by event.
pub(crate) struct Events(ResponseBody, Vec<u8>);

impl Events {
    pub(crate) async fn open(api: &Api, path: &str) -> Self {
        let request = Request::get(path).body(Bytes::new()).unwrap();
        let response = api.handle(request, admin()).await;
        assert_eq!(response.status(), 200);
        Self(response.into_body(), Vec::new())
    }

    /// The next event; `None` at the end of the watch.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.1.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.1.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(Duration::from_secs(10), self.0.frame());
            let frame = frame.await.expect("an event in time")?;
            self.1.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }

    /// The type of the next event and the name of its object.
    pub(crate) async fn brief(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

/// Waits until something is so.
pub(crate) async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "it never happened");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
