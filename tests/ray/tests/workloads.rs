//! Jobs and services in worlds where the API, the operator and Ray itself misbehave: nothing is lost, nothing is
//! done twice, and the end is the right one.
//!
//! `QUINTET_SEEDS` says how many worlds to try; `QUINTET_SEED` tries one again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Pod, Secret, Service},
    discovery::v1::EndpointSlice,
};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use quintet_api::ray::v1::{RayCluster, RayCronJob, RayJob, RayService};
use quintet_apiserver::Api;
use quintet_controller::clock::Clock;
use quintet_ray::dashboard::{
    SecretTokens, Tokens as _,
    simulated::{Faults, SimulatedDashboard},
};
use quintet_ray_tests::{FaultRates, Kubelet, Operator, Start, World, simulate, template, try_worlds};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What Ray does wrong in rough worlds.
const ROUGH_RAY: Faults =
    Faults { silent: 10, refusing: 10, garbled: 5, lost_answers: 20, refused_orders: 0, ignored_orders: 0 };

/// A world with Ray in it, and the operator that looks after it.
struct Stage {
    world: World,
    ray: Arc<SimulatedDashboard>,
    clock: Clock,
    kubelet: Kubelet,
    operator: Operator,
    /// How the operator is started when it has died.
    how: Start,
    seed: u64,
    /// Since when submitters have known that their job has ended.
    ended: Mutex<BTreeMap<String, jiff::Timestamp>>,
    /// The RayJob that each name of a job in Ray was seen in.
    announced: BTreeMap<String, String>,
}

/// Submitters end this long after their job, having shown the last of its logs.
const SUBMITTER_LAG: Duration = Duration::from_secs(4);

impl Stage {
    fn new(template: &Api, seed: u64, fault_rates: FaultRates, faults: Faults) -> Self {
        let world = World::new(template, seed);
        let mut how = Start::alone(fault_rates);
        how.settings.gates.cron_job = true;
        let clock = how.clock.clone();
        let ray = Arc::new(SimulatedDashboard::new(clock.clone(), seed));
        ray.set_faults(faults);
        how.ray = Some(Arc::clone(&ray));
        let operator = Operator::start(&world, &how);
        let kubelet = Kubelet::new(&world);
        let (ended, announced) = (Mutex::default(), BTreeMap::new());
        Self { world, ray, clock, kubelet, operator, how, seed, ended, announced }
    }

    /// The operator that has died, or crashes now by an injected fault, comes back after a while.
    async fn maybe_restart(&mut self) {
        if self.operator.connection.is_dead() || self.world.rng.happens(100) {
            self.operator.kill();
            self.world.pass(Duration::from_secs(self.world.rng.below(60))).await;
            self.operator = Operator::start(&self.world, &self.how);
        }
    }

    /// The same, for worlds that are looked at every second.
    async fn maybe_restart_rarely(&mut self) {
        if self.operator.connection.is_dead()
            || (self.how.fault_rates.crash > 0 && self.world.rng.happens(10))
        {
            self.maybe_restart().await;
        }
    }

    /// From now on nothing goes wrong.
    fn make_peace(&mut self) {
        self.how.fault_rates = FaultRates::default();
        self.ray.set_faults(Faults::default());
        self.operator.connection.set_fault_rates(self.how.fault_rates);
        if self.operator.connection.is_dead() {
            self.operator.kill();
            self.operator = Operator::start(&self.world, &self.how);
        }
    }

    async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.world.objects::<K>().create(&PostParams::default(), &object).await.unwrap();
    }

    async fn change<K>(&self, name: &str, patch: &Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        let objects = self.world.objects::<K>();
        objects.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Kubelets, submitters, endpoints and gateways do their work for some seconds.
    async fn live(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.kubelet.work(1, 1).await;
            self.run_submitters().await;
            self.slice_endpoints().await;
            self.route_requests().await;
            self.expect_no_submission_lost_or_doubled().await;
        }
    }

    /// A job in Ray has been announced in the status of its RayJob, and is submitted once; and what a RayJob says of its
    /// job is about one that Ray has accepted.
    async fn expect_no_submission_lost_or_doubled(&mut self) {
        let seed = self.seed;
        for (name, job) in self.jobs().await {
            let status = job.status.unwrap_or_default();
            let id = status.job_id.unwrap_or_default();
            if status.job_status.is_some_and(|status| !status.is_empty()) {
                assert_eq!(
                    self.ray.accepted(&id),
                    1,
                    "seed {seed}: {name} tells of {id}, which Ray does not know"
                );
            }
            self.announced.insert(id, name);
        }
        let mut attempts = BTreeMap::<&str, u64>::new();
        for (id, times) in self.ray.all_accepted() {
            assert_eq!(times, 1, "seed {seed}: {id} was submitted more than once");
            let owner = self.announced.get(&id);
            let owner =
                owner.unwrap_or_else(|| panic!("seed {seed}: {id} was submitted and never announced"));
            *attempts.entry(owner).or_default() += 1;
        }
        for name in ["posted", "submitted", "unwanted"] {
            let attempts = attempts.get(name).copied().unwrap_or_default();
            assert!(attempts <= 1, "seed {seed}: {name} was submitted {attempts} times");
        }
    }

    /// A request to the API that has no type here.
    async fn request(&self, method: &str, path: &str, body: &Value) -> Option<Value> {
        let content_type =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.world.api.admin_client().request(request.body(body).unwrap()).await.ok()
    }

    /// Teaches the API the kinds by which traffic is split.
    async fn install_gateways(&self) {
        for (kind, plural) in [("Gateway", "gateways"), ("HTTPRoute", "httproutes")] {
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": format!("{plural}.gateway.networking.k8s.io"),
                    "annotations": {"api-approved.kubernetes.io": "https://example.com/approved"},
                },
                "spec": {
                    "group": "gateway.networking.k8s.io", "scope": "Namespaced",
                    "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                    "versions": [{
                        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": schema},
                    }],
                },
            });
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            self.request("POST", path, &definition).await.unwrap();
        }
    }

    /// Gateways accept everything.
    async fn route_requests(&self) {
        let base = "/apis/gateway.networking.k8s.io/v1/namespaces/default";
        let good = |types: [&str; 2]| types.map(|type_| json!({"type": type_, "status": "True"}));
        for (plural, status) in [
            ("gateways/chat-gateway", json!({"conditions": good(["Accepted", "Programmed"])})),
            (
                "httproutes/chat-httproute",
                json!({"parents": [{
                    "parentRef": {"name": "chat-gateway"}, "conditions": good(["Accepted", "ResolvedRefs"]),
                }]}),
            ),
        ] {
            if let Some(live) = self.request("GET", &format!("{base}/{plural}"), &Value::Null).await
                && live.get("status").is_none()
            {
                self.request("PATCH", &format!("{base}/{plural}/status"), &json!({"status": status})).await;
            }
        }
    }

    async fn service(&self) -> RayService {
        self.world.objects::<RayService>().get("chat").await.unwrap()
    }

    /// Submitter Jobs submit, and end when the Ray job has.
    async fn run_submitters(&self) {
        let submitters = self.world.list::<Job>().await;
        for submitter in submitters.iter().filter(|job| job.metadata.deletion_timestamp.is_none()) {
            let template = submitter.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
            let variable = |name: &str| {
                let variables = template.containers[0].env.as_ref().unwrap();
                variables.iter().find(|one| one.name == name).unwrap().value.clone().unwrap()
            };
            let (host, id) = (variable("RAY_DASHBOARD_ADDRESS"), variable("RAY_JOB_SUBMISSION_ID"));
            match self.ray.job_at(&host, &id) {
                None => self.ray.submit_by_hand(&host, &id),
                Some(status) if status.is_terminal() => {
                    let has_ended =
                        submitter.status.as_ref().is_some_and(|status| status.conditions.is_some());
                    let now = self.clock.now();
                    let known = *self.ended.lock().entry(id).or_insert(now);
                    if !has_ended && now.duration_since(known).unsigned_abs() >= SUBMITTER_LAG {
                        let complete =
                            json!({"type": "Complete", "status": "True", "lastTransitionTime": now});
                        let ready = json!({"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now});
                        let status = json!({"status": {
                            "conditions": [ready, complete], "succeeded": 1, "startTime": now, "completionTime": now,
                        }});
                        let name = submitter.metadata.name.as_deref().unwrap();
                        let jobs = self.world.objects::<Job>();
                        jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
                            .await
                            .unwrap();
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Every Service has one EndpointSlice of the ready pods it selects.
    async fn slice_endpoints(&self) {
        let pods = self.world.list::<Pod>().await;
        let slices = self.world.objects::<EndpointSlice>();
        for service in self.world.list::<Service>().await {
            let name = service.metadata.name.clone().unwrap();
            let selector = service.spec.and_then(|spec| spec.selector).unwrap_or_default();
            let is_selected = |pod: &&Pod| {
                let labels = pod.metadata.labels.clone().unwrap_or_default();
                let runs =
                    pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
                runs && pod.metadata.deletion_timestamp.is_none()
                    && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            };
            let endpoint = |pod: &Pod| {
                json!({
                    "addresses": [pod.status.as_ref().unwrap().pod_ip.clone().unwrap()],
                    "conditions": {"ready": true},
                    "targetRef": {"kind": "Pod", "uid": pod.metadata.uid, "name": pod.metadata.name},
                })
            };
            let endpoints: Vec<_> = pods.iter().filter(is_selected).map(endpoint).collect();
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4", "endpoints": endpoints,
            });
            let apply = PatchParams::apply("endpoints").force();
            slices.patch(&name, &apply, &Patch::Apply(&slice)).await.unwrap();
        }
    }

    async fn jobs(&self) -> BTreeMap<String, RayJob> {
        let jobs = self.world.list::<RayJob>().await;
        jobs.into_iter().map(|job| (job.metadata.name.clone().unwrap(), job)).collect()
    }

    /// Lives on until nothing is wrong.
    async fn settle(&mut self, mut wrong: impl AsyncFnMut(&Self) -> String) {
        let mut complaint = String::new();
        for _ in 0..200 {
            self.live(10).await;
            complaint = wrong(self).await;
            if complaint.is_empty() {
                return;
            }
        }
        panic!("seed {}: {complaint}", self.seed);
    }

    /// A world in which nothing happens sees no writes.
    async fn expect_rest(&mut self) {
        self.live(60).await;
        self.operator.connection.take_writes();
        self.live(120).await;
        let writes = self.operator.connection.take_writes();
        assert!(writes.is_empty(), "seed {}: a settled world sees no writes, and not {writes:#?}", self.seed);
    }

    async fn end(self) {
        self.operator.kill();
        self.world.api.stop().await;
    }
}

fn cluster_spec(image: &str) -> Value {
    let template = json!({"spec": {"containers": [{"name": "ray", "image": image}]}});
    json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"template": template},
        "workerGroupSpecs": [{
            "groupName": "group", "replicas": 1, "minReplicas": 0, "maxReplicas": 3, "template": template,
        }],
    })
}

fn job(name: &str, spec: &Value) -> Value {
    let mut all = json!({"entrypoint": "python a.py", "rayClusterSpec": cluster_spec("ray"), "shutdownAfterJobFinishes": true});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}, "spec": all})
}

async fn jobs_live(template: &Api, seed: u64, fault_rates: FaultRates, faults: Faults) {
    let mut stage = Stage::new(template, seed, fault_rates, faults);
    stage.create::<RayJob>(job("posted", &json!({"submissionMode": "HTTPMode"}))).await;
    stage.create::<RayJob>(job("submitted", &json!({}))).await;
    let failing = json!({"submissionMode": "HTTPMode", "entrypoint": "exit 1", "backoffLimit": 2});
    stage.create::<RayJob>(job("failing", &failing)).await;
    stage.create::<RayJob>(job("paused", &json!({"submissionMode": "HTTPMode"}))).await;
    stage.create::<RayJob>(job("unwanted", &json!({"submissionMode": "HTTPMode"}))).await;
    for round in 0..10 {
        stage.live(1 + stage.world.rng.below(15)).await;
        stage.maybe_restart().await;
        let suspend = stage.world.rng.happens(400);
        stage.change::<RayJob>("paused", &json!({"spec": {"suspend": suspend}})).await;
        if round == 5 {
            let jobs = stage.world.objects::<RayJob>();
            jobs.delete("unwanted", &DeleteParams::default()).await.unwrap();
        }
    }
    stage.change::<RayJob>("paused", &json!({"spec": {"suspend": false}})).await;
    stage.make_peace();
    stage.settle(async |stage: &Stage| what_is_wrong_with_jobs(stage).await).await;
    stage.expect_rest().await;
    let metrics = stage.operator.metrics.encode();
    for series in [
        r#"kuberay_job_info{name="posted",namespace="default",uid="#,
        r#"kuberay_job_deployment_status{name="failing",namespace="default",uid="#,
        r#"deployment_status="Complete"} 1"#,
    ] {
        assert!(metrics.contains(series), "seed {seed}: no {series} in\n{metrics}");
    }
    stage.end().await;
}

async fn what_is_wrong_with_jobs(stage: &Stage) -> String {
    let jobs = stage.jobs().await;
    let mut wrong = Vec::new();
    if jobs.contains_key("unwanted") {
        wrong.push("unwanted is still there".to_owned());
    }
    let expected =
        [("posted", "Complete"), ("submitted", "Complete"), ("failing", "Failed"), ("paused", "Complete")];
    for (name, state) in expected {
        let status = jobs[name].status.clone().unwrap_or_default();
        let outcome = (status.job_deployment_status.as_deref(), status.succeeded, status.failed);
        let counts = if state == "Complete" { (Some(1), Some(0)) } else { (Some(0), Some(3)) };
        if outcome != (Some(state), counts.0, counts.1) {
            wrong.push(format!("{name} is {outcome:?}: {:?} {:?}", status.reason, status.message));
        }
        let id = status.job_id.unwrap_or_default();
        if stage.ray.accepted(&id) == 0 {
            wrong.push(format!("{name} never reached Ray as {id}"));
        }
    }
    let clusters = stage.world.list::<RayCluster>().await;
    if !clusters.is_empty() {
        wrong.push(format!("{} clusters are left", clusters.len()));
    }
    wrong.join("; ")
}

const CONFIG: &str = "applications: [{name: app, import_path: app:main}]";

async fn services_live(template: &Api, seed: u64, fault_rates: FaultRates, faults: Faults) {
    let mut stage = Stage::new(template, seed, fault_rates, faults);
    let service = json!({
        "apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "chat"},
        "spec": {"serveConfigV2": CONFIG, "rayClusterConfig": cluster_spec("ray:0")},
    });
    stage.create::<RayService>(service).await;
    let mut version = 0;
    for round in 0..8 {
        stage.live(1 + stage.world.rng.below(40)).await;
        stage.maybe_restart().await;
        match stage.world.rng.below(4) {
            0 => {
                version += 1;
                let patch = json!({"spec": {"rayClusterConfig": cluster_spec(&format!("ray:{version}"))}});
                stage.change::<RayService>("chat", &patch).await;
            }
            1 if round > 3 => stage.change::<RayService>("chat", &json!({"spec": {"suspend": true}})).await,
            2 => stage.change::<RayService>("chat", &json!({"spec": {"suspend": false}})).await,
            _ => {}
        }
    }
    stage.change::<RayService>("chat", &json!({"spec": {"suspend": false}})).await;
    stage.make_peace();
    let image = format!("ray:{version}");
    let services = ["chat-head-svc", "chat-serve-svc"];
    stage.settle(async |stage: &Stage| what_is_wrong_with_the_service(stage, &image, &services).await).await;
    stage.expect_rest().await;
    let metrics = stage.operator.metrics.encode();
    let ready = r#"kuberay_service_condition_ready{name="chat",namespace="default",uid="#;
    assert!(metrics.contains(ready) && metrics.contains(r#"condition="true"} 1"#), "seed {seed}:\n{metrics}");
    let services = stage.world.objects::<RayService>();
    services.delete("chat", &DeleteParams::default()).await.unwrap();
    stage
        .settle(async |stage: &Stage| {
            let left =
                stage.world.list::<RayService>().await.len() + stage.world.list::<RayCluster>().await.len();
            if left == 0 { String::new() } else { format!("{left} objects are left") }
        })
        .await;
    stage.end().await;
}

async fn what_is_wrong_with_the_service(stage: &Stage, image: &str, services: &[&str]) -> String {
    let service = stage.world.list::<RayService>().await.pop().unwrap();
    let status = service.status.unwrap_or_default();
    let clusters = stage.world.list::<RayCluster>().await;
    let [cluster] = clusters.as_slice() else { return format!("{} clusters: {status:?}", clusters.len()) };
    let name = cluster.metadata.name.clone().unwrap();
    let head = cluster.spec.head_group_spec.template.spec.as_ref().unwrap();
    let active = status.active_service_status.unwrap_or_default();
    let mut wrong = Vec::new();
    if head.containers[0].image.as_deref() != Some(image) {
        wrong.push(format!("{name} runs {:?} instead of {image}", head.containers[0].image));
    }
    if active.ray_cluster_name.as_deref() != Some(&name) || status.pending_service_status.is_some() {
        wrong.push(format!("active is {:?}", active.ray_cluster_name));
    }
    if status.service_status.as_deref() != Some("Running")
        || status.num_serve_endpoints.unwrap_or_default() == 0
    {
        wrong.push(format!("it is {:?}: {:?}", status.service_status, status.conditions));
    }
    for service in services {
        let live = stage.world.objects::<Service>().get_opt(service).await.unwrap();
        let selector = live.and_then(|live| live.spec?.selector).unwrap_or_default();
        if selector.get("ray.io/cluster") != Some(&name) {
            wrong.push(format!("{service} leads to {selector:?}"));
        }
    }
    let host = format!("{name}-head-svc.default.svc.cluster.local:8265");
    if stage.ray.deployed(&host).0.is_none() {
        wrong.push(format!("{host} serves nothing"));
    }
    wrong.join("; ")
}

fn incremental(image: &str) -> Value {
    let mut cluster = cluster_spec(image);
    cluster["enableInTreeAutoscaling"] = json!(true);
    json!({
        "serveConfigV2": CONFIG, "rayClusterConfig": cluster,
        "upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": {
            "gatewayClassName": "any", "intervalSeconds": 5, "stepSizePercent": 20, "maxSurgePercent": 40,
        }},
    })
}

/// Shares and capacities of the two clusters, if there are two.
fn split(service: &RayService) -> Option<[i32; 4]> {
    let status = service.status.as_ref()?;
    let (active, pending) = (status.active_service_status.as_ref()?, status.pending_service_status.as_ref()?);
    Some([
        active.traffic_routed_percent.unwrap_or(100),
        pending.traffic_routed_percent.unwrap_or(0),
        active.target_capacity.unwrap_or(100),
        pending.target_capacity.unwrap_or(0),
    ])
}

/// An upgrade in steps, and one that the user regrets half-way.
async fn steps_live(template: &Api, seed: u64, fault_rates: FaultRates, faults: Faults) {
    let mut stage = Stage::new(template, seed, FaultRates::default(), Faults::default());
    stage.install_gateways().await;
    let service = json!({
        "apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "chat"}, "spec": incremental("ray:0"),
    });
    stage.create::<RayService>(service).await;
    stage
        .settle(async |stage: &Stage| {
            what_is_wrong_with_the_service(stage, "ray:0", &["chat-head-svc"]).await
        })
        .await;
    stage.how.fault_rates = fault_rates;
    stage.ray.set_faults(faults);
    stage.operator.connection.set_fault_rates(fault_rates);

    stage.change::<RayService>("chat", &json!({"spec": incremental("ray:1")})).await;
    let mut last = [100, 0, 100, 0];
    let mut seen = Vec::new();
    for _ in 0..400 {
        stage.live(1).await;
        stage.maybe_restart_rarely().await;
        let Some(now) = split(&stage.service().await) else {
            if seen.is_empty() {
                continue;
            }
            break;
        };
        assert_eq!(now[0] + now[1], 100, "seed {seed}: {now:?}");
        assert!(
            now[1] >= last[1] && now[2] <= last[2] && now[3] >= last[3],
            "seed {seed}: {last:?} -> {now:?}"
        );
        assert!(now[1] <= now[3], "seed {seed}: more traffic than capacity: {now:?}");
        if now != last {
            seen.push(now);
        }
        last = now;
    }
    stage.make_peace();
    stage
        .settle(async |stage: &Stage| {
            what_is_wrong_with_the_service(stage, "ray:1", &["chat-head-svc"]).await
        })
        .await;
    assert!(seen.len() > 3, "seed {seed}: it went in steps: {seen:?}");

    let before = stage.service().await.status.unwrap().active_service_status.unwrap().ray_cluster_name;
    stage.change::<RayService>("chat", &json!({"spec": incremental("ray:2")})).await;
    stage
        .settle(async |stage: &Stage| match split(&stage.service().await) {
            Some([_, pending, _, _]) if pending >= 20 => String::new(),
            other => format!("{other:?}"),
        })
        .await;
    stage.change::<RayService>("chat", &json!({"spec": incremental("ray:1")})).await;
    stage
        .settle(async |stage: &Stage| {
            what_is_wrong_with_the_service(stage, "ray:1", &["chat-head-svc"]).await
        })
        .await;
    let after = stage.service().await.status.unwrap().active_service_status.unwrap();
    assert_eq!(after.ray_cluster_name, before, "seed {seed}: back to where it was");
    assert_eq!((after.target_capacity, after.traffic_routed_percent), (Some(100), Some(100)), "seed {seed}");
    let path = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/chat-httproute";
    let route = stage.request("GET", path, &Value::Null).await.unwrap();
    assert_eq!(route["spec"]["rules"][0]["backendRefs"].as_array().unwrap().len(), 1, "seed {seed}");
    stage.expect_rest().await;
    stage.end().await;
}

/// A RayJob every two minutes, and one at most for each tick, though the operator is away now and then.
async fn cron_jobs_live(template: &Api, seed: u64, fault_rates: FaultRates) {
    let mut stage = Stage::new(template, seed, fault_rates, Faults::default());
    let template =
        json!({"submissionMode": "HTTPMode", "entrypoint": "a", "rayClusterSpec": cluster_spec("ray")});
    let cron = json!({
        "apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": {"name": "often"},
        "spec": {"schedule": "*/2 * * * *", "timeZone": "UTC", "jobTemplate": template},
    });
    stage.create::<RayCronJob>(cron).await;
    for _ in 0..6 {
        stage.world.pass(Duration::from_secs(30 + stage.world.rng.below(180))).await;
        stage.maybe_restart().await;
    }
    stage.make_peace();
    stage.world.pass(Duration::from_mins(10)).await;
    let minutes: Vec<i64> =
        stage.jobs().await.keys().map(|name| name.rsplit_once('-').unwrap().1.parse().unwrap()).collect();
    assert!(minutes.len() >= 4 && minutes.iter().all(|minute| minute % 2 == 0), "seed {seed}: {minutes:?}");
    let last =
        stage.world.list::<RayCronJob>().await.pop().unwrap().status.unwrap().last_schedule_time.unwrap().0;
    let now = stage.clock.now();
    assert!(now.duration_since(last).as_secs() <= 120, "seed {seed}: {last} at {now}");
    assert_eq!(minutes.last().copied(), Some(last.as_second() / 60), "seed {seed}");
    stage.end().await;
}

fn jobs(fault_rates: FaultRates, faults: Faults, default: u64) {
    try_worlds(default, async |template, seed| jobs_live(template, seed, fault_rates, faults).await);
}

fn services(fault_rates: FaultRates, faults: Faults, default: u64) {
    try_worlds(default, async |template, seed| services_live(template, seed, fault_rates, faults).await);
}

#[test]
fn tokens_come_from_secrets() {
    simulate(async {
        let template = template().await;
        let stage = Stage::new(&template, 0, FaultRates::default(), Faults::default());
        let tokens = SecretTokens::new(stage.operator.runtime.api().clone());
        let error = tokens.token("default", "auth").await.unwrap_err().to_string();
        assert!(error.contains("Secret default/auth: it does not exist"), "{error}");
        let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "auth"}, "stringData": data});
        stage.create::<Secret>(secret(json!({"other": "x"}))).await;
        let error = tokens.token("default", "auth").await.unwrap_err().to_string();
        assert!(error.contains("it has no key auth_token"), "{error}");
        stage.change::<Secret>("auth", &json!({"stringData": {"auth_token": "hush"}})).await;
        assert_eq!(tokens.token("default", "auth").await.unwrap(), "hush");
        stage.change::<Secret>("auth", &json!({"stringData": {"auth_token": "new"}})).await;
        assert_eq!(tokens.token("default", "auth").await.unwrap(), "hush", "asked a moment ago");
        stage.world.pass(Duration::from_secs(61)).await;
        assert_eq!(tokens.token("default", "auth").await.unwrap(), "new");
        stage.end().await;
    });
}

#[test]
fn jobs_in_a_world_without_faults() {
    jobs(FaultRates::default(), Faults::default(), 2);
}

#[test]
fn jobs_with_a_rough_ray() {
    jobs(FaultRates::default(), ROUGH_RAY, 5);
}

#[test]
fn jobs_in_a_rough_world() {
    jobs(FaultRates::ROUGH, ROUGH_RAY, 15);
}

/// A job is over as soon as Ray and its submitter say so.
#[test]
fn jobs_end_soon_after_their_submitters() {
    simulate(async {
        let template = template().await;
        let mut stage = Stage::new(&template, 0, FaultRates::default(), Faults::default());
        let names = ["a", "b", "c"];
        for name in names {
            stage.create::<RayJob>(job(name, &json!({}))).await;
            stage.live(1).await;
        }
        stage
            .settle(async |stage: &Stage| {
                let jobs = stage.jobs().await;
                let state = |name| jobs[name].status.as_ref()?.job_deployment_status.clone();
                let states = names.map(|name| state(name).unwrap_or_default());
                if states.iter().all(|state| state == "Complete") { String::new() } else { states.join(" ") }
            })
            .await;
        let jobs = stage.jobs().await;
        for submitter in stage.world.list::<Job>().await {
            let name = submitter.metadata.name.unwrap();
            let submitted = submitter.status.unwrap().completion_time.unwrap().0;
            let ended = jobs[&name].status.as_ref().unwrap().end_time.as_ref().unwrap().0;
            let wait = ended.duration_since(submitted).as_secs();
            assert!((0..=10).contains(&wait), "{name} ended {wait} s after its submitter");
        }
        stage.end().await;
    });
}

/// However Ray rejects requests, it is not flooded with them.
#[test]
fn orders_in_vain_are_paced() {
    let refusing = Faults { refused_orders: 100, ..Faults::default() };
    let ignoring = Faults { ignored_orders: 100, ..Faults::default() };
    simulate(async {
        let template = template().await;
        for faults in [refusing, ignoring] {
            let mut stage = Stage::new(&template, 0, FaultRates::default(), faults);
            stage.create::<RayJob>(job("posted", &json!({"submissionMode": "HTTPMode"}))).await;
            let service = json!({
                "apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "chat"},
                "spec": {"serveConfigV2": CONFIG, "rayClusterConfig": cluster_spec("ray:0")},
            });
            stage.create::<RayService>(service).await;
            stage
                .settle(async |stage: &Stage| match stage.ray.orders() {
                    0 | 1 => "nothing was ordered".to_owned(),
                    _ => String::new(),
                })
                .await;
            let before = stage.ray.orders();
            stage.live(60).await;
            let orders = stage.ray.orders() - before;
            assert!((2..=20).contains(&orders), "{orders} orders in a minute: {faults:?}");
            stage.end().await;
        }
    });
}

#[test]
fn services_in_a_world_without_faults() {
    services(FaultRates::default(), Faults::default(), 2);
}

#[test]
fn services_in_a_rough_world() {
    services(FaultRates::ROUGH, ROUGH_RAY, 10);
}

#[test]
fn cron_jobs_in_a_rough_world() {
    try_worlds(20, async |template, seed| cron_jobs_live(template, seed, FaultRates::ROUGH).await);
}

/// Without the Gateway API a service that is upgraded in steps has no routing, and says so; the rest is there.
#[test]
fn a_service_in_steps_without_gateways() {
    simulate(async {
        let template = template().await;
        let mut stage = Stage::new(&template, 0, FaultRates::default(), Faults::default());
        let service = json!({
            "apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "chat"}, "spec": incremental("ray:0"),
        });
        stage.create::<RayService>(service).await;
        stage
            .settle(async |stage: &Stage| {
                let status = stage.service().await.status.unwrap_or_default();
                let clusters = stage.world.list::<RayCluster>().await.len();
                if clusters == 1 && status.conditions.is_some() {
                    return String::new();
                }
                format!("{clusters} clusters, {status:?}")
            })
            .await;
        stage.end().await;
    });
}

fn steps(fault_rates: FaultRates, faults: Faults, default: u64) {
    try_worlds(default, async |template, seed| steps_live(template, seed, fault_rates, faults).await);
}

#[test]
fn upgrades_in_steps_in_a_world_without_faults() {
    steps(FaultRates::default(), Faults::default(), 1);
}

#[test]
fn upgrades_in_steps_in_a_rough_world() {
    steps(FaultRates::ROUGH, ROUGH_RAY, 5);
}
