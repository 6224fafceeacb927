//! What a request is for. Patterns and their precedence are those of KubeRay's `apiserversdk.NewMux`.

use http::Method;

use crate::path::{self, InvalidPath};

/// Resources whose compute templates are applied.
const TEMPLATED: [&str; 3] = ["rayclusters", "rayjobs", "rayservices"];

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Whether this server runs.
    Health,
    /// The metrics of this server.
    Metrics,
    /// Documentation of the first version of the API, which is not served.
    Documentation,
    /// Nothing.
    Unknown,
    /// The same at another path and query.
    Redirect(String),
    /// A Ray resource.
    Resource,
    /// A Ray resource with compute templates, in this namespace.
    Templated { namespace: String },
    /// The events of a namespace.
    Events,
    /// What a Service serves.
    Service { namespace: String, service: String },
}

impl Route {
    /// The label of its metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Metrics => "metrics",
            Self::Documentation | Self::Unknown => "unknown",
            Self::Redirect(_) => "redirect",
            Self::Resource => "resource",
            Self::Templated { .. } => "template",
            Self::Events => "events",
            Self::Service { .. } => "service",
        }
    }
}

/// Routes a request. `is_proxying` is off when only the other paths are to be there.
pub(crate) fn route(
    method: &Method,
    path: &str,
    query: Option<&str>,
    is_proxying: bool,
) -> Result<Route, InvalidPath> {
    let cleaned = path::clean(path);
    let segments = path::segments(&cleaned)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let redirect = |path: &str| {
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        Ok(Route::Redirect(format!("{path}{query}")))
    };
    match segments.as_slice() {
        ["swagger" | "swagger-ui"] => return redirect(&format!("{cleaned}/")),
        ["apis", "ray.io", "v1"] if is_proxying => return redirect(&format!("{cleaned}/")),
        _ if cleaned != path => return redirect(&cleaned),
        _ => {}
    }
    Ok(match segments.as_slice() {
        ["healthz"] => Route::Health,
        ["metrics"] => Route::Metrics,
        ["swagger" | "swagger-ui", ..] => Route::Documentation,
        proxied if is_proxying => proxied_route(method, proxied),
        _ => Route::Unknown,
    })
}

fn proxied_route(method: &Method, segments: &[&str]) -> Route {
    match *segments {
        ["apis", "ray.io", "v1", "namespaces", namespace, resource]
            if method == Method::POST && TEMPLATED.contains(&resource) =>
        {
            Route::Templated { namespace: namespace.to_owned() }
        }
        ["apis", "ray.io", "v1", "namespaces", namespace, resource, name]
            if method == Method::PUT && TEMPLATED.contains(&resource) && !name.is_empty() =>
        {
            Route::Templated { namespace: namespace.to_owned() }
        }
        ["apis", "ray.io", "v1", _, ..] => Route::Resource,
        ["apis", "events.k8s.io", "v1", "namespaces", _, "events"]
            if method == Method::GET || method == Method::HEAD =>
        {
            Route::Events
        }
        ["api", "v1", "namespaces", namespace, "services", service, "proxy", ..] => {
            Route::Service { namespace: namespace.to_owned(), service: service.to_owned() }
        }
        _ => Route::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(method: &str, path: &str) -> Route {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        route(&method.parse().unwrap(), path, query, true).unwrap()
    }

    #[test]
    fn requests_reach_what_they_are_for() {
        let templated = || Route::Templated { namespace: "ns".to_owned() };
        let service =
            |service: &str| Route::Service { namespace: "ns".to_owned(), service: service.to_owned() };
        let redirect = |path: &str| Route::Redirect(path.to_owned());
        for (method, path, expected) in [
            ("GET", "/healthz", Route::Health),
            ("POST", "/healthz", Route::Health),
            ("GET", "/healthz/", Route::Unknown),
            ("GET", "/metrics", Route::Metrics),
            ("GET", "/swagger", redirect("/swagger/")),
            ("GET", "/swagger/x", Route::Documentation),
            ("GET", "/", Route::Unknown),
            ("GET", "/apis/ray.io/v1", redirect("/apis/ray.io/v1/")),
            ("GET", "/apis/ray.io//v1?a=b", redirect("/apis/ray.io/v1/?a=b")),
            ("GET", "/apis/ray.io/v1//x?a=b", redirect("/apis/ray.io/v1/x?a=b")),
            ("GET", "/apis/ray.io/v1/", Route::Resource),
            ("GET", "/apis/ray.io/v1/rayclusters", Route::Resource),
            ("GET", "/apis/ray.io/v1alpha1/rayclusters", Route::Unknown),
            ("GET", "/apis/ray.io", Route::Unknown),
            ("POST", "/apis/ray.io/v1/rayclusters", Route::Resource),
            ("POST", "/apis/ray.io/v1/namespaces/ns/rayclusters", templated()),
            ("POST", "/%61pis/ray.io/v1/namespaces/ns/%72ayclusters", templated()),
            ("POST", "/apis/ray.io/v1/namespaces/ns/rayclusters/", Route::Resource),
            ("POST", "/apis/ray.io/v1/namespaces/ns/raycronjobs", Route::Resource),
            ("PUT", "/apis/ray.io/v1/namespaces/ns/rayjobs/x", templated()),
            ("PUT", "/apis/ray.io/v1/namespaces/ns/rayjobs/x/status", Route::Resource),
            ("PATCH", "/apis/ray.io/v1/namespaces/ns/rayservices/x", Route::Resource),
            ("GET", "/apis/events.k8s.io/v1/namespaces/ns/events", Route::Events),
            ("HEAD", "/apis/events.k8s.io/v1/namespaces/ns/events", Route::Events),
            ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events", Route::Unknown),
            ("GET", "/apis/events.k8s.io/v1/events", Route::Unknown),
            ("GET", "/apis/events.k8s.io/v1/namespaces/ns/events/x", Route::Unknown),
            ("GET", "/api/v1/namespaces/ns/services/s/proxy", service("s")),
            ("PUT", "/api/v1/namespaces/ns/services/http:s:1/proxy/a/b", service("http:s:1")),
            ("GET", "/api/v1/namespaces/ns/services/a%2Fb/proxy/", service("a/b")),
            ("GET", "/api/v1/namespaces/ns/services/s", Route::Unknown),
            (
                "GET",
                "/api/v1/namespaces/ns/services/s/proxy/../x",
                redirect("/api/v1/namespaces/ns/services/s/x"),
            ),
            ("GET", "/api/v1/namespaces/ns/secrets", Route::Unknown),
            ("GET", "/api/v1/namespaces/ns/pods/p/proxy/", Route::Unknown),
        ] {
            assert_eq!(routed(method, path), expected, "{method} {path}");
        }
        assert!(route(&Method::GET, "/apis/ray.io/v1/%2e%2e/%2e%2e/v1/secrets", None, true).is_err());
    }

    #[test]
    fn without_proxying_only_the_other_paths_are_there() {
        let route = |path| route(&Method::GET, path, None, false).unwrap();
        assert_eq!(route("/healthz"), Route::Health);
        assert_eq!(route("/apis/ray.io/v1/rayclusters"), Route::Unknown);
        assert_eq!(route("/apis/ray.io/v1"), Route::Unknown);
    }
}
