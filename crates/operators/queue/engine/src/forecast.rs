//! Forecasts: when pending workloads would start, given how long everything runs.
//!
//! ```
//! use quintet_queue_engine::testing;
//! use quintet_queue_engine::time::{Span, Time};
//! use serde_json::json;
//!
//! let mut engine = testing::engine(&[
//!     json!({"kind": "ResourceFlavor", "metadata": {"name": "default"}}),
//!     json!({"kind": "ClusterQueue", "metadata": {"name": "research"}, "spec": {
//!         "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO",
//!         "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
//!             {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}}),
//!     json!({"kind": "LocalQueue", "metadata": {"name": "main", "namespace": "team"},
//!         "spec": {"clusterQueue": "research"}}),
//!     testing::workload("team", "first", "main", 3),
//!     testing::workload("team", "second", "main", 2),
//! ]);
//! let start = Time::from_secs(100);
//! let forecast = engine.forecast(start, Span::secs(3600), &|_, _| Some(Span::secs(60)));
//! let when = |name| forecast.starts[&testing::id(&engine, "team", name)];
//! assert_eq!(when("first"), Some(start));
//! assert_eq!(when("second"), Some(start + Span::secs(60)));
//! assert_eq!(forecast.livelock, None);
//! ```

use std::collections::BTreeMap;

use quintet_api::kueue::conditions::WorkloadCondition;

use crate::engine::Engine;
use crate::livelock::Livelock;
use crate::names::WorkloadId;
use crate::time::{Span, Time};
use crate::virtual_time::{Transition, VirtualRun};

/// A forecast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// When every pending workload would start; `None` is not until the horizon.
    pub starts: BTreeMap<WorkloadId, Option<Time>>,
    /// Workloads that would preempt each other forever: when those in their queues start and end cannot be
    /// known.
    pub livelock: Option<Livelock>,
}

impl Engine {
    /// When every pending workload would start, up to `horizon` from now.
    ///
    /// `duration` is how long a workload runs once it starts: its time limit or what was observed of its
    /// kind; `None` is forever. For a workload that runs already it is counted from its admission.
    /// Works on a copy and changes nothing. Arrivals are not foreseen.
    pub fn forecast(
        &self,
        now: Time,
        horizon: Span,
        duration: &dyn Fn(&Self, WorkloadId) -> Option<Span>,
    ) -> Forecast {
        let pending = self.state.workloads().map(|(id, _)| id).filter(|id| self.state.held(*id).is_none());
        let mut starts: BTreeMap<WorkloadId, Option<Time>> = pending.map(|id| (id, None)).collect();
        let mut copy = self.clone();
        copy.request_flush_all(now);
        let mut run = VirtualRun::new(copy, now, true);
        for (id, workload) in self.state.workloads().filter(|(id, _)| self.state.held(*id).is_some()) {
            if let Some(length) = duration(self, id) {
                let admitted = workload
                    .condition(WorkloadCondition::Admitted)
                    .or_else(|| workload.condition(WorkloadCondition::QuotaReserved));
                let since = admitted.map_or(now, |condition| condition.since);
                run.end_at(id, (since + length).max(now));
            }
        }
        let mut seen = |_: &Self, at: Time, transition: Transition| {
            if let Transition::Started(id) = transition
                && let Some(start) = starts.get_mut(&id)
            {
                start.get_or_insert(at);
            }
        };
        let end = now + horizon;
        run.run_until_idle(duration, &mut seen);
        while let Some(next) = run.next_at().filter(|next| *next <= end) {
            run.advance_to(next, &mut seen);
            run.run_until_idle(duration, &mut seen);
        }
        Forecast { starts, livelock: run.livelock }
    }
}
