//! Expiry of Event objects after an hour.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    api::Api,
    json::{items, text},
    store::{Expect, Write},
};

const BUCKET: &str = "core/events";
const KEPT: SignedDuration = SignedDuration::from_hours(1);
const SWEEP_EVERY: Duration = Duration::from_mins(1);

/// Removes old events every now and then.
pub(super) fn start(api: &Api) {
    let task_api = api.clone();
    api.spawn(async move {
        let mut sweep = tokio::time::interval(SWEEP_EVERY);
        loop {
            sweep.tick().await;
            let oldest = task_api.now() - KEPT;
            let events = task_api.store().objects(BUCKET, "");
            for (key, entry) in events {
                let event = entry.parse();
                if last_written(&event, task_api.now()).is_some_and(|written| written < oldest) {
                    let expect = Expect::Version(entry.rv);
                    let write =
                        Write { bucket: Arc::from(BUCKET), key, expect, put: None, parents: Vec::new() };
                    let _ = task_api.write(write).await;
                }
            }
        }
    });
}

/// When an event was written last, as far as it is known; times in the future are ignored.
fn last_written(event: &Value, now: Timestamp) -> Option<Timestamp> {
    let changed = items(event, "/metadata/managedFields").iter().map(|fields| text(fields, "/time"));
    let times = changed.chain([text(event, "/metadata/creationTimestamp")]);
    times.filter_map(|time| time.parse().ok()).filter(|time| *time <= now).max()
}
