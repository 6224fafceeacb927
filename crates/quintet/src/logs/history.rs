//! Logs of Ray nodes that are gone, from a history server.

use anyhow::{Context as _, bail};
use clap::Args;
use futures::io::AsyncBufReadExt as _;
use futures::stream::{StreamExt as _, TryStreamExt as _};
use quintet_history::{EnteredSession, LogFile};

use crate::output;

/// What entry points print.
const DRIVERS: &str = "job-driver-*.log";

/// Nodes are named by the first characters of their identifiers.
const NODE: usize = 8;

/// Files that an error names.
const NAMED: usize = 20;

#[derive(Args)]
pub(super) struct HistoryArguments {
    /// The history server that is asked when no pods are left, such as http://localhost:8080.
    #[arg(long, env = "QUINTET_HISTORY", value_name = "URL")]
    history: Option<String>,
    /// Files of Ray from the history, instead of pods: 'worker-*.out', 'raylet.out', '**/*'.
    #[arg(long, value_name = "GLOB")]
    file: Option<String>,
}

/// An object whose cluster may be gone.
pub(super) struct Past<'a> {
    pub(super) kind: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) tail: Option<i64>,
}

impl HistoryArguments {
    /// Whether pods are not asked at all.
    pub(super) fn is_only(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn is_given(&self) -> bool {
        self.history.is_some()
    }

    /// Prints the logs of the newest session, if the server knows one.
    pub(super) async fn print(&self, past: &Past<'_>) -> anyhow::Result<()> {
        let Past { kind, namespace, name, tail } = past;
        let Some(address) = &self.history else {
            bail!("--file reads files from the history: set --history URL, or QUINTET_HISTORY");
        };
        let is_of_ray =
            ["RayCluster", "RayJob", "RayService"].iter().any(|known| known.eq_ignore_ascii_case(kind));
        if !is_of_ray {
            bail!("the history has logs of RayClusters, RayJobs and RayServices, not of a {kind}");
        }
        let session =
            EnteredSession::enter(address, namespace, kind, name).await.map_err(anyhow::Error::msg)?;
        let session = session.with_context(|| {
            format!("{kind} {namespace}/{name} has no session in the history at {address}")
        })?;
        if session.name == "live" {
            bail!(
                "the RayCluster {} of {kind} {namespace}/{name} still exists; its history can be read when it is deleted",
                session.cluster
            );
        }
        let pattern = self.file.as_deref().unwrap_or(DRIVERS);
        let files = session.logs(pattern).await.map_err(anyhow::Error::msg)?;
        if files.is_empty() {
            let others = session.logs("**").await.map_err(anyhow::Error::msg)?;
            bail!("no file of session {} matches {pattern}; {}", session.name, known(&others));
        }
        let tail = match tail {
            Some(0) => return Ok(()),
            Some(lines) => u32::try_from(*lines).ok(),
            None => None,
        };
        for file in &files {
            let content = session.log(file, tail).await.map_err(anyhow::Error::msg)?;
            let mut lines = content.into_async_read().lines();
            while let Some(line) = lines.next().await {
                output::print(&line_of(file, &line?, files.len() > 1))?;
            }
        }
        Ok(())
    }
}

/// Files that there are, for the user to choose from.
fn known(files: &[LogFile]) -> String {
    if files.is_empty() {
        return "it has no logs".to_owned();
    }
    let mut names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let more = if names.len() > NAMED { ", ..." } else { "" };
    names.truncate(NAMED);
    format!("set --file to one of {}{more}", names.join(", "))
}

fn line_of(file: &LogFile, line: &str, is_prefixed: bool) -> String {
    let node = file.node.get(..NODE).unwrap_or(&file.node);
    if is_prefixed { format!("{node}/{} | {line}\n", file.name) } else { format!("{line}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> LogFile {
        LogFile { node: "a1a1a1a1a1a1".into(), name: name.into() }
    }

    #[test]
    fn files_to_choose_from_are_named_once() {
        assert_eq!(known(&[]), "it has no logs");
        assert_eq!(known(&[file("b"), file("a"), file("b")]), "set --file to one of a, b");
        let many: Vec<LogFile> = (10..40).map(|number| file(&number.to_string())).collect();
        assert!(known(&many).ends_with("28, 29, ..."));
    }

    #[test]
    fn lines_of_several_files_say_where_they_are_from() {
        assert_eq!(line_of(&file("raylet.out"), "x", true), "a1a1a1a1/raylet.out | x\n");
        assert_eq!(line_of(&file("raylet.out"), "x", false), "x\n");
    }
}
