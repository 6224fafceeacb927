mod reporting;

use quintet_api::{conditions, ray::v1::RayClusterStatus};
use quintet_controller::{Class, Next, Step, object::Uid};
use serde_json::{Value, json};

use super::{pod_names::Memory, *};
use crate::{
    pod_view::PodView,
    schedulers,
    settings::{BatchScheduler, Gates},
    testing::replayed,
    watches::JobView,
};

/// A cluster and what is there of it.
struct Scene {
    cluster: Value,
    pods: Vec<(String, Value, bool)>,
    jobs: Vec<Value>,
    services: bool,
    present: Present,
    settings: Settings,
    deleting: bool,
    now: &'static str,
}

impl Scene {
    fn new() -> Self {
        let template = json!({"spec": {"containers": [{"name": "ray", "image": "ray"}]}});
        Self {
            cluster: json!({
                "metadata": {"name": "demo", "namespace": "ns", "uid": "u", "generation": 3},
                "spec": {
                    "headGroupSpec": {"template": template},
                    "workerGroupSpecs": [{
                        "groupName": "small", "replicas": 2, "minReplicas": 0, "maxReplicas": 5,
                        "numOfHosts": 1, "template": template,
                    }],
                },
            }),
            pods: Vec::new(),
            jobs: Vec::new(),
            services: true,
            present: Present::default(),
            settings: Settings::default(),
            deleting: false,
            now: "2026-01-01T00:10:00Z",
        }
    }

    fn set(mut self, pointer: &str, value: Value) -> Self {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let place =
            if parent.is_empty() { &mut self.cluster } else { self.cluster.pointer_mut(parent).unwrap() };
        place[field] = value;
        self
    }

    fn group(self, field: &str, value: Value) -> Self {
        self.set(&format!("/spec/workerGroupSpecs/0/{field}"), value)
    }

    fn pod(mut self, name: &str, node_type: &str, group: &str, changes: Value) -> Self {
        let mut pod = json!({
            "metadata": {
                "labels": {"ray.io/cluster": "demo", "ray.io/node-type": node_type, "ray.io/group": group},
                "ownerReferences": [{"uid": "u", "controller": true}],
            },
            "spec": {"containers": [{"name": "ray"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1",
                       "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let deleting = changes["deleting"] == true;
        if let Value::Object(changes) = changes {
            for (pointer, value) in changes.into_iter().filter(|(pointer, _)| pointer != "deleting") {
                let (parent, field) = pointer.rsplit_once('/').unwrap();
                pod.pointer_mut(parent).unwrap()[field] = value;
            }
        }
        self.pods.push((name.to_owned(), pod, deleting));
        self
    }

    fn head(self, changes: Value) -> Self {
        self.pod("head", "head", "headgroup", changes)
    }

    fn worker(self, name: &str, index: u32, changes: Value) -> Self {
        let mut changes = changes;
        let mut labels =
            json!({"ray.io/cluster": "demo", "ray.io/node-type": "worker", "ray.io/group": "small"});
        labels["ray.io/worker-group-replica-index"] = index.to_string().into();
        if changes.is_null() {
            changes = json!({});
        }
        if let Some(extra) = changes.get("labels").and_then(Value::as_object).cloned() {
            for (name, value) in extra {
                labels[name] = value;
            }
            changes.as_object_mut().unwrap().remove("labels");
        }
        changes["/metadata/labels"] = labels;
        self.pod(name, "worker", "small", changes)
    }

    fn complete(self) -> Self {
        self.head(json!({})).worker("w0", 0, json!({})).worker("w1", 1, json!({}))
    }

    fn observed(&self) -> Observed {
        let object: RayCluster = serde_json::from_value(self.cluster.clone()).unwrap();
        let mut cluster = Entry::new(ObjectKey::new("ns", "demo"), object);
        cluster.uid = Uid::from("u");
        cluster.deleting = self.deleting;
        let pods = self.pods.iter().map(|(name, pod, deleting)| {
            let view = PodView::project(&pod.to_string()).unwrap();
            let mut entry = Entry::new(ObjectKey::new("ns", name), view);
            entry.deleting = *deleting;
            Arc::new(entry)
        });
        let head = json!({
            "metadata": {"labels": {"ray.io/cluster": "demo", "ray.io/node-type": "head"}},
            "spec": {"clusterIP": "None", "ports": [{"name": "dashboard", "port": 8265}]},
        });
        let head = watches::ServiceView::from_json(&head);
        let services =
            self.services.then(|| Arc::new(Entry::new(ObjectKey::new("ns", "demo-head-svc"), head)));
        let job = |job: &Value| {
            Arc::new(Entry::new(ObjectKey::new("ns", "demo-redis-cleanup"), JobView::from_json(job)))
        };
        Observed {
            settings: Arc::new(self.settings.clone()),
            now: self.now.parse().unwrap(),
            pods: pods.collect(),
            services: services.into_iter().collect(),
            cleanup_jobs: self.jobs.iter().map(job).collect(),
            ingress: None,
            present: self.present,
            claim: None,
            certificates: Ok(()),
            new_token: None,
            names: Memory::new(Some(1)).names(&cluster.uid),
            gang: None,
            cluster: Arc::new(cluster),
        }
    }

    fn plan(&self) -> Plan {
        replayed::<ClusterController>(&self.observed())
    }

    /// What the plan does, in short.
    fn deeds(&self) -> Vec<String> {
        self.plan().steps.iter().map(deed).collect()
    }

    fn pod_deeds(&self) -> Vec<String> {
        self.deeds().into_iter().filter(|deed| deed != "create Service").collect()
    }

    fn status(&self) -> RayClusterStatus {
        status::compute(&self.observed(), &Outcome::Done).unwrap_or_else(|| self.observed().status())
    }

    /// The same a reconcile later.
    fn with_status(self) -> Self {
        let status = json!(self.status());
        self.set("/status", status)
    }

    fn condition(&self, type_: &str) -> Option<(String, String)> {
        let status = self.status();
        let found = conditions::find(status.conditions.as_deref().unwrap_or_default(), type_)?.clone();
        Some((found.status, found.reason))
    }
}

fn deed(step: &Step) -> String {
    match &step.action {
        Action::Create { kind, object, .. } => {
            let labels = &object["metadata"]["labels"];
            match labels["ray.io/worker-group-replica-index"].as_str() {
                Some(index) => format!("create worker {index}"),
                None if &*kind.kind == "Pod" => "create head".to_owned(),
                None => format!("create {}", kind.kind),
            }
        }
        Action::Delete { key, .. } => format!("delete {}", key.name()),
        other => other.to_string(),
    }
}

#[test]
fn a_new_cluster_gets_everything_at_once() {
    let scene = Scene { services: false, ..Scene::new() };
    assert_eq!(scene.deeds(), ["create Service", "create head", "create worker 0", "create worker 1"],);
    let events: Vec<_> =
        scene.plan().steps.iter().filter_map(|step| Some(step.event.as_ref()?.reason.clone())).collect();
    assert_eq!(events, ["CreatedService", "CreatedHeadPod", "CreatedWorkerPod", "CreatedWorkerPod"]);
}

#[test]
fn a_settled_cluster_is_left_alone() {
    let scene = Scene::new().complete();
    assert!(scene.deeds().is_empty());
    let status = scene.status();
    let scene = scene.set("/status", serde_json::to_value(status).unwrap());
    assert!(scene.plan().is_empty(), "{:?}", scene.plan());
    assert_eq!(scene.plan().next, Next::After(Settings::default().resync));
}

#[test]
fn pods_that_have_come_to_their_end_make_room() {
    let ended = json!([{"name": "ray", "state": {"terminated": {"exitCode": 1}}}]);
    for (what, changes, goes) in [
        ("failed", json!({"/status/phase": "Failed", "/spec/restartPolicy": "Always"}), true),
        ("succeeded", json!({"/status/phase": "Succeeded"}), true),
        ("ended for good", json!({"/status/containerStatuses": ended, "/spec/restartPolicy": "Never"}), true),
        ("restarts", json!({"/status/containerStatuses": ended, "/spec/restartPolicy": "Always"}), false),
        ("pending", json!({"/status/phase": "Pending"}), false),
    ] {
        let deeds =
            Scene::new().head(changes.clone()).worker("w0", 0, json!({})).worker("w1", 1, json!({})).deeds();
        assert_eq!(deeds, if goes { vec!["delete head"] } else { vec![] }, "head {what}");
        let deeds = Scene::new().head(json!({})).worker("w0", 0, changes).worker("w1", 1, json!({})).deeds();
        assert_eq!(
            deeds,
            if goes { vec!["delete w0"] } else { vec![] },
            "worker {what}: replaced when it is gone"
        );
    }
}

#[test]
fn groups_are_scaled_between_their_bounds() {
    let with = |changes: &[(&str, Value)]| {
        let scene =
            changes.iter().fold(Scene::new(), |scene, (field, value)| scene.group(field, value.clone()));
        scene.complete().deeds()
    };
    assert_eq!(with(&[("replicas", json!(3))]), ["create worker 2"]);
    assert_eq!(with(&[("replicas", json!(9)), ("maxReplicas", json!(3))]), ["create worker 2"]);
    assert_eq!(with(&[("replicas", json!(0)), ("minReplicas", json!(1))]), ["delete w1"], "the newest goes");
    assert_eq!(with(&[("replicas", Value::Null), ("minReplicas", json!(3))]), ["create worker 2"]);
    assert_eq!(with(&[("numOfHosts", json!(0))]), ["delete w0", "delete w1"]);
}

#[test]
fn a_pod_that_is_going_holds_its_place() {
    let scene =
        Scene::new().head(json!({})).worker("w0", 0, json!({"deleting": true})).worker("w1", 1, json!({}));
    assert!(scene.deeds().is_empty());
    let scene =
        Scene::new().head(json!({"deleting": true})).worker("w0", 0, json!({})).worker("w1", 1, json!({}));
    assert!(scene.deeds().is_empty(), "never two heads");
}

#[test]
fn the_lowest_free_index_is_used_again() {
    let scene = Scene::new().head(json!({})).worker("w1", 1, json!({}));
    assert_eq!(scene.deeds(), ["create worker 0"]);
}

#[test]
fn what_goes_makes_room_for_what_comes_and_the_head_comes_first() {
    let scene =
        Scene::new().group("replicas", json!(1)).worker("w0", 0, json!({})).worker("w1", 1, json!({}));
    assert_eq!(scene.deeds(), ["delete w1", "create head"]);
    let plan = Scene::new().plan();
    assert_eq!(plan.steps.iter().map(|step| step.sequential).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn surplus_pods_that_do_not_run_go_first() {
    let scene = Scene::new()
        .group("replicas", json!(1))
        .head(json!({}))
        .worker("w0", 0, json!({"/status/phase": "Pending", "/status/conditions": []}))
        .worker("w1", 1, json!({}));
    assert_eq!(scene.deeds(), ["delete w0"]);
}

#[test]
fn an_autoscaler_chooses_who_goes() {
    let surplus =
        || Scene::new().set("/spec/enableInTreeAutoscaling", json!(true)).group("replicas", json!(1));
    let ready = |mut scene: Scene| {
        scene.present = Present { service_account: true, role: true, role_binding: true, route: false };
        scene.complete()
    };
    assert!(ready(surplus()).deeds().is_empty());
    let named = surplus().group("scaleStrategy", json!({"workersToDelete": ["w0", "gone"]}));
    assert_eq!(ready(named).deeds(), ["delete w0"]);
    let mut random = surplus();
    random.settings.random_pod_delete = true;
    assert_eq!(ready(random).deeds(), ["delete w1"]);
}

#[test]
fn an_autoscaler_needs_rights() {
    let scene = Scene::new().set("/spec/enableInTreeAutoscaling", json!(true)).complete();
    assert_eq!(scene.deeds(), ["create ServiceAccount", "create Role", "create RoleBinding"]);
    let scene = scene.set("/spec/headGroupSpec/template/spec/serviceAccountName", json!("mine"));
    let plan = scene.plan();
    assert!(plan.steps.is_empty());
    assert_eq!(plan.events[0].reason, "AutoscalerServiceAccountNotFound");
    assert!(plan.events[0].note.contains("ServiceAccount mine is not found. Please create one."));
}

#[test]
fn suspending_takes_all_pods_and_runs_to_its_end() {
    let mut scene = Scene::new().set("/spec/suspend", json!(true)).complete();
    assert!(scene.deeds().is_empty(), "first the status says so");
    assert_eq!(scene.condition("RayClusterSuspending"), Some(("True".into(), "RayClusterSuspending".into())));
    scene = scene.with_status().set("/spec/suspend", json!(false));
    assert_eq!(scene.deeds(), ["delete head", "delete w0", "delete w1"], "a change of mind comes too late");
    assert_eq!(scene.plan().steps.last().unwrap().event.as_ref().unwrap().reason, "DeletedPod");
    scene.pods.clear();
    let status = scene.status();
    assert_eq!(scene.condition("RayClusterSuspended").unwrap().0, "True");
    assert_eq!(scene.condition("RayClusterProvisioned").unwrap().0, "False");
    scene = scene.set("/status", json!(status)).set("/spec/suspend", Value::Null);
    assert!(scene.deeds().is_empty(), "resuming has to be said");
    scene = scene.set("/spec/suspend", json!(false));
    scene = scene.with_status();
    assert_eq!(scene.deeds(), ["create head", "create worker 0", "create worker 1"]);
}

#[test]
fn a_suspended_cluster_says_so() {
    let scene = Scene::new().set("/spec/suspend", json!(true));
    assert_eq!(scene.status().state.as_deref(), Some("suspended"));
    let mut scene = scene.complete();
    scene.settings.gates.status_conditions = false;
    assert_eq!(
        scene.deeds(),
        ["delete head", "delete w0", "delete w1"],
        "without conditions it goes at once"
    );
    assert_eq!(scene.status().conditions, None);
}

#[test]
fn a_suspended_group_keeps_the_head() {
    let scene = Scene::new().group("suspend", json!(true)).complete();
    assert_eq!(scene.deeds(), ["delete w0", "delete w1"]);
    assert_eq!(scene.status().desired_worker_replicas, Some(0));
}

#[test]
fn replicas_of_several_hosts_live_and_die_together() {
    let host = |name: &str, replica: u32, host: u32| {
        json!({"labels": {"ray.io/worker-group-replica-name": name, "ray.io/replica-host-index": host.to_string(),
                          "ray.io/worker-group-replica-index": replica.to_string()}})
    };
    let scene = Scene::new().group("numOfHosts", json!(2)).head(json!({}));
    assert_eq!(
        scene.pod_deeds(),
        vec!["create worker 0", "create worker 0", "create worker 1", "create worker 1"]
    );
    let scene = scene
        .worker("a0", 0, host("a", 0, 0))
        .worker("a1", 0, host("a", 0, 1))
        .worker("b0", 1, host("b", 1, 0))
        .worker("b1", 1, host("b", 1, 1));
    assert!(scene.pod_deeds().is_empty());
    let scaled = Scene { cluster: scene.cluster.clone(), ..Scene::new() }.group("replicas", json!(1));
    let scaled = Scene { pods: scene.pods.clone(), ..scaled };
    assert_eq!(scaled.pod_deeds(), ["delete b0", "delete b1"]);
    let mut broken = scene;
    broken.pods[1].1["status"]["phase"] = json!("Failed");
    assert_eq!(broken.pod_deeds(), ["delete a0", "delete a1"], "one host takes the whole replica with it");
    broken.pods.remove(1);
    assert_eq!(broken.pod_deeds(), ["delete a1"], "what is left of a replica goes");
    let mut named = broken.group("scaleStrategy", json!({"workersToDelete": ["b1"]}));
    named.pods.remove(1);
    assert_eq!(named.pod_deeds(), ["delete b0", "delete b1", "create worker 0", "create worker 0"]);
}

#[test]
fn a_changed_spec_recreates_pods_only_if_asked() {
    let settings = Settings::default();
    let scene = Scene::new().set("/spec/upgradeStrategy", json!({"type": "Recreate"}));
    let spec: quintet_api::ray::v1::RayClusterSpec =
        serde_json::from_value(scene.cluster["spec"].clone()).unwrap();
    let hash = crate::spec_hash::recreate_hash(&spec);
    let with = |version: &str, hash: &str| {
        let annotations =
            json!({"ray.io/kuberay-version": version, "ray.io/upgrade-strategy-recreate-hash": hash});
        let scene = Scene { cluster: scene.cluster.clone(), ..Scene::new() };
        let head = json!({"/metadata/annotations": annotations});
        scene.head(head).worker("w0", 0, json!({})).worker("w1", 1, json!({}))
    };
    assert!(with(&settings.version, &hash).deeds().is_empty());
    assert_eq!(with(&settings.version, "OTHER").deeds(), ["delete head", "delete w0", "delete w1"]);
    assert_eq!(with("v1.6.0", "OTHER").deeds(), ["patch Pod ns/head"], "taken over without a restart");
    let kept = with(&settings.version, "OTHER").set("/spec/upgradeStrategy", json!({"type": "None"}));
    assert!(kept.deeds().is_empty());
}

#[test]
fn an_invalid_spec_is_told_and_nothing_happens() {
    let scene = Scene::new().group("minReplicas", json!(9));
    let plan = scene.plan();
    assert!(plan.steps.is_empty() && plan.status.is_none());
    let event = &plan.events[0];
    assert_eq!((event.reason.as_str(), event.action.as_str()), ("InvalidRayClusterSpec", "Validate"));
    assert!(event.note.starts_with("The RayCluster spec is invalid ns/demo: "), "{}", event.note);
    let scene = Scene::new().set("/metadata/name", json!("x".repeat(54)));
    assert_eq!(scene.plan().events[0].reason, "InvalidRayClusterMetadata");
}

#[test]
fn a_cluster_of_another_controller_is_left_alone() {
    let scene = Scene::new().set("/spec/managedBy", json!("kueue.x-k8s.io/multikueue"));
    assert_eq!(scene.plan(), Plan::awaiting("the controller kueue.x-k8s.io/multikueue, which manages it"));
    let scene = Scene::new().set("/spec/managedBy", json!("ray.io/kuberay-operator")).complete();
    assert!(scene.plan().status.is_some());
}

#[test]
fn redis_is_cleared_before_a_fault_tolerant_cluster_goes() {
    let finalizer = labels::REDIS_CLEANUP_FINALIZER;
    let mut scene = Scene::new().set("/spec/gcsFaultToleranceOptions", json!({"redisAddress": "redis:6379"}));
    assert_eq!(scene.deeds(), ["patch RayCluster.ray.io ns/demo"], "the finalizer comes before any pod");
    scene = scene.set("/metadata/finalizers", json!([finalizer, "other"])).complete();
    assert!(scene.deeds().is_empty());
    scene.deleting = true;
    scene = scene.set("/metadata/deletionTimestamp", json!("2026-01-01T00:09:00Z"));
    assert_eq!(scene.deeds(), ["delete head", "delete w0", "delete w1"]);
    assert_eq!(scene.plan().next, Next::After(std::time::Duration::from_mins(4)));
    scene.pods.remove(0);
    assert_eq!(scene.deeds(), ["delete w0", "delete w1", "create Job"], "workers are not waited for");
    scene.pods.clear();
    let job = |conditions: Value| json!({"metadata": {}, "status": {"conditions": conditions}});
    scene.jobs = vec![job(json!([]))];
    assert!(scene.deeds().is_empty());
    for end in ["Complete", "Failed", "FailureTarget"] {
        scene.jobs = vec![job(json!([{"type": end, "status": "True"}]))];
        let plan = scene.plan();
        let Action::Patch { patch, .. } = &plan.steps[0].action else { panic!("{plan:?}") };
        assert_eq!(patch["metadata"]["finalizers"], json!(["other"]), "{end}");
    }
}

#[test]
fn a_cluster_does_not_keep_a_namespace_that_takes_no_job_to_clear_redis() {
    let mut scene = Scene::new()
        .set("/spec/gcsFaultToleranceOptions", json!({"redisAddress": "redis:6379"}))
        .set("/metadata/finalizers", json!([labels::REDIS_CLEANUP_FINALIZER, "other"]))
        .set("/metadata/deletionTimestamp", json!("2026-01-01T00:09:00Z"));
    scene.deleting = true;
    let (observed, plan) = (scene.observed(), scene.plan());
    let create = &plan.steps[0].action;
    assert_eq!(scene.deeds(), ["create Job"]);
    let cause = json!([{"reason": "NamespaceTerminating", "message": "", "field": "metadata.namespace"}]);
    let of = |causes: Value| {
        let status = json!({"status": "Failure", "message": "", "reason": "Forbidden", "code": 403,
            "details": {"causes": causes}});
        let status = serde_json::from_value(status).unwrap();
        let cause = kube::Error::Api(Box::new(status));
        Error::request("create", create.kind().unwrap(), None, cause)
    };
    let outcome = on_error(&observed, create, &of(cause));
    let Some(Action::Patch { patch, .. }) = &outcome.instead else { panic!("{outcome:?}") };
    assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
    assert_eq!(outcome.requeue, Some(Next::AwaitChange));
    assert_eq!(on_error(&observed, create, &of(json!([]))).instead, None, "a quota may have room later");
}

#[test]
fn a_deleted_cluster_always_goes_in_the_end() {
    let stuck = || {
        let mut scene = Scene::new()
            .set("/spec/gcsFaultToleranceOptions", json!({"redisAddress": "redis:6379"}))
            .set("/metadata/finalizers", json!([labels::REDIS_CLEANUP_FINALIZER]))
            .set("/metadata/deletionTimestamp", json!("2026-01-01T00:05:00Z"))
            .head(json!({"deleting": true}));
        scene.deleting = true;
        scene
    };
    let plan = stuck().plan();
    assert_eq!(plan.events[0].reason, "ForceDeletedStuckCluster", "though a head pod hangs");
    let patient = stuck().set("/metadata/annotations", json!({"ray.io/gcs-ft-deletion-timeout": "900"}));
    assert!(patient.deeds().is_empty());
    let invalid = stuck().group("minReplicas", json!(9));
    assert_eq!(invalid.plan().events[0].reason, "ForceDeletedStuckCluster", "though its spec is invalid");
    let switched_off = stuck().set("/spec/gcsFaultToleranceOptions", Value::Null);
    assert_eq!(switched_off.plan().events[0].reason, "ForceDeletedStuckCluster", "though Redis is unknown");
    let early = switched_off.set("/metadata/deletionTimestamp", json!("2026-01-01T00:09:00Z"));
    assert_eq!(early.plan().awaits, ["spec.gcsFaultToleranceOptions, which says what Redis to clear"]);
    let mut without = stuck();
    without.settings.redis_cleanup = false;
    assert_eq!(without.deeds(), ["patch RayCluster.ray.io ns/demo"]);
}

#[test]
fn the_head_of_a_sidecar_job_is_not_made_twice() {
    let provisioned = json!({"conditions": [{
        "type": "RayClusterProvisioned", "status": "True", "reason": "x", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    let scene = Scene::new()
        .set("/metadata/annotations", json!({"ray.io/disable-provisioned-head-restart": "true"}))
        .worker("w0", 0, json!({}))
        .worker("w1", 1, json!({}));
    assert_eq!(scene.deeds(), ["create head"]);
    assert!(scene.set("/status", provisioned).deeds().is_empty());
}

#[test]
fn a_head_that_somebody_else_made_is_left_to_them() {
    let foreign = json!({"/metadata/ownerReferences": []});
    let scene = Scene::new().complete().pod("other", "head", "headgroup", foreign);
    let plan = scene.plan();
    assert!(plan.steps.is_empty());
    assert!(plan.events[0].note.contains("has 2 head Pods (head, other)"), "{}", plan.events[0].note);
}

#[test]
fn of_two_heads_the_one_that_loses_most_stays() {
    let created = |time: &str| json!({"/metadata/creationTimestamp": time});
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    let with = |first: Value, second: Value| {
        let workers = Scene::new().worker("w0", 0, json!({})).worker("w1", 1, json!({}));
        workers.pod("a", "head", "headgroup", first).pod("b", "head", "headgroup", second).deeds()
    };
    assert_eq!(with(created(early), created(late)), ["delete b"]);
    assert_eq!(with(created(late), created(early)), ["delete a"]);
    assert_eq!(
        with(created(early), created(early)),
        ["delete b"],
        "by name, if nothing else tells them apart"
    );
    let mut failed = created(early);
    failed["/status/phase"] = "Failed".into();
    assert_eq!(with(failed, created(late)), ["delete a"]);
    let mut pending = created(early);
    pending["/status/phase"] = "Pending".into();
    assert_eq!(with(pending.clone(), created(late)), ["delete a"], "a cluster runs on the other");
    pending["deleting"] = true.into();
    assert!(with(pending, created(late)).is_empty(), "it goes already");
    let mut going = created(early);
    going["deleting"] = true.into();
    assert!(with(going, created(late)).is_empty());
}

#[test]
fn the_status_counts_pods() {
    let scene = Scene::new()
        .group("replicas", json!(3))
        .group("minReplicas", json!(1))
        .head(json!({}))
        .worker("w0", 0, json!({}))
        .worker("w1", 1, json!({"/status/conditions": []}))
        .worker("w2", 2, json!({"/status/phase": "Pending"}));
    let status = scene.status();
    assert_eq!(
        [
            status.ready_worker_replicas,
            status.available_worker_replicas,
            status.desired_worker_replicas,
            status.min_worker_replicas,
            status.max_worker_replicas,
        ],
        [Some(1), Some(2), Some(3), Some(1), Some(5)]
    );
    assert_eq!(status.state, None, "one of them does not run");
    assert_eq!(status.observed_generation, Some(3));
    let head = status.head.unwrap();
    assert_eq!((head.pod_name.as_deref(), head.service_ip.as_deref()), (Some("head"), Some("10.0.0.1")));
    assert_eq!(status.endpoints.unwrap()["dashboard"], "8265");
}

#[test]
fn a_refused_pod_is_told_in_status_and_events() {
    let scene = Scene::new().head(json!({}));
    let observed = scene.observed();
    let plan = replayed::<ClusterController>(&observed);
    let error = Error::new(Class::Invalid, "cannot create Pod", "exceeded quota");
    let on_error = on_error(&observed, &plan.steps[0].action, &error);
    assert_eq!(on_error.events[0].reason, "FailedToCreateWorkerPod");
    assert_eq!(
        on_error.events[0].note,
        "Failed to create worker Pod for the cluster ns/demo, exceeded quota"
    );
    let patch = on_error.status.unwrap().status;
    let conditions = patch["conditions"].as_array().unwrap();
    let failure = conditions.iter().find(|one| one["type"] == "ReplicaFailure").unwrap();
    assert_eq!(failure["reason"], "FailedCreateWorkerPod");
    assert_eq!(failure["message"], "FailedCreateWorkerPod\nexceeded quota");
    let healed = scene.set("/status", json!({"conditions": conditions}));
    assert_eq!(healed.condition("ReplicaFailure"), None, "gone when nothing fails");
}

#[test]
fn another_refusal_does_not_freeze_the_status() {
    let observed = Scene { services: false, ..Scene::new() }.complete().observed();
    let plan = replayed::<ClusterController>(&observed);
    let error = Error::new(Class::Invalid, "cannot create Service", "no");
    let on_error = on_error(&observed, &plan.steps[0].action, &error);
    assert_eq!(on_error.events[0].reason, "FailedToCreateService");
    let patch = on_error.status.unwrap().status;
    assert_eq!(patch["readyWorkerReplicas"], 2);
    assert!(patch.get("state").is_none(), "not ready in so many words");
}

#[test]
fn a_turn_makes_so_many_pods_and_no_more() {
    let scene = Scene::new().group("replicas", json!(i32::MAX)).group("maxReplicas", json!(i32::MAX));
    let plan = scene.plan();
    assert!(plan.steps.len() <= 300, "{}", plan.steps.len());
    assert_eq!(plan.next, Next::After(std::time::Duration::ZERO), "and goes on at once");
    let names: std::collections::BTreeSet<_> =
        plan.steps.iter().filter_map(|step| step.action.target()).collect();
    assert_eq!(names.len(), plan.steps.len(), "each under a name of its own");
}

#[test]
fn pods_without_indexes_get_names_of_their_own() {
    let mut scene = Scene::new().group("replicas", json!(3)).head(json!({}));
    scene.settings.gates = Gates { multi_host_indexing: false, ..Gates::default() };
    let name = |plan: &Plan, step: usize| plan.steps[step].action.target().unwrap().name().to_owned();
    let first = scene.plan();
    assert_eq!(first.steps.len(), 3);
    let (one, two) = (name(&first, 0), name(&first, 1));
    let worker = |scene: Scene, name: &str| scene.pod(name, "worker", "small", json!({}));
    let scene = worker(worker(scene, &one), &two);
    let second = scene.plan();
    assert_eq!(second.steps.len(), 1);
    assert!(![one, two].contains(&name(&second, 0)));
}

#[test]
fn certificates_that_are_not_ready_hold_back_new_pods_only() {
    let mut scene =
        Scene::new().set("/spec/tlsOptions", json!({"enabled": true})).group("replicas", json!(1)).complete();
    scene.settings.gates.mtls = true;
    scene.settings.platform.cert_manager = true;
    let mut observed = scene.observed();
    observed.certificates = Err("not yet".to_owned());
    let deeds: Vec<_> = replayed::<ClusterController>(&observed).steps.iter().map(deed).collect();
    assert_eq!(deeds, ["delete w1"]);
    observed.pods.clear();
    assert!(replayed::<ClusterController>(&observed).steps.is_empty());
}

#[test]
fn a_serve_service_without_a_port_does_not_hold_the_cluster_up() {
    let scene =
        Scene::new().set("/metadata/annotations", json!({"ray.io/enable-serve-service": "true"})).set(
            "/spec/headGroupSpec/template/spec/containers",
            json!([{"name": "ray", "ports": [{"containerPort": 1}]}]),
        );
    let plan = scene.plan();
    assert_eq!(plan.events[0].reason, "FailedToCreateService");
    assert_eq!(scene.deeds(), ["create head", "create worker 0", "create worker 1"]);
}

#[test]
fn indexes_are_a_feature() {
    let mut scene = Scene::new();
    scene.settings.gates = Gates { multi_host_indexing: false, ..Gates::default() };
    let plan = scene.plan();
    let Action::Create { object, .. } = &plan.steps[1].action else { panic!() };
    assert!(object["metadata"]["labels"].get("ray.io/worker-group-replica-index").is_none());
    let Action::Create { object: other, .. } = &plan.steps[2].action else { panic!() };
    assert_ne!(object["metadata"]["name"], other["metadata"]["name"]);
}

#[test]
fn the_pod_group_of_any_scheduler_wakes_its_cluster() {
    let cluster: RayCluster = serde_json::from_value(
        Scene::new().set("/metadata/labels", json!({"ray.io/gang-scheduling-enabled": "true"})).cluster,
    )
    .unwrap();
    for scheduler in [BatchScheduler::Volcano, BatchScheduler::SchedulerPlugins] {
        let settings = Settings { batch_scheduler: Some(scheduler), ..Settings::default() };
        let steps = schedulers::prepare(&cluster, &settings).unwrap();
        let (Action::Create { object, .. } | Action::Apply { object, .. }) = &steps[0].action else {
            panic!("{scheduler:?}: {}", steps[0].action);
        };
        let metadata: ObjectMetadata = serde_json::from_value(object["metadata"].clone()).unwrap();
        let group = Entry::new(ObjectKey::new("ns", "group"), metadata);
        assert_eq!(owners_of(&group), [ObjectKey::new("ns", "demo")], "{scheduler:?}");
    }
}

#[test]
fn a_cluster_says_what_it_waits_for() {
    let awaits = |scene: Scene| scene.plan().awaits;
    let waiting = json!({"/status/phase": "Pending", "/status/conditions": []});
    assert_eq!(
        awaits(Scene::new()),
        ["head Pod to be created", "worker group small: 0 of 2 workers ready"],
        "nothing is there yet"
    );
    assert_eq!(
        awaits(Scene::new().head(json!({})).worker("w0", 0, json!({})).worker("w1", 1, waiting)),
        ["worker group small: 1 of 2 workers ready"]
    );
    assert_eq!(awaits(Scene::new().complete()), Vec::<String>::new());
}

#[test]
fn a_new_token_is_redacted_in_a_stored_state() {
    let mut observed = Scene::new().observed();
    observed.new_token = Some(NewToken("hunter2".to_owned()));
    let stored = serde_json::to_string(&observed).unwrap();
    assert!(!stored.contains("hunter2") && stored.contains("redacted"), "{stored}");
    let read: Observed = serde_json::from_str(&stored).unwrap();
    assert!(read.new_token.is_some(), "that there is one is part of the state");
}

#[test]
fn a_pod_that_cannot_be_deleted_is_told_with_the_reason_for_its_deletion() {
    let told = |scene: Scene| {
        let observed = scene.observed();
        let plan = replayed::<ClusterController>(&observed);
        let delete = plan.steps.iter().find(|step| matches!(step.action, Action::Delete { .. })).unwrap();
        let error = Error::new(Class::Invalid, "cannot delete Pod ns/w0", "no");
        let on_error = on_error(&observed, &delete.action, &error);
        let conditions = on_error.status.unwrap().status["conditions"].as_array().unwrap().clone();
        let failure = conditions.iter().find(|one| one["type"] == "ReplicaFailure").unwrap();
        let event = &on_error.events[0];
        (event.reason.clone(), event.note.clone(), failure["message"].as_str().unwrap().to_owned())
    };
    let row = |reason: &str, note: &str, marker: &str| {
        (reason.to_owned(), note.to_owned(), format!("{marker}\nno"))
    };
    let suspending = json!({"conditions": [{"type": "RayClusterSuspending", "status": "True", "reason": "r",
                                            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    assert_eq!(
        told(Scene::new().complete().set("/status", suspending)),
        row(
            "FailedToDeletePodCollection",
            "Failed deleting Pods due to suspension for RayCluster ns/demo, no",
            "FailedDeleteAllPods"
        )
    );
    assert_eq!(
        told(Scene::new().complete().group("suspend", json!(true))),
        row(
            "FailedToDeleteWorkerPodCollection",
            "Failed deleting worker Pods for suspended group small in RayCluster ns/demo, no",
            "FailedDeleteWorkerPod"
        )
    );
    assert_eq!(
        told(Scene::new().complete().group("scaleStrategy", json!({"workersToDelete": ["w1"]}))),
        row("FailedToDeleteWorkerPod", "Failed deleting pod ns/w1, no", "FailedDeleteWorkerPod")
    );
    assert_eq!(
        told(Scene::new().complete().group("replicas", json!(1))),
        row("FailedToDeleteWorkerPod", "Failed deleting Pod ns/w1, no", "FailedDeleteWorkerPod")
    );
    let failed = Scene::new().head(json!({"/status/phase": "Failed"}));
    assert_eq!(told(failed).2, "FailedDeleteHeadPod\nno");
}
