//! The container that carries logs and events of a pod to where they outlive it.

use k8s_openapi::api::core::v1::Container;

use super::{Blueprint, Role, auth, environment, volumes::resources};
use crate::labels;

pub(super) const NAME: &str = "ray-history-collector";

/// The collector of a pod, if the cluster has its history kept.
pub(super) fn container(blueprint: &Blueprint<'_>, role: Role) -> Option<Container> {
    if !blueprint.settings.gates.history_server {
        return None;
    }
    let cluster = blueprint.cluster;
    let options = cluster.spec.history_server_options.as_ref()?.collector_options.as_ref()?;
    let mut container = Container {
        name: NAME.to_owned(),
        image: options.image.clone(),
        image_pull_policy: Some(
            options.image_pull_policy.clone().unwrap_or_else(|| "IfNotPresent".to_owned()),
        ),
        resources: Some(
            options.resources.clone().unwrap_or_else(|| resources(("50m", "64Mi"), ("200m", "256Mi"))),
        ),
        ..Container::default()
    };
    environment::set_from_field(&mut container, "POD_IP", "status.podIP");
    environment::set(&mut container, "RAY_CLUSTER_NAME", blueprint.name());
    let namespace = cluster.metadata.namespace.clone().unwrap_or_default();
    environment::set(&mut container, "RAY_CLUSTER_NAMESPACE", namespace);
    environment::set(&mut container, "RAY_ROLE", if role == Role::Head { "Head" } else { "Worker" });
    environment::set(&mut container, "EVENTS_PORT", "8084");
    environment::set(&mut container, "FQ_RAY_IP", blueprint.head_host.clone());
    let origin = |label: &str| {
        let value = cluster.metadata.labels.as_ref()?.get(label)?;
        (!value.is_empty()).then(|| value.clone())
    };
    for (variable, label) in [("OWNER_KIND", labels::ORIGIN_KIND), ("OWNER_NAME", labels::ORIGIN_NAME)] {
        if let Some(value) = origin(label) {
            environment::set(&mut container, variable, value);
        }
    }
    let own = options.env.clone().unwrap_or_default();
    if role == Role::Head && !environment::has(Some(&own), "RAY_DASHBOARD_ADDRESS") {
        environment::set(&mut container, "RAY_DASHBOARD_ADDRESS", "http://localhost:8265");
    }
    container.env.get_or_insert_default().extend(own);
    auth::configure(&mut container, blueprint.name(), &cluster.spec);
    Some(container)
}
