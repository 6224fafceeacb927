//! The plan for the EndpointSlices of one Service.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ObjectReference, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::names::{head, suffix};
use quintet_api::owners::controller_reference;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Plan, Step};
use serde_json::json;

use super::addresses::{Port, Target, is_headless, is_ipv6, targets};
use super::{HEADLESS, MANAGED_BY, Observed, SERVICE_NAME, SLICE_MANAGER, selector_of};

/// Endpoints per slice, as upstream's `--max-endpoints-per-slice`.
const MAX_ENDPOINTS: usize = 100;

/// A slice as it should be.
struct Wanted<'a> {
    existing: Option<&'a Entry<EndpointSlice>>,
    ports: Vec<Port>,
    endpoints: Vec<Endpoint>,
}

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    if observed.service.deleting || selector_of(&observed.service.object).is_none() {
        return Plan::nothing();
    }
    let mut groups: BTreeMap<Vec<Port>, Vec<Endpoint>> = BTreeMap::new();
    for target in targets(observed) {
        groups.entry(target.ports.clone()).or_default().push(endpoint(observed, &target));
    }
    if groups.is_empty() {
        // A Service without pods has one slice without ports.
        groups.insert(Vec::new(), Vec::new());
    }
    let mut wanted = Vec::new();
    let mut kept = BTreeSet::new();
    for (ports, endpoints) in groups {
        let existing =
            observed.slices.iter().filter(|slice| !slice.deleting && has_ports(&slice.object, &ports));
        let packed = pack(existing.map(|slice| &**slice).collect(), ports, endpoints);
        kept.extend(packed.iter().filter_map(|slice| slice.existing.map(|existing| existing.key.clone())));
        wanted.extend(packed);
    }
    let mut steps: Vec<Step> = Vec::new();
    let mut number = 0;
    for slice in &wanted {
        steps.extend(write(observed, slice, &mut number));
    }
    let unwanted = observed.slices.iter().filter(|slice| !slice.deleting && !kept.contains(&slice.key));
    steps.extend(unwanted.map(|slice| Action::delete(ApiKind::of::<EndpointSlice>(), slice).into()));
    Plan { steps, ..Plan::default() }
}

/// Distributes endpoints over slices: those that are in a slice stay there, so that few slices change.
fn pack<'a>(
    existing: Vec<&'a Entry<EndpointSlice>>,
    ports: Vec<Port>,
    endpoints: Vec<Endpoint>,
) -> Vec<Wanted<'a>> {
    let mut open: BTreeMap<String, Endpoint> =
        endpoints.into_iter().map(|endpoint| (identity(&endpoint), endpoint)).collect();
    let mut slices: Vec<Wanted<'a>> = existing
        .into_iter()
        .map(|slice| {
            let known = slice.object.endpoints.iter().flatten().map(identity).take(MAX_ENDPOINTS);
            let endpoints = known.filter_map(|identity| open.remove(&identity)).collect();
            Wanted { existing: Some(slice), ports: ports.clone(), endpoints }
        })
        .collect();
    let mut open = open.into_values().peekable();
    for slice in &mut slices {
        let room = MAX_ENDPOINTS - slice.endpoints.len();
        slice.endpoints.extend(open.by_ref().take(room));
    }
    while open.peek().is_some() {
        let endpoints = open.by_ref().take(MAX_ENDPOINTS).collect();
        slices.push(Wanted { existing: None, ports: ports.clone(), endpoints });
    }
    if slices.is_empty() {
        slices.push(Wanted { existing: None, ports, endpoints: Vec::new() });
    }
    // One slice is kept even if it is empty.
    let has_endpoints = slices.iter().any(|slice| !slice.endpoints.is_empty());
    let mut is_first = true;
    slices.retain(|slice| {
        let is_placeholder = !has_endpoints && std::mem::take(&mut is_first);
        !slice.endpoints.is_empty() || is_placeholder
    });
    slices
}

/// What identifies an endpoint: its pod and its address.
fn identity(endpoint: &Endpoint) -> String {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_deref()).unwrap_or_default();
    format!("{uid} {}", endpoint.addresses.first().map(String::as_str).unwrap_or_default())
}

fn endpoint(observed: &Observed, target: &Target<'_>) -> Endpoint {
    let spec = &target.pod.object.spec;
    let service = observed.service.key.name();
    let node = spec.node_name.clone();
    let is_named = spec.subdomain.as_deref() == Some(service);
    Endpoint {
        addresses: vec![target.ip.clone()],
        conditions: Some(EndpointConditions {
            ready: Some(target.ready),
            serving: Some(target.serving),
            terminating: Some(target.terminating),
        }),
        hostname: spec.hostname.clone().filter(|name| is_named && !name.is_empty()),
        zone: node.as_ref().and_then(|node| observed.nodes.get(node).cloned().flatten()),
        node_name: node,
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: target.pod.key.namespace().map(str::to_owned),
            name: Some(target.pod.key.name().to_owned()),
            uid: Some(target.pod.uid.to_string()),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    }
}

fn port_of(port: &Port) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.clone()),
        port: Some(port.number),
        app_protocol: port.app_protocol.clone(),
    }
}

fn has_ports(slice: &EndpointSlice, ports: &[Port]) -> bool {
    slice.ports.as_deref().unwrap_or_default().iter().eq(ports.iter().map(port_of).collect::<Vec<_>>().iter())
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    let name = service.metadata.name.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name);
    labels.insert(MANAGED_BY.to_owned(), SLICE_MANAGER.to_owned());
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    } else {
        labels.remove(HEADLESS);
    }
    labels
}

/// Creates or changes a slice, if that is necessary.
fn write(observed: &Observed, wanted: &Wanted<'_>, number: &mut u32) -> Option<Step> {
    let service = &observed.service;
    let (kind, labels) = (ApiKind::of::<EndpointSlice>(), labels(&service.object));
    let ports: Vec<_> = wanted.ports.iter().map(port_of).collect();
    let Some(existing) = wanted.existing else {
        let name = new_name(observed, number);
        let slice = EndpointSlice {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: service.key.namespace().map(str::to_owned),
                labels: Some(labels),
                owner_references: controller_reference(&service.object).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            address_type: if is_ipv6(&service.object) { "IPv6" } else { "IPv4" }.to_owned(),
            endpoints: Some(wanted.endpoints.clone()),
            ports: Some(ports),
        };
        return Some(Action::create(kind, &slice).into());
    };
    let before = &existing.object;
    let has_labels = before.metadata.labels.as_ref() == Some(&labels);
    if has_labels && before.endpoints.as_deref().unwrap_or_default() == wanted.endpoints {
        return None;
    }
    let removed = before.metadata.labels.iter().flatten().filter(|(name, _)| !labels.contains_key(*name));
    let mut changed: BTreeMap<_, _> =
        labels.iter().map(|(name, value)| (name.clone(), Some(value))).collect();
    changed.extend(removed.map(|(name, _)| (name.clone(), None)));
    let patch = json!({
        "metadata": { "uid": existing.uid, "labels": changed },
        "endpoints": wanted.endpoints, "ports": ports,
    });
    Some(Action::merge(kind, existing.key.clone(), patch).into())
}

/// A name that every attempt would choose again.
fn new_name(observed: &Observed, number: &mut u32) -> String {
    let prefix = head(observed.service.key.name(), 57).to_owned();
    loop {
        let name = format!("{prefix}-{}", suffix((observed.service.uid.as_str(), *number)));
        *number += 1;
        if !observed.slices.iter().any(|slice| slice.key.name() == name) {
            return name;
        }
    }
}
