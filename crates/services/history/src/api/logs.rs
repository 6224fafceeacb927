//! `/api/v0/logs`: which logs a node left, and their contents.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::StatusCode;
use http::header::{self, HeaderValue};

use super::glob::{self, BadPattern};
use super::live::{self, Live};
use super::tail::{self, Range};
use super::{Asked, Reply};
use crate::json::{Writer, go_quoted};
use crate::layout::is_clean_path;
use crate::model::ids;
use crate::model::snapshot::Snapshot;
use crate::model::task::Task;

/// Lines of a log if nothing else is asked for, and the most that can be.
const USUAL_LINES: usize = 1000;
const MOST_LINES: usize = 10_000;

pub(super) async fn list(asked: &Asked<'_>) -> Result<Reply, Reply> {
    let (node, pattern) = (asked.query.get("node_id"), asked.query.get("glob"));
    check_path("node_id", node)?;
    let (directory, pattern_below) = glob::split(pattern);
    if !is_clean_path(&directory) {
        return Err(traversal("glob", pattern));
    }
    let folder = join(&[&asked.directory(), node, "logs", &directory]);
    let store = asked.history.store();
    let listed =
        if pattern_below.contains("**") { store.list_all(&folder).await } else { store.list(&folder).await };
    let mut names = listed.map_err(|error| Reply::failed(error.to_string()))?;
    names.sort_by_cached_key(|name| files_first(name));
    let mut categories: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for name in names {
        if !pattern_below.is_empty() {
            match glob::matches(pattern_below, &name) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(BadPattern) => {
                    return Err(Reply::bad_request(format!(
                        "invalid glob pattern {} matching against {}: syntax error in pattern",
                        go_quoted(pattern_below),
                        go_quoted(&name)
                    )));
                }
            }
        }
        categories.entry(category(&name)).or_default().push(name);
    }
    let mut writer = Writer::new();
    writer.raw(r#"{"result":true,"msg":"","data":{"result":{"#);
    for (category, names) in &categories {
        writer.name(category);
        writer.raw("[");
        for name in names {
            writer.comma();
            writer.text(name);
        }
        writer.raw("]");
    }
    writer.raw("}}}");
    Ok(Reply::json(writer.into_bytes()).no_sniff())
}

/// Joins clean paths. Nothing and `.` add nothing.
fn join(paths: &[&str]) -> String {
    let paths: Vec<&str> = paths.iter().copied().filter(|it| !matches!(*it, "" | ".")).collect();
    paths.join("/")
}

/// Sorts the files of a directory before the directories in it.
fn files_first(path: &str) -> Vec<(bool, String)> {
    let mut elements = path.split_inclusive('/').peekable();
    let mut key = Vec::new();
    while let Some(element) = elements.next() {
        key.push((element.ends_with('/') || elements.peek().is_some(), element.to_owned()));
    }
    key
}

/// Ray's categories of logs, by name.
fn category(name: &str) -> &'static str {
    let has = |part: &str| name.contains(part);
    let ends = |end: &str| name.ends_with(end);
    if has("worker") && ends(".out") {
        "worker_out"
    } else if has("worker") && ends(".err") {
        "worker_err"
    } else if has("core-worker") && ends(".log") {
        "core_worker"
    } else if has("core-driver") && ends(".log") {
        "driver"
    } else if has("raylet.") {
        "raylet"
    } else if has("gcs_server.") {
        "gcs_server"
    } else if has("log_monitor") {
        "internal"
    } else if has("monitor") {
        "autoscaler"
    } else if has("agent.") {
        "agent"
    } else if has("dashboard.") {
        "dashboard"
    } else {
        "internal"
    }
}

fn check_path(name: &str, path: &str) -> Result<(), Reply> {
    if path.is_empty() || is_clean_path(path) { Ok(()) } else { Err(traversal(name, path)) }
}

fn traversal(name: &str, path: &str) -> Reply {
    Reply::bad_request(format!("invalid path: path traversal not allowed ({name}={path})"))
}

/// What is asked of a log.
struct Options<'a> {
    node: String,
    node_ip: &'a str,
    file: &'a str,
    task: &'a str,
    actor: &'a str,
    pid: i64,
    suffix: &'a str,
    lines: i64,
    attempt: i64,
    download: &'a str,
    removes_colours: bool,
}

impl<'a> Options<'a> {
    fn read(asked: &'a Asked<'_>) -> Result<Self, Reply> {
        let query = &asked.query;
        let integer = |name: &str| match query.get(name) {
            "" => Ok(0),
            text => text
                .parse::<i64>()
                .map_err(|_| Reply::bad_request(format!("invalid {name} parameter: {text}"))),
        };
        let pid = integer("pid")?;
        let suffix = match query.get("suffix") {
            "" => "out",
            suffix @ ("out" | "err") => suffix,
            other => {
                return Err(Reply::bad_request(format!(
                    "invalid suffix parameter: {other} (must be 'out' or 'err')"
                )));
            }
        };
        let lines = integer("lines")?;
        integer("timeout")?;
        let attempt = integer("attempt_number")?;
        let removes_colours = match query.get("filter_ansi_code").to_ascii_lowercase().as_str() {
            "true" => true,
            "" | "false" => false,
            _ => {
                return Err(Reply::bad_request(format!(
                    "invalid filter_ansi_code parameter: {} (must be 'true' or 'false')",
                    query.get("filter_ansi_code")
                )));
            }
        };
        let options = Self {
            node: query.get("node_id").to_owned(),
            node_ip: query.get("node_ip"),
            file: query.get("filename"),
            task: query.get("task_id"),
            actor: query.get("actor_id"),
            pid,
            suffix,
            lines,
            attempt,
            download: query.get("download_filename"),
            removes_colours,
        };
        let has_target = !options.task.is_empty() || !options.actor.is_empty();
        if options.node.is_empty() && options.node_ip.is_empty() && !has_target {
            return Err(Reply::bad_request(
                "node_id or node_ip is required when actor_id or task_id is not provided",
            ));
        }
        if !has_target && options.pid == 0 && options.file.is_empty() {
            return Err(Reply::bad_request(
                "At least one of actor_id, task_id, pid, or filename is required",
            ));
        }
        check_path("node_id", &options.node)?;
        check_path("filename", options.file)?;
        Ok(options)
    }
}

/// A file below the directory of a session, and the bytes that are asked for.
struct Found {
    path: String,
    range: Option<(i64, i64)>,
}

/// `/api/v0/logs/{media_type}`.
pub(super) async fn file(asked: &Asked<'_>, media_type: &str, live: Option<&Live>) -> Reply {
    match (media_type, live) {
        ("file", live) => {
            let options = match Options::read(asked) {
                Ok(options) => options,
                Err(reply) => return reply,
            };
            match live {
                Some(live) => live::forward(asked, live).await,
                None => content(asked, options).await.unwrap_or_else(|reply| reply),
            }
        }
        ("stream", Some(live)) => live::forward(asked, live).await,
        ("stream", None) => {
            Reply::text(StatusCode::NOT_IMPLEMENTED, "Log streaming only available for live clusters")
        }
        (other, _) => {
            Reply::bad_request(format!("unsupported media_type: {other} (must be 'file' or 'stream')"))
        }
    }
}

async fn content(asked: &Asked<'_>, mut options: Options<'_>) -> Result<Reply, Reply> {
    let snapshot = asked.snapshot()?;
    if options.node.is_empty() && !options.node_ip.is_empty() {
        let node = snapshot.node_at(options.node_ip).ok_or_else(|| {
            Reply::not_found(format!("Cannot find matching node_id for a given node ip {}", options.node_ip))
        })?;
        node.clone_into(&mut options.node);
    }
    let found = find(asked, &snapshot, &options).await?;
    let path = format!("{}/{}", asked.choice.stored().session(&asked.choice.session), found.path);
    let store = asked.history.store();
    let failed = |error: crate::store::StoreError| Reply::failed(error.to_string());
    let Some(size) = store.size(&path).await.map_err(failed)? else {
        return Err(Reply::not_found(format!("log file not found: {}/{}", asked.choice.session, found.path)));
    };
    let (start, end) = match found.range {
        None => (0, size),
        Some((start, end)) => {
            // Ranges are checked to be in order and positive.
            let (start, end) = (u64::try_from(start).unwrap_or(0), u64::try_from(end).unwrap_or(0));
            if start > size {
                return Err(Reply::failed(format!("task log ended before byte range start {start}: EOF")));
            }
            if end > size {
                return Err(Reply::failed("unexpected EOF"));
            }
            (start, end)
        }
    };
    let range = Range { store, path: &path, start, end };
    let Ok(lines) = usize::try_from(options.lines) else {
        let pieces = range.whole().await.map_err(failed)?;
        let reply = if options.removes_colours {
            Reply::streamed(tail::pieces_without_colours(pieces))
        } else {
            Reply::streamed(pieces).with(header::CONTENT_LENGTH, HeaderValue::from(end - start))
        };
        return Ok(named(reply, &options));
    };
    let lines = if lines == 0 { USUAL_LINES } else { lines.min(MOST_LINES) };
    let mut body = range.last_lines(lines).await.map_err(failed)?;
    if options.removes_colours {
        body = tail::without_colours(&body);
    }
    Ok(named(Reply::sniffed(body), &options))
}

/// What all responses with logs declare.
fn named(reply: Reply, options: &Options<'_>) -> Reply {
    reply.no_sniff().with(header::CONTENT_DISPOSITION, disposition(options.download))
}

/// The file that is meant: by name, task, actor or process.
async fn find(asked: &Asked<'_>, snapshot: &Snapshot, options: &Options<'_>) -> Result<Found, Reply> {
    if !options.file.is_empty() {
        if options.node.is_empty() {
            return Err(Reply::bad_request("node_id is required when filename is provided"));
        }
        let rotated = if options.attempt > 0 { format!(".{}", options.attempt) } else { String::new() };
        let path = join(&[&options.node, "logs", &format!("{}{rotated}", options.file)]);
        return Ok(Found { path, range: None });
    }
    if !options.task.is_empty() {
        return of_task(asked, snapshot, options).await;
    }
    if !options.actor.is_empty() {
        let id = options.actor;
        let Some(actor) = snapshot.actor(id) else {
            return Err(Reply::bad_request(format!("actor not found: actor_id={id}")));
        };
        let address = actor.definition.address;
        let missing =
            |what: &str| Reply::bad_request(format!("actor {id} has no {what} (actor not scheduled yet)"));
        if address.node.is_empty() {
            return Err(missing("node_id"));
        }
        if address.worker.is_empty() {
            return Err(missing("worker_id"));
        }
        let (node, worker) = (snapshot.text(address.node), snapshot.text(address.worker));
        let label = format!("actor {id} (worker_id={worker}, node_id={node})");
        return of_worker(asked, node, worker, options.suffix, &label).await;
    }
    if options.pid < 0 {
        return Err(Reply::bad_request("must provide one of: filename, task_id, actor_id, or pid"));
    }
    if options.node.is_empty() {
        return Err(Reply::bad_request("node_id is required for pid resolution"));
    }
    let node = ids::checked(&options.node)
        .map_err(|error| Reply::bad_request(format!("failed to decode node_id: {error}")))?;
    let folder = format!("{node}/logs");
    let end = format!("-{}.{}", options.pid, options.suffix);
    let name = first_file(asked, &folder, |name| name.ends_with(&end)).await?;
    let Some(name) = name else {
        let place = format!("{}/{folder}", asked.choice.session);
        return Err(Reply::not_found(format!("log file not found for pid {} in path {place}", options.pid)));
    };
    Ok(Found { path: format!("{folder}/{name}"), range: None })
}

async fn first_file(
    asked: &Asked<'_>,
    folder: &str,
    fits: impl Fn(&str) -> bool,
) -> Result<Option<String>, Reply> {
    let listed = asked.history.store().list(&format!("{}/{folder}", asked.directory())).await;
    let listed = listed.map_err(|error| Reply::failed(error.to_string()))?;
    Ok(listed.into_iter().find(|name| fits(name)))
}

/// The file of a worker's output. `label` names in errors whose it is.
async fn of_worker(
    asked: &Asked<'_>,
    node: &str,
    worker: &str,
    suffix: &str,
    label: &str,
) -> Result<Found, Reply> {
    for (name, id) in [("node_id", node), ("worker_id", worker)] {
        ids::checked(id).map_err(|error| {
            Reply::bad_request(format!(
                "failed to find worker log file for {label}: failed to decode {name}: {error}"
            ))
        })?;
    }
    let folder = format!("{node}/logs");
    let (start, end) = (format!("worker-{worker}-"), format!(".{suffix}"));
    let name = first_file(asked, &folder, |name| name.starts_with(&start) && name.ends_with(&end)).await?;
    let Some(name) = name else {
        return Err(Reply::not_found(format!(
            "worker log file not found: worker_id={worker} (hex={worker}), suffix={suffix}, searched in {}/{folder}",
            asked.choice.session
        )));
    };
    Ok(Found { path: format!("{folder}/{name}"), range: None })
}

async fn of_task(asked: &Asked<'_>, snapshot: &Snapshot, options: &Options<'_>) -> Result<Found, Reply> {
    let id = options.task;
    let attempts = snapshot.attempts(id);
    if attempts.is_empty() {
        return Err(Reply::bad_request(format!("task not found: task_id={id}")));
    }
    let attempt = options.attempt;
    let Some(task) = attempts.iter().find(|task| task.attempt == attempt) else {
        return Err(Reply::bad_request(format!(
            "task attempt not found: task_id={id}, attempt_number={attempt}"
        )));
    };
    let label = format!("task {id} (attempt {attempt})");
    if task.lifecycle.node.is_empty() {
        return Err(Reply::bad_request(format!("{label} has no node_id (task not scheduled yet)")));
    }
    let node = snapshot.text(task.lifecycle.node);
    let actor = snapshot.text(task.definition.actor);
    if !actor.is_empty() {
        return Err(Reply::bad_request(format!(
            "for actor task, please query actor log for actor({actor}) by providing actor_id query parameter"
        )));
    }
    if let Some(found) = logged_range(task, options, &label, node)? {
        return Ok(found);
    }
    if task.lifecycle.worker.is_empty() {
        return Err(Reply::bad_request(format!("{label} has no worker_id")));
    }
    let worker = snapshot.text(task.lifecycle.worker);
    let label = format!("task {id} (attempt {attempt}, worker_id={worker}, node_id={node})");
    of_worker(asked, node, worker, options.suffix, &label).await
}

/// The range of a worker's file that a task wrote, if the task's events say it.
fn logged_range(task: &Task, options: &Options<'_>, label: &str, node: &str) -> Result<Option<Found>, Reply> {
    let Some(log) = &task.log else { return Ok(None) };
    let suffix = options.suffix;
    let stream = if suffix == "err" { &log.stderr } else { &log.stdout };
    let incomplete = |why: &str| {
        Reply::not_found(format!("{label} has incomplete task_log_info for suffix {suffix}: {why}"))
    };
    let name = stream.file.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if matches!(name, "" | "." | "..") {
        return Err(incomplete("log filename is empty"));
    }
    if stream.end == 0 {
        // Zero means unknown: the task may still have run when the events were stored.
        return Err(incomplete("end offset is unavailable"));
    }
    if stream.start < 0 || stream.end < stream.start {
        return Err(Reply::failed(format!(
            "{label} has invalid {suffix} log byte range [{},{})",
            stream.start, stream.end
        )));
    }
    Ok(Some(Found { path: format!("{node}/logs/{name}"), range: Some((stream.start, stream.end)) }))
}

/// `Content-Disposition` as Go's `mime.FormatMediaType` writes it.
fn disposition(download: &str) -> HeaderValue {
    let name = if download.is_empty() { "file.txt" } else { download };
    let is_token = name.bytes().all(|it| it.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&it));
    let text = if is_token {
        format!("attachment; filename={name}")
    } else if name.chars().all(|it| matches!(it, ' '..='~' | '\t')) {
        let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
        format!("attachment; filename=\"{quoted}\"")
    } else {
        let plain = |it: u8| it.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=*'%".contains(&it);
        let encoded = name.bytes().fold(String::new(), |mut encoded, byte| {
            if plain(byte) {
                encoded.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
            encoded
        });
        format!("attachment; filename*=utf-8''{encoded}")
    };
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("attachment"))
}
