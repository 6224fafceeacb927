//! The dashboard of the cluster: which node this is, and endpoints that are stored for later.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::settings::{CollectorSettings, Credential};
use crate::layout;
use crate::store::{Http, Store, content};

/// Larger answers are not read.
const LARGEST: usize = 64 * 1024 * 1024;

/// How long an endpoint may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Endpoints that are stored once.
const ONCE: [&str; 2] = ["/api/v0/cluster_metadata", "/timezone"];

const SERVE: &str = "/api/serve/applications/";

/// The data sets of a job, whose id follows.
const DATASETS: &str = "/api/data/datasets/";

/// After so many empty answers for a job that has ended, only the last poll asks again.
const EMPTY_ANSWERS: u8 = 2;

const POLLED: [&str; 2] = [SERVE, "/api/v0/placement_groups?detail=1&limit=10000"];

/// Pauses between attempts to store an endpoint once.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Why an endpoint gave nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// The dashboard refuses the collector, or the collector cannot authenticate: trying again is of no use.
    Refused(String),
    Other(String),
}

/// The collector cannot authenticate. The words are upstream's: people search for them.
fn misconfigured(url: &str, why: &str) -> Failure {
    Failure::Refused(format!(
        "failed to authenticate request to {url}: ray dashboard credential is misconfigured: {why}"
    ))
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    format!("failed to read projected ServiceAccount token at {path}: open {path}: {why}")
}

#[derive(Clone)]
pub(super) struct Dashboard {
    http: Http,
    credential: Credential,
    address: String,
    /// The port of the head's dashboard, if its address names none.
    port: String,
}

#[derive(Deserialize)]
struct JobRow {
    #[serde(default)]
    job_id: Option<String>,
    #[serde(default)]
    status: Option<String>,
}

impl Dashboard {
    pub(super) fn new(http: Http, settings: &CollectorSettings) -> Self {
        let address = settings.dashboard.trim_end_matches('/').to_owned();
        let (credential, port) = (settings.credential.clone(), settings.dashboard_port.clone());
        Self { http, credential, address, port }
    }

    async fn get(&self, url: &str, timeout: Duration) -> Result<Bytes, Failure> {
        let mut request = Request::get(url);
        let token = match &self.credential {
            Credential::None => None,
            Credential::Token(token) => Some(token.clone()),
            Credential::File(path) => match std::fs::read_to_string(path) {
                Ok(token) if token.trim().is_empty() => {
                    return Err(misconfigured(
                        url,
                        &format!("projected ServiceAccount token at {} is empty", path.display()),
                    ));
                }
                Ok(token) => Some(token.trim().to_owned()),
                Err(error) => return Err(misconfigured(url, &unreadable(path, &error))),
            },
            Credential::Missing => {
                return Err(misconfigured(
                    url,
                    "RAY_AUTH_MODE=token but no credential is available: set RAY_AUTH_TOKEN, or \
                     RAY_ENABLE_K8S_TOKEN_AUTH=true with the projected token volume mounted at \
                     /var/run/secrets/ray.io/serviceaccount",
                ));
            }
        };
        if let Some(token) = token {
            request = request.header("x-ray-authorization", format!("Bearer {token}"));
        }
        let request =
            request.body(content(Bytes::new())).map_err(|error| Failure::Other(error.to_string()))?;
        let response = self.http.fetch(request, timeout, LARGEST).await.map_err(Failure::Other)?;
        match response.status().as_u16() {
            200 => Ok(response.into_body()),
            status @ (401 | 403) => Err(Failure::Refused(format!(
                "ray dashboard rejected the request: authentication failed: HTTP status {status} from endpoint {url}"
            ))),
            status => Err(Failure::Other(format!("HTTP status {status} from endpoint {url}"))),
        }
    }

    /// The id of the node with this address, as the dashboard spells it.
    pub(super) async fn node_id(&self, head: &str, pod_ip: &str) -> Result<String, Failure> {
        let base = if head.contains("://") {
            head.trim_end_matches('/').to_owned()
        } else {
            format!("http://{head}")
        };
        let authority = base.split("://").nth(1).unwrap_or_default();
        let base = if authority.contains(':') { base } else { format!("{base}:{}", self.port) };
        let body = self.get(&format!("{base}/api/v0/nodes?limit=10000"), Duration::from_secs(1)).await?;
        node_at(&body, pod_ip)
    }
}

/// The id of the living node with an address, in the dashboard's list of nodes. Of other rows, any member may be null.
fn node_at(list: &[u8], ip: &str) -> Result<String, Failure> {
    let list: Value = serde_json::from_slice(list)
        .map_err(|error| Failure::Other(format!("the dashboard's list of nodes cannot be read: {error}")))?;
    let rows = list.pointer("/data/result/result").and_then(Value::as_array).into_iter().flatten();
    let mut here = rows.filter(|row| row["node_ip"] == ip && row["state"] == "ALIVE");
    let id = here.find_map(|row| row["node_id"].as_str().filter(|id| !id.is_empty()));
    id.map(str::to_owned).ok_or_else(|| Failure::Other(format!("no ALIVE Ray node found for Pod IP {ip}")))
}

/// Stores answers of the dashboard.
pub(super) struct Poller {
    dashboard: Dashboard,
    store: Store,
    extra: Vec<String>,
    /// The session that the rest is about.
    directory: String,
    /// Jobs that have ended and whose data sets are stored.
    stored: HashSet<String>,
    /// Empty answers for jobs that have ended.
    empty: HashMap<String, u8>,
}

/// What came of polling an endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polled {
    Failed,
    Empty,
    Stored,
}

impl Poller {
    pub(super) fn new(dashboard: Dashboard, store: Store, settings: &CollectorSettings) -> Self {
        let extra = settings.endpoints.iter().filter(|it| !POLLED.contains(&it.as_str())).cloned().collect();
        let (stored, empty) = (HashSet::new(), HashMap::new());
        Self { dashboard, store, extra, directory: String::new(), stored, empty }
    }

    /// Stores an endpoint's answer unless it is empty.
    async fn keep(&self, directory: &str, uri: &str, is_final: bool) -> Polled {
        let url = format!("{}{uri}", self.dashboard.address);
        let body = match self.dashboard.get(&url, TIMEOUT).await {
            Ok(body) => body,
            Err(Failure::Refused(message) | Failure::Other(message)) => {
                tracing::debug!(message, "an endpoint cannot be read");
                return Polled::Failed;
            }
        };
        if is_empty(uri, &body, is_final) {
            return Polled::Empty;
        }
        let path = format!("{directory}/{}", layout::endpoint(uri));
        if let Err(error) = self.store.put(&path, body).await {
            tracing::warn!(%error, uri, "an endpoint's answer cannot be stored");
            return Polled::Failed;
        }
        Polled::Stored
    }

    /// Polls everything once.
    pub(super) async fn poll(&mut self, directory: &str, is_final: bool) {
        if self.directory != directory {
            // Another session has other jobs of the same ids.
            directory.clone_into(&mut self.directory);
            self.stored.clear();
            self.empty.clear();
        }
        for uri in POLLED.into_iter().chain(self.extra.iter().map(String::as_str)) {
            self.keep(directory, uri, is_final).await;
        }
        let url = format!("{}/api/jobs/", self.dashboard.address);
        let Ok(body) = self.dashboard.get(&url, TIMEOUT).await else { return };
        let jobs: Vec<JobRow> = serde_json::from_slice(&body).unwrap_or_default();
        for job in jobs {
            let Some(id) = job.job_id.filter(|id| !id.is_empty() && !self.stored.contains(id)) else {
                continue;
            };
            let has_ended = matches!(job.status.as_deref(), Some("SUCCEEDED" | "FAILED" | "STOPPED"));
            let is_given_up = self.empty.get(&id).is_some_and(|count| *count >= EMPTY_ANSWERS);
            if has_ended && is_given_up && !is_final {
                continue;
            }
            let polled = self.keep(directory, &format!("{DATASETS}{id}"), is_final).await;
            match polled {
                Polled::Stored if has_ended => {
                    self.stored.insert(id);
                }
                Polled::Empty if has_ended => *self.empty.entry(id).or_default() += 1,
                _ => {}
            }
        }
    }

    /// Stores what does not change, as soon as the dashboard has it.
    pub(super) async fn keep_once(dashboard: Dashboard, store: Store, directory: String) {
        let each = ONCE.map(|uri| {
            let (dashboard, store, directory) = (dashboard.clone(), store.clone(), directory.clone());
            async move {
                let mut pause = FIRST_PAUSE;
                loop {
                    let url = format!("{}{uri}", dashboard.address);
                    let stored = match dashboard.get(&url, TIMEOUT).await {
                        // Nothing is what a dashboard says that has just started.
                        Ok(body) if body.is_empty() => false,
                        Ok(body) => {
                            store.put(&format!("{directory}/{}", layout::endpoint(uri)), body).await.is_ok()
                        }
                        Err(Failure::Refused(message)) => {
                            tracing::warn!(message, "the dashboard refuses the collector");
                            true
                        }
                        Err(Failure::Other(_)) => false,
                    };
                    if stored {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        });
        futures::future::join_all(each).await;
    }
}

/// Whether an answer says nothing that is worth to be stored. What cannot be read is not empty. At the end, applications
/// that are gone do not replace those that were.
fn is_empty(uri: &str, body: &[u8], is_final: bool) -> bool {
    let read = |member: &str| -> Option<Value> {
        match serde_json::from_slice(body).ok()? {
            Value::Object(mut answer) => Some(answer.remove(member).unwrap_or_default()),
            Value::Null => Some(Value::Null),
            _ => None,
        }
    };
    if uri.starts_with(DATASETS) {
        return read("datasets").is_some_and(|it| it.is_null() || it.as_array().is_some_and(Vec::is_empty));
    }
    is_final
        && uri == SERVE
        && read("applications").is_some_and(|it| it.is_null() || it.as_object().is_some_and(Map::is_empty))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DATASETS, Failure, SERVE, is_empty, node_at};

    #[test]
    fn a_node_is_found_beside_rows_of_others() {
        let list = json!({"data": {"result": {"result": [
            {"node_id": null, "node_ip": null, "state": "DEAD"},
            {"node_id": "old", "node_ip": "10.0.0.1", "state": "DEAD"},
            {"node_id": "", "node_ip": "10.0.0.1", "state": "ALIVE"},
            {"node_id": "new", "node_ip": "10.0.0.1", "state": "ALIVE"},
        ]}}});
        let list = list.to_string();
        assert_eq!(node_at(list.as_bytes(), "10.0.0.1").ok().as_deref(), Some("new"));
        for (list, ip) in [(list.as_str(), "10.0.0.2"), ("{}", "10.0.0.1"), ("null", "10.0.0.1")] {
            let missing = format!("no ALIVE Ray node found for Pod IP {ip}");
            assert!(matches!(node_at(list.as_bytes(), ip), Err(Failure::Other(why)) if why == missing));
        }
        assert!(node_at(b"nothing", "10.0.0.1").is_err());
    }

    #[test]
    fn answers_are_empty_if_they_say_so() {
        let job = format!("{DATASETS}01000000");
        let cases = [
            (job.as_str(), r#"{"datasets":[]}"#, false, true),
            (job.as_str(), r#"{"datasets":null}"#, false, true),
            (job.as_str(), "{}", false, true),
            (job.as_str(), "null", false, true),
            (job.as_str(), r#"{"datasets":[{}]}"#, false, false),
            (job.as_str(), r#"{"datasets":{}}"#, false, false),
            (job.as_str(), "[]", false, false),
            (job.as_str(), "nothing", false, false),
            (SERVE, r#"{"applications":{}}"#, false, false),
            (SERVE, r#"{"applications":{}}"#, true, true),
            (SERVE, r#"{"applications":[]}"#, true, false),
            (SERVE, r#"{"applications":{"a":{}}}"#, true, false),
            ("/api/other", "{}", true, false),
        ];
        for (uri, body, is_final, expected) in cases {
            assert_eq!(is_empty(uri, body.as_bytes(), is_final), expected, "{uri} {body} {is_final}");
        }
    }
}
