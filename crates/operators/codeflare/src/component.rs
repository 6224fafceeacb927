//! The descriptor of the CodeFlare operator.

use quintet_api::appwrapper;
use quintet_api::config::{self, codeflare::CodeFlareConfiguration};
use quintet_component::{Component, Operator, Process, Webhook};
use quintet_controller::Error;

use crate::settings::{self, Settings};
use crate::{Context, permissions, raycluster};

/// Names of the webhook configurations in CodeFlare's manifests.
const CONFIGURATIONS: [&str; 2] = [
    "codeflare-operator-mutating-webhook-configuration",
    "codeflare-operator-validating-webhook-configuration",
];

/// AppWrapper, and RayClusters as far as they are hardened.
pub fn component() -> Component {
    Component {
        config: config::codeflare::CONFIG,
        replaces: "CodeFlare, AppWrapper",
        deployment_label: None,
        crds: appwrapper::definitions,
        convert: None,
        environment: &[settings::CERT_GENERATOR_IMAGE, settings::OAUTH_PROXY_IMAGE],
        sensitive_fields: &[],
        configure: Some(configure),
    }
}

fn configure(context: &quintet_component::Context<'_>) -> Result<Operator, String> {
    let section: CodeFlareConfiguration = context
        .configuration
        .section(config::codeflare::CONFIG.component)
        .map_err(|error| error.to_string())?;
    let settings = Settings::read(section, context.environment, context.platform.is_openshift());
    check_domain(&settings, context.platform.version.is_some())?;
    Ok(Operator {
        permissions: permissions::of(&settings),
        webhooks: webhooks(&settings),
        services: Vec::new(),
        apis: Vec::new(),
        start: Box::new(move |process| start(&settings, process)),
    })
}

/// OpenShift says what its domain is. Elsewhere, only the user knows.
fn check_domain(settings: &Settings, is_connected: bool) -> Result<(), String> {
    match &settings.hardening {
        Some(hardening)
            if is_connected && !hardening.is_openshift && hardening.config.ingress_domain.is_empty() =>
        {
            Err("kuberay.ingressDomain is not set, and this is not OpenShift, which would say it; set it to the DNS \
                 domain under which Ray dashboards are reached"
                .to_owned())
        }
        _ => Ok(()),
    }
}

fn webhooks(settings: &Settings) -> Vec<Webhook> {
    let mut webhooks = Vec::new();
    if let Some(config) = settings.appwrapper.as_ref().filter(|_| settings.appwrapper_webhooks) {
        webhooks.extend(crate::appwrapper::validation::webhook::webhooks(config, CONFIGURATIONS));
    }
    if let Some(hardening) = &settings.hardening {
        webhooks.extend(raycluster::webhooks(hardening, CONFIGURATIONS));
    }
    webhooks
}

fn start(settings: &Settings, process: &Process<'_>) -> Result<(), Error> {
    let context = Context {
        runtime: process.runtime.clone(),
        clock: process.clock.clone(),
        metrics: process.metrics.clone(),
        concurrency: process.concurrency,
    };
    crate::add(&context, settings)
}

#[cfg(test)]
mod tests {
    use quintet_api::config::Schema;
    use quintet_component::{Context, Platform};

    use super::*;

    fn configured(text: &str, platform: &Platform) -> Result<Operator, String> {
        let configuration = Schema(&[config::codeflare::CONFIG]).read(text).unwrap();
        let environment = |_: &str| None;
        configure(&Context {
            configuration: &configuration,
            environment: &environment,
            platform,
            is_outside: false,
        })
    }

    fn names(operator: &Operator) -> Vec<&'static str> {
        operator.webhooks.iter().map(|webhook| webhook.name).collect()
    }

    #[test]
    fn webhooks_are_those_of_what_is_on() {
        let platform = Platform::default();
        let plain = configured("", &platform).unwrap();
        assert_eq!(names(&plain), ["mappwrapper.kb.io", "vappwrapper.kb.io"]);
        let rays = configured("kuberay: {}", &platform).unwrap();
        assert_eq!(names(&rays), ["mraycluster.ray.openshift.ai", "vraycluster.ray.openshift.ai"]);
        assert_eq!(names(&configured("webhooksEnabled: false", &platform).unwrap()), Vec::<&str>::new());
    }

    #[test]
    fn outside_of_openshift_the_domain_has_to_be_given() {
        let connected = |mut platform: Platform| {
            platform.version = Some(("1".into(), "36".into()));
            platform
        };
        let kubernetes = connected(Platform::default());
        let error = configured("kuberay: {}", &kubernetes).map(drop).unwrap_err();
        assert!(error.starts_with("kuberay.ingressDomain is not set"), "{error}");
        assert!(configured("kuberay: {ingressDomain: kind}", &kubernetes).is_ok());
        assert!(configured("kuberay: {}", &connected(Platform::openshift())).is_ok());
    }
}
