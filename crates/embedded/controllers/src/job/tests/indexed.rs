use std::time::Duration;

use super::*;

fn indexed(completions: i32, more: &Value) -> JobBench {
    let mut spec =
        json!({ "completions": completions, "parallelism": completions, "completionMode": "Indexed" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    JobBench::new(&spec)
}

#[test]
fn every_index_has_a_pod_of_its_own() {
    let mut job = indexed(3, &json!({ "parallelism": 2 }));
    job.reconcile();
    assert_eq!(job.pods().len(), 2, "the lowest indexes come first");
    let name = job.of_index(1);
    let pod = job.bench.get("Pod", &name);
    assert!(name.starts_with("job-1-"), "{name}");
    assert_eq!(pod["spec"]["hostname"], "job-1");
    assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"], "1");
    let variable = &pod["spec"]["containers"][0]["env"][0];
    assert_eq!(variable["name"], "JOB_COMPLETION_INDEX");
    let path = &variable["valueFrom"]["fieldRef"]["fieldPath"];
    assert_eq!(path, "metadata.labels['batch.kubernetes.io/job-completion-index']");
    job.run_all();
    job.end(&name, 0).reconcile();
    assert_eq!((&job.status()["completedIndexes"], &job.status()["succeeded"]), (&json!("1"), &json!(1)));
    job.of_index(2);
    job.end_all(0).reconcile();
    assert_eq!(job.status()["completedIndexes"], "0-2");
    assert_eq!(job.conditions(), ["SuccessCriteriaMet:CompletionsReached", "Complete:CompletionsReached"]);
}

#[test]
fn an_index_is_counted_once_however_many_pods_succeed() {
    let mut job = indexed(2, &json!({}));
    job.reconcile();
    let mut twin = job.bench.get("Pod", &job.of_index(0)).clone();
    twin["metadata"]["name"] = json!("twin");
    twin["metadata"]["uid"] = json!("twin");
    job.bench.create("Pod", twin);
    job.run_all();
    job.reconcile();
    assert_eq!(job.in_phase("Running").len(), 2, "a second pod of an index is removed");
    job.kubelet_removes().end_all(0).reconcile();
    assert_eq!(job.status()["succeeded"], 2);
}

#[test]
fn a_limit_per_index_fails_indexes_and_not_the_others() {
    let mut job = indexed(2, &json!({ "backoffLimitPerIndex": 1 }));
    job.reconcile().run_all();
    let pod = job.of_index(0);
    let annotation = "batch.kubernetes.io/job-index-failure-count";
    assert_eq!(job.bench.get("Pod", &pod)["metadata"]["annotations"][annotation], "0");
    job.end(&pod, 1).reconcile();
    assert_eq!(job.tracked(), 2, "a failed pod keeps its finalizer until its replacement exists");
    assert_eq!(job.next, Next::After(Duration::from_secs(10)));
    job.bench.wait(10);
    job.reconcile();
    let second = job.of_index(0);
    assert_eq!(job.bench.get("Pod", &second)["metadata"]["annotations"][annotation], "1");
    assert_eq!(job.status()["failed"], 1);
    job.run_all();
    job.end(&second, 1).reconcile();
    assert_eq!(job.status()["failedIndexes"], "0");
    assert!(job.conditions().is_empty(), "index 1 still runs");
    job.end_all(0).reconcile();
    assert_eq!(job.conditions(), ["FailureTarget:FailedIndexes", "Failed:FailedIndexes"]);
    assert_eq!((&job.status()["succeeded"], &job.status()["failed"]), (&json!(1), &json!(2)));
    assert_eq!(job.tracked(), 0);
}

#[test]
fn too_many_failed_indexes_fail_the_job() {
    let mut job = indexed(4, &json!({ "backoffLimitPerIndex": 0, "maxFailedIndexes": 1 }));
    job.reconcile().run_all();
    for index in [0, 1] {
        let pod = job.of_index(index);
        job.end(&pod, 1);
    }
    job.reconcile().kubelet_removes().reconcile();
    assert_eq!(
        job.conditions(),
        ["FailureTarget:MaxFailedIndexesExceeded", "Failed:MaxFailedIndexesExceeded"]
    );
    assert_eq!(job.status()["failedIndexes"], "0,1");
}

#[test]
fn an_elastic_job_follows_its_completions() {
    let mut job = indexed(3, &json!({}));
    job.reconcile().run_all();
    job.bench.patch("Job", "job", &json!({ "spec": { "completions": 1, "parallelism": 1 } }));
    job.reconcile();
    assert_eq!(job.in_phase("Running"), [job.of_index(0)]);
    job.kubelet_removes().end_all(0).reconcile();
    assert_eq!(job.status()["completedIndexes"], "0");
    assert_eq!(job.conditions().len(), 2);
}
