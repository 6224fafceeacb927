//! The least that the Model Registry operator needs to be allowed.

use k8s_openapi::api::rbac::v1::PolicyRule;
use quintet_component::{Permissions, READ, rule};

use crate::names::{AUTH, AUTH_DELEGATOR};
use crate::settings::Settings;

const RBAC: &str = "rbac.authorization.k8s.io";
const GATEWAY: &str = "gateway.networking.k8s.io";

/// What the operator needs with these settings.
pub(crate) fn of(settings: &Settings) -> Permissions {
    Permissions { namespaced: namespaced(), cluster: cluster(settings), ..Permissions::default() }
}

/// Where registries and the catalog are.
fn namespaced() -> Vec<PolicyRule> {
    let managed = [READ, &["create", "patch", "delete"]].concat();
    vec![
        rule("modelregistry.opendatahub.io", &["modelregistries"], &[READ, &["patch"]].concat()),
        rule("modelregistry.opendatahub.io", &["modelregistries/status"], &["patch"]),
        rule("aihub.opendatahub.io", &["catalogs"], &[READ, &["create", "patch", "delete"]].concat()),
        rule("aihub.opendatahub.io", &["catalogs/status"], &["patch"]),
        // Owner references that block the owner's deletion need it where that is enforced.
        rule("modelregistry.opendatahub.io", &["modelregistries/finalizers"], &["update"]),
        rule("aihub.opendatahub.io", &["catalogs/finalizers"], &["update"]),
        rule("", &["services", "serviceaccounts", "persistentvolumeclaims"], &managed),
        // The Role of the catalog's administrators grants `update`, and only its holder can grant a right.
        rule("", &["configmaps"], &[&managed[..], &["update"]].concat()),
        // Secrets are read by name. Listing, watching and updating them is what administrators of the catalog get.
        rule("", &["secrets"], &["get", "list", "watch", "create", "update", "patch"]),
        rule("", &["endpoints", "pods"], READ),
        rule("", &["pods/log"], &["get"]),
        rule("apps", &["deployments"], &managed),
        rule("networking.k8s.io", &["networkpolicies"], &managed),
        rule(RBAC, &["roles", "rolebindings"], &managed),
        rule("route.openshift.io", &["routes"], &managed),
        // Their hosts are chosen here.
        rule("route.openshift.io", &["routes/custom-host"], &["create", "update"]),
        rule(GATEWAY, &["httproutes", "referencegrants"], &managed),
    ]
}

fn cluster(settings: &Settings) -> Vec<PolicyRule> {
    let managed = [READ, &["create", "patch", "delete"]].concat();
    let platform = "components.platform.opendatahub.io";
    let mut rules = vec![
        rule(platform, &["aihubs"], &[READ, &["patch"]].concat()),
        rule(platform, &["aihubs/status"], &["patch"]),
        rule(platform, &["aihubs/finalizers"], &["update"]),
        rule("", &["namespaces"], &[READ, &["create"]].concat()),
        rule(RBAC, &["clusterrolebindings"], &managed),
        // Proxies ask who their callers are.
        named(rule(RBAC, &["clusterroles"], &["bind"]), AUTH_DELEGATOR),
        rule("user.openshift.io", &["groups"], &managed),
        named(rule("config.openshift.io", &["ingresses"], READ), "cluster"),
        named(rule("services.platform.opendatahub.io", &["auths"], READ), AUTH),
    ];
    if settings.migration.is_some() {
        rules.push(rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["get"]));
        rules.push(rule("migration.k8s.io", &["storageversionmigrations"], &["get", "list", "create"]));
    }
    rules
}

/// The same rule for the object of this name only.
fn named(rule: PolicyRule, name: &str) -> PolicyRule {
    PolicyRule { resource_names: Some(vec![name.to_owned()]), ..rule }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_granted_by_a_wildcard_and_no_role_can_be_escalated() {
        let Permissions { namespaced, cluster, .. } = of(&Settings::default());
        for rule in namespaced.iter().chain(&cluster) {
            assert!(rule.verbs.iter().all(|verb| verb != "*" && verb != "escalate"), "{rule:?}");
        }
        let bind = cluster.iter().find(|rule| rule.verbs == ["bind"]).unwrap();
        assert_eq!(bind.resource_names.as_deref(), Some(&[AUTH_DELEGATOR.to_owned()][..]));
    }

    #[test]
    fn what_is_off_is_not_asked_for() {
        let has = |settings: &Settings| {
            let mut resources = of(settings).cluster.into_iter().filter_map(|rule| rule.resources);
            resources.any(|resources| resources.contains(&"customresourcedefinitions".to_owned()))
        };
        assert!(!has(&Settings::default()));
        let migration = Some(("a".to_owned(), "b".to_owned()));
        assert!(has(&Settings { migration, ..Settings::default() }));
    }
}
