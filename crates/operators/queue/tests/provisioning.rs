//! Jobs wait for the cluster autoscaler, which the test plays, with the controllers of Kubernetes and simulated nodes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

#[path = "bed/mod.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bed;

use bed::{Bed, bare_template, condition, id, job, kueue_template, pass, setting};
use quintet_golden::{Api, simulate};
use serde_json::{Value, json};

const FRAMEWORKS: &str = "integrations: {frameworks: [batch/job]}";

fn on(template: impl AsyncFnOnce() -> Api, test: impl AsyncFnOnce(Bed)) {
    simulate(async {
        test(Bed::new(&template().await, 1, setting(FRAMEWORKS)).await).await;
        Ok(())
    })
    .unwrap();
}

/// A queue with a check `prov`.
async fn add_checked_queue(bed: &Bed, retries: &Value) {
    let kueue = "kueue.x-k8s.io/v1beta2";
    bed.create(
        &json!({ "apiVersion": kueue, "kind": "ProvisioningRequestConfig", "metadata": { "name": "prc" },
        "spec": { "provisioningClassName": "class", "retryStrategy": retries } }),
    )
    .await;
    bed.create(&json!({ "apiVersion": kueue, "kind": "AdmissionCheck", "metadata": { "name": "prov" },
        "spec": { "controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": {
            "apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "prc" } } }))
        .await;
    let checks = json!({ "admissionChecksStrategy": { "admissionChecks": [{ "name": "prov" }] } });
    bed.add_queue(2, checks).await;
}

/// The name of the request of an attempt for a Job.
async fn name(bed: &Bed, job: &str, attempt: u32) -> String {
    let workload = bed.workload(job).await;
    format!("{}-prov-{attempt}", workload["metadata"]["name"].as_str().unwrap())
}

/// Says something as the autoscaler does.
async fn report(bed: &Bed, request: &str, kind: &str) {
    let condition = json!({ "type": kind, "status": "True", "reason": kind, "message": kind,
        "lastTransitionTime": bed.world.now() });
    let body = json!({ "status": { "conditions": [condition] } });
    let answer = bed.world.patch(&id("ProvisioningRequest", request), Some("status"), &body).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
}

async fn check(bed: &Bed, job: &str) -> Value {
    bed.workload(job).await["status"]["admissionChecks"][0].clone()
}

#[test]
fn a_job_starts_on_the_capacity_that_was_made_for_it() {
    on(kueue_template, async |bed| {
        add_checked_queue(&bed, &json!({})).await;
        bed.create(&job("a", 1, "20s", &[])).await;
        pass(3).await;
        assert_eq!(condition(&bed.get("AdmissionCheck", "prov").await.unwrap(), "Active"), "True Active");
        let request = name(&bed, "a", 1).await;
        let template = format!("ppt-{request}-main");
        let owner = bed.get("PodTemplate", &template).await.unwrap()["metadata"]["ownerReferences"].clone();
        assert_eq!((&owner[0]["kind"], &owner[1]), (&json!("ProvisioningRequest"), &Value::Null));
        assert_eq!(condition(&bed.workload("a").await, "Admitted"), "False UnsatisfiedAdmissionChecks");
        assert!(!bed.is_running("a").await);

        report(&bed, &request, "Provisioned").await;
        pass(3).await;
        assert!(bed.is_running("a").await, "{:#}", bed.workload("a").await);
        let annotations = &bed.get("Job", "a").await.unwrap()["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations["autoscaling.x-k8s.io/consume-provisioning-request"], request);
        report(&bed, &request, "BookingExpired").await;
        pass(3).await;
        assert!(bed.is_running("a").await, "its pods were there in time");

        pass(25).await;
        assert_eq!(condition(&bed.workload("a").await, "Finished"), "True Succeeded");
        assert!(bed.get("ProvisioningRequest", &request).await.is_none());
        assert!(bed.get("PodTemplate", &template).await.is_none());
    });
}

#[test]
fn a_request_that_fails_is_followed_by_another_and_finally_deactivates_the_workload() {
    on(kueue_template, async |bed| {
        add_checked_queue(&bed, &json!({ "backoffLimitCount": 1, "backoffBaseSeconds": 10 })).await;
        bed.create(&job("a", 1, "", &[])).await;
        pass(3).await;
        let [first, second] = [name(&bed, "a", 1).await, name(&bed, "a", 2).await];
        report(&bed, &first, "Failed").await;
        pass(2).await;
        let retried = check(&bed, "a").await;
        assert_eq!((&retried["state"], &retried["requeueAfterSeconds"]), (&json!("Retry"), &json!(10)));
        pass(15).await;
        assert!(bed.get("ProvisioningRequest", &first).await.is_none());
        assert!(bed.get("ProvisioningRequest", &second).await.is_some(), "{:#}", bed.workload("a").await);
        assert_eq!(check(&bed, "a").await["retryCount"], 1);

        report(&bed, &second, "Failed").await;
        pass(5).await;
        let workload = bed.workload("a").await;
        assert_eq!(workload["spec"]["active"], false);
        assert_eq!(condition(&workload, "Evicted"), "True DeactivatedDueToAdmissionCheck");
        assert!(bed.get("ProvisioningRequest", &second).await.is_none());
    });
}

#[test]
fn another_class_replaces_the_request_and_its_templates() {
    on(kueue_template, async |bed| {
        add_checked_queue(&bed, &json!({})).await;
        bed.create(&job("a", 1, "", &[])).await;
        pass(3).await;
        let request = name(&bed, "a", 1).await;
        let uid = bed.get("ProvisioningRequest", &request).await.unwrap()["metadata"]["uid"].clone();
        let change = json!({ "spec": { "provisioningClassName": "other" } });
        bed.patch("ProvisioningRequestConfig", "prc", &change).await;
        pass(5).await;
        let replaced = bed.get("ProvisioningRequest", &request).await.unwrap();
        assert_eq!(replaced["spec"]["provisioningClassName"], "other");
        assert_ne!(replaced["metadata"]["uid"], uid);
        let template = bed.get("PodTemplate", &format!("ppt-{request}-main")).await.unwrap();
        assert_eq!(template["metadata"]["ownerReferences"][0]["uid"], replaced["metadata"]["uid"]);
    });
}

#[test]
fn the_kind_is_taken_up_when_the_cluster_serves_it() {
    on(bare_template, async |mut bed| {
        add_checked_queue(&bed, &json!({})).await;
        bed.create(&job("a", 1, "", &[])).await;
        pass(3).await;
        let check = bed.get("AdmissionCheck", "prov").await.unwrap();
        assert_eq!(condition(&check, "Active"), "", "it is not decided yet");
        let queue = bed.get("ClusterQueue", "cq").await.unwrap();
        assert_eq!(condition(&queue, "Active"), "False AdmissionCheckInactive");

        bed.world.serve("ProvisioningRequest").await.unwrap();
        pass(150).await;
        let request = name(&bed, "a", 1).await;
        assert!(bed.get("ProvisioningRequest", &request).await.is_some(), "{:#}", bed.workload("a").await);
    });
}
