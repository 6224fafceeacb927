//! Counting how many pods every leaf can take, and what keeps pods off leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::placement::{PlacementRequest, Placer, Within};
use super::stats::Exclusions;
use super::tree::DomainState;
use super::usage::Assumed;
use crate::labels::{Toleration, untolerated};
use crate::model::PodShape;
use crate::names::ResourceId;
use crate::requests::Requests;

/// What a leaf can take, and what it lacks if that is nothing.
pub(super) type Counted = (DomainState, Option<ResourceId>);

/// How leaves are counted for one request.
pub(super) struct Counting<'r> {
    workers: &'r PlacementRequest<'r>,
    requests: Requests,
    leader_requests: Option<Requests>,
    assumed: &'r Assumed,
    within: Within,
    tolerations: Vec<&'r [Toleration]>,
    selector: BTreeMap<Arc<str>, Arc<str>>,
    /// Whether any node can be excluded by anything but capacity.
    filters: bool,
}

impl<'r> Counting<'r> {
    pub(super) fn new(
        placer: &Placer<'r>,
        workers: &'r PlacementRequest<'_>,
        leader: Option<&PlacementRequest<'_>>,
        assumed: &'r Assumed,
        within: Within,
    ) -> Self {
        let with_pod = |request: &PlacementRequest<'_>| {
            let mut requests = request.per_pod.clone();
            let pods = requests.get(ResourceId::PODS).saturating_add(1);
            requests.set(ResourceId::PODS, pods);
            requests
        };
        let pod = &workers.pod_set.pod;
        let mut selector = pod.node_selector.clone();
        let mut tolerations: Vec<&[Toleration]> = vec![&pod.tolerations];
        for update in &workers.updates {
            selector
                .extend(update.node_selector.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))));
            tolerations.push(&update.tolerations);
        }
        tolerations.push(&placer.flavor.tolerations);
        let has_affinity = pod.affinity.is_some() || !pod.preferred.is_empty();
        let filters =
            placer.tree.is_by_host() && (placer.tree.has_taints || !selector.is_empty() || has_affinity);
        Self {
            requests: with_pod(workers),
            leader_requests: leader.map(with_pod),
            workers,
            assumed,
            within,
            tolerations,
            selector,
            filters,
        }
    }

    /// Pods of the same workload that are placed already.
    pub(super) const fn assumed(&self) -> &'r Assumed {
        self.assumed
    }

    /// Whether counts depend on nothing but usage and what [`Counting::requests`] and
    /// [`Counting::filtered_by`] say.
    pub(super) fn is_plain(&self) -> bool {
        self.within.is_none() && (!self.filters || self.workers.updates.is_empty())
    }

    /// What one worker requests, and what a leader requests.
    pub(super) const fn requests(&self) -> (&Requests, Option<&Requests>) {
        (&self.requests, self.leader_requests.as_ref())
    }

    /// The pods whose selector, affinity and tolerations decide about nodes, if they do.
    pub(super) fn filtered_by(&self) -> Option<&Arc<PodShape>> {
        self.filters.then_some(&self.workers.pod_set.pod)
    }

    /// Whether pods may use the leaf's node, with its affinity score; leaves that are not hosts are
    /// never filtered.
    fn check(&self, placer: &Placer<'_>, position: usize) -> Result<i64, Exclusion> {
        let leaf = placer.tree.leaves.get(position).ok_or(Exclusion::Domain)?;
        let mut score = 0;
        if self.filters
            && let Some(node) = leaf.node.as_ref().and_then(|name| placer.tas.node(name))
        {
            if let Some(taint) = untolerated(&node.taints, &self.tolerations) {
                return Err(Exclusion::Taint(taint.label()));
            }
            if !self.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value)) {
                return Err(Exclusion::Selector);
            }
            let pod = &self.workers.pod_set.pod;
            if let Some(terms) = &pod.affinity
                && !terms.iter().any(|term| term.matches(&node.labels, &node.name))
            {
                return Err(Exclusion::Affinity);
            }
            if placer.gates.tas_preferred_affinity {
                let matching =
                    pod.preferred.iter().filter(|preferred| preferred.term.matches(&node.labels, &node.name));
                score = matching.map(|preferred| preferred.weight).sum();
            }
        }
        if let Some(domain) = self.within {
            let level = placer.tree.domain(domain).values.len().saturating_sub(1);
            if placer.tree.ancestor_at(leaf.domain, level) != domain {
                return Err(Exclusion::Domain);
            }
        }
        Ok(score)
    }

    /// What is left of a resource on a leaf.
    fn remaining<'a>(
        placer: &'a Placer<'_>,
        position: usize,
        assumed: &'a Assumed,
    ) -> impl Fn(ResourceId) -> i64 + use<'a> {
        let free = placer.tree.leaves.get(position).map(|leaf| &leaf.free);
        let used =
            if placer.options.simulate_empty { None } else { placer.tas.leaf_usage(placer.flavor, position) };
        let slot = placer.flavor.slots.get(position).copied().unwrap_or_default();
        let assumed = assumed.get(placer.flavor.ledger, slot);
        move |resource: ResourceId| {
            let mut left = free.map_or(0, |free| free.get(resource));
            for taken in [used, assumed].into_iter().flatten() {
                left = left.saturating_sub(taken.get(resource));
            }
            left
        }
    }

    /// What a leaf can take beside `assumed`, and what it lacks if that is nothing; nothing of both if its node
    /// is not for these pods.
    pub(super) fn count(&self, placer: &Placer<'_>, position: usize, assumed: &Assumed) -> Counted {
        let Ok(affinity) = self.check(placer, position) else {
            return (DomainState::default(), None);
        };
        let remaining = Self::remaining(placer, position, assumed);
        let pods = self.requests.count_in(&remaining);
        let leader = self.leader_requests.as_ref().filter(|leader| leader.count_in(&remaining) > 0);
        let beside = |leader: &Requests| {
            self.requests.count_in(|resource| remaining(resource).saturating_sub(leader.get(resource)))
        };
        let lacking =
            if pods == 0 { self.requests.count_in_limited(&remaining, placer.names).1 } else { None };
        let state = DomainState {
            pods,
            leaders: i32::from(leader.is_some()),
            pods_with_leader: leader.map_or(pods, beside),
            affinity,
            ..DomainState::default()
        };
        (state, lacking)
    }

    /// What excluded nodes, after they were counted; only worth it for a message.
    pub(super) fn exclusions(&self, placer: &Placer<'_>) -> Exclusions {
        let named = |(id, count)| (placer.names.resource_name(id).to_owned(), count);
        let mut counts = Exclusions {
            total: placer.tree.leaves.len(),
            resources: placer.shortages.iter().map(named).collect(),
            ..Exclusions::default()
        };
        if !self.filters && self.within.is_none() {
            return counts;
        }
        for position in 0..placer.tree.leaves.len() {
            match self.check(placer, position) {
                Err(Exclusion::Taint(taint)) => *counts.taints.entry(taint).or_default() += 1,
                Err(Exclusion::Selector) => counts.node_selector += 1,
                Err(Exclusion::Affinity) => counts.affinity += 1,
                Err(Exclusion::Domain) => counts.domain += 1,
                Ok(_) => {}
            }
        }
        counts
    }
}

/// What keeps pods off a leaf.
enum Exclusion {
    Taint(String),
    Selector,
    Affinity,
    Domain,
}
