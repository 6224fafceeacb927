//! `quintet registry-server`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use quintet_api::config::Log;
use quintet_registry_server::{Location, Server};
use tokio::net::TcpListener;

use crate::signals::Signals;
use crate::{logging, output};

/// Serve a model registry
///
/// It speaks the REST API of the Kubeflow Model Registry, from one SQLite file or
/// from a PostgreSQL, MySQL or MariaDB database with upstream's schema. There is no
/// authentication: put a proxy in front, or listen on this machine only.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The address to listen on.
    #[arg(long, short = 'n', env = "MR_HOSTNAME", default_value = "localhost", value_name = "HOST")]
    hostname: String,
    /// The port to listen on; 0 for any free one.
    #[arg(long, short = 'p', env = "MR_PORT", default_value_t = 8080)]
    port: u16,
    /// What the database is.
    #[arg(
        long,
        alias = "embedmd-database-type",
        env = "MR_EMBEDMD_DATABASE_TYPE",
        default_value = "sqlite",
        value_name = "TYPE"
    )]
    database_type: DatabaseType,
    /// The SQLite file, a PostgreSQL URL or `key=value` list, or a MySQL DSN.
    #[arg(
        long,
        alias = "embedmd-database-dsn",
        env = "MR_EMBEDMD_DATABASE_DSN",
        default_value = "registry.db",
        hide_env_values = true
    )]
    database: String,
    /// Announce in answers of the alpha API that it may be removed after this day.
    #[arg(long, env = "MR_ALPHA_SUNSET_DATE", value_name = "YYYY-MM-DD")]
    alpha_sunset_date: Option<jiff::civil::Date>,
    /// Origins whose web pages may read answers, separated by commas; * for all.
    #[arg(long, env = "MR_CORS_ALLOWED_ORIGINS", value_delimiter = ',', value_name = "ORIGINS")]
    cors_allowed_origins: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DatabaseType {
    Sqlite,
    Postgres,
    Mysql,
}

/// Serves until a signal comes.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    logging::start(&Log::default())?;
    let location = match arguments.database_type {
        DatabaseType::Sqlite => Location::Sqlite(PathBuf::from(&arguments.database)),
        DatabaseType::Postgres => Location::postgres(&arguments.database).map_err(anyhow::Error::msg)?,
        DatabaseType::Mysql => Location::mysql(&arguments.database).map_err(anyhow::Error::msg)?,
    };
    let mut server = Server::default().with_allowed_origins(arguments.cors_allowed_origins.clone());
    if let Some(day) = arguments.alpha_sunset_date {
        server = server.with_alpha_sunset(day);
    }
    crate::cluster::block_on(serve(server, &arguments.hostname, arguments.port, &location))?
}

async fn serve(server: Server, hostname: &str, port: u16, location: &Location) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let listener = TcpListener::bind((hostname, port))
        .await
        .with_context(|| format!("cannot listen on {hostname}:{port}; choose another --port"))?;
    let address = listener.local_addr().context("cannot find out the port")?;
    output::print(&format!("The model registry is at http://{address}\nPress ctrl-c to stop.\n"))?;
    // Both end with a signal: the database may be waited for until then.
    let serving = server.clone().serve(listener, async {
        signals.next().await;
    });
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        () = &mut serving => return Ok(()),
        opened = server.open_database(location) => opened?,
    }
    serving.await;
    Ok(())
}
