//! A small scheduler for clusters that have none: pending pods go to the simulated node with the fewest pods that
//! has room for them and the labels they ask for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Binding;
use parking_lot::Mutex;
use quintet_api::Quantity;
use quintet_controller::api::Api;
use quintet_controller::cache::{Cache, Change, Entry};
use quintet_controller::clock::Clock;
use quintet_controller::object::Uid;
use quintet_controller::{Action, ApiKind, Controller, Error, Next, ObjectKey, Plan, StatusPatch};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::pod::Pod;

/// What no change has woken is looked at this often.
const AGAIN: Duration = Duration::from_secs(10);
/// How many waiting pods get a chance when room is freed; more could rarely use it.
const CHANCES: usize = 32;

type Amounts = BTreeMap<String, Quantity>;

/// What the scheduler keeps of a node.
#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    metadata: Metadata,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Debug, Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    allocatable: Amounts,
}

impl Node {
    pub(crate) fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Who takes what where, and who waits.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Books>);

#[derive(Default)]
struct Books {
    used: HashMap<String, Amounts>,
    placed: HashMap<ObjectKey, (String, Amounts)>,
    /// In the order they came.
    waiting: BTreeSet<(Option<Timestamp>, ObjectKey)>,
}

impl Books {
    fn place(&mut self, key: &ObjectKey, node: &str, requests: Amounts) {
        let used = self.used.entry(node.to_owned()).or_default();
        for (name, amount) in &requests {
            *used.entry(name.clone()).or_default() += *amount;
        }
        self.placed.insert(key.clone(), (node.to_owned(), requests));
    }

    /// Whether this freed anything.
    fn release(&mut self, key: &ObjectKey) -> bool {
        let Some((node, requests)) = self.placed.remove(key) else { return false };
        let used = self.used.entry(node).or_default();
        for (name, amount) in requests {
            *used.entry(name).or_default() -= amount;
        }
        true
    }
}

impl Ledger {
    /// Follows a change of a pod; returns the pods that may fit now.
    pub(crate) fn follow(&self, change: &Change<Pod>) -> Vec<ObjectKey> {
        let mut books = self.0.lock();
        if let Some(old) = &change.old {
            books.waiting.remove(&(old.object.created, old.key.clone()));
        }
        let freed = match (&change.new, &change.old) {
            (Some(new), _) if new.object.takes_room() => {
                let node = new.object.spec.node_name.clone().unwrap_or_default();
                books.release(&new.key);
                books.place(&new.key, &node, new.object.requests());
                false
            }
            (Some(new), _) if waits(new) => {
                books.waiting.insert((new.object.created, new.key.clone()));
                false
            }
            (Some(entry), _) | (None, Some(entry)) => books.release(&entry.key),
            (None, None) => false,
        };
        if !freed {
            return Vec::new();
        }
        books.waiting.iter().take(CHANCES).map(|(_, key)| key.clone()).collect()
    }

    /// Everybody who waits.
    pub(crate) fn waiting(&self) -> Vec<ObjectKey> {
        self.0.lock().waiting.iter().map(|(_, key)| key.clone()).collect()
    }

    /// Chooses a node and counts the pod there, as if it were bound already.
    fn choose(&self, pod: &Entry<Pod>, nodes: &[Arc<Entry<Node>>]) -> Result<String, String> {
        let mut books = self.0.lock();
        books.release(&pod.key);
        let requests = pod.object.requests();
        let chosen = choose(&pod.object, &requests, nodes.iter().map(|node| &node.object), &books.used)?;
        books.place(&pod.key, &chosen, requests);
        Ok(chosen)
    }
}

/// Whether a pod is ours to schedule.
fn waits(pod: &Entry<Pod>) -> bool {
    let Pod { spec, status, .. } = &pod.object;
    spec.node_name.is_none()
        && spec.scheduling_gates.is_empty()
        && spec.scheduler_name.as_deref().is_none_or(|name| name == "default-scheduler")
        && !status.is_terminal()
        && !pod.deleting
}

/// The node with the fewest pods that will do; otherwise why none does, in the scheduler's words.
fn choose<'a>(
    pod: &Pod,
    requests: &Amounts,
    nodes: impl Iterator<Item = &'a Node>,
    used: &HashMap<String, Amounts>,
) -> Result<String, String> {
    let nothing = Amounts::new();
    let mut best: Option<(Quantity, &str)> = None;
    let (mut all, mut reasons) = (0_usize, BTreeMap::<String, usize>::new());
    for node in nodes {
        all += 1;
        let used = used.get(&node.metadata.name).unwrap_or(&nothing);
        match obstacle(pod, requests, node, used) {
            None => {
                let candidate = (used.get("pods").copied().unwrap_or_default(), node.metadata.name.as_str());
                if best.is_none_or(|best| candidate < best) {
                    best = Some(candidate);
                }
            }
            Some(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    best.map(|(_, name)| name.to_owned()).ok_or_else(|| {
        let reasons: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        format!("0/{all} nodes are available: {}.", reasons.join(", "))
    })
}

/// Why a pod cannot go to a node.
fn obstacle(pod: &Pod, requests: &Amounts, node: &Node, used: &Amounts) -> Option<String> {
    if node.spec.unschedulable {
        return Some("node(s) were unschedulable".to_owned());
    }
    let labels = &node.metadata.labels;
    if pod.spec.node_selector.iter().any(|(name, value)| labels.get(name) != Some(value)) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    let short = requests.iter().find(|(name, amount)| {
        let has = node.status.allocatable.get(*name).copied().unwrap_or_default();
        let taken = used.get(*name).copied().unwrap_or_default();
        !amount.is_zero() && taken + **amount > has
    });
    short.map(
        |(name, _)| if name == "pods" { "Too many pods".to_owned() } else { format!("Insufficient {name}") },
    )
}

/// Binds pending pods.
pub(crate) struct Scheduler {
    pub(crate) api: Api,
    pub(crate) clock: Clock,
    pub(crate) pods: Cache<Pod>,
    pub(crate) nodes: Cache<Node>,
    pub(crate) ledger: Arc<Ledger>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Observed {
    pod: Arc<Entry<Pod>>,
    choice: Result<String, String>,
    now: Timestamp,
}

/// Binds a pod to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bind {
    pod: ObjectKey,
    uid: Uid,
    node: String,
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bind Pod {} to Node {}", self.pod, self.node)
    }
}

impl Controller for Scheduler {
    type Observed = Observed;
    type Call = Bind;
    const NAME: &'static str = "simulated-scheduler";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| waits(pod)) else { return Ok(None) };
        let choice = self.ledger.choose(&pod, &self.nodes.all());
        Ok(Some(Observed { pod, choice, now: self.clock.now() }))
    }

    fn plan(observed: &Observed) -> Plan<Bind> {
        match &observed.choice {
            Ok(node) => {
                let pod = &observed.pod;
                let bind = Bind { pod: pod.key.clone(), uid: pod.uid.clone(), node: node.clone() };
                Plan { steps: vec![Action::Call(bind).into()], ..Plan::default() }
            }
            Err(reason) => {
                let current = &observed.pod.object.status;
                let mut status = current.clone();
                let now = Timestamp::from_second(observed.now.as_second()).unwrap_or(observed.now);
                status.set("PodScheduled", false, Some(("Unschedulable", Some(reason.clone()))), now);
                let status = StatusPatch::between(&observed.pod, current, &status);
                Plan { status, next: Next::After(AGAIN), ..Plan::default() }
            }
        }
    }

    async fn call(&self, Bind { pod, uid, node }: &Bind) -> Result<(), Error> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": { "name": pod.name(), "namespace": pod.namespace(), "uid": uid },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        self.api.create(&ApiKind::of::<Binding>(), pod, &binding).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn node(name: &str, cpu: &str, labels: &Value) -> Node {
        let node = json!({
            "metadata": { "name": name, "labels": labels },
            "status": { "allocatable": { "cpu": cpu, "pods": "2" } },
        });
        Node::read(&node.to_string()).unwrap()
    }

    fn pod(cpu: &str, selector: &Value) -> Pod {
        let pod = json!({
            "metadata": {},
            "spec": {
                "nodeSelector": selector,
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }],
            },
        });
        Pod::read(&pod.to_string()).unwrap()
    }

    #[test]
    fn a_pod_goes_where_it_fits_and_fewest_are() {
        let nodes = [node("a", "4", &json!({ "zone": "x" })), node("b", "2", &json!({ "zone": "y" }))];
        let one = Amounts::from([("pods".to_owned(), "1".parse().unwrap())]);
        let two = Amounts::from([("pods".to_owned(), "2".parse().unwrap())]);
        let busy = HashMap::from([("a".to_owned(), one)]);
        let full = HashMap::from([("a".to_owned(), two.clone()), ("b".to_owned(), two)]);
        for (name, pod, used, expected) in [
            ("the emptier one", pod("1", &json!({})), &busy, Ok("b")),
            ("the one with room", pod("3", &json!({})), &busy, Ok("a")),
            ("the selected one", pod("1", &json!({ "zone": "x" })), &busy, Ok("a")),
            ("too large", pod("5", &json!({})), &busy, Err("0/2 nodes are available: 2 Insufficient cpu.")),
            ("full", pod("0", &json!({})), &full, Err("0/2 nodes are available: 2 Too many pods.")),
            (
                "nowhere",
                pod("3", &json!({ "zone": "y" })),
                &busy,
                Err(
                    "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector.",
                ),
            ),
        ] {
            let chosen = choose(&pod, &pod.requests(), nodes.iter(), used);
            assert_eq!(chosen.as_deref().map_err(String::as_str), expected, "{name}");
        }
    }
}
