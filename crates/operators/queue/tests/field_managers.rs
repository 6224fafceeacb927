//! Who owns the status of Workloads: Kueue and Quintet apply it as the same field managers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

#[path = "bed/mod.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bed;

use std::collections::BTreeSet;

use bed::{Bed, bare_template, condition, job, pass, setting};
use quintet_golden::simulate;
use serde_json::{Value, json};

fn on_a_cluster(test: impl AsyncFnOnce(Bed)) {
    simulate(async {
        let template = bare_template().await;
        let bed = Bed::new(&template, 1, setting("")).await;
        bed.add_queue(1, json!({})).await;
        test(bed).await;
        Ok(())
    })
    .unwrap();
}

/// Applies a status as another field manager, as Kueue does.
async fn apply(bed: &Bed, workload: &Value, manager: &str, status: &Value) {
    let (name, namespace) = (&workload["metadata"]["name"], &workload["metadata"]["namespace"]);
    let object = json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": { "name": name, "namespace": namespace }, "status": status });
    let answer = bed.world.apply(&object, Some("status"), manager).await.unwrap();
    assert_eq!(answer.code, 200, "{:?}", answer.message);
}

/// The managers of a status, with how they write it.
fn managers(workload: &Value) -> BTreeSet<(String, String)> {
    let entries = workload["metadata"]["managedFields"].as_array().unwrap().iter();
    let of_status = entries.filter(|entry| entry["subresource"] == "status");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    of_status.map(|entry| (text(&entry["manager"]), text(&entry["operation"]))).collect()
}

fn without(status: &Value, fields: &[&str]) -> Value {
    let mut status = status.clone();
    status.as_object_mut().unwrap().retain(|name, _| !fields.contains(&name.as_str()));
    status
}

#[test]
fn kueue_can_take_back_what_quintet_has_given() {
    on_a_cluster(async |mut bed| {
        bed.create(&job("a", 1, "", &[])).await;
        pass(3).await;
        bed.world.kill();
        let admitted = bed.workload("a").await;
        assert!(condition(&admitted, "Admitted").starts_with("True"), "{admitted:#}");
        let only = ("kueue-admission".to_owned(), "Apply".to_owned());
        assert_eq!(managers(&admitted), BTreeSet::from([only]));

        apply(&bed, &admitted, "kueue-admission", &without(&admitted["status"], &["admission"])).await;
        let evicted = bed.workload("a").await;
        assert!(evicted["status"]["admission"].is_null(), "{evicted:#}");
        assert!(condition(&evicted, "Admitted").starts_with("True"), "the rest stays: {evicted:#}");
    });
}

#[test]
fn quintet_can_take_back_what_others_have_given() {
    on_a_cluster(async |mut bed| {
        bed.create(&job("a", 1, "", &[])).await;
        pass(3).await;
        bed.world.kill();
        let admitted = bed.workload("a").await;
        // Somebody who owns the admission, too.
        let own = json!({ "admission": admitted["status"]["admission"] });
        apply(&bed, &admitted, "somebody", &own).await;
        bed.start().await;
        let name = admitted["metadata"]["name"].as_str().unwrap();
        bed.patch("Workload", name, &json!({ "spec": { "active": false } })).await;
        pass(5).await;
        let evicted = bed.workload("a").await;
        assert!(condition(&evicted, "Evicted").starts_with("True"), "{evicted:#}");
        assert!(evicted["status"]["admission"].is_null(), "{evicted:#}");
        assert!(!bed.is_running("a").await);

        let version = evicted["metadata"]["resourceVersion"].clone();
        pass(30).await;
        assert_eq!(bed.workload("a").await["metadata"]["resourceVersion"], version, "it rests");
    });
}
