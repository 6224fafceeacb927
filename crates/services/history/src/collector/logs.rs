//! Log files of Ray: those of the current session are stored when the collector stops, those of earlier ones at once.

use std::path::{Path, PathBuf};

use crate::layout::Cluster;
use crate::store::Store;

use super::files;

/// Logs of earlier sessions that are to be stored, and those that were.
const PREVIOUS: &str = "prev-logs";
const STORED: &str = "persist-complete-logs";

/// The name of the current session: what the link `session_latest` points to.
pub(super) fn current_session(root: &Path) -> Option<String> {
    let target = std::fs::canonicalize(root.join("session_latest")).ok()?;
    target.file_name()?.to_str().map(str::to_owned)
}

/// Moves the logs of all sessions but the current one to where they are stored from.
pub(super) fn set_aside(root: &Path, current: &str, node: &str) {
    let Ok(entries) = std::fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        let Ok(session) = entry.file_name().into_string() else { continue };
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !session.starts_with("session_") || session == current || !is_directory {
            continue;
        }
        let logs = entry.path().join("logs");
        if !logs.is_dir() {
            continue;
        }
        let target = root.join(PREVIOUS).join(&session).join(node).join("logs");
        let moved = target.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| {
            if target.exists() { merge(&logs, &target) } else { std::fs::rename(&logs, &target) }
        });
        if let Err(error) = moved {
            tracing::warn!(%error, session, "logs of an earlier session cannot be moved");
        }
    }
}

/// Moves files into a directory that has some already.
fn merge(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut found = Vec::new();
    files::collect(from, &mut found);
    for path in found {
        let Ok(relative) = path.strip_prefix(from) else { continue };
        let target = to.join(relative);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::rename(&path, target)?;
    }
    std::fs::remove_dir_all(from)
}

/// A directory `SESSION/NODE/logs` of an earlier session.
struct Earlier {
    session: String,
    node: String,
    path: PathBuf,
}

fn earlier(root: &Path) -> Vec<Earlier> {
    let names = |path: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let root = root.join(PREVIOUS);
    let mut found = Vec::new();
    for session in names(&root) {
        for node in names(&root.join(&session)) {
            let path = root.join(&session).join(&node);
            found.push(Earlier { session: session.clone(), node, path });
        }
    }
    found
}

/// Stores the logs of earlier sessions. Each file then moves aside; those that could not be stored stay for the next
/// time. Returns the sessions that were there.
pub(super) async fn store_earlier(store: &Store, cluster: &Cluster, root: &Path) -> Vec<String> {
    let mut sessions = Vec::new();
    for Earlier { session, node, path } in earlier(root) {
        let directory = format!("{}/{node}/logs", cluster.session(&session));
        sessions.push(session.clone());
        let logs = path.join("logs");
        if !logs.is_dir() {
            continue;
        }
        let mut found = Vec::new();
        files::collect(&logs, &mut found);
        let mut is_complete = true;
        for file in found {
            let Some(relative) = relative(&logs, &file) else { continue };
            let done = root.join(STORED).join(&session).join(&node).join("logs").join(&relative);
            if !done.exists()
                && let Err(error) = store.put_file(&format!("{directory}/{relative}"), &file).await
            {
                tracing::warn!(%error, file = %file.display(), "a log cannot be stored yet");
                is_complete = false;
                continue;
            }
            let moved = done.parent().map_or(Ok(()), std::fs::create_dir_all);
            if let Err(error) = moved.and_then(|()| std::fs::rename(&file, &done)) {
                tracing::warn!(%error, file = %file.display(), "a stored log cannot be moved");
                is_complete = false;
            }
        }
        if is_complete {
            // What is left are empty directories and links.
            let _ = std::fs::remove_dir_all(&path);
            let _ = path.parent().map(std::fs::remove_dir);
        }
    }
    sessions.sort_unstable();
    sessions.dedup();
    sessions
}

/// Stores the logs of the current session.
pub(super) async fn store_current(store: &Store, cluster: &Cluster, root: &Path, session: &str, node: &str) {
    let logs = root.join(session).join("logs");
    let directory = format!("{}/{node}/logs", cluster.session(session));
    let mut found = Vec::new();
    files::collect(&logs, &mut found);
    for file in found {
        let Some(relative) = relative(&logs, &file) else { continue };
        if let Err(error) = store.put_file(&format!("{directory}/{relative}"), &file).await {
            tracing::warn!(%error, file = %file.display(), "a log cannot be stored");
        }
    }
}

fn relative(directory: &Path, file: &Path) -> Option<String> {
    file.strip_prefix(directory).ok()?.to_str().map(str::to_owned)
}
