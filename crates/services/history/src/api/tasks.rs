//! `/api/v0/tasks`: Ray's state API.

use std::collections::BTreeMap;

use super::{Asked, Reply, lineage};
use crate::json::{Writer, go_quoted};
use crate::model::snapshot::Snapshot;
use crate::model::strings::Symbol;
use crate::model::task::{Stream, Task};
use crate::model::time::millis;

/// Rows of a list if nothing else is asked for, and the most that can be.
const USUAL_LIMIT: usize = 100;
const HIGHEST_LIMIT: usize = 10_000;

/// What is asked for.
struct Options {
    limit: usize,
    is_detailed: bool,
    excludes_drivers: bool,
    filters: Vec<Filter>,
}

struct Filter {
    key: String,
    is_equal: bool,
    value: String,
}

impl Options {
    fn read(asked: &Asked<'_>) -> Result<Self, String> {
        let query = &asked.query;
        let limit = match query.get("limit") {
            "" => USUAL_LIMIT,
            text => {
                let limit = integer(text).map_err(|error| format!("invalid limit: {error}"))?;
                usize::try_from(limit).map_err(|_| "invalid limit: cannot be negative")?
            }
        };
        if limit > HIGHEST_LIMIT {
            return Err(format!("limit cannot be greater than {HIGHEST_LIMIT}, please use a lower limit"));
        }
        if query.has("timeout") && !query.get("timeout").is_empty() {
            let timeout =
                integer(query.get("timeout")).map_err(|error| format!("invalid timeout: {error}"))?;
            if timeout < 0 {
                return Err("invalid timeout: cannot be negative".to_owned());
            }
        }
        let flag = |name: &str, usual: bool| match query.get(name) {
            "" => Ok(usual),
            text => boolean(text).map_err(|error| format!("invalid {name}: {error}")),
        };
        let (is_detailed, excludes_drivers) = (flag("detail", false)?, flag("exclude_driver", true)?);
        let filters = filters(asked).map_err(|error| format!("invalid filters parameter: {error}"))?;
        Ok(Self { limit, is_detailed, excludes_drivers, filters })
    }

    /// The tasks that pass, in order.
    fn select<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Task> {
        let driver = snapshot.strings.find("DRIVER_TASK");
        // Symbols are compared instead of texts; a text that does not occur is equal to none.
        let filters: Vec<_> = self
            .filters
            .iter()
            .map(|it| (it.key.as_str(), it.is_equal, snapshot.strings.find(&it.value)))
            .collect();
        snapshot.tasks.iter().filter(move |task| {
            if self.excludes_drivers && Some(task.definition.kind) == driver {
                return false;
            }
            filters.iter().all(|(key, is_equal, value)| (Some(field(task, key)) == *value) == *is_equal)
        })
    }
}

fn field(task: &Task, key: &str) -> Symbol {
    match key {
        "task_type" => task.definition.kind,
        "job_id" => task.job,
        "task_id" => task.id,
        "actor_id" => task.definition.actor,
        "task_name" => task.definition.name,
        "state" => task.state(),
        _ => Symbol::EMPTY,
    }
}

fn filters(asked: &Asked<'_>) -> Result<Vec<Filter>, String> {
    let all = |name: &str| asked.query.all(name).map(str::to_owned).collect::<Vec<_>>();
    let (keys, predicates, values) = (all("filter_keys"), all("filter_predicates"), all("filter_values"));
    if keys.len() != predicates.len() || keys.len() != values.len() {
        return Err("filter_keys, filter_predicates, and filter_values must have the same length".to_owned());
    }
    let filters = keys.into_iter().zip(predicates).zip(values);
    filters
        .map(|((key, predicate), value)| match predicate.as_str() {
            "=" => Ok(Filter { key, is_equal: true, value }),
            "!=" => Ok(Filter { key, is_equal: false, value }),
            other => Err(format!("invalid predicate: invalid predicate: {other}")),
        })
        .collect()
}

/// Reads a number as Go's `strconv.Atoi`, with its message.
fn integer(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    text.parse().map_err(|_| format!("strconv.Atoi: parsing {}: {why}", go_quoted(text)))
}

/// Reads a flag as Go's `strconv.ParseBool`, with its message.
fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {}: invalid syntax", go_quoted(text))),
    }
}

pub(super) fn list(asked: &Asked<'_>) -> Result<Reply, Reply> {
    let options = Options::read(asked).map_err(Reply::bad_request)?;
    let snapshot = asked.snapshot()?;
    let mut writer = Writer::new();
    writer.raw("[");
    let mut filtered = 0;
    for task in options.select(&snapshot) {
        filtered += 1;
        if filtered <= options.limit {
            writer.comma();
            write(&mut writer, &snapshot, task, options.is_detailed);
        }
    }
    writer.raw("]");
    Ok(Reply::sniffed(envelope(snapshot.tasks.len(), filtered, &writer.into_bytes())))
}

/// The frame of the state API.
fn envelope(total: usize, filtered: usize, result: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        r#"{{"result":true,"msg":"","data":{{"result":{{"total":{total},"num_after_truncation":{total},"num_filtered":{filtered},"result":"#
    )
    .into_bytes();
    bytes.extend_from_slice(result);
    bytes.extend_from_slice(br#","partial_failure_warning":"","warnings":null}}}"#);
    bytes
}

fn write(writer: &mut Writer, snapshot: &Snapshot, task: &Task, is_detailed: bool) {
    let text = |symbol| snapshot.text(symbol);
    let (definition, lifecycle) = (&task.definition, &task.lifecycle);
    writer.raw("{");
    writer.text_member("task_id", text(task.id));
    writer.integer_member("attempt_number", task.attempt);
    writer.text_member("name", text(definition.name));
    writer.text_member("state", text(task.state()));
    writer.text_member("job_id", text(task.job));
    writer.text_member("actor_id", text(definition.actor));
    writer.text_member("type", text(definition.kind));
    writer.text_member("func_or_class_name", text(definition.function));
    writer.text_member("parent_task_id", text(definition.parent));
    writer.text_member("node_id", text(lifecycle.node));
    writer.text_member("worker_id", text(lifecycle.worker));
    writer.integer_member("worker_pid", lifecycle.pid);
    writer.name("error_type");
    writer.text_or_null(lifecycle.error.map(|(kind, _)| text(kind)));
    if is_detailed {
        write_detail(writer, snapshot, task);
    }
    writer.raw("}");
}

fn write_detail(writer: &mut Writer, snapshot: &Snapshot, task: &Task) {
    let text = |symbol| snapshot.text(symbol);
    let (definition, lifecycle) = (&task.definition, &task.lifecycle);
    writer.text_member("language", text(definition.language));
    writer.raw_member("required_resources", definition.resources.map_or("null", text));
    let mut info = Writer::new();
    info.raw(r#"{"runtime_env_config":{"eager_install":true,"log_files":[],"setup_timeout_seconds":600}"#);
    info.text_member("serialized_runtime_env", text(definition.runtime_env));
    info.raw("}");
    writer.text_member("runtime_env_info", &String::from_utf8_lossy(&info.into_bytes()));
    let group = text(definition.placement_group);
    // All ones is Ray's way to say none.
    let has_group = !group.is_empty()
        && group.len().is_multiple_of(2)
        && group.bytes().all(|byte| byte.is_ascii_hexdigit())
        && group.bytes().any(|byte| byte != b'f');
    writer.name("placement_group_id");
    writer.text_or_null(has_group.then_some(group));
    writer.name("events");
    writer.raw("[");
    for transition in &lifecycle.transitions {
        writer.comma();
        writer.raw("{");
        writer.text_member("state", text(transition.state));
        writer.integer_member("created_ms", millis(transition.time));
        writer.raw("}");
    }
    writer.raw("]");
    writer.name("task_log_info");
    match &task.log {
        None => writer.raw("null"),
        Some(log) => {
            writer.raw("{");
            let streams: [(&str, &Stream); 2] = [("stdout", &log.stdout), ("stderr", &log.stderr)];
            for (name, stream) in streams {
                writer.text_member(&format!("{name}_file"), &stream.file);
                writer.integer_member(&format!("{name}_start"), stream.start);
                writer.integer_member(&format!("{name}_end"), stream.end);
            }
            writer.raw("}");
        }
    }
    writer.name("error_message");
    writer.text_or_null(lifecycle.error.map(|(_, message)| text(message)));
    let paused = match lifecycle.is_debugger_paused {
        None => "null",
        Some(true) => "true",
        Some(false) => "false",
    };
    writer.raw_member("is_debugger_paused", paused);
    writer.name("call_site");
    writer.text_or_null(definition.call_site.map(text));
    writer.raw_member("label_selector", definition.label_selector.map_or("{}", text));
    let times = [
        ("creation_time_ms", lifecycle.created),
        ("start_time_ms", lifecycle.started),
        ("end_time_ms", lifecycle.ended),
    ];
    for (name, time) in times {
        writer.name(name);
        writer.integer_or_null(time.map(millis));
    }
}

/// Numbers of tasks by state.
pub(super) type Counts<'a> = BTreeMap<&'a str, usize>;

/// Tasks by what they are.
#[derive(Default)]
pub(super) struct Totals {
    tasks: usize,
    actor_tasks: usize,
    actors_scheduled: usize,
}

impl Totals {
    fn count(&mut self, kind: &str) {
        match kind {
            "ACTOR_TASK" => self.actor_tasks += 1,
            "ACTOR_CREATION_TASK" => self.actors_scheduled += 1,
            "NORMAL_TASK" => self.tasks += 1,
            _ => {}
        }
    }
}

pub(super) fn write_counts(writer: &mut Writer, counts: &Counts<'_>) {
    writer.raw("{");
    for (state, count) in counts {
        writer.name(state);
        writer.raw(&count.to_string());
    }
    writer.raw("}");
}

/// The state of a task in summaries.
pub(super) fn state<'a>(snapshot: &'a Snapshot, task: &Task) -> &'a str {
    match snapshot.text(task.state()) {
        "" => "NIL",
        state => state,
    }
}

pub(super) fn summarize(asked: &Asked<'_>) -> Result<Reply, Reply> {
    let options = Options::read(asked).map_err(Reply::bad_request)?;
    let snapshot = asked.snapshot()?;
    let mut totals = Totals::default();
    let mut writer = Writer::new();
    writer.raw(r#"{"node_id_to_summary":{"cluster":{"summary":"#);
    let mut filtered = 0;
    let by_lineage = asked.query.get("summary_by") == "lineage";
    if by_lineage {
        let mut tasks: Vec<&Task> = Vec::new();
        for task in options.select(&snapshot) {
            filtered += 1;
            if filtered <= HIGHEST_LIMIT {
                totals.count(snapshot.text(task.definition.kind));
                tasks.push(task);
            }
        }
        lineage::write(&mut writer, &snapshot, &tasks);
    } else {
        let mut functions: BTreeMap<&str, (Symbol, Counts<'_>)> = BTreeMap::new();
        for task in options.select(&snapshot) {
            filtered += 1;
            if filtered > HIGHEST_LIMIT || task.definition.function.is_empty() {
                continue;
            }
            totals.count(snapshot.text(task.definition.kind));
            let function = functions.entry(snapshot.text(task.definition.function));
            let (_, counts) = function.or_insert_with(|| (task.definition.kind, Counts::new()));
            *counts.entry(state(&snapshot, task)).or_default() += 1;
        }
        writer.raw("{");
        for (function, (kind, counts)) in &functions {
            writer.name(function);
            writer.raw("{");
            writer.text_member("func_or_class_name", function);
            writer.text_member("type", snapshot.text(*kind));
            writer.name("state_counts");
            write_counts(&mut writer, counts);
            writer.raw("}");
        }
        writer.raw("}");
    }
    let Totals { tasks, actor_tasks, actors_scheduled } = totals;
    let summary_by = if by_lineage { "lineage" } else { "func_name" };
    writer.raw(&format!(
        r#","total_tasks":{tasks},"total_actor_tasks":{actor_tasks},"total_actor_scheduled":{actors_scheduled},"summary_by":"{summary_by}"}}}}}}"#
    ));
    Ok(Reply::sniffed(envelope(snapshot.tasks.len(), filtered, &writer.into_bytes())))
}
