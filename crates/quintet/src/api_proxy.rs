//! `quintet api-proxy`.

use anyhow::Context as _;
use clap::{ArgAction, Args};
use quintet_api::config::Log;
use quintet_proxy::{Server, Settings};
use tokio::net::TcpListener;

use crate::cluster::ClusterArguments;
use crate::signals::Signals;
use crate::{logging, output};

/// Serve Ray's part of the Kubernetes API over HTTP
///
/// It does what KubeRay's API server V2 does: it forwards requests for Ray
/// resources, their events and the Services of Ray clusters to the Kubernetes API,
/// and fills compute templates into Ray resources.
///
///   quintet api-proxy &
///   curl localhost:8888/apis/ray.io/v1/namespaces/default/rayclusters
///   curl localhost:8888/apis/events.k8s.io/v1/namespaces/default/events
///
/// A request with an Authorization header acts as its caller, with no more rights
/// than the caller has. Any other request acts with the rights of this server: keep
/// it on this machine, or set --require-token.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The address to listen on; 0.0.0.0 for all interfaces.
    #[arg(long, default_value = "localhost", value_name = "HOST")]
    hostname: String,
    /// The port to listen on; 0 for any free one.
    #[arg(long, short, default_value_t = 8888)]
    port: u16,
    /// Refuse requests without an Authorization header.
    #[arg(long)]
    require_token: bool,
    /// The origin whose pages may read responses, `*` for all; one `*` in it stands for any text.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "ORIGIN")]
    cors_allow_origin: String,
    /// Set to false to serve nothing but health and metrics, as KubeRay's API server.
    #[arg(
        long = "enable-api-server-v2",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide = true
    )]
    is_proxying: bool,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Serves until a signal comes.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    logging::start(&Log::default())?;
    crate::cluster::block_on(serve(arguments))?
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { hostname, port, require_token, cors_allow_origin, is_proxying, cluster } = arguments;
    let mut signals = Signals::listen()?;
    let settings = Settings { cors_allow_origin, require_token, is_proxying };
    let server = Server::new(&cluster.configure().await?, settings)?;
    let listener = TcpListener::bind((hostname.as_str(), port))
        .await
        .with_context(|| format!("cannot listen on {hostname}:{port}; choose another --port"))?;
    let address = listener.local_addr().context("cannot find out the port")?;
    output::print(&format!("The Ray API is at http://{address}/apis/ray.io/v1/\nPress ctrl-c to stop.\n"))?;
    let stop = async {
        signals.next().await;
    };
    server.serve(listener, stop).await;
    Ok(())
}
