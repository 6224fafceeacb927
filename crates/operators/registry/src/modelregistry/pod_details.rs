//! Why the pods of a registry do not serve.

use std::sync::Arc;

use quintet_api::modelregistry::{messages, reasons};
use quintet_controller::cache::Entry;

use super::alert::Alert;
use super::objects::SERVER;
use crate::availability::Availability;
use crate::pods::{ContainerView, PodView, Why};

/// The pod whose server waits for something else than its creation: its log says why.
pub(super) fn failing_server(pods: &[Arc<Entry<PodView>>]) -> Option<&Entry<PodView>> {
    let fails = |container: &ContainerView| container.name == SERVER && container.trouble().is_some();
    pods.iter().find(|pod| pod.object.statuses.iter().any(fails)).map(|pod| &**pod)
}

/// What the pods say while `unavailable` replicas are missing.
pub(super) fn of(pods: &[Arc<Entry<PodView>>], alert: Option<&Alert>, unavailable: i32) -> Availability {
    if let Some(alert) = alert {
        return Availability::no(alert.reason.text(), alert.message.clone());
    }
    let why = pods.iter().find_map(|pod| {
        let name = pod.key.name();
        let containers: Vec<_> = pod.object.statuses.iter().filter_map(describe).collect();
        if containers.is_empty() {
            let Why { reason, message } = pod.object.unready.as_ref()?;
            let details = format!("{{reason: {reason}, message: {message}}}");
            return Some(format!("pod {name} containers not ready: {details}"));
        }
        Some(format!("pod {name} has unready containers [{}]", containers.join(", ")))
    });
    let why = why.unwrap_or_else(|| format!("{unavailable} containers unavailable"));
    Availability::no(reasons::DEPLOYMENT_UNAVAILABLE, messages::unavailable(&why))
}

/// Why a container is not ready.
fn describe(container: &ContainerView) -> Option<String> {
    let state = &container.state;
    let (what, Why { reason, message }) = match (&state.waiting, &state.terminated) {
        _ if container.ready => return None,
        (Some(why), _) => ("waiting", why),
        (None, Some(why)) => ("terminated", why),
        (None, None) => return None,
    };
    Some(format!("{}: {{{what}: {{reason: {reason}, message: {message}}}}}", container.name))
}

#[cfg(test)]
mod tests {
    use quintet_controller::ObjectKey;

    use super::super::alert::Reason;
    use super::*;
    use crate::pods::ContainerState;

    fn why(reason: &str) -> Why {
        Why { reason: reason.to_owned(), message: "m".to_owned() }
    }

    fn pod(statuses: Vec<ContainerView>, unready: Option<Why>) -> Vec<Arc<Entry<PodView>>> {
        let view = PodView { statuses, unready, ..PodView::default() };
        vec![Arc::new(Entry::new(ObjectKey::new("ns", "p"), view))]
    }

    fn waiting(name: &str, reason: &str) -> ContainerView {
        let state = ContainerState { waiting: Some(why(reason)), terminated: None };
        ContainerView { name: name.to_owned(), ready: false, state }
    }

    #[test]
    fn the_first_pod_with_something_to_say_counts() {
        let ended = ContainerView {
            name: "b".to_owned(),
            ready: false,
            state: ContainerState { waiting: None, terminated: Some(why("Error")) },
        };
        let cases = [
            (
                pod(vec![waiting("a", "ErrImagePull"), ended], None),
                "pod p has unready containers [a: {waiting: {reason: ErrImagePull, message: m}}, \
                 b: {terminated: {reason: Error, message: m}}]",
            ),
            (
                pod(Vec::new(), Some(why("Unschedulable"))),
                "pod p containers not ready: {reason: Unschedulable, message: m}",
            ),
            (pod(Vec::new(), None), "2 containers unavailable"),
            (Vec::new(), "2 containers unavailable"),
        ];
        for (pods, expected) in cases {
            assert_eq!(of(&pods, None, 2).message, format!("Deployment is unavailable: {expected}"));
        }
        let alert = Alert { reason: Reason::Alert, message: "x".to_owned() };
        assert_eq!(of(&[], Some(&alert), 1).reason, reasons::RESOURCES_ALERT);
    }

    #[test]
    fn a_server_that_is_being_created_does_not_fail() {
        assert!(failing_server(&pod(vec![waiting(SERVER, "ContainerCreating")], None)).is_none());
        assert!(failing_server(&pod(vec![waiting("other", "CrashLoopBackOff")], None)).is_none());
        assert!(failing_server(&pod(vec![waiting(SERVER, "CrashLoopBackOff")], None)).is_some());
    }
}
