//! Clients of the Kubernetes API: one with this server's credentials, one without any.

use std::time::Duration;

use bytes::Bytes;
use http::uri::{self, PathAndQuery};
use http::{Request, Response, Uri};
use http_body_util::{Empty, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::AuthInfo;
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::headers::Identity;
use crate::response::BoxError;

/// How long a connection to the Kubernetes API may take to be made.
const CONNECT: Duration = Duration::from_secs(10);

/// How often a silent connection is probed, so that a watch of a vanished API server ends.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long a connection is kept for the next request. API servers keep theirs for longer.
const IDLE: Duration = Duration::from_secs(90);

/// How many connections are kept for the next request.
const IDLE_CONNECTIONS: usize = 64;

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Adds the credentials of this server to a request, and returns its headers.
type Credentials = BoxCloneSyncService<Request<Empty<Bytes>>, Response<()>, BoxError>;

/// The Kubernetes API.
#[derive(Clone)]
pub(crate) struct Backend {
    base: Uri,
    credentials: Credentials,
    /// Presents this server's client certificate, if it has one.
    as_server: HttpsClient,
    /// Presents none: an API server would prefer it to the caller's token.
    as_caller: HttpsClient,
}

/// Why the Kubernetes API cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The configuration names a proxy.
    #[error("the kubeconfig has a proxy-url, through which the API proxy cannot connect; use one without")]
    Proxy,
    /// The credentials or certificates cannot be used.
    #[error("cannot use the credentials of the kubeconfig: {0}")]
    Kubeconfig(#[from] kube::Error),
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("cannot renew the credentials of this server: {0}")]
    Credentials(BoxError),
    #[error("the request cannot be forwarded: {0}")]
    Invalid(http::Error),
    #[error("{}", causes(.0))]
    Connection(hyper_util::client::legacy::Error),
}

impl SendError {
    /// Whether the connection broke when the request may have been sent.
    pub(crate) fn is_broken_connection(&self) -> bool {
        matches!(self, Self::Connection(error) if !error.is_connect())
    }
}

/// An error with its causes: the outermost one alone says next to nothing.
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl Backend {
    /// The Kubernetes API of a configuration.
    pub(crate) fn new(config: &Config) -> Result<Self, BackendError> {
        if config.proxy_url.is_some() {
            return Err(BackendError::Proxy);
        }
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        Ok(Self {
            base: config.cluster_url.clone(),
            credentials: credentials(config)?,
            as_server: client(config)?,
            as_caller: client(&anonymous)?,
        })
    }

    /// Sends a request to a path of the API. Its headers are those of [`crate::headers::forwarded`].
    pub(crate) async fn send(
        &self,
        identity: &Identity,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, SendError> {
        *request.uri_mut() = self.locate(request.uri().path_and_query()).map_err(SendError::Invalid)?;
        let client = match identity {
            Identity::Caller(credentials) => {
                request.headers_mut().extend(credentials.clone());
                &self.as_caller
            }
            Identity::Server => {
                let asked = self.credentials.clone().oneshot(Request::new(Empty::new())).await;
                let credentials = asked.map_err(SendError::Credentials)?;
                request.headers_mut().extend(credentials.into_parts().0.headers);
                &self.as_server
            }
        };
        client.request(request).await.map_err(SendError::Connection)
    }

    /// A path of the API. That of the kubeconfig's server comes before it.
    fn locate(&self, path: Option<&PathAndQuery>) -> Result<Uri, http::Error> {
        let path = path.map_or("/", PathAndQuery::as_str);
        let mut builder = uri::Builder::new().scheme(self.base.scheme_str().unwrap_or("https"));
        if let Some(authority) = self.base.authority() {
            builder = builder.authority(authority.as_str());
        }
        builder.path_and_query(format!("{}{path}", self.base.path().trim_end_matches('/'))).build()
    }
}

fn client(config: &Config) -> Result<HttpsClient, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .build(connector))
}

/// kube has credentials as layers that change requests: an empty request collects what they add.
fn credentials(config: &Config) -> Result<Credentials, kube::Error> {
    let collect = service_fn(|request: Request<Empty<Bytes>>| async move {
        let mut response = Response::new(());
        *response.headers_mut() = request.into_parts().0.headers;
        Ok::<_, BoxError>(response)
    });
    let extra = config.extra_headers_layer()?.layer(collect);
    Ok(match config.auth_layer()? {
        Some(layer) => BoxCloneSyncService::new(layer.layer(extra)),
        None => BoxCloneSyncService::new(extra),
    })
}
