//! Where things are in the storage. The layout is KubeRay's, so both can read what the other wrote.

use crate::model::time;

/// The kinds that a session's cluster can belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "the names of the kinds")]
pub(crate) enum Kind {
    RayCluster,
    RayJob,
    RayService,
}

impl Kind {
    /// Recognises a kind in any case.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "raycluster" => Some(Self::RayCluster),
            "rayjob" => Some(Self::RayJob),
            "rayservice" => Some(Self::RayService),
            _ => None,
        }
    }

    /// The name in keys and answers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RayCluster => "raycluster",
            Self::RayJob => "rayjob",
            Self::RayService => "rayservice",
        }
    }

    /// The value of the label `ray.io/originated-from-crd`.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::RayCluster => "RayCluster",
            Self::RayJob => "RayJob",
            Self::RayService => "RayService",
        }
    }
}

/// Whether a text is a relative path without `.`, `..` or empty elements, as Go's `fs.ValidPath`.
pub(crate) fn is_clean_path(path: &str) -> bool {
    path == "." || path.split('/').all(|element| !matches!(element, "" | "." | ".."))
}

/// The RayJob or RayService of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

/// A RayCluster, as the storage knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) owner: Option<Owner>,
}

/// The directory of all markers.
pub(crate) const MARKERS: &str = "cluster-metadata";

impl Cluster {
    /// The directory of a session.
    pub(crate) fn session(&self, session: &str) -> String {
        let Self { namespace, name, owner } = self;
        match owner {
            None => format!("cluster-history/raycluster/{namespace}/{name}/{session}"),
            Some(owner) => {
                format!("cluster-history/{}/{namespace}/{}/{name}/{session}", owner.kind.name(), owner.name)
            }
        }
    }

    /// The empty object that makes a session listable.
    pub(crate) fn marker(&self, session: &str) -> String {
        let Self { namespace, name, owner } = self;
        match owner {
            None => format!("{MARKERS}/raycluster/{namespace}_{name}/{session}"),
            Some(owner) => {
                format!("{MARKERS}/{}/{namespace}_{}_{name}/{session}", owner.kind.name(), owner.name)
            }
        }
    }
}

/// A stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredSession {
    pub(crate) cluster: Cluster,
    pub(crate) session: String,
    /// Seconds since 1970, from its name.
    pub(crate) created: i64,
}

impl StoredSession {
    /// Reads the path of a marker below [`MARKERS`]; `None` if it is something else.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        // Object stores have markers of directories, which end in a slash.
        let mut segments = path.trim_matches('/').split('/');
        let (kind, cluster, session) = (segments.next()?, segments.next()?, segments.next()?);
        if segments.next().is_some() {
            return None;
        }
        let parts: Vec<&str> = cluster.split('_').collect();
        let cluster = match (Kind::parse(kind)?, parts.as_slice()) {
            (Kind::RayCluster, [namespace, name]) => {
                Cluster { namespace: (*namespace).to_owned(), name: (*name).to_owned(), owner: None }
            }
            (kind @ (Kind::RayJob | Kind::RayService), [namespace, owner, name]) => Cluster {
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
                owner: Some(Owner { kind, name: (*owner).to_owned() }),
            },
            _ => return None,
        };
        Some(Self { cluster, session: session.to_owned(), created: time::of_marker(session)? })
    }
}

/// The object that holds the answer of a dashboard endpoint, below the directory of the session. `uri` is the path and
/// the raw query.
pub(crate) fn endpoint(uri: &str) -> String {
    format!("fetched_endpoints/restful__{}", uri.trim_matches('/').replace('/', "__"))
}

/// Whether the name of a file is that of event files: `NODE-YYYY-MM-DD-HH[-NUMBER][.jsonl][.gz]`.
pub(crate) fn is_event_file(name: &str) -> bool {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let name = name.strip_suffix(".jsonl").unwrap_or(name);
    ends_in_hour(name)
        || name.rsplit_once('-').is_some_and(|(before, number)| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && ends_in_hour(before)
        })
}

/// Whether a name ends in `-YYYY-MM-DD-HH`.
fn ends_in_hour(name: &str) -> bool {
    let pattern = b"-dddd-dd-dd-dd";
    let Some(start) = name.len().checked_sub(pattern.len()) else { return false };
    name.as_bytes()[start..].iter().zip(pattern).all(|(byte, expected)| match expected {
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    })
}

#[cfg(test)]
mod tests {
    use super::{Cluster, Kind, Owner, StoredSession, endpoint, is_clean_path, is_event_file};

    #[test]
    fn markers_name_sessions() {
        let session = "session_2026-01-01_09-30-00_123456_1";
        let parsed = StoredSession::parse(&format!("RayCluster/default_demo/{session}"));
        let cluster = Cluster { namespace: "default".to_owned(), name: "demo".to_owned(), owner: None };
        assert_eq!(parsed.as_ref().map(|it| &it.cluster), Some(&cluster));
        assert_eq!(cluster.marker(session), format!("cluster-metadata/raycluster/default_demo/{session}"));
        assert_eq!(cluster.session(session), format!("cluster-history/raycluster/default/demo/{session}"));

        let owner = Some(Owner { kind: Kind::RayJob, name: "j".to_owned() });
        let owned = Cluster { owner, ..cluster };
        let path = owned.marker(session);
        assert_eq!(path, format!("cluster-metadata/rayjob/default_j_demo/{session}"));
        let parsed = StoredSession::parse(path.trim_start_matches("cluster-metadata/"));
        assert_eq!(parsed.map(|it| it.cluster), Some(owned));

        for path in [
            format!("pod/default_demo/{session}"),
            format!("raycluster/default_a_b/{session}"),
            format!("raycluster/default/{session}"),
            format!("rayjob/default_demo/{session}"),
            format!("raycluster/default_demo/{session}/more"),
            "raycluster/default_demo/".to_owned(),
            "raycluster/default_demo/session_2026-01-01_09-30-00".to_owned(),
        ] {
            assert_eq!(StoredSession::parse(&path), None, "{path}");
        }
    }

    #[test]
    fn event_files_are_recognised() {
        for (name, expected) in [
            ("a-2026-01-01-09-1.jsonl", true),
            ("a-2026-01-01-09-1.jsonl.gz", true),
            ("a-2026-01-01-09.gz", true),
            ("a-2026-01-01-09", true),
            ("-2026-01-01-09", true),
            ("a-2026-01-01-09-1.json", false),
            ("a-2026-01-01-09-1.jsonl.tmp", false),
            ("a.jsonl", false),
            ("2026-01-01-09", false),
        ] {
            assert_eq!(is_event_file(name), expected, "{name}");
        }
    }

    #[test]
    fn paths_are_clean() {
        for (path, expected) in [
            ("a/b", true),
            ("a", true),
            (".", true),
            ("", false),
            ("/a", false),
            ("a/", false),
            ("a/../b", false),
            ("a//b", false),
        ] {
            assert_eq!(is_clean_path(path), expected, "{path}");
        }
        assert_eq!(endpoint("/api/v0/nodes?limit=1"), "fetched_endpoints/restful__api__v0__nodes?limit=1");
        assert_eq!(
            endpoint("/api/serve/applications/"),
            "fetched_endpoints/restful__api__serve__applications"
        );
    }
}
