use super::*;

fn with_rules(rules: &Value, more: &Value) -> JobBench {
    let mut spec = json!({
        "completions": 2, "parallelism": 2, "backoffLimit": 3, "podFailurePolicy": { "rules": rules },
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    JobBench::new(&spec)
}

#[test]
fn the_first_rule_that_matches_decides_about_a_failed_pod() {
    let rules = json!([
        { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
        { "action": "FailJob", "onExitCodes": { "containerName": "main", "operator": "In", "values": [42] } },
        { "action": "Count", "onExitCodes": { "operator": "NotIn", "values": [7] } },
    ]);
    // Exit code, whether it was disrupted, failures, conditions.
    let cases: [(i32, bool, Value, &[&str]); 4] = [
        (1, false, json!(1), &[]),
        (42, false, json!(2), &["FailureTarget:PodFailurePolicy", "Failed:PodFailurePolicy"]),
        (42, true, Value::Null, &[]),
        (7, false, json!(1), &[]),
    ];
    for (code, disrupted, failed, conditions) in cases {
        let mut job = with_rules(&rules, &json!({}));
        job.reconcile().run_all();
        let pod = job.in_phase("Running")[0].clone();
        job.end(&pod, code);
        if disrupted {
            let condition = json!([{ "type": "DisruptionTarget", "status": "True" }]);
            job.bench.patch("Pod", &pod, &json!({ "status": { "conditions": condition } }));
        }
        job.reconcile().kubelet_removes();
        // Deleted pods of a Job that replaces only failed ones have to fail first.
        job.reconcile();
        assert_eq!(job.status()["failed"], failed, "exit code {code}, disrupted {disrupted}");
        assert_eq!(job.conditions(), conditions, "exit code {code}, disrupted {disrupted}");
    }
}

#[test]
fn the_message_names_container_pod_and_rule() {
    let rules = json!([{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } }]);
    let mut job = with_rules(&rules, &json!({ "completions": 1 }));
    job.reconcile().end_all(42).reconcile();
    let pod = job.pods()[0].clone();
    let message = job.status()["conditions"][0]["message"].as_str().unwrap();
    assert_eq!(
        message,
        format!("Container main for pod ns/{pod} failed with exit code 42 matching FailJob rule at index 0")
    );
}

#[test]
fn a_terminating_pod_is_not_judged_before_it_has_failed() {
    let rules = json!([{ "action": "FailJob", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }]);
    let mut job = with_rules(&rules, &json!({ "completions": 1 }));
    job.reconcile().run_all();
    let pod = job.pods()[0].clone();
    let condition = json!([{ "type": "DisruptionTarget", "status": "True" }]);
    job.bench.patch("Pod", &pod, &json!({ "status": { "conditions": condition } }));
    job.bench.delete("Pod", &pod);
    job.reconcile();
    assert!(job.conditions().is_empty());
    assert_eq!(job.pods().len(), 1, "and not replaced either");
    job.bench.patch("Pod", &pod, &json!({ "status": { "phase": "Failed" } }));
    job.reconcile();
    assert_eq!(job.conditions()[0], "FailureTarget:PodFailurePolicy");
}

#[test]
fn a_rule_can_fail_a_single_index() {
    let rules = json!([{ "action": "FailIndex", "onExitCodes": { "operator": "In", "values": [9] } }]);
    let more = json!({ "completionMode": "Indexed", "backoffLimitPerIndex": 5, "backoffLimit": 100 });
    let mut job = with_rules(&rules, &more);
    job.reconcile().run_all();
    let pod = job.of_index(1);
    job.end(&pod, 9).reconcile();
    assert_eq!(job.status()["failedIndexes"], "1");
    assert_eq!(job.in_phase("Running").len(), 1);
}

#[test]
fn a_success_policy_ends_the_job_early() {
    // Rules, indexes that succeed, whether that is enough.
    let cases = [
        (json!([{ "succeededIndexes": "0" }]), vec![1, 2], None),
        (json!([{ "succeededIndexes": "0" }]), vec![0], Some(0)),
        (json!([{ "succeededIndexes": "0-2", "succeededCount": 2 }]), vec![3, 1], None),
        (json!([{ "succeededIndexes": "3,0" }, { "succeededCount": 2 }]), vec![1, 2], Some(1)),
    ];
    for (rules, indexes, rule) in cases {
        let mut job = JobBench::new(&json!({
            "completions": 4, "parallelism": 4, "completionMode": "Indexed", "successPolicy": { "rules": rules },
        }));
        job.reconcile().run_all();
        for index in indexes {
            let pod = job.of_index(index);
            job.end(&pod, 0);
        }
        job.reconcile().kubelet_removes().reconcile();
        match rule {
            Some(rule) => {
                assert_eq!(job.conditions(), ["SuccessCriteriaMet:SuccessPolicy", "Complete:SuccessPolicy"]);
                let message = format!("Matched rules at index {rule}");
                assert_eq!(job.status()["conditions"][1]["message"], message);
            }
            None => assert!(job.conditions().is_empty(), "{rules}"),
        }
    }
}

#[test]
fn what_is_decided_stays_decided() {
    let mut job = JobBench::new(&json!({
        "completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 0,
        "successPolicy": { "rules": [{ "succeededIndexes": "0" }] },
    }));
    job.reconcile().run_all();
    let (first, second) = (job.of_index(0), job.of_index(1));
    job.end(&first, 0).reconcile();
    assert_eq!(job.conditions(), ["SuccessCriteriaMet:SuccessPolicy"]);
    // The other pod fails while it is being deleted.
    job.end(&second, 1).reconcile().kubelet_removes().reconcile();
    assert_eq!(job.conditions(), ["SuccessCriteriaMet:SuccessPolicy", "Complete:SuccessPolicy"]);
}
