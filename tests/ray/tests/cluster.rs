//! The Ray operator on a cluster: the embedded API, or the one of `KUBECONFIG_UNDER_TEST`. Pods are simulated, and the
//! operator has no more rights than `quintet manifests` gives it.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should stop")]

mod bed;
mod takeover;

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use bed::{Bed, Place, names, phase, running};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Pod, Service, ServiceAccount},
    networking::v1::Ingress,
    rbac::v1::{Role, RoleBinding},
};
use quintet_api::ray::v1::{RayCluster, RayCronJob, RayJob, RayService};
use serde_json::{Value, json};

/// A case: what the operator promises, and how to find out.
type Case = (&'static str, fn(Place) -> BoxFuture<'static, Result<()>>);

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_keeps_its_promises() {
    let bed = Bed::new().await;
    let before = bed.place("takeover").await;
    let taken_over = Box::pin(what_upstream_left(&before)).await;
    let workloads = bed.place("takeover").await;
    let left = Box::pin(takeover::what_upstream_left(&workloads, &bed.ray)).await.unwrap();
    let operator = bed.start_operator().await;
    let mut broken = Vec::new();
    if let Err(missing) = bed::synced(&operator).await {
        broken.push(format!("the operator sees what it needs: {missing:#}"));
    }
    if let Err(error) = is_taken_over(&before, taken_over).await {
        broken.push(format!("a cluster of another operator is taken over without a restart: {error:#}"));
    }
    if let Err(error) = takeover::is_taken_over(&workloads, left, &bed.ray).await {
        broken.push(format!("jobs and services of another operator are taken over as they are: {error:#}"));
    }
    let cases = CASES.iter().map(|(promise, check)| {
        let place = bed.place("ray");
        async move { (promise, check(place.await).await) }
    });
    for (promise, outcome) in futures::future::join_all(cases).await {
        if let Err(error) = outcome {
            broken.push(format!("{promise}: {error:#}"));
        }
    }
    before.end().await;
    workloads.end().await;
    bed.end(operator).await;
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

const CASES: &[Case] = &[
    ("a cluster comes up with head, workers and Service", |place| comes_up(place).boxed()),
    ("groups follow their replicas and the autoscaler's choice", |place| scales(place).boxed()),
    ("pods that end are replaced", |place| replaces(place).boxed()),
    ("a suspended cluster has no pods, and gets them back", |place| suspends(place).boxed()),
    ("hosts of a replica are replaced together", |place| replicas(place).boxed()),
    ("an autoscaler gets its rights, a dashboard its Ingress", |place| autoscales(place).boxed()),
    ("a cluster with state in Redis is finalized in the end", |place| finalizes(place).boxed()),
    ("an invalid spec is reported, and accepted when it is fixed", |place| {
        accepts_a_fixed_spec(place).boxed()
    }),
    ("a quantity that is none is refused in a pod template", |place| checks_quantities(place).boxed()),
    ("a pod that is refused is told in the status", |place| refusals(place).boxed()),
    ("a changed cluster is recreated if asked", |place| recreates(place).boxed()),
    ("a job gets a cluster, runs to its end, and its cluster goes", |place| runs_jobs(place).boxed()),
    ("a cron job makes jobs when it is time", |place| keeps_time(place).boxed()),
    ("a service gets a cluster that serves, and Services that lead to it", |place| serves(place).boxed()),
];

/// A cluster with one group.
fn cluster(name: &str, replicas: i32) -> Value {
    let template = |name: &str| {
        json!({"spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": name, "image": "example.invalid/ray", "resources": {"requests": {"cpu": "100m"}}}],
        }})
    };
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name},
        "spec": {
            "rayVersion": "2.53.0",
            "headGroupSpec": {"template": template("ray-head")},
            "workerGroupSpecs": [{
                "groupName": "small", "replicas": replicas, "minReplicas": 0, "maxReplicas": 10,
                "template": template("ray-worker"),
            }],
        },
    })
}

fn is_ready(cluster: &RayCluster, workers: i32) -> bool {
    cluster.status.as_ref().is_some_and(|status| {
        status.state.as_deref() == Some("ready") && status.ready_worker_replicas == Some(workers)
    })
}

async fn comes_up(place: Place) -> Result<()> {
    place.create::<RayCluster>(cluster("demo", 2)).await?;
    let ready = place.until::<RayCluster>("demo", |cluster| is_ready(cluster, 2)).await?;
    let pods = place.pods("demo", |pods| running(pods) == 3).await?;
    ensure!(pods.iter().all(|pod| pod.metadata.owner_references.as_ref().is_some_and(|all| all.len() == 1)));
    let service = place.until::<Service>("demo-head-svc", |_| true).await?;
    ensure!(service.spec.is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None")));
    let head = ready.status.unwrap_or_default().head.unwrap_or_default();
    ensure!(head.pod_ip.is_some() && head.service_name.as_deref() == Some("demo-head-svc"), "{head:?}");
    place.event("demo", "CreatedHeadPod").await?;
    place.delete::<RayCluster>("demo").await?;
    place.pods("demo", <[Pod]>::is_empty).await?;
    place.end().await;
    Ok(())
}

async fn scales(place: Place) -> Result<()> {
    place.create::<RayCluster>(cluster("demo", 1)).await?;
    place.until::<RayCluster>("demo", |cluster| is_ready(cluster, 1)).await?;
    place.scale("demo", json!({"replicas": 4})).await?;
    let four = place.pods("demo", |pods| running(pods) == 5).await?;
    let victim = four.iter().find_map(|pod| pod.metadata.name.clone().filter(|name| name.contains("worker")));
    let victim = victim.unwrap_or_default();
    place.scale("demo", json!({"replicas": 3, "scaleStrategy": {"workersToDelete": [victim]}})).await?;
    let three = place.pods("demo", |pods| pods.len() == 4).await?;
    ensure!(!names(&three).contains(&victim), "{victim} was to go");
    place.scale("demo", json!({"replicas": 0})).await?;
    place.pods("demo", |pods| pods.len() == 1).await?;
    place.end().await;
    Ok(())
}

async fn replaces(place: Place) -> Result<()> {
    place.create::<RayCluster>(cluster("demo", 2)).await?;
    let before = names(&place.pods("demo", |pods| running(pods) == 3).await?);
    for part in ["-head-", "-worker-"] {
        let victim = before.iter().find(|name| name.contains(part)).cloned().unwrap_or_default();
        place.annotate_pod(&victim, "node.quintet.dev/evict", "by a test").await?;
        let after = place.pods("demo", |pods| running(pods) == 3 && !names(pods).contains(&victim)).await?;
        ensure!(after.len() == 3);
    }
    place.end().await;
    Ok(())
}

async fn suspends(place: Place) -> Result<()> {
    place.create::<RayCluster>(cluster("demo", 1)).await?;
    let before = names(&place.pods("demo", |pods| running(pods) == 2).await?);
    place.patch::<RayCluster>("demo", json!({"spec": {"suspend": true}})).await?;
    place
        .until::<RayCluster>("demo", |cluster| {
            cluster.status.as_ref().is_some_and(|status| status.state.as_deref() == Some("suspended"))
        })
        .await?;
    place.pods("demo", <[Pod]>::is_empty).await?;
    place.patch::<RayCluster>("demo", json!({"spec": {"suspend": false}})).await?;
    let after = names(&place.pods("demo", |pods| running(pods) == 2).await?);
    ensure!(before.is_disjoint(&after), "new pods have new names");
    place.until::<RayCluster>("demo", |cluster| is_ready(cluster, 1)).await?;
    place.end().await;
    Ok(())
}

async fn replicas(place: Place) -> Result<()> {
    let mut slices = cluster("demo", 2);
    slices["spec"]["workerGroupSpecs"][0]["numOfHosts"] = 2.into();
    place.create::<RayCluster>(slices).await?;
    let pods = place.pods("demo", |pods| running(pods) == 5).await?;
    place.until::<Service>("demo-headless", |_| true).await?;
    let label = |pod: &Pod, name: &str| pod.metadata.labels.as_ref().and_then(|all| all.get(name).cloned());
    let replica = "ray.io/worker-group-replica-name";
    let victim = pods.iter().find(|pod| label(pod, replica).is_some()).unwrap();
    let of_victim: BTreeSet<_> = pods
        .iter()
        .filter(|pod| label(pod, replica) == label(victim, replica))
        .filter_map(|pod| pod.metadata.name.clone())
        .collect();
    place
        .annotate_pod(victim.metadata.name.as_deref().unwrap_or_default(), "node.quintet.dev/evict", "x")
        .await?;
    let after = place.pods("demo", |pods| running(pods) == 5 && names(pods).is_disjoint(&of_victim)).await?;
    let kept = names(&pods).difference(&of_victim).cloned().collect::<BTreeSet<_>>();
    ensure!(kept.is_subset(&names(&after)), "the other replica stays");
    place.end().await;
    Ok(())
}

async fn autoscales(place: Place) -> Result<()> {
    let mut elastic = cluster("demo", 0);
    elastic["spec"]["enableInTreeAutoscaling"] = true.into();
    elastic["spec"]["headGroupSpec"]["enableIngress"] = true.into();
    elastic["metadata"]["annotations"] = json!({"kubernetes.io/ingress.class": "nginx", "team": "a"});
    place.create::<RayCluster>(elastic).await?;
    place.until::<ServiceAccount>("demo", |_| true).await?;
    place.until::<Role>("demo", |role| role.rules.as_ref().is_some_and(|rules| rules.len() == 3)).await?;
    place.until::<RoleBinding>("demo", |_| true).await?;
    let ingress = place.until::<Ingress>("demo-head-ingress", |_| true).await?;
    ensure!(ingress.spec.is_some_and(|spec| spec.ingress_class_name.as_deref() == Some("nginx")));
    place.patch::<RayCluster>("demo", json!({"metadata": {"annotations": {"team": "b"}}})).await?;
    place
        .until::<Ingress>("demo-head-ingress", |ingress| {
            ingress
                .metadata
                .annotations
                .as_ref()
                .is_some_and(|all| all.get("team").is_some_and(|team| team == "b"))
        })
        .await?;
    let pods = place.pods("demo", |pods| running(pods) == 1).await?;
    let containers = pods[0].spec.as_ref().map(|spec| spec.containers.len());
    ensure!(containers == Some(2), "an autoscaler beside the head");
    place.end().await;
    Ok(())
}

async fn finalizes(place: Place) -> Result<()> {
    let mut steady = cluster("demo", 1);
    steady["spec"]["gcsFaultToleranceOptions"] = json!({"redisAddress": "redis:6379"});
    steady["metadata"]["annotations"] = json!({"ray.io/gcs-ft-deletion-timeout": "5"});
    place.create::<RayCluster>(steady).await?;
    place.until::<RayCluster>("demo", |cluster| is_ready(cluster, 1)).await?;
    place.delete::<RayCluster>("demo").await?;
    place.until::<Job>("demo-redis-cleanup", |_| true).await?;
    place.gone::<RayCluster>("demo").await?;
    place.end().await;
    Ok(())
}

async fn accepts_a_fixed_spec(place: Place) -> Result<()> {
    let mut wrong = cluster("demo", 1);
    wrong["spec"]["workerGroupSpecs"][0]["minReplicas"] = 20.into();
    place.create::<RayCluster>(wrong).await?;
    place.event("demo", "InvalidRayClusterSpec").await?;
    ensure!(place.pods("demo", |_| true).await?.is_empty());
    place.scale("demo", json!({"minReplicas": 0})).await?;
    place.until::<RayCluster>("demo", |cluster| is_ready(cluster, 1)).await?;
    place.end().await;
    Ok(())
}

async fn checks_quantities(place: Place) -> Result<()> {
    let mut wrong = cluster("demo", 1);
    let scratch = json!([{"name": "scratch", "emptyDir": {"sizeLimit": "much"}}]);
    wrong["spec"]["headGroupSpec"]["template"]["spec"]["volumes"] = scratch;
    let Err(error) = place.create::<RayCluster>(wrong).await else { bail!("it was created") };
    let Some(kube::Error::Api(refusal)) = error.downcast_ref::<kube::Error>() else {
        bail!("not refused by the API: {error:#}");
    };
    ensure!(refusal.code == 422, "{refusal:?}");
    ensure!(refusal.message.contains("emptyDir.sizeLimit"), "{}", refusal.message);
    place.end().await;
    Ok(())
}

async fn refusals(place: Place) -> Result<()> {
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}});
    place.create::<k8s_openapi::api::core::v1::ResourceQuota>(quota).await?;
    place
        .until::<k8s_openapi::api::core::v1::ResourceQuota>("few", |quota| {
            quota.status.as_ref().is_some_and(|status| status.hard.is_some())
        })
        .await?;
    place.create::<RayCluster>(cluster("demo", 3)).await?;
    let failure = |cluster: &RayCluster| {
        let conditions =
            cluster.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|one| one.type_ == "ReplicaFailure" && one.status == "True")
    };
    let refused = place.until::<RayCluster>("demo", |cluster| failure(cluster).is_some()).await?;
    let message = failure(&refused).map(|one| one.message).unwrap_or_default();
    ensure!(message.contains("quota"), "{message}");
    place.scale("demo", json!({"replicas": 1})).await?;
    place.until::<RayCluster>("demo", |cluster| failure(cluster).is_none() && is_ready(cluster, 1)).await?;
    place.end().await;
    Ok(())
}

async fn recreates(place: Place) -> Result<()> {
    let mut changing = cluster("demo", 1);
    changing["spec"]["upgradeStrategy"] = json!({"type": "Recreate"});
    place.create::<RayCluster>(changing).await?;
    let before = names(&place.pods("demo", |pods| running(pods) == 2).await?);
    place.patch::<RayCluster>("demo", json!({"spec": {"rayVersion": "2.54.0"}})).await?;
    place.pods("demo", |pods| running(pods) == 2 && names(pods).is_disjoint(&before)).await?;
    place.end().await;
    Ok(())
}

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name},
        "spec": {
            "entrypoint": "python train.py", "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true,
            "rayClusterSpec": cluster("x", 1)["spec"],
        },
    })
}

async fn runs_jobs(place: Place) -> Result<()> {
    Box::pin(place.create::<RayJob>(job("train"))).await?;
    let done = place
        .until::<RayJob>("train", |job| {
            job.status
                .as_ref()
                .is_some_and(|status| status.job_deployment_status.as_deref() == Some("Complete"))
        })
        .await?;
    let status = done.status.unwrap_or_default();
    ensure!(status.job_status.as_deref() == Some("SUCCEEDED") && status.succeeded == Some(1), "{status:?}");
    let cluster = status.ray_cluster_name.unwrap_or_default();
    place.gone::<RayCluster>(&cluster).await?;
    place.pods(&cluster, <[Pod]>::is_empty).await?;
    place.delete::<RayJob>("train").await?;
    place.gone::<RayJob>("train").await?;
    place.end().await;
    Ok(())
}

async fn keeps_time(place: Place) -> Result<()> {
    let cron = json!({
        "metadata": {"name": "often"},
        "spec": {"schedule": "@every 1s", "jobTemplate": job("x")["spec"]},
    });
    Box::pin(place.create::<RayCronJob>(cron)).await?;
    place
        .until::<RayCronJob>("often", |cron| {
            cron.status.as_ref().is_some_and(|status| status.last_schedule_time.is_some())
        })
        .await?;
    let jobs = place.list::<RayJob>().await?;
    let is_its = |job: &RayJob| {
        job.metadata
            .labels
            .as_ref()
            .is_some_and(|all| all.get("ray.io/cronjob-name").is_some_and(|one| one == "often"))
    };
    ensure!(!jobs.is_empty() && jobs.iter().all(is_its));
    place.delete::<RayCronJob>("often").await?;
    place.end().await;
    Ok(())
}

async fn serves(place: Place) -> Result<()> {
    let service = json!({
        "metadata": {"name": "chat"},
        "spec": {
            "serveConfigV2": "applications: [{name: chat, import_path: 'chat:app'}]",
            "rayClusterConfig": cluster("x", 1)["spec"],
        },
    });
    place.create::<RayService>(service).await?;
    let serving = place
        .until::<RayService>("chat", |service| {
            let active = service.status.as_ref().and_then(|status| status.active_service_status.as_ref());
            active.is_some_and(|active| active.ray_cluster_name.is_some())
        })
        .await?;
    let active = serving.status.and_then(|status| status.active_service_status).unwrap_or_default();
    let cluster = active.ray_cluster_name.unwrap_or_default();
    for name in ["chat-head-svc", "chat-serve-svc"] {
        let service = place.until::<Service>(name, |_| true).await?;
        let selector = service.spec.and_then(|spec| spec.selector).unwrap_or_default();
        ensure!(selector.get("ray.io/cluster") == Some(&cluster), "{name} leads to {selector:?}");
    }
    place.delete::<RayService>("chat").await?;
    place.gone::<RayService>("chat").await?;
    place.end().await;
    Ok(())
}

/// A cluster as upstream's operator would have left it, with pods that run.
async fn what_upstream_left(place: &Place) -> Vec<Pod> {
    let made = place.create::<RayCluster>(cluster("old", 2)).await.unwrap();
    let owner = json!([{
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "old", "uid": made.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let labels = |node_type: &str, group: &str| {
        json!({
            "ray.io/is-ray-node": "yes", "ray.io/cluster": "old", "ray.io/node-type": node_type, "ray.io/group": group,
            "ray.io/identifier": format!("old-{node_type}"), "app.kubernetes.io/name": "kuberay",
            "app.kubernetes.io/created-by": "kuberay-operator",
        })
    };
    let pod = |name: &str, node_type: &str, group: &str, index: Option<&str>| {
        let mut all = labels(node_type, group);
        if let Some(index) = index {
            all["ray.io/worker-group-replica-index"] = index.into();
        }
        let annotations = if node_type == "head" {
            json!({"ray.io/kuberay-version": "v1.6.0", "ray.io/ft-enabled": "false",
                   "ray.io/upgrade-strategy-recreate-hash": "0123456789ABCDEFGHIJKLMNOPQRSTUV"})
        } else {
            json!({})
        };
        json!({
            "metadata": {"name": name, "labels": all, "annotations": annotations, "ownerReferences": owner},
            "spec": {"containers": [{"name": "ray", "image": "example.invalid/ray"}]},
        })
    };
    for one in [
        pod("old-head-abcde", "head", "headgroup", None),
        pod("old-small-worker-fghij", "worker", "small", Some("0")),
        pod("old-small-worker-klmno", "worker", "small", Some("1")),
    ] {
        place.create::<Pod>(one).await.unwrap();
    }
    let mut head_labels = labels("head", "");
    head_labels
        .as_object_mut()
        .unwrap()
        .retain(|name, _| !name.ends_with("group") && !name.ends_with("ray-node"));
    let service = json!({
        "metadata": {"name": "old-head-svc", "labels": head_labels, "ownerReferences": owner},
        "spec": {"clusterIP": "None", "selector": head_labels, "ports": [{"name": "dashboard", "port": 8265}]},
    });
    place.create::<Service>(service).await.unwrap();
    place.pods("old", |pods| running(pods) == 3).await.unwrap()
}

async fn is_taken_over(place: &Place, before: Vec<Pod>) -> Result<()> {
    place.until::<RayCluster>("old", |cluster| is_ready(cluster, 2)).await?;
    let after = place.pods("old", |pods| pods.len() == before.len()).await?;
    let identities =
        |pods: &[Pod]| -> BTreeSet<_> { pods.iter().map(|pod| pod.metadata.uid.clone()).collect() };
    ensure!(identities(&before) == identities(&after), "the pods are the same ones");
    ensure!(after.iter().all(|pod| phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none()));
    let services = place.list::<Service>().await?;
    ensure!(services.len() == 1, "the Service is used as it is: {:?}", services.len());
    place.scale("old", json!({"replicas": 3})).await?;
    let grown = place.pods("old", |pods| running(pods) == 4).await?;
    ensure!(identities(&before).is_subset(&identities(&grown)));
    Ok(())
}
