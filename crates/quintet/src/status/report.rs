//! What the status says, from what was observed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Node, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quintet_api::Quantity;
use quintet_api::requests::{Amounts, PodRequests};
use serde::Serialize;
use serde_json::Value;

use super::observe::{Listed, Observed};
use super::unwell::{Problem, problems};
use crate::output::table;
use crate::session::Session;

/// The platform at a glance.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The address of the API.
    api: String,
    /// Since when `quintet up` runs, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    up_since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<String>,
    nodes: Vec<NodeReport>,
    kinds: Vec<KindReport>,
    addresses: Vec<Address>,
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeReport {
    name: String,
    is_ready: bool,
    pods: usize,
    /// Requested and allocatable amounts of each resource.
    resources: BTreeMap<String, [String; 2]>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct KindReport {
    component: &'static str,
    kind: &'static str,
    columns: Vec<String>,
    objects: Vec<Vec<String>>,
}

/// Something to open in a browser.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    /// Whose it is: the owner of the Service, or the Service.
    object: String,
    port: String,
    url: String,
    /// What makes it reachable from this machine: pods of an ordinary user are in a network of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    forward: Option<String>,
}

pub(super) fn report(observed: &Observed, api: &str, session: Option<&Session>, now: Timestamp) -> Report {
    let is_direct = session.is_none_or(Session::is_of_root);
    Report {
        api: api.trim_end_matches('/').to_owned(),
        up_since: session.map(|session| session.started_at),
        kubeconfig: session.map(|session| session.kubeconfig.display().to_string()),
        nodes: observed.nodes.iter().map(|node| of_node(node, observed)).collect(),
        kinds: observed.kinds.iter().filter(|kind| !kind.table.rows.is_empty()).map(of_kind).collect(),
        addresses: observed
            .services
            .iter()
            .flat_map(|one| addresses(one, &observed.pods, is_direct))
            .collect(),
        problems: problems(observed, now),
    }
}

fn of_node(node: &Node, observed: &Observed) -> NodeReport {
    let name = node.metadata.name.clone().unwrap_or_default();
    let is_on_it = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node == Some(name.as_str()) && !matches!(phase, Some("Succeeded" | "Failed"))
    };
    let here: Vec<&Pod> = observed.pods.iter().chain(&observed.other_pods).filter(is_on_it).collect();
    let mut requested = Amounts::new();
    for (resource, amount) in here.iter().flat_map(|pod| requests(pod)) {
        *requested.entry(resource).or_default() += amount;
    }
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let allocatable = status.and_then(|status| status.allocatable.as_ref()).into_iter().flatten();
    let shown = allocatable
        .filter(|(resource, _)| matches!(resource.as_str(), "cpu" | "memory") || resource.contains('/'));
    let resources = shown.map(|(resource, amount)| {
        let used = requested.get(resource).copied().unwrap_or_default();
        let all = Quantity::try_from(amount).unwrap_or_default();
        (resource.clone(), [shown_amount(resource, used), shown_amount(resource, all)])
    });
    NodeReport {
        is_ready: conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"),
        pods: here.len(),
        resources: resources.collect(),
        name,
    }
}

/// Memory in tenths of a Gi: its bytes are of no interest here.
fn shown_amount(resource: &str, amount: Quantity) -> String {
    if resource != "memory" {
        return amount.to_string();
    }
    let tenths = amount.units().saturating_mul(10) / (1 << 30);
    format!("{}.{} Gi", tenths / 10, tenths % 10)
}

fn requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let of = |container: &Container| {
        amounts(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
    };
    let regular: Vec<Amounts> = spec.containers.iter().map(of).collect();
    let init: Vec<(Amounts, bool)> = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| (of(container), container.restart_policy.as_deref() == Some("Always")))
        .collect();
    let of_pod = amounts(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    let overhead = amounts(spec.overhead.as_ref());
    let requests = PodRequests {
        containers: regular.iter().collect(),
        init_containers: init.iter().map(|(amounts, is_sidecar)| (amounts, *is_sidecar)).collect(),
        pod: Some(&of_pod),
        overhead: Some(&overhead),
    };
    requests.effective()
}

fn amounts(requests: Option<&BTreeMap<String, WireQuantity>>) -> Amounts {
    let read =
        |(name, amount): (&String, &WireQuantity)| Some((name.clone(), Quantity::try_from(amount).ok()?));
    requests.into_iter().flatten().filter_map(read).collect()
}

fn of_kind(listed: &Listed) -> KindReport {
    let table = &listed.table;
    let shown: Vec<usize> = (0..table.column_definitions.len())
        .filter(|index| table.column_definitions[*index].priority == 0)
        .collect();
    let mut columns: Vec<String> =
        shown.iter().map(|index| table.column_definitions[*index].name.to_uppercase()).collect();
    if listed.is_namespaced {
        columns.insert(0, "NAMESPACE".into());
    }
    let objects = table.rows.iter().map(|row| {
        let mut cells: Vec<String> =
            shown.iter().filter_map(|index| row.cells.get(*index)).map(cell).collect();
        if listed.is_namespaced {
            let namespace = row.object.pointer("/metadata/namespace").and_then(Value::as_str);
            cells.insert(0, namespace.unwrap_or_default().to_owned());
        }
        cells
    });
    KindReport { component: listed.component, kind: listed.kind, columns, objects: objects.collect() }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Ports of Services that are made for browsers, by their names: at the address of the Service, or at that of a running
/// pod behind one that has none.
fn addresses(service: &Service, pods: &[Pod], is_direct: bool) -> Vec<Address> {
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    let own_name = service.metadata.name.as_deref().unwrap_or_default();
    // The API and what belongs to the cluster itself are not for browsers.
    if namespace == "kube-system" || (namespace, own_name) == ("default", "kubernetes") {
        return Vec::new();
    }
    let Some(spec) = &service.spec else { return Vec::new() };
    let own = spec.cluster_ip.clone().filter(|ip| ip != "None" && !ip.is_empty());
    let is_headless = own.is_none();
    let Some(ip) = own.or_else(|| backend(namespace, spec.selector.as_ref()?, pods)) else {
        return Vec::new();
    };
    let owner =
        service.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let object = match owner {
        Some(owner) => format!("{namespace}/{}/{}", owner.kind.to_ascii_lowercase(), owner.name),
        None => format!("{namespace}/service/{own_name}"),
    };
    let named = spec
        .ports
        .iter()
        .flatten()
        .filter(|port| matches!(port.name.as_deref(), Some("dashboard" | "http" | "https" | "serve")));
    let address = |port: &ServicePort| {
        let target = match (&port.target_port, is_headless) {
            (Some(IntOrString::Int(target)), true) => *target,
            _ => port.port,
        };
        let name = port.name.clone().unwrap_or_default();
        let scheme = if name == "https" { "https" } else { "http" };
        let forward = format!("kubectl port-forward -n {namespace} service/{own_name} {}", port.port);
        Address {
            object: object.clone(),
            url: format!("{scheme}://{ip}:{target}"),
            port: name,
            forward: (!is_direct).then_some(forward),
        }
    };
    named.filter(|port| port.name.as_deref() != Some("serve") || !is_headless).map(address).collect()
}

/// The address of a running pod that a selector selects.
fn backend(namespace: &str, selector: &BTreeMap<String, String>, pods: &[Pod]) -> Option<String> {
    let is_selected = |pod: &&Pod| {
        let labels = pod.metadata.labels.as_ref();
        let status = pod.status.as_ref();
        pod.metadata.namespace.as_deref() == Some(namespace)
            && status.and_then(|status| status.phase.as_deref()) == Some("Running")
            && selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    };
    pods.iter().find(is_selected)?.status.as_ref()?.pod_ip.clone()
}

impl Report {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = match self.up_since {
            Some(since) => format!("Quintet is up at {} since {since:.0}\n", self.api),
            None => format!("Cluster at {}\n", self.api),
        };
        if let Some(kubeconfig) = &self.kubeconfig {
            let _ = writeln!(text, "  export KUBECONFIG={kubeconfig}");
        }
        self.write_nodes(&mut text);
        for kind in &self.kinds {
            let header: Vec<&str> = kind.columns.iter().map(String::as_str).collect();
            section(&mut text, kind.kind, &table(&header, &kind.objects));
        }
        if self.kinds.is_empty() {
            text += "\nNo objects of any component; 'quintet components' lists their kinds.\n";
        }
        if !self.addresses.is_empty() {
            let row = |address: &Address| {
                let way = address.forward.as_ref().unwrap_or(&address.url);
                vec![address.object.clone(), address.port.clone(), way.clone()]
            };
            let rows: Vec<_> = self.addresses.iter().map(row).collect();
            let is_forwarded = self.addresses.iter().any(|address| address.forward.is_some());
            let way = if is_forwarded { "AT 127.0.0.1 AFTER" } else { "ADDRESS" };
            section(&mut text, "To open", &table(&["OBJECT", "PORT", way], &rows));
        }
        if self.problems.is_empty() {
            text += "\nNothing is unwell.\n";
        } else {
            let row = |problem: &Problem| {
                let message = problem.message.lines().next().unwrap_or_default().to_owned();
                vec![problem.object.clone(), problem.reason.clone(), message]
            };
            let rows: Vec<_> = self.problems.iter().map(row).collect();
            section(&mut text, "Unwell", &table(&["OBJECT", "REASON", "MESSAGE"], &rows));
        }
        text
    }

    fn write_nodes(&self, text: &mut String) {
        if self.nodes.is_empty() {
            *text += "\nNo nodes: pods stay pending.\n";
            return;
        }
        let mut resources: Vec<&String> = self.nodes.iter().flat_map(|node| node.resources.keys()).collect();
        resources.sort_unstable();
        resources.dedup();
        let names: Vec<String> = resources.iter().map(|name| name.to_uppercase()).collect();
        let header: Vec<&str> =
            ["NODE", "READY", "PODS"].into_iter().chain(names.iter().map(String::as_str)).collect();
        let row = |node: &NodeReport| {
            let ready = if node.is_ready { "yes" } else { "no" };
            let amounts = resources.iter().map(|name| {
                node.resources.get(*name).map(|[used, of]| format!("{used} of {of}")).unwrap_or_default()
            });
            [node.name.clone(), ready.to_owned(), node.pods.to_string()].into_iter().chain(amounts).collect()
        };
        let rows: Vec<Vec<String>> = self.nodes.iter().map(row).collect();
        section(text, "Nodes", &table(&header, &rows));
    }
}

fn section(text: &mut String, title: &str, body: &str) {
    let _ = writeln!(text, "\n{title}");
    for line in body.lines() {
        let _ = writeln!(text, "  {line}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::observe::Table;
    use super::*;

    fn observed() -> Observed {
        let node = json!({ "metadata": { "name": "n" }, "status": {
            "allocatable": { "cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2", "pods": "110" },
            "conditions": [{ "type": "Ready", "status": "True" }] } });
        let pod = json!({
            "metadata": { "name": "c-head", "namespace": "team", "labels": { "ray.io/node-type": "head" } },
            "spec": { "nodeName": "n", "containers": [
                { "name": "ray-head", "resources": { "requests": { "cpu": "500m" } } }] },
            "status": { "phase": "Running", "podIP": "10.244.0.5" } });
        let table = json!({
            "columnDefinitions": [{ "name": "Name" }, { "name": "Status" }, { "name": "Head Pod IP", "priority": 1 }],
            "rows": [{ "cells": ["c", "ready", "10.244.0.5"], "object": { "metadata": { "namespace": "team" } } }] });
        let table: Table = serde_json::from_value(table).unwrap();
        let service = json!({
            "metadata": { "name": "c-head-svc", "namespace": "team", "ownerReferences": [
                { "apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c", "uid": "u", "controller": true }] },
            "spec": { "clusterIP": "None", "selector": { "ray.io/node-type": "head" }, "ports": [
                { "name": "dashboard", "port": 8265, "targetPort": 8265 }, { "name": "gcs", "port": 6379 }] } });
        let api = json!({
            "metadata": { "name": "kubernetes", "namespace": "default" },
            "spec": { "clusterIP": "10.96.0.1", "ports": [{ "name": "https", "port": 443 }] } });
        Observed {
            services: [service, api].map(|one| serde_json::from_value(one).unwrap()).into(),
            nodes: vec![serde_json::from_value(node).unwrap()],
            pods: vec![serde_json::from_value(pod).unwrap()],
            other_pods: Vec::new(),
            warnings: Vec::new(),
            kinds: vec![Listed { component: "ray", kind: "RayCluster", is_namespaced: true, table }],
        }
    }

    #[test]
    fn everything_is_on_one_page() {
        let report = report(&observed(), "https://127.0.0.1:6443/", None, Timestamp::UNIX_EPOCH);
        let expected = "\
Cluster at https://127.0.0.1:6443

Nodes
  NODE   READY   PODS   CPU         MEMORY             NVIDIA.COM/GPU
  n      yes     1      500m of 4   0.0 Gi of 8.0 Gi   0 of 2

RayCluster
  NAMESPACE   NAME   STATUS
  team        c      ready

To open
  OBJECT              PORT        ADDRESS
  team/raycluster/c   dashboard   http://10.244.0.5:8265

Nothing is unwell.
";
        assert_eq!(report.text(), expected);
    }

    #[test]
    fn ordinary_users_are_told_how_to_reach_their_pods() {
        let observed = observed();
        let addresses: Vec<_> =
            observed.services.iter().flat_map(|one| addresses(one, &observed.pods, false)).collect();
        let forward = "kubectl port-forward -n team service/c-head-svc 8265";
        assert_eq!(addresses.iter().map(|one| one.forward.as_deref()).collect::<Vec<_>>(), [Some(forward)]);
        let mut report = report(&observed, "https://a", None, Timestamp::UNIX_EPOCH);
        report.addresses = addresses;
        let line = format!("team/raycluster/c   dashboard   {forward}");
        let text = report.text();
        assert!(text.contains("AT 127.0.0.1 AFTER") && text.contains(&line), "{text}");
    }

    #[test]
    fn nodes_are_used_by_pods_of_other_namespaces_too() {
        let mut observed = observed();
        observed.other_pods = std::mem::take(&mut observed.pods);
        let text = report(&observed, "https://a", None, Timestamp::UNIX_EPOCH).text();
        assert!(text.contains("n      yes     1      500m of 4"), "{text}");
    }

    #[test]
    fn an_empty_cluster_says_so() {
        let text = report(&Observed::default(), "https://a", None, Timestamp::UNIX_EPOCH).text();
        assert!(text.contains("No nodes: pods stay pending.") && text.contains("No objects"), "{text}");
    }
}
