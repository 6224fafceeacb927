//! A `kube::Client` straight onto the request path: no socket, no TLS, the same responses.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use tower::Service;

use crate::{
    api::Api, auth::Caller, decode::BODY_AT_MOST, encoding::response, request::body::ResponseBody,
    status::Failure,
};

/// The API in process, for one user.
#[derive(Clone, Debug)]
pub struct InProcess {
    api: Api,
    caller: Caller,
}

impl Service<Request<Body>> for InProcess {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { api, caller } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = Limited::new(body, BODY_AT_MOST).collect().await else {
                return Ok(response::failure(&Failure::too_large(BODY_AT_MOST)));
            };
            Ok(api.handle(Request::from_parts(parts, body.to_bytes()), caller).await)
        })
    }
}

impl Api {
    /// A client that acts as a user, without a socket.
    pub fn client(&self, caller: Caller) -> kube::Client {
        kube::Client::new(InProcess { api: self.clone(), caller }, "default")
    }

    /// A client that may do everything.
    pub fn admin_client(&self) -> kube::Client {
        self.client(Caller::known("kubernetes-admin", [crate::auth::MASTERS.to_owned()]))
    }
}
