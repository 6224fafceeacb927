//! Events are forgotten after an hour.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    api::Api,
    json::text,
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
            let events =
                task_api.store().list(BUCKET, "", None, None).map(|(entries, _)| entries).unwrap_or_default();
            for (key, entry) in events {
                let event: Value = serde_json::from_slice(&entry.body).unwrap_or_default();
                // What is seen again lives on from then.
                let seen = [
                    "/lastTimestamp",
                    "/series/lastObservedTime",
                    "/eventTime",
                    "/metadata/creationTimestamp",
                ]
                .iter()
                .filter_map(|pointer| text(&event, pointer).parse::<Timestamp>().ok())
                .max();
                if seen.is_some_and(|seen| seen < oldest) {
                    let expect = Expect::Version(entry.rv);
                    let write =
                        Write { bucket: Arc::from(BUCKET), key, expect, put: None, homes: Vec::new() };
                    let _ = task_api.write(write).await;
                }
            }
        }
    });
}
