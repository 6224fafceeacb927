//! Limits of concurrent requests.
//!
//! Administrators are never throttled: they must be able to find out what is going on. Neither are
//! watches and the like, which last as long as their clients want; connections are what limits those.

use http::Request;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    auth::{Caller, MASTERS},
    request::url::{self, Query, Route},
};

/// As many as kube-apiserver serves at a time unless told otherwise.
const READS: usize = 400;
const WRITES: usize = 200;

/// The room that is left.
#[derive(Debug)]
pub(super) struct RequestLimits {
    reads: Semaphore,
    writes: Semaphore,
}

/// There is no room.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Default for RequestLimits {
    fn default() -> Self {
        Self::new(READS, WRITES)
    }
}

impl RequestLimits {
    fn new(reads: usize, writes: usize) -> Self {
        Self { reads: Semaphore::new(reads), writes: Semaphore::new(writes) }
    }

    /// Room for a request, as long as the permit lives; `None` for one that needs no permit.
    pub(super) fn admit<B>(
        &self,
        caller: &Caller,
        request: &Request<B>,
    ) -> Result<Option<SemaphorePermit<'_>>, Full> {
        if caller.groups.iter().any(|group| group == MASTERS) || is_long_running(request) {
            return Ok(None);
        }
        let is_read = matches!(*request.method(), http::Method::GET | http::Method::HEAD);
        let room = if is_read { &self.reads } else { &self.writes };
        room.try_acquire().map(Some).map_err(|_| Full)
    }
}

/// Whether a request lasts as long as the client wants, or is a health check.
pub(super) fn is_long_running<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    if ["/healthz", "/livez", "/readyz"].iter().any(|health| path.starts_with(health)) {
        return true;
    }
    let Some(Route::Resource(path)) = url::route(path) else { return false };
    let lasts = ["attach", "exec", "log", "portforward", "proxy"];
    path.is_watch
        || (path.name.is_none() && Query::parse(request.uri().query()).is_set("watch"))
        || path.subresource.is_some_and(|sub| lasts.contains(&sub.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str) -> Request<()> {
        Request::builder().method(method).uri(path).body(()).unwrap()
    }

    #[test]
    fn who_finds_no_room_is_turned_away_but_those_who_must_get_in() {
        let limits = RequestLimits::new(1, 1);
        let somebody = Caller::known("somebody", Vec::new());
        let (get, post) = (request("GET", "/api/v1/pods"), request("POST", "/api/v1/namespaces"));
        let read = limits.admit(&somebody, &get).unwrap();
        assert_eq!(limits.admit(&somebody, &get).unwrap_err(), Full);
        let write = limits.admit(&somebody, &post).unwrap();
        assert!(write.is_some());
        assert_eq!(limits.admit(&somebody, &post).unwrap_err(), Full);
        for path in [
            "/api/v1/pods?watch=1",
            "/api/v1/namespaces/a/pods/b/log",
            "/api/v1/namespaces/a/services/b/proxy/c",
            "/readyz",
        ] {
            assert!(limits.admit(&somebody, &request("GET", path)).unwrap().is_none(), "{path}");
        }
        assert_eq!(limits.admit(&somebody, &request("GET", "/api/v1/namespaces/watch")).unwrap_err(), Full);
        let admin = Caller::known("admin", [MASTERS.to_owned()]);
        assert!(limits.admit(&admin, &get).unwrap().is_none());
        drop(read);
        assert!(limits.admit(&somebody, &get).unwrap().is_some());
    }
}
