//! `/etc/resolv.conf` of pods.

use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::core::v1 as core;

use crate::pod::names::{self, Resolver};

/// The file of a pod. A name server on the loopback interface of the machine cannot be reached from a pod; the
/// cluster's name server stands in for it, as it asks those of the machine.
pub(super) fn of_pod(pod: &core::Pod, node: &Resolver, cluster_dns: Ipv4Addr) -> String {
    let is_on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    let server = cluster_dns.to_string();
    let node = if is_on_host { node.clone() } else { reachable(node, &server) };
    names::resolver(pod, &node, &server).text()
}

fn reachable(node: &Resolver, server: &str) -> Resolver {
    let line = |line: &str| {
        let own = line.strip_prefix("nameserver ").and_then(|address| address.trim().parse::<IpAddr>().ok());
        match own {
            Some(address) if address.is_loopback() => format!("nameserver {server}\n"),
            _ => format!("{line}\n"),
        }
    };
    Resolver::parse(&node.text().lines().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The lines for a pod of namespace `team` on a machine with this `resolv.conf`.
    fn lines(spec: &serde_json::Value, node: &str) -> Vec<String> {
        let mut pod = json!({ "metadata": { "name": "p", "namespace": "team" }, "spec": spec });
        pod["spec"]["containers"] = json!([]);
        let pod: core::Pod = serde_json::from_value(pod).unwrap();
        let text = of_pod(&pod, &Resolver::parse(node), [10, 96, 0, 10].into());
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_policy_decides_where_a_pod_asks() {
        let node = "search corp.example\nnameserver 192.0.2.53\noptions edns0\n";
        let cluster = [
            "search team.svc.cluster.local svc.cluster.local cluster.local corp.example",
            "nameserver 10.96.0.10",
            "options ndots:5",
        ];
        let machine = ["search corp.example", "nameserver 192.0.2.53", "options edns0"];
        let own = json!({ "nameservers": ["192.0.2.1"], "searches": ["lab"],
            "options": [{ "name": "ndots", "value": "2" }, { "name": "rotate" }] });
        let cases = [
            (json!({}), cluster.to_vec()),
            (json!({ "dnsPolicy": "ClusterFirst" }), cluster.to_vec()),
            (json!({ "dnsPolicy": "ClusterFirst", "hostNetwork": true }), machine.to_vec()),
            (json!({ "dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true }), cluster.to_vec()),
            (json!({ "dnsPolicy": "Default" }), machine.to_vec()),
            (
                json!({ "dnsPolicy": "None", "dnsConfig": own }),
                vec!["search lab", "nameserver 192.0.2.1", "options ndots:2 rotate"],
            ),
            (
                json!({ "dnsConfig": own }),
                vec![
                    "search team.svc.cluster.local svc.cluster.local cluster.local corp.example lab",
                    "nameserver 10.96.0.10",
                    "nameserver 192.0.2.1",
                    "options ndots:2 rotate",
                ],
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(lines(&spec, node), expected, "{spec}");
        }
    }

    #[test]
    fn a_name_server_on_the_loopback_of_the_machine_is_replaced_for_pods() {
        let node = "search corp.example\nnameserver 127.0.0.53\nnameserver ::1\n";
        let policy = json!({ "dnsPolicy": "Default" });
        assert_eq!(lines(&policy, node), ["search corp.example", "nameserver 10.96.0.10"]);
        let on_host = json!({ "dnsPolicy": "Default", "hostNetwork": true });
        assert_eq!(lines(&on_host, node), ["search corp.example", "nameserver 127.0.0.53", "nameserver ::1"]);
    }
}
