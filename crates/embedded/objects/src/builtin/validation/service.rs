//! Services, endpoints, ingresses and network policies.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::super::value::{is_set, items, number, text};
use super::{one_of, selector};
use crate::error::FieldError;
use crate::names;
use crate::path::Path;

pub(super) fn service(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    let kind = text(new, "/spec/type");
    one_of(kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], &path.field("type"), errors);
    let ports = items(new, "/spec/ports");
    let at = path.field("ports");
    let is_headless = text(new, "/spec/clusterIP") == "None";
    if ports.is_empty() && kind != "ExternalName" && !is_headless {
        errors.push(FieldError::required(&at, ""));
    }
    let (mut seen, mut pairs) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let at = at.index(index);
        let name = text(port, "/name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(&at.field("name"), ""));
            }
        } else {
            for problem in names::dns_label(name) {
                errors.push(FieldError::invalid(&at.field("name"), &json!(name), problem));
            }
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(&at.field("name"), &json!(name)));
            }
        }
        let value = number(port, "/port").unwrap_or(0);
        if !(1..=65535).contains(&value) {
            errors.push(FieldError::invalid(
                &at.field("port"),
                &json!(value),
                "must be between 1 and 65535, inclusive",
            ));
        }
        one_of(text(port, "/protocol"), &["SCTP", "TCP", "UDP"], &at.field("protocol"), errors);
        target_port(port.get("targetPort"), &at.field("targetPort"), errors);
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            for problem in names::qualified_name(protocol) {
                errors.push(FieldError::invalid(&at.field("appProtocol"), &json!(protocol), problem));
            }
        }
        if !pairs.insert((value, text(port, "/protocol"))) {
            errors.push(FieldError::duplicate(
                &at,
                &json!({ "port": value, "protocol": text(port, "/protocol") }),
            ));
        }
        if kind == "ClusterIP" && number(port, "/nodePort").is_some_and(|port| port != 0) {
            errors.push(FieldError::forbidden(
                &at.field("nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            ));
        }
    }
    if kind == "ExternalName" {
        let name = text(new, "/spec/externalName");
        if name.is_empty() {
            errors.push(FieldError::required(&path.field("externalName"), ""));
        }
        if is_set(new, "/spec/clusterIP") && !is_headless {
            errors.push(FieldError::forbidden(
                &path.field("clusterIPs[0]"),
                "may not be set when `type` is 'ExternalName'",
            ));
        }
    }
    one_of(text(new, "/spec/sessionAffinity"), &["ClientIP", "None"], &path.field("sessionAffinity"), errors);
    crate::meta::labels(new.pointer("/spec/selector"), &path.field("selector"), errors);
    if let Some(old) = old {
        let (now, before) = (text(new, "/spec/clusterIP"), text(old, "/spec/clusterIP"));
        let is_kept = kind != "ExternalName" && text(old, "/spec/type") != "ExternalName";
        if is_kept && !before.is_empty() && now != before {
            let shown = new.pointer("/spec/clusterIPs").cloned().unwrap_or_else(|| json!([now]));
            errors.push(FieldError::invalid(&path.field("clusterIPs[0]"), &shown, "may not change once set"));
        }
    }
}

/// A port of the pods, by number or name.
fn target_port(target: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let problems = match target {
        Some(Value::Number(port)) if !port.as_i64().is_some_and(|port| (1..=65535).contains(&port)) => {
            vec!["must be between 1 and 65535, inclusive".to_owned()]
        }
        Some(Value::String(name)) => names::port_name(name),
        _ => Vec::new(),
    };
    for problem in problems {
        errors.push(FieldError::invalid(path, target.unwrap_or(&Value::Null), problem));
    }
}

pub(super) fn ingress(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    let rules = items(new, "/spec/rules");
    if rules.is_empty() && !is_set(new, "/spec/defaultBackend") {
        errors.push(FieldError::invalid(
            &path,
            new.get("spec").unwrap_or(&Value::Null),
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
    let at = path.field("rules");
    for (index, rule) in rules.iter().enumerate() {
        let rule_at = at.index(index);
        let http = rule_at.field("http");
        let paths = http.field("paths");
        for (index, one) in items(rule, "/http/paths").iter().enumerate() {
            let at = paths.index(index);
            match text(one, "/pathType") {
                "" => errors.push(FieldError::required(&at.field("pathType"), "pathType must be specified")),
                "Exact" | "Prefix" => {
                    if !text(one, "/path").starts_with('/') {
                        errors.push(FieldError::invalid(
                            &at.field("path"),
                            &json!(text(one, "/path")),
                            "must be an absolute path",
                        ));
                    }
                }
                "ImplementationSpecific" => {}
                other => errors.push(FieldError::not_supported(
                    &at.field("pathType"),
                    &json!(other),
                    &["Exact", "ImplementationSpecific", "Prefix"],
                )),
            }
        }
    }
}

pub(super) fn network_policy(new: &Value, errors: &mut Vec<FieldError>) {
    selector(new.pointer("/spec/podSelector"), &Path::new("spec.podSelector"), errors);
    for (index, kind) in items(new, "/spec/policyTypes").iter().enumerate() {
        let kind = kind.as_str().unwrap_or_default();
        one_of(kind, &["Ingress", "Egress"], &Path::new("spec.policyTypes").index(index), errors);
    }
}

pub(super) fn endpoint_slice(new: &Value, errors: &mut Vec<FieldError>) {
    one_of(text(new, "/addressType"), &["FQDN", "IPv4", "IPv6"], &Path::new("addressType"), errors);
    let endpoints = Path::new("endpoints");
    for (index, endpoint) in items(new, "/endpoints").iter().enumerate() {
        let at = endpoints.index(index);
        let at = at.field("addresses");
        if items(endpoint, "/addresses").is_empty() {
            errors.push(FieldError::required(&at, "must contain at least 1 address"));
        }
        for (index, address) in items(endpoint, "/addresses").iter().enumerate() {
            endpoint_address(text(new, "/addressType"), address, &at, index, errors);
        }
    }
}

fn endpoint_address(kind: &str, address: &Value, at: &Path, index: usize, errors: &mut Vec<FieldError>) {
    if !matches!(kind, "IPv4" | "IPv6") {
        return;
    }
    let Ok(ip) = address.as_str().unwrap_or_default().parse::<IpAddr>() else {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(&at.index(index), address, why));
        return;
    };
    // An IPv4 address in the notation of IPv6 is an IPv4 address.
    if ip.to_canonical().is_ipv4() != (kind == "IPv4") {
        errors.push(FieldError::invalid(at, address, format!("must be an {kind} address")));
    }
    special_address(address, &at.index(index), errors);
}

pub(super) fn endpoints(new: &Value, errors: &mut Vec<FieldError>) {
    let subsets = Path::new("subsets");
    for (index, subset) in items(new, "/subsets").iter().enumerate() {
        for list in ["addresses", "notReadyAddresses"] {
            let at = subsets.index(index);
            let at = at.field(list);
            for (index, address) in items(subset, &format!("/{list}")).iter().enumerate() {
                let ip = address.get("ip").unwrap_or(&Value::Null);
                special_address(ip, &at.index(index).field("ip"), errors);
            }
        }
    }
}

/// As upstream's `ValidateNonSpecialIP`, but for loopback addresses: on one machine, endpoints are there.
fn special_address(address: &Value, at: &Path, errors: &mut Vec<FieldError>) {
    let text = address.as_str().unwrap_or_default();
    let Ok(ip) = text.parse::<IpAddr>() else { return };
    let ip = ip.to_canonical();
    let (is_link_local, is_link_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    let unspecified = format!("may not be unspecified ({text})");
    for (is_so, why) in [
        (ip.is_unspecified(), unspecified.as_str()),
        (is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (is_link_local_multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ] {
        if is_so {
            errors.push(FieldError::invalid(at, address, why));
        }
    }
}

/// What uses an address.
pub(super) fn ip_address(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = Path::new("spec");
    let path = spec.field("parentRef");
    let Some(parent) = new.pointer("/spec/parentRef") else {
        errors.push(FieldError::required(&path, ""));
        return;
    };
    let mut check = |field: &str, is_required: bool, problems: fn(&str) -> Vec<String>| {
        let value = parent.get(field).and_then(Value::as_str).unwrap_or_default();
        let at = path.field(field);
        if !value.is_empty() {
            let found = problems(value).into_iter();
            errors.extend(found.map(|problem| FieldError::invalid(&at, &json!(value), problem)));
        } else if is_required {
            errors.push(FieldError::required(&at, ""));
        }
    };
    check("group", false, names::dns_subdomain);
    check("resource", true, names::path_segment);
    check("name", true, names::path_segment);
    check("namespace", false, names::path_segment);
    if let Some(old) = old {
        super::immutable(new, old, "/spec/parentRef", errors);
    }
}
