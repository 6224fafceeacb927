//! Watch histories of kinds that no longer change expire too.

use std::time::Duration;

use crate::api::Api;

const EVERY: Duration = Duration::from_mins(1);

/// Expires old changes every minute; kinds that change expire theirs with every change.
pub(super) fn start(api: &Api) {
    let task_api = api.clone();
    api.spawn(async move {
        let mut expiry = tokio::time::interval(EVERY);
        loop {
            expiry.tick().await;
            task_api.store().expire_histories();
        }
    });
}
