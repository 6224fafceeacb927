//! What the zone says to a question. Pure.
//!
//! Names are those of the DNS specification of Kubernetes, as CoreDNS serves them: a name that exists without records of
//! the type is not an error (NODATA), so that clients do not go on to other names of their search path.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use quintet_controller::ObjectKey;

use super::super::services::{Reach, ServicePort, ServiceView, Target};
use super::message::{Data, Record, types};
use super::zone::{Zone, service_name};
use crate::pod::names::CLUSTER_DOMAIN;

/// How long clients may keep a record, in seconds.
const TTL: u32 = 30;
/// How long clients may keep that there is none.
const NEGATIVE_TTL: u32 = 5;
/// The version of the specification.
const SPECIFICATION: &str = "1.1.0";
/// Addresses are turned into names below this domain.
const REVERSE: &str = ".in-addr.arpa";

/// What the zone says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Records, and addresses of the hosts that they name. None means that the name exists without such records.
    Records(Vec<Record>, Vec<Record>),
    /// The name is another one for this target.
    Alias(Record, String),
    /// The name does not exist.
    NoSuchName,
    /// Others know.
    Foreign,
}

impl Answer {
    fn none() -> Self {
        Self::Records(Vec::new(), Vec::new())
    }
}

/// Answers a question about a name in lower case without the dot at its end.
pub(super) fn answer(name: &str, kind: u16, zone: &Zone) -> Answer {
    if let Some(reversed) = name.strip_suffix(REVERSE) {
        return reverse(name, reversed, kind, zone);
    }
    let relative = match name.strip_suffix(CLUSTER_DOMAIN) {
        Some("") => return apex(name, kind, zone),
        Some(rest) => rest.strip_suffix('.'),
        None => None,
    };
    let Some(relative) = relative else { return Answer::Foreign };
    // From the top: svc, namespace, Service, and up to two more.
    let labels: Vec<&str> = relative.rsplit('.').collect();
    match labels.as_slice() {
        ["svc" | "pod"] => Answer::none(),
        ["dns-version"] => text(name, kind),
        ["svc" | "pod", namespace] if zone.has_namespace(namespace) => Answer::none(),
        ["pod", namespace, pod] if zone.has_namespace(namespace) => of_pod(name, pod, kind),
        ["svc", namespace, service, inner @ ..] => match zone.service(namespace, service) {
            Some(view) => of_service(name, &ObjectKey::new(namespace, service), view, inner, kind),
            None => Answer::NoSuchName,
        },
        _ => Answer::NoSuchName,
    }
}

/// The record that says who is responsible for the zone, which goes along with negative answers.
pub(super) fn authority(zone: &Zone) -> Record {
    let data = Data::Soa {
        server: format!("ns.dns.{CLUSTER_DOMAIN}"),
        mailbox: format!("hostmaster.{CLUSTER_DOMAIN}"),
        serial: zone.serial(),
        minimum: NEGATIVE_TTL,
    };
    Record { name: CLUSTER_DOMAIN.to_owned(), ttl: NEGATIVE_TTL, data }
}

fn record(name: &str, data: Data) -> Record {
    Record { name: name.to_owned(), ttl: TTL, data }
}

/// The cluster's domain itself.
fn apex(name: &str, kind: u16, zone: &Zone) -> Answer {
    match kind {
        types::SOA => Answer::Records(vec![authority(zone)], Vec::new()),
        types::NS => {
            Answer::Records(vec![record(name, Data::Ns(format!("ns.dns.{CLUSTER_DOMAIN}")))], Vec::new())
        }
        _ => Answer::none(),
    }
}

fn text(name: &str, kind: u16) -> Answer {
    match kind {
        types::TXT | types::ANY => {
            Answer::Records(vec![record(name, Data::Txt(SPECIFICATION.to_owned()))], Vec::new())
        }
        _ => Answer::none(),
    }
}

/// `1-2-3-4.<namespace>.pod`: the address is in the name.
fn of_pod(name: &str, pod: &str, kind: u16) -> Answer {
    match pod.replace('-', ".").parse::<Ipv4Addr>() {
        Ok(address) => addresses(name, [address], kind),
        Err(_) => Answer::NoSuchName,
    }
}

/// `inner` are the labels below the name of the Service, from the top.
fn of_service(name: &str, key: &ObjectKey, service: &ServiceView, inner: &[&str], kind: u16) -> Answer {
    if let Reach::ExternalName(target) = &service.reach {
        let target = target.trim_end_matches('.').to_ascii_lowercase();
        return match inner {
            [] => Answer::Alias(record(name, Data::Cname(target.clone())), target),
            _ => Answer::NoSuchName,
        };
    }
    match inner {
        [] if kind == types::SRV => ports(name, key, service, |_| true),
        [] => addresses(name, own_addresses(service), kind),
        [host] if !host.starts_with('_') => of_host(name, service, host, kind),
        [protocol, port] => match (protocol.strip_prefix('_'), port.strip_prefix('_')) {
            (Some(protocol), Some(port)) => of_port(name, key, service, (protocol, port), kind),
            _ => Answer::NoSuchName,
        },
        _ => Answer::NoSuchName,
    }
}

fn own_addresses(service: &ServiceView) -> BTreeSet<Ipv4Addr> {
    match service.reach {
        Reach::ClusterIp(address) => BTreeSet::from([address]),
        _ => ready(service).map(|target| target.address).collect(),
    }
}

fn ready(service: &ServiceView) -> impl Iterator<Item = &Target> {
    service.targets.iter().filter(|target| target.is_ready)
}

/// One endpoint of a Service, by its host name or its address.
fn of_host(name: &str, service: &ServiceView, host: &str, kind: u16) -> Answer {
    let found: BTreeSet<Ipv4Addr> =
        ready(service).filter(|target| target.label() == host).map(|target| target.address).collect();
    if found.is_empty() { Answer::NoSuchName } else { addresses(name, found, kind) }
}

/// `_<port>._<protocol>`.
fn of_port(name: &str, key: &ObjectKey, service: &ServiceView, wanted: (&str, &str), kind: u16) -> Answer {
    let is_wanted = |port: &ServicePort| (port.protocol.label(), port.name.as_str()) == wanted;
    if !service.ports.iter().any(is_wanted) {
        return Answer::NoSuchName;
    }
    match kind {
        types::SRV | types::ANY => ports(name, key, service, is_wanted),
        _ => Answer::none(),
    }
}

fn ports(
    name: &str,
    key: &ObjectKey,
    service: &ServiceView,
    is_wanted: impl Fn(&ServicePort) -> bool,
) -> Answer {
    let own = service_name(key);
    let mut answers = Vec::new();
    let mut hosts = BTreeSet::new();
    for port in service.ports.iter().filter(|port| is_wanted(port)) {
        let mut add = |number: u16, target: String, address: Ipv4Addr| {
            hosts.insert((target.clone(), address));
            let found = record(name, Data::Srv { port: number, target });
            if !answers.contains(&found) {
                answers.push(found);
            }
        };
        if let Reach::ClusterIp(address) = service.reach {
            add(port.port, own.clone(), address);
            continue;
        }
        for target in ready(service) {
            let same = target.ports.iter().find(|of| (of.protocol, &of.name) == (port.protocol, &port.name));
            if let Some(same) = same {
                add(same.port, format!("{}.{own}", target.label()), target.address);
            }
        }
    }
    let hosts = hosts.into_iter().map(|(host, address)| record(&host, Data::A(address))).collect();
    Answer::Records(answers, hosts)
}

fn addresses(name: &str, found: impl IntoIterator<Item = Ipv4Addr>, kind: u16) -> Answer {
    match kind {
        types::A | types::ANY => {
            let records = found.into_iter().map(|address| record(name, Data::A(address)));
            Answer::Records(records.collect(), Vec::new())
        }
        _ => Answer::none(),
    }
}

/// `reversed` are the octets of an address from the last to the first.
fn reverse(name: &str, reversed: &str, kind: u16, zone: &Zone) -> Answer {
    let octets: Vec<&str> = reversed.rsplit('.').collect();
    let Ok(address) = octets.join(".").parse::<Ipv4Addr>() else { return Answer::Foreign };
    let Some(names) = zone.names_of(address) else { return Answer::Foreign };
    let records: Vec<Record> = names.map(|own| record(name, Data::Ptr(own.clone()))).collect();
    match kind {
        _ if records.is_empty() => Answer::NoSuchName,
        types::PTR | types::ANY => Answer::Records(records, Vec::new()),
        _ => Answer::none(),
    }
}
