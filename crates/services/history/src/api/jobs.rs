//! `/api/jobs/`.

use super::{Asked, Reply};
use crate::json::Writer;
use crate::model::job::Job;
use crate::model::snapshot::Snapshot;
use crate::model::time::millis;

pub(super) fn list(asked: &Asked<'_>) -> Result<Reply, Reply> {
    let snapshot = asked.snapshot()?;
    let mut writer = Writer::new();
    writer.raw("[");
    for job in &snapshot.jobs {
        writer.comma();
        write(&mut writer, &snapshot, job);
    }
    writer.raw("]");
    Ok(Reply::sniffed(writer.into_bytes()))
}

pub(super) fn single(asked: &Asked<'_>, id: &str) -> Result<Reply, Reply> {
    let snapshot = asked.snapshot()?;
    let Some(job) = snapshot.job(id) else {
        // With status 200, as the dashboard's front end expects it.
        return Ok(Reply::sniffed(format!("Job {id} does not exist")));
    };
    let mut writer = Writer::new();
    write(&mut writer, &snapshot, job);
    Ok(Reply::sniffed(writer.into_bytes()))
}

fn write(writer: &mut Writer, snapshot: &Snapshot, job: &Job) {
    let text = |symbol| snapshot.text(symbol);
    let definition = &job.definition;
    let submission = text(job.submission());
    let kind = match text(definition.kind) {
        "" if submission.is_empty() => "DRIVER",
        "" => "SUBMISSION",
        kind => kind,
    };
    // That a driver has finished does not say how it ended.
    let is_created = job.state == snapshot.job_states.created;
    let told = if definition.last_status.is_empty() { definition.status } else { definition.last_status };
    let status = match text(told) {
        "" if is_created => "RUNNING",
        status => status,
    };
    writer.raw("{");
    writer.text_member("job_id", text(job.id));
    writer.text_member("submission_id", submission);
    writer.text_member("type", kind);
    writer.text_member("status", status);
    writer.text_member("entrypoint", text(definition.entrypoint));
    writer.text_member("message", text(definition.message));
    writer.text_member("error_type", text(definition.error_type));
    writer.raw_member("metadata", definition.metadata.map_or("null", text));
    writer.raw_member("runtime_env", definition.runtime_env.map_or("null", text));
    writer.integer_member("driver_exit_code", definition.exit_code);
    writer.text_member("driver_node_id", text(definition.node));
    writer.text_member("driver_agent_http_address", text(definition.agent_address));
    writer.name("driver_info");
    writer.raw("{");
    writer.text_member("id", text(job.id));
    writer.text_member("node_ip_address", text(definition.node_ip));
    writer.text_member("pid", text(definition.pid));
    writer.raw("}");
    if let Some(started) = job.started {
        writer.integer_member("start_time", millis(started));
    }
    if let Some(ended) = job.ended {
        writer.integer_member("end_time", millis(ended));
    }
    writer.raw("}");
}
