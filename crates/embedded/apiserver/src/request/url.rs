//! Request paths and queries, parsed.

/// The parts of a path under `/api` or `/apis`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, if the path names one.
    pub namespace: Option<String>,
    /// Plural of the resource.
    pub resource: String,
    /// Name of the object, if any.
    pub name: Option<String>,
    /// Subresource, if any.
    pub subresource: Option<String>,
    /// What follows the subresource, for proxies; with its leading slash.
    pub rest: Option<String>,
    /// Whether it came with the old `/watch/` prefix.
    pub is_watch: bool,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A resource.
    Resource(ResourcePath),
    /// `/api` or `/apis`.
    Groups {
        /// `/api`, the core group alone.
        is_core: bool,
    },
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1` or `/apis/{group}/{version}`.
    Version {
        /// API group; empty for core.
        group: String,
        /// API version.
        version: String,
    },
    /// Anything else.
    Other,
}

/// Reads a path. `None` if it holds something that is no text.
pub fn route(path: &str) -> Option<Route> {
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        parts.push(decode(part, false)?);
    }
    let mut parts = parts.into_iter();
    let (group, version) = match parts.next().as_deref() {
        Some("api") => match parts.next() {
            None => return Some(Route::Groups { is_core: true }),
            Some(version) => (String::new(), version),
        },
        Some("apis") => match (parts.next(), parts.next()) {
            (None, _) => return Some(Route::Groups { is_core: false }),
            (Some(group), None) => return Some(Route::Group(group)),
            (Some(group), Some(version)) => (group, version),
        },
        _ => return Some(Route::Other),
    };
    let mut parts = parts.peekable();
    let is_watch = parts.peek().is_some_and(|part| part == "watch");
    if is_watch {
        parts.next();
    }
    let Some(first) = parts.next() else {
        return Some(Route::Version { group, version });
    };
    let mut place = ResourcePath { group, version, is_watch, ..ResourcePath::default() };
    if first == "namespaces" {
        match (parts.next(), parts.next()) {
            (None, _) => place.resource = first,
            (Some(name), None) => {
                place.resource = first;
                place.name = Some(name);
            }
            // The namespace's own subresources, else something inside it.
            (Some(name), Some(sub)) if sub == "status" || sub == "finalize" => {
                place.resource = first;
                place.name = Some(name);
                place.subresource = Some(sub);
            }
            (Some(namespace), Some(resource)) => {
                place.namespace = Some(namespace);
                place.resource = resource;
                place.name = parts.next();
                place.subresource = parts.next();
            }
        }
    } else {
        place.resource = first;
        place.name = parts.next();
        place.subresource = parts.next();
    }
    if place.subresource.is_some() {
        let rest: Vec<String> = parts.collect();
        if !rest.is_empty() {
            let slash = if path.ends_with('/') { "/" } else { "" };
            place.rest = Some(format!("/{}{slash}", rest.join("/")));
        } else if path.ends_with('/') {
            place.rest = Some("/".into());
        }
    }
    Some(Route::Resource(place))
}

/// Undoes percent-encoding. `None` if the result is no UTF-8.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' if plus_is_space => out.push(b' '),
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                out.push(u8::try_from(high * 16 + low).ok()?);
            }
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

/// The parameters after the question mark, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query; parts that are no text are left out.
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
        Self(
            pairs
                .filter_map(|part| {
                    let (key, value) = part.split_once('=').unwrap_or((part, ""));
                    Some((decode(key, true)?, decode(value, true)?))
                })
                .collect(),
        )
    }

    /// A parameter; the first if it is given more than once. Empty is absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|v| !v.is_empty())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is there and does not say no.
    pub fn is_set(&self, name: &str) -> bool {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .is_some_and(|(_, value)| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false" | "f"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> ResourcePath {
        match route(path) {
            Some(Route::Resource(resource)) => resource,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn paths_are_taken_apart() {
        let pod = resource("/api/v1/namespaces/a/pods/b/log");
        assert_eq!((pod.group.as_str(), pod.version.as_str()), ("", "v1"));
        assert_eq!((pod.namespace.as_deref(), pod.resource.as_str()), (Some("a"), "pods"));
        assert_eq!((pod.name.as_deref(), pod.subresource.as_deref()), (Some("b"), Some("log")));
        let namespace = resource("/api/v1/namespaces/a/finalize");
        assert_eq!((namespace.resource.as_str(), namespace.name.as_deref()), ("namespaces", Some("a")));
        let proxy = resource("/api/v1/namespaces/a/services/https:b:x/proxy/c/d");
        assert_eq!(proxy.rest.as_deref(), Some("/c/d"));
        let role = resource("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode");
        assert_eq!(role.name.as_deref(), Some("system:node"));
        assert!(resource("/api/v1/watch/pods").is_watch);
        assert_eq!(route("/apis/apps"), Some(Route::Group("apps".into())));
        assert_eq!(route("/healthz"), Some(Route::Other));
        assert_eq!(route("/api/v1/pods/%ff"), None);
    }

    #[test]
    fn queries_are_read() {
        let query = Query::parse(Some("watch=1&labelSelector=a%3Db%2Cc+in+(d)&limit=&x"));
        assert!(query.is_set("watch"));
        assert!(query.is_set("x"));
        assert!(!query.is_set("y"));
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert_eq!(query.get("limit"), None);
    }
}
