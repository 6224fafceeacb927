//! The least that the Ray operator needs to be allowed.

use k8s_openapi::api::rbac::v1::PolicyRule;

use quintet_component::{READ, rule};

use crate::settings::{BatchScheduler, Settings};

/// The rules of the operator's role. It also has to hold what it grants to autoscalers.
pub fn rules(settings: &Settings) -> Vec<PolicyRule> {
    let write = |more: &[&'static str]| [READ, more].concat();
    let kinds = ["rayclusters", "rayjobs", "rayservices", "raycronjobs"];
    let statuses = kinds.map(|kind| format!("{kind}/status"));
    let finalizers = kinds.map(|kind| format!("{kind}/finalizers"));
    let mut rules = vec![
        rule("ray.io", &kinds, &write(&["create", "patch", "update", "delete"])),
        rule("ray.io", &statuses.each_ref().map(String::as_str), &["get", "patch", "update"]),
        // Owner references that block the owner's deletion need it where that is enforced.
        rule("ray.io", &finalizers.each_ref().map(String::as_str), &["update"]),
        rule("", &["pods"], &write(&["create", "patch", "delete"])),
        rule("", &["pods/resize"], &["patch"]),
        rule("", &["services"], &write(&["create", "patch", "update", "delete"])),
        rule("", &["serviceaccounts", "secrets"], &write(&["create"])),
        rule("batch", &["jobs"], &write(&["create", "delete"])),
        rule("discovery.k8s.io", &["endpointslices"], READ),
        rule("networking.k8s.io", &["ingresses"], &write(&["create", "patch"])),
        rule("rbac.authorization.k8s.io", &["roles", "rolebindings"], &write(&["create"])),
    ];
    if settings.use_kubernetes_proxy {
        rules.push(rule("", &["pods/proxy"], &["get"]));
        rules.push(rule("", &["services/proxy"], &["get", "create", "update"]));
    }
    let gates = &settings.gates;
    if gates.incremental_upgrade {
        let routing = ["gateways", "httproutes"];
        let verbs = write(&["create", "patch", "update", "delete"]);
        rules.push(rule("gateway.networking.k8s.io", &routing, &verbs));
    }
    if gates.network_policy {
        rules.push(rule("networking.k8s.io", &["networkpolicies"], &write(&["create", "patch", "delete"])));
    }
    if gates.embedded_storage {
        rules.push(rule("", &["persistentvolumeclaims"], &write(&["create", "patch"])));
    }
    if gates.mtls {
        rules.push(rule("cert-manager.io", &["issuers", "certificates"], &write(&["create", "patch"])));
        rules.push(rule("", &["secrets"], &["patch"]));
    }
    if settings.platform.routes {
        rules.push(rule("route.openshift.io", &["routes"], &write(&["create"])));
    }
    if gates.native_gang_scheduling {
        let gangs = ["workloads", "podgroups"];
        rules.push(rule("scheduling.k8s.io", &gangs, &write(&["create", "patch", "delete"])));
    }
    let groups = match settings.batch_scheduler {
        Some(BatchScheduler::Volcano) => Some("scheduling.volcano.sh"),
        Some(BatchScheduler::SchedulerPlugins) => Some("scheduling.x-k8s.io"),
        Some(BatchScheduler::Yunikorn | BatchScheduler::Kai) | None => None,
    };
    rules.extend(groups.map(|group| rule(group, &["podgroups"], &write(&["create", "patch", "delete"]))));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_is_not_asked_for() {
        let groups = |settings: &Settings| -> Vec<String> {
            rules(settings).into_iter().flat_map(|rule| rule.api_groups.unwrap_or_default()).collect()
        };
        let plain = groups(&Settings::default());
        assert!(!plain.iter().any(|group| group == "cert-manager.io" || group == "scheduling.volcano.sh"));
        let volcano = Settings { batch_scheduler: Some(BatchScheduler::Volcano), ..Settings::default() };
        assert!(groups(&volcano).contains(&"scheduling.volcano.sh".to_owned()));
        assert!(rules(&volcano).iter().all(|rule| !rule.verbs.iter().any(|verb| verb == "*")));
    }
}
