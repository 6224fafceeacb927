//! Routes, and what a request must be like for them: the rules of go-restful, which clients have met so far.

use http::header::{self, HeaderMap};
use http::{Method, StatusCode};

use super::response::Reply;

/// What a path means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    Clusters,
    Enter { namespace: &'a str, kind: &'a str, name: &'a str, session: Option<&'a str> },
    Data(Data<'a>),
}

/// Routes about the session that the cookies name.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Data<'a> {
    Nodes,
    Node(&'a str),
    Events,
    Jobs,
    Job(&'a str),
    Tasks,
    Summary,
    Timeline,
    Logs,
    Log(&'a str),
    ClusterStatus,
    ClusterMetadata,
    Timezone,
    GrafanaHealth,
    PrometheusHealth,
    Actors,
    Actor(&'a str),
    /// Anything else below `/api`: answered as the dashboard did.
    Replay,
}

/// First elements of paths that have routes.
const ROOTS: [&str; 7] = ["clusters", "enter_cluster", "nodes", "events", "api", "logical", "timezone"];

/// Whether some path with this first element has a route.
pub(crate) fn is_root(element: &str) -> bool {
    ROOTS.contains(&element)
}

/// The route of a decoded path. A slash at its end does not matter.
pub(crate) fn find(path: &str) -> Option<Route<'_>> {
    let path = path.trim_matches('/');
    let elements: Vec<&str> = path.split('/').collect();
    let data = match elements.as_slice() {
        ["clusters"] => return Some(Route::Clusters),
        ["enter_cluster", namespace, kind, name] => {
            return Some(Route::Enter { namespace, kind, name, session: None });
        }
        ["enter_cluster", namespace, kind, name, session] => {
            return Some(Route::Enter { namespace, kind, name, session: Some(session) });
        }
        ["nodes"] => Data::Nodes,
        ["nodes", node] => Data::Node(node),
        ["events"] => Data::Events,
        ["timezone"] => Data::Timezone,
        ["logical", "actors"] => Data::Actors,
        ["logical", "actors", ..] => Data::Actor(path.get("logical/actors/".len()..).unwrap_or_default()),
        ["api", "jobs"] => Data::Jobs,
        ["api", "jobs", job] => Data::Job(job),
        ["api", "v0", "tasks"] => Data::Tasks,
        ["api", "v0", "tasks", "summarize"] => Data::Summary,
        ["api", "v0", "tasks", "timeline"] => Data::Timeline,
        ["api", "v0", "logs"] => Data::Logs,
        ["api", "v0", "logs", media_type] => Data::Log(media_type),
        ["api", "v0", "cluster_metadata"] => Data::ClusterMetadata,
        ["api", "cluster_status"] => Data::ClusterStatus,
        ["api", "grafana_health"] => Data::GrafanaHealth,
        ["api", "prometheus_health"] => Data::PrometheusHealth,
        ["api", _, ..] => Data::Replay,
        _ => return None,
    };
    Some(Route::Data(data))
}

const JSON: &[&str] = &["application/json"];
const LOG: &[&str] = &["text/plain", "text/event-stream"];

/// Checks method, content type and accepted types. A log that is asked for as JSON is a replay.
pub(crate) fn admit<'a>(
    route: Route<'a>,
    method: &Method,
    headers: &HeaderMap,
    uri: &str,
) -> Result<Route<'a>, Reply> {
    if method != Method::GET {
        let body = if method == Method::HEAD { "" } else { "405: Method Not Allowed" };
        let reply = Reply::text(StatusCode::METHOD_NOT_ALLOWED, body);
        return Err(reply.with(header::ALLOW, header::HeaderValue::from_static("GET")));
    }
    if !consumes_json(headers, true) {
        return Err(unsupported_media_type());
    }
    // Below /api, the replay is a second route of every path.
    let has_second = uri.starts_with("/api/") && route != Route::Data(Data::Replay);
    let own = if matches!(route, Route::Data(Data::Log(_))) { LOG } else { JSON };
    if accepts(headers, own) {
        return Ok(route);
    }
    if has_second && accepts(headers, JSON) {
        return Ok(Route::Data(Data::Replay));
    }
    let mut available = own.to_vec();
    if has_second {
        available.extend(JSON);
    }
    Err(not_acceptable(&available))
}

/// Whether the body's type is JSON. Requests without a type pass if they usually have no body.
pub(crate) fn consumes_json(headers: &HeaderMap, is_body_optional: bool) -> bool {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type.is_empty() {
        return is_body_optional;
    }
    content_type.split(',').any(|it| media_type(it) == "application/json")
}

/// Whether the client takes one of these types. Only `*/*` stands for several.
pub(crate) fn accepts(headers: &HeaderMap, types: &[&str]) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let accept = if accept.is_empty() { "*/*" } else { accept };
    accept.split(',').map(media_type).any(|it| it == "*/*" || types.contains(&it))
}

fn media_type(text: &str) -> &str {
    text.split(';').next().unwrap_or_default().trim()
}

pub(crate) fn unsupported_media_type() -> Reply {
    Reply::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "415: Unsupported Media Type")
}

pub(crate) fn not_acceptable(available: &[&str]) -> Reply {
    let text = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
    Reply::text(StatusCode::NOT_ACCEPTABLE, text)
}

/// A path with a known first element, but no route.
pub(crate) fn no_route() -> Reply {
    Reply::not_found("404: Page Not Found")
}

/// A path with an unknown first element.
pub(crate) fn no_page() -> Reply {
    Reply::not_found("404 page not found\n").no_sniff()
}

/// Sends clients to the cleaned form of a path.
pub(crate) fn redirect(method: &Method, path: &str, query: Option<&str>) -> Reply {
    let location = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut reply = Reply::empty(StatusCode::TEMPORARY_REDIRECT);
    if let Ok(value) = header::HeaderValue::from_str(&location) {
        reply.headers.insert(header::LOCATION, value);
    }
    if method == Method::GET || method == Method::HEAD {
        let html = header::HeaderValue::from_static("text/html; charset=utf-8");
        reply.headers.insert(header::CONTENT_TYPE, html);
    }
    if method == Method::GET {
        let escaped = location
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&#34;")
            .replace('\'', "&#39;");
        reply.body = super::response::content(format!("<a href=\"{escaped}\">Temporary Redirect</a>.\n\n"));
    }
    reply
}
