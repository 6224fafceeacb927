//! A MariaDB server as a process on a temporary directory, where Debian's is installed.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use quintet_registry_server::Location;

/// A running MariaDB.
pub(crate) struct MariaDb {
    process: Child,
    directory: tempfile::TempDir,
}

/// The account that runs the server if the test runs as root, which MariaDB refuses.
const UNPRIVILEGED: u32 = 65534;
const PASSWORD: &str = "secret";

impl MariaDb {
    /// Starts a server; `None` where MariaDB is not installed.
    pub(crate) fn start() -> Option<Self> {
        let program = |name: &str| {
            let paths = ["/usr/sbin", "/usr/bin"].map(|it| Path::new(it).join(name));
            paths.into_iter().find(|path| path.exists())
        };
        let (install, serve): (PathBuf, PathBuf) = (program("mariadb-install-db")?, program("mariadbd")?);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let is_root = std::fs::metadata(directory.path()).expect("metadata").uid() == 0;
        if is_root {
            chown(directory.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("chown");
        }
        let command = |program: &Path| {
            let mut command = Command::new(program);
            command.stdout(Stdio::null()).stderr(Stdio::null()).current_dir(directory.path());
            if is_root {
                command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
            }
            let data = directory.path().join("data");
            command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
            command
        };
        let made =
            command(&install).args(["--auth-root-authentication-method=normal", "--skip-test-db"]).status();
        assert!(made.expect("mariadb-install-db runs").success(), "mariadb-install-db failed");
        let socket = directory.path().join("socket");
        // Durability costs time and proves nothing in a database that is thrown away.
        let process = command(&serve)
            .arg(format!("--socket={}", socket.display()))
            .args([
                "--skip-networking",
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-buffer-pool-size=64M",
            ])
            .args(["--innodb-doublewrite=0", "--max-connections=200"])
            .spawn()
            .expect("mariadbd starts");
        let server = Self { process, directory };
        server.wait();
        server.run("", &format!("CREATE USER mr@localhost IDENTIFIED BY '{PASSWORD}'"));
        server.run("", "GRANT ALL ON *.* TO mr@localhost");
        Some(server)
    }

    fn client(&self) -> Command {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-u", "root", "-S"]).arg(self.directory.path().join("socket"));
        command
    }

    fn wait(&self) {
        for _ in 0..600 {
            let ready = self.client().args(["-e", "DO 1"]).stderr(Stdio::null()).status();
            if ready.is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("MariaDB did not start");
    }

    /// Runs a statement in a database.
    pub(crate) fn run(&self, database: &str, statement: &str) {
        let output = self.client().args(["-e", statement, "-D", database]).output().expect("mariadb runs");
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The rows of a query, columns separated by tabs.
    pub(crate) fn query(&self, database: &str, query: &str) -> Vec<String> {
        let output = self.client().args(["-N", "-e", query, "-D", database]).output().expect("mariadb runs");
        assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// Makes a database.
    pub(crate) fn create(&self, database: &str) -> Location {
        // The collation of the database does not matter: tables have their own.
        self.run("", &format!("CREATE DATABASE {database} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"));
        Location::mysql(&self.dsn(database)).expect("a DSN")
    }

    /// Where a database of this server is.
    pub(crate) fn dsn(&self, database: &str) -> String {
        let socket = self.directory.path().join("socket");
        format!("mr:{PASSWORD}@unix({})/{database}?charset=utf8mb4", socket.display())
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
