//! `/logical/actors`.

use super::{Asked, Reply};
use crate::json::{Writer, indent};
use crate::model::actor::Actor;
use crate::model::snapshot::Snapshot;
use crate::model::time::millis;

pub(super) fn list(asked: &Asked<'_>) -> Result<Reply, Reply> {
    let snapshot = asked.snapshot()?;
    let mut writer = Writer::new();
    writer.raw(r#"{"result":true,"msg":"All actors fetched.","data":{"actors":"#);
    write_all(&mut writer, &snapshot, snapshot.actors.iter());
    writer.raw("}}");
    Ok(Reply::sniffed(writer.into_bytes()))
}

pub(super) fn single(asked: &Asked<'_>, id: &str) -> Result<Reply, Reply> {
    let snapshot = asked.snapshot()?;
    let mut writer = Writer::new();
    match snapshot.actor(id) {
        Some(actor) => {
            writer.raw(r#"{"result":true,"msg":"Actor fetched.","data":{"detail":"#);
            write(&mut writer, &snapshot, actor);
        }
        None => writer.raw(r#"{"result":false,"msg":"Actor not found.","data":{"detail":null"#),
    }
    writer.raw("}}");
    Ok(Reply::sniffed(indent(&writer.into_bytes(), "  ")))
}

/// Actors by id.
pub(super) fn write_all<'a>(
    writer: &mut Writer,
    snapshot: &Snapshot,
    actors: impl Iterator<Item = &'a Actor>,
) {
    writer.raw("{");
    for actor in actors {
        writer.name(snapshot.text(actor.id));
        write(writer, snapshot, actor);
    }
    writer.raw("}");
}

fn write(writer: &mut Writer, snapshot: &Snapshot, actor: &Actor) {
    let text = |symbol| snapshot.text(symbol);
    let definition = &actor.definition;
    writer.raw("{");
    writer.text_member("actorId", text(actor.id));
    writer.text_member("jobId", text(definition.job));
    writer.text_member("state", text(actor.state()));
    writer.integer_member("pid", actor.pid);
    writer.name("address");
    writer.raw("{");
    writer.text_member("nodeId", text(definition.address.node));
    writer.text_member("ipAddress", text(definition.address.ip));
    writer.integer_member("port", definition.address.port);
    writer.text_member("workerId", text(definition.address.worker));
    writer.raw("}");
    writer.text_member("name", text(definition.name));
    writer.text_member("numRestarts", &actor.restarts.to_string());
    writer.text_member("actorClass", text(definition.class));
    writer.text_member("className", text(definition.class));
    writer.raw_member("requiredResources", definition.resources.map_or("null", text));
    writer.text_member("exitDetail", text(actor.exit_detail));
    writer.text_member("reprName", text(definition.repr));
    writer.text_member("placementGroupId", text(definition.placement_group));
    writer.text_member("callSite", text(definition.call_site));
    writer.raw_member("labelSelector", definition.label_selector.map_or("null", text));
    if let Some(started) = actor.started {
        writer.integer_member("startTime", millis(started));
    }
    if let Some(ended) = actor.ended {
        writer.integer_member("endTime", millis(ended));
        writer.integer_member("timestamp", millis(ended));
    }
    writer.raw("}");
}
