//! Replacing the pods of a failed node while the others stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::placement::{Placement, PlacementRequest, Placer, Within};
use super::tree::DomainIdx;
use super::usage::Assumed;
use super::{DomainAssignment, Tas, TopologyAssignment};
use crate::model::{PodSet, SliceLayer};

impl Placer<'_> {
    /// Replaces the first failed node in every placed pod set of the group; true if one could not be.
    pub(super) fn replace_group(
        &mut self,
        group: &[&PlacementRequest<'_>],
        assumed: &mut Assumed,
        placed: &mut Vec<Placement>,
    ) -> bool {
        let Some(workload) = self.options.workload else {
            return false;
        };
        let keeps = self.gates.skip_reassignment_for_pod_owned
            && workload.links.as_ref().is_some_and(|links| links.owned_by_pod);
        for request in group {
            let existing = workload.admission.as_ref().and_then(|admission| {
                let held = admission.pod_sets.iter().find(|held| held.name == request.pod_set.name)?;
                held.topology.clone()
            });
            let Some(existing) = existing else {
                continue;
            };
            if keeps {
                placed.push(Placement { index: request.index, result: Ok(existing) });
                continue;
            }
            let node = workload.unhealthy_nodes.first().cloned().unwrap_or_else(|| "".into());
            match self.replace(request, existing, &node, assumed) {
                Err(reason) => {
                    placed.push(Placement { index: request.index, result: Err(reason) });
                    return true;
                }
                Ok((merged, replacement)) => {
                    Tas::assume(self.flavor, assumed, &replacement, &request.per_pod);
                    placed.push(Placement { index: request.index, result: Ok(merged) });
                }
            }
        }
        false
    }

    fn replace(
        &mut self,
        request: &PlacementRequest<'_>,
        mut existing: TopologyAssignment,
        node: &Arc<str>,
        assumed: &Assumed,
    ) -> Result<(TopologyAssignment, TopologyAssignment), String> {
        let mut lost = 0;
        existing.domains.retain(|domain| {
            let failed = domain.values.last() == Some(node);
            if failed {
                lost = domain.count;
            }
            !failed
        });
        if let Some(stale) = self.stale_domain(&existing) {
            return Err(format!(
                "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain {stale}"
            ));
        }
        let request = PlacementRequest { count: lost, ..request.clone() };
        let within = self.replacement_domain(&request, &existing);
        let layers = request.pod_set.topology.as_ref().map_or(&[][..], |topology| &topology.slices);
        let size = match layers.first() {
            Some(layer) if layer.size <= 0 => {
                return Err("slice topology requested, but slice size not provided".to_owned());
            }
            Some(layer) => layer.size,
            None => 1,
        };
        let relaxed: PodSet;
        let mut request = request;
        if !layers.is_empty() && within.is_some() && lost % size != 0 {
            relaxed = with_fitting_layer(request.pod_set, layers, lost);
            request.pod_set = &relaxed;
        }
        let (replacement, _) = self.find(&request, None, assumed, within)?;
        if replacement.domains.is_empty() {
            return Err(format!("cannot find replacement assignment for unhealthy node: {node}"));
        }
        Ok((self.merged(&replacement, &existing), replacement))
    }

    /// The domain the replacement must stay in: the required one, or that of the broken slice.
    fn replacement_domain(&self, request: &PlacementRequest<'_>, existing: &TopologyAssignment) -> Within {
        let level = self.tree.level(self.level_key(request)?)?;
        let first = existing.domains.first()?;
        let topology = request.pod_set.topology.as_deref();
        let layers = topology.map_or(&[][..], |topology| &topology.slices);
        if let Some(outer) = layers.first()
            && outer.size > 0
            && request.count % outer.size != 0
        {
            let broken = layers.iter().rev().find(|layer| layer.size > 0 && request.count % layer.size != 0);
            let layer = broken.filter(|_| layers.len() > 1).unwrap_or(outer);
            return self.broken_slice(existing, request.count, layer);
        }
        topology.filter(|topology| topology.required.is_some())?;
        let leaf = self.tree.leaf_domain(&first.domain_id())?;
        Some(self.tree.ancestor_at(leaf, level))
    }

    /// The domain whose slices are incomplete without the missing pods.
    fn broken_slice(&self, existing: &TopologyAssignment, missing: i32, layer: &SliceLayer) -> Within {
        let level = self.tree.level(&layer.level)?;
        let mut pods: BTreeMap<DomainIdx, i32> = BTreeMap::new();
        for domain in &existing.domains {
            if let Some(leaf) = self.tree.leaf_domain(&domain.domain_id()) {
                *pods.entry(self.tree.ancestor_at(leaf, level)).or_default() += domain.count;
            }
        }
        pods.into_iter().find(|(_, count)| (count + missing) % layer.size == 0).map(|(domain, _)| domain)
    }

    /// The first domain of an assignment that no longer exists, as messages name it.
    pub(super) fn stale_domain(&self, assignment: &TopologyAssignment) -> Option<Arc<str>> {
        let stale = assignment.domains.iter().find(|domain| self.tree.leaf(&domain.domain_id()).is_none());
        stale.and_then(|domain| domain.values.first().cloned())
    }

    /// Both assignments together, in order of domains.
    pub(super) fn merged(&self, a: &TopologyAssignment, b: &TopologyAssignment) -> TopologyAssignment {
        let order = |domain: &DomainAssignment| {
            let leaf = self.tree.leaf_domain(&domain.domain_id());
            leaf.map(|leaf| super::join(&self.tree.domain(leaf).values)).unwrap_or_default()
        };
        let mut domains: Vec<_> = a.domains.iter().chain(&b.domains).cloned().collect();
        domains.sort_by_cached_key(order);
        let mut merged: Vec<DomainAssignment> = Vec::new();
        for domain in domains {
            match merged.last_mut().filter(|last| last.values == domain.values) {
                Some(last) => last.count += domain.count,
                None => merged.push(domain),
            }
        }
        TopologyAssignment { levels: a.levels.clone(), domains: merged }
    }
}

/// The pod set with only the innermost layer whose slices the lost pods fill, or with none.
fn with_fitting_layer(pod_set: &PodSet, layers: &[SliceLayer], lost: i32) -> PodSet {
    let fitting = layers.iter().rev().find(|layer| layer.size > 0 && lost % layer.size == 0);
    let mut relaxed = pod_set.clone();
    if let Some(topology) = &mut relaxed.topology {
        topology.slices = fitting.cloned().into_iter().collect();
    }
    relaxed
}
