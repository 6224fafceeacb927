//! The descriptor of the Ray operator.

use std::sync::Arc;

use quintet_api::config::{self, ray::RayConfiguration};
use quintet_component::{Component, Operator, Permissions, Process, Webhook};
use quintet_controller::{Error, webhook::Routes};

use crate::{
    Context,
    dashboard::Pollers,
    permissions,
    settings::{Platform, Settings},
    validation::webhook,
};

/// Switches the validating webhooks on, as in KubeRay's `main.go`.
const ENABLE_WEBHOOKS: &str = "ENABLE_WEBHOOKS";
/// Prefers Ingresses to Routes on OpenShift.
const USE_INGRESS_ON_OPENSHIFT: &str = "USE_INGRESS_ON_OPENSHIFT";

/// The variables of KubeRay's operator that Quintet honours.
const ENVIRONMENT: &[&str] = &[
    "CLUSTER_DOMAIN",
    "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES",
    "ENABLE_DETERMINISTIC_HEAD_POD_NAME",
    "ENABLE_GCS_FT_REDIS_CLEANUP",
    "ENABLE_INIT_CONTAINER_INJECTION",
    "ENABLE_LOGIN_SHELL",
    "ENABLE_PROBES_INJECTION",
    "ENABLE_RANDOM_POD_DELETE",
    "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE",
    ENABLE_WEBHOOKS,
    "ENABLE_ZERO_DOWNTIME",
    "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV",
    "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS",
    "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS",
    USE_INGRESS_ON_OPENSHIFT,
];

/// RayCluster, RayJob, RayService and RayCronJob.
pub fn component() -> Component {
    Component {
        config: config::ray::CONFIG,
        replaces: "KubeRay",
        deployment_label: Some("kuberay-operator"),
        crds: quintet_api::ray::definitions,
        convert: None,
        environment: ENVIRONMENT,
        sensitive_fields: &[
            "redis-password",
            "redisPassword",
            "runtimeEnvYAML",
            "runtime_env",
            "serveConfigV2",
        ],
        configure: Some(configure),
    }
}

fn configure(context: &quintet_component::Context<'_>) -> Result<Operator, String> {
    let section: RayConfiguration =
        context.configuration.section(config::ray::CONFIG.component).map_err(|error| error.to_string())?;
    let mut settings = Settings::read(&section, &context.configuration.feature_gates, context.environment)?;
    settings.platform = platform(context);
    settings.use_kubernetes_proxy |= context.is_outside;
    if let Some((major, minor)) = &context.platform.version {
        settings.check_server(major, minor)?;
    }
    let has_webhooks = (context.environment)(ENABLE_WEBHOOKS).is_some_and(|value| value == "true");
    Ok(Operator {
        permissions: Permissions { namespaced: permissions::rules(&settings), ..Permissions::default() },
        webhooks: if has_webhooks { webhooks() } else { Vec::new() },
        services: Vec::new(),
        apis: Vec::new(),
        start: Box::new(|process| start(settings, process)),
    })
}

fn platform(context: &quintet_component::Context<'_>) -> Platform {
    let prefers_ingress = (context.environment)(USE_INGRESS_ON_OPENSHIFT)
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    Platform {
        routes: context.platform.is_openshift() && !prefers_ingress,
        cert_manager: context.platform.serves("cert-manager.io", "v1"),
    }
}

fn webhooks() -> Vec<Webhook> {
    let validating = |name, path, resource, handler: fn(Routes) -> Routes| {
        // The name of the configuration in KubeRay's manifests.
        Webhook::validating("validating-webhook-configuration", name, path, move |routes, _| {
            Ok(handler(routes))
        })
        .on(&["CREATE", "UPDATE"], "ray.io", "v1", &[resource])
    };
    vec![
        validating("vraycluster.kb.io", webhook::RAY_CLUSTER_PATH, "rayclusters", webhook::add_ray_cluster),
        validating("vrayjob.kb.io", webhook::RAY_JOB_PATH, "rayjobs", webhook::add_ray_job),
        validating("vrayservice.kb.io", webhook::RAY_SERVICE_PATH, "rayservices", webhook::add_ray_service),
    ]
}

fn start(settings: Settings, process: &Process<'_>) -> Result<(), Error> {
    let context = Context {
        settings: Arc::new(settings),
        clock: process.clock.clone(),
        seed: None,
        concurrency: process.concurrency,
    };
    let pollers = Pollers::http(process.runtime, &context, process.client.clone());
    crate::add(process.runtime, &context)?;
    crate::add_workloads(process.runtime, &context, &pollers, Some(process.metrics))
}
