//! `/api/cluster_status`: the autoscaler's report, as far as the storage tells.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::demands::{self, python_float};
use super::nodes::{GROUP_LABEL, memory};
use super::{Asked, Reply};
use crate::json::Writer;
use crate::model::node::{Node, NodeTransition};
use crate::model::snapshot::Snapshot;
use crate::model::time;

/// Larger files are not read.
const LARGEST: u64 = 64 * 1024 * 1024;

/// Failures that are shown.
const FAILURES: usize = 20;

/// Ray counts resources in ten thousandths.
const UNIT: f64 = 10_000.0;

pub(super) async fn show(asked: &Asked<'_>) -> Result<Reply, Reply> {
    if asked.query.get("format") != "1" {
        return Ok(Reply::json(
            r#"{"result":true,"msg":"Got cluster status.","data":{"autoscalingStatus":null,"autoscalingError":null,"clusterStatus":null}}"#,
        ));
    }
    let snapshot = asked.snapshot()?;
    let states = debug_states(asked, &snapshot).await;
    let mut writer = Writer::new();
    writer.raw(r#"{"result":true,"msg":"Got formatted cluster status.","data":{"#);
    writer.text_member("clusterStatus", &report(&snapshot, &asked.choice.session, &states));
    writer.raw("}}");
    Ok(Reply::json(writer.into_bytes()))
}

/// What a raylet wrote of itself.
struct NodeState {
    group: String,
    is_idle: bool,
    total: BTreeMap<String, f64>,
    available: BTreeMap<String, f64>,
}

/// The states of the nodes that left one.
async fn debug_states(asked: &Asked<'_>, snapshot: &Snapshot) -> Vec<NodeState> {
    let directory = asked.directory();
    let store = asked.history.store();
    let mut nodes: Vec<String> =
        snapshot.nodes.iter().map(|node| snapshot.text(node.id).to_owned()).collect();
    if nodes.is_empty() {
        // What cannot be listed is not shown.
        let listed = store.list(&directory).await.unwrap_or_default();
        nodes = listed.iter().filter_map(|it| it.strip_suffix('/')).map(str::to_owned).collect();
    }
    let mut states = Vec::new();
    for node in nodes {
        let path = format!("{directory}/{node}/logs/debug_state.txt");
        if let Ok(Some(text)) = store.get(&path, LARGEST).await {
            states.push(parse(&String::from_utf8_lossy(&text)));
        }
    }
    states
}

fn parse(text: &str) -> NodeState {
    let mut lines = text.lines().skip_while(|line| !line.contains("cluster_resource_scheduler state:"));
    let line = lines.nth(1).unwrap_or_default();
    let name = format!("\"{GROUP_LABEL}\"");
    let mut groups = values_after(line, &name).filter_map(|rest| {
        let (group, _) = rest.strip_prefix('"')?.split_once('"')?;
        Some(group).filter(|group| !group.is_empty())
    });
    NodeState {
        group: groups.next().unwrap_or("default").to_owned(),
        is_idle: line.contains("is_idle: 1"),
        total: amounts(line, "\"total\""),
        available: amounts(line, "\"available\""),
    }
}

/// What follows a name and its colon, wherever it is.
fn values_after<'a>(line: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(name).filter_map(|(at, name)| {
        let rest = line.get(at + name.len()..)?;
        Some(rest.trim_start().strip_prefix(':')?.trim_start())
    })
}

/// The amounts of `"name":{CPU: [10000, 10000], ..}`, summed.
fn amounts(line: &str, name: &str) -> BTreeMap<String, f64> {
    let mut found = values_after(line, name).filter_map(|rest| {
        let (inner, _) = rest.strip_prefix('{')?.split_once('}')?;
        Some(inner).filter(|inner| !inner.is_empty())
    });
    let inner = found.next().unwrap_or_default();
    let mut amounts = BTreeMap::new();
    for part in inner.split(']') {
        let Some((name, numbers)) = part.rsplit_once('[') else { continue };
        let is_number = |it: char| it.is_ascii_digit() || it == ',' || it.is_ascii_whitespace();
        let Some(name) = name.trim_end().strip_suffix(':') else { continue };
        let start = name.rfind(|it: char| !is_of_name(it)).map_or(0, |at| at + 1);
        let Some(name) = name.get(start..).filter(|name| !name.is_empty()) else { continue };
        if name.starts_with("node:") || numbers.is_empty() || !numbers.chars().all(is_number) {
            continue;
        }
        let sum: f64 = numbers.split(',').filter_map(|number| number.trim().parse::<f64>().ok()).sum();
        amounts.insert(name.to_owned(), sum / UNIT);
    }
    amounts
}

/// Whether a character can be part of the name of a resource.
fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_:./-".contains(character)
}

fn report(snapshot: &Snapshot, session: &str, states: &[NodeState]) -> String {
    let header = format!("======== Autoscaler status: {} ========", report_time(snapshot, session));
    let rule = "-".repeat(header.len());
    let mut text = format!("{header}\nNode status\n{rule}\n");
    for (title, is_idle) in [("Active", false), ("Idle", true)] {
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        for state in states.iter().filter(|state| state.is_idle == is_idle) {
            *groups.entry(&state.group).or_default() += 1;
        }
        let lines = groups.iter().map(|(group, count)| format!("{count} {group}"));
        section(&mut text, title, lines, &format!("no {} nodes", title.to_lowercase()));
    }
    text.push_str("Pending:\n (unavailable in history server)\n");
    section(&mut text, "Recent failures", failures(snapshot).into_iter(), "no failures");
    // Writing to a string cannot fail.
    let _ = write!(text, "\nResources\n{rule}\n");
    text.push_str("Total Usage:\n");
    for line in usage(states) {
        let _ = writeln!(text, " {line}");
    }
    text.push_str("\nFrom request_resources:\n (unavailable in history server)\nPending Demands:\n");
    let pending = demands::pending(snapshot);
    if pending.is_empty() {
        text.push_str(" (no resource demands)");
    }
    for (resources, count) in &pending {
        let _ = writeln!(text, " {resources}: {count}+ pending tasks/actors");
    }
    text
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>, none: &str) {
    let _ = writeln!(text, "{title}:");
    let mut is_empty = true;
    for line in lines {
        is_empty = false;
        let _ = writeln!(text, " {line}");
    }
    if is_empty {
        let _ = writeln!(text, " ({none})");
    }
}

/// When the last task or actor ended; else when the session began.
fn report_time(snapshot: &Snapshot, session: &str) -> String {
    let tasks = snapshot.tasks.iter().filter_map(|task| task.lifecycle.ended);
    let last = tasks.chain(snapshot.actors.iter().filter_map(|actor| actor.ended)).max();
    let micros = last.map(time::micros);
    let micros = micros.or_else(|| time::of_session(session).map(|seconds| seconds * 1_000_000));
    let Some(micros) = micros else { return "time unknown".to_owned() };
    let (seconds, fraction) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    format!("{}.{fraction:06}", time::format(seconds, "%Y-%m-%d %H:%M:%S"))
}

fn failures(snapshot: &Snapshot) -> Vec<String> {
    // The last death that was not meant, also of a node that lives again.
    let is_failure = |it: &NodeTransition| {
        it.transition.state == snapshot.actor_states.dead
            && !matches!(snapshot.text(it.death_reason), "EXPECTED_TERMINATION" | "AUTOSCALER_DRAIN_IDLE")
    };
    let failed = |node: &Node| node.transitions.iter().rfind(|it| is_failure(it)).copied();
    let mut dead: Vec<_> = snapshot.nodes.iter().filter_map(|node| Some((node, failed(node)?))).collect();
    dead.sort_by_key(|(_, death)| std::cmp::Reverse(death.transition.time));
    dead.into_iter()
        .take(FAILURES)
        .map(|(node, _)| {
            let labels = snapshot.texts(node.definition.labels);
            let group = labels.get(GROUP_LABEL).map(String::as_str).filter(|group| !group.is_empty());
            let name = group.unwrap_or_else(|| snapshot.text(node.id));
            let instance = snapshot.text(node.definition.instance);
            let place = if instance.is_empty() {
                format!("ip: {}", snapshot.text(node.definition.ip))
            } else {
                format!("instance_id: {instance}")
            };
            format!("{name}: NodeTerminated ({place})")
        })
        .collect()
}

fn usage(states: &[NodeState]) -> Vec<String> {
    let mut resources: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for state in states {
        for (name, total) in &state.total {
            let available = state.available.get(name).copied().unwrap_or(0.0);
            let (used, sum) = resources.entry(name).or_default();
            *used += (total - available).max(0.0);
            *sum += total;
        }
    }
    if resources.is_empty() {
        return vec!["(no resources)".to_owned()];
    }
    let shown = resources.into_iter().filter(|(name, _)| !name.starts_with("accelerator_type:"));
    let lines = shown.map(|(name, (used, total))| {
        if name.to_lowercase().contains("memory") {
            format!("{}/{} {name}", memory(used), memory(total))
        } else {
            format!("{}/{} {name}", python_float(used), python_float(total))
        }
    });
    lines.collect()
}
