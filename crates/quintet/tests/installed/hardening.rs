//! A hardened RayCluster on a cluster whose nodes are simulated.

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::bed::{Bed, TEAM, eventually};

const API: &str = "ray.io/v1";
const NETWORKING: &str = "networking.k8s.io/v1";
const CLUSTER: (&str, &str, &str, &str) = (API, "RayCluster", TEAM, "hard");
const LABEL: &str = "ray.openshift.ai/cluster-name=hard";
/// What is made for the cluster, and how many.
const MADE: [(&str, &str, usize); 3] =
    [("v1", "Secret", 1), (NETWORKING, "Ingress", 2), (NETWORKING, "NetworkPolicy", 2)];

pub(crate) async fn check(bed: &Bed) {
    bed.create(TEAM, &cluster(false)).await.unwrap();
    is_surrounded(bed).await;
    repairs_what_is_deleted(bed).await;
    rejects_what_upstream_rejects(bed).await;
    leaves_nothing(bed).await;
}

fn cluster(has_ingress: bool) -> Value {
    let template = json!({ "spec": { "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": "ray", "image": "example.invalid/ray" }] } });
    let head = json!({ "rayStartParams": {}, "template": template, "enableIngress": has_ingress });
    let group = json!({ "groupName": "g", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {},
        "template": template });
    json!({ "apiVersion": API, "kind": "RayCluster", "metadata": { "name": "hard" },
        "spec": { "rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": [group] } })
}

async fn count(bed: &Bed, api_version: &str, kind: &str) -> usize {
    let labelled = ListParams::default().labels(LABEL);
    bed.objects(api_version, kind, TEAM).list(&labelled).await.unwrap().items.len()
}

async fn is_surrounded(bed: &Bed) {
    let cluster = bed.until(CLUSTER, |cluster| cluster["metadata"]["finalizers"].is_array()).await;
    assert_eq!(cluster["metadata"]["finalizers"], json!(["ray.openshift.ai/oauth-finalizer"]));
    for (api_version, kind, expected) in MADE {
        let made = eventually(async || (count(bed, api_version, kind).await == expected).then_some(())).await;
        assert!(made.is_some(), "not {expected} of {kind}");
    }
    let pods = bed.objects("v1", "Pod", TEAM);
    let secured = eventually(async || {
        let found = pods.list(&ListParams::default().labels("ray.io/cluster=hard")).await.unwrap().items;
        let is_secured = |pod: &Value| {
            let containers = pod["spec"]["initContainers"].as_array().cloned().unwrap_or_default();
            containers.iter().any(|container| container["name"] == "create-cert")
        };
        (found.len() == 2 && found.iter().all(|pod| is_secured(&json!(pod)))).then_some(())
    });
    assert!(secured.await.is_some(), "the pods of the cluster have no certificates");
}

async fn repairs_what_is_deleted(bed: &Bed) {
    let name = "ray-dashboard-hard";
    let ingresses = bed.objects(NETWORKING, "Ingress", TEAM);
    let before = ingresses.get(name).await.unwrap().metadata.uid;
    ingresses.delete(name, &DeleteParams::default()).await.unwrap();
    let ingress = (NETWORKING, "Ingress", TEAM, name);
    bed.until(ingress, |ingress| ingress["metadata"]["uid"] != json!(before)).await;
}

async fn rejects_what_upstream_rejects(bed: &Bed) {
    const WHY: &str = "admission webhook \"vraycluster.ray.openshift.ai\" denied the request: \
                       spec.headGroupSpec.enableIngress: Invalid value: true: RayCluster with enableIngress set to true is \
                       not allowed";
    let clusters = bed.objects(API, "RayCluster", TEAM);
    let patch = json!({ "spec": { "headGroupSpec": { "enableIngress": true } } });
    let changed = clusters.patch("hard", &PatchParams::default(), &Patch::Merge(&patch)).await;
    let mut other = cluster(true);
    other["metadata"]["name"] = json!("other");
    for denied in [changed, bed.create(TEAM, &other).await] {
        let kube::Error::Api(denied) = denied.unwrap_err() else { panic!("not answered by the API") };
        assert_eq!((denied.code, denied.message.as_str()), (403, WHY));
    }
}

async fn leaves_nothing(bed: &Bed) {
    bed.objects(API, "RayCluster", TEAM).delete("hard", &DeleteParams::default()).await.unwrap();
    bed.gone(CLUSTER).await;
    for (api_version, kind, _) in MADE {
        let gone = eventually(async || (count(bed, api_version, kind).await == 0).then_some(())).await;
        assert!(gone.is_some(), "{kind} of the cluster is left");
    }
}
