//! How a pod is called and how it finds others: `/etc/hosts` and `/etc/resolv.conf`.

use k8s_openapi::api::core::v1 as core;

/// The domain of the cluster.
pub const CLUSTER_DOMAIN: &str = "cluster.local";
/// Limits of the C library, as the kubelet enforces them.
const SERVERS: usize = 3;
const SEARCHES: usize = 32;
const SEARCH_BYTES: usize = 2048;

/// The name that the pod's processes see as that of their machine.
pub fn hostname(pod: &core::Pod) -> String {
    let spec = pod.spec.as_ref();
    let own = spec.and_then(|spec| spec.hostname.as_deref()).filter(|name| !name.is_empty());
    let name = own.or(pod.metadata.name.as_deref()).unwrap_or_default();
    let cut: String = name.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// The full name of a pod with a subdomain.
fn full_name(pod: &core::Pod) -> Option<String> {
    let subdomain = pod.spec.as_ref()?.subdomain.as_deref().filter(|name| !name.is_empty())?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    Some(format!("{}.{subdomain}.{namespace}.svc.{CLUSTER_DOMAIN}", hostname(pod)))
}

/// `/etc/hosts` of a pod with a network of its own.
pub fn hosts_file(pod: &core::Pod, addresses: &[String]) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n",
    );
    let name = hostname(pod);
    let names = full_name(pod).map_or_else(|| name.clone(), |full| format!("{full}\t{name}"));
    for address in addresses {
        text.extend([address.as_str(), "\t", names.as_str(), "\n"]);
    }
    let aliases = pod.spec.as_ref().and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        text.extend([alias.ip.as_str(), "\t", names.as_str(), "\n"]);
    }
    text
}

/// What a `resolv.conf` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    servers: Vec<String>,
    searches: Vec<String>,
    /// Name and value; a later one overrides an earlier one.
    options: Vec<(String, Option<String>)>,
}

impl Resolver {
    /// Reads a `resolv.conf`.
    pub fn parse(text: &str) -> Self {
        let mut resolver = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => resolver.servers.extend(words.next().map(str::to_owned)),
                Some("search" | "domain") => resolver.searches = words.map(str::to_owned).collect(),
                Some("options") => resolver.options.extend(words.map(|word| match word.split_once(':') {
                    Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                    None => (word.to_owned(), None),
                })),
                _ => {}
            }
        }
        resolver
    }

    /// The file.
    pub fn text(&self) -> String {
        let option = |(name, value): &(String, Option<String>)| match value {
            Some(value) => format!("{name}:{value}"),
            None => name.clone(),
        };
        let options: Vec<String> = self.options.iter().map(option).collect();
        let line = |keyword: &str, words: &[String]| {
            (!words.is_empty()).then(|| format!("{keyword} {}\n", words.join(" ")))
        };
        let servers = self.servers.iter().map(|server| format!("nameserver {server}\n"));
        line("search", &self.searches).into_iter().chain(servers).chain(line("options", &options)).collect()
    }
}

/// How a pod resolves names: `node` is the machine's `resolv.conf`, `server` the cluster's name server.
pub fn resolver(pod: &core::Pod, node: &Resolver, server: &str) -> Resolver {
    let spec = pod.spec.as_ref();
    let is_on_host = spec.and_then(|spec| spec.host_network) == Some(true);
    let policy = spec.and_then(|spec| spec.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let mut resolver = match policy {
        "None" => Resolver::default(),
        "Default" => node.clone(),
        "ClusterFirst" if is_on_host => node.clone(),
        _ => of_cluster(pod, node, server),
    };
    if let Some(own) = spec.and_then(|spec| spec.dns_config.as_ref()) {
        resolver.servers.extend(own.nameservers.iter().flatten().cloned());
        resolver.searches.extend(own.searches.iter().flatten().cloned());
        for option in own.options.iter().flatten() {
            let Some(name) = option.name.clone() else { continue };
            resolver.options.retain(|(existing, _)| *existing != name);
            resolver.options.push((name, option.value.clone()));
        }
    }
    limited(resolver)
}

fn of_cluster(pod: &core::Pod, node: &Resolver, server: &str) -> Resolver {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let own = [
        format!("{namespace}.svc.{CLUSTER_DOMAIN}"),
        format!("svc.{CLUSTER_DOMAIN}"),
        CLUSTER_DOMAIN.to_owned(),
    ];
    Resolver {
        servers: vec![server.to_owned()],
        searches: own.into_iter().chain(node.searches.iter().cloned()).collect(),
        options: vec![("ndots".into(), Some("5".into()))],
    }
}

fn limited(mut resolver: Resolver) -> Resolver {
    let mut seen = std::collections::BTreeSet::new();
    resolver.searches.retain(|search| seen.insert(search.clone()));
    resolver.searches.truncate(SEARCHES);
    while resolver.searches.join(" ").len() > SEARCH_BYTES {
        resolver.searches.pop();
    }
    let mut seen = std::collections::BTreeSet::new();
    resolver.servers.retain(|server| seen.insert(server.clone()));
    resolver.servers.truncate(SERVERS);
    resolver
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(mut spec: Value) -> core::Pod {
        spec["containers"] = json!([]);
        let metadata = json!({ "name": "web-0", "namespace": "team" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn resolv_conf(spec: Value) -> String {
        let node =
            Resolver::parse("# host\nnameserver 9.9.9.9\nsearch corp.example\noptions rotate timeout:1\n");
        resolver(&pod(spec), &node, "10.96.0.10").text()
    }

    #[test]
    fn the_hostname_is_the_pods_name_unless_it_says() {
        assert_eq!(hostname(&pod(json!({}))), "web-0");
        assert_eq!(hostname(&pod(json!({ "hostname": "db" }))), "db");
        let mut long = pod(json!({}));
        long.metadata.name = Some(format!("{}-tail", "x".repeat(62)));
        assert_eq!(hostname(&long), "x".repeat(62));
    }

    #[test]
    fn hosts_name_the_pod_and_its_aliases() {
        let text = hosts_file(
            &pod(
                json!({ "subdomain": "peers", "hostAliases": [{ "ip": "1.2.3.4", "hostnames": ["a", "b"] }] }),
            ),
            &["10.244.0.5".into()],
        );
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"), "{text}");
        assert!(text.contains("\n10.244.0.5\tweb-0.peers.team.svc.cluster.local\tweb-0\n"), "{text}");
        assert!(text.ends_with("\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"), "{text}");
        let plain = hosts_file(&pod(json!({})), &["10.244.0.5".into()]);
        assert!(plain.ends_with("\n10.244.0.5\tweb-0\n"), "{plain}");
    }

    #[test]
    fn names_of_the_cluster_come_first() {
        let expected = "search team.svc.cluster.local svc.cluster.local cluster.local corp.example\n\
                        nameserver 10.96.0.10\noptions ndots:5\n";
        assert_eq!(resolv_conf(json!({})), expected);
        assert_eq!(
            resolv_conf(json!({ "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet" })),
            expected
        );
    }

    #[test]
    fn policies() {
        let host = "search corp.example\nnameserver 9.9.9.9\noptions rotate timeout:1\n";
        assert_eq!(resolv_conf(json!({ "dnsPolicy": "Default" })), host);
        assert_eq!(resolv_conf(json!({ "hostNetwork": true })), host);
        let own = json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": ["1.1.1.1"], "searches": ["x"], "options": [{ "name": "ndots", "value": "2" }, { "name": "edns0" }] } });
        assert_eq!(resolv_conf(own), "search x\nnameserver 1.1.1.1\noptions ndots:2 edns0\n");
        let more = json!({ "dnsConfig": { "options": [{ "name": "ndots", "value": "1" }] } });
        assert!(resolv_conf(more).ends_with("options ndots:1\n"));
    }

    #[test]
    fn too_much_is_cut() {
        let servers: Vec<String> = (1..6).map(|number| format!("1.1.1.{number}")).collect();
        let searches: Vec<String> = (0..40).map(|number| format!("s{number}")).collect();
        let text = resolv_conf(
            json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": servers, "searches": searches } }),
        );
        assert_eq!(text.matches("nameserver").count(), 3);
        assert_eq!(text.lines().next().unwrap_or_default().split(' ').count(), 33);
    }
}
