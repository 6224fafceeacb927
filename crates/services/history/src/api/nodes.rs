//! `/nodes`.

use std::collections::BTreeMap;

use super::{Asked, Reply, actors};
use crate::json::{Writer, float};
use crate::model::node::{Node, NodeTransition};
use crate::model::snapshot::Snapshot;
use crate::model::time::millis;

/// The label that names a node's group.
pub(super) const GROUP_LABEL: &str = "ray.io/node-group";

const HEAD_GROUP: &str = "headgroup";

pub(super) fn list(asked: &Asked<'_>) -> Result<Reply, Reply> {
    let view = asked.query.get("view");
    let snapshot = asked.snapshot()?;
    match view {
        "" | "summary" => Ok(summary(asked, &snapshot)),
        "hostNameList" => Ok(host_names(&snapshot)),
        other => Err(Reply::bad_request(format!("unsupported view parameter: {other}"))),
    }
}

fn summary(asked: &Asked<'_>, snapshot: &Snapshot) -> Reply {
    let mut writer = Writer::new();
    writer.raw(r#"{"result":true,"msg":"Node summary fetched.","data":{"summary":["#);
    for node in &snapshot.nodes {
        if let Some(last) = node.transitions.last() {
            writer.comma();
            write(&mut writer, asked, snapshot, node, last, false);
        }
    }
    writer.raw(r#"],"nodeLogicalResources":{"#);
    for node in &snapshot.nodes {
        let alive =
            node.transitions.iter().rev().filter(|it| it.transition.state == snapshot.actor_states.alive);
        let mut resources = alive.map(|alive| logical_resources(&snapshot.numbers(alive.resources)));
        if let Some(resources) = resources.find(|it| !it.is_empty()) {
            writer.text_member(snapshot.text(node.id), &resources);
        }
    }
    writer.raw("}}}");
    Reply::sniffed(writer.into_bytes())
}

fn host_names(snapshot: &Snapshot) -> Reply {
    let mut writer = Writer::new();
    writer.raw(r#"{"result":true,"msg":"Node hostname list fetched.","data":{"hostNameList":["#);
    for node in &snapshot.nodes {
        let last = node.transitions.last();
        if last.is_none_or(|last| last.transition.state != snapshot.actor_states.alive) {
            continue;
        }
        let names = [node.definition.hostname, node.definition.name, node.id];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or(node.id);
        writer.comma();
        writer.text(snapshot.text(name));
    }
    writer.raw("]}}");
    Reply::sniffed(writer.into_bytes())
}

pub(super) fn detail(asked: &Asked<'_>, id: &str) -> Result<Reply, Reply> {
    let snapshot = asked.snapshot()?;
    let node = snapshot.node(id).ok_or_else(|| Reply::not_found(format!("node {id} not found")))?;
    let last = node.transitions.last();
    let last = last.ok_or_else(|| Reply::not_found(format!("node {id} has no state transitions yet")))?;
    let mut writer = Writer::new();
    writer.raw(r#"{"result":true,"msg":"Node details fetched.","data":{"detail":"#);
    write(&mut writer, asked, &snapshot, node, last, true);
    writer.raw("}}");
    Ok(Reply::sniffed(writer.into_bytes()))
}

fn write(
    writer: &mut Writer,
    asked: &Asked<'_>,
    snapshot: &Snapshot,
    node: &Node,
    last: &NodeTransition,
    has_actors: bool,
) {
    let text = |symbol| snapshot.text(symbol);
    let definition = &node.definition;
    let time = millis(last.transition.time);
    writer.raw("{");
    writer.integer_member("t", time);
    writer.integer_member("now", time);
    writer.text_member("hostname", text(definition.hostname));
    writer.text_member("ip", text(definition.ip));
    // What only a running node could say.
    writer.raw(concat!(
        r#","cpu":0,"cmdline":[],"cpus":[0,0],"mem":[0,0,0,0],"shm":0,"bootTime":0,"#,
        r#""loadAvg":[[0,0,0],[0,0,0]],"networkSpeed":[0,0],"#,
        r#""disk":{"/":{"total":0,"used":0,"free":0,"percent":0},"/tmp":{"total":0,"used":0,"free":0,"percent":0}},"#,
        r#""gpus":[],"tpus":[],"workers":[]"#,
    ));
    writer.name("actors");
    if has_actors {
        let actors = snapshot.actors.iter().filter(|actor| actor.definition.address.node == node.id);
        actors::write_all(writer, snapshot, actors);
    } else {
        writer.raw("{}");
    }
    writer.name("raylet");
    write_raylet(writer, asked, snapshot, node, last);
    writer.raw("}");
}

fn write_raylet(
    writer: &mut Writer,
    asked: &Asked<'_>,
    snapshot: &Snapshot,
    node: &Node,
    last: &NodeTransition,
) {
    let text = |symbol| snapshot.text(symbol);
    let definition = &node.definition;
    let resources = snapshot.numbers(last.resources);
    let labels = snapshot.texts(definition.labels);
    let group = labels.get(GROUP_LABEL).map(String::as_str).unwrap_or_default();
    let sockets = format!("{}/{}/sockets", asked.history.ray_root(), asked.choice.session);
    let is_dead = last.transition.state == snapshot.actor_states.dead;
    writer.raw("{");
    writer.name("storeStats");
    writer.raw("{");
    writer.raw_member("objectStoreBytesAvail", &float(*resources.get("object_store_memory").unwrap_or(&0.0)));
    writer.raw("}");
    writer.text_member("nodeId", text(node.id));
    writer.text_member("nodeManagerAddress", text(definition.ip));
    writer.text_member("nodeManagerHostname", text(definition.hostname));
    writer.text_member("rayletSocketName", &format!("{sockets}/raylet"));
    writer.text_member("objectStoreSocketName", &format!("{sockets}/plasma_store"));
    writer.text_member("metricsExportPort", "8080");
    writer.name("resourcesTotal");
    writer.raw("{");
    for (name, amount) in &resources {
        let name = match name.as_str() {
            "object_store_memory" => "objectStoreMemory",
            "node:__internal_head__" => "node:InternalHead",
            other => other,
        };
        writer.name(name);
        writer.float(*amount);
    }
    writer.raw("}");
    writer.text_member("nodeName", text(definition.name));
    writer.text_member("instanceId", text(definition.instance));
    writer.text_member("nodeTypeName", group);
    writer.text_member("instanceTypeName", text(definition.instance_type));
    writer.integer_member("startTimeMs", definition.started.map_or(0, millis));
    writer.raw_member("isHeadNode", if group == HEAD_GROUP { "true" } else { "false" });
    writer.raw_member("labels", definition.labels.map_or("null", text));
    writer.text_member("state", text(last.transition.state));
    writer.integer_member("endTimeMs", if is_dead { millis(last.transition.time) } else { 0 });
    let message =
        if is_dead { death(text(last.death_reason), text(last.death_message)) } else { String::new() };
    writer.text_member("stateMessage", &message);
    writer.raw("}");
}

/// Why a node died, in words.
fn death(reason: &str, message: &str) -> String {
    let reason = match reason {
        "EXPECTED_TERMINATION" => "Expected termination",
        "UNEXPECTED_TERMINATION" => "Unexpected termination",
        "AUTOSCALER_DRAIN_PREEMPTED" => "Terminated due to preemption",
        "AUTOSCALER_DRAIN_IDLE" => "Terminated due to idle (no Ray activity)",
        _ => "",
    };
    match (reason, message) {
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

fn logical_resources(resources: &BTreeMap<String, f64>) -> String {
    let shown = resources
        .iter()
        .filter(|(name, _)| !name.starts_with("node:") && !name.starts_with("accelerator_type:"));
    let lines = shown.map(|(name, amount)| match name.as_str() {
        "memory" | "object_store_memory" => format!("0B/{} {name}", memory(*amount)),
        _ => format!("0.0/{amount:.1} {name}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// An amount of memory in the largest unit that it fills.
pub(super) fn memory(bytes: f64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (size, unit) in units {
        #[expect(clippy::cast_precision_loss, reason = "powers of two are exact")]
        let size = size as f64;
        if bytes >= size {
            return format!("{:.2}{unit}", bytes / size);
        }
    }
    format!("{}B", bytes.trunc())
}
