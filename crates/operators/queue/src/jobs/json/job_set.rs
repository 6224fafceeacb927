//! `jobset.x-k8s.io` JobSets: groups of Jobs. As `pkg/controller/jobs/jobset` of Kueue.

use quintet_api::kueue::v1beta2::ReclaimablePod;
use serde_json::Value;

use super::{JobEnd, JsonKind, KindNames, Ranks, Role, end_by_conditions, integer, items, names, text};

/// Label of a pod: its index in the Job.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Label of a pod: the index of its Job among the replicas.
const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";

/// The kind.
#[derive(Clone, Debug)]
pub(in super::super) struct JobSet;

/// How many pods a replica of a replicated Job runs at the same time.
fn pods_of_replica(replicated: &Value) -> i32 {
    let spec = &replicated["template"]["spec"];
    let parallelism = integer(&spec["parallelism"], 1);
    parallelism.min(integer(&spec["completions"], parallelism))
}

fn replicas(replicated: &Value) -> i32 {
    integer(&replicated["replicas"], 1)
}

/// The roles of replicated Jobs at a JSON pointer.
pub(super) fn roles_of(list: &Value, pointer: &str, path: &str) -> Vec<Role> {
    let role = |(index, replicated): (usize, &Value)| Role {
        name: text(&replicated["name"]).to_owned(),
        count: replicas(replicated).saturating_mul(pods_of_replica(replicated)),
        pointer: format!("{pointer}/{index}/template/spec/template"),
        path: format!("{path}[{index}].template.spec.template"),
        ranks: Ranks {
            pod_index: Some(COMPLETION_INDEX),
            sub_groups: Some((JOB_INDEX, replicas(replicated))),
        },
    };
    items(list).enumerate().map(role).collect()
}

impl JsonKind for JobSet {
    const NAMES: KindNames = names!("jobset.x-k8s.io", "jobset-x-k8s-io", "v1alpha2", "JobSet", "jobset");

    fn roles(job: &Value) -> Vec<Role> {
        roles_of(&job["spec"]["replicatedJobs"], "/spec/replicatedJobs", "spec.replicatedJobs")
    }

    fn is_active(job: &Value) -> bool {
        items(&job["status"]["replicatedJobsStatus"]).any(|own| integer(&own["active"], 0) > 0)
    }

    fn end(job: &Value) -> Option<JobEnd> {
        end_by_conditions(job, "Completed", "Failed")
    }

    fn is_ready(job: &Value) -> bool {
        let wanted: i32 = items(&job["spec"]["replicatedJobs"]).map(replicas).sum();
        let ready = |own: &Value| integer(&own["ready"], 0) + integer(&own["succeeded"], 0);
        wanted == items(&job["status"]["replicatedJobsStatus"]).map(ready).sum::<i32>()
    }

    fn reclaimable_pods(job: &Value, _: &[Value]) -> Vec<ReclaimablePod> {
        reclaimable(&job["spec"]["replicatedJobs"], &job["status"]["replicatedJobsStatus"])
    }
}

/// The pods of those replicated Jobs that have succeeded.
pub(super) fn reclaimable(replicated: &Value, statuses: &Value) -> Vec<ReclaimablePod> {
    let of = |replicated: &Value| {
        let status = items(statuses).find(|own| own["name"] == replicated["name"])?;
        let succeeded = integer(&status["succeeded"], 0);
        let counts = succeeded > 0 && succeeded <= replicas(replicated);
        counts.then(|| ReclaimablePod {
            name: text(&replicated["name"]).to_lowercase(),
            count: succeeded * pods_of_replica(replicated),
        })
    };
    items(replicated).filter_map(of).collect()
}
