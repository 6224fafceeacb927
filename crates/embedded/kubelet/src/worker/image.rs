//! Images of containers: what events and statuses say while one is pulled.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use quintet_controller::Event;
use tokio::time::Instant;

use super::context::Context;
use super::handle::PodHandle;
use crate::images::{Image, ImageError};
use crate::pod::lifecycle::Waiting;

/// The first wait before another attempt to pull; every further one is twice as long.
const BACKOFF: Duration = Duration::from_secs(10);
/// The longest wait.
const BACKOFF_LIMIT: Duration = Duration::from_mins(5);
/// How long the status says what went wrong before it says that the kubelet waits.
const ERROR_SHOWN: Duration = Duration::from_secs(5);

/// Failed pulls of the images of a pod.
#[derive(Debug, Default)]
pub(super) struct Pulls(BTreeMap<String, Failed>);

#[derive(Clone, Debug)]
struct Failed {
    times: u32,
    reason: &'static str,
    message: String,
    retry_at: Timestamp,
}

impl Pulls {
    /// The image of a container, or why it has to wait.
    pub(super) async fn image(
        &mut self,
        context: &Context,
        handle: &PodHandle,
        container: &core::Container,
    ) -> Result<Image, Waiting> {
        let name = container.image.as_deref().unwrap_or_default();
        let now = context.clock.now();
        if let Some(failed) = self.0.get(name).filter(|failed| failed.retry_at > now) {
            let event = Event::normal("BackOff", "Pulling", format!("Back-off pulling image {name:?}"));
            context.event((&handle.key, &handle.uid), event);
            let message = format!("Back-off pulling image {name:?}: {}: {}", failed.reason, failed.message);
            return Err(Waiting { reason: "ImagePullBackOff", message, until: failed.retry_at });
        }
        match pull(context, handle, container, name).await {
            Ok(image) => {
                self.0.remove(name);
                Ok(image)
            }
            Err((reason, message)) => {
                let times = self.0.get(name).map_or(0, |failed| failed.times);
                let now = context.clock.now();
                let failed = Failed {
                    times: times + 1,
                    reason,
                    message: message.clone(),
                    retry_at: after(now, backoff(times)),
                };
                // A name that is none does not become one by waiting, but its container may be changed.
                let until = after(now, ERROR_SHOWN);
                self.0.insert(name.to_owned(), failed);
                let event = Event::warning("Failed", "Pulling", format!("Error: {reason}"));
                context.event((&handle.key, &handle.uid), event);
                Err(Waiting { reason, message, until })
            }
        }
    }
}

async fn pull(
    context: &Context,
    handle: &PodHandle,
    container: &core::Container,
    name: &str,
) -> Result<Image, (&'static str, String)> {
    let record = |event| context.event((&handle.key, &handle.uid), event);
    let policy = container.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
    let failed = |error: &ImageError| {
        let reason =
            if matches!(error, ImageError::InvalidName(_)) { "InvalidImageName" } else { "ErrImagePull" };
        let note = match error {
            ImageError::InvalidName(_) => format!("Failed to apply default image tag {name:?}: {error}"),
            _ => format!("Failed to pull image {name:?}: {error}"),
        };
        record(Event::warning(
            if reason == "ErrImagePull" { "Failed" } else { "InspectFailed" },
            "Pulling",
            note,
        ));
        (reason, error.to_string())
    };
    let present = match (context.images.present(name), policy) {
        // It is not there, whyever that is.
        (Ok(None) | Err(ImageError::Unmapped(_)), "Never") => {
            let message = format!("Container image {name:?} is not present with pull policy of Never");
            record(Event::warning("ErrImageNeverPull", "Pulling", message.clone()));
            return Err(("ErrImageNeverPull", message));
        }
        (Ok(present), _) => present,
        (Err(error), _) => return Err(failed(&error)),
    };
    if let Some(image) = present.filter(|_| policy != "Always") {
        let note = format!("Container image {name:?} already present on machine");
        record(Event::normal("Pulled", "Pulling", note));
        return Ok(image);
    }
    record(Event::normal("Pulling", "Pulling", format!("Pulling image {name:?}")));
    let started = Instant::now();
    let image = context.images.pull(name).await.map_err(|error| failed(&error))?;
    let took = go_duration(started.elapsed());
    let note = format!(
        "Successfully pulled image {name:?} in {took} ({took} including waiting). Image size: {} bytes.",
        image.bytes
    );
    record(Event::normal("Pulled", "Pulling", note));
    Ok(image)
}

fn backoff(failures: u32) -> Duration {
    BACKOFF.saturating_mul(1 << failures.min(8)).min(BACKOFF_LIMIT)
}

pub(super) fn after(now: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::ZERO);
    now.checked_add(wait).unwrap_or(now)
}

/// As Go writes a duration: `250ms`, `1.5s`, `1m2.5s`.
fn go_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let seconds = format!("{}.{:03}", rest / 1000, rest % 1000);
    let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
    match (minutes, rest) {
        (0, 0..1000) => format!("{rest}ms"),
        (0, _) => format!("{seconds}s"),
        _ => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_does() {
        for (millis, expected) in
            [(0, "0ms"), (250, "250ms"), (1500, "1.5s"), (2000, "2s"), (62_500, "1m2.5s"), (120_000, "2m0s")]
        {
            assert_eq!(go_duration(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn waits_double_up_to_five_minutes() {
        let waits: Vec<u64> = (0..7).map(|failures| backoff(failures).as_secs()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
    }
}
