//! A small scheduler for clusters that have none: pending pods go to the simulated node with the fewest pods that
//! has room for them and the labels they select.

mod ledger;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Binding;
use quintet_api::Quantity;
use quintet_controller::api::Api;
use quintet_controller::cache::{Cache, Entry};
use quintet_controller::clock::Clock;
use quintet_controller::object::Uid;
use quintet_controller::{Action, ApiKind, Class, Controller, Error, Next, ObjectKey, Plan, StatusPatch};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(crate) use ledger::Ledger;

use crate::pod::Pod;

/// An unschedulable pod is requeued after this time, if no change requeues it before.
const RETRY: Duration = Duration::from_secs(10);

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

/// Whether a pod waits for this scheduler.
fn is_pending(pod: &Entry<Pod>) -> bool {
    let Pod { spec, status, .. } = &pod.object;
    spec.node_name.is_none()
        && spec.scheduling_gates.is_empty()
        && spec.scheduler_name.as_deref().is_none_or(|name| name == "default-scheduler")
        && !status.is_terminal()
        && !pod.deleting
}

/// The feasible node with the fewest pods; otherwise why there is none, in kube-scheduler's words.
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

/// Why a pod does not fit on a node.
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
        let Some(pod) = self.pods.get(key).filter(|pod| is_pending(pod)) else { return Ok(None) };
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
                Plan { status, next: Next::After(RETRY), ..Plan::default() }
            }
        }
    }

    async fn call(&self, bind: &Bind) -> Result<(), Error> {
        let Bind { pod: key, uid, node } = bind;
        // A pod that is gone or bound by now needs no binding.
        let Some(pod) = self.pods.get(key).filter(|pod| pod.uid == *uid && is_pending(pod)) else {
            return Ok(());
        };
        let no_room = |cause: &str| Error::new(Class::Conflict, format!("cannot {bind}"), cause);
        let Some(target) = self.nodes.get(&ObjectKey::cluster(node)) else {
            return Err(no_room("the node is gone"));
        };
        let assumption = self.ledger.assume(&pod, &target.object).map_err(|reason| no_room(&reason))?;
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": { "name": key.name(), "namespace": key.namespace(), "uid": uid },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        self.api.create(&ApiKind::of::<Binding>(), key, &binding).await?;
        assumption.confirm();
        Ok(())
    }
}
