//! `batch/v1` Jobs.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use quintet_api::kueue::metadata::{JOB_COMPLETIONS_EQUAL_PARALLELISM, JOB_MIN_PARALLELISM, STOPPING};
use quintet_api::kueue::v1beta2::{PodSet, ReclaimablePod};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Step};
use quintet_queue_engine::settings::Gates;
use serde_json::{Value, json};

use super::{JobEnd, JobKind, PodSetInfo, Stop, pod_set_info, topology_request};
use crate::settings::BATCH_JOB;

const MAIN: &str = "main";
/// Label of a pod: its index in an indexed Job.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Labels that the Job controller adds to the template.
pub(super) const OF_CONTROLLER: [&str; 4] =
    ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];
/// Those of them that are not part of a Workload, because a Job made again has others.
const LEFT_OUT: [&str; 3] = ["batch.kubernetes.io/controller-uid", "controller-uid", "job-name"];

fn spec(job: &Job) -> JobSpec {
    job.spec.clone().unwrap_or_default()
}

fn status(job: &Job) -> JobStatus {
    job.status.clone().unwrap_or_default()
}

fn annotation<'j>(job: &'j Job, name: &str) -> Option<&'j str> {
    job.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// How many pods run at the same time.
fn pod_count(spec: &JobSpec) -> i32 {
    let parallelism = spec.parallelism.unwrap_or(1);
    spec.completions.map_or(parallelism, |completions| parallelism.min(completions))
}

fn is_stopping(job: &Job) -> bool {
    annotation(job, STOPPING) == Some("true")
}

/// How few pods the Job can do with.
pub(super) fn min_parallelism(job: &Job) -> Option<i32> {
    annotation(job, JOB_MIN_PARALLELISM)?.parse().ok()
}

pub(super) fn syncs_completions(job: &Job) -> bool {
    annotation(job, JOB_COMPLETIONS_EQUAL_PARALLELISM) == Some("true")
}

impl JobKind for Job {
    const FRAMEWORK: &'static str = BATCH_JOB;
    const CONTROLLER: &'static str = "batch/job-kueue-controller";
    const TAKES_SLICES: bool = true;

    fn is_suspended(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true)) && !is_stopping(self)
    }

    fn is_active(&self) -> bool {
        status(self).active.is_some_and(|active| active != 0)
    }

    fn end(&self) -> Option<JobEnd> {
        let conditions = self.status.as_ref()?.conditions.as_deref()?;
        let ended = |kind: &str| conditions.iter().find(|own| own.type_ == kind && own.status == "True");
        let (condition, succeeded) =
            ended("Complete").map(|own| (own, true)).or_else(|| ended("Failed").map(|own| (own, false)))?;
        Some(JobEnd { succeeded, message: condition.message.clone().unwrap_or_default() })
    }

    fn has_all_pods_ready(&self) -> bool {
        let status = status(self);
        let uncounted =
            status.uncounted_terminated_pods.and_then(|pods| pods.succeeded).map_or(0, |pods| pods.len());
        let ready = status.succeeded.unwrap_or(0) + status.ready.unwrap_or(0);
        let ready = ready.saturating_add(i32::try_from(uncounted).unwrap_or(i32::MAX));
        ready >= pod_count(&spec(self))
    }

    fn pod_sets(&self, gates: &Gates, _: &[Value]) -> Result<Vec<PodSet>, String> {
        let spec = spec(self);
        let mut template = spec.template.clone();
        if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
            labels.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
        }
        let topology_request = topology_request::of(&template, Some(COMPLETION_INDEX), gates);
        Ok(vec![PodSet {
            name: Some(MAIN.to_owned()),
            count: Some(pod_count(&spec)),
            min_count: min_parallelism(self).filter(|_| gates.partial_admission),
            template,
            topology_request,
        }])
    }

    fn reclaimable_pods(&self, _: &[Value]) -> Vec<ReclaimablePod> {
        let (spec, status) = (spec(self), status(self));
        let parallelism = spec.parallelism.unwrap_or(1);
        let done =
            if is_indexed(&spec) { ended_indexes(&spec, &status) } else { status.succeeded.unwrap_or(0) };
        let left = spec.completions.unwrap_or(parallelism).saturating_sub(done);
        if parallelism <= 1 || done == 0 || left >= parallelism {
            return Vec::new();
        }
        vec![ReclaimablePod { name: MAIN.to_owned(), count: parallelism - left }]
    }

    fn start(&mut self, infos: &[PodSetInfo]) -> Result<(), String> {
        let (is_partial, syncs) = (min_parallelism(self).is_some(), syncs_completions(self));
        let (Some(spec), [info]) = (&mut self.spec, infos) else {
            return Err(format!("invalid podset infos: expecting 1 got {}", infos.len()));
        };
        spec.suspend = Some(false);
        if is_partial {
            spec.parallelism = Some(info.count);
            if syncs {
                spec.completions = Some(info.count);
            }
        }
        info.inject(&mut spec.template)
    }

    /// Three writes: templates of a Job can be changed only while it is suspended and has not started. The annotation
    /// makes them safe to repeat from the beginning.
    fn stop(entry: &Entry<Self>, pod_sets: &[PodSet], _: &Stop<'_>) -> Vec<Step> {
        let kind = ApiKind::of::<Self>();
        let mark =
            json!({ "metadata": { "annotations": { STOPPING: "true" } }, "spec": { "suspend": true } });
        let mut steps = vec![Action::merge(kind.clone(), entry.key.clone(), mark).into()];
        if status(&entry.object).start_time.is_some() {
            steps.push(Step::from(Action::Patch {
                kind: kind.clone(),
                key: entry.key.clone(),
                subresource: Some("status".to_owned()),
                patch_kind: quintet_controller::plan::PatchKind::Merge,
                patch: json!({ "status": { "startTime": null } }),
            }));
        }
        let mut suspended = entry.object.clone();
        let annotations = suspended.metadata.annotations.get_or_insert_default();
        annotations.insert(STOPPING.to_owned(), "true".to_owned());
        if let Some(spec) = &mut suspended.spec {
            spec.suspend = Some(true);
        }
        let mut restored = suspended.clone();
        restored.metadata.annotations.get_or_insert_default().remove(STOPPING);
        restore(&mut restored, pod_sets);
        steps.extend(Action::change(kind, entry.key.clone(), &suspended, &restored).map(Step::from));
        steps
    }
}

/// Undoes what the start has changed.
fn restore(job: &mut Job, pod_sets: &[PodSet]) {
    let (is_partial, syncs) = (min_parallelism(job).is_some(), syncs_completions(job));
    let (Some(spec), Some(set)) = (&mut job.spec, pod_sets.first()) else { return };
    let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    let kept: BTreeMap<String, String> =
        labels.into_iter().flatten().filter(|(name, _)| OF_CONTROLLER.contains(&name.as_str())).collect();
    pod_set_info::restore(&mut spec.template, &set.template, kept);
    if is_partial && set.count.is_some() {
        spec.parallelism = set.count;
        if syncs {
            spec.completions = set.count;
        }
    }
}

/// How many indexes of an indexed Job have succeeded or failed.
fn ended_indexes(spec: &JobSpec, status: &JobStatus) -> i32 {
    let completions = spec.completions.or(spec.parallelism).unwrap_or(1);
    let lists = [&status.completed_indexes, &status.failed_indexes];
    let indexes: BTreeSet<i32> = lists
        .into_iter()
        .flatten()
        .flat_map(|list| list.split(','))
        .filter_map(interval)
        .flat_map(|(first, last)| first..=last.min(completions - 1))
        .collect();
    i32::try_from(indexes.len()).unwrap_or(i32::MAX)
}

/// `3` or `5-7`.
fn interval(text: &str) -> Option<(i32, i32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(value: serde_json::Value) -> Job {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn reclaimable_pods_are_those_that_no_completion_is_left_for() {
        let table = [
            (json!({ "parallelism": 3, "completions": 5 }), json!({ "succeeded": 2 }), None),
            (json!({ "parallelism": 3, "completions": 5 }), json!({ "succeeded": 4 }), Some(2)),
            (json!({ "parallelism": 1, "completions": 5 }), json!({ "succeeded": 4 }), None),
            (json!({ "parallelism": 3 }), json!({ "succeeded": 1 }), Some(1)),
            (
                json!({ "parallelism": 4, "completions": 4, "completionMode": "Indexed" }),
                json!({ "succeeded": 1, "completedIndexes": "0", "failedIndexes": "2-3" }),
                Some(3),
            ),
        ];
        for (mut spec, status, expected) in table {
            spec["template"] = json!({});
            let job = job(json!({ "metadata": {}, "spec": spec, "status": status }));
            let found = job.reclaimable_pods(&[]);
            assert_eq!(found.first().map(|pods| pods.count), expected, "{job:?}");
        }
    }

    #[test]
    fn a_job_that_is_being_stopped_does_not_count_as_suspended() {
        let of = |annotations: serde_json::Value| {
            job(
                json!({ "metadata": { "annotations": annotations }, "spec": { "suspend": true, "template": {} } }),
            )
        };
        assert!(of(json!({})).is_suspended());
        assert!(!of(json!({ STOPPING: "true" })).is_suspended());
    }
}
