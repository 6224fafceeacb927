use std::time::Duration;

use super::*;

#[test]
fn a_job_completes_and_counts_its_pod_once() {
    let mut job = JobBench::new(&json!({ "completions": 1, "parallelism": 1 }));
    job.reconcile();
    assert_eq!(job.pods().len(), 1);
    let pod = job.bench.get("Pod", &job.pods()[0]);
    assert_eq!(pod["metadata"]["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "job-uid");
    assert_eq!(job.status()["active"], 1);
    assert_eq!(job.status()["uncountedTerminatedPods"], json!({}));
    assert!(job.status()["startTime"].is_string());
    job.end_all(0).reconcile();
    assert_eq!(job.conditions(), ["SuccessCriteriaMet:CompletionsReached", "Complete:CompletionsReached"]);
    let status = job.status();
    assert_eq!((&status["succeeded"], &status["active"]), (&json!(1), &Value::Null));
    assert!(status["completionTime"].is_string());
    assert_eq!(job.tracked(), 0);
    assert_eq!(job.bench.take_reasons(), ["SuccessfulCreate", "Completed"]);
}

#[test]
fn an_end_is_counted_in_two_writes_that_survive_a_crash_between_them() {
    let mut job = JobBench::new(&json!({ "completions": 2, "parallelism": 2 }));
    job.reconcile().run_all();
    let first = job.in_phase("Running")[0].clone();
    job.end(&first, 0);
    assert!(job.reconcile_once());
    let uid = job.bench.get("Pod", &first)["metadata"]["uid"].clone();
    assert_eq!(job.status()["uncountedTerminatedPods"]["succeeded"], json!([uid]));
    assert_eq!(job.status()["succeeded"], Value::Null, "not counted before its finalizer is removed");
    // The pod disappears before its finalizer was removed by us.
    job.bench.remove("Pod", &first);
    job.reconcile();
    assert_eq!(job.status()["succeeded"], 1);
    assert_eq!(job.status()["uncountedTerminatedPods"], json!({}));
}

#[test]
fn a_work_queue_ends_when_all_pods_ended_and_one_succeeded() {
    let mut job = JobBench::new(&json!({ "parallelism": 3 }));
    job.reconcile().run_all();
    let pods = job.in_phase("Running");
    job.end(&pods[0], 0).reconcile();
    assert_eq!(job.pods().len(), 3, "no new pods after the first success");
    assert!(job.conditions().is_empty());
    job.end(&pods[1], 0).end(&pods[2], 0).reconcile();
    assert_eq!(job.conditions().len(), 2);
    assert_eq!(job.status()["succeeded"], 3);
}

#[test]
fn failed_pods_are_replaced_after_a_backoff_that_doubles() {
    let mut job = JobBench::new(&json!({ "completions": 1, "backoffLimit": 6 }));
    job.reconcile();
    for delay in [10, 20, 40] {
        job.end_all(1).reconcile();
        assert_eq!(job.in_phase("Pending").len(), 0);
        assert_eq!(job.next, Next::After(Duration::from_secs(delay)));
        job.bench.wait(i64::try_from(delay).unwrap());
        job.reconcile();
        assert_eq!(job.in_phase("Pending").len(), 1);
    }
    assert_eq!(job.status()["failed"], 3);
}

#[test]
fn a_job_fails_when_its_backoff_limit_is_exceeded() {
    let mut job = JobBench::new(&json!({ "completions": 3, "parallelism": 3, "backoffLimit": 0 }));
    job.reconcile().run_all();
    let failing = job.in_phase("Running")[0].clone();
    job.end(&failing, 1).reconcile();
    assert_eq!(job.conditions(), ["FailureTarget:BackoffLimitExceeded"], "pods are terminating");
    assert_eq!(job.status()["terminating"], 2);
    job.kubelet_removes().reconcile();
    assert_eq!(job.conditions(), ["FailureTarget:BackoffLimitExceeded", "Failed:BackoffLimitExceeded"]);
    assert_eq!(job.status()["failed"], 3, "pods that were ended count as failed");
    assert!(job.status().get("completionTime").is_none());
    assert_eq!(job.tracked(), 0);
}

#[test]
fn restarts_in_place_count_towards_the_backoff_limit() {
    let mut job = JobBench::new(&json!({ "completions": 1, "backoffLimit": 2 }));
    job.bench.patch(
        "Job",
        "job",
        &json!({ "spec": { "template": { "spec": { "restartPolicy": "OnFailure" } } } }),
    );
    job.reconcile().run_all();
    let pod = job.pods()[0].clone();
    let restarts = |count: i32| json!({ "status": { "containerStatuses": [{ "name": "main", "restartCount": count }] } });
    job.bench.patch("Pod", &pod, &restarts(1));
    job.reconcile();
    assert!(job.conditions().is_empty());
    job.bench.patch("Pod", &pod, &restarts(2));
    job.reconcile();
    assert_eq!(job.conditions(), ["FailureTarget:BackoffLimitExceeded"]);
}

#[test]
fn the_active_deadline_fails_a_job() {
    let mut job = JobBench::new(&json!({ "completions": 1, "activeDeadlineSeconds": 60 }));
    job.reconcile().run_all();
    assert_eq!(job.next, Next::After(Duration::from_mins(1)));
    job.bench.wait(60);
    job.reconcile().kubelet_removes().reconcile();
    assert_eq!(job.conditions(), ["FailureTarget:DeadlineExceeded", "Failed:DeadlineExceeded"]);
}

#[test]
fn suspended_pods_are_removed_without_being_counted() {
    let mut job = JobBench::new(&json!({ "completions": 2, "parallelism": 2, "backoffLimit": 0 }));
    job.reconcile().run_all();
    job.bench.patch("Job", "job", &json!({ "spec": { "suspend": true } }));
    job.reconcile();
    assert_eq!(job.tracked(), 0, "the finalizers go first");
    job.kubelet_removes().reconcile();
    assert_eq!(job.conditions(), ["Suspended:JobSuspended"]);
    assert!(job.pods().is_empty());
    let status = job.status();
    assert_eq!(
        (&status["failed"], &status["active"], &status["startTime"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    job.bench.wait(100);
    job.bench.patch("Job", "job", &json!({ "spec": { "suspend": false } }));
    job.reconcile();
    assert!(job.conditions().is_empty());
    assert_eq!(job.status()["conditions"][0]["reason"], "JobResumed");
    assert_eq!(job.status()["startTime"], json!(job.bench.now), "the deadline starts again");
    assert_eq!(job.pods().len(), 2);
    let reasons = job.bench.take_reasons();
    assert!(
        reasons.contains(&"Suspended".to_owned()) && reasons.contains(&"Resumed".to_owned()),
        "{reasons:?}"
    );
}

#[test]
fn a_job_created_suspended_has_no_start_time() {
    let mut job = JobBench::new(&json!({ "completions": 1, "suspend": true }));
    job.reconcile();
    assert!(job.pods().is_empty() && job.status().get("startTime").is_none());
    assert_eq!(job.conditions(), ["Suspended:JobSuspended"]);
}

#[test]
fn a_job_of_another_controller_is_left_alone() {
    let mut job = JobBench::new(&json!({ "completions": 1, "managedBy": "kueue.x-k8s.io/multikueue" }));
    assert!(!job.reconcile_once());
    let mut own = JobBench::new(&json!({ "completions": 1, "managedBy": "kubernetes.io/job-controller" }));
    assert!(own.reconcile_once());
}

#[test]
fn parallelism_is_followed_down_and_up() {
    let mut job = JobBench::new(&json!({ "completions": 10, "parallelism": 4 }));
    job.reconcile().run_all();
    job.bench.patch("Job", "job", &json!({ "spec": { "parallelism": 1 } }));
    job.reconcile();
    assert_eq!(job.in_phase("Running").len(), 1);
    job.kubelet_removes().reconcile();
    assert_eq!(job.status()["failed"], Value::Null, "pods removed by a scale-down are no failures");
    job.bench.patch("Job", "job", &json!({ "spec": { "parallelism": 20 } }));
    job.reconcile();
    assert_eq!(job.in_phase("Running").len() + job.in_phase("Pending").len(), 10, "no more than completions");
}

#[test]
fn a_deleted_pod_counts_as_failed_and_is_replaced_at_once_or_when_it_has_failed() {
    for (policy, pods_meanwhile) in [("TerminatingOrFailed", 2), ("Failed", 1)] {
        let mut job = JobBench::new(&json!({ "completions": 1, "podReplacementPolicy": policy }));
        job.reconcile().run_all();
        let pod = job.pods()[0].clone();
        job.bench.delete("Pod", &pod);
        job.bench.wait(30);
        job.reconcile();
        assert_eq!(job.pods().len(), pods_meanwhile, "{policy}");
        job.end(&pod, 137);
        job.bench.wait(30);
        job.reconcile();
        assert_eq!(job.status()["failed"], 1, "{policy}");
    }
}

#[test]
fn a_finished_job_lives_as_long_as_its_ttl() {
    let mut job = JobBench::new(&json!({ "completions": 1, "ttlSecondsAfterFinished": 100 }));
    job.reconcile().end_all(0).reconcile();
    assert_eq!(job.next, Next::After(Duration::from_secs(100)));
    job.bench.wait(100);
    job.reconcile_once();
    assert!(job.bench.names("Job").is_empty());
}

#[test]
fn names_stay_the_same_until_a_pod_was_observed() {
    let mut job = JobBench::new(&json!({ "completions": 3, "parallelism": 3 }));
    job.reconcile();
    let names = job.pods();
    job.bench.remove("Pod", &names[1]);
    job.reconcile();
    assert_eq!(job.pods(), names, "a lost response is repeated under the same name");
    assert!(
        names.iter().all(|name| name.starts_with("job-") && name.len() == "job-12345".len()),
        "{names:?}"
    );
}

#[test]
fn a_job_that_is_being_deleted_creates_nothing() {
    let mut job = JobBench::new(&json!({ "completions": 2, "parallelism": 1 }));
    job.bench.patch("Job", "job", &json!({ "metadata": { "finalizers": ["foregroundDeletion"] } }));
    job.reconcile().run_all();
    job.bench.delete("Job", "job");
    let pod = job.pods()[0].clone();
    job.bench.delete("Pod", &pod);
    job.reconcile().kubelet_removes().reconcile();
    assert!(job.pods().is_empty(), "its pod loses the finalizer, and no other is made");
}
