//! Cross-origin resource sharing: which pages of other origins may read responses.
//!
//! Behaves as the Go package `rs/cors` with one allowed origin and the methods that KubeRay names.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};

/// Methods that pages of other origins may use. `OPTIONS` is the preflight itself.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Headers that pages of other origins may set, in their order. Browsers send lists in this order.
const HEADERS: [&str; 3] = ["accept", "content-type", "x-requested-with"];

/// The values that the response to a preflight depends on.
const PREFLIGHT_VARY: &str = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";

/// Who may read responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cors {
    /// No headers are added, and preflights are ordinary requests.
    Off,
    /// Any origin.
    Any,
    /// Origins that begin and end like this, in lower case.
    Like { prefix: String, suffix: String },
    /// This origin, in lower case.
    Only(String),
}

impl Cors {
    /// Reads the allowed origin: empty for none, `*` for all, or with one `*` in it for any text there.
    pub(crate) fn new(origin: &str) -> Self {
        let origin = origin.to_lowercase();
        match origin.split_once('*') {
            _ if origin.is_empty() => Self::Off,
            _ if origin == "*" => Self::Any,
            Some((prefix, suffix)) => Self::Like { prefix: prefix.to_owned(), suffix: suffix.to_owned() },
            None => Self::Only(origin),
        }
    }

    /// Whether a request asks what a page may do.
    pub(crate) fn is_preflight(&self, method: &Method, headers: &HeaderMap) -> bool {
        let asks = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD).is_some_and(|value| !value.is_empty());
        *self != Self::Off && method == Method::OPTIONS && asks
    }

    /// The response to a preflight. Without headers that allow something, the browser does not send the request.
    pub(crate) fn preflight<B: Default>(&self, headers: &HeaderMap) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let allowed = response.headers_mut();
        allowed.insert(header::VARY, HeaderValue::from_static(PREFLIGHT_VARY));
        let method = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD);
        let is_method_allowed = |method: &HeaderValue| METHODS.iter().any(|one| method == one);
        let (Some(origin), Some(method)) =
            (self.allowed_origin(headers), method.filter(|method| is_method_allowed(method)))
        else {
            return response;
        };
        let requested = headers.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS);
        if !are_headers_allowed(requested.iter()) {
            return response;
        }
        allowed.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        allowed.insert(header::ACCESS_CONTROL_ALLOW_METHODS, method.clone());
        for requested in requested.iter().filter(|value| !value.is_empty()) {
            allowed.append(header::ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
        }
        response
    }

    /// Adds headers to the response to any other request.
    pub(crate) fn allow<B>(&self, method: &Method, request: &HeaderMap, response: &mut Response<B>) {
        if *self == Self::Off {
            return;
        }
        let headers = response.headers_mut();
        let others: Vec<HeaderValue> = headers.get_all(header::VARY).iter().cloned().collect();
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
        for other in others {
            headers.append(header::VARY, other);
        }
        if METHODS.contains(&method.as_str())
            && let Some(origin) = self.allowed_origin(request)
        {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        }
    }

    /// The origin to name in a response, if that of the request is allowed.
    fn allowed_origin(&self, request: &HeaderMap) -> Option<HeaderValue> {
        let origin = request.get(header::ORIGIN).filter(|origin| !origin.is_empty())?;
        let text = origin.to_str().ok()?.to_lowercase();
        let is_allowed = match self {
            Self::Off => false,
            Self::Any => return Some(HeaderValue::from_static("*")),
            Self::Like { prefix, suffix } => {
                text.len() >= prefix.len() + suffix.len()
                    && text.starts_with(prefix)
                    && text.ends_with(suffix)
            }
            Self::Only(one) => text == *one,
        };
        is_allowed.then(|| origin.clone())
    }
}

/// Whether all requested headers are allowed. Browsers name each once, in lower case and sorted; anything else is not
/// from a browser.
fn are_headers_allowed<'a>(requested: impl Iterator<Item = &'a HeaderValue>) -> bool {
    let mut rest = HEADERS.iter();
    for value in requested {
        let Ok(text) = value.to_str() else { return false };
        let names =
            text.split(',').map(|name| name.trim_matches([' ', '\t'])).filter(|name| !name.is_empty());
        for name in names {
            if !rest.any(|allowed| *allowed == name) {
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn allowed(response: &Response<()>) -> Vec<(&str, &str)> {
        let headers = response.headers().iter().filter(|(name, _)| name.as_str() != "vary");
        headers.map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect()
    }

    fn preflight(cors: &Cors, origin: &str, method: &str, requested: Option<&str>) -> Vec<String> {
        let mut request = headers(&[("origin", origin), ("access-control-request-method", method)]);
        if let Some(requested) = requested {
            request.insert("access-control-request-headers", requested.parse().unwrap());
        }
        assert!(cors.is_preflight(&Method::OPTIONS, &request));
        let response = cors.preflight::<()>(&request);
        assert_eq!(response.status(), 204);
        assert_eq!(response.headers()["vary"], PREFLIGHT_VARY);
        allowed(&response).into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn preflights_allow_one_origin_its_methods_and_simple_headers() {
        let cors = Cors::new("http://UI.example");
        let ui = "http://ui.example";
        let granted = |method: &str| {
            vec![
                format!("access-control-allow-origin={ui}"),
                format!("access-control-allow-methods={method}"),
            ]
        };
        assert_eq!(preflight(&cors, ui, "DELETE", None), granted("DELETE"));
        let mut with_headers = granted("POST");
        with_headers.push("access-control-allow-headers=content-type".to_owned());
        assert_eq!(preflight(&cors, ui, "POST", Some("content-type")), with_headers);
        for (origin, method, requested) in [
            ("http://evil.example", "GET", None),
            (ui, "TRACE", None),
            (ui, "get", None),
            (ui, "GET", Some("authorization")),
            (ui, "GET", Some("content-type,accept")),
            (ui, "GET", Some("Content-Type")),
        ] {
            let granted = preflight(&cors, origin, method, requested);
            assert!(granted.is_empty(), "{origin} {method} {requested:?}: {granted:?}");
        }
    }

    #[test]
    fn responses_name_the_origin_that_may_read_them() {
        let answered = |cors: &str, method: Method, origin: &str| {
            let mut response = Response::new(());
            response.headers_mut().insert("vary", "Accept".parse().unwrap());
            Cors::new(cors).allow(&method, &headers(&[("origin", origin)]), &mut response);
            let vary: Vec<_> = response.headers().get_all("vary").iter().cloned().collect();
            let origin = response.headers().get("access-control-allow-origin").cloned();
            (vary.len(), origin.map(|origin| origin.to_str().unwrap().to_owned()))
        };
        let some = |origin: &str| Some(origin.to_owned());
        assert_eq!(answered("", Method::GET, "http://a"), (1, None));
        assert_eq!(answered("*", Method::GET, "http://a"), (2, some("*")));
        assert_eq!(answered("http://A", Method::GET, "HTTP://a"), (2, some("HTTP://a")));
        assert_eq!(answered("http://a", Method::HEAD, "http://a"), (2, None));
        assert_eq!(answered("http://a", Method::GET, "http://b"), (2, None));
        assert_eq!(answered("https://*.a", Method::PUT, "https://x.a"), (2, some("https://x.a")));
        assert_eq!(answered("https://*.a", Method::PUT, "https://.b"), (2, None));
    }

    #[test]
    fn without_an_origin_preflights_are_ordinary_requests() {
        let request = headers(&[("access-control-request-method", "GET")]);
        assert!(!Cors::new("").is_preflight(&Method::OPTIONS, &request));
        assert!(Cors::new("*").is_preflight(&Method::OPTIONS, &request));
        assert!(!Cors::new("*").is_preflight(&Method::GET, &request));
        assert!(!Cors::new("*").is_preflight(&Method::OPTIONS, &HeaderMap::new()));
    }
}
