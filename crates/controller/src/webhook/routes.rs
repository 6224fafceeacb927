//! Webhook handlers by path, for the HTTPS server and for callers in the same process.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::http::StatusCode;
use futures::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    admission::{self, Admission, Mutation, Verdict},
    conversion,
};
use crate::tasks::panic_text;

type Handler = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Value, HandlerError>> + Send + Sync>;

/// The handlers of all webhooks.
///
/// Admission handlers are closures that return a [`Verdict`] or [`Mutation`], or a future of one. They may own
/// [`Cache`](crate::cache::Cache)s to look things up, or an [`Api`](crate::api::Api) for requests such as
/// SubjectAccessReviews. A handler that exceeds the time limit of its request is dropped, so it must not leave
/// anything half done at an await.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use quintet_controller::{
///     ObjectKey,
///     cache::Cache,
///     webhook::{Admission, Mutation, Routes, Verdict},
/// };
///
/// fn routes(quotas: Cache<ConfigMap>) -> Routes {
///     Routes::new()
///         .validate("/validate", move |admission: Admission<ConfigMap>| {
///             let quota = ObjectKey::new(&admission.request.namespace, "quota");
///             if quotas.get(&quota).is_some() { Verdict::allow() } else { Verdict::deny("no quota") }
///         })
///         .mutate("/mutate", |mut admission: Admission<ConfigMap>| async move {
///             admission.object.immutable = Some(true);
///             Mutation::to(admission.object)
///         })
/// }
/// ```
#[derive(Clone, Default)]
pub struct Routes(BTreeMap<String, Handler>);

/// Why a webhook has no response. API servers then act by the webhook's failure policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandlerError {
    /// No handler has this path.
    #[error("there is no webhook at {0}")]
    NotFound(String),
    /// The request cannot be understood.
    #[error("{0}")]
    BadRequest(String),
    /// The handler took too long.
    #[error("the webhook at {path} did not finish within {} ms", limit.as_millis())]
    TimedOut {
        /// The webhook.
        path: String,
        /// The time it had.
        limit: Duration,
    },
    /// The handler panicked, or its result cannot be encoded.
    #[error("the webhook at {path} failed: {cause}; this is a bug in Quintet")]
    Bug {
        /// The webhook.
        path: String,
        /// What happened.
        cause: String,
    },
}

impl HandlerError {
    /// The HTTP status that reports it.
    ///
    /// A timeout is a 500 and not a 504: client-go's `NewGenericServerResponse` quotes the body of a 500 in the
    /// error that users see, and replaces that of a 504 by a sentence of its own.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::TimedOut { .. } | Self::Bug { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl Routes {
    /// No handlers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Validates objects of type `K` at `path`. Objects that cannot be decoded are denied.
    #[must_use]
    pub fn validate<K, R>(
        self,
        path: &str,
        handler: impl Fn(Admission<K>) -> R + Send + Sync + 'static,
    ) -> Self
    where
        K: DeserializeOwned + Send + 'static,
        R: IntoFuture<Output = Verdict>,
        R::IntoFuture: Send + 'static,
    {
        let handler = Arc::new(handler);
        self.add(path, move |review| {
            let handler = Arc::clone(&handler);
            async move {
                let request = admission::request(review)?;
                let uid = request.uid.clone();
                let verdict = match admission::typed::<K>(request) {
                    Ok(admission) => handler(admission).await,
                    Err(reason) => Verdict::deny(reason),
                };
                Ok(admission::response(&uid, &verdict))
            }
            .boxed()
        })
    }

    /// Changes objects of type `K` at `path`. The patch contains what the handler changed and nothing else. With
    /// [`Value`] as the type, handlers see objects as they were sent.
    ///
    /// Objects that cannot be decoded stay as they are: API servers check the schema after mutating webhooks, and report
    /// each invalid field with its path.
    #[must_use]
    pub fn mutate<K, R>(self, path: &str, handler: impl Fn(Admission<K>) -> R + Send + Sync + 'static) -> Self
    where
        K: DeserializeOwned + Serialize + Send + 'static,
        R: IntoFuture<Output = Mutation<K>>,
        R::IntoFuture: Send + 'static,
    {
        let (handler, path_name) = (Arc::new(handler), path.to_owned());
        self.add(path, move |review| {
            let (handler, path) = (Arc::clone(&handler), path_name.clone());
            async move {
                let request = admission::request(review)?;
                let (uid, original) = (request.uid.clone(), request.object.clone());
                let Ok(admission) = admission::typed::<K>(request) else {
                    return Ok(admission::response(&uid, &Verdict::allow()));
                };
                let before = serde_json::to_value(&admission.object);
                let mutation = handler(admission).await;
                admission::mutated(&uid, &original, before, mutation)
                    .map_err(|error| HandlerError::Bug { path, cause: error.to_string() })
            }
            .boxed()
        })
    }

    /// Converts objects to the requested version at `path`. A conversion that exceeds the time limit is not
    /// stopped, only its result is dropped.
    #[must_use]
    pub fn convert(
        self,
        path: &str,
        convert: impl Fn(Value, &str) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        let (convert, path_name) = (Arc::new(convert), path.to_owned());
        self.add(path, move |review| {
            let (convert, path) = (Arc::clone(&convert), path_name.clone());
            async move {
                // A page of a list can take long: it must not block other tasks, and its time limit holds.
                let converting = tokio::task::spawn_blocking(move || conversion::respond(review, &*convert));
                converting.await.unwrap_or_else(|error| match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(error) => Err(HandlerError::Bug { path, cause: error.to_string() }),
                })
            }
            .boxed()
        })
    }

    /// The paths that have handlers.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The response to an AdmissionReview or ConversionReview, within a time limit. A panic fails this one
    /// request.
    pub async fn handle(&self, path: &str, review: Value, limit: Duration) -> Result<Value, HandlerError> {
        let handler = self.0.get(path).ok_or_else(|| HandlerError::NotFound(path.to_owned()))?;
        // Handlers may panic when they are called and when they are polled.
        let response = AssertUnwindSafe(async { handler(review).await }).catch_unwind();
        let response = tokio::time::timeout(limit, response)
            .await
            .unwrap_or_else(|_| Ok(Err(HandlerError::TimedOut { path: path.to_owned(), limit })));
        let response = response.unwrap_or_else(|panic| {
            let cause = format!("it panicked: {}", panic_text(&*panic));
            Err(HandlerError::Bug { path: path.to_owned(), cause })
        });
        if let Err(error @ (HandlerError::Bug { .. } | HandlerError::TimedOut { .. })) = &response {
            tracing::error!("{error}");
        }
        response
    }

    fn add(
        mut self,
        path: &str,
        handler: impl Fn(Value) -> BoxFuture<'static, Result<Value, HandlerError>> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(path.to_owned(), Arc::new(handler));
        self
    }
}
