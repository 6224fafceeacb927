//! The autoscaler container in the head pod. It changes replica counts of the RayCluster itself.

use k8s_openapi::api::core::v1::Container;
use quintet_api::ray::v1::AutoscalerOptions;

use super::{environment, volumes::equal_resources};
use crate::{labels, settings::Settings};

pub(super) const NAME: &str = "autoscaler";
/// Tells Ray which generation of the autoscaler runs.
pub(super) const VERSION_ENV: &str = "RAY_enable_autoscaler_v2";

const COMMAND: &str = "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) \
    --cluster-namespace $(RAY_CLUSTER_NAMESPACE)";

/// The container, with the image of the one that runs Ray.
pub(super) fn container(ray: &Container, settings: &Settings) -> Container {
    let mut container = Container {
        name: NAME.to_owned(),
        image: ray.image.clone(),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(settings.shell()),
        args: Some(vec![COMMAND.to_owned()]),
        resources: Some(equal_resources("500m", "512Mi")),
        ..Container::default()
    };
    let cluster = environment::label_path(labels::CLUSTER);
    environment::set_from_field(&mut container, "RAY_CLUSTER_NAME", cluster);
    environment::set_from_field(&mut container, "RAY_CLUSTER_NAMESPACE", "metadata.namespace");
    environment::set_from_field(&mut container, "RAY_HEAD_POD_NAME", "metadata.name");
    environment::set(&mut container, "KUBERAY_CRD_VER", "v1");
    environment::set(&mut container, "KUBERAY_GEN_AUTOSCALER_START_CMD", COMMAND);
    container
}

/// What the user says about it wins.
pub(super) fn apply_options(container: &mut Container, options: Option<&AutoscalerOptions>) {
    let Some(options) = options else {
        return;
    };
    replace(&mut container.resources, options.resources.as_ref());
    replace(&mut container.image, options.image.as_ref());
    replace(&mut container.image_pull_policy, options.image_pull_policy.as_ref());
    replace(&mut container.security_context, options.security_context.as_ref());
    replace(&mut container.command, options.command.as_ref().filter(|words| !words.is_empty()));
    replace(&mut container.args, options.args.as_ref().filter(|words| !words.is_empty()));
    extend(&mut container.env, options.env.as_ref());
    extend(&mut container.env_from, options.env_from.as_ref());
    extend(&mut container.volume_mounts, options.volume_mounts.as_ref());
}

fn replace<T: Clone>(field: &mut Option<T>, with: Option<&T>) {
    if let Some(with) = with {
        *field = Some(with.clone());
    }
}

fn extend<T: Clone>(list: &mut Option<Vec<T>>, with: Option<&Vec<T>>) {
    if let Some(with) = with {
        list.get_or_insert_default().extend(with.iter().cloned());
    }
}
