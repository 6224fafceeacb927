//! Credentials that expire: fetched when they are needed, and again before their end.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use parking_lot::Mutex;
use serde_json::Value;

use super::net::{Http, content, percent_encoded};
use super::{Result, StoreError};

/// How long a request for credentials may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Credentials are replaced this long before they expire, so that none expires in flight.
const MARGIN: Duration = Duration::from_mins(2);

/// Responses with credentials are small.
const LARGEST: usize = 1024 * 1024;

/// What was issued, until it expires.
pub(super) struct Expiring<T>(Mutex<Option<(T, Instant)>>);

impl<T: Clone> Expiring<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// What is known, or what `issue` returns with its lifetime.
    pub(super) async fn get(&self, issue: impl Future<Output = Result<(T, Duration)>>) -> Result<T> {
        if let Some((known, until)) = &*self.0.lock()
            && Instant::now() < *until
        {
            return Ok(known.clone());
        }
        let (issued, lifetime) = issue.await?;
        *self.0.lock() = Some((issued.clone(), Instant::now() + lifetime.saturating_sub(MARGIN)));
        Ok(issued)
    }
}

/// Sends a request for credentials. `what` names them in errors.
pub(super) async fn ask(
    http: &Http,
    request: http::request::Builder,
    body: impl Into<Bytes>,
    what: &str,
) -> Result<String> {
    let failed = |why: String| StoreError(format!("no credentials for {what}: {why}"));
    let request = request.body(content(body)).map_err(|error| failed(error.to_string()))?;
    let response = http.fetch(request, TIMEOUT, LARGEST).await.map_err(failed)?;
    let text = String::from_utf8_lossy(response.body()).into_owned();
    if response.status().is_success() {
        return Ok(text);
    }
    // The body says why, and has no secrets: there are none to tell.
    let why: String = text.chars().take(300).collect();
    Err(failed(format!("status {}: {}", response.status(), why.trim())))
}

/// Asks as [`ask`], for a JSON object.
pub(super) async fn ask_json(
    http: &Http,
    request: http::request::Builder,
    body: impl Into<Bytes>,
    what: &str,
) -> Result<Value> {
    let text = ask(http, request, body, what).await?;
    serde_json::from_str(&text)
        .map_err(|error| StoreError(format!("no credentials for {what}: the response is no JSON: {error}")))
}

/// Posts a form to an authorization server, which responds with a bearer token.
pub(super) async fn exchange(
    http: &Http,
    url: &str,
    form: &[(&str, &str)],
    what: &str,
) -> Result<(String, Duration)> {
    let pairs: Vec<String> = form
        .iter()
        .map(|(name, value)| format!("{}={}", percent_encoded(name, false), percent_encoded(value, false)))
        .collect();
    let request = Request::post(url).header("Content-Type", "application/x-www-form-urlencoded");
    bearer(&ask_json(http, request, pairs.join("&"), what).await?, what)
}

/// The token in a response of OAuth 2. Some servers write the lifetime as a string.
pub(super) fn bearer(response: &Value, what: &str) -> Result<(String, Duration)> {
    let Some(token) = response["access_token"].as_str() else {
        return Err(StoreError(format!("no credentials for {what}: the response has no access_token")));
    };
    let lifetime = &response["expires_in"];
    let seconds = lifetime.as_u64().or_else(|| lifetime.as_str()?.parse().ok()).unwrap_or(600);
    Ok((token.to_owned(), Duration::from_secs(seconds)))
}

/// A file with a token, or with anything else that is secret.
pub(super) fn read(path: &str, what: &str) -> Result<String> {
    let text = std::fs::read_to_string(path);
    text.map_err(|error| StoreError(format!("no credentials for {what}: cannot read {path}: {error}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Expiring, bearer};

    #[tokio::test]
    async fn what_expires_is_issued_again() {
        let known = Expiring::new();
        let issue = |value, seconds| async move { Ok((value, Duration::from_secs(seconds))) };
        assert_eq!(known.get(issue(1, 3600)).await.ok(), Some(1));
        assert_eq!(known.get(issue(2, 3600)).await.ok(), Some(1));
        let short = Expiring::new();
        assert_eq!(short.get(issue(1, 60)).await.ok(), Some(1));
        assert_eq!(short.get(issue(2, 60)).await.ok(), Some(2));
    }

    #[test]
    fn lifetimes_are_numbers_or_strings() {
        for (response, seconds) in [
            (r#"{"access_token":"t","expires_in":3599}"#, Some(3599)),
            (r#"{"access_token":"t","expires_in":"86399"}"#, Some(86399)),
            (r#"{"access_token":"t"}"#, Some(600)),
            (r#"{"error":"x"}"#, None),
        ] {
            let found = bearer(&serde_json::from_str(response).expect("JSON"), "x").ok();
            assert_eq!(found.map(|(_, lifetime)| lifetime.as_secs()), seconds, "{response}");
        }
    }
}
