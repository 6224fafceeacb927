//! The dashboard of the cluster: which node this is, and endpoints that are stored for later.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde::Deserialize;

use super::events::is_safe;
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

#[derive(Clone)]
pub(super) struct Dashboard {
    http: Http,
    credential: Credential,
    address: String,
}

#[derive(Deserialize)]
struct Nodes {
    data: NodesData,
}

#[derive(Deserialize)]
struct NodesData {
    result: NodesResult,
}

#[derive(Deserialize)]
struct NodesResult {
    result: Vec<NodeRow>,
}

#[derive(Deserialize)]
struct NodeRow {
    node_id: String,
    #[serde(default)]
    node_ip: String,
    #[serde(default)]
    state: String,
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
        Self { http, credential: settings.credential.clone(), address }
    }

    async fn get(&self, url: &str, timeout: Duration) -> Result<Bytes, Failure> {
        let mut request = Request::get(url);
        let token = match &self.credential {
            Credential::None => None,
            Credential::Token(token) => Some(token.clone()),
            Credential::File(path) => match std::fs::read_to_string(path) {
                Ok(token) => Some(token.trim().to_owned()),
                Err(error) => {
                    return Err(Failure::Refused(format!(
                        "failed to authenticate request to {url}: ray dashboard credential is misconfigured: cannot \
                         read {}: {error}",
                        path.display()
                    )));
                }
            },
            Credential::Missing => {
                return Err(Failure::Refused(format!(
                    "failed to authenticate request to {url}: ray dashboard credential is misconfigured: \
                     RAY_AUTH_MODE=token but no credential is available: set RAY_AUTH_TOKEN, or \
                     RAY_ENABLE_K8S_TOKEN_AUTH=true with the projected token volume mounted at \
                     /var/run/secrets/ray.io/serviceaccount"
                )));
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

    /// The id of the node with this address.
    pub(super) async fn node_id(&self, head: &str, pod_ip: &str) -> Result<String, Failure> {
        let base = if head.contains("://") {
            head.trim_end_matches('/').to_owned()
        } else {
            format!("http://{head}")
        };
        let authority = base.split("://").nth(1).unwrap_or_default();
        let base = if authority.contains(':') { base } else { format!("{base}:8265") };
        let body = self.get(&format!("{base}/api/v0/nodes?limit=10000"), Duration::from_secs(1)).await?;
        let nodes: Nodes = serde_json::from_slice(&body).map_err(|error| {
            Failure::Other(format!("the dashboard's list of nodes cannot be read: {error}"))
        })?;
        let row =
            nodes.data.result.result.into_iter().find(|row| row.node_ip == pod_ip && row.state == "ALIVE");
        let id = row
            .map(|row| row.node_id)
            .ok_or_else(|| Failure::Other(format!("no ALIVE node has the address {pod_ip}")))?;
        // It becomes part of the names of files.
        if is_safe(&id) {
            Ok(id)
        } else {
            Err(Failure::Other(format!("the dashboard calls the node {id:?}, which is no id")))
        }
    }
}

/// Stores answers of the dashboard.
pub(super) struct Poller {
    dashboard: Dashboard,
    store: Store,
    extra: Vec<String>,
    /// Jobs whose data sets need no more polls.
    done: HashSet<String>,
    /// Empty answers for jobs that have ended.
    empty: HashMap<String, u8>,
}

impl Poller {
    pub(super) fn new(dashboard: Dashboard, store: Store, settings: &CollectorSettings) -> Self {
        let extra = settings.endpoints.iter().filter(|it| !POLLED.contains(&it.as_str())).cloned().collect();
        Self { dashboard, store, extra, done: HashSet::new(), empty: HashMap::new() }
    }

    /// Stores an endpoint's answer. `None` if there is none, or it could not be stored.
    async fn keep(&self, directory: &str, uri: &str, fits: impl Fn(&[u8]) -> bool) -> Option<Bytes> {
        let url = format!("{}{uri}", self.dashboard.address);
        let body = match self.dashboard.get(&url, TIMEOUT).await {
            Ok(body) => body,
            Err(Failure::Refused(message) | Failure::Other(message)) => {
                tracing::debug!(message, "an endpoint cannot be read");
                return None;
            }
        };
        if fits(&body) {
            let path = format!("{directory}/{}", layout::endpoint(uri));
            if let Err(error) = self.store.put(&path, body.clone()).await {
                tracing::warn!(%error, uri, "an endpoint's answer cannot be stored");
                return None;
            }
        }
        Some(body)
    }

    /// Polls everything once. At the end, applications that are gone do not replace those that were.
    pub(super) async fn poll(&mut self, directory: &str, is_final: bool) {
        self.keep(directory, SERVE, |body| !is_final || !is_empty_list(body, "applications")).await;
        self.keep(directory, POLLED[1], |_| true).await;
        for uri in self.extra.clone() {
            self.keep(directory, &uri, |_| true).await;
        }
        let url = format!("{}/api/jobs/", self.dashboard.address);
        let Ok(body) = self.dashboard.get(&url, TIMEOUT).await else { return };
        let jobs: Vec<JobRow> = serde_json::from_slice(&body).unwrap_or_default();
        for job in jobs {
            let Some(id) = job.job_id.filter(|id| !id.is_empty() && !self.done.contains(id)) else {
                continue;
            };
            let has_ended = matches!(job.status.as_deref(), Some("SUCCEEDED" | "FAILED" | "STOPPED"));
            let uri = format!("/api/data/datasets/{id}");
            let kept = self.keep(directory, &uri, |body| !is_empty_list(body, "datasets")).await;
            let Some(body) = kept.filter(|_| has_ended) else { continue };
            let count = self.empty.entry(id.clone()).or_default();
            *count += 1;
            if !is_empty_list(&body, "datasets") || *count >= 2 {
                self.done.insert(id);
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

/// Whether an answer has this member and it is empty. What cannot be read is not.
fn is_empty_list(body: &[u8], member: &str) -> bool {
    let Ok(answer) = serde_json::from_slice::<serde_json::Value>(body) else { return false };
    match answer.get(member) {
        None | Some(serde_json::Value::Null) => true,
        Some(serde_json::Value::Array(elements)) => elements.is_empty(),
        Some(serde_json::Value::Object(members)) => members.is_empty(),
        Some(_) => false,
    }
}
