//! The least that the CodeFlare operator needs to be allowed.

use k8s_openapi::api::rbac::v1::PolicyRule;
use quintet_component::{Permissions, READ, rule};

use crate::settings::{Hardening, Settings};

/// Kinds that AppWrappers may wrap. The operator can wrap any other kind as well once its ServiceAccount may get, create
/// and delete it.
const WRAPPED: &[(&str, &[&str])] = &[
    ("", &["configmaps", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts", "services"]),
    ("apps", &["deployments", "statefulsets"]),
    ("batch", &["jobs"]),
    ("jobset.x-k8s.io", &["jobsets"]),
    ("kubeflow.org", &["pytorchjobs"]),
    ("leaderworkerset.x-k8s.io", &["leaderworkersets"]),
    ("networking.k8s.io", &["ingresses"]),
    ("ray.io", &["rayclusters", "rayjobs"]),
    ("route.openshift.io", &["routes"]),
    ("scheduling.sigs.k8s.io", &["podgroups"]),
    ("scheduling.x-k8s.io", &["podgroups"]),
];

/// What the operator needs with these settings.
pub(crate) fn of(settings: &Settings) -> Permissions {
    let mut permissions = Permissions::default();
    if let Some(config) = &settings.appwrapper {
        permissions.namespaced.extend(appwrapper());
        if config.autopilot.monitor_nodes {
            permissions.cluster.push(rule("", &["nodes"], READ));
        }
        if config.user_rbac_admission_check && settings.appwrapper_webhooks {
            permissions.cluster.push(rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]));
        }
    }
    if let Some(hardening) = &settings.hardening {
        permissions.namespaced.extend(ray_cluster(hardening));
        permissions.cluster.extend(ray_cluster_outside_of_namespaces(hardening));
    }
    permissions
}

fn appwrapper() -> Vec<PolicyRule> {
    let group = "workload.codeflare.dev";
    let mut rules = vec![
        rule(group, &["appwrappers"], &[READ, &["patch"]].concat()),
        rule(group, &["appwrappers/status"], &["patch"]),
        // Owner references that block the owner's deletion need it where that is enforced.
        rule(group, &["appwrappers/finalizers"], &["update"]),
        rule("", &["pods"], &["list", "watch"]),
    ];
    rules.extend(
        WRAPPED.iter().map(|(group, resources)| rule(group, resources, &["get", "create", "delete"])),
    );
    rules
}

fn ray_cluster(hardening: &Hardening) -> Vec<PolicyRule> {
    let applied = [READ, &["create", "patch"]].concat();
    let mut rules = vec![
        rule("ray.io", &["rayclusters"], &[READ, &["patch"]].concat()),
        rule("", &["pods"], READ),
        rule("networking.k8s.io", &["networkpolicies"], &applied),
    ];
    if hardening.has_mtls() || hardening.makes_oauth_objects() {
        rules.push(rule("", &["secrets"], &applied));
    }
    if hardening.makes_ingresses() {
        rules.push(rule("networking.k8s.io", &["ingresses"], &applied));
    }
    if hardening.makes_oauth_objects() {
        rules.push(rule("", &["services", "serviceaccounts"], &applied));
        rules.push(rule("route.openshift.io", &["routes"], &applied));
        // A head pod without the image pull secrets of its ServiceAccount is made again.
        rules.push(rule("", &["pods"], &["delete"]));
    }
    rules
}

fn ray_cluster_outside_of_namespaces(hardening: &Hardening) -> Vec<PolicyRule> {
    let named =
        |rule: PolicyRule, name: &str| PolicyRule { resource_names: Some(vec![name.to_owned()]), ..rule };
    let mut rules = Vec::new();
    if hardening.is_openshift {
        rules.push(named(rule("config.openshift.io", &["ingresses"], READ), "cluster"));
        rules.push(named(
            rule("dscinitialization.opendatahub.io", &["dscinitializations"], READ),
            "default-dsci",
        ));
    }
    if hardening.makes_oauth_objects() {
        let rbac = "rbac.authorization.k8s.io";
        let verbs = [READ, &["create", "patch", "delete"]].concat();
        rules.push(rule(rbac, &["clusterrolebindings"], &verbs));
        // RBAC escalation: only who may bind a role can grant it.
        rules.push(named(rule(rbac, &["clusterroles"], &["bind"]), "system:auth-delegator"));
    }
    rules
}

#[cfg(test)]
mod tests {
    use quintet_api::config::codeflare::{CodeFlareConfiguration, KubeRayConfiguration};

    use super::*;

    fn resources(section: CodeFlareConfiguration, is_openshift: bool) -> Vec<String> {
        let Permissions { namespaced, cluster, .. } = of(&Settings::read(section, &|_| None, is_openshift));
        let rules = namespaced.into_iter().chain(cluster);
        rules.flat_map(|rule| rule.resources.unwrap_or_default()).collect()
    }

    #[test]
    fn what_is_off_is_not_asked_for() {
        let has = |list: &[String], name: &str| list.iter().any(|one| one == name);
        let plain = resources(CodeFlareConfiguration::default(), true);
        assert!(has(&plain, "appwrappers") && has(&plain, "nodes") && has(&plain, "subjectaccessreviews"));
        assert!(!has(&plain, "clusterrolebindings") && !has(&plain, "networkpolicies"));
        let hardened = |kuberay: KubeRayConfiguration, is_openshift| {
            resources(CodeFlareConfiguration { kuberay: Some(kuberay), appwrapper: None }, is_openshift)
        };
        assert!(has(&hardened(KubeRayConfiguration::default(), true), "clusterrolebindings"));
        assert!(!has(&hardened(KubeRayConfiguration::default(), false), "clusterrolebindings"));
    }

    #[test]
    fn no_rule_is_a_wildcard() {
        let section =
            CodeFlareConfiguration { kuberay: Some(KubeRayConfiguration::default()), appwrapper: None };
        let Permissions { namespaced, cluster, .. } = of(&Settings::read(section, &|_| None, true));
        for rule in namespaced.iter().chain(&cluster) {
            let lists = [&rule.resources, &rule.api_groups, &Some(rule.verbs.clone())];
            assert!(!lists.into_iter().flatten().flatten().any(|one| one == "*"), "{rule:?}");
        }
    }
}
