//! Credential plugins: programs that print an ExecCredential. As `plugin/pkg/client/auth/exec` of client-go, but bounded in
//! time and in what they print.

use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::AuthInfo;
use quintet_api::config::kueue::ExecConfig;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

/// How long a program may take. Some ask servers for credentials.
const DEADLINE: Duration = Duration::from_secs(30);

/// How much a program may print: certificates and tokens take a few kilobytes.
const MAX_OUTPUT: u64 = 256 * 1024;

/// How much is logged of what a program that failed writes to its standard error.
const MAX_COMPLAINT: u64 = 1024;

/// The versions of ExecCredentials.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// The environment variable with the request for credentials.
const REQUEST: &str = "KUBERNETES_EXEC_INFO";

/// A program that gives credentials. Its environment may be secret.
#[derive(Clone, Hash)]
pub(super) struct Program {
    pub(super) command: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    version: String,
    /// The ExecCredential that it is given.
    request: String,
}

/// What a program gave.
pub(super) struct Credentials {
    pub(super) user: AuthInfo,
    pub(super) expires: Option<Timestamp>,
}

/// What a program prints.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecCredential {
    kind: String,
    api_version: String,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// A process that does not outlive its owner, nor do those that it started.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Without an ID it has ended, and another group may have that number.
        let id = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = id {
            // It may just have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Program {
    /// The program of a configuration, for a cluster of which it may be told this.
    pub(super) fn new(config: &ExecConfig, cluster: &Value) -> Self {
        let mut spec = json!({ "interactive": false });
        if config.provide_cluster_info {
            spec["cluster"] = cluster.clone();
        }
        let request = json!({ "kind": "ExecCredential", "apiVersion": config.api_version, "spec": spec });
        Self {
            command: config.command.clone(),
            args: config.args.clone(),
            env: config.env.iter().map(|own| (own.name.clone(), own.value.clone())).collect(),
            version: config.api_version.clone(),
            request: request.to_string(),
        }
    }

    /// Runs the program; the error says why it gave no credentials, without what it printed.
    pub(super) async fn run(&self) -> Result<Credentials, String> {
        if !VERSIONS.contains(&self.version.as_str()) {
            return Err(format!("exec plugin: invalid apiVersion {:?}", self.version));
        }
        let output = self.output(DEADLINE).await?;
        self.read(&output)
    }

    async fn output(&self, deadline: Duration) -> Result<Vec<u8>, String> {
        let mut command = Command::new(&self.command);
        command.args(&self.args).envs(self.env.iter().cloned()).env(REQUEST, &self.request);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // In a group of its own, it can be killed with what it started.
        command.process_group(0).kill_on_drop(true);
        let child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!("exec: executable {} not found", self.command),
            _ => format!("exec: {error}"),
        })?;
        let mut running = Running(child);
        match tokio::time::timeout(deadline, self.end(&mut running.0)).await {
            Ok(ended) => ended,
            Err(_) => Err(format!("exec: executable {} has not ended within {deadline:?}", self.command)),
        }
    }

    /// What a process has printed when it ends.
    async fn end(&self, child: &mut Child) -> Result<Vec<u8>, String> {
        let failed = |error: std::io::Error| format!("exec: {error}");
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let printed = async {
            let printed = start_of(stdout, MAX_OUTPUT + 1).await.map_err(failed)?;
            if printed.len() as u64 > MAX_OUTPUT {
                return Err(format!(
                    "exec: executable {} printed more than {MAX_OUTPUT} bytes",
                    self.command
                ));
            }
            Ok(printed)
        };
        let complained = async { all_of(stderr).await.map_err(failed) };
        let (printed, complaint) = futures::try_join!(printed, complained)?;
        let status = child.wait().await.map_err(failed)?;
        if status.success() {
            return Ok(printed);
        }
        let complaint = String::from_utf8_lossy(&complaint);
        tracing::warn!(command = self.command, %status, stderr = complaint.trim(), "a program for credentials failed");
        let code = status.code().unwrap_or(-1);
        Err(format!("exec: executable {} failed with exit code {code}", self.command))
    }

    fn read(&self, output: &[u8]) -> Result<Credentials, String> {
        // The error of the parser may quote the text, which is secret. As client-go, it takes YAML, too.
        let credential: ExecCredential = serde_saphyr::from_slice(output)
            .map_err(|_| "decoding stdout: it is no ExecCredential".to_owned())?;
        if credential.kind != "ExecCredential" {
            return Err(format!("decoding stdout: it is of the kind {:?}", credential.kind));
        }
        if credential.api_version != self.version {
            return Err(format!(
                "exec plugin is configured to use API version {}, plugin returned version {}",
                self.version, credential.api_version
            ));
        }
        let status = credential.status.ok_or("exec plugin didn't return a status field")?;
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let token = given(status.token);
        let pair = (given(status.client_certificate_data), given(status.client_key_data));
        let mut user = match pair {
            (Some(certificate), Some(key)) => AuthInfo {
                client_certificate_data: Some(STANDARD.encode(certificate)),
                client_key_data: Some(STANDARD.encode(key).into()),
                ..AuthInfo::default()
            },
            (None, None) if token.is_none() => {
                return Err("exec plugin didn't return a token or cert/key pair".to_owned());
            }
            (None, None) => AuthInfo::default(),
            _ => return Err("exec plugin returned only certificate or key, not both".to_owned()),
        };
        user.token = token.map(Into::into);
        Ok(Credentials { user, expires: status.expiration_timestamp })
    }
}

/// The first bytes of a stream.
async fn start_of(stream: Option<impl AsyncRead + Unpin>, max: u64) -> std::io::Result<Vec<u8>> {
    let mut start = Vec::new();
    if let Some(stream) = stream {
        stream.take(max).read_to_end(&mut start).await?;
    }
    Ok(start)
}

/// The first bytes of what a program complains about. The rest is read, so that the program does not wait.
async fn all_of(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let Some(mut stream) = stream else { return Ok(Vec::new()) };
    let start = start_of(Some(&mut stream), MAX_COMPLAINT).await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(start)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const V1: &str = "client.authentication.k8s.io/v1";

    fn shell(script: &str) -> Program {
        let config = json!({ "command": "/bin/sh", "args": ["-c", script], "apiVersion": V1,
            "env": [{ "name": "OWN", "value": "own" }], "provideClusterInfo": true });
        Program::new(&serde_json::from_value(config).unwrap(), &json!({ "server": "https://w" }))
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn problem(program: &Program) -> String {
        block_on(program.run()).err().unwrap()
    }

    fn read(status: &Value) -> Result<Credentials, String> {
        let printed = json!({ "kind": "ExecCredential", "apiVersion": V1, "status": status });
        shell("").read(printed.to_string().as_bytes())
    }

    #[test]
    fn a_program_is_given_its_environment_and_a_request() {
        let output = block_on(shell("echo \"$OWN $KUBERNETES_EXEC_INFO\"; cat").output(DEADLINE)).unwrap();
        let output = String::from_utf8(output).unwrap();
        let (own, request) = output.split_once(' ').unwrap();
        let expected = json!({ "kind": "ExecCredential", "apiVersion": V1,
            "spec": { "interactive": false, "cluster": { "server": "https://w" } } });
        assert_eq!((own, serde_json::from_str::<Value>(request).unwrap()), ("own", expected));
    }

    #[test]
    fn a_program_that_gives_nothing_says_why() {
        let print = |text: &str| shell(&format!("echo '{text}'"));
        let other = "kind: ExecCredential\napiVersion: client.authentication.k8s.io/v1beta1";
        let mut unknown = shell("");
        unknown.version = "client.authentication.k8s.io/v1alpha1".to_owned();
        let mut missing = shell("");
        missing.command = "/no/such/program".to_owned();
        let table = [
            (shell("exit 3"), "exec: executable /bin/sh failed with exit code 3"),
            (missing, "exec: executable /no/such/program not found"),
            (unknown, "exec plugin: invalid apiVersion \"client.authentication.k8s.io/v1alpha1\""),
            (print("token: [hunter2"), "decoding stdout: it is no ExecCredential"),
            (print("{}"), "decoding stdout: it is of the kind \"\""),
            (
                print(other),
                "exec plugin is configured to use API version client.authentication.k8s.io/v1, plugin returned \
                 version client.authentication.k8s.io/v1beta1",
            ),
            (print(&other.replace("v1beta1", "v1")), "exec plugin didn't return a status field"),
        ];
        for (program, expected) in table {
            assert_eq!(problem(&program), expected);
        }
    }

    #[test]
    fn a_status_has_a_token_or_a_certificate_with_its_key() {
        let neither = "exec plugin didn't return a token or cert/key pair";
        let half = "exec plugin returned only certificate or key, not both";
        for (status, expected) in [
            (json!({}), neither),
            (json!({ "token": "" }), neither),
            (json!({ "token": "t", "clientKeyData": "k" }), half),
            (json!({ "clientCertificateData": "c" }), half),
        ] {
            assert_eq!(read(&status).err().unwrap(), expected, "{status}");
        }
        let pair = read(&json!({ "clientCertificateData": "c", "clientKeyData": "k" })).unwrap();
        assert_eq!(pair.user.client_certificate_data.as_deref(), Some("Yw=="));
        assert!(pair.user.client_key_data.is_some() && pair.user.token.is_none() && pair.expires.is_none());
        let token = read(&json!({ "token": "t", "expirationTimestamp": "2026-01-01T01:00:00Z" })).unwrap();
        assert_eq!(token.expires, Some("2026-01-01T01:00:00Z".parse().unwrap()));
        assert!(token.user.token.is_some() && token.user.client_key_data.is_none());
    }

    #[test]
    fn a_program_that_prints_without_end_is_killed() {
        let expected = format!("exec: executable /bin/sh printed more than {MAX_OUTPUT} bytes");
        assert_eq!(problem(&shell("yes; sleep 100")), expected);
        let noisy = shell("yes | head -c 1000000 >&2; echo printed");
        assert_eq!(block_on(noisy.output(DEADLINE)).unwrap(), b"printed\n");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_what_it_started() {
        let pid = std::env::temp_dir().join(format!("quintet-exec-{}.pid", std::process::id()));
        let program = shell(&format!("sleep 100 & echo $! >{}; wait", pid.display()));
        let started = Instant::now();
        let output = block_on(program.output(Duration::from_secs(2)));
        assert_eq!(output.unwrap_err(), "exec: executable /bin/sh has not ended within 2s");
        assert!(started.elapsed() < Duration::from_secs(50));
        let sleeper = std::fs::read_to_string(&pid).unwrap();
        std::fs::remove_file(pid).unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", sleeper.trim())).unwrap_or_default();
        // It ends a moment later, and who adopts it may not reap it.
        while !(stat().is_empty() || stat().contains(") Z ")) {
            assert!(started.elapsed() < Duration::from_secs(50), "{}", stat());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
