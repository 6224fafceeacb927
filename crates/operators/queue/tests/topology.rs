//! Pods are placed near each other, failed nodes are replaced, and lost pods are let go, with the controllers of Kubernetes
//! and simulated nodes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

#[path = "bed/mod.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bed;

use std::collections::BTreeMap;
use std::time::Duration;

use bed::{Bed, condition, kueue_template, nodes, pass, setting};
use quintet_golden::simulate;
use quintet_node::NodeShape;
use serde_json::{Value, json};

const RACK: &str = "example.com/rack";
const HOST: &str = "kubernetes.io/hostname";

/// Three nodes of two CPUs in the rack `r0`, three in `r1`.
fn on_racks(gates: &str, test: impl AsyncFnOnce(Bed)) {
    simulate(async {
        let template = kueue_template().await;
        let mut shape = NodeShape { name: "n".to_owned(), ..nodes(6) };
        shape.capacity.insert("cpu".to_owned(), "2".parse().unwrap());
        let configuration =
            format!("integrations: {{frameworks: [batch/job, pod]}}\nfeatureGates: {{{gates}}}");
        let bed = Bed::on(shape, &template, 1, setting(&configuration)).await;
        for number in 0..6 {
            let labels = json!({ "pool": "tas", RACK: format!("r{}", number / 3) });
            bed.patch("Node", &format!("n-{number}"), &json!({ "metadata": { "labels": labels } })).await;
        }
        let kueue = "kueue.x-k8s.io/v1beta2";
        bed.create(&json!({ "apiVersion": kueue, "kind": "Topology", "metadata": { "name": "racks" },
            "spec": { "levels": [{ "nodeLabel": RACK }, { "nodeLabel": HOST }] } }))
            .await;
        bed.create(
            &json!({ "apiVersion": kueue, "kind": "ResourceFlavor", "metadata": { "name": "default" },
            "spec": { "nodeLabels": { "pool": "tas" }, "topologyName": "racks" } }),
        )
        .await;
        bed.create(
            &json!({ "apiVersion": kueue, "kind": "ClusterQueue", "metadata": { "name": "cq" }, "spec": {
            "namespaceSelector": {}, "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
                { "name": "default", "resources": [{ "name": "cpu", "nominalQuota": "100" }] }] }] } }),
        )
        .await;
        bed.create(&json!({ "apiVersion": kueue, "kind": "LocalQueue",
            "metadata": { "name": "lq", "namespace": bed::NAMESPACE }, "spec": { "clusterQueue": "cq" } }))
            .await;
        test(bed).await;
        Ok(())
    })
    .unwrap();
}

/// An indexed Job whose pods take a node each.
fn job(name: &str, pods: u32, annotation: &str) -> Value {
    let mut job = bed::job(name, 2, "", &[]);
    job["spec"]["completionMode"] = "Indexed".into();
    job["spec"]["backoffLimit"] = 9.into();
    (job["spec"]["parallelism"], job["spec"]["completions"]) = (pods.into(), pods.into());
    job["spec"]["template"]["metadata"]["annotations"] =
        json!({ format!("kueue.x-k8s.io/{annotation}"): RACK });
    job
}

/// The nodes of the pods of a Job that run, by index.
async fn places(bed: &Bed, job: &str) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let objects = bed.world.objects().await.unwrap();
    let pods = objects.iter().filter(|(id, _)| id.kind == "Pod").map(|(_, pod)| pod);
    pods.filter(|pod| pod["metadata"]["labels"]["job-name"] == job && pod["status"]["phase"] == "Running")
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .map(|pod| {
            let index = &pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"];
            (text(index), text(&pod["spec"]["nodeName"]))
        })
        .collect()
}

fn on(nodes: &[&str]) -> BTreeMap<String, String> {
    nodes.iter().enumerate().map(|(index, node)| (index.to_string(), (*node).to_owned())).collect()
}

async fn taint(bed: &Bed, node: &str, key: &str, effect: &str) {
    let taint = json!({ "key": key, "effect": effect });
    bed.patch("Node", node, &json!({ "spec": { "taints": [taint] } })).await;
}

#[test]
fn a_failed_node_is_replaced_while_the_other_pods_go_on() {
    on_racks("", async |bed| {
        bed.create(&job("a", 2, "podset-required-topology")).await;
        pass(5).await;
        assert_eq!(places(&bed, "a").await, on(&["n-0", "n-1"]), "{:#}", bed.workload("a").await);
        taint(&bed, "n-0", "broken", "NoExecute").await;
        pass(60).await;
        let workload = bed.workload("a").await;
        let nodes: Vec<String> = places(&bed, "a").await.into_values().collect();
        assert_eq!(nodes.len(), 2, "{workload:#}");
        assert!(nodes.contains(&"n-1".to_owned()) && nodes.contains(&"n-2".to_owned()), "{nodes:?}");
        assert_eq!(condition(&workload, "Admitted"), "True Admitted");
        assert_eq!(condition(&workload, "Evicted"), "", "the other pod went on");
        assert_eq!(workload["status"]["unhealthyNodes"], Value::Null);
    });
}

#[test]
fn without_a_replacement_the_workload_is_evicted_and_placed_elsewhere() {
    on_racks("", async |bed| {
        bed.create(&job("a", 3, "podset-required-topology")).await;
        pass(5).await;
        assert_eq!(places(&bed, "a").await, on(&["n-0", "n-1", "n-2"]));
        taint(&bed, "n-1", "broken", "NoExecute").await;
        pass(90).await;
        let workload = bed.workload("a").await;
        assert_eq!(places(&bed, "a").await, on(&["n-3", "n-4", "n-5"]), "{workload:#}");
        let evictions = &workload["status"]["schedulingStats"]["evictions"];
        assert_eq!((&evictions[0]["reason"], &evictions[0]["count"]), (&json!("NodeFailures"), &json!(1)));
        assert_eq!(condition(&workload, "Requeued"), "True NodeFailures");
    });
}

#[test]
fn a_pod_for_a_node_that_its_workload_has_not_is_failed_but_not_before_its_creator_may_write_its_status() {
    on_racks("", async |bed| {
        bed.create(&job("a", 2, "podset-required-topology")).await;
        pass(5).await;
        let workload = bed.workload("a").await["metadata"]["name"].clone();
        bed.create(&json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "late", "namespace": bed::NAMESPACE, "annotations": {
                "kueue.x-k8s.io/workload": workload, "kueue.x-k8s.io/podset-required-topology": RACK } },
            "spec": { "nodeSelector": { HOST: "gone" },
                "containers": [{ "name": "c", "image": "example.com/image:1" }] } }))
            .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let phase = async || bed.get("Pod", "late").await.unwrap()["status"]["phase"].clone();
        assert_eq!(phase().await, "Pending");
        pass(1).await;
        assert_eq!(phase().await, "Failed");
        let late = bed.get("Pod", "late").await.unwrap();
        assert_eq!(condition(&late, "TerminatedByKueue"), "True UnschedulableOnAssignedNode");
    });
}

#[test]
fn pods_outside_of_topologies_use_their_nodes() {
    on_racks("", async |bed| {
        bed.create(&json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "other", "namespace": bed::NAMESPACE }, "spec": { "nodeName": "n-1",
                "terminationGracePeriodSeconds": 1, "containers": [{ "name": "c", "image": "example.com/image:1",
                    "resources": { "requests": { "cpu": "1" } } }] } }))
            .await;
        pass(3).await;
        bed.create(&job("a", 3, "podset-required-topology")).await;
        pass(5).await;
        assert_eq!(places(&bed, "a").await, on(&["n-3", "n-4", "n-5"]));
        bed.create(&job("b", 3, "podset-required-topology")).await;
        pass(5).await;
        let waiting = bed.workload("b").await;
        assert_eq!(condition(&waiting, "QuotaReserved"), "False WaitingForQuota", "{waiting:#}");
        bed.delete("Pod", "other").await;
        pass(20).await;
        assert_eq!(places(&bed, "b").await, on(&["n-0", "n-1", "n-2"]), "{:#}", bed.workload("b").await);
    });
}

#[test]
fn a_pod_that_cannot_end_is_let_go_if_users_allow_it() {
    on_racks("FailureRecoveryPolicy: true", async |bed| {
        // No kubelet reports for this node.
        bed.create(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "lost" },
            "spec": { "taints": [{ "key": "node.kubernetes.io/unreachable", "effect": "NoSchedule" }] } }))
            .await;
        for (name, is_safe) in [("safe", "true"), ("kept", "false")] {
            bed.create(&json!({ "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": name, "namespace": bed::NAMESPACE, "finalizers": ["example.com/test"],
                    "annotations": { "kueue.x-k8s.io/safe-to-forcefully-delete": is_safe } },
                "spec": { "nodeName": "lost", "terminationGracePeriodSeconds": 10,
                    "containers": [{ "name": "c", "image": "example.com/image:1" }] } }))
                .await;
        }
        for name in ["safe", "kept"] {
            bed.delete("Pod", name).await;
        }
        let phase = async |name: &str| bed.get("Pod", name).await.unwrap()["status"]["phase"].clone();
        pass(60).await;
        assert_eq!((phase("safe").await, phase("kept").await), (json!("Pending"), json!("Pending")));
        pass(15).await;
        let failed = bed.get("Pod", "safe").await.unwrap();
        assert_eq!(failed["status"]["phase"], "Failed", "{failed:#}");
        assert_eq!(condition(&failed, "KueueFailureRecovery"), "True KueueForcefullyDeleted");
        assert_eq!(failed["metadata"]["deletionGracePeriodSeconds"], 0);
        assert_eq!(phase("kept").await, "Pending");
    });
}
