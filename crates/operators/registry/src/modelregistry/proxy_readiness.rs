//! Whether the proxy of a registry serves, by its pods.

use std::sync::Arc;

use quintet_controller::cache::Entry;

use crate::pods::PodView;

/// The server and its proxy.
const CONTAINERS: usize = 2;

/// Why no pod of the server has a proxy that is ready; `None` if one has.
pub(super) fn obstacle(name: &str, pods: &[Arc<Entry<PodView>>]) -> Option<String> {
    let of_server: Vec<_> = pods.iter().filter(|pod| pod.object.name == name).collect();
    if of_server.is_empty() {
        return Some(format!("No Pods found for Deployment {name}"));
    }
    let mut obstacle = format!("No active Pods found for Deployment {name}");
    for pod in of_server.iter().filter(|pod| !pod.deleting) {
        obstacle = obstacle_in(pod)?;
    }
    Some(obstacle)
}

fn obstacle_in(pod: &Entry<PodView>) -> Option<String> {
    let (name, view) = (pod.key.name(), &pod.object);
    if view.containers != CONTAINERS {
        return Some(format!("kube-rbac-proxy proxy unavailable in Pod {name}"));
    }
    if view.statuses.len() != CONTAINERS {
        return Some(format!("container status not yet available in Pod {name}"));
    }
    let unready = view.statuses.iter().find(|container| !container.ready)?;
    Some(format!("container {} not ready in Pod {name}", unready.name))
}

#[cfg(test)]
mod tests {
    use quintet_controller::ObjectKey;

    use super::*;
    use crate::pods::ContainerView;

    fn pod(name: &str, containers: usize, ready: &[bool], deleting: bool) -> Arc<Entry<PodView>> {
        let status = |(number, ready): (usize, &bool)| ContainerView {
            name: format!("c{number}"),
            ready: *ready,
            ..ContainerView::default()
        };
        let view = PodView {
            name: "n".to_owned(),
            containers,
            statuses: ready.iter().enumerate().map(status).collect(),
            ..PodView::default()
        };
        let mut entry = Entry::new(ObjectKey::new("ns", name), view);
        entry.deleting = deleting;
        Arc::new(entry)
    }

    #[test]
    fn one_ready_pod_suffices() {
        let ready = || pod("a", 2, &[true, true], false);
        let unready = || pod("b", 2, &[true, false], false);
        let cases = [
            (vec![], Some("No Pods found for Deployment n")),
            (vec![pod("a", 2, &[true, true], true)], Some("No active Pods found for Deployment n")),
            (vec![pod("a", 1, &[true], false)], Some("kube-rbac-proxy proxy unavailable in Pod a")),
            (vec![pod("a", 2, &[], false)], Some("container status not yet available in Pod a")),
            (vec![unready()], Some("container c1 not ready in Pod b")),
            (vec![ready()], None),
            (vec![unready(), ready()], None),
            (vec![ready(), unready()], None),
        ];
        for (pods, expected) in cases {
            assert_eq!(obstacle("n", &pods).as_deref(), expected);
        }
        assert_eq!(obstacle("other", &[ready()]).as_deref(), Some("No Pods found for Deployment other"));
    }
}
