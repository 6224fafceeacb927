//! Borrowing: which ClusterQueues use more than their own quota, and whose unused quota it can be.
//!
//! ```
//! use quintet_queue_engine::testing;
//! use quintet_queue_engine::time::Time;
//! use serde_json::json;
//!
//! let queue = |name: &str| json!({"kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
//!     "namespaceSelector": {}, "cohortName": "company", "queueingStrategy": "BestEffortFIFO",
//!     "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
//!         {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}});
//! let mut engine = testing::engine(&[
//!     json!({"kind": "ResourceFlavor", "metadata": {"name": "default"}}),
//!     queue("research"), queue("sales"),
//!     json!({"kind": "LocalQueue", "metadata": {"name": "main", "namespace": "team"},
//!         "spec": {"clusterQueue": "research"}}),
//!     testing::workload("team", "large", "main", 6),
//! ]);
//! engine.schedule(Time::from_secs(1));
//!
//! let quotas = engine.quotas();
//! let [research, sales] = quotas.as_slice() else { panic!("{quotas:?}") };
//! assert_eq!((research.name.as_str(), research.used.as_str()), ("research", "6"));
//! assert_eq!((research.borrowed.as_str(), research.lendable.as_str()), ("2", "0"));
//! assert_eq!((sales.borrowed.as_str(), sales.lendable.as_str()), ("0", "4"));
//! assert_eq!(engine.lenders(research), ["sales"]);
//! ```

use std::collections::BTreeSet;

use serde::Serialize;

use crate::amount::Amount;
use crate::engine::Engine;
use crate::model::Fr;
use crate::quota::{NodeId, NodeKind};

/// Quota of one flavor of one resource, of a ClusterQueue or a Cohort. Amounts are quantities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaReport {
    /// The root of its cohorts; empty for a queue without one.
    pub cohort: String,
    /// Its name.
    pub name: String,
    /// Whether it is a Cohort.
    pub is_cohort: bool,
    /// The flavor.
    pub flavor: String,
    /// The resource.
    pub resource: String,
    /// Its own quota.
    pub nominal: String,
    /// What its workloads use; those of a Cohort have queues of their own.
    pub used: String,
    /// What it uses beyond its own quota.
    pub borrowed: String,
    /// What of its own quota others may use now.
    pub lendable: String,
    #[serde(skip)]
    fr: Fr,
    #[serde(skip)]
    is_borrowing: bool,
    #[serde(skip)]
    can_lend: bool,
}

impl QuotaReport {
    /// Whether it uses more than its own quota.
    pub fn is_borrowing(&self) -> bool {
        self.is_borrowing
    }
}

impl Engine {
    /// All quotas by cohort: those of ClusterQueues by name, then those of Cohorts.
    pub fn quotas(&self) -> Vec<QuotaReport> {
        let state = &self.state;
        let mut reports = Vec::new();
        let mut cohorts: BTreeSet<NodeId> = BTreeSet::new();
        for (_, queue) in state.queues() {
            cohorts.extend(state.tree.ancestors(queue.node));
            for group in &queue.spec.groups {
                let flavors = group.flavors.iter().map(|flavor| flavor.flavor);
                for flavor in flavors {
                    let frs = group.resources.iter().map(|resource| Fr { flavor, resource: *resource });
                    reports.extend(frs.map(|fr| self.quota_report(queue.node, fr)));
                }
            }
        }
        for cohort in cohorts {
            let quoted: Vec<Fr> = state.tree.quoted(cohort).map(|(fr, ..)| fr).collect();
            let own = quoted.into_iter().filter(|fr| state.tree.quota(cohort, *fr).nominal > Amount::ZERO);
            reports.extend(own.map(|fr| self.quota_report(cohort, fr)));
        }
        reports.sort_by(|a, b| (&a.cohort, a.is_cohort, &a.name).cmp(&(&b.cohort, b.is_cohort, &b.name)));
        reports
    }

    /// The ClusterQueues and Cohorts whose unused quota a queue can use.
    pub fn lenders(&self, borrower: &QuotaReport) -> Vec<String> {
        let lends = |other: &QuotaReport| {
            other.can_lend
                && other.fr == borrower.fr
                && other.cohort == borrower.cohort
                && (other.name != borrower.name || other.is_cohort != borrower.is_cohort)
        };
        let lenders = self.quotas().into_iter().filter(|other| !borrower.cohort.is_empty() && lends(other));
        lenders.map(|lender| lender.name).collect()
    }

    fn quota_report(&self, node: NodeId, fr: Fr) -> QuotaReport {
        let (tree, names) = (&self.state.tree, &self.state.names);
        let name = |node| match tree.kind(node) {
            NodeKind::Queue(queue) => (names.queue_name(queue).to_owned(), false),
            NodeKind::Cohort(cohort) => (names.cohort_name(cohort).to_owned(), true),
        };
        let quota = tree.quota(node, fr);
        let has_cohort = tree.parent(node).is_some();
        let (own, is_cohort) = name(node);
        let used = if is_cohort { Amount::ZERO } else { tree.usage(node, fr) };
        let borrowed = if has_cohort { (used - quota.nominal).floor_zero() } else { Amount::ZERO };
        let unused = (quota.nominal - used).floor_zero();
        let limit = quota.lending_limit.unwrap_or(Amount::UNLIMITED);
        let lendable = if has_cohort || is_cohort { unused.min(limit) } else { Amount::ZERO };
        let text = |amount: Amount| {
            if amount.is_unlimited() { amount.to_string() } else { names.format(fr.resource, amount.get()) }
        };
        let root = tree.root(node);
        QuotaReport {
            cohort: if has_cohort || is_cohort { name(root).0 } else { String::new() },
            name: own,
            is_cohort,
            flavor: names.flavor_name(fr.flavor).to_owned(),
            resource: names.resource_name(fr.resource).to_owned(),
            nominal: text(quota.nominal),
            used: text(used),
            borrowed: text(borrowed),
            lendable: text(lendable),
            fr,
            is_borrowing: borrowed > Amount::ZERO,
            can_lend: lendable > Amount::ZERO,
        }
    }
}
