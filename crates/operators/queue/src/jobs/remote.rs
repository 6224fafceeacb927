//! Kinds of jobs that can run on another cluster: those whose `managedBy` keeps their own controllers away, so that this
//! operator can report in their status what happens elsewhere. As the adapters of `pkg/controller/jobs` of Kueue.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use quintet_api::kueue::metadata::MULTIKUEUE_CONTROLLER;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::controller::Setup;
use quintet_controller::{ApiKind, Error, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ancestors::kind_of_framework;
use super::json::{self as kinds, JsonJob, JsonKind};
use super::slices::{self, Counts};
use super::{JobKind, observe};
use crate::Context;
use crate::settings::{BATCH_JOB, POD, Settings};
use crate::watches::BY_OWNER;

const MANAGED_BY: &str = "/spec/managedBy";
/// Pods have none: their gate keeps them here.
const NOT_MANAGED: &str = "";
/// The jobs of Kubeflow have it among their policies.
const IN_RUN_POLICY: &str = "/spec/runPolicy/managedBy";

/// What matters of the state of a job, here or elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobFacts {
    pub(crate) is_suspended: bool,
    /// Whether pods of it exist that have not ended.
    pub(crate) is_active: bool,
    pub(crate) has_ended: bool,
}

/// A kind of job that can run on another cluster.
pub(crate) struct RemoteKind {
    pub(crate) kind: ApiKind,
    /// The JSON pointer to the field that says who runs it.
    pub(crate) managed_by: &'static str,
    jobs: Box<dyn Jobs>,
}

/// The jobs of a kind on this cluster.
trait Jobs: Send + Sync {
    fn get(&self, key: &ObjectKey) -> Option<Entry<Value>>;
    /// What matters of a job, and the job with the fields that this program knows.
    fn read(&self, job: &Value) -> (JobFacts, Value);
    /// How many pods of each pod set a job asks for, if it is elastic.
    fn counts(&self, job: &Value, settings: &Settings) -> Option<Counts> {
        let _ = (job, settings);
        None
    }
    fn watched(&self, setup: Setup, workloads: Cache<Workload>) -> Setup;
}

/// Kinds that are read as JobKind says.
struct OfKind<J>(Cache<J>);

/// Pods, which stay gated here and have the state of those elsewhere.
struct Pods(Cache<Pod>);

/// Kinds without an integration, of which only `managedBy` is known.
struct External(Cache<Value>);

fn copied<T>(entry: &Entry<T>, object: Value) -> Entry<Value> {
    let mut copy = Entry::new(entry.key.clone(), object);
    (copy.uid, copy.version) = (entry.uid.clone(), entry.version);
    (copy.content, copy.deleting) = (entry.content, entry.deleting);
    copy
}

/// Lets the Workloads of changed jobs be reconciled, if checks decide about them.
fn watch<T: Send + Sync + 'static>(setup: Setup, jobs: &Cache<T>, workloads: Cache<Workload>) -> Setup {
    setup.watches(jobs, move |job| {
        let owned = workloads.by_index(BY_OWNER, job.uid.as_str());
        let is_checked = |entry: &&Arc<Entry<Workload>>| {
            entry.object.status.as_ref().is_some_and(|status| status.admission_checks.is_some())
        };
        owned.iter().filter(is_checked).map(|entry| entry.key.clone()).collect()
    })
}

impl<J: JobKind> Jobs for OfKind<J> {
    fn get(&self, key: &ObjectKey) -> Option<Entry<Value>> {
        let entry = self.0.get(key)?;
        let object = serde_json::to_value(&entry.object).unwrap_or_default();
        Some(copied(&entry, object))
    }

    fn read(&self, job: &Value) -> (JobFacts, Value) {
        let Ok(typed) = serde_json::from_value::<J>(job.clone()) else {
            return (JobFacts::default(), job.clone());
        };
        let facts = JobFacts {
            is_suspended: typed.is_suspended(),
            is_active: typed.is_active(),
            has_ended: typed.end().is_some(),
        };
        (facts, serde_json::to_value(&typed).unwrap_or_default())
    }

    fn counts(&self, job: &Value, settings: &Settings) -> Option<Counts> {
        let typed = serde_json::from_value::<J>(job.clone()).ok()?;
        slices::counts_of(&typed, settings)
    }

    fn watched(&self, setup: Setup, workloads: Cache<Workload>) -> Setup {
        watch(setup, &self.0, workloads)
    }
}

impl Jobs for Pods {
    fn get(&self, key: &ObjectKey) -> Option<Entry<Value>> {
        let entry = self.0.get(key)?;
        let object = serde_json::to_value(&entry.object).unwrap_or_default();
        Some(copied(&entry, object))
    }

    fn read(&self, pod: &Value) -> (JobFacts, Value) {
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let has_ended = matches!(phase, "Succeeded" | "Failed");
        // The gate here says nothing about the pod elsewhere.
        (JobFacts { is_suspended: false, is_active: phase == "Running", has_ended }, pod.clone())
    }

    fn watched(&self, setup: Setup, workloads: Cache<Workload>) -> Setup {
        watch(setup, &self.0, workloads)
    }
}

impl Jobs for External {
    fn get(&self, key: &ObjectKey) -> Option<Entry<Value>> {
        let entry = self.0.get(key)?;
        Some(copied(&entry, entry.object.clone()))
    }

    fn read(&self, job: &Value) -> (JobFacts, Value) {
        // Nothing is known of its states: whoever reconciles it on the other cluster finishes its Workload at the end.
        (JobFacts { has_ended: true, ..JobFacts::default() }, job.clone())
    }

    fn watched(&self, setup: Setup, workloads: Cache<Workload>) -> Setup {
        watch(setup, &self.0, workloads)
    }
}

impl RemoteKind {
    fn of<J: JobKind>(context: &Context, managed_by: &'static str) -> Result<Self, Error> {
        let jobs = OfKind(context.runtime.caches().watch(observe::jobs::<J>())?);
        Ok(Self { kind: ApiKind::of::<J>(), managed_by, jobs: Box::new(jobs) })
    }

    fn pods(context: &Context) -> Result<Self, Error> {
        let jobs = Pods(context.runtime.caches().watch(observe::jobs::<Pod>())?);
        Ok(Self { kind: ApiKind::of::<Pod>(), managed_by: NOT_MANAGED, jobs: Box::new(jobs) })
    }

    fn external(context: &Context, kind: ApiKind) -> Result<Self, Error> {
        let spec = WatchSpec::projected(kind.clone(), |text| serde_json::from_str::<Value>(text)).optional();
        let jobs = External(context.runtime.caches().watch(spec)?);
        Ok(Self { kind, managed_by: MANAGED_BY, jobs: Box::new(jobs) })
    }

    /// A job on this cluster.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Entry<Value>> {
        self.jobs.get(key)
    }

    /// What matters of a job, and the job with the fields that this program knows.
    pub(crate) fn read(&self, job: &Value) -> (JobFacts, Value) {
        self.jobs.read(job)
    }

    /// How many pods of each pod set a job asks for, if it is elastic.
    pub(crate) fn counts(&self, job: &Value, settings: &Settings) -> Option<Counts> {
        self.jobs.counts(job, settings)
    }

    /// Lets a controller of Workloads reconcile those whose jobs change.
    pub(crate) fn watched(&self, setup: Setup, workloads: &Cache<Workload>) -> Setup {
        self.jobs.watched(setup, workloads.clone())
    }
}

/// Names and `managedBy` of the kinds with an integration.
macro_rules! integrated {
    ($apply:ident) => {
        $apply! {
            AppWrapper MANAGED_BY, JaxJob IN_RUN_POLICY, JobSet MANAGED_BY, MpiJob IN_RUN_POLICY,
            PaddleJob IN_RUN_POLICY, PyTorchJob IN_RUN_POLICY, RayCluster MANAGED_BY, RayJob MANAGED_BY,
            RayService MANAGED_BY, TfJob IN_RUN_POLICY, TrainJob MANAGED_BY, XgBoostJob IN_RUN_POLICY
        }
    };
}

/// The kinds that can run on other clusters, as far as their integrations are enabled.
pub(crate) fn remote_kinds(context: &Context) -> Result<Vec<RemoteKind>, Error> {
    let settings = &context.settings;
    let mut found = Vec::new();
    if settings.is_enabled(BATCH_JOB) {
        found.push(RemoteKind::of::<Job>(context, MANAGED_BY)?);
    }
    if settings.is_enabled(POD) {
        found.push(RemoteKind::pods(context)?);
    }
    macro_rules! add {
        ($($kind:ident $managed_by:ident),+) => {$(
            if settings.is_enabled(kinds::$kind::NAMES.framework) {
                found.push(RemoteKind::of::<JsonJob<kinds::$kind>>(context, $managed_by)?);
            }
        )+};
    }
    integrated!(add);
    for kind in external_kinds(settings) {
        if found.iter().all(|known| known.kind.kind != kind.kind || known.kind.group != kind.group) {
            found.push(RemoteKind::external(context, kind)?);
        }
    }
    Ok(found)
}

/// The JSON pointer to the field of a kind that says who runs its jobs, for kinds with an integration.
fn managed_by(group: &str, kind: &str) -> Option<&'static str> {
    if (group, kind) == ("batch", "Job") {
        return Some(MANAGED_BY);
    }
    macro_rules! find {
        ($($kind:ident $managed_by:ident),+) => {$(
            if (kinds::$kind::NAMES.group, kinds::$kind::NAMES.kind) == (group, kind) {
                return Some($managed_by);
            }
        )+};
    }
    integrated!(find);
    None
}

/// Kinds without an integration that can run on other clusters.
pub(crate) fn external_kinds(settings: &Settings) -> Vec<ApiKind> {
    let frameworks = &settings.configuration.multi_kueue.external_frameworks;
    let is_enabled = settings.gates.multikueue && settings.gates.multikueue_custom_jobs;
    let frameworks = frameworks.iter().filter(|_| is_enabled);
    frameworks.filter_map(|framework| kind_of_framework(&framework.name)).collect()
}

/// The value for `managedBy` of a job that other clusters run.
pub(crate) fn is_sent_elsewhere(job: &Value, managed_by: &str) -> Result<(), String> {
    if managed_by == NOT_MANAGED {
        return Ok(());
    }
    let found = job.pointer(managed_by).and_then(Value::as_str).unwrap_or_default();
    if found == MULTIKUEUE_CONTROLLER {
        return Ok(());
    }
    let path = managed_by.trim_start_matches('/').replace('/', ".");
    Err(format!("Expecting {path} to be {MULTIKUEUE_CONTROLLER:?} not {found:?}"))
}

/// Lets other clusters run a job, unless its user has chosen who does.
pub(super) fn send_elsewhere(job: &mut Value, group: &str, kind: &str) {
    let Some(managed_by) = managed_by(group, kind) else { return };
    let known = job.pointer(managed_by).and_then(Value::as_str);
    if known.is_none_or(|own| own == own_controller(group, kind)) {
        kinds::set(job, managed_by, MULTIKUEUE_CONTROLLER.into());
    }
}

/// The value of `managedBy` for the controller that usually runs a kind.
fn own_controller(group: &str, kind: &str) -> &'static str {
    match (group, kind) {
        ("batch", _) => "kubernetes.io/job-controller",
        ("jobset.x-k8s.io", _) => "jobset.sigs.k8s.io/jobset-controller",
        ("kubeflow.org", "MPIJob") => "kubeflow.org/mpi-operator",
        ("kubeflow.org", _) => "kubeflow.org/training-operator",
        ("ray.io", _) => "ray.io/kuberay-operator",
        ("trainer.kubeflow.org", _) => "trainer.kubeflow.org/trainjob-controller",
        ("workload.codeflare.dev", _) => "workload.codeflare.dev/appwrapper-controller",
        _ => "",
    }
}

/// The spec of a job for another cluster, where its own controllers run it.
pub(crate) fn spec_elsewhere(job: &Value, managed_by: &str) -> Value {
    let mut copy = json!({ "kind": job["kind"], "spec": job["spec"] });
    if managed_by != NOT_MANAGED {
        kinds::remove(&mut copy, managed_by);
    }
    if copy["kind"] == "TrainJob" {
        // The other cluster adds a patch of its own, for what it assigns.
        if let Some(patches) = copy["spec"]["runtimePatches"].as_array_mut() {
            patches.retain(|patch| patch["manager"] != kinds::RUNTIME_PATCH_MANAGER);
        }
    }
    if copy["kind"] == "Job" && copy["spec"]["manualSelector"] != true {
        // They name the Job by its uid, which the copy has its own of.
        kinds::remove(&mut copy, "/spec/selector");
        for label in super::batch_job::OF_CONTROLLER {
            if let Some(labels) =
                copy.pointer_mut("/spec/template/metadata/labels").and_then(Value::as_object_mut)
            {
                labels.remove(label);
            }
        }
    }
    copy["spec"].take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_field() {
        let table = [
            ("batch", "Job", Some(MANAGED_BY)),
            ("jobset.x-k8s.io", "JobSet", Some(MANAGED_BY)),
            ("kubeflow.org", "MPIJob", Some(IN_RUN_POLICY)),
            ("kubeflow.org", "PyTorchJob", Some(IN_RUN_POLICY)),
            ("ray.io", "RayService", Some(MANAGED_BY)),
            ("trainer.kubeflow.org", "TrainJob", Some(MANAGED_BY)),
            ("workload.codeflare.dev", "AppWrapper", Some(MANAGED_BY)),
            ("sparkoperator.k8s.io", "SparkApplication", None),
            ("apps", "Deployment", None),
        ];
        for (group, kind, expected) in table {
            assert_eq!(managed_by(group, kind), expected, "{kind}");
        }
    }

    #[test]
    fn a_job_is_sent_elsewhere_unless_its_user_has_chosen_who_runs_it() {
        let table = [
            (json!({}), MULTIKUEUE_CONTROLLER),
            (json!({ "managedBy": "jobset.sigs.k8s.io/jobset-controller" }), MULTIKUEUE_CONTROLLER),
            (json!({ "managedBy": "example.com/mine" }), "example.com/mine"),
        ];
        for (spec, expected) in table {
            let mut job = json!({ "spec": spec });
            send_elsewhere(&mut job, "jobset.x-k8s.io", "JobSet");
            assert_eq!(job["spec"]["managedBy"], expected);
        }
        let mut pod = json!({ "spec": {} });
        send_elsewhere(&mut pod, "", "Pod");
        assert_eq!(pod, json!({ "spec": {} }));
    }

    #[test]
    fn a_job_of_another_manager_stays_here() {
        let job = json!({ "spec": { "runPolicy": { "managedBy": "kubeflow.org/training-operator" } } });
        assert_eq!(
            is_sent_elsewhere(&job, IN_RUN_POLICY).unwrap_err(),
            "Expecting spec.runPolicy.managedBy to be \"kueue.x-k8s.io/multikueue\" not \"kubeflow.org/training-operator\""
        );
        let job = json!({ "spec": { "managedBy": MULTIKUEUE_CONTROLLER } });
        assert_eq!(is_sent_elsewhere(&job, MANAGED_BY), Ok(()));
    }

    #[test]
    fn the_copy_of_a_train_job_has_no_patch_of_this_cluster() {
        let job = json!({ "kind": "TrainJob", "spec": { "runtimePatches": [
            { "manager": kinds::RUNTIME_PATCH_MANAGER }, { "manager": "example.com/mine" }] } });
        let expected = json!({ "runtimePatches": [{ "manager": "example.com/mine" }] });
        assert_eq!(spec_elsewhere(&job, MANAGED_BY), expected);
    }

    #[test]
    fn the_copy_of_a_job_names_neither_its_manager_nor_its_uid() {
        let job = json!({ "kind": "Job", "spec": { "managedBy": MULTIKUEUE_CONTROLLER, "suspend": true,
            "selector": { "matchLabels": { "batch.kubernetes.io/controller-uid": "u" } },
            "template": { "metadata": { "labels": { "controller-uid": "u", "job-name": "j", "app": "a" } } } } });
        let expected = json!({ "suspend": true, "template": { "metadata": { "labels": { "app": "a" } } } });
        assert_eq!(spec_elsewhere(&job, MANAGED_BY), expected);
    }
}
