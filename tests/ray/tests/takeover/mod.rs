//! Jobs and services as KubeRay 1.6 leaves them: taken over, nothing is made, deleted or restarted.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Pod, Service},
};
use quintet_api::ray::v1::{RayCluster, RayJob, RayService};
use quintet_ray::dashboard::simulated::SimulatedDashboard;
use serde_json::{Value, json};

use crate::{
    bed::{Kind, Place, running},
    cluster,
};

/// Everything that must stay the same.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identities(BTreeSet<String>);

impl Identities {
    async fn of(place: &Place) -> Result<Self> {
        async fn all<K: Kind>(place: &Place) -> Result<Vec<String>> {
            let name = |object: &K| {
                let meta = object.meta();
                format!("{} {:?} {:?}", K::kind(&()), meta.name, meta.uid)
            };
            Ok(place.list::<K>().await?.iter().map(name).collect())
        }
        let mut identities = BTreeSet::new();
        identities.extend(all::<RayCluster>(place).await?);
        identities.extend(all::<Pod>(place).await?);
        identities.extend(all::<Service>(place).await?);
        identities.extend(all::<Job>(place).await?);
        Ok(Self(identities))
    }
}

/// What an object says of who made it.
struct Maker {
    kind: &'static str,
    name: &'static str,
    uid: String,
}

impl Maker {
    fn owner(&self) -> Value {
        json!([{
            "apiVersion": "ray.io/v1", "kind": self.kind, "name": self.name, "uid": self.uid,
            "controller": true, "blockOwnerDeletion": true,
        }])
    }

    fn labels(&self) -> Value {
        json!({"ray.io/originated-from-cr-name": self.name, "ray.io/originated-from-crd": self.kind})
    }
}

/// A cluster of a job or service, with its pods and its Service.
async fn leave_cluster(place: &Place, maker: &Maker) -> Result<String> {
    let name = format!("{}-abcde", maker.name);
    let mut object = cluster(&name, 1);
    object["metadata"]["labels"] = maker.labels();
    object["metadata"]["ownerReferences"] = maker.owner();
    object["metadata"]["annotations"] = json!({
        "ray.io/hash-without-replicas-and-workers-to-delete": "9BQ7L5ICNQ1I4J4J1N6N3Q1S9G2DUPSV",
        "ray.io/num-worker-groups": "1", "ray.io/kuberay-version": "v1.6.0",
    });
    let made = place.create::<RayCluster>(object).await?;
    let owner = json!([{
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "name": name, "uid": made.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    for (pod, node_type, group) in
        [("head-abcde", "head", "headgroup"), ("small-worker-fghij", "worker", "small")]
    {
        let labels = json!({
            "ray.io/is-ray-node": "yes", "ray.io/cluster": name, "ray.io/node-type": node_type, "ray.io/group": group,
            "ray.io/identifier": format!("{name}-{node_type}"), "app.kubernetes.io/name": "kuberay",
            "app.kubernetes.io/created-by": "kuberay-operator", "ray.io/worker-group-replica-index": "0",
            "ray.io/serve": "false",
        });
        let pod = json!({
            "metadata": {"name": format!("{name}-{pod}"), "labels": labels, "ownerReferences": owner},
            "spec": {"containers": [{"name": "ray", "image": "example.invalid/ray"}]},
        });
        place.create::<Pod>(pod).await?;
    }
    let head = json!({"ray.io/cluster": name, "ray.io/node-type": "head"});
    leave_service(place, &format!("{name}-head-svc"), &owner, &head, &head).await?;
    place.pods(&name, |pods| running(pods) == 2).await?;
    Ok(name)
}

async fn leave_service(
    place: &Place,
    name: &str,
    owner: &Value,
    labels: &Value,
    selector: &Value,
) -> Result<()> {
    let service = json!({
        "metadata": {"name": name, "labels": labels, "ownerReferences": owner},
        "spec": {"clusterIP": "None", "selector": selector, "ports": [{"name": "dashboard", "port": 8265}]},
    });
    place.create::<Service>(service).await?;
    Ok(())
}

async fn leave_job(place: &Place, name: &'static str, spec: Value, status: Value) -> Result<Maker> {
    let mut all = json!({
        "entrypoint": "python train.py", "submissionMode": "HTTPMode", "rayClusterSpec": cluster("x", 1)["spec"],
    });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let job = json!({"metadata": {"name": name, "finalizers": ["ray.io/rayjob-finalizer"]}, "spec": all});
    let made = Box::pin(place.create::<RayJob>(job)).await?;
    place.set_status::<RayJob>(name, status).await?;
    Ok(Maker { kind: "RayJob", name, uid: made.metadata.uid.unwrap_or_default() })
}

fn status(name: &str, state: &str, more: &Value) -> Value {
    let mut status = json!({
        "jobDeploymentStatus": state, "jobId": format!("{name}-id"), "rayClusterName": format!("{name}-abcde"),
        "startTime": "2026-01-01T00:00:00Z", "failed": 0, "succeeded": 0,
    });
    status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    status
}

fn host(place: &Place, cluster: &str) -> String {
    format!("{cluster}-head-svc.{}.svc.cluster.local:8265", place.namespace())
}

/// A RayJob in every state in which upstream's operator waits for something, and a RayService that serves.
pub(crate) async fn what_upstream_left(place: &Place, ray: &SimulatedDashboard) -> Result<Identities> {
    let at = |name: &str| host(place, &format!("{name}-abcde"));
    let ended = |job_status: &str| json!({"jobStatus": job_status, "endTime": "2026-01-01T01:00:00Z"});
    // Runs, and Ray knows it.
    let running = json!({"jobStatus": "RUNNING", "dashboardURL": at("running")});
    let maker = leave_job(place, "running", json!({}), status("running", "Running", &running)).await?;
    let name = Box::pin(leave_cluster(place, &maker)).await?;
    let selector = json!({"ray.io/cluster": name, "ray.io/node-type": "head"});
    leave_service(place, "running-head-svc", &maker.owner(), &maker.labels(), &selector).await?;
    ray.submit_by_hand(&at("running"), "running-id");
    // Waits for the user to submit.
    let spec = json!({"submissionMode": "InteractiveMode"});
    let waiting = json!({"dashboardURL": at("waiting"), "jobId": ""});
    let maker = leave_job(place, "waiting", spec, status("waiting", "Waiting", &waiting)).await?;
    let name = Box::pin(leave_cluster(place, &maker)).await?;
    let selector = json!({"ray.io/cluster": name, "ray.io/node-type": "head"});
    leave_service(place, "waiting-head-svc", &maker.owner(), &maker.labels(), &selector).await?;
    // Have ended; their clusters have gone.
    let spec = || json!({"shutdownAfterJobFinishes": true});
    let mut complete = ended("SUCCEEDED");
    complete["succeeded"] = 1.into();
    leave_job(place, "complete", spec(), status("complete", "Complete", &complete)).await?;
    let mut failed = ended("FAILED");
    failed["failed"] = 1.into();
    failed["reason"] = "AppFailed".into();
    leave_job(place, "failed", spec(), status("failed", "Failed", &failed)).await?;
    // Had ended when its spec became invalid, which upstream's operator told in place of its end.
    leave_job(place, "overwritten", spec(), status("overwritten", "ValidationFailed", &complete)).await?;
    let nothing = json!({"jobId": "", "rayClusterName": ""});
    leave_job(
        place,
        "suspended",
        json!({"suspend": true, "shutdownAfterJobFinishes": true}),
        status("suspended", "Suspended", &nothing),
    )
    .await?;
    Box::pin(leave_rayservice(place)).await?;
    Identities::of(place).await
}

async fn leave_rayservice(place: &Place) -> Result<()> {
    let service = json!({
        "metadata": {"name": "chat"},
        "spec": {
            "serveConfigV2": "applications: [{name: chat, import_path: 'chat:app'}]",
            "rayClusterConfig": cluster("x", 1)["spec"],
        },
    });
    let made = Box::pin(place.create::<RayService>(service)).await?;
    let maker = Maker { kind: "RayService", name: "chat", uid: made.metadata.uid.unwrap_or_default() };
    let name = Box::pin(leave_cluster(place, &maker)).await?;
    for (service, selector) in [
        ("chat-head-svc", json!({"ray.io/cluster": name, "ray.io/node-type": "head"})),
        ("chat-serve-svc", json!({"ray.io/cluster": name, "ray.io/serve": "true"})),
    ] {
        leave_service(place, service, &maker.owner(), &maker.labels(), &selector).await?;
    }
    let status = json!({
        "serviceStatus": "Running", "numServeEndpoints": 1,
        "activeServiceStatus": {"rayClusterName": name, "applicationStatuses": {"chat": {"status": "RUNNING"}}},
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "NonZeroServeEndpoints", "message": "Number of serve endpoints is greater than 0",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        }],
    });
    place.set_status::<RayService>("chat", status).await
}

/// The operator has looked at everything, and everything is as it was.
pub(crate) async fn is_taken_over(place: &Place, before: Identities, ray: &SimulatedDashboard) -> Result<()> {
    let state =
        |job: &RayJob| job.status.clone().unwrap_or_default().job_deployment_status.unwrap_or_default();
    for (name, expected) in [
        ("running", "Complete"),
        ("overwritten", "Complete"),
        ("waiting", "Waiting"),
        ("complete", "Complete"),
        ("failed", "Failed"),
        ("suspended", "Suspended"),
    ] {
        place.until::<RayJob>(name, |job| state(job) == expected).await?;
    }
    let is_ours = |cluster: &RayCluster| {
        let annotations = cluster.metadata.annotations.clone().unwrap_or_default();
        annotations.get("ray.io/kuberay-version").is_some_and(|version| version.starts_with("quintet"))
    };
    place.until::<RayCluster>("chat-abcde", is_ours).await?;
    for name in ["running-abcde", "waiting-abcde", "chat-abcde"] {
        place.until::<RayCluster>(name, |cluster| crate::is_ready(cluster, 1)).await?;
    }
    let accepted = ray.all_accepted();
    let again: Vec<_> = ["complete-id", "failed-id", "overwritten-id"]
        .into_iter()
        .filter(|id| accepted.contains_key(*id))
        .collect();
    ensure!(again.is_empty(), "these had ended and were submitted again: {again:?}");
    ensure!(accepted.get("running-id") == Some(&1), "submitted again");
    let after = Identities::of(place).await?;
    ensure!(before == after, "{before:#?} became {after:#?}");
    Ok(())
}
