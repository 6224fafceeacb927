//! `/events`: log events.

use serde_json::{Map, Value, json};

use super::{Asked, Reply};
use crate::model::log_event::LogEvent;

pub(super) fn list(asked: &Asked<'_>) -> Result<Reply, Reply> {
    let snapshot = asked.snapshot()?;
    let jobs = snapshot.log_events.jobs();
    let encoded = |events: &Vec<LogEvent>| -> Value { events.iter().map(LogEvent::encoded).collect() };
    let answer = if asked.query.has("job_id") {
        let job = asked.query.get("job_id");
        let events = jobs.get(job).map_or_else(|| json!([]), encoded);
        json!({"result": true, "msg": "Job events fetched.", "data": {"jobId": job, "events": events}})
    } else {
        let events: Map<String, Value> =
            jobs.iter().map(|(job, events)| (job.clone(), encoded(events))).collect();
        json!({"result": true, "msg": "All events fetched.", "data": {"events": events}})
    };
    Ok(Reply::sniffed(answer.to_string()))
}
