//! How long workloads run: what forecasts depend on.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::Args;
use quintet_api::conditions;
use quintet_api::kueue::WorkloadLifecycle as _;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::v1beta2::Workload;
use quintet_queue_engine::Engine;
use quintet_queue_engine::names::WorkloadId;
use quintet_queue_engine::time::Span;

use super::snapshot::{Key, Snapshot, key_in};

/// How far and on what grounds starts are foreseen.
#[derive(Args, Clone)]
pub(super) struct ForecastArguments {
    /// How far to look ahead, such as 90m or 7d.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    horizon: Span,
    /// How long Workloads run that have no time limit, in queues of which none has finished yet.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    assume: Span,
}

/// A duration: digits with one of the units s, m, h, d.
fn duration(text: &str) -> Result<Span, String> {
    let wrong = || "write it as 30s, 90m, 12h or 7d".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let number: i64 = text.strip_suffix(unit).and_then(|digits| digits.parse().ok()).ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    if number < 0 {
        return Err(wrong());
    }
    Ok(Span::secs(number.saturating_mul(seconds)))
}

/// How long Workloads run: the median of those that have finished in their LocalQueue, at most their time limit.
pub(super) struct Runtimes<'s> {
    snapshot: &'s Snapshot,
    /// Sorted, by namespace and LocalQueue.
    finished: BTreeMap<Key, Vec<Span>>,
    assumed: Span,
}

impl<'s> Runtimes<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, arguments: &ForecastArguments) -> Self {
        let mut finished: BTreeMap<Key, Vec<Span>> = BTreeMap::new();
        for ((namespace, _), workload) in &snapshot.workloads {
            if let (Some(queue), Some(length)) = (&workload.spec.queue_name, ran_for(workload)) {
                finished.entry((namespace.clone(), queue.clone())).or_default().push(length);
            }
        }
        for lengths in finished.values_mut() {
            lengths.sort_unstable();
        }
        Self { snapshot, finished, assumed: arguments.assume }
    }

    fn of(&self, key: &Key) -> Span {
        let workload = self.snapshot.workloads.get(key);
        let limit = workload.and_then(|workload| workload.spec.maximum_execution_time_seconds);
        let limit = limit.map(|seconds| Span::secs(seconds.into()));
        let queue = workload.and_then(|workload| workload.spec.queue_name.clone());
        let finished = queue.and_then(|queue| self.finished.get(&(key.0.clone(), queue)));
        let median = finished.and_then(|lengths| lengths.get(lengths.len() / 2)).copied();
        match (median, limit) {
            (Some(median), Some(limit)) => median.min(limit),
            (median, limit) => median.or(limit).unwrap_or(self.assumed),
        }
    }

    /// When pending Workloads would start, and a livelock if there is one.
    pub(super) fn forecast(
        &self,
        horizon: &ForecastArguments,
    ) -> (BTreeMap<Key, Option<jiff::Timestamp>>, Option<String>) {
        let engine = &self.snapshot.engine;
        let duration = |engine: &Engine, id: WorkloadId| key_in(engine, id).map(|key| self.of(&key));
        let forecast = engine.forecast(self.snapshot.time(), horizon.horizon, &duration);
        let starts = forecast.starts.into_iter().filter_map(|(id, start)| {
            Some((self.snapshot.key(id)?, start.and_then(super::snapshot::timestamp)))
        });
        (starts.collect(), forecast.livelock.map(|livelock| livelock.message(engine)))
    }
}

/// How long a Workload ran that has finished.
fn ran_for(workload: &Workload) -> Option<Span> {
    if !workload.is_finished() {
        return None;
    }
    let conditions = workload.status.as_ref()?.conditions.as_deref()?;
    let at = |condition: WorkloadCondition| {
        Some(conditions::find(conditions, condition.as_str())?.last_transition_time.0)
    };
    let ran = at(WorkloadCondition::Finished)?.duration_since(at(WorkloadCondition::Admitted)?);
    Some(Span::secs(ran.as_secs())).filter(|_| !ran.is_negative())
}

/// Rejects what would take too long to compute.
pub(super) fn check(arguments: &ForecastArguments) -> anyhow::Result<()> {
    if arguments.horizon > Span::secs(365 * 86_400) {
        bail!("a forecast of more than 365d says nothing; give a shorter --horizon");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("90m"), Ok(Span::secs(5400)));
        assert_eq!(duration("7d"), Ok(Span::secs(604_800)));
        for wrong in ["", "7", "m", "-1h", "1w", "1h30m"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
