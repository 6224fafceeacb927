//! Upstream's Python client against the server, on every database that is installed.
//!
//! The clients are installed from PyPI into the target directory, once. Where that cannot be done, the test says so and
//! is skipped.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, unused_imports, reason = "shared with other tests")]
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::Stdio;

use quintet_registry_server::Location;
use support::mariadb::MariaDb;
use support::postgres::Postgres;
use support::server::Running;
use tokio::process::Command;

/// The last client that uses the API v1alpha3 and has experiments, and one that uses v1.
const CLIENTS: [&str; 2] = ["0.3.14", "0.3.18"];

/// The Python of an environment that has this client; `None` where it cannot be installed.
async fn python(client: &str) -> Option<PathBuf> {
    let environment = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("model-registry-{client}"));
    let (python, installed) = (environment.join("bin/python"), environment.join("installed"));
    if installed.exists() {
        return Some(python);
    }
    let run = async |mut command: Command| {
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().await;
        status.is_ok_and(|status| status.success())
    };
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&environment);
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "-q", &format!("model-registry=={client}")]);
    if !run(make).await || !run(install).await {
        return None;
    }
    std::fs::write(installed, "").expect("a file");
    Some(python)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_works_unchanged() {
    let directory = tempfile::tempdir().expect("a directory");
    let (postgres, mariadb) = (Postgres::start(), MariaDb::start());
    for client in CLIENTS {
        let Some(python) = python(client).await else {
            println!("skipped: model-registry {client} cannot be installed");
            continue;
        };
        let name = format!("mr{}", client.replace('.', ""));
        let mut locations = vec![("SQLite", Location::Sqlite(directory.path().join(&name)))];
        if let Some(postgres) = &postgres {
            postgres.run("postgres", &format!("CREATE DATABASE {name}"));
            locations.push(("PostgreSQL", postgres.location(&name)));
        }
        locations.extend(mariadb.as_ref().map(|mariadb| ("MariaDB", mariadb.create(&name))));
        for (database, location) in locations {
            let server = Running::start(&location).await;
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python_client/client.py");
            let port = server.address.port().to_string();
            let output = Command::new(&python).args([script, "http://127.0.0.1", &port]).output().await;
            let output = output.expect("Python runs");
            let text = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(output.status.success(), "model-registry {client} on {database}: {text}");
        }
    }
}
