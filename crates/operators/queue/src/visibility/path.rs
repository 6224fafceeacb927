//! Requests: what a path and its parameters ask for.

use quintet_controller::ObjectKey;
use quintet_controller::aggregated::StatusError;
use serde_json::json;

use super::documents::Document;
use super::{GROUP, VERSIONS};

/// Items of a response without a limit.
const DEFAULT_LIMIT: usize = 1000;
/// The most items of a response.
const MAX_LIMIT: usize = 100_000;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Path {
    Healthy,
    Document(Document),
    Pending { version: &'static str, queue: QueueRef },
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueueRef {
    ClusterQueue(String),
    LocalQueue(ObjectKey),
}

impl Path {
    pub(super) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let known = |version: &str| VERSIONS.iter().copied().find(|own| *own == version);
        Some(match parts.as_slice() {
            ["healthz" | "livez" | "readyz"] => Self::Healthy,
            ["apis"] => Self::Document(Document::Groups),
            ["apis", GROUP] => Self::Document(Document::Group),
            ["apis", GROUP, version] => Self::Document(Document::Resources(known(version)?)),
            ["openapi", "v2"] => Self::Document(Document::OpenApiV2),
            ["openapi", "v3"] => Self::Document(Document::OpenApiV3Index),
            ["openapi", "v3", "apis", GROUP, version] => Self::Document(Document::OpenApiV3(known(version)?)),
            ["apis", GROUP, version, "clusterqueues", name, "pendingworkloads"] => {
                Self::Pending { version: known(version)?, queue: QueueRef::ClusterQueue((*name).to_owned()) }
            }
            ["apis", GROUP, version, "namespaces", namespace, "localqueues", name, "pendingworkloads"] => {
                let queue = QueueRef::LocalQueue(ObjectKey::new(namespace, name));
                Self::Pending { version: known(version)?, queue }
            }
            _ => return None,
        })
    }
}

impl QueueRef {
    pub(super) fn not_found(&self) -> StatusError {
        let (kind, name) = match self {
            Self::ClusterQueue(name) => ("clusterqueue", name.as_str()),
            Self::LocalQueue(key) => ("localqueue", key.name()),
        };
        let details = json!({ "name": name, "group": GROUP, "kind": kind });
        let message = format!("{kind}.{GROUP} \"{name}\" not found");
        StatusError { details, ..StatusError::new(404, "NotFound", message) }
    }
}

/// Which part of a list is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

impl Window {
    /// Reads `limit` and `offset`. A limit of 0 is the default, a negative one is none at all, as in Kueue.
    pub(super) fn read(query: &str) -> Result<Self, StatusError> {
        let parameter = |name: &str| -> Result<i64, StatusError> {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let text = pairs.into_iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value);
            if text.is_empty() {
                return Ok(0);
            }
            text.parse().map_err(|_| {
                let is_number =
                    text.strip_prefix(['-', '+']).unwrap_or(text).bytes().all(|one| one.is_ascii_digit());
                let why = if is_number { "value out of range" } else { "invalid syntax" };
                let message = format!("strconv.ParseInt: parsing {text:?}: {why}");
                StatusError::new(400, "BadRequest", message)
            })
        };
        let limit = match parameter("limit")? {
            0 => DEFAULT_LIMIT,
            limit => usize::try_from(limit).unwrap_or(0).min(MAX_LIMIT),
        };
        Ok(Self { offset: usize::try_from(parameter("offset")?).unwrap_or(0), limit })
    }
}
