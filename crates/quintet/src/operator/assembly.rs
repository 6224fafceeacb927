//! What a process that runs operators is put together from, on a cluster and in `quintet up`.

use anyhow::{Context as _, ensure};
use quintet_api::crd;
use quintet_component::Component;
use quintet_controller::admin::AdminComponent;
use quintet_controller::webhook::Routes;

use crate::catalog::Configured;

/// The components as the admin server reports them.
pub(crate) fn admin_components(components: &[Component]) -> Vec<AdminComponent> {
    let report = |component: &Component| AdminComponent {
        name: component.name(),
        has_controllers: component.configure.is_some(),
    };
    components.iter().map(report).collect()
}

/// Adds the controllers and webhooks of all operators.
pub(crate) fn start_operators(
    operators: Vec<Configured>,
    process: &quintet_component::Process<'_>,
    mut routes: Routes,
) -> anyhow::Result<Routes> {
    for Configured { component, operator } in operators {
        let attempt = || format!("cannot start {}", component.name());
        (operator.start)(process).with_context(attempt)?;
        for webhook in operator.webhooks {
            let path = webhook.path;
            ensure!(!routes.paths().any(|known| known == path), "two webhooks have the path {path}");
            routes = (webhook.handler)(routes, process.runtime).with_context(attempt)?;
            ensure!(
                routes.paths().any(|known| known == path),
                "the webhook {} has no handler at {path}",
                webhook.name
            );
        }
    }
    Ok(routes)
}

/// The conversion webhook of all enabled components.
pub(crate) fn conversion_route(components: Vec<Component>) -> Routes {
    Routes::new().convert(crd::CONVERSION_PATH, move |object, api_version| {
        quintet_component::convert(&components, &object, api_version).map_err(|error| error.to_string())
    })
}

/// What this machine, or this pod, is called.
pub(crate) fn machine_name() -> String {
    let from_environment = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let from_kernel =
        || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    from_environment.or_else(from_kernel).unwrap_or_else(|| "quintet".into())
}
