//! The least that the MLflow operator needs to be allowed.

use k8s_openapi::api::rbac::v1::PolicyRule;
pub(crate) use quintet_component::rule;
use quintet_component::{Permissions, READ};

use crate::mlflow::{gc_rules, server_rules};
use crate::names;
use crate::settings::Settings;

const RBAC: &str = "rbac.authorization.k8s.io";

/// What the operator needs with these settings.
pub(crate) fn of(settings: &Settings) -> Permissions {
    Permissions { namespaced: namespaced(), cluster: cluster(settings), ..Permissions::default() }
}

/// Where the server is. With `--watch-namespaces` these are a Role.
fn namespaced() -> Vec<PolicyRule> {
    let write = |more: &[&'static str]| [READ, more].concat();
    let applied = write(&["create", "patch"]);
    let deleted = write(&["create", "patch", "delete"]);
    vec![
        rule("", &["services"], &applied),
        rule("", &["persistentvolumeclaims"], &write(&["create"])),
        rule("", &["configmaps", "serviceaccounts"], &deleted),
        rule("", &["pods"], READ),
        rule("apps", &["deployments"], &applied),
        rule("batch", &["jobs"], &write(&["create", "delete"])),
        rule("batch", &["cronjobs"], &deleted),
        rule("networking.k8s.io", &["networkpolicies"], &applied),
        rule("monitoring.coreos.com", &["servicemonitors"], &applied),
        rule("gateway.networking.k8s.io", &["httproutes"], &applied),
    ]
}

fn cluster(settings: &Settings) -> Vec<PolicyRule> {
    let mut rules = vec![
        rule("mlflow.opendatahub.io", &["mlflows"], &[READ, &["patch"]].concat()),
        rule("mlflow.opendatahub.io", &["mlflows/status"], &["patch"]),
        // Owner references that block the owner's deletion need it where that is enforced.
        rule("mlflow.opendatahub.io", &["mlflows/finalizers"], &["update"]),
        rule("console.openshift.io", &["consolelinks"], &[READ, &["create", "patch"]].concat()),
        rule(RBAC, &["clusterroles", "clusterrolebindings"], &["create"]),
        named(
            rule(RBAC, &["clusterroles", "clusterrolebindings"], &[READ, &["patch"]].concat()),
            &[names::MLFLOW],
        ),
        named(
            rule(RBAC, &["clusterroles", "clusterrolebindings"], &[READ, &["patch", "delete"]].concat()),
            &[names::GC],
        ),
    ];
    // RBAC escalation: a right can only be granted by its holder.
    rules.extend(server_rules());
    rules.extend(gc_rules());
    if settings.module_mode {
        let group = "components.platform.opendatahub.io";
        rules.push(rule(group, &["mlflowoperators"], &[READ, &["patch"]].concat()));
        rules.push(rule(group, &["mlflowoperators/status"], &["patch"]));
    }
    if settings.namespace_rbac {
        rules.push(named(rule("services.platform.opendatahub.io", &["auths"], READ), &[names::AUTH]));
        rules.push(rule(RBAC, &["rolebindings"], &["create"]));
        rules.push(named(
            rule(RBAC, &["rolebindings"], &[READ, &["patch", "delete"]].concat()),
            &[names::VIEW_BINDING, names::EDIT_BINDING],
        ));
        let roles = ["view", "edit"].map(|role| format!("{}mlflow-{role}", settings.role_prefix));
        let roles = roles.each_ref().map(String::as_str);
        rules.push(named(rule(RBAC, &["clusterroles"], &["bind"]), &roles));
    }
    rules
}

/// The same rule for objects of these names only.
fn named(rule: PolicyRule, names: &[&str]) -> PolicyRule {
    PolicyRule { resource_names: Some(names.iter().map(|name| (*name).to_owned()).collect()), ..rule }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_is_not_asked_for() {
        let resources = |settings: &Settings| -> Vec<String> {
            let rules = of(settings).cluster.into_iter();
            rules.flat_map(|rule| rule.resources.unwrap_or_default()).collect()
        };
        let plain = resources(&Settings::default());
        assert!(!plain.iter().any(|resource| resource == "rolebindings" || resource == "mlflowoperators"));
        let full = Settings { module_mode: true, namespace_rbac: true, ..Settings::default() };
        let full = resources(&full);
        assert!(full.contains(&"rolebindings".to_owned()) && full.contains(&"mlflowoperators".to_owned()));
    }

    #[test]
    fn cluster_roles_are_read_and_changed_by_name_only() {
        let rules = of(&Settings { namespace_rbac: true, ..Settings::default() }).cluster;
        let of_rbac = rules.iter().filter(|rule| rule.api_groups.iter().flatten().any(|group| group == RBAC));
        for rule in of_rbac {
            assert!(rule.resource_names.is_some() || rule.verbs == ["create"], "{rule:?}");
        }
    }
}
