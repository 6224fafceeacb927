//! `/api/v0/tasks/timeline`: profile events as a Chrome trace.

use std::collections::{BTreeMap, BTreeSet};

use http::header::{self, HeaderValue};

use super::{Asked, Reply};
use crate::json::Writer;
use crate::model::snapshot::Snapshot;
use crate::model::task::{Profile, ProfileEvent, Task, extra_text};
use crate::model::time;

pub(super) fn trace(asked: &Asked<'_>) -> Result<Reply, Reply> {
    let snapshot = asked.snapshot()?;
    let job = asked.query.get("job_id");
    let is_download = asked.query.get("download") == "1";
    let tasks: Vec<(&Task, &Profile)> = snapshot
        .tasks
        .iter()
        .filter(|task| job.is_empty() || snapshot.text(task.job) == job)
        .filter_map(|task| Some((task, task.profile.as_deref()?)))
        .filter(|(_, profile)| {
            matches!(snapshot.text(profile.component_kind), "worker" | "driver")
                && !profile.node_ip.is_empty()
                && !profile.events.is_empty()
        })
        .collect();
    let mut reply = Reply::sniffed(write(&snapshot, &tasks));
    if is_download {
        let now = time::format(time::now() / 1_000_000_000, "%Y-%m-%d_%H-%M-%S");
        let job: String =
            job.chars().filter(|it| it.is_ascii_graphic() && !matches!(it, '"' | '\\')).collect();
        let job = if job.is_empty() { String::new() } else { format!("-{job}") };
        let disposition = format!("attachment; filename=\"timeline{job}-{now}.json\"");
        if let Ok(value) = HeaderValue::from_str(&disposition) {
            reply = reply.with(header::CONTENT_DISPOSITION, value);
        }
    }
    Ok(reply)
}

fn write(snapshot: &Snapshot, tasks: &[(&Task, &Profile)]) -> Vec<u8> {
    let text = |symbol| snapshot.text(symbol);
    let thread_name =
        |profile: &Profile| format!("{}:{}", text(profile.component_kind), text(profile.component));
    // Nodes and threads are numbered in order.
    let addresses: BTreeSet<&str> = tasks.iter().map(|(_, profile)| text(profile.node_ip)).collect();
    let processes: BTreeMap<&str, usize> = addresses.into_iter().zip(0..).collect();
    let names: BTreeSet<(usize, String)> =
        tasks.iter().map(|(_, profile)| (processes[text(profile.node_ip)], thread_name(profile))).collect();
    let threads: BTreeMap<(usize, String), usize> = names.into_iter().zip(0..).collect();
    let mut writer = Writer::new();
    writer.raw("[");
    for (address, process) in &processes {
        writer.comma();
        writer.raw("{");
        writer.text_member("name", "process_name");
        writer.raw_member("pid", &process.to_string());
        writer.raw_member("tid", "null");
        writer.raw(",\"args\":{");
        writer.text_member("name", &format!("Node {address}"));
        writer.raw("},\"ph\":\"M\"}");
    }
    for ((process, name), thread) in &threads {
        writer.comma();
        writer.raw("{");
        writer.text_member("name", "thread_name");
        writer.raw_member("pid", &process.to_string());
        writer.raw_member("tid", &thread.to_string());
        writer.raw(",\"args\":{");
        writer.text_member("name", name);
        writer.raw("},\"ph\":\"M\"}");
    }
    for (task, profile) in tasks {
        let process = processes[text(profile.node_ip)];
        let thread = threads[&(process, thread_name(profile))];
        for event in &profile.events {
            writer.comma();
            write_event(&mut writer, snapshot, task, event, process, thread);
        }
    }
    writer.raw("]");
    writer.into_bytes()
}

fn write_event(
    writer: &mut Writer,
    snapshot: &Snapshot,
    task: &Task,
    event: &ProfileEvent,
    process: usize,
    thread: usize,
) {
    let category = snapshot.text(event.name);
    let extra = snapshot.text(event.extra);
    let name = extra_text(extra, "name").filter(|_| category.starts_with("task::"));
    let task_id = extra_text(extra, "task_id").unwrap_or_else(|| snapshot.text(task.id).to_owned());
    writer.raw("{");
    if !category.is_empty() {
        writer.text_member("cat", category);
    }
    writer.text_member("name", name.as_deref().unwrap_or(category));
    writer.raw_member("pid", &process.to_string());
    writer.raw_member("tid", &thread.to_string());
    writer.name("ts");
    writer.float(micros(event.start));
    writer.name("dur");
    writer.float(micros(event.end.saturating_sub(event.start)));
    writer.text_member("cname", colour(category));
    writer.name("args");
    writer.raw("{");
    writer.text_member("task_id", &task_id);
    writer.text_member("job_id", snapshot.text(task.job));
    writer.integer_member("attempt_number", task.attempt);
    writer.text_member("func_or_class_name", snapshot.text(task.function()));
    writer.name("actor_id");
    writer.text_or_null(actor_of(&task_id));
    if let Some(name) = &name {
        writer.text_member("name", name);
    }
    writer.raw("},\"ph\":\"X\"}");
}

#[expect(clippy::cast_precision_loss, reason = "a trace has microseconds as floats")]
fn micros(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1000.0
}

/// The actor in a task's id: ones stand for none.
fn actor_of(task: &str) -> Option<&str> {
    let actor = task.get(16..48).filter(|_| task.len() == 48)?;
    let is_none = actor.bytes().take(24).all(|digit| digit.eq_ignore_ascii_case(&b'f'));
    (!is_none).then_some(actor)
}

/// Ray's colours of the kinds of profile events.
fn colour(category: &str) -> &'static str {
    match category {
        "task:deserialize_arguments" => "rail_load",
        "task:execute" => "rail_animation",
        "task:store_outputs" => "rail_idle",
        "task:submit_task" | "task" => "rail_response",
        "ray.get" => "good",
        "ray.put" => "terrible",
        "ray.wait" => "vsync_highlight_color",
        "submit_task" => "background_memory_dump",
        "wait_for_function" | "fetch_and_run_function" | "register_remote_function" => "detailed_memory_dump",
        "worker_idle" => "cq_build_abandoned",
        _ => "generic_work",
    }
}
