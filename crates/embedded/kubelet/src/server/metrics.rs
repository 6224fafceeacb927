//! The metrics API (`metrics.k8s.io/v1beta1`) of this node and its pods: what `kubectl top` shows.
//!
//! Nothing is measured while nobody asks. A rate is that since the last request, or since the container started.

use std::collections::BTreeMap;
use std::fs;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use quintet_api::selector::Selector;
use serde_json::{Value, json};

use super::failure;
use super::query::Query;
use crate::cgroups::Cgroups;
use crate::kubelet::HandlerBody;
use crate::machine::{Free, busy_nanos};
use crate::worker::{Context, PodHandle, Pods};

/// The group and version.
pub(crate) const GROUP_VERSION: &str = "metrics.k8s.io/v1beta1";
/// A sample is kept as the beginning of the next rate until it is this old.
const WINDOW: SignedDuration = SignedDuration::from_secs(10);

/// Earlier readings of processor time, by what they are of.
#[derive(Default)]
pub(crate) struct Samples(Mutex<BTreeMap<String, Readings>>);

/// The newest reading, and the one that rates begin at.
#[derive(Clone, Copy)]
struct Readings {
    begin: (Timestamp, u64),
    newest: (Timestamp, u64),
}

impl Samples {
    /// The rate of processor time in nanoseconds per second, and since when. `start` is when it was zero.
    fn rate(&self, key: &str, start: (Timestamp, u64), now: (Timestamp, u64)) -> (u64, SignedDuration) {
        let mut samples = self.0.lock();
        let known = samples.entry(key.to_owned()).or_insert(Readings { begin: start, newest: start });
        if now.0.duration_since(known.newest.0) >= WINDOW {
            known.begin = known.newest;
            known.newest = now;
        }
        let window = now.0.duration_since(known.begin.0).max(SignedDuration::from_millis(1));
        let used = u128::from(now.1.saturating_sub(known.begin.1)) * 1_000_000_000;
        let nanos = used / window.as_nanos().unsigned_abs().max(1);
        (u64::try_from(nanos).unwrap_or(u64::MAX), window)
    }

    /// Forgets what is gone.
    fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.0.lock().retain(|key, _| is_kept(key));
    }
}

/// Serves a request below `/apis/metrics.k8s.io/v1beta1`.
pub(super) fn serve(pods: &Pods, segments: &[&str], query: &Query) -> Response<HandlerBody> {
    let selector = query.get("labelSelector").unwrap_or_default().parse::<Selector>();
    let Ok(selector) = selector else {
        return failure(StatusCode::BAD_REQUEST, "the label selector cannot be parsed".to_owned());
    };
    let body = match segments {
        [] => resources(),
        ["nodes"] => list("NodeMetrics", &[node(pods)]),
        ["nodes", name] if *name == pods.context().settings.node_name => node(pods),
        ["pods"] => list("PodMetrics", &all_pods(pods, None, &selector)),
        ["namespaces", namespace, "pods"] => list("PodMetrics", &all_pods(pods, Some(namespace), &selector)),
        ["namespaces", namespace, "pods", name] => {
            let found = pods.find(namespace, name).and_then(|handle| pod(pods.context(), &handle));
            let Some(found) = found else { return missing("pods", name) };
            found
        }
        ["nodes", name] => return missing("nodes", name),
        _ => {
            return failure(StatusCode::NOT_FOUND, "the server could not find the requested resource".into());
        }
    };
    let text = Bytes::from(body.to_string());
    let mut response = Response::new(futures::stream::once(async move { text }).boxed());
    let content_type = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}

fn missing(resource: &str, name: &str) -> Response<HandlerBody> {
    failure(StatusCode::NOT_FOUND, format!("{resource}.metrics.k8s.io \"{name}\" not found"))
}

fn resources() -> Value {
    let resource = |name: &str, kind: &str, is_namespaced: bool| {
        json!({
            "name": name, "singularName": "", "namespaced": is_namespaced, "kind": kind, "verbs": ["get", "list"],
        })
    };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION,
        "resources": [resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)],
    })
}

fn list(kind: &str, items: &[Value]) -> Value {
    json!({ "kind": format!("{kind}List"), "apiVersion": GROUP_VERSION, "metadata": {}, "items": items })
}

/// What the machine uses, programs that are no pods included.
fn node(pods: &Pods) -> Value {
    let context = pods.context();
    let now = context.clock.now();
    let busy = busy_nanos(&fs::read_to_string("/proc/stat").unwrap_or_default());
    let (nanos, window) = context.samples.rate("", context.started, (now, busy));
    let free = Free::read(&context.settings.data_directory);
    let memory = context.machine.memory.saturating_sub(free.memory);
    json!({
        "kind": "NodeMetrics", "apiVersion": GROUP_VERSION,
        "metadata": { "name": context.settings.node_name, "creationTimestamp": second(now) },
        "timestamp": second(now), "window": format!("{}s", window.as_secs().max(1)),
        "usage": { "cpu": format!("{nanos}n"), "memory": format!("{}Ki", memory >> 10) },
    })
}

fn all_pods(pods: &Pods, namespace: Option<&str>, selector: &Selector) -> Vec<Value> {
    let handles = pods.all();
    let ids: Vec<String> =
        handles.iter().flat_map(|handle| instances(handle)).map(|(_, id, ..)| id).collect();
    pods.context().samples.retain(|key| key.is_empty() || ids.iter().any(|id| id == key));
    let is_meant = |handle: &PodHandle| {
        let labels = handle.pod().and_then(|pod| pod.metadata.labels.clone()).unwrap_or_default();
        namespace.is_none_or(|namespace| handle.key.namespace() == Some(namespace))
            && selector.matches(&labels)
    };
    let meant = handles.iter().filter(|handle| is_meant(handle));
    meant.filter_map(|handle| pod(pods.context(), handle)).collect()
}

/// The instances that run: container, identifier, number and start.
fn instances(handle: &PodHandle) -> Vec<(String, String, u32, Timestamp)> {
    let record = handle.record();
    let running = record.containers.iter().filter(|(_, own)| own.is_running());
    let states = running.filter_map(|(name, own)| Some((name, own.state.as_ref()?)));
    states.map(|(name, state)| (name.clone(), state.id.clone(), state.attempt, state.started_at)).collect()
}

/// What a pod uses; `None` if nothing of it runs.
fn pod(context: &Context, handle: &PodHandle) -> Option<Value> {
    let now = context.clock.now();
    let mut longest = SignedDuration::ZERO;
    let mut containers = Vec::new();
    for (name, id, attempt, started) in instances(handle) {
        let group = Cgroups::name(&handle.uid, &name, attempt);
        let Some(usage) = context.cgroups.usage(&group) else { continue };
        let (nanos, window) = context.samples.rate(&id, (started, 0), (now, usage.cpu_nanos));
        longest = longest.max(window);
        let usage = json!({ "cpu": format!("{nanos}n"), "memory": format!("{}Ki", usage.memory >> 10) });
        containers.push(json!({ "name": name, "usage": usage }));
    }
    if containers.is_empty() {
        return None;
    }
    let labels = handle.pod().and_then(|pod| pod.metadata.labels.clone()).unwrap_or_default();
    Some(json!({
        "kind": "PodMetrics", "apiVersion": GROUP_VERSION,
        "metadata": {
            "name": handle.key.name(), "namespace": handle.key.namespace(), "labels": labels,
            "creationTimestamp": second(now),
        },
        "timestamp": second(now), "window": format!("{}s", longest.as_secs().max(1)), "containers": containers,
    }))
}

/// Times of the API have whole seconds.
fn second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_window() {
        let samples = Samples::default();
        let at = |second: i64, nanos: u64| (Timestamp::from_second(second).unwrap(), nanos);
        let start = at(100, 0);
        assert_eq!(samples.rate("a", start, at(102, 1_000_000_000)).0, 500_000_000, "since the start");
        assert_eq!(
            samples.rate("a", start, at(110, 10_000_000_000)).0,
            1_000_000_000,
            "still since the start"
        );
        let (rate, window) = samples.rate("a", start, at(120, 10_000_000_000));
        assert_eq!((rate, window.as_secs()), (0, 10), "since the last request");
        samples.retain(|_| false);
        assert_eq!(samples.rate("a", at(120, 0), at(121, 7)).0, 7, "it was forgotten");
    }
}
