//! What is accepted as a kubeconfig of another cluster. Pure.
//!
//! Who writes the Secret or the file decides what the operator does with its contents: a kubeconfig may not make it read
//! other files, run programs or talk to servers that it cannot verify.

use std::path::{Component, Path};

use kube::config::{AuthInfo, Cluster, Kubeconfig};
use quintet_api::kueue::reasons::MultiKueueClusterActiveReason as Reason;
use serde::{Deserialize, Serialize};

/// Where files have to be. As `/etc/multikueue/kubeconfigs` of Kueue.
const DIRECTORY: &str = "/etc/multikueue/kubeconfigs";

/// Why a cluster cannot be connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Problem {
    pub(super) reason: String,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason: reason.as_str().to_owned(), message: message.into() }
    }
}

/// Reads a kubeconfig, unless it asks for something that is not allowed.
pub(super) fn read(text: &str) -> Result<Kubeconfig, Problem> {
    // The error of the parser may quote the text, which is secret.
    let config = Kubeconfig::from_yaml(text)
        .map_err(|_| Problem::new(Reason::BadKubeConfig, "the kubeconfig is not a kubeconfig in YAML"))?;
    let insecure = |message: String| Problem::new(Reason::InsecureKubeConfig, message);
    for named in &config.auth_infos {
        if let Some(why) = named.auth_info.as_ref().and_then(refusal_of_user) {
            return Err(insecure(why.to_owned()));
        }
    }
    for named in &config.clusters {
        if let Some(why) = named.cluster.as_ref().and_then(refusal_of_cluster) {
            return Err(insecure(format!("{why} for cluster {}", named.name)));
        }
    }
    Ok(config)
}

fn refusal_of_user(user: &AuthInfo) -> Option<&'static str> {
    if user.token_file.is_some() {
        Some("tokenFile is not allowed")
    } else if user.username.is_some() || user.password.is_some() {
        Some("basic authentication is not allowed")
    } else if user.exec.is_some() {
        Some("exec plugins are not allowed")
    } else if user.auth_provider.is_some() {
        Some("auth providers are not allowed")
    } else {
        None
    }
}

fn refusal_of_cluster(cluster: &Cluster) -> Option<&'static str> {
    if cluster.insecure_skip_tls_verify == Some(true) {
        Some("insecure-skip-tls-verify is not allowed")
    } else if cluster.certificate_authority.is_some() {
        Some("certificate-authority file paths are not allowed, use certificate-authority-data")
    } else if cluster.server.as_deref().unwrap_or_default().is_empty() {
        Some("server is missing")
    } else {
        None
    }
}

/// Whether a file is where files of kubeconfigs have to be.
pub(super) fn is_allowed_path(path: &Path) -> bool {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    path.starts_with(DIRECTORY) && path != Path::new(DIRECTORY) && !climbs
}

/// Why a file is not read.
pub(super) fn path_problem(location: &str) -> Problem {
    let message = if Path::new(location).is_absolute() {
        format!("kubeconfig path is not under the allowed prefix {DIRECTORY}: {location:?}")
    } else {
        format!("kubeconfig path must be absolute: {location:?}")
    };
    Problem::new(Reason::BadKubeConfig, message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
    fn problem(user: Value, cluster: Value) -> Option<(String, String)> {
        let text = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": user }], "clusters": [{ "name": "c", "cluster": cluster }] });
        read(&text.to_string()).err().map(|problem| (problem.reason, problem.message))
    }

    #[test]
    fn what_reads_files_runs_programs_or_trusts_anybody_is_refused() {
        let (user, cluster) = (json!({ "token": "t" }), json!({ "server": "https://worker" }));
        assert_eq!(problem(user.clone(), cluster.clone()), None);
        let users = [
            (json!({ "tokenFile": "/token" }), "tokenFile"),
            (json!({ "username": "u", "password": "p" }), "basic"),
            (json!({ "exec": { "command": "sh" } }), "exec"),
            (json!({ "auth-provider": { "name": "gcp", "config": {} } }), "auth providers"),
        ];
        for (user, word) in users {
            let (reason, message) = problem(user, cluster.clone()).unwrap();
            assert!(reason == "InsecureKubeConfig" && message.contains(word), "{reason} {message}");
        }
        let clusters = [
            (json!({ "server": "https://w", "insecure-skip-tls-verify": true }), "insecure-skip"),
            (json!({ "server": "https://w", "certificate-authority": "/ca" }), "certificate-authority"),
            (json!({}), "server"),
        ];
        for (cluster, word) in clusters {
            let (reason, message) = problem(user.clone(), cluster).unwrap();
            assert!(reason == "InsecureKubeConfig" && message.contains(word), "{reason} {message}");
        }
    }

    #[test]
    fn what_is_no_kubeconfig_is_not_quoted() {
        let problem = read("token: [hunter2").unwrap_err();
        assert_eq!(problem.reason, "BadKubeConfig");
        assert!(!problem.message.contains("hunter2"), "{}", problem.message);
    }

    #[test]
    fn files_are_in_their_directory() {
        let is_allowed = |path: &str| is_allowed_path(Path::new(path));
        assert!(is_allowed("/etc/multikueue/kubeconfigs/a"));
        for path in ["/etc/passwd", "/etc/multikueue/kubeconfigs", "/etc/multikueue/kubeconfigs/../a", "a"] {
            assert!(!is_allowed(path), "{path}");
        }
    }
}
