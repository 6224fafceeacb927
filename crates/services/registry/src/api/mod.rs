//! The REST API of the registry.

mod handlers;
mod health;
pub(crate) mod query;
pub(crate) mod response;
mod route;

use bytes::Bytes;
use http::{HeaderMap, Method};

use self::query::Query;
use self::response::Response;
pub(crate) use self::route::is_alpha;
use crate::service::Registry;

/// A request whose body has been read.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// The path as sent, still percent-encoded.
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The answer until the database is ready; clients show it to users.
const NOT_READY: &str = "Datastore service is down or unavailable. Please check that the database is reachable and try \
                         again later.\n";

/// Answers a request; `registry` is `None` until the database is ready.
pub(crate) async fn answer(registry: Option<&Registry>, request: &Request) -> Response {
    if let Some(check) = health::Check::from_path(&request.path) {
        return health::answer(registry, check, request).await;
    }
    let Some(registry) = registry else {
        return Response::plain_error(http::StatusCode::SERVICE_UNAVAILABLE, NOT_READY);
    };
    if let Some(refusal) = refuse_nul(request) {
        return refusal;
    }
    match route::find(&request.path) {
        None => Response::no_route(&request.method),
        Some((route, _)) if !route.methods().contains(&&request.method) => {
            Response::method_not_allowed(&request.method, route.methods())
        }
        Some((route, id)) => match handlers::handle(registry, route, &id, request).await {
            Ok(response) => response,
            Err(error) => Response::refusal(&error),
        },
    }
}

/// Refuses NUL, which PostgreSQL cannot store; also spelled as an escape.
pub(crate) fn refuse_nul(request: &Request) -> Option<Response> {
    let contains = |text: &[u8]| {
        let escape = b"\\u0000";
        text.contains(&0) || text.windows(escape.len()).any(|window| window == escape)
    };
    let parameters = request.query.parameters().unwrap_or_default();
    if let Some(parameter) = parameters.iter().find(|it| contains(it.value.as_bytes())) {
        let name = &parameter.name;
        let why = format!("invalid {name} parameter: contains null bytes which are not allowed");
        return Some(Response::bad_request(&format!("Invalid {name} query parameter: {why}")));
    }
    contains(&request.body)
        .then(|| Response::bad_request("Request body contains null bytes which are not allowed"))
}
