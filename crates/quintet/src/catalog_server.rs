//! `quintet catalog-server`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use quintet_api::config::Log;
use quintet_registry_server::CatalogServer;
use tokio::net::TcpListener;

use crate::signals::Signals;
use crate::{logging, output};

/// Serve a catalog of models, MCP servers and agents
///
/// It speaks the REST API of the Kubeflow Model Catalog, over files that list them.
/// Files that change are read again. There is no authentication: put a proxy in
/// front, or listen on this machine only.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The address and port to listen on; port 0 for any free one.
    #[arg(
        long,
        short = 'l',
        env = "CATALOG_LISTEN",
        default_value = "127.0.0.1:8081",
        value_name = "ADDRESS"
    )]
    listen: SocketAddr,
    /// A file that lists sources; repeatable, later files override earlier ones.
    #[arg(long, default_value = "sources.yaml", value_name = "FILE")]
    catalogs_path: Vec<PathBuf>,
    /// A directory of benchmark results; repeatable.
    #[arg(long, value_name = "DIRECTORY")]
    performance_metrics: Vec<PathBuf>,
    /// Origins whose web pages may read answers, separated by commas; * for all.
    #[arg(long, env = "CATALOG_CORS_ALLOWED_ORIGINS", value_delimiter = ',', value_name = "ORIGINS")]
    cors_allowed_origins: Vec<String>,
}

/// Serves until a signal comes.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { listen, catalogs_path, performance_metrics, cors_allowed_origins } = arguments;
    logging::start(&Log::default())?;
    let server =
        CatalogServer::new(catalogs_path, performance_metrics).with_allowed_origins(cors_allowed_origins);
    server.load().map_err(anyhow::Error::msg).context("cannot load the catalog")?;
    crate::cluster::block_on(serve(server, listen))?
}

async fn serve(server: CatalogServer, listen: SocketAddr) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen on {listen}; choose another address with --listen"))?;
    let address = listener.local_addr().context("cannot find out the port")?;
    output::print(&format!("The model catalog is at http://{address}\nPress ctrl-c to stop.\n"))?;
    let stop = async {
        signals.next().await;
    };
    server.serve(listener, stop).await;
    Ok(())
}
