//! The plan for the Endpoints of one Service.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::owners::controller_reference;
use quintet_controller::{Action, ApiKind, Plan};
use serde_json::json;

use super::addresses::{Port, Target, is_headless, publishes_not_ready, targets};
use super::{HEADLESS, Observed, selector_of};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    let service = &observed.service;
    if service.deleting || selector_of(&service.object).is_none() {
        return Plan::nothing();
    }
    let subsets = subsets(observed);
    let mut labels = service.object.metadata.labels.clone().unwrap_or_default();
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if is_headless(&service.object) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    let kind = ApiKind::of::<Endpoints>();
    let action = if let Some(existing) = &observed.endpoints {
        let before = &existing.object;
        let has_subsets = before.subsets.as_deref().unwrap_or_default() == subsets;
        if has_subsets && before.metadata.labels.as_ref() == Some(&labels) {
            return Plan::nothing();
        }
        let patch = json!({ "metadata": { "uid": existing.uid, "labels": labels }, "subsets": subsets });
        Action::merge(kind, existing.key.clone(), patch)
    } else {
        Action::create(kind, &new(observed, labels, subsets))
    };
    Plan { steps: vec![action.into()], ..Plan::default() }
}

fn new(observed: &Observed, labels: BTreeMap<String, String>, subsets: Vec<EndpointSubset>) -> Endpoints {
    let service = &observed.service;
    Endpoints {
        metadata: ObjectMeta {
            name: Some(service.key.name().to_owned()),
            namespace: service.key.namespace().map(str::to_owned),
            labels: Some(labels),
            // Upstream's controller deletes them after the Service; here garbage collection does.
            owner_references: controller_reference(&service.object).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        subsets: Some(subsets),
    }
}

/// Pods with the same ports share a subset.
fn subsets(observed: &Observed) -> Vec<EndpointSubset> {
    let publishes_not_ready = publishes_not_ready(&observed.service.object);
    let mut by_ports: BTreeMap<Vec<Port>, Vec<Target<'_>>> = BTreeMap::new();
    for target in targets(observed).into_iter().filter(|target| publishes_not_ready || !target.terminating) {
        by_ports.entry(target.ports.clone()).or_default().push(target);
    }
    let has_ports = observed.service.object.spec.as_ref().is_some_and(|spec| spec.ports.is_some());
    by_ports.retain(|ports, _| !ports.is_empty() || !has_ports);
    by_ports
        .into_iter()
        .map(|(ports, mut targets)| {
            targets.sort_by(|a, b| a.ip.cmp(&b.ip));
            let select = |ready: bool| {
                let of = targets.iter().filter(|target| target.ready == ready);
                let all: Vec<_> = of.map(|target| address(observed, target)).collect();
                (!all.is_empty()).then_some(all)
            };
            let (addresses, not_ready_addresses) = (select(true), select(false));
            let ports: Vec<_> = ports.iter().map(port_of).collect();
            EndpointSubset { addresses, not_ready_addresses, ports: (!ports.is_empty()).then_some(ports) }
        })
        .collect()
}

fn address(observed: &Observed, target: &Target<'_>) -> EndpointAddress {
    let spec = &target.pod.object.spec;
    let is_named = spec.subdomain.as_deref() == Some(observed.service.key.name());
    EndpointAddress {
        ip: target.ip.clone(),
        hostname: spec.hostname.clone().filter(|name| is_named && !name.is_empty()),
        node_name: spec.node_name.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: target.pod.key.namespace().map(str::to_owned),
            name: Some(target.pod.key.name().to_owned()),
            uid: Some(target.pod.uid.to_string()),
            ..ObjectReference::default()
        }),
    }
}

fn port_of(port: &Port) -> EndpointPort {
    EndpointPort {
        name: (!port.name.is_empty()).then(|| port.name.clone()),
        protocol: Some(port.protocol.clone()),
        port: port.number,
        app_protocol: port.app_protocol.clone(),
    }
}
