//! Which path answers which question.

use std::{panic::AssertUnwindSafe, panic::catch_unwind, sync::Arc};

use axum::{
    Json, Router,
    body::Bytes,
    extract::DefaultBodyLimit,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    admission::{self, Admission, Verdict},
    conversion,
};
use crate::tasks::panic_text;

/// An object has at most 1.5 MiB in etcd, and a review holds two of them as JSON; a conversion holds a page
/// of a list.
const BODY_LIMIT: usize = 32 * 1024 * 1024;

/// The paths of all webhooks.
#[derive(Clone, Default)]
pub struct Routes(Router);

impl Routes {
    /// No paths yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers validating questions about `K` at `path`.
    #[must_use]
    pub fn validate<K>(
        self,
        path: &str,
        decide: impl Fn(&Admission<K>) -> Verdict + Send + Sync + 'static,
    ) -> Self
    where
        K: DeserializeOwned + 'static,
    {
        self.answer(path, move |body| {
            let request = admission::question(body)?;
            let uid = request.uid.clone();
            let verdict = match admission::typed(request) {
                Ok(admission) => decide(&admission),
                // The user's object, the user's mistake.
                Err(why) => Verdict::deny(why),
            };
            Ok(admission::answer(&uid, &verdict))
        })
    }

    /// Lets `change` set defaults in objects of type `K` at `path`. Only what it changes is changed.
    #[must_use]
    pub fn mutate<K>(self, path: &str, change: impl Fn(&mut Admission<K>) + Send + Sync + 'static) -> Self
    where
        K: DeserializeOwned + Serialize + 'static,
    {
        self.answer(path, move |body| {
            let request = admission::question(body)?;
            let uid = request.uid.clone();
            Ok(match admission::typed::<K>(request) {
                Ok(mut admission) => {
                    let before = serde_json::to_value(&admission.object).unwrap_or_default();
                    change(&mut admission);
                    admission::mutated(&admission.request, &before, &admission.object)
                }
                Err(why) => admission::answer(&uid, &Verdict::deny(why)),
            })
        })
    }

    /// Converts objects to the version asked for at `path`.
    #[must_use]
    pub fn convert(
        self,
        path: &str,
        convert: impl Fn(Value, &str) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.answer(path, move |body| conversion::answer(body, &convert))
    }

    /// A path whose answer is JSON. A panic is one failed request and no more.
    fn answer(
        self,
        path: &str,
        answer: impl Fn(&[u8]) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        let answer = Arc::new(answer);
        let name: Arc<str> = path.into();
        let handler = post(move |body: Bytes| async move { respond(&name, &*answer, &body) });
        Self(self.0.route(path, handler))
    }

    pub(super) fn into_router(self) -> Router {
        self.0.layer(DefaultBodyLimit::max(BODY_LIMIT))
    }
}

fn respond(path: &str, answer: &dyn Fn(&[u8]) -> Result<Value, String>, body: &[u8]) -> Response {
    match catch_unwind(AssertUnwindSafe(|| answer(body))) {
        Ok(Ok(review)) => Json(review).into_response(),
        Ok(Err(why)) => (StatusCode::BAD_REQUEST, why).into_response(),
        Err(panic) => {
            tracing::error!(path, "webhook panicked: {}", panic_text(&*panic));
            (StatusCode::INTERNAL_SERVER_ERROR, "the webhook failed; this is a bug in Quintet")
                .into_response()
        }
    }
}
