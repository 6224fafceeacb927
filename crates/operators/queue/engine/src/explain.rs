//! Explanations: why a workload is not admitted yet, and what would have to end.
//!
//! ```
//! use quintet_queue_engine::time::Time;
//! use quintet_queue_engine::{Engine, testing};
//! use serde_json::json;
//!
//! let mut engine = testing::engine(&[
//!     json!({"kind": "ResourceFlavor", "metadata": {"name": "a100"}}),
//!     json!({"kind": "ClusterQueue", "metadata": {"name": "research"}, "spec": {
//!         "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO",
//!         "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
//!             {"name": "a100", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}}),
//!     json!({"kind": "LocalQueue", "metadata": {"name": "main", "namespace": "team"},
//!         "spec": {"clusterQueue": "research"}}),
//!     testing::workload("team", "first", "main", 3),
//!     testing::workload("team", "second", "main", 2),
//! ]);
//! engine.schedule(Time::from_secs(1));
//! engine.schedule(Time::from_secs(1));
//!
//! let second = testing::id(&engine, "team", "second");
//! let why = engine.explain(second, Time::from_secs(2)).unwrap();
//! let shortage = &why.shortages[0];
//! assert_eq!((shortage.missing, shortage.holders.len()), (Some(1000.into()), 1));
//! assert_eq!(
//!     why.text(&engine),
//!     "team/second waits in research: couldn't assign flavors to pod set main: insufficient unused quota for cpu in \
//!      flavor a100, 1 more needed\n\
//!      - main: 1 cpu of a100 more needed (2 requested, 1 available, at most 4)\n  \
//!        held by: team/first 3 (research)\n  \
//!        enough when done: team/first\n"
//! );
//! ```

use std::fmt::Write;
use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;

use crate::amount::Amount;
use crate::cycle::evaluate;
use crate::engine::Engine;
use crate::flavors::{Mode, Reason, Subject};
use crate::model::{Fr, usage_of};
use crate::names::{QueueId, WorkloadId};
use crate::preemption::Target;
use crate::state::State;
use crate::time::Time;

/// How many holders of a missing resource are named.
const MOST_HOLDERS: usize = 10;

/// Where a workload is in its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueuePosition {
    /// It holds its quota.
    Reserved,
    /// It is active, behind so many others.
    Waiting {
        /// Workloads before it.
        ahead: usize,
    },
    /// It is inadmissible until something changes.
    Inadmissible,
    /// It is not in any queue.
    NotQueued,
}

/// A workload that holds what is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The workload.
    pub workload: WorkloadId,
    /// The queue whose quota it uses.
    pub queue: QueueId,
    /// How much it holds.
    pub amount: Amount,
}

/// What a flavor lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct Shortage {
    /// The pod set that requests it.
    pub pod_set: Arc<str>,
    /// The flavor and resource; `None` if the pods do not suit the flavor at all.
    pub fr: Option<Fr>,
    /// How much is requested.
    pub requested: Amount,
    /// How much there is now.
    pub available: Amount,
    /// The most there can ever be.
    pub maximum: Amount,
    /// How much more is needed.
    pub missing: Option<Amount>,
    /// The reason as clients see it.
    pub text: String,
    /// The holders, largest first.
    pub holders: Vec<Holder>,
    /// Holders whose end would free enough, as few as possible.
    pub enough: Vec<WorkloadId>,
}

/// Why a workload is where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The workload.
    pub workload: WorkloadId,
    /// The ClusterQueue it waits in, if its LocalQueue exists.
    pub queue: Option<QueueId>,
    /// Where it is.
    pub position: QueuePosition,
    /// What keeps it out of any evaluation: stopped queues, gates, backoff.
    pub held_back: Vec<String>,
    /// How well it would fit now.
    pub mode: Option<Mode>,
    /// The message clients would see.
    pub message: String,
    /// What is missing.
    pub shortages: Vec<Shortage>,
    /// What it would preempt now.
    pub would_preempt: Vec<Target>,
}

impl Engine {
    /// Explains a workload as of now. Nothing changes; `None` if there is no such workload.
    pub fn explain(&mut self, id: WorkloadId, now: Time) -> Option<Explanation> {
        let workload = Arc::clone(self.state.workload(id)?);
        let local_queue = self.state.local_queue(workload.local_queue).cloned();
        let queue = local_queue.as_ref().map(|local_queue| local_queue.queue);
        let mut explanation = Explanation {
            workload: id,
            queue,
            position: self.position(id, queue),
            held_back: Vec::new(),
            mode: None,
            message: String::new(),
            shortages: Vec::new(),
            would_preempt: Vec::new(),
        };
        if explanation.position == QueuePosition::Reserved {
            return Some(explanation);
        }
        let mut hold = |applies: bool, text: &str| {
            if applies {
                explanation.held_back.push(text.to_owned());
            }
        };
        let links = workload.links.as_deref();
        hold(!workload.active, "the workload is not active");
        hold(workload.is_finished(), "the workload is finished");
        hold(workload.is_on_hold(), "the workload is on hold");
        hold(links.is_some_and(|links| links.admission_gated), "its admission is gated");
        hold(!workload.backoff_expired(now), "it waits after an eviction");
        hold(workload.has_failed_checks(), "an admission check failed");
        hold(local_queue.is_none(), "its LocalQueue does not exist");
        hold(local_queue.is_some_and(|local_queue| local_queue.stopped), "its LocalQueue is stopped");
        let row = queue.and_then(|queue| self.state.queue(queue)).map(Arc::clone);
        hold(queue.is_some() && row.is_none(), "its ClusterQueue does not exist");
        if let Some((queue, _)) = queue.zip(row.as_ref()).filter(|(_, row)| !row.inactive.is_empty()) {
            let (_, _, message) = self.state.active_condition(queue);
            hold(true, &format!("its ClusterQueue is inactive: {message}"));
        }
        if let Some(row) = &row {
            let labels = self.state.namespace(workload.key.namespace);
            let served = row
                .spec
                .namespaces
                .as_ref()
                .zip(labels)
                .is_some_and(|(selector, labels)| selector.matches(labels));
            hold(!served, "its namespace is not served by the ClusterQueue");
        }
        if let Some(queue) = queue.filter(|_| row.is_some_and(|row| row.inactive.is_empty())) {
            let mut subject = Subject::new(Arc::clone(&workload), queue, self.cycle_number());
            let (assignment, targets) = evaluate(&mut self.state, &mut subject);
            explanation.mode = Some(assignment.mode());
            explanation.message = assignment.message(&self.state.names);
            explanation.would_preempt = targets;
            for assigned in &assignment.pod_sets {
                let reasons =
                    assigned.attempts.iter().flat_map(|attempt| &attempt.reasons).chain(&assigned.reasons);
                for reason in reasons {
                    let shortage = shortage(&self.state, queue, &assigned.name, reason, &assigned.requests);
                    if !explanation.shortages.iter().any(|known| known.text == shortage.text) {
                        explanation.shortages.push(shortage);
                    }
                }
            }
        }
        Some(explanation)
    }

    fn position(&self, id: WorkloadId, queue: Option<QueueId>) -> QueuePosition {
        if self.state.held(id).is_some() {
            return QueuePosition::Reserved;
        }
        let Some(pending) = queue.and_then(|queue| self.pending(queue)) else {
            return QueuePosition::NotQueued;
        };
        if pending.is_inadmissible(id) {
            return QueuePosition::Inadmissible;
        }
        let ahead =
            queue.and_then(|queue| self.pending_in_order(queue).into_iter().position(|own| own == id));
        ahead.map_or(QueuePosition::NotQueued, |ahead| QueuePosition::Waiting { ahead })
    }
}

fn shortage(
    state: &State,
    queue: QueueId,
    pod_set: &Arc<str>,
    reason: &Reason,
    requests: &crate::requests::Requests,
) -> Shortage {
    let (fr, missing) = match reason {
        Reason::Insufficient { fr, missing } => (Some(*fr), Some(*missing)),
        Reason::ExceedsMaximum { fr, considered, request, maximum } => {
            (Some(*fr), Some(*considered + Amount::new(*request) - *maximum))
        }
        _ => (None, None),
    };
    let node = state.queue(queue).map(|queue| queue.node);
    let (mut available, mut maximum, mut holders, mut enough) =
        (Amount::ZERO, Amount::ZERO, Vec::new(), Vec::new());
    if let (Some(fr), Some(node)) = (fr, node) {
        available = state.available(node, fr);
        maximum = state.tree.potential(node, fr);
        holders = holders_of(state, node, fr);
        if matches!(reason, Reason::Insufficient { .. }) {
            enough = enough_of(&holders, missing.unwrap_or_default());
        }
        holders.truncate(MOST_HOLDERS);
    }
    Shortage {
        pod_set: Arc::clone(pod_set),
        fr,
        requested: fr.map_or(Amount::ZERO, |fr| Amount::new(requests.get(fr.resource))),
        available,
        maximum,
        missing,
        text: reason.text(&state.names),
        holders,
        enough,
    }
}

/// All workloads of the tree that hold some of it, largest first.
fn holders_of(state: &State, node: crate::quota::NodeId, fr: Fr) -> Vec<Holder> {
    let root = state.tree.root(node);
    let mut queues = state.tree.all_queues_below(root);
    queues.extend(state.tree.queue_at(root));
    let mut holders: Vec<Holder> = queues
        .into_iter()
        .flat_map(|queue| state.reserved(queue).map(move |workload| (queue, workload)))
        .filter_map(|(queue, workload)| {
            let amount = usage_of(&state.held(workload)?.usage, fr);
            (amount > 0).then_some(Holder { workload, queue, amount })
        })
        .collect();
    holders.sort_by_key(|holder| (std::cmp::Reverse(holder.amount), holder.workload));
    holders
}

/// As few holders as possible that together hold `missing`, and the smallest last one that suffices.
fn enough_of(holders: &[Holder], missing: Amount) -> Vec<WorkloadId> {
    let mut left = missing;
    let mut enough = Vec::new();
    for (at, holder) in holders.iter().enumerate() {
        if holder.amount >= left {
            let rest = holders.get(at..).unwrap_or_default();
            let smallest = rest.iter().take_while(|other| other.amount >= left).last().unwrap_or(holder);
            enough.push(smallest.workload);
            return enough;
        }
        left -= holder.amount;
        enough.push(holder.workload);
    }
    Vec::new()
}

impl Explanation {
    /// The explanation for people.
    pub fn text(&self, engine: &Engine) -> String {
        let state = &engine.state;
        let names = &state.names;
        let key = |id: WorkloadId| {
            state.workload(id).map_or_else(String::new, |workload| state.key_text(&workload.key))
        };
        let queue = self.queue.map_or("no queue", |queue| names.queue_name(queue));
        let mut text = format!("{} ", key(self.workload));
        let _ = match &self.position {
            QueuePosition::Reserved => write!(text, "holds quota of {queue}"),
            QueuePosition::Waiting { ahead: 0 } => write!(text, "is next in {queue}"),
            QueuePosition::Waiting { ahead } => write!(text, "waits in {queue} behind {ahead}"),
            QueuePosition::Inadmissible => write!(text, "waits in {queue}"),
            QueuePosition::NotQueued => write!(text, "is not queued"),
        };
        if !self.message.is_empty() {
            let _ = write!(text, ": {}", self.message);
        }
        text.push('\n');
        for reason in &self.held_back {
            let _ = writeln!(text, "- {reason}");
        }
        for shortage in &self.shortages {
            let (Some(fr), Some(missing)) = (shortage.fr, shortage.missing) else {
                let _ = writeln!(text, "- {}: {}", shortage.pod_set, shortage.text);
                continue;
            };
            let amount = |amount: Amount| {
                if amount.is_unlimited() {
                    amount.to_string()
                } else {
                    names.format(fr.resource, amount.get())
                }
            };
            let _ = writeln!(
                text,
                "- {}: {} {} of {} more needed ({} requested, {} available, at most {})",
                shortage.pod_set,
                amount(missing),
                names.resource_name(fr.resource),
                names.flavor_name(fr.flavor),
                amount(shortage.requested),
                amount(shortage.available),
                amount(shortage.maximum),
            );
            let held: Vec<String> = shortage
                .holders
                .iter()
                .map(|holder| {
                    format!(
                        "{} {} ({})",
                        key(holder.workload),
                        amount(holder.amount),
                        names.queue_name(holder.queue)
                    )
                })
                .collect();
            if !held.is_empty() {
                let _ = writeln!(text, "  held by: {}", held.join(", "));
            }
            let enough: Vec<String> = shortage.enough.iter().map(|id| key(*id)).collect();
            if !enough.is_empty() {
                let _ = writeln!(text, "  enough when done: {}", enough.join(", "));
            }
        }
        let preempted: Vec<String> = self.would_preempt.iter().map(|target| key(target.workload)).collect();
        if !preempted.is_empty() {
            let _ = writeln!(text, "- would preempt: {}", preempted.join(", "));
        }
        text
    }
}
