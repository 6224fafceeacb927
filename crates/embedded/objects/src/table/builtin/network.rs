//! Services and what leads to them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{born, items, joined, name, none_if_empty, number, pairs, some_of, text, zero};

fn balanced(object: &Value) -> Vec<String> {
    items(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|one| {
            if text(one, "/ip").is_empty() { text(one, "/hostname").into() } else { text(one, "/ip").into() }
        })
        .collect()
}

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = text(object, "/spec/type");
    let mut external: Vec<String> =
        items(object, "/spec/externalIPs").iter().filter_map(|one| one.as_str().map(Into::into)).collect();
    let external = match kind {
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let mut all = balanced(object);
            all.append(&mut external);
            if all.is_empty() { "<pending>".into() } else { all.join(",") }
        }
        _ => external.join(","),
    };
    let ports = joined(items(object, "/spec/ports"), |port| {
        let node = match number(port, "/nodePort") {
            Some(node) if node > 0 => format!(":{node}"),
            _ => String::new(),
        };
        format!("{}{node}/{}", zero(port, "/port"), text(port, "/protocol"))
    });
    vec![
        name(object),
        json!(kind),
        none_if_empty(text(object, "/spec/clusterIP")),
        none_if_empty(&external),
        none_if_empty(&ports),
        born(object, now),
        none_if_empty(&pairs(object.pointer("/spec/selector"))),
    ]
}

pub(super) fn endpoints(object: &Value) -> Value {
    let mut all = Vec::new();
    for subset in items(object, "/subsets") {
        for address in items(subset, "/addresses") {
            let ip = text(address, "/ip");
            if items(subset, "/ports").is_empty() {
                all.push(ip.to_owned());
            }
            for port in items(subset, "/ports") {
                all.push(format!("{ip}:{}", zero(port, "/port")));
            }
        }
    }
    some_of(&all.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(super) fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    let hosts: Vec<&str> = items(object, "/spec/rules")
        .iter()
        .map(|rule| text(rule, "/host"))
        .filter(|host| !host.is_empty())
        .collect();
    let hosts = if hosts.is_empty() { json!("*") } else { some_of(&hosts) };
    let ports = if items(object, "/spec/tls").is_empty() { "80" } else { "80, 443" };
    vec![
        name(object),
        none_if_empty(text(object, "/spec/ingressClassName")),
        hosts,
        json!(balanced(object).join(",")),
        json!(ports),
        born(object, now),
    ]
}
