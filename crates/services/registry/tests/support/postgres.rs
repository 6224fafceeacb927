//! A PostgreSQL server as a process on a temporary directory, where Debian's is installed.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use quintet_registry_server::Location;

/// A running PostgreSQL.
pub(crate) struct Postgres {
    process: Child,
    directory: tempfile::TempDir,
    binaries: PathBuf,
}

/// The account that runs the server if the test runs as root, which PostgreSQL refuses.
const UNPRIVILEGED: u32 = 65534;

impl Postgres {
    /// Starts a server; `None` where PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        let mut versions: Vec<PathBuf> =
            std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path()).collect();
        versions.sort();
        let binaries = versions.pop()?.join("bin");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let is_root =
            std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(directory.path()).expect("metadata")) == 0;
        if is_root {
            std::os::unix::fs::chown(directory.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED))
                .expect("chown");
        }
        let data = directory.path().join("data");
        let command = |name: &str| {
            let mut command = Command::new(binaries.join(name));
            command.stdout(Stdio::null()).stderr(Stdio::null()).current_dir(directory.path());
            if is_root {
                command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
            }
            command
        };
        let made = command("initdb")
            .arg("-D")
            .arg(&data)
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"])
            .status();
        assert!(made.expect("initdb runs").success(), "initdb failed");
        // Durability costs time and proves nothing in a database that is thrown away.
        let settings = [
            "listen_addresses=",
            "fsync=off",
            "synchronous_commit=off",
            "full_page_writes=off",
            "max_connections=200",
        ];
        let mut server = command("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(directory.path());
        for setting in settings {
            server.args(["-c", setting]);
        }
        let process = server.spawn().expect("postgres starts");
        let postgres = Self { process, directory, binaries };
        postgres.wait();
        Some(postgres)
    }

    fn wait(&self) {
        for _ in 0..300 {
            let ready = Command::new(self.binaries.join("pg_isready"))
                .arg("-h")
                .arg(self.socket())
                .stdout(Stdio::null())
                .status();
            if ready.is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("PostgreSQL did not start");
    }

    pub(crate) fn socket(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a statement in a database.
    pub(crate) fn run(&self, database: &str, statement: &str) {
        let mut command = Command::new("psql");
        command.arg("-h").arg(self.socket()).args([
            "-U",
            "postgres",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            database,
            "-c",
            statement,
        ]);
        let output = command.output().expect("psql runs");
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The rows of a query, columns separated by `|`.
    pub(crate) fn query(&self, database: &str, query: &str) -> Vec<String> {
        let mut command = Command::new("psql");
        command.arg("-h").arg(self.socket()).args(["-U", "postgres", "-At", "-d", database, "-c", query]);
        let output = command.output().expect("psql runs");
        assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// Where a database of this server is.
    pub(crate) fn location(&self, database: &str) -> Location {
        let dsn = format!("host={} user=postgres dbname={database}", self.socket().display());
        Location::postgres(&dsn).expect("a DSN")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
