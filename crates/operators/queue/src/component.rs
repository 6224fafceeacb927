//! The descriptor of the queue operator.

use std::sync::Arc;

use quintet_api::config::{self, Controllers, kueue::QueueConfiguration};
use quintet_api::{conversion, kueue};
use quintet_component::{Component, Context as Configuring, Operator, Process, Webhook};
use quintet_controller::Error;
use quintet_queue_engine::settings::Gates as SchedulingGates;

use crate::metrics::QueueMetrics;
use crate::settings::{Gates, NAMESPACE, Settings};
use crate::validation::Gates as ValidationGates;
use crate::visibility::{self, Source};
use crate::{Context, configuration, custom_labels, permissions, webhook};

/// ClusterQueue, LocalQueue, Cohort, Workload and the rest of `kueue.x-k8s.io`.
pub fn component() -> Component {
    Component {
        config: config::kueue::CONFIG,
        replaces: "Kueue",
        deployment_label: None,
        crds: kueue::definitions,
        convert: Some(conversion::convert),
        environment: &[],
        sensitive_fields: &[],
        configure: Some(configure),
    }
}

fn configure(context: &Configuring<'_>) -> Result<Operator, String> {
    let settings = Arc::new(settings(context)?);
    let is_contended = context.configuration.process.leader_election.leader_elect;
    let controllers = context.configuration.controllers.clone();
    let switches = configuration::resolved_gates(&context.configuration.feature_gates);
    let gates = ValidationGates::switched(&switches);
    let mut webhooks: Vec<Webhook> = webhook::webhooks(&gates);
    webhooks.extend(crate::jobs::webhooks(&settings));
    let is_visible = switches.get(visibility::GATE) != Some(&false);
    let source = is_visible.then(Source::default);
    let server = &settings.configuration.visibility_server;
    let apis = source.iter().map(|source| visibility::api(server, source)).collect::<Result<_, _>>()?;
    Ok(Operator {
        permissions: permissions::of(&settings),
        webhooks,
        services: Vec::new(),
        apis,
        start: Box::new(move |process| start(settings, is_contended, controllers, source, process)),
    })
}

/// The settings, with everything refused that cannot be honoured.
pub(crate) fn settings(context: &Configuring<'_>) -> Result<Settings, String> {
    let configuration: QueueConfiguration =
        context.configuration.section(config::kueue::CONFIG.component).map_err(|error| error.to_string())?;
    let switches = &configuration::resolved_gates(&context.configuration.feature_gates);
    let mut scheduling = SchedulingGates::default();
    for (name, on) in switches {
        scheduling.set(name, *on);
    }
    let namespace = context.configuration.process.namespace.as_deref().unwrap_or(NAMESPACE);
    configuration::check(&configuration, switches, namespace)?;
    let managed_namespaces = configuration.managed_namespaces(namespace);
    let gates = Gates::switched(switches);
    let mut custom_labels = custom_labels::read(&configuration)?;
    if !gates.custom_metric_labels {
        custom_labels.clear();
    }
    let namespace = namespace.to_owned();
    Ok(Settings { configuration, scheduling, gates, managed_namespaces, namespace, custom_labels })
}

fn start(
    settings: Arc<Settings>,
    is_contended: bool,
    controllers: Controllers,
    visibility: Option<Source>,
    process: &Process<'_>,
) -> Result<(), Error> {
    crate::add(&Context {
        runtime: process.runtime.clone(),
        metrics: QueueMetrics::register(process.metrics, is_contended, &settings),
        settings,
        clock: process.clock.clone(),
        concurrency: process.concurrency,
        controllers,
        visibility,
    })
}

#[cfg(test)]
mod tests {
    use quintet_api::config::Schema;
    use quintet_component::Platform;

    use super::*;

    fn configured(text: &str) -> Result<Operator, String> {
        let text = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{text}");
        let configuration =
            Schema(&[config::kueue::CONFIG]).read(&text).map_err(|error| error.to_string())?;
        let (environment, platform) = (|_: &str| None, Platform::default());
        configure(&Configuring {
            configuration: &configuration,
            environment: &environment,
            platform: &platform,
            is_outside: false,
        })
    }

    #[test]
    fn frameworks_are_refused_by_name() {
        assert!(configured("integrations: {frameworks: [batch/job, pod]}").is_ok());
        let error = configured("integrations: {frameworks: [batch/jobs]}").map(drop).unwrap_err();
        assert!(error.starts_with("integrations.frameworks[0]: unknown framework \"batch/jobs\""), "{error}");
    }

    #[test]
    fn the_visibility_api_can_be_moved_and_switched_off() {
        let apis = |text: &str| configured(text).map(|operator| operator.apis);
        let [api] = <[_; 1]>::try_from(apis("visibilityServer: {bindPort: 9000}").unwrap()).ok().unwrap();
        assert_eq!((api.service.name, api.service.target_port), ("kueue-visibility-server", 9000));
        let names: Vec<String> = api.api_services().collect();
        assert_eq!(names, ["v1beta2.visibility.kueue.x-k8s.io", "v1beta1.visibility.kueue.x-k8s.io"]);
        assert!(apis("featureGates: {VisibilityOnDemand: false}").unwrap().is_empty());
        let error = apis("visibilityServer: {bindAddress: here}").map(drop).unwrap_err();
        assert_eq!(error, "visibilityServer.bindAddress: \"here\" is not an IP address");
    }

    #[test]
    fn custom_labels_are_checked_with_and_without_their_gate() {
        let labels = "metrics: {customLabels: [{name: team}]}";
        assert!(configured(labels).is_ok());
        assert!(configured(&format!("{labels}\nfeatureGates: {{CustomMetricLabels: true}}")).is_ok());
        let error = configured("metrics: {customLabels: [{name: 1a}]}").map(drop).unwrap_err();
        assert!(error.starts_with("metrics.customLabels[0].name"), "{error}");
    }

    #[test]
    fn webhooks_of_kinds_that_are_not_enabled_are_asked_about_nothing() {
        let is_asked = |text: &str, path: &str| {
            let webhooks = configured(text).unwrap().webhooks;
            !webhooks.iter().find(|webhook| webhook.path == path).unwrap().rules.is_empty()
        };
        let ray = "/mutate-ray-io-v1-raycluster";
        assert!(is_asked("", "/mutate-batch-v1-job") && !is_asked("", ray));
        assert!(is_asked("integrations: {frameworks: [ray.io/raycluster]}", ray));
    }

    #[test]
    fn every_webhook_has_a_name_and_a_path_of_its_own() {
        let operator = configured("").unwrap();
        let mut paths: Vec<&str> = operator.webhooks.iter().map(|webhook| webhook.path).collect();
        paths.sort_unstable();
        let count = paths.len();
        paths.dedup();
        assert_eq!(paths.len(), count);
        assert!(paths.contains(&"/mutate-batch-v1-job") && paths.contains(&"/validate-batch-v1-job"));
    }
}
