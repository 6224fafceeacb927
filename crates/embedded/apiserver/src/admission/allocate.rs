//! Allocation of cluster IPs and node ports.

use std::collections::HashSet;

use quintet_foundation::rng::Rng;
use quintet_objects::{FieldError, Path};
use serde_json::{Value, json};

use crate::{
    api::Api,
    index::{self, Allocation, NodePort, ServiceIndex},
    json::{self, items, text},
    status::Failure,
    store::key_of,
    verbs::RequestContext,
};

/// Services get addresses in 10.96.0.0/16; the first belongs to the API itself.
const NETWORK: [u8; 2] = [10, 96];
/// Addresses below this are only allocated on explicit request.
const RESERVED: u16 = 256;
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// Keeps what a service was given from being given to others until the service is stored, or is not.
#[derive(Debug)]
pub(crate) struct Claim(Api, u64);

impl Claim {
    /// The service it is for got another name.
    pub(crate) fn rename(&self, name: &str) {
        self.0.store().indexes().services().rename(self.1, name);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.store().indexes().services().release(self.1);
    }
}

/// What others have, as one service sees it.
struct Taken<'a> {
    services: &'a ServiceIndex,
    own_key: &'a str,
    /// Whether the service is stored already.
    is_stored: bool,
}

impl Taken<'_> {
    fn has_address(&self, address: &str) -> bool {
        self.services.is_address_taken(address, self.own_key, self.is_stored)
    }

    fn has_port(&self, port: &NodePort) -> bool {
        self.services.is_port_taken(port, self.own_key, self.is_stored)
    }
}

/// Gives a service its address and its ports.
pub(crate) fn allocate(
    context: &RequestContext,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<Option<Claim>, Failure> {
    if !context.resource.is("", "services") || !context.subresource.is_empty() {
        return Ok(None);
    }
    let own_key = key_of(&context.namespace, text(object, "/metadata/name"));
    let indexes = context.api.store().indexes();
    // One at a time: what is chosen here is known to the next one before it chooses.
    let mut services = indexes.services();
    let kind = text(object, "/spec/type").to_owned();
    if let Some(old) = old.filter(|_| kind != "ExternalName") {
        keep_address(object, old);
    }
    let taken = Taken { services: &services, own_key: &own_key, is_stored: old.is_some() };
    address(context, object, &kind, &taken, old)?;
    node_ports(context, object, &kind, &taken, old)?;
    let id = services.claim(own_key, Allocation::of(object));
    Ok(Some(Claim(context.api.clone(), id)))
}

/// What was given stays, unless the client says otherwise.
fn keep_address(object: &mut Value, old: &Value) {
    let before = text(old, "/spec/clusterIP");
    if before.is_empty() || !text(object, "/spec/clusterIP").is_empty() {
        return;
    }
    let spec = json::child(json::as_map(object), "spec");
    spec.insert("clusterIP".into(), before.into());
    for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if let Some(value) = old.pointer(&format!("/spec/{key}")) {
            spec.entry(key).or_insert_with(|| value.clone());
        }
    }
}

fn invalid(context: &RequestContext, object: &Value, error: FieldError) -> Failure {
    Failure::invalid(context.named_kind(text(object, "/metadata/name")), &[error])
}

fn address(
    context: &RequestContext,
    object: &mut Value,
    kind: &str,
    taken: &Taken<'_>,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let asked = text(object, "/spec/clusterIP").to_owned();
    if kind == "ExternalName" {
        return Ok(());
    }
    let address = match asked.as_str() {
        "" => free_address(context.api.rng(), taken)
            .ok_or_else(|| Failure::internal("no more service addresses are free"))?,
        "None" => asked,
        _ => {
            let is_kept = old.is_some_and(|old| text(old, "/spec/clusterIP") == asked);
            if taken.has_address(&asked) && !is_kept {
                let spec = Path::new("spec");
                let why = format!("failed to allocate IP {asked}: provided IP is already allocated");
                let error = FieldError::invalid(&spec.field("clusterIPs"), &json!([asked]), why);
                return Err(invalid(context, object, error));
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

fn free_address(rng: &Rng, taken: &Taken<'_>) -> Option<String> {
    let mut bytes = [0_u8; 2];
    rng.fill(&mut bytes);
    let span = u16::MAX - 1 - RESERVED;
    let start = u16::from_be_bytes(bytes) % span;
    (0..span)
        .map(|step| {
            let [high, low] = (RESERVED + (start.wrapping_add(step)) % span).to_be_bytes();
            format!("{}.{}.{high}.{low}", NETWORK[0], NETWORK[1])
        })
        .find(|address| !taken.has_address(address))
}

fn free_port(rng: &Rng, protocol: &str, taken: &Taken<'_>, own: &HashSet<NodePort>) -> Option<i64> {
    let mut bytes = [0_u8; 2];
    rng.fill(&mut bytes);
    let span = NODE_PORTS.end() - NODE_PORTS.start() + 1;
    let start = i64::from(u16::from_be_bytes(bytes));
    let ports = (0..span).map(|step| NODE_PORTS.start() + (start + step) % span);
    ports
        .map(|port| (protocol.to_owned(), port))
        .find(|port| !own.contains(port) && !taken.has_port(port))
        .map(|(_, port)| port)
}

fn node_ports(
    context: &RequestContext,
    object: &mut Value,
    kind: &str,
    taken: &Taken<'_>,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let allocates =
        object.pointer("/spec/allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true);
    let wants = kind == "NodePort" || (kind == "LoadBalancer" && allocates);
    let name = text(object, "/metadata/name").to_owned();
    let fail = |error: FieldError| Failure::invalid(context.named_kind(&name), &[error]);
    let Some(ports) = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut) else { return Ok(()) };
    // What this service has been given so far.
    let mut own: HashSet<NodePort> = HashSet::new();
    for (index, port) in ports.iter_mut().enumerate() {
        let spec = Path::new("spec");
        let path = spec.field("ports");
        let path = path.index(index);
        let path = path.field("nodePort");
        let protocol = index::protocol(port);
        let is_same = |one: &&Value| one.get("port") == port.get("port") && index::protocol(one) == protocol;
        let before = old.and_then(|old| items(old, "/spec/ports").iter().find(is_same));
        let before = before.and_then(|before| before.get("nodePort")?.as_i64()).filter(|port| *port != 0);
        match port.get("nodePort").and_then(Value::as_i64) {
            Some(0) | None => {
                if wants {
                    let free = before.or_else(|| free_port(context.api.rng(), &protocol, taken, &own));
                    let free = free.ok_or_else(|| Failure::internal("no more node ports are free"))?;
                    own.insert((protocol, free));
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
                let asked_port = (protocol, asked);
                if taken.has_port(&asked_port) || !own.insert(asked_port) {
                    let why = "provided port is already allocated";
                    return Err(fail(FieldError::invalid(&path, &json!(asked), why)));
                }
            }
        }
    }
    Ok(())
}
