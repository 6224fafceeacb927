//! The components of this program, and what follows from their descriptors.

use anyhow::{Context as _, Error, ensure};
use quintet_api::config::{ComponentConfig, Configuration, Schema};
use quintet_api::conversion::ConversionError;
use quintet_api::crd::Definition;
use quintet_component::{Component, Context, Operator, Platform};
use serde_json::Value;

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

    /// Fields whose values may be secret, of all components.
    pub(crate) fn sensitive_fields(&self) -> Vec<&'static str> {
        self.components.iter().flat_map(|component| component.sensitive_fields).copied().collect()
    }

    /// Converts an object to another version of its kind.
    pub(crate) fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConversionError> {
        quintet_component::convert(&self.components, object, api_version)
    }

    /// The components that are switched on.
    pub(crate) fn enabled(&self, configuration: &Configuration) -> Vec<Component> {
        self.components.iter().filter(|component| configuration.enables(component.name())).copied().collect()
    }

    /// Configures the enabled components that have controllers, from this process's environment.
    pub(crate) fn configure(
        &self,
        configuration: &Configuration,
        platform: &Platform,
    ) -> anyhow::Result<Vec<Configured>> {
        let environment = |name: &str| std::env::var(name).ok();
        self.configure_in(&Context { configuration, environment: &environment, platform, is_outside: false })
    }

    /// The same for a process that runs outside the cluster.
    pub(crate) fn configure_outside(
        &self,
        configuration: &Configuration,
        platform: &Platform,
    ) -> anyhow::Result<Vec<Configured>> {
        let environment = |name: &str| std::env::var(name).ok();
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
        self.enabled(context.configuration).into_iter().filter_map(configure).collect()
    }
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
    fn components_without_controllers_do_not_run_alone() {
        let configured = |_: &Context<'_>| {
            let (webhooks, services) = (Vec::new(), Vec::new());
            let permissions = Permissions::default();
            Ok(Operator { permissions, webhooks, services, start: Box::new(|_| Ok(())) })
        };
        let catalog = Catalog::new(vec![component("able", Some(configured)), component("idle", None)]);
        let configure = |names: Option<&[&str]>| {
            let mut configuration = Configuration::default();
            configuration.components = names.map(|names| names.iter().map(ToString::to_string).collect());
            let configured = catalog.configure(&configuration, &Platform::default());
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
