//! What a simulation shows: times to admission, utilisation, and usage over time.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::{Class, START};
use crate::engine::Engine;
use crate::livelock::{self, Livelock};
use crate::names::{QueueId, WorkloadId};
use crate::time::Time;
use crate::virtual_time::Transition;

/// Columns of a plot.
const COLUMNS: usize = 60;
/// The levels of a plot's cells, from nothing to more than the queue owns.
const SHADES: [char; 6] = [' ', '.', ':', '+', '#', '@'];
/// Queues plotted at most.
const MOST_PLOTS: usize = 40;

/// A class of workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassReport {
    /// Workloads that arrived.
    pub arrived: usize,
    /// Admissions, more than workloads if some were preempted.
    pub admitted: usize,
    /// Preemptions.
    pub preempted: usize,
    /// Seconds from creation to the first admission, for every workload.
    pub waits: Vec<f64>,
}

impl ClassReport {
    /// Workloads never admitted.
    pub fn never_admitted(&self) -> usize {
        self.arrived.saturating_sub(self.waits.len())
    }

    /// The mean wait in seconds.
    #[expect(clippy::cast_precision_loss, reason = "counts of workloads")]
    pub fn mean_wait(&self) -> f64 {
        self.waits.iter().sum::<f64>() / self.waits.len().max(1) as f64
    }

    /// The wait a share of the workloads does not exceed.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position in a list"
    )]
    pub fn wait_at(&self, share: f64) -> f64 {
        let mut sorted = self.waits.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
        sorted.get(at).copied().unwrap_or(0.0)
    }
}

/// Usage of a queue from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// Since when; seconds from the start when it is written.
    #[serde(serialize_with = "seconds")]
    pub at: Time,
    /// Milli-cores in use.
    pub used: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn seconds<S: serde::Serializer>(at: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(float(at.as_nanos() - START.as_nanos()) / 1e9)
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueReport {
    /// Its name.
    pub name: String,
    /// Milli-cores it owns.
    pub nominal: i64,
    /// Every change of its usage.
    pub samples: Vec<Sample>,
    /// Mean usage in percent of what it owns.
    pub utilisation: f64,
}

/// Workloads that preempt each other forever. What is reported of them and of their queues is one of many ways in
/// which it could go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LivelockReport {
    /// Seconds until they did for the first time.
    pub seconds: f64,
    /// At how many occurrences they did.
    pub occurrences: usize,
    /// The workloads that are preempted repeatedly.
    pub workloads: Vec<String>,
    /// The queues they are in.
    pub queues: Vec<String>,
    /// What happens and what ends it.
    pub message: String,
}

/// The outcome of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// By class.
    pub classes: BTreeMap<String, ClassReport>,
    /// By queue, in the order of the plan.
    pub queues: Vec<QueueReport>,
    /// Seconds until nothing happens any more.
    pub seconds: f64,
    /// A livelock, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub livelock: Option<LivelockReport>,
}

/// Collects while the simulation runs.
pub(super) struct Recorder {
    classes: BTreeMap<String, ClassReport>,
    queues: BTreeMap<QueueId, QueueReport>,
    order: Vec<QueueId>,
    /// When something happened last.
    last: Time,
    waited: BTreeMap<WorkloadId, Time>,
    running: BTreeMap<WorkloadId, (QueueId, i64)>,
}

impl Recorder {
    pub(super) fn new(queues: &[(QueueId, String, i64)]) -> Self {
        let reports = queues.iter().map(|(id, name, nominal)| {
            let samples = vec![Sample { at: START, used: 0 }];
            (*id, QueueReport { name: name.clone(), nominal: *nominal, samples, utilisation: 0.0 })
        });
        Self {
            classes: BTreeMap::new(),
            queues: reports.collect(),
            order: queues.iter().map(|(id, ..)| *id).collect(),
            last: START,
            waited: BTreeMap::new(),
            running: BTreeMap::new(),
        }
    }

    pub(super) fn arrived(&mut self, class: &str, at: Time) {
        self.last = at;
        self.classes.entry(class.to_owned()).or_default().arrived += 1;
    }

    pub(super) fn record(
        &mut self,
        engine: &Engine,
        at: Time,
        transition: Transition,
        class_of: &BTreeMap<WorkloadId, usize>,
        classes: &[Class],
    ) {
        self.last = at;
        let (Transition::Started(id) | Transition::Preempted(id) | Transition::Ended(id)) = transition;
        let name =
            class_of.get(&id).and_then(|class| classes.get(*class)).map_or("", |class| class.name.as_str());
        let report = self.classes.entry(name.to_owned()).or_default();
        match transition {
            Transition::Started(_) => {
                report.admitted += 1;
                let created = engine.state.workload(id).map_or(at, |workload| workload.created);
                if self.waited.insert(id, created) != Some(created) {
                    report.waits.push(at.seconds_since(created));
                }
                if let Some(held) = engine.state.held(id) {
                    let used = held.usage.iter().map(|(_, amount)| amount.get()).sum();
                    self.running.insert(id, (held.queue, used));
                    self.change(held.queue, at, used);
                }
            }
            Transition::Preempted(_) | Transition::Ended(_) => {
                report.preempted += usize::from(matches!(transition, Transition::Preempted(_)));
                if let Some((queue, used)) = self.running.remove(&id) {
                    self.change(queue, at, -used);
                }
            }
        }
    }

    fn change(&mut self, queue: QueueId, at: Time, by: i64) {
        if let Some(report) = self.queues.get_mut(&queue) {
            let used = report.samples.last().map_or(0, |sample| sample.used) + by;
            match report.samples.last_mut().filter(|sample| sample.at == at) {
                Some(sample) => sample.used = used,
                None => report.samples.push(Sample { at, used }),
            }
        }
    }

    pub(super) fn finish(mut self, livelock: Option<Livelock>) -> Report {
        let end = self.last;
        let livelock = livelock.map(|livelock| self.livelock(&livelock));
        let order = std::mem::take(&mut self.order);
        let mut queues: Vec<QueueReport> = order.iter().filter_map(|id| self.queues.remove(id)).collect();
        for queue in &mut queues {
            queue.utilisation = queue.mean_used(START, end) * 100.0 / float(queue.nominal.max(1));
        }
        Report { classes: self.classes, queues, seconds: end.seconds_since(START), livelock }
    }

    fn livelock(&self, livelock: &Livelock) -> LivelockReport {
        let workloads: Vec<String> = livelock.workloads.iter().map(|key| key.name.to_string()).collect();
        let queues = self.order.iter().filter(|id| livelock.queues.contains(id));
        let queues: Vec<String> = queues.filter_map(|id| Some(self.queues.get(id)?.name.clone())).collect();
        LivelockReport {
            seconds: livelock.since.seconds_since(START),
            occurrences: livelock.occurrences,
            message: livelock::describe(&workloads, &queues, false),
            workloads,
            queues,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "milli-cores for reading")]
const fn float(value: i64) -> f64 {
    value as f64
}

impl QueueReport {
    /// Mean milli-cores in use between two times.
    fn mean_used(&self, from: Time, to: Time) -> f64 {
        let length = to.seconds_since(from);
        if length <= 0.0 {
            return 0.0;
        }
        let mut sum = 0.0;
        for (index, sample) in self.samples.iter().enumerate() {
            let until = self.samples.get(index + 1).map_or(to, |next| next.at).min(to);
            let since = sample.at.max(from);
            if until > since {
                sum += float(sample.used) * until.seconds_since(since);
            }
        }
        sum / length
    }

    fn plot(&self, end: Time) -> String {
        let step = (end.as_nanos() - START.as_nanos()) / i64::try_from(COLUMNS).unwrap_or(1);
        let columns = (0..i64::try_from(COLUMNS).unwrap_or(0)).map(|column| {
            let from = Time::from_nanos(START.as_nanos() + step * column);
            let to = Time::from_nanos(from.as_nanos() + step.max(1));
            let share = self.mean_used(from, to) / float(self.nominal.max(1));
            let level = match share {
                share if share <= 0.01 => 0,
                share if share < 0.34 => 1,
                share if share < 0.67 => 2,
                share if share < 0.95 => 3,
                share if share <= 1.05 => 4,
                _ => 5,
            };
            SHADES.get(level).copied().unwrap_or(' ')
        });
        columns.collect()
    }
}

impl Report {
    /// The report as text: tables of waits and utilisation, and a plot of usage per queue over time.
    pub fn text(&self) -> String {
        let mut text = format!("{:.1} s of virtual time\n\n", self.seconds);
        if let Some(livelock) = &self.livelock {
            let _ = writeln!(text, "From {:.1} s on, {}.\n", livelock.seconds, livelock.message);
        }
        self.write_waits(&mut text);
        self.write_usage(&mut text);
        text
    }

    fn write_waits(&self, text: &mut String) {
        let width = column_width("class", self.classes.keys());
        let _ = writeln!(
            text,
            "{:width$}  workloads  admissions  preemptions   mean wait     median        p99",
            "class"
        );
        let seconds = |value: f64| format!("{value:.1} s");
        for (name, class) in &self.classes {
            let waits = if class.waits.is_empty() {
                [(); 3].map(|()| "-".to_owned())
            } else {
                [class.mean_wait(), class.wait_at(0.5), class.wait_at(0.99)].map(seconds)
            };
            let [mean, median, most] = waits;
            let _ = writeln!(
                text,
                "{name:width$}  {:>9}  {:>10}  {:>11}  {mean:>10}  {median:>9}  {most:>9}",
                class.arrived, class.admitted, class.preempted,
            );
        }
        for (name, class) in self.classes.iter().filter(|(_, class)| class.never_admitted() > 0) {
            let _ = writeln!(text, "\n{} of {name} never ran: they do not fit", class.never_admitted());
        }
    }

    fn write_usage(&self, text: &mut String) {
        let owned: i64 = self.queues.iter().map(|queue| queue.nominal).sum();
        let used: f64 = self.queues.iter().map(|queue| queue.utilisation * float(queue.nominal)).sum();
        let _ = writeln!(
            text,
            "\nOn average {:.1} % of the CPU quota of all queues was in use. Over time, in columns of {}:",
            used.max(0.0) / float(owned.max(1)),
            short_duration(self.seconds / float(i64::try_from(COLUMNS).unwrap_or(1))),
        );
        let _ = writeln!(
            text,
            "blank nothing  . up to a third of its quota  : two thirds  + almost all  # all  @ more, borrowed\n"
        );
        #[expect(clippy::cast_possible_truncation, reason = "saturates at 292 years")]
        let end = Time::from_nanos(START.as_nanos().saturating_add((self.seconds * 1e9) as i64));
        let shown = self.queues.get(..MOST_PLOTS.min(self.queues.len())).unwrap_or_default();
        let width = column_width("queue", shown.iter().map(|queue| &queue.name));
        let _ = writeln!(text, "{:width$}  in use  0 s{:>57.1} s", "queue", self.seconds);
        for queue in shown {
            let _ =
                writeln!(text, "{:width$}  {:>4.0} %  |{}|", queue.name, queue.utilisation, queue.plot(end));
        }
        if self.queues.len() > MOST_PLOTS {
            let _ = writeln!(text, "… and {} more", self.queues.len() - MOST_PLOTS);
        }
    }
}

/// A duration of any length, never rounded to nothing.
fn short_duration(seconds: f64) -> String {
    if seconds >= 0.1 || seconds <= 0.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.1} ms", seconds * 1000.0)
    }
}

/// As wide as the widest of a column's cells.
fn column_width<'n>(head: &str, names: impl Iterator<Item = &'n String>) -> usize {
    names.map(|name| name.chars().count()).chain([head.len()]).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WorkloadKey;
    use crate::names::{Id as _, NamespaceId};
    use crate::time::Span;

    #[test]
    fn columns_of_a_short_plot_have_a_length() {
        assert_eq!(short_duration(1.25), "1.2 s");
        assert_eq!(short_duration(1.0 / 60.0), "16.7 ms");
        assert_eq!(short_duration(0.0), "0.0 s");
    }

    #[test]
    fn livelocks_are_reported_in_text_and_json() {
        let queue = |at: usize, name: &str| (QueueId::from_index(at), name.to_owned(), 1000);
        let recorder = || Recorder::new(&[queue(0, "research"), queue(1, "idle"), queue(2, "production")]);
        let workload = |number: usize| WorkloadKey {
            namespace: NamespaceId::from_index(0),
            name: format!("job-{number}").into(),
        };
        let livelock = Livelock {
            since: START + Span::millis(2500),
            occurrences: 3,
            workloads: (1..8).map(workload).collect(),
            queues: [QueueId::from_index(0), QueueId::from_index(2)].into(),
        };
        let report = recorder().finish(Some(livelock));
        let text = report.text();
        let expected = "From 2.5 s on, the preemption policies of research, production cause a livelock: job-1, job-2, \
                    job-3, job-4, job-5 and 2 more would be preempted and admitted repeatedly until \
                    another workload ends or arrives; ";
        assert!(text.contains(expected), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["livelock"]["seconds"], 2.5);
        assert_eq!(json["livelock"]["occurrences"], 3);
        assert_eq!(json["livelock"]["workloads"].as_array().unwrap().len(), 7);
        assert_eq!(json["livelock"]["queues"], serde_json::json!(["research", "production"]));
        assert!(json["livelock"]["message"].as_str().unwrap().contains("PrioritizePreemptorWorkloads"));

        let without = serde_json::to_value(recorder().finish(None)).unwrap();
        assert!(without.get("livelock").is_none(), "{without}");
    }
}
