//! Jobs from creation to their end, on objects in memory.

mod indexed;
mod lifecycle;
mod policies;

use k8s_openapi::api::batch::v1::Job;
use quintet_controller::{Controller as _, Next};
use serde_json::{Value, json};

use super::{JobController, Observed};
use crate::names::Entropy;
use crate::pod::PodView;
use crate::testing::{Bench, stored};

/// A Job and its pods.
struct JobBench {
    bench: Bench,
    next: Next,
}

impl JobBench {
    /// A Job with a spec beside its template.
    fn new(spec: &Value) -> Self {
        let mut bench = Bench::new();
        let mut job = json!({
            "metadata": { "name": "job", "uid": "job-uid" },
            "spec": {
                "selector": { "matchLabels": { "batch.kubernetes.io/controller-uid": "job-uid" } },
                "template": {
                    "metadata": { "labels": { "batch.kubernetes.io/controller-uid": "job-uid" } },
                    "spec": { "restartPolicy": "Never", "containers": [{ "name": "main" }] },
                },
            },
        });
        job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        bench.create("Job", job);
        Self { bench, next: Next::AwaitChange }
    }

    /// Reconciles until nothing changes.
    fn reconcile(&mut self) -> &mut Self {
        for _ in 0..20 {
            if !self.reconcile_once() {
                return self;
            }
        }
        panic!("still changing: {:#}", self.status());
    }

    /// Reconciles once; returns whether anything changed.
    fn reconcile_once(&mut self) -> bool {
        let observed = stored(&Observed {
            job: self.bench.entry::<Job>("Job", "job"),
            pods: self.bench.entries::<PodView>("Pod"),
            ttl_is_current: true,
            entropy: Entropy::default(),
            now: self.bench.now,
        });
        let plan = JobController::plan(&observed);
        self.next = plan.next;
        self.bench.act("Job", "job", &plan)
    }

    fn status(&self) -> &Value {
        &self.bench.get("Job", "job")["status"]
    }

    fn pods(&self) -> Vec<String> {
        self.bench.names("Pod")
    }

    /// Pods in a phase that are not being deleted.
    fn in_phase(&self, phase: &str) -> Vec<String> {
        let of = |name: &String| self.bench.get("Pod", name);
        let is_alive = |name: &String| of(name)["metadata"].get("deletionTimestamp").is_none();
        let phase_of = |name: &String| of(name)["status"]["phase"].as_str().unwrap_or("Pending").to_owned();
        self.pods().into_iter().filter(|name| is_alive(name) && phase_of(name) == phase).collect()
    }

    /// All pending pods run.
    fn run_all(&mut self) -> &mut Self {
        for pod in self.in_phase("Pending") {
            let ready = json!([{ "type": "Ready", "status": "True" }]);
            let patch =
                json!({ "spec": { "nodeName": "n" }, "status": { "phase": "Running", "conditions": ready } });
            self.bench.patch("Pod", &pod, &patch);
        }
        self
    }

    /// A pod ends with an exit code.
    fn end(&mut self, pod: &str, code: i32) -> &mut Self {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let terminated = json!({ "exitCode": code, "finishedAt": self.bench.now });
        let status = json!([{ "name": "main", "state": { "terminated": terminated } }]);
        self.bench.patch(
            "Pod",
            pod,
            &json!({ "status": { "phase": phase, "containerStatuses": status, "conditions": [] } }),
        );
        self
    }

    /// Every active pod ends with an exit code.
    fn end_all(&mut self, code: i32) -> &mut Self {
        self.run_all();
        for pod in self.in_phase("Running") {
            self.end(&pod, code);
        }
        self
    }

    /// The kubelet removes pods that are being deleted and have no finalizer.
    fn kubelet_removes(&mut self) -> &mut Self {
        for pod in self.pods() {
            let object = self.bench.get("Pod", &pod);
            let is_free = object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
            if is_free && object["metadata"].get("deletionTimestamp").is_some() {
                self.bench.remove("Pod", &pod);
            }
        }
        self
    }

    /// Finalizers that are left.
    fn tracked(&self) -> usize {
        let finalizers =
            |name: &String| self.bench.get("Pod", name)["metadata"]["finalizers"].as_array().cloned();
        self.pods().iter().filter_map(finalizers).map(|all| all.len()).sum()
    }

    /// The pod of an index that is active.
    fn of_index(&self, index: i32) -> String {
        let active: Vec<_> = self.in_phase("Pending").into_iter().chain(self.in_phase("Running")).collect();
        let number = index.to_string();
        let has_index = |name: &&String| {
            let annotations = &self.bench.get("Pod", name)["metadata"]["annotations"];
            annotations["batch.kubernetes.io/job-completion-index"].as_str() == Some(&number)
        };
        active.iter().find(has_index).unwrap_or_else(|| panic!("no pod of index {index}")).clone()
    }

    /// Types of true conditions, in order, with their reasons.
    fn conditions(&self) -> Vec<String> {
        let all = self.status()["conditions"].as_array().cloned().unwrap_or_default();
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        all.iter()
            .filter(|condition| condition["status"] == "True")
            .map(|condition| format!("{}:{}", text(&condition["type"]), text(&condition["reason"])))
            .collect()
    }
}
