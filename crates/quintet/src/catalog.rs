//! The components of this program, and what follows from their descriptors.

use std::collections::HashSet;

use anyhow::{Context as _, Error, ensure};
use quintet_api::config::{ComponentConfig, Configuration, Schema};
use quintet_api::conversion::ConversionError;
use quintet_api::crd::{Definition, Kind};
use quintet_api::names;
use quintet_component::{Component, Context, Operator, Platform, Service};
use serde_json::Value;

use crate::manifests::CONTAINER_PORTS;
use crate::names::DEFAULT_NAMESPACE;

/// All components.
#[derive(Clone)]
pub(crate) struct Catalog {
    components: Vec<Component>,
    configs: Vec<ComponentConfig>,
}

/// A component that is configured and has controllers.
pub(crate) struct Configured {
    pub(crate) component: Component,
    pub(crate) operator: Operator,
}

impl Configured {
    /// The Services by which others reach it, beyond those of webhooks and metrics.
    pub(crate) fn services(&self) -> impl Iterator<Item = &Service> {
        self.operator.services.iter().chain(self.operator.apis.iter().map(|api| &api.service))
    }
}

impl Catalog {
    pub(crate) fn new(components: Vec<Component>) -> Self {
        let configs = components.iter().map(|component| component.config).collect();
        Self { components, configs }
    }

    /// All components.
    pub(crate) fn components(&self) -> &[Component] {
        &self.components
    }

    /// Reads and checks configuration files.
    pub(crate) fn schema(&self) -> Schema<'_> {
        Schema(&self.configs)
    }

    /// The CRDs of all components.
    pub(crate) fn crds(&self) -> Vec<Definition> {
        self.components.iter().flat_map(|component| (component.crds)()).collect()
    }

    /// The component that has a kind, by the kind's name or plural in any case.
    pub(crate) fn component_of(&self, name: &str) -> Option<(&Component, Kind)> {
        let is_it =
            |kind: &Kind| kind.name.eq_ignore_ascii_case(name) || kind.plural.eq_ignore_ascii_case(name);
        self.components
            .iter()
            .find_map(|component| Some((component, component.kinds().into_iter().find(is_it)?)))
    }

    /// Converts an object to another version of its kind.
    pub(crate) fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConversionError> {
        quintet_component::convert(&self.components, object, api_version)
    }

    /// The components that are switched on.
    pub(crate) fn enabled(&self, configuration: &Configuration) -> Vec<Component> {
        self.components.iter().filter(|component| configuration.enables(component.name())).copied().collect()
    }

    /// Configures the enabled components that have controllers for an installation in `namespace`, from this process's
    /// environment.
    pub(crate) fn configure(
        &self,
        configuration: &Configuration,
        namespace: &str,
        platform: &Platform,
    ) -> anyhow::Result<Vec<Configured>> {
        let environment = |name: &str| std::env::var(name).ok();
        let configuration = &installed_in(namespace, configuration);
        self.configure_in(&Context { configuration, environment: &environment, platform, is_outside: false })
    }

    /// The same for a process that runs outside the cluster.
    pub(crate) fn configure_outside(
        &self,
        configuration: &Configuration,
        platform: &Platform,
    ) -> anyhow::Result<Vec<Configured>> {
        let environment = |name: &str| std::env::var(name).ok();
        let namespace = configuration.process.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let configuration = &installed_in(namespace, configuration);
        self.configure_in(&Context { configuration, environment: &environment, platform, is_outside: true })
    }

    /// Rejects a configuration with which nothing would run.
    pub(crate) fn must_run(&self, configuration: &Configuration) -> anyhow::Result<()> {
        let enabled = self.enabled(configuration);
        let names: Vec<_> = enabled.iter().map(Component::name).collect();
        ensure!(!names.is_empty(), "no component is enabled; choose some that 'quintet components' lists");
        ensure!(
            enabled.iter().any(|component| component.configure.is_some()),
            "nothing would run: there are no controllers yet for {}; 'quintet components' lists what has some",
            names.join(", ")
        );
        Ok(())
    }

    fn configure_in(&self, context: &Context<'_>) -> anyhow::Result<Vec<Configured>> {
        self.must_run(context.configuration)?;
        let configure = |component: Component| {
            let configure = component.configure?;
            let operator = configure(context).map_err(Error::msg);
            let operator = operator.with_context(|| format!("cannot configure {}", component.name()));
            Some(operator.map(|operator| Configured { component, operator }))
        };
        let configured: Vec<_> = self
            .enabled(context.configuration)
            .into_iter()
            .filter_map(configure)
            .collect::<anyhow::Result<_>>()?;
        check_ports(configured.iter().flat_map(Configured::services))?;
        Ok(configured)
    }
}

/// Kubernetes rejects a Deployment with a misnamed container port, and does not know which of two a Service means.
fn check_ports<'a>(services: impl Iterator<Item = &'a Service>) -> anyhow::Result<()> {
    let mut taken = HashSet::from(CONTAINER_PORTS);
    for Service { name, port_name, .. } in services {
        let mut problems = names::problems::port_name(port_name);
        if !taken.insert(port_name) {
            problems.push("must not be the name of another port".to_owned());
        }
        ensure!(problems.is_empty(), "port name \"{port_name}\" of Service {name}: {}", problems.join(", "));
    }
    Ok(())
}

/// A configuration that says where Quintet is installed: its webhooks must not wait for themselves there.
fn installed_in(namespace: &str, configuration: &Configuration) -> Configuration {
    let mut configuration = configuration.clone();
    configuration.process.namespace = Some(namespace.to_owned());
    configuration
}

#[cfg(test)]
mod tests {
    use quintet_component::Permissions;

    use super::*;

    fn component(name: &'static str, configure: Option<quintet_component::Configure>) -> Component {
        Component {
            config: ComponentConfig::without_settings(name),
            replaces: "nothing",
            deployment_label: None,
            crds: Vec::new,
            convert: None,
            environment: &[],
            sensitive_fields: &[],
            configure,
        }
    }

    #[test]
    fn services_have_port_names_that_kubernetes_accepts() {
        let check = |port_names: &[&'static str]| {
            let service =
                |port_name: &&'static str| Service { name: "s", port_name, port: 443, target_port: 8443 };
            let services: Vec<_> = port_names.iter().map(service).collect();
            check_ports(services.iter()).map_err(|error| error.to_string())
        };
        assert_eq!(check(&["visibility", "other"]), Ok(()));
        let too_long = check(&["visibility-server"]);
        let told = "port name \"visibility-server\" of Service s: must be no more than 15 characters";
        assert_eq!(too_long, Err(told.to_owned()));
        for misnamed in [&["8443"][..], &["a--b"], &["A"], &[""], &["a", "a"], &["metrics"]] {
            assert!(check(misnamed).is_err(), "{misnamed:?}");
        }
    }

    #[test]
    fn a_kind_belongs_to_one_component() {
        let catalog = Catalog::new(crate::components());
        let fields = |kind: &str| catalog.component_of(kind).map(|(component, _)| component.sensitive_fields);
        assert!(fields("MLflow").is_some_and(|fields| fields.contains(&"args")));
        assert!(
            fields("rayjobs").is_some_and(|fields| !fields.contains(&"args")),
            "they hide no command lines of Ray"
        );
        assert!(fields("Deployment").is_none());
    }

    #[test]
    fn components_without_controllers_do_not_run_alone() {
        let configured = |_: &Context<'_>| {
            let (webhooks, services) = (Vec::new(), Vec::new());
            let permissions = Permissions::default();
            Ok(Operator { permissions, webhooks, services, apis: Vec::new(), start: Box::new(|_| Ok(())) })
        };
        let catalog = Catalog::new(vec![component("able", Some(configured)), component("idle", None)]);
        let configure = |names: Option<&[&str]>| {
            let mut configuration = Configuration::default();
            configuration.components = names.map(|names| names.iter().map(ToString::to_string).collect());
            let configured = catalog.configure(&configuration, "here", &Platform::default());
            configured.map(|operators| operators.len()).map_err(|error| error.to_string())
        };
        assert_eq!(configure(None), Ok(1));
        assert_eq!(configure(Some(&["able", "idle"])), Ok(1));
        let refused = configure(Some(&["idle"])).unwrap_err();
        assert!(
            refused.starts_with("nothing would run: there are no controllers yet for idle; "),
            "{refused}"
        );
        assert!(configure(Some(&[])).unwrap_err().starts_with("no component is enabled"));
    }
}
