//! Addresses and ports of services.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use quintet_objects::{FieldError, Path};
use serde_json::{Value, json};

use crate::{
    api::Api,
    chance::Chance,
    json::{self, items, text},
    status::Failure,
    store::key_of,
    verbs::Ask,
};

/// Services get addresses in 10.96.0.0/16; the first belongs to the API itself.
const NETWORK: [u8; 2] = [10, 96];
/// Addresses below this are only given to those who ask for them by name.
const RESERVED: u16 = 256;
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// A port as nodes see it: TCP and UDP of one number are two.
type NodePort = (String, i64);

/// What services on their way to the store have been given.
#[derive(Debug, Default)]
pub(crate) struct Allocations(Mutex<HashMap<u64, Taken>>);

#[derive(Debug, Default)]
struct Taken {
    /// The service it is for.
    key: String,
    addresses: HashSet<String>,
    ports: HashSet<NodePort>,
}

impl Taken {
    fn of(key: String, service: &Value) -> Self {
        let address = text(service, "/spec/clusterIP");
        let addresses = Some(address).filter(|address| !matches!(*address, "" | "None"));
        Self {
            key,
            addresses: addresses.into_iter().map(str::to_owned).collect(),
            ports: items(service, "/spec/ports").iter().filter_map(node_port).collect(),
        }
    }
}

fn node_port(port: &Value) -> Option<NodePort> {
    let number = port.get("nodePort")?.as_i64().filter(|number| *number != 0)?;
    Some((protocol(port), number))
}

fn protocol(port: &Value) -> String {
    match text(port, "/protocol") {
        "" => "TCP".into(),
        protocol => protocol.to_owned(),
    }
}

/// Keeps what a service was given from being given to others until the service is stored, or is not.
#[derive(Debug)]
pub(crate) struct Claim(Api, u64);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.allocations().0.lock().remove(&self.1);
    }
}

/// Gives a service its address and its ports.
pub(crate) fn allocate(ask: &Ask, object: &mut Value, old: Option<&Value>) -> Result<Option<Claim>, Failure> {
    if !ask.resource.is("", "services") || !ask.subresource.is_empty() {
        return Ok(None);
    }
    let own_key = key_of(&ask.namespace, text(object, "/metadata/name"));
    let (mut addresses, mut ports) = (HashSet::new(), HashSet::new());
    // One at a time: what is chosen here is known to the next one before it chooses.
    let mut pending = ask.api.allocations().0.lock();
    for taken in pending.values().filter(|taken| taken.key != own_key) {
        addresses.extend(taken.addresses.iter().cloned());
        ports.extend(taken.ports.iter().cloned());
    }
    let services =
        ask.api.store().list("core/services", "", None, None).map(|(entries, _)| entries).unwrap_or_default();
    for (key, entry) in services {
        if *key == *own_key && old.is_some() {
            continue;
        }
        let taken = Taken::of(String::new(), &serde_json::from_slice(&entry.body).unwrap_or_default());
        addresses.extend(taken.addresses);
        ports.extend(taken.ports);
    }
    let kind = text(object, "/spec/type").to_owned();
    if let Some(old) = old {
        // What was given stays, unless the client says otherwise.
        let (before, now) = (text(old, "/spec/clusterIP").to_owned(), text(object, "/spec/clusterIP"));
        if now.is_empty() && !before.is_empty() && kind != "ExternalName" {
            let spec = json::child(json::as_map(object), "spec");
            spec.insert("clusterIP".into(), before.into());
            for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if let Some(value) = old.pointer(&format!("/spec/{key}")) {
                    spec.entry(key).or_insert_with(|| value.clone());
                }
            }
        }
    }
    address(ask, object, &kind, &addresses, old)?;
    node_ports(ask, object, &kind, &mut ports, old)?;
    let id = pending.keys().max().map_or(0, |last| last + 1);
    pending.insert(id, Taken::of(own_key, object));
    Ok(Some(Claim(ask.api.clone(), id)))
}

fn invalid(ask: &Ask, object: &Value, error: FieldError) -> Failure {
    Failure::invalid(ask.named_kind(text(object, "/metadata/name")), &[error])
}

fn address(
    ask: &Ask,
    object: &mut Value,
    kind: &str,
    taken: &HashSet<String>,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let asked = text(object, "/spec/clusterIP").to_owned();
    if kind == "ExternalName" {
        return Ok(());
    }
    let address = match asked.as_str() {
        "" => free_address(ask.api.chance(), taken)
            .ok_or_else(|| Failure::internal("no more service addresses are free"))?,
        "None" => asked,
        _ => {
            let is_kept = old.is_some_and(|old| text(old, "/spec/clusterIP") == asked);
            if taken.contains(&asked) && !is_kept {
                let spec = Path::new("spec");
                let why = format!("failed to allocate IP {asked}: provided IP is already allocated");
                let error = FieldError::invalid(&spec.field("clusterIPs"), &json!([asked]), why);
                return Err(invalid(ask, object, error));
            }
            asked
        }
    };
    let is_headless_without_selector = address == "None"
        && object.pointer("/spec/selector").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
    let policy = if is_headless_without_selector { "RequireDualStack" } else { "SingleStack" };
    let spec = json::child(json::as_map(object), "spec");
    spec.insert("clusterIP".into(), address.as_str().into());
    spec.insert("clusterIPs".into(), json!([address]));
    spec.entry("ipFamilyPolicy").or_insert_with(|| policy.into());
    spec.entry("ipFamilies")
        .or_insert_with(|| if policy == "SingleStack" { json!(["IPv4"]) } else { json!(["IPv4", "IPv6"]) });
    Ok(())
}

fn free_address(chance: &Chance, taken: &HashSet<String>) -> Option<String> {
    let mut bytes = [0_u8; 2];
    chance.fill(&mut bytes);
    let span = u16::MAX - 1 - RESERVED;
    let start = u16::from_be_bytes(bytes) % span;
    (0..span)
        .map(|step| {
            let [high, low] = (RESERVED + (start.wrapping_add(step)) % span).to_be_bytes();
            format!("{}.{}.{high}.{low}", NETWORK[0], NETWORK[1])
        })
        .find(|address| !taken.contains(address))
}

fn free_port(chance: &Chance, protocol: &str, taken: &HashSet<NodePort>) -> Option<i64> {
    let mut bytes = [0_u8; 2];
    chance.fill(&mut bytes);
    let span = NODE_PORTS.end() - NODE_PORTS.start() + 1;
    let start = i64::from(u16::from_be_bytes(bytes));
    let ports = (0..span).map(|step| NODE_PORTS.start() + (start + step) % span);
    ports.into_iter().find(|port| !taken.contains(&(protocol.to_owned(), *port)))
}

fn node_ports(
    ask: &Ask,
    object: &mut Value,
    kind: &str,
    taken: &mut HashSet<NodePort>,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let allocates =
        object.pointer("/spec/allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true);
    let wants = kind == "NodePort" || (kind == "LoadBalancer" && allocates);
    let name = text(object, "/metadata/name").to_owned();
    let fail = |error: FieldError| Failure::invalid(ask.named_kind(&name), &[error]);
    let Some(ports) = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut) else { return Ok(()) };
    for (index, port) in ports.iter_mut().enumerate() {
        let spec = Path::new("spec");
        let path = spec.field("ports");
        let path = path.index(index);
        let path = path.field("nodePort");
        let protocol = protocol(port);
        let is_same = |one: &&Value| one.get("port") == port.get("port") && self::protocol(one) == protocol;
        let before = old.and_then(|old| items(old, "/spec/ports").iter().find(is_same));
        let before = before.and_then(|before| Some(node_port(before)?.1));
        match port.get("nodePort").and_then(Value::as_i64) {
            Some(0) | None => {
                if wants {
                    let free = before.or_else(|| free_port(ask.api.chance(), &protocol, taken));
                    let free = free.ok_or_else(|| Failure::internal("no more node ports are free"))?;
                    taken.insert((protocol, free));
                    json::as_map(port).insert("nodePort".into(), free.into());
                }
            }
            Some(asked) if !wants && before == Some(asked) => {
                json::as_map(port).remove("nodePort");
            }
            Some(asked) if !NODE_PORTS.contains(&asked) => {
                let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
                return Err(fail(FieldError::invalid(&path, &json!(asked), why)));
            }
            Some(asked) => {
                if !taken.insert((protocol, asked)) {
                    let why = "provided port is already allocated";
                    return Err(fail(FieldError::invalid(&path, &json!(asked), why)));
                }
            }
        }
    }
    Ok(())
}
