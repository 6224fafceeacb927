//! The cookies that carry the choice of a session from request to request.

use http::header::{self, HeaderMap, HeaderValue};

use crate::layout::{Cluster, Kind, Owner, is_clean_path};

/// How long a choice lasts after the last request, in seconds.
const MAX_AGE: u32 = 600;

/// The choice of a client.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) session: String,
    owner_kind: String,
    owner_name: String,
}

impl Choice {
    pub(crate) fn new(cluster: &Cluster, session: &str) -> Self {
        let owner = cluster.owner.as_ref();
        Self {
            cluster: cluster.name.clone(),
            namespace: cluster.namespace.clone(),
            session: session.to_owned(),
            owner_kind: owner.map(|it| it.kind.name().to_owned()).unwrap_or_default(),
            owner_name: owner.map(|it| it.name.clone()).unwrap_or_default(),
        }
    }

    /// Reads and checks the cookies of a request. The error is what to tell the client.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, String> {
        let value = |name: &str| cookie(headers, name);
        let cluster = value("cluster_name").ok_or("Cluster Cookie not found")?;
        let session = value("session_name").ok_or("RayCluster Session Name Cookie not found")?;
        let namespace = value("cluster_namespace").ok_or("Cluster Namespace Cookie not found")?;
        let owner_kind = value("owner_kind").unwrap_or_default();
        let owner_name = value("owner_name").unwrap_or_default();
        if [&cluster, &namespace, &session].iter().any(|it| !is_clean_path(it)) {
            return Err(format!(
                "invalid cookie values: path traversal not allowed (cluster_name={cluster}, \
                 cluster_namespace={namespace}, session_name={session})"
            ));
        }
        if !owner_kind.is_empty() && Kind::parse(&owner_kind).is_none() {
            return Err(format!(
                "invalid cookie values: unsupported owner_kind={owner_kind} (must be raycluster, rayjob, or \
                 rayservice)"
            ));
        }
        if !owner_name.is_empty() && !is_clean_path(&owner_name) {
            return Err(format!(
                "invalid cookie values: path traversal not allowed (owner_name={owner_name})"
            ));
        }
        Ok(Self { cluster, namespace, session, owner_kind, owner_name })
    }

    /// The cookies for the response: the choice lasts on.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        let cookies = [
            ("cluster_name", &self.cluster),
            ("cluster_namespace", &self.namespace),
            ("session_name", &self.session),
            ("owner_kind", &self.owner_kind),
            ("owner_name", &self.owner_name),
        ];
        // They come first: a dashboard may set its own.
        let others: Vec<HeaderValue> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
        headers.remove(header::SET_COOKIE);
        for (name, value) in cookies {
            // As Go does: bytes that a cookie cannot hold are left out, and blanks or commas are quoted.
            let value: String = value
                .chars()
                .filter(|it| matches!(it, ' '..='~') && !matches!(it, '"' | ';' | '\\'))
                .collect();
            let value = if value.contains([' ', ',']) { format!("\"{value}\"") } else { value };
            let cookie = format!("{name}={value}; Path=/; Max-Age={MAX_AGE}");
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                headers.append(header::SET_COOKIE, cookie);
            }
        }
        for other in others {
            headers.append(header::SET_COOKIE, other);
        }
    }

    /// The cluster in the storage.
    pub(crate) fn stored(&self) -> Cluster {
        let kind = Kind::parse(&self.owner_kind).filter(|kind| *kind != Kind::RayCluster);
        let owner = kind.filter(|_| !self.owner_name.is_empty());
        Cluster {
            namespace: self.namespace.clone(),
            name: self.cluster.clone(),
            owner: owner.map(|kind| Owner { kind, name: self.owner_name.clone() }),
        }
    }

    /// The key of the loaded session.
    pub(crate) fn key(&self) -> String {
        format!("{}_{}_{}", self.cluster, self.namespace, self.session)
    }
}

/// The first cookie of that name, as Go's `http.Request.Cookie` reads it: values with other bytes than those of cookies
/// are left out.
fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let texts = headers.get_all(header::COOKIE).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    for text in texts {
        for pair in text.split(';').map(str::trim) {
            let (it, value) = pair.split_once('=').unwrap_or((pair, ""));
            let quoted = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
            let value = quoted.unwrap_or(value);
            let is_valid = |it: char| matches!(it, ' '..='~') && !matches!(it, '"' | '\\');
            if it.trim() == name && value.chars().all(is_valid) {
                return Some(value.to_owned());
            }
        }
    }
    None
}
