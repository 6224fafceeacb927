//! `quintet kubeconfig`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use quintet_apiserver::server::cluster::write_private;
use serde_json::{Value, json};

use crate::output;
use crate::session::{Session, default_data_dir};

/// Print the kubeconfig of `quintet up` on this machine, or merge it into yours
///
/// Merged, it is the context `quintet`: `kubectl --context quintet get nodes`. Your other contexts are kept.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Add the context to your kubeconfig: the first file of $KUBECONFIG, or ~/.kube/config.
    #[arg(long)]
    merge: bool,
    /// Make it the current context, too.
    #[arg(long, requires = "merge", name = "use")]
    use_context: bool,
    /// The data directory of `quintet up` [default: quintet in the data directory of the user].
    #[arg(long, value_name = "DIRECTORY", env = "QUINTET_DATA_DIR")]
    data_dir: Option<PathBuf>,
}

/// Lists of named entries in a kubeconfig.
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let data_dir = arguments.data_dir.map_or_else(default_data_dir, Ok)?;
    let path = match Session::find(&data_dir)? {
        Some((session, _)) => session.kubeconfig,
        None => data_dir.join("kubeconfig"),
    };
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}; has 'quintet up' been started?", path.display()))?;
    if !arguments.merge {
        return output::print(&text);
    }
    let target = users_own()?;
    let merged = merge(&read(&target)?, &parse(&text, &path)?, arguments.use_context);
    if let Some(directory) = target.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    // The name may be a link to where the user keeps it.
    let place = target.canonicalize().unwrap_or_else(|_| target.clone());
    let text = serde_saphyr::to_string(&merged).context("cannot write YAML")?;
    write_private(&place, text.as_bytes())?;
    output::print(&format!("Added the context quintet to {}.\n", target.display()))
}

/// The file that kubectl writes to.
fn users_own() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").and_then(|paths| std::env::split_paths(&paths).next());
    let named = named.filter(|path| !path.as_os_str().is_empty());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    named.or_else(home).context("there is no home directory; name a file in $KUBECONFIG")
}

fn read(path: &Path) -> anyhow::Result<Value> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(empty()),
        Ok(text) => parse(&text, path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(empty()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Refuses what is no kubeconfig: merging would lose it.
fn parse(text: &str, path: &Path) -> anyhow::Result<Value> {
    let refused = || format!("{} is not a kubeconfig, and is left as it is", path.display());
    let value: Value = serde_saphyr::from_str(text).with_context(refused)?;
    let is_list = |name: &str| value.get(name).is_none_or(|list| list.is_array() || list.is_null());
    ensure!(value.is_object() && LISTS.into_iter().all(is_list), refused());
    Ok(value)
}

fn empty() -> Value {
    json!({ "apiVersion": "v1", "kind": "Config" })
}

/// A kubeconfig with the entries of another one in place of those of the same names.
fn merge(existing: &Value, ours: &Value, use_context: bool) -> Value {
    let mut merged = existing.clone();
    for list in LISTS {
        let entries = |config: &Value| config[list].as_array().cloned().unwrap_or_default();
        let new = entries(ours);
        let is_kept = |entry: &Value| new.iter().all(|other| other["name"] != entry["name"]);
        let kept: Vec<Value> = entries(existing).into_iter().filter(is_kept).collect();
        merged[list] = kept.into_iter().chain(new.clone()).collect();
    }
    let has_current = existing["current-context"].as_str().is_some_and(|name| !name.is_empty());
    if use_context || !has_current {
        merged["current-context"] = ours["current-context"].clone();
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, server: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{ "name": name, "cluster": { "server": server } }],
            "users": [{ "name": name, "user": { "token": "t" } }],
            "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        })
    }

    #[test]
    fn contexts_of_others_are_kept_and_ours_are_replaced() {
        let mut work = config("work", "https://work");
        work["preferences"] = json!({ "colors": true });
        let once = merge(&work, &config("quintet", "https://127.0.0.1:1"), false);
        let twice = merge(&once, &config("quintet", "https://127.0.0.1:2"), false);
        let servers: Vec<_> =
            twice["clusters"].as_array().unwrap().iter().map(|one| &one["cluster"]["server"]).collect();
        assert_eq!(servers, ["https://work", "https://127.0.0.1:2"]);
        assert_eq!(
            (&twice["current-context"], &twice["preferences"]["colors"]),
            (&json!("work"), &json!(true))
        );
        assert_eq!(merge(&work, &config("quintet", "https://q"), true)["current-context"], "quintet");
        assert_eq!(merge(&empty(), &config("quintet", "https://q"), false)["current-context"], "quintet");
    }

    #[test]
    fn what_is_no_kubeconfig_is_refused() {
        for text in ["just a text", "[1, 2]", "clusters: many"] {
            let refused = parse(text, Path::new("/here/config")).unwrap_err().to_string();
            assert!(refused.starts_with("/here/config is not a kubeconfig"), "{refused}");
        }
    }
}
