//! The registry server.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{self, HeaderName, HeaderValue};
use quintet_foundation::clock::Clock;
use tokio::net::TcpListener;

use crate::api::response::Response;
use crate::api::{self, Request};
use crate::error::Error;
use crate::http_server::{self, Origins};
use crate::service::Registry;
use crate::store::{Database, Location, StoreError};

/// The API that replaces the alpha API.
const SUCCESSOR: &str = "</api/model_registry/v1/>; rel=\"successor-version\"";

/// How often a database that is away is tried before giving up. The pause before each attempt is a second longer than
/// the one before, as upstream waits: five minutes in all, in which a database of the same deployment starts.
const ATTEMPTS: u64 = 25;

/// A registry server.
///
/// It accepts connections at once; until the database is ready, requests get 503.
#[derive(Clone, Default)]
pub struct Server {
    registry: Arc<OnceLock<Registry>>,
    /// The value of the header `Sunset` in answers of the alpha API.
    alpha_sunset: Option<HeaderValue>,
    origins: Origins,
}

/// Why the database could not be made ready.
#[derive(Debug, thiserror::Error)]
#[error("{{{{ALERT}}}} the registry's database is not usable: {0}")]
pub struct DatabaseError(String);

impl Server {
    /// Announces in answers of the alpha API that it may be removed after this day.
    #[must_use]
    pub fn with_alpha_sunset(mut self, day: jiff::civil::Date) -> Self {
        self.alpha_sunset =
            HeaderValue::from_str(&day.strftime("%a, %d %b %Y 00:00:00 GMT").to_string()).ok();
        self
    }

    /// Lets pages of these origins read answers; `*` stands for all.
    #[must_use]
    pub fn with_allowed_origins(mut self, origins: Vec<String>) -> Self {
        self.origins = Origins::new(origins);
        self
    }

    /// Opens the database, creating its schema if there is none. A database server that is away is waited for.
    pub async fn open_database(&self, location: &Location) -> Result<(), DatabaseError> {
        let mut attempt = 1;
        let database = loop {
            match Database::open(location).await {
                Ok(database) => break database,
                Err(Error::Store(StoreError::Unavailable(why)))
                    if location.is_remote() && attempt < ATTEMPTS =>
                {
                    tracing::warn!(why, attempt, "the database is not there yet");
                    tokio::time::sleep(Duration::from_secs(attempt)).await;
                    attempt += 1;
                }
                Err(error) => return Err(DatabaseError(error.to_string())),
            }
        };
        // A second call would lose to the first, whose database is in use.
        let _ = self.registry.set(Registry::new(database, Clock::system()));
        Ok(())
    }

    /// Serves connections until `stop` completes, then waits for those in progress.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let origins = self.origins.clone();
        let handler = move |request: Request| {
            let server = self.clone();
            async move { server.answer(&request).await }
        };
        http_server::serve(listener, stop, origins, handler).await;
    }

    async fn answer(&self, request: &Request) -> Response {
        let mut response = api::answer(self.registry.get(), request).await;
        if let Some(sunset) = self.alpha_sunset.as_ref().filter(|_| api::is_alpha(&request.path)) {
            response.headers.extend([
                (HeaderName::from_static("deprecation"), HeaderValue::from_static("true")),
                (HeaderName::from_static("sunset"), sunset.clone()),
                (header::LINK, HeaderValue::from_static(SUCCESSOR)),
            ]);
        }
        response
    }
}
