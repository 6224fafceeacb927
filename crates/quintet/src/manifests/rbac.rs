//! RBAC objects of an installation.

use quintet_api::config::Process;
use quintet_component::{AggregatedApi, Component, WebhookKind};
use serde_json::{Value, json};

use super::{labels, metadata};
use crate::catalog::Configured;
use crate::names::{NAME, shared_name};

/// The least that the operators need: for the cluster, in their own namespace, in that of the Lease, and in those they
/// watch, which are all unless some are named.
pub(super) fn objects(
    namespace: &str,
    process: &Process,
    components: &[Component],
    operators: &[Configured],
) -> Vec<Value> {
    let Process { leader_election, webhook, watch_namespaces, .. } = process;
    let role = |kind: &str, metadata: Value, rules: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules,
        })
    };
    let binding = |kind: &str, metadata: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": metadata["name"] },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": namespace }],
        })
    };
    let both = |kind: &str, metadata: Value, rules: Value| {
        [role(kind, metadata.clone(), rules), binding(kind, metadata)]
    };
    // Certificates from a directory are published by whoever provides them; the operator only verifies them.
    let issues_certificates = webhook.cert_dir.is_none();
    let publish: &[&str] = if issues_certificates { &["get", "patch"] } else { &["get"] };
    let mut for_all = publication_rules(namespace, components, operators, publish);
    for_all
        .extend(operators.iter().flat_map(|one| &one.operator.permissions.cluster).map(|rule| json!(rule)));
    let where_it_watches = watched_rules(operators);
    if watch_namespaces.is_empty() {
        for_all.extend(where_it_watches.clone());
    }
    let lease = &leader_election.resource_name;
    let for_lease = [
        rule("coordination.k8s.io", &["leases"], &[], &["create"]),
        rule("coordination.k8s.io", &["leases"], &[lease], &["get", "update"]),
    ];
    let lease_namespace = leader_election.resource_namespace.as_deref().unwrap_or(namespace);
    let mut at_home = Vec::new();
    if issues_certificates {
        at_home.push(rule("", &["secrets"], &[], &["create"]));
        at_home.push(rule("", &["secrets"], &[&webhook.secret_name], &["get", "update"]));
    }
    at_home.extend(operators.iter().flat_map(|one| &one.operator.permissions.own).map(|rule| json!(rule)));
    let mut objects =
        vec![json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(namespace, NAME) })];
    let everywhere = json!({ "name": shared_name(namespace, NAME), "labels": labels() });
    objects.extend(both("ClusterRole", everywhere, json!(for_all)));
    if leader_election.leader_elect {
        if lease_namespace == namespace {
            at_home.extend(for_lease);
        } else {
            let name = shared_name(namespace, "quintet-leader");
            objects.extend(both("Role", metadata(lease_namespace, &name), json!(for_lease)));
        }
    }
    objects.extend(both("Role", metadata(namespace, NAME), json!(at_home)));
    if operators.iter().any(|one| !one.operator.apis.is_empty()) {
        objects.extend(delegation(namespace));
    }
    for watched in watch_namespaces {
        let name = shared_name(namespace, "quintet-operator");
        objects.extend(both("Role", metadata(watched, &name), json!(where_it_watches)));
    }
    objects
}

/// What an aggregated API server needs to let the API server decide who a request is from and whether it is allowed:
/// roles that every cluster has.
fn delegation(namespace: &str) -> [Value; 2] {
    let binding = |kind: &str, metadata: Value, role_kind: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": namespace }],
        })
    };
    let delegator = json!({ "name": shared_name(namespace, "quintet-auth-delegator"), "labels": labels() });
    let reader = metadata("kube-system", &shared_name(namespace, "quintet-auth-reader"));
    [
        binding("ClusterRoleBinding", delegator, "ClusterRole", "system:auth-delegator"),
        binding("RoleBinding", reader, "Role", "extension-apiserver-authentication-reader"),
    ]
}

/// A rule of a Role, for objects of these names if some are given.
fn rule(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    let mut rule = json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

/// What the operators need in the namespaces they watch.
fn watched_rules(operators: &[Configured]) -> Vec<Value> {
    let events = rule("events.k8s.io", &["events"], &[], &["create", "patch"]);
    let of_operators = operators.iter().flat_map(|one| &one.operator.permissions.namespaced);
    std::iter::once(events).chain(of_operators.map(|rule| json!(rule))).collect()
}

/// What publishing the certificate authority takes: in the CRDs, webhook configurations and APIServices of enabled
/// components, and in no others.
fn publication_rules(
    namespace: &str,
    components: &[Component],
    operators: &[Configured],
    verbs: &[&str],
) -> Vec<Value> {
    let mut rules = Vec::new();
    let mut publish = |group: &str, resource: &str, mut names: Vec<String>| {
        names.sort();
        names.dedup();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if !names.is_empty() {
            rules.push(rule(group, &[resource], &names, verbs));
        }
    };
    let converted = components.iter().flat_map(Component::converted_crds).collect();
    publish("apiextensions.k8s.io", "customresourcedefinitions", converted);
    for kind in [WebhookKind::Mutating, WebhookKind::Validating] {
        let webhooks = operators.iter().flat_map(|one| &one.operator.webhooks);
        let of_kind = webhooks.filter(|webhook| webhook.kind == kind);
        let names = of_kind.map(|webhook| shared_name(namespace, webhook.configuration)).collect();
        publish("admissionregistration.k8s.io", kind.configuration_resource(), names);
    }
    let apis = operators.iter().flat_map(|one| &one.operator.apis);
    publish("apiregistration.k8s.io", "apiservices", apis.flat_map(AggregatedApi::api_services).collect());
    rules
}
