//! Shows environments that are being made for images: the first one takes minutes, and silence would look like a hang.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};

use crate::output;

/// What takes no longer is no news.
const PATIENCE: Duration = Duration::from_secs(2);

/// Prints a line when an image takes time to be pulled, and when that has ended, until it is dropped.
pub(super) async fn show(client: kube::Client) {
    let events: Api<Event> = Api::all(client);
    let parameters = WatchParams::default().fields("involvedObject.kind=Pod");
    let mut pulls = Pulls::default();
    // From now on: what was pulled before is no news. A watch ends after minutes, and is begun again.
    loop {
        let changes = match events.watch(&parameters, "").await {
            Ok(changes) => changes,
            Err(error) => {
                tracing::debug!("pulls are not shown: {error}");
                return;
            }
        };
        let mut changes = changes.boxed();
        loop {
            let lines = tokio::select! {
                change = changes.next() => match change {
                    Some(Ok(WatchEvent::Added(event) | WatchEvent::Modified(event))) => {
                        pulls.see(&event, Instant::now())
                    }
                    Some(Ok(_)) => Vec::new(),
                    Some(Err(_)) | None => break,
                },
                () = tokio::time::sleep(PATIENCE), if pulls.has_silent() => pulls.announce(Instant::now()),
            };
            output::complain(&lines.concat());
        }
    }
}

/// Images that are being pulled, by the pod that waits for them.
#[derive(Default)]
struct Pulls(BTreeMap<String, Pull>);

struct Pull {
    image: String,
    began: Instant,
    is_announced: bool,
}

impl Pulls {
    fn has_silent(&self) -> bool {
        self.0.values().any(|pull| !pull.is_announced)
    }

    /// Announces what has taken time, every image once.
    fn announce(&mut self, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        let mut announced: BTreeSet<String> = self.announced().map(|pull| pull.image.clone()).collect();
        for pull in self.0.values_mut().filter(|pull| now.duration_since(pull.began) >= PATIENCE) {
            pull.is_announced = true;
            if announced.insert(pull.image.clone()) {
                lines.push(format!("Preparing {} ...\n", pull.image));
            }
        }
        lines
    }

    fn announced(&self) -> impl Iterator<Item = &Pull> {
        self.0.values().filter(|pull| pull.is_announced)
    }

    /// What an event has to say. Repeated events may come late, so a container that starts ends the pull as well.
    fn see(&mut self, event: &Event, now: Instant) -> Vec<String> {
        let pod = event.involved_object.uid.clone().unwrap_or_default();
        let message = event.message.as_deref().unwrap_or_default();
        match event.reason.as_deref() {
            Some("Pulling") => {
                let image = message.split('"').nth(1).unwrap_or_default().to_owned();
                self.0.insert(pod, Pull { image, began: now, is_announced: false });
                self.announce(now)
            }
            Some("Pulled" | "Created" | "Started") => self.end(&pod, now),
            Some("Failed") => match self.0.remove(&pod) {
                Some(pull) if pull.is_announced => vec![format!("{message}\n")],
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn end(&mut self, pod: &str, now: Instant) -> Vec<String> {
        let mut lines = self.announce(now);
        if let Some(pull) = self.0.remove(pod).filter(|pull| pull.is_announced)
            && !self.announced().any(|other| other.image == pull.image)
        {
            let seconds = now.duration_since(pull.began).as_secs();
            lines.push(format!("Prepared {} in {seconds} s\n", pull.image));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_takes_time_is_announced_once_and_its_end_as_well() {
        let (mut pulls, began) = (Pulls::default(), Instant::now());
        let mut see = |pod: &str, reason: &str, message: &str, seconds: u64| {
            let (reason, message) = (Some(reason.to_owned()), Some(message.to_owned()));
            let mut event = Event { reason, message, ..Event::default() };
            event.involved_object.uid = Some(pod.to_owned());
            pulls.see(&event, began + Duration::from_secs(seconds)).concat()
        };
        assert_eq!(see("a", "Pulling", "Pulling image \"busybox\"", 0), "");
        assert_eq!(see("a", "Started", "Started container main", 0), "", "it took no time");
        assert_eq!(see("b", "Pulling", "Pulling image \"ray:2\"", 1), "");
        assert_eq!(see("c", "Pulling", "Pulling image \"ray:2\"", 4), "Preparing ray:2 ...\n");
        assert_eq!(see("d", "Pulling", "Pulling image \"ray:2\"", 7), "", "a third pod waits for the same");
        assert_eq!(see("b", "Pulled", "Successfully pulled image \"ray:2\" in 90s", 91), "");
        assert_eq!(see("c", "Pulled", "Successfully pulled image \"ray:2\" in 87s", 91), "");
        assert_eq!(see("d", "Created", "Created container: main", 91), "Prepared ray:2 in 84 s\n");
        assert_eq!(see("e", "Started", "Started container main", 92), "");
    }
}
