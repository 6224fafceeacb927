//! Defaults and rules of built-in kinds that users notice.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::world::repeat;
use crate::{Answer, World};

cases! { "kinds":
    "a pod gets its defaults" => pod_defaults,
    "a pod without containers is refused" => pod_without_containers,
    "requests may not exceed limits" => requests_over_limits,
    "most of a pod cannot be changed" => pod_immutable,
    "tolerations of a pod can be replaced: those of every pod are added again" => replaced_tolerations,
    "ephemeral containers are added, and count as a change of the pod" => ephemeral_containers,
    "names of kernel parameters are checked" => sysctl_names,
    "a daemon set counts its templates" => daemon_set,
    "an IPAddress is named by an address in canonical form" => ip_address,
    "a service gets an address, a headless one does not" => service_address,
    "a service cannot change its address" => service_immutable,
    "a deployment gets its defaults, and its selector stays" => deployment,
    "a selector must match its template" => selector_mismatch,
    "a job gets its selector and labels" => job,
    "a cron job needs a real schedule" => cron_job,
    "templates show their metadata, also if there is none" => template_metadata,
    "text of a secret becomes data" => secret,
    "a quantity that is none is refused" => bad_quantity,
    "limits of a namespace become defaults" => limit_range,
    "a quota is kept" => quota,
    "limits that contradict each other are refused" => contradicting_limits,
    "counts in a status begin at zero" => counts,
    "a place that cannot be is refused" => impossible_place,
    "an event is about something in its namespace" => foreign_event,
    "a binding names the pod of its path" => binding_name,
    "a priority class gives a pod its priority" => priority,
    "every namespace has a default service account" => service_account,
    "the certificates in every namespace are restored" => root_authority,
    "a lease can be held and handed over" => lease,
    "events can be counted up" => events,
}

pub(super) fn pod(name: &str, container: Value) -> Value {
    let mut full = json!({ "name": "c", "image": "example.invalid/image:1" });
    if let (Some(target), Value::Object(more)) = (full.as_object_mut(), container) {
        target.extend(more);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        // Nothing may run: no node has this name.
        "spec": { "schedulerName": "nobody", "containers": [full] },
    })
}

/// Pods are refused until the namespace has its service account.
pub(super) async fn with_account(world: &World) -> anyhow::Result<()> {
    let path = world.core("serviceaccounts/default");
    world.eventually(&path, "a default service account", |answer| answer.code == 200).await.map(drop)
}

async fn pod_defaults(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    let body =
        pod("p", json!({ "resources": { "limits": { "cpu": "1" } }, "ports": [{ "containerPort": 80 }] }));
    let made = world.post(&world.core("pods"), &body).await?.expect(201)?;
    let (spec, container) = (&made["spec"], &made["spec"]["containers"][0]);
    ensure!(spec["restartPolicy"] == "Always" && spec["dnsPolicy"] == "ClusterFirst", "{spec}");
    ensure!(spec["terminationGracePeriodSeconds"] == 30 && spec["serviceAccountName"] == "default", "{spec}");
    ensure!(
        container["imagePullPolicy"] == "IfNotPresent" && container["ports"][0]["protocol"] == "TCP",
        "{container}"
    );
    ensure!(container["resources"]["requests"]["cpu"] == "1", "requests come from limits: {container}");
    ensure!(container["terminationMessagePath"] == "/dev/termination-log", "{container}");
    ensure!(made["status"]["phase"] == "Pending" && made["status"]["qosClass"] == "Burstable", "{made}");
    Ok(())
}

async fn pod_without_containers(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    let body = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": { "containers": [] } });
    world.post(&world.core("pods"), &body).await?.expect_status(
        422,
        "Invalid",
        "spec.containers: Required value",
    )?;
    Ok(())
}

async fn requests_over_limits(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    let body = pod("p", json!({ "resources": { "limits": { "cpu": "1" }, "requests": { "cpu": "2" } } }));
    let answer = world.post(&world.core("pods"), &body).await?;
    let message = "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1";
    answer.expect_status(422, "Invalid", message)?;
    Ok(())
}

async fn pod_immutable(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    world.post(&world.core("pods"), &pod("p", json!({}))).await?.expect(201)?;
    let path = world.core("pods/p");
    let patch = json!({ "spec": { "hostname": "other" } });
    let answer = world.patch(&path, "merge-patch+json", &patch).await?;
    answer.expect_status(422, "Invalid", "spec: Forbidden: pod updates may not change fields other than")?;
    let patch = json!({ "spec": { "containers": [{ "name": "c", "image": "example.invalid/image:2" }] } });
    let patched = world.patch(&path, "strategic-merge-patch+json", &patch).await?.expect(200)?;
    ensure!(patched["spec"]["containers"][0]["image"] == "example.invalid/image:2", "{patched}");
    Ok(())
}

fn service(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": spec })
}

async fn replaced_tolerations(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    let made = world.post(&world.core("pods"), &pod("p", json!({}))).await?.expect(201)?;
    let default = made["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    ensure!(default.len() == 2, "{made}");
    let own = json!({ "key": "example.com/busy", "operator": "Exists", "effect": "NoSchedule" });
    let patch = json!([{ "op": "replace", "path": "/spec/tolerations", "value": [own] }]);
    let path = world.core("pods/p");
    let changed = world.patch(&path, "json-patch+json", &patch).await?.expect(200)?;
    let expected = json!([own, default[0], default[1]]);
    ensure!(changed["spec"]["tolerations"] == expected, "{changed}");
    let patch = json!([{ "op": "replace", "path": "/spec/tolerations/0/effect", "value": "NoExecute" }]);
    let answer = world.patch(&path, "json-patch+json", &patch).await?;
    let message =
        "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds";
    answer.expect_status(422, "Invalid", message)?;
    Ok(())
}

async fn ephemeral_containers(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    world.post(&world.core("pods"), &pod("p", json!({}))).await?.expect(201)?;
    let path = world.core("pods/p/ephemeralcontainers");
    let container = json!({ "name": "debugger", "image": "example.invalid/image:1" });
    let patch = json!({ "spec": { "ephemeralContainers": [container] } });
    let changed = world.patch(&path, "strategic-merge-patch+json", &patch).await?.expect(200)?;
    ensure!(changed["metadata"]["generation"] == 2, "{changed}");
    ensure!(changed["spec"]["ephemeralContainers"][0]["name"] == "debugger", "{changed}");
    let patch = json!({ "metadata": { "labels": { "a": "b" } } });
    let same = world.patch(&path, "strategic-merge-patch+json", &patch).await?.expect(200)?;
    ensure!(same["metadata"]["generation"] == 2, "{same}");
    Ok(())
}

async fn sysctl_names(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    let mut body = pod("p", json!({}));
    let named = |name: &str| json!({ "name": name, "value": "1" });
    body["spec"]["securityContext"] = json!({ "sysctls": [named("foo-"), named("kernel.shmmax"), named("safe-and-unsafe"), named("bar.."), named("")] });
    let answer = world.post(&world.core("pods"), &body).await?;
    let rule = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let at = |index: usize, name: &str| {
        format!("spec.securityContext.sysctls[{index}].name: Invalid value: {name:?}: {rule}")
    };
    let message = format!(
        "[{}, {}, spec.securityContext.sysctls[4].name: Required value]",
        at(0, "foo-"),
        at(3, "bar..")
    );
    answer.expect_status(422, "Invalid", &message)?;
    Ok(())
}

async fn daemon_set(world: World) -> anyhow::Result<()> {
    let path = world.path("apps/v1", "daemonsets");
    let mut template = pod("unused", json!({}));
    template["metadata"] = json!({ "labels": { "a": "b" } });
    let body = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "d" }, "spec": {
        "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": template["metadata"], "spec": template["spec"] },
    } });
    let generation = |object: &Value| {
        object["metadata"]["annotations"]["deprecated.daemonset.template.generation"].clone()
    };
    let made = world.post(&path, &body).await?.expect(201)?;
    ensure!(generation(&made) == "1", "{made}");
    let path = format!("{path}/d");
    let patch = json!({ "spec": { "template": { "metadata": { "labels": { "a": "b", "c": "d" } } } } });
    let changed = world.patch(&path, "merge-patch+json", &patch).await?.expect(200)?;
    ensure!(generation(&changed) == "2", "{changed}");
    // Only the server counts, and only templates.
    let patch = json!({ "metadata": { "annotations": { "deprecated.daemonset.template.generation": "7" } },
        "spec": { "minReadySeconds": 3 } });
    let changed = world.patch(&path, "merge-patch+json", &patch).await?.expect(200)?;
    ensure!(generation(&changed) == "2" && changed["metadata"]["generation"] == 3, "{changed}");
    Ok(())
}

async fn ip_address(world: World) -> anyhow::Result<()> {
    let path = "/apis/networking.k8s.io/v1/ipaddresses?dryRun=All";
    let body = |name: &str| {
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": { "name": name }, "spec": {
            "parentRef": { "resource": "services", "name": "s", "namespace": world.namespace },
        } })
    };
    for (name, problem) in [
        ("noip", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("2001:0db8::1", "must be in canonical form (\"2001:db8::1\")"),
        ("10.01.2.3", "must not have leading 0s"),
        ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
    ] {
        let message = format!("metadata.name: Invalid value: {name:?}: {problem}");
        world.post(path, &body(name)).await?.expect_status(422, "Invalid", &message)?;
    }
    world.post(path, &body("2001:db8::1")).await?.expect(201)?;
    let mut lonely = body("192.0.2.7");
    lonely["spec"] = json!({});
    world.post(path, &lonely).await?.expect_status(422, "Invalid", "spec.parentRef: Required value")?;
    Ok(())
}

async fn service_address(world: World) -> anyhow::Result<()> {
    let body = service("s", &json!({ "selector": { "a": "b" }, "ports": [{ "port": 80 }] }));
    let made = world.post(&world.core("services"), &body).await?.expect(201)?;
    let spec = &made["spec"];
    ensure!(spec["type"] == "ClusterIP" && spec["sessionAffinity"] == "None", "{spec}");
    ensure!(spec["clusterIP"].as_str().is_some_and(|ip| ip.parse::<std::net::IpAddr>().is_ok()), "{spec}");
    ensure!(
        spec["clusterIPs"] == json!([spec["clusterIP"]]) && spec["ipFamilyPolicy"] == "SingleStack",
        "{spec}"
    );
    ensure!(spec["ports"][0]["targetPort"] == 80 && spec["ports"][0]["protocol"] == "TCP", "{spec}");
    let body =
        service("h", &json!({ "clusterIP": "None", "selector": { "a": "b" }, "ports": [{ "port": 80 }] }));
    let made = world.post(&world.core("services"), &body).await?.expect(201)?;
    ensure!(made["spec"]["clusterIP"] == "None" && made["spec"]["clusterIPs"] == json!(["None"]), "{made}");
    Ok(())
}

async fn service_immutable(world: World) -> anyhow::Result<()> {
    let body = service("s", &json!({ "selector": { "a": "b" }, "ports": [{ "port": 80 }] }));
    let mut made = world.post(&world.core("services"), &body).await?.expect(201)?;
    made["spec"]["clusterIP"] = json!("None");
    made["spec"]["clusterIPs"] = json!(["None"]);
    let answer = world.put(&world.core("services/s"), &made).await?;
    answer.expect_status(422, "Invalid", "may not change once set")?;
    Ok(())
}

fn workload(kind: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": "w" },
        "spec": {
            "replicas": 0, "selector": { "matchLabels": { "app": "w" } },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "c", "image": "example.invalid/image:1" }] },
            },
        },
    })
}

async fn deployment(world: World) -> anyhow::Result<()> {
    let path = world.path("apps/v1", "deployments");
    let made = world.post(&path, &workload("Deployment", &json!({ "app": "w" }))).await?.expect(201)?;
    let spec = &made["spec"];
    let rolling =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } });
    ensure!(spec["strategy"] == rolling && spec["revisionHistoryLimit"] == 10, "{spec}");
    ensure!(spec["progressDeadlineSeconds"] == 600, "{spec}");
    let patch = json!({ "spec": {
        "selector": { "matchLabels": { "app": "x" } }, "template": { "metadata": { "labels": { "app": "x" } } },
    } });
    let answer = world.patch(&format!("{path}/w"), "merge-patch+json", &patch).await?;
    answer.expect_status(422, "Invalid", "field is immutable")?;
    Ok(())
}

async fn selector_mismatch(world: World) -> anyhow::Result<()> {
    for (kind, resource) in [("Deployment", "deployments"), ("ReplicaSet", "replicasets")] {
        let body = workload(kind, &json!({ "app": "other" }));
        let answer = world.post(&world.path("apps/v1", resource), &body).await?;
        let message = "spec.template.metadata.labels: Invalid value: {\"app\":\"other\"}: `selector` does not match template `labels`";
        answer.expect_status(422, "Invalid", message)?;
    }
    Ok(())
}

async fn job(world: World) -> anyhow::Result<()> {
    let body = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j" },
        "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example.invalid/image:1" }],
        } } },
    });
    let path = world.path("batch/v1", "jobs");
    let made = world.post(&path, &body).await?.expect(201)?;
    let (spec, uid) = (&made["spec"], &made["metadata"]["uid"]);
    ensure!(spec["parallelism"] == 1 && spec["completions"] == 1 && spec["backoffLimit"] == 6, "{spec}");
    ensure!(spec["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] == *uid, "{spec}");
    ensure!(spec["template"]["metadata"]["labels"]["job-name"] == "j", "{spec}");
    let mut wrong = body;
    wrong["metadata"]["name"] = json!("k");
    wrong["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    world.post(&path, &wrong).await?.expect_status(422, "Invalid", "spec.template.spec.restartPolicy")?;
    Ok(())
}

async fn cron_job(world: World) -> anyhow::Result<()> {
    let body = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "j" },
        "spec": { "schedule": "bad", "jobTemplate": { "spec": { "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example.invalid/image:1" }],
        } } } } },
    });
    let answer = world.post(&world.path("batch/v1", "cronjobs"), &body).await?;
    let message = "spec.schedule: Invalid value: \"bad\": expected exactly 5 fields, found 1: [bad]";
    answer.expect_status(422, "Invalid", message)?;
    Ok(())
}

async fn template_metadata(world: World) -> anyhow::Result<()> {
    let path = format!("{}?dryRun=All", world.path("batch/v1", "cronjobs"));
    let mut spec = pod("unused", json!({}))["spec"].take();
    spec["restartPolicy"] = json!("Never");
    let body = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "c" }, "spec": {
        "schedule": "* * * * *", "jobTemplate": { "spec": { "template": { "spec": spec } } },
    } });
    let made = world.post(&path, &body).await?.expect(201)?;
    let job = &made["spec"]["jobTemplate"];
    ensure!(job["metadata"] == json!({}) && job["spec"]["template"]["metadata"] == json!({}), "{job}");
    let path = format!("{}?dryRun=All", world.path("networking.k8s.io/v1", "networkpolicies"));
    let body = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": "n" }, "spec": {} });
    let made = world.post(&path, &body).await?.expect(201)?;
    ensure!(made["spec"]["podSelector"] == json!({}), "{made}");
    Ok(())
}

async fn secret(world: World) -> anyhow::Result<()> {
    let body = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "stringData": { "k": "hello" },
    });
    let made = world.post(&world.core("secrets"), &body).await?.expect(201)?;
    ensure!(made["data"] == json!({ "k": "aGVsbG8=" }) && made.get("stringData").is_none(), "{made}");
    ensure!(made["type"] == "Opaque", "{made}");
    let answer =
        world.patch(&world.core("secrets/s"), "merge-patch+json", &json!({ "type": "other" })).await?;
    answer.expect_status(422, "Invalid", "type: Invalid value: \"other\": field is immutable")?;
    Ok(())
}

async fn bad_quantity(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    let body = pod("p", json!({ "resources": { "limits": { "cpu": "lots" } } }));
    let answer = world.post(&world.core("pods"), &body).await?;
    answer.expect_status(400, "BadRequest", "quantities must match the regular expression")?;
    Ok(())
}

async fn limit_range(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    let body = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "l" },
        "spec": { "limits": [{
            "type": "Container", "default": { "cpu": "500m" }, "defaultRequest": { "cpu": "250m" }, "max": { "cpu": "1" },
        }] },
    });
    world.post(&world.core("limitranges"), &body).await?.expect(201)?;
    let path = world.core("pods");
    let probe = format!("{path}?dryRun=All");
    // Admission reads limits from a cache that may lag.
    let plain = pod("p", json!({}));
    let has_limits =
        |answer: &Answer| answer.body["spec"]["containers"][0]["resources"]["limits"].is_object();
    let made = repeat("a limit range", || world.post(&probe, &plain), has_limits).await?.body;
    let expected = json!({ "limits": { "cpu": "500m" }, "requests": { "cpu": "250m" } });
    ensure!(made["spec"]["containers"][0]["resources"] == expected, "{made}");
    let body = pod("q", json!({ "resources": { "limits": { "cpu": "2" } } }));
    let answer = world.post(&path, &body).await?;
    answer.expect_status(403, "Forbidden", "maximum cpu usage per Container is 1, but limit is 2")?;
    Ok(())
}

async fn quota(world: World) -> anyhow::Result<()> {
    let body = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "q" },
        "spec": { "hard": { "count/secrets": "1" } },
    });
    world.post(&world.core("resourcequotas"), &body).await?.expect(201)?;
    let is_counted = |answer: &Answer| answer.body["status"]["used"]["count/secrets"].is_string();
    world.eventually(&world.core("resourcequotas/q"), "a counted quota", is_counted).await?;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "generateName": "s-" } });
    let secrets = world.core("secrets");
    // Admission may hear of the quota a moment after we do, and let some through uncounted.
    let answer = repeat("the quota", || world.post(&secrets, &secret), |answer| answer.code != 201).await?;
    let message = "exceeded quota: q, requested: count/secrets=1, used: count/secrets=";
    let status = answer.expect_status(403, "Forbidden", message)?;
    ensure!(status.to_string().contains("limited: count/secrets=1"), "{status}");
    Ok(())
}

async fn priority(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    let name = format!("high-{}", world.unique);
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name }, "value": 7,
    });
    world.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?.expect(201)?;
    let mut body = pod("p", json!({}));
    body["spec"]["priorityClassName"] = json!(name);
    let pods = world.core("pods");
    let answer = repeat("a priority class", || world.post(&pods, &body), |answer| answer.code == 201).await?;
    let made = answer.expect(201)?;
    ensure!(
        made["spec"]["priority"] == 7 && made["spec"]["preemptionPolicy"] == "PreemptLowerPriority",
        "{made}"
    );
    world.delete(&format!("/apis/scheduling.k8s.io/v1/priorityclasses/{name}"), None).await?.expect(200)?;
    body["metadata"]["name"] = json!("q");
    body["spec"]["priorityClassName"] = json!("no-such-class");
    let answer = world.post(&world.core("pods"), &body).await?;
    answer.expect_status(403, "Forbidden", "no PriorityClass with name no-such-class was found")?;
    Ok(())
}

async fn service_account(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    let path = world.core("configmaps/kube-root-ca.crt");
    world
        .eventually(&path, "the cluster's certificate", |answer| answer.body["data"]["ca.crt"].is_string())
        .await?;
    Ok(())
}

async fn root_authority(world: World) -> anyhow::Result<()> {
    let path = world.core("configmaps/kube-root-ca.crt");
    let is_there = |answer: &Answer| answer.body["data"]["ca.crt"].is_string();
    let data = world.eventually(&path, "the cluster's certificate", is_there).await?.body["data"].take();
    world.delete(&path, None).await?.expect(200)?;
    world.eventually(&path, "a new ConfigMap", |answer| answer.body["data"] == data).await?;
    let patch = json!({ "data": { "ca.crt": "another", "more": "text" } });
    world.patch(&path, "merge-patch+json", &patch).await?.expect(200)?;
    world.eventually(&path, "the old content", |answer| answer.body["data"] == data).await?;
    Ok(())
}

async fn lease(world: World) -> anyhow::Result<()> {
    let path = world.path("coordination.k8s.io/v1", "leases");
    let body = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "l" },
        "spec": { "holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2025-01-01T00:00:00.000000Z" },
    });
    let mut made = world.post(&path, &body).await?.expect(201)?;
    made["spec"]["holderIdentity"] = json!("b");
    let first = world.put(&format!("{path}/l"), &made).await?.expect(200)?;
    ensure!(first["spec"]["renewTime"] == "2025-01-01T00:00:00.000000Z", "{first}");
    world.put(&format!("{path}/l"), &made).await?.expect(409)?;
    Ok(())
}

async fn events(world: World) -> anyhow::Result<()> {
    let body = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e" },
        "involvedObject": { "kind": "ConfigMap", "name": "a", "namespace": world.namespace },
        "reason": "Because", "message": "it happened", "type": "Normal", "count": 1,
    });
    world.post(&world.core("events"), &body).await?.expect(201)?;
    let patch = json!({ "count": 2 });
    let patched =
        world.patch(&world.core("events/e"), "strategic-merge-patch+json", &patch).await?.expect(200)?;
    ensure!(patched["count"] == 2, "{patched}");
    let selector = "fieldSelector=involvedObject.name%3Da,reason%3DBecause";
    let list = world.get(&format!("{}?{selector}", world.core("events"))).await?.expect(200)?;
    ensure!(list["items"].as_array().is_some_and(|items| items.len() == 1), "{list}");
    let same = world.get(&world.path("events.k8s.io/v1", "events/e")).await?.expect(200)?;
    ensure!(same["note"] == "it happened" && same["regarding"]["name"] == "a", "{same}");
    Ok(())
}

async fn contradicting_limits(world: World) -> anyhow::Result<()> {
    let body = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "l" },
        "spec": { "limits": [{ "type": "Container", "min": { "cpu": "2" }, "max": { "cpu": "1" } }] },
    });
    let message = "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1";
    world.post(&world.core("limitranges"), &body).await?.expect_status(422, "Invalid", message)?;
    Ok(())
}

async fn counts(world: World) -> anyhow::Result<()> {
    let template = json!({
        "metadata": { "labels": { "a": "b" } },
        "spec": { "containers": [{ "name": "c", "image": "example.invalid/none" }] },
    });
    let selector = json!({ "matchLabels": { "a": "b" } });
    let workload = json!({ "replicas": 0, "selector": selector, "template": template });
    let budget = json!({ "minAvailable": 1, "selector": selector });
    for (resource, group_version, kind, spec, fields) in [
        ("statefulsets", "apps/v1", "StatefulSet", &workload, &["replicas", "availableReplicas"][..]),
        ("replicasets", "apps/v1", "ReplicaSet", &workload, &["replicas"]),
        (
            "poddisruptionbudgets",
            "policy/v1",
            "PodDisruptionBudget",
            &budget,
            &["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"],
        ),
    ] {
        let body = json!({
            "apiVersion": group_version, "kind": kind, "metadata": { "name": "x" }, "spec": spec,
        });
        let made = world.post(&world.path(group_version, resource), &body).await?.expect(201)?;
        for field in fields {
            ensure!(made["status"][field] == 0, "{kind}: {field}: {made}");
        }
    }
    Ok(())
}

async fn impossible_place(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    let terms = json!({
        "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [] } } },
    });
    for (spec, message) in [
        (terms, "nodeSelectorTerms: Required value: must have at least one node selector term"),
        (
            json!({ "tolerations": [{ "operator": "Exists", "value": "x" }] }),
            "spec.tolerations[0].operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists'",
        ),
        (
            json!({ "nodeName": "BAD" }),
            "spec.nodeName: Invalid value: \"BAD\": a lowercase RFC 1123 subdomain",
        ),
    ] {
        let mut body = pod("p", json!({}));
        for (field, value) in spec.as_object().into_iter().flatten() {
            body["spec"][field] = value.clone();
        }
        world.post(&world.core("pods"), &body).await?.expect_status(422, "Invalid", message)?;
    }
    Ok(())
}

async fn foreign_event(world: World) -> anyhow::Result<()> {
    let body = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e" },
        "involvedObject": { "kind": "Pod", "name": "p", "namespace": "elsewhere" },
    });
    let message = "involvedObject.namespace: Invalid value: \"elsewhere\": does not match event.namespace";
    world.post(&world.core("events"), &body).await?.expect_status(422, "Invalid", message)?;
    Ok(())
}

async fn binding_name(world: World) -> anyhow::Result<()> {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "other" }, "target": { "name": "n" },
    });
    let answer = world.post(&world.core("pods/p/binding"), &body).await?;
    answer.expect_status(400, "BadRequest", "name in URL does not match name in Binding object")?;
    Ok(())
}
