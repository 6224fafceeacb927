//! Elastic slices: pods of the slice being replaced stay where they are.

use super::placement::{Placement, PlacementRequest, Placer};
use super::usage::Assumed;
use super::{Tas, TopologyAssignment};

impl Placer<'_> {
    /// Places a slice that replaces another; `None` if it is to be placed afresh.
    pub(super) fn place_elastic(
        &mut self,
        workers: &PlacementRequest<'_>,
        leader: Option<&PlacementRequest<'_>>,
        assumed: &mut Assumed,
    ) -> Option<Vec<Placement>> {
        let previous = workers.previous.as_ref()?;
        let leader_previous = leader.and_then(|leader| leader.previous.as_ref());
        if self.stale_domain(previous).is_some()
            || leader_previous.is_some_and(|old| self.stale_domain(old).is_some())
        {
            return None;
        }
        let mut placed = Vec::new();
        let mut keep =
            |placer: &Self, request: &PlacementRequest<'_>, assignment: TopologyAssignment, add: bool| {
                if add {
                    Tas::assume(placer.flavor, assumed, &assignment, &request.per_pod);
                }
                placed.push(Placement { index: request.index, result: Ok(assignment) });
            };
        let grown = workers.count - previous.pods();
        if grown <= 0 {
            let kept = if grown < 0 { previous.truncated(workers.count) } else { previous.clone() };
            keep(self, workers, kept, true);
            if let Some(leader) = leader {
                keep(self, leader, leader_previous.cloned().unwrap_or_default(), true);
            }
            return Some(placed);
        }
        Tas::assume(self.flavor, assumed, previous, &workers.per_pod);
        let mut new_leader = leader;
        if let (Some(request), Some(old)) = (leader, leader_previous) {
            Tas::assume(self.flavor, assumed, old, &request.per_pod);
            new_leader = None;
        }
        let delta = PlacementRequest { count: grown, previous: None, ..workers.clone() };
        match self.find(&delta, new_leader, assumed, None) {
            Err(reason) => placed.push(Placement { index: workers.index, result: Err(reason) }),
            Ok((added, added_leader)) => {
                Tas::assume(self.flavor, assumed, &added, &workers.per_pod);
                placed.push(Placement { index: workers.index, result: Ok(self.merged(&added, previous)) });
                if let Some(request) = leader {
                    if let (Some(_), Some(assignment)) = (new_leader, &added_leader) {
                        Tas::assume(self.flavor, assumed, assignment, &request.per_pod);
                    }
                    let assignment = leader_previous.cloned().or(added_leader).unwrap_or_default();
                    placed.push(Placement { index: request.index, result: Ok(assignment) });
                }
            }
        }
        Some(placed)
    }
}
