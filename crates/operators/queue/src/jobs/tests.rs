use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::object::Uid;
use quintet_controller::{Action, Next, Plan, Step};
use serde_json::{Value, json};

use super::ancestors::Ancestor;
use super::observe::{GoneJob, ObservedJob, Prebuilt, PresentJob, prebuilt_name};
use super::plan::plan;
use super::priority::{MissingClass, Priority};
use super::{JobKind, Stop, StopReason, compose};
use crate::settings::Settings;
use crate::testing::{entry, patch_of};

const NOW: &str = "2026-01-01T01:00:00Z";

fn job() -> Value {
    json!({ "metadata": { "name": "a", "namespace": "ns", "uid": "job", "labels": { "kueue.x-k8s.io/queue-name": "lq" } },
        "spec": { "suspend": true, "parallelism": 2, "completions": 2, "template": {
            "metadata": { "labels": { "own": "label", "controller-uid": "job", "batch.kubernetes.io/job-name": "a" } },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } } })
}

/// The Workload that the job gets.
fn workload(job: &Value) -> Value {
    let job: Job = serde_json::from_value(job.clone()).unwrap();
    let settings = Settings::default();
    let sets = compose::pod_sets(&job, &[], &settings).unwrap();
    let mut workload = compose::workload(&job, "job", sets, &Priority::default(), &settings);
    workload.metadata.uid = Some("w".to_owned());
    let mut workload = serde_json::to_value(workload).unwrap();
    workload["status"] = json!({ "conditions": [] });
    workload
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn admit(workload: &mut Value, count: i32) {
    workload["status"] = json!({
        "conditions": [condition("QuotaReserved", "True", "QuotaReserved", ""), condition("Admitted", "True", "Admitted", ""),
            condition("PodsReady", "False", "WaitForStart", "")],
        "admission": { "clusterQueue": "cq", "podSetAssignments": [
            { "name": "main", "flavors": { "cpu": "default" }, "count": count }] } });
}

struct Case {
    job: Value,
    workloads: Vec<Value>,
    prebuilt: Option<Value>,
    names_prebuilt: bool,
    ancestor: Ancestor,
    settings: Settings,
    priority: Result<Priority, MissingClass>,
}

impl Case {
    fn of(job: Value, workloads: &[Value]) -> Self {
        let settings = Settings::default();
        let (workloads, ancestor, priority) = (workloads.to_vec(), Ancestor::None, Ok(Priority::default()));
        Self { job, workloads, prebuilt: None, names_prebuilt: false, ancestor, settings, priority }
    }

    fn plan(&self) -> Plan {
        let flavor =
            json!({ "metadata": { "name": "default" }, "spec": { "nodeLabels": { "disk": "ssd" } } });
        let job = entry::<Job>(&self.job);
        plan(&ObservedJob::Present(Box::new(PresentJob {
            pod_sets: compose::pod_sets(&job.object, &[], &self.settings),
            reclaimable_pods: job.object.reclaimable_pods(&[]),
            annotations: BTreeMap::new(),
            job,
            settings: Arc::new(self.settings.clone()),
            now: NOW.parse::<Timestamp>().unwrap(),
            is_namespace_managed: true,
            ancestor: self.ancestor.clone(),
            is_ancestor_admitted: false,
            workloads: self.workloads.iter().map(entry::<Workload>).collect(),
            leftovers: Vec::new(),
            prebuilt: self.names_prebuilt.then(|| Prebuilt {
                name: "w".to_owned(),
                workload: self.prebuilt.as_ref().map(entry::<Workload>),
            }),
            priority: self.priority.clone(),
            flavors: BTreeMap::from([("default".to_owned(), serde_json::from_value(flavor).unwrap())]),
        })))
    }

    /// What the plan does, a line per step.
    fn steps(&self) -> Vec<String> {
        let told =
            |step: &quintet_controller::Step| step.event.as_ref().map(|event| format!(" ({})", event.reason));
        let text = |step: &quintet_controller::Step| {
            let target = match &step.action {
                Action::Patch { subresource: Some(sub), kind, .. } => format!("patch {} {sub}", kind.kind),
                Action::Status { kind, .. } => format!("patch {} status", kind.kind),
                action => action.to_string(),
            };
            format!("{target}{}", told(step).unwrap_or_default())
        };
        self.plan().steps.iter().map(text).collect()
    }

    fn patch(&self, step: usize) -> Value {
        patch_of(&self.plan().steps[step].action)
    }
}

const CREATED: &str = "create Workload.kueue.x-k8s.io ns/";

#[test]
fn a_suspended_job_gets_a_workload_and_a_running_one_is_stopped_first() {
    let steps = Case::of(job(), &[]).steps();
    assert!(
        steps.len() == 1 && steps[0].starts_with(CREATED) && steps[0].ends_with("(CreatedWorkload)"),
        "{steps:?}"
    );
    let mut running = job();
    running["spec"]["suspend"] = json!(false);
    let steps = Case::of(running.clone(), &[]).steps();
    assert_eq!(steps, ["patch Job.batch ns/a (Stopped)", "patch Job.batch ns/a"]);
    running["status"] = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
    assert_eq!(Case::of(running, &[]).plan(), Plan::default(), "it has ended");
    let mut active = job();
    active["status"] = json!({ "active": 1 });
    assert_eq!(Case::of(active, &[]).plan().awaits, ["the end of its pods"]);
}

#[test]
fn unmanaged_jobs_are_left_alone() {
    let mut without_queue = job();
    without_queue["metadata"]["labels"] = json!({});
    let mut case = Case::of(without_queue, &[]);
    assert_eq!(case.plan(), Plan::default());
    case.settings.configuration.manage_jobs_without_queue_name = true;
    assert!(case.steps()[0].starts_with(CREATED));
}

#[test]
fn the_job_of_a_managed_ancestor_is_suspended_and_has_no_workload() {
    let ancestor = Ancestor::Managed(Uid::from("parent"));
    let suspended = Case { ancestor: ancestor.clone(), ..Case::of(job(), &[]) };
    assert_eq!(suspended.plan(), Plan::default());
    let mut running = job();
    running["spec"]["suspend"] = json!(false);
    let running = Case { ancestor, ..Case::of(running, &[]) };
    assert_eq!(running.steps()[0], "patch Job.batch ns/a (Suspended)");
}

#[test]
fn an_admitted_job_starts_with_what_its_flavors_and_queues_say() {
    let mut admitted = workload(&job());
    admit(&mut admitted, 2);
    let case = Case::of(job(), &[admitted.clone()]);
    assert_eq!(case.steps(), ["patch Job.batch ns/a (Started)"]);
    let patch = case.patch(0);
    assert_eq!(patch["spec"]["suspend"], false);
    assert_eq!(patch["spec"]["template"]["spec"]["nodeSelector"], json!({ "disk": "ssd" }));
    let labels = json!({ "kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/local-queue-name": "lq",
        "kueue.x-k8s.io/cluster-queue-name": "cq" });
    assert_eq!(patch["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(patch["metadata"]["resourceVersion"], "7");

    let mut conflicting = job();
    conflicting["spec"]["template"]["spec"]["nodeSelector"] = json!({ "disk": "hdd" });
    let case = Case::of(conflicting, &[admitted]);
    assert_eq!(case.steps(), ["patch Workload status"]);
    let conditions = case.patch(0)["status"]["conditions"].clone();
    let finished =
        conditions.as_array().unwrap().iter().find(|own| own["type"] == "Finished").unwrap().clone();
    assert_eq!(finished["reason"], "FailedToStart");
}

#[test]
fn an_evicted_job_stops_and_gives_its_quota_back_when_its_pods_are_gone() {
    let mut evicted = workload(&job());
    admit(&mut evicted, 2);
    evicted["status"]["conditions"].as_array_mut().unwrap().push(condition(
        "Evicted",
        "True",
        "Preempted",
        "why",
    ));
    let mut running = job();
    running["spec"]["suspend"] = json!(false);
    running["status"] = json!({ "active": 2, "startTime": "2026-01-01T00:00:00Z" });
    let steps = Case::of(running.clone(), &[evicted.clone()]).steps();
    assert_eq!(steps, ["patch Job.batch ns/a (Stopped)", "patch Job status", "patch Job.batch ns/a"]);
    running["spec"]["suspend"] = json!(true);
    let stopping = Case::of(running.clone(), &[evicted.clone()]);
    assert_eq!(stopping.plan().awaits, ["the end of its pods"]);
    running["status"] = json!({});
    let stopped = Case::of(running, &[evicted]);
    let status = stopped.patch(0)["status"].clone();
    assert!(status["admission"].is_null());
    let of = |kind: &str| {
        let conditions = status["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|own| own["type"] == kind).unwrap();
        format!("{} {}", found["status"].as_str().unwrap(), found["reason"].as_str().unwrap())
    };
    assert_eq!(of("Requeued"), "True Preempted");
    assert_eq!(of("QuotaReserved"), "False PendingEvaluation");
    assert_eq!(of("Admitted"), "False NoReservation");
}

#[test]
fn a_stop_restores_the_template_and_keeps_labels_of_the_job_controller() {
    let mut started: Value = job();
    started["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] = json!("main");
    started["spec"]["template"]["spec"]["nodeSelector"] = json!({ "disk": "ssd" });
    let sets: Workload = serde_json::from_value(workload(&job())).unwrap();
    let (reason, now) = (StopReason::NotAdmitted, NOW.parse::<Timestamp>().unwrap());
    let stop = Stop { reason, note: "", now };
    let steps = Job::stop(&entry::<Job>(&started), &sets.spec.pod_sets.unwrap(), &stop);
    let Action::Patch { patch, .. } = &steps.last().unwrap().action else { panic!("not a patch") };
    assert_eq!(patch["metadata"]["annotations"]["kueue.x-k8s.io/stopping"], Value::Null);
    assert_eq!(patch["spec"]["template"]["metadata"]["labels"], json!({ "kueue.x-k8s.io/podset": null }));
    assert_eq!(patch["spec"]["template"]["spec"]["nodeSelector"], Value::Null);
}

#[test]
fn a_job_that_changed_while_it_waits_has_its_workload_rewritten() {
    let mut inactive = workload(&job());
    inactive["spec"]["active"] = json!(false);
    let mut changed = job();
    changed["spec"]["parallelism"] = json!(1);
    let case = Case::of(changed.clone(), &[inactive.clone()]);
    assert!(case.steps()[0].ends_with("(UpdatedWorkload)"));
    let spec = case.patch(0)["spec"].clone();
    assert_eq!((&spec["podSets"][0]["count"], &spec["active"]), (&json!(1), &Value::Null), "active is kept");
    let mut reserved = inactive;
    admit(&mut reserved, 2);
    let steps = Case::of(changed, &[reserved]).steps();
    assert!(steps.len() == 2 && steps[1].ends_with("(DeletedWorkload)"), "{steps:?}");
}

#[test]
fn the_workload_follows_the_gates_of_its_job() {
    const GATES: &str = "kueue.x-k8s.io/admission-gated-by";
    const ONLY_STATUS: [&str; 1] = ["patch Workload status"];
    let mut gated = job();
    gated["metadata"]["annotations"] = json!({ GATES: "a.b/c,a.b/d" });
    let known = workload(&gated);
    assert_eq!(known["metadata"]["annotations"], json!({ GATES: "a.b/c,a.b/d" }));
    let followed = |value: &str| {
        let mut job = gated.clone();
        job["metadata"]["annotations"] = json!({ GATES: value });
        let mut case = Case::of(job, std::slice::from_ref(&known));
        let plan = case.plan();
        let step = plan.steps.first().unwrap();
        let Action::Patch { patch, .. } = &step.action else { panic!("not a patch: {step:?}") };
        case.settings.scheduling.admission_gated_by = false;
        assert_eq!(case.steps(), ONLY_STATUS, "without the gate");
        (patch["metadata"]["annotations"][GATES].clone(), step.event.clone().unwrap().note)
    };
    assert_eq!(
        followed("a.b/d"),
        (json!("a.b/d"), "Updated workload AdmissionGatedBy to \"a.b/d\"".to_owned())
    );
    assert_eq!(followed(""), (Value::Null, "Updated workload AdmissionGatedBy to \"\"".to_owned()));
    assert_eq!(Case::of(gated, &[known]).steps(), ONLY_STATUS);
}

#[test]
fn an_evicted_workload_that_waits_follows_the_priority_class_of_its_job() {
    let mut waiting = workload(&job());
    waiting["spec"]["priorityClassRef"] =
        json!({ "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "low" });
    waiting["status"]["conditions"] = json!([
        condition("Evicted", "True", "Preempted", "why"),
        condition("QuotaReserved", "False", "PendingEvaluation", "why"),
        condition("PodsReady", "False", "WaitForStart", "Not all pods are ready or succeeded")
    ]);
    let mut raised = job();
    raised["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    let steps = Case::of(raised, &[waiting]).steps();
    assert!(matches!(&steps[..], [only] if only.ends_with("(UpdatedWorkload)")), "{steps:?}");
}

#[test]
fn a_job_whose_class_does_not_exist_waits_for_it_without_a_workload() {
    let plan_without = |missing: MissingClass| {
        let mut case = Case::of(job(), &[]);
        case.priority = Err(missing);
        let Plan { steps, events, awaits, next, .. } = case.plan();
        assert!(steps.is_empty(), "{steps:?}");
        assert_ne!(next, Next::AwaitChange);
        (awaits, events.into_iter().map(|event| (event.reason, event.note)).collect::<Vec<_>>())
    };
    let (awaits, events) = plan_without(MissingClass::OfWorkloads("high".to_owned()));
    assert_eq!(awaits, ["WorkloadPriorityClass high"]);
    let told = ("WorkloadPriorityClassNotFound", "WorkloadPriorityClass \"high\" not found");
    assert_eq!(events, [(told.0.into(), told.1.into())]);
    let (awaits, events) = plan_without(MissingClass::OfPods("urgent".to_owned()));
    assert_eq!((&awaits[..], &events[..]), (&["PriorityClass urgent".to_owned()][..], &[][..]));
}

#[test]
fn a_job_that_was_given_up_is_deleted_after_a_time_unless_it_was_activated_again() {
    let mut given_up = workload(&job());
    given_up["status"]["conditions"] = json!([
        condition("Evicted", "True", "DeactivatedDueToRequeuingLimitExceeded", "why"),
        condition("PodsReady", "False", "WaitForStart", "Not all pods are ready or succeeded")
    ]);
    let steps = |active: bool| {
        let mut workload = given_up.clone();
        workload["spec"]["active"] = json!(active);
        let mut case = Case::of(job(), &[workload]);
        let policies = json!({ "workloads": { "afterDeactivatedByKueue": "1m" } });
        case.settings.configuration.object_retention_policies = serde_json::from_value(policies).unwrap();
        case.steps()
    };
    assert_eq!(steps(false), ["delete Job.batch ns/a (Deleted)"]);
    assert!(steps(true).is_empty());
}

#[test]
fn partially_admitted_jobs_are_equivalent_with_the_admitted_count() {
    let mut partial = job();
    partial["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/job-min-parallelism": "1" });
    let mut admitted = workload(&partial);
    admit(&mut admitted, 1);
    let case = Case::of(partial.clone(), &[admitted.clone()]);
    assert_eq!(case.patch(0)["spec"]["parallelism"], 1);
    partial["spec"]["suspend"] = json!(false);
    partial["spec"]["parallelism"] = json!(1);
    assert_eq!(Case::of(partial, &[admitted]).plan(), Plan::default(), "it runs as it was admitted");
}

#[test]
fn prebuilt_workloads_are_adopted_unless_they_are_missing_taken_or_differ() {
    let mut own = job();
    own["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/prebuilt-workload-name": "w" });
    let with = |workload: Option<Value>| Case {
        prebuilt: workload,
        names_prebuilt: true,
        ..Case::of(own.clone(), &[])
    };
    assert_eq!(with(None).plan().awaits, ["Workload w"]);
    let mut prebuilt = workload(&own);
    prebuilt["metadata"]["ownerReferences"] = json!([]);
    let adopted = with(Some(prebuilt.clone())).patch(0);
    assert_eq!(adopted["metadata"]["ownerReferences"][0]["uid"], "job");
    let mut taken = prebuilt.clone();
    taken["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "b", "uid": "other", "controller": true }]);
    assert_eq!(with(Some(taken)).plan().awaits, ["Workload w"]);
    let mut differs = workload(&own);
    differs["spec"]["podSets"][0]["count"] = json!(9);
    let conditions = with(Some(differs)).patch(0)["status"]["conditions"].clone();
    assert_eq!(conditions[0]["reason"], "OutOfSync");
}

#[test]
fn an_elastic_job_may_differ_in_size_from_its_prebuilt_slice_while_both_are_changed() {
    let out_of_sync = |parallelism: i32, replaces: Option<&str>, image: &str| {
        let mut own = elastic(1, 2);
        own["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = "w".into();
        let mut slice = workload(&own);
        slice["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/elastic-job": "true" });
        if let Some(replaced) = replaces {
            slice["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-replacement-for"] =
                replaced.into();
        }
        admit(&mut slice, 2);
        own["spec"]["parallelism"] = parallelism.into();
        own["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        let case = Case { prebuilt: Some(slice), names_prebuilt: true, ..Case::of(own, &[]) };
        case.plan().steps.iter().any(|step| format!("{:?}", step.action).contains("OutOfSync"))
    };
    assert!(!out_of_sync(2, None, "i"));
    assert!(!out_of_sync(1, None, "i"), "its slice will be smaller");
    assert!(out_of_sync(3, None, "i"), "another slice has to replace the first");
    assert!(!out_of_sync(3, Some("ns/first"), "i"));
    assert!(out_of_sync(2, Some("ns/first"), "other"), "more than the size differs");
}

#[test]
fn the_end_of_a_job_finishes_its_workload_which_is_then_let_go() {
    let mut ended = job();
    ended["spec"]["suspend"] = json!(false);
    ended["status"] = json!({ "conditions": [{ "type": "Failed", "status": "True", "message": "why" }] });
    let mut admitted = workload(&job());
    admit(&mut admitted, 2);
    let case = Case::of(ended.clone(), &[admitted.clone()]);
    let conditions = case.patch(0)["status"]["conditions"].clone();
    let finished = conditions.as_array().unwrap().last().unwrap().clone();
    assert_eq!((&finished["reason"], &finished["message"]), (&json!("Failed"), &json!("why")));
    admitted["status"]["conditions"].as_array_mut().unwrap().push(finished);
    let case = Case::of(ended, &[admitted]);
    assert!(case.steps()[0].ends_with("(FinishedWorkload)"));
    assert_eq!(case.patch(0)["metadata"]["finalizers"], json!([]));
}

#[test]
fn workloads_of_a_job_that_is_gone_are_finished_and_lose_their_finalizer() {
    let planned = |workload: &Value| {
        let plan = plan::<Job>(&ObservedJob::Gone(GoneJob {
            workloads: vec![entry::<Workload>(workload)],
            settings: Arc::new(Settings::default()),
            now: NOW.parse::<Timestamp>().unwrap(),
        }));
        match &plan.steps[..] {
            [step] => patch_of(&step.action),
            other => panic!("not one step: {other:?}"),
        }
    };
    let mut left = workload(&job());
    assert_eq!(planned(&left)["status"]["conditions"][0]["reason"], "OwnerNotFound");
    left["status"]["conditions"] = json!([condition("Finished", "True", "OwnerNotFound", "")]);
    assert_eq!(planned(&left)["metadata"]["finalizers"], json!([]));
}

/// An elastic job that runs, at a generation and a size.
fn elastic(generation: i64, parallelism: i32) -> Value {
    let mut elastic = job();
    elastic["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/elastic-job": "true" });
    elastic["metadata"]["generation"] = generation.into();
    elastic["spec"]["suspend"] = json!(false);
    elastic["spec"]["parallelism"] = parallelism.into();
    elastic["spec"]["completions"] = json!(9);
    elastic
}

/// The slice that an elastic job gets first.
fn first_slice(job: &Value) -> Value {
    let plan = Case::of(job.clone(), &[]).plan();
    let [Step { action: Action::Create { object, .. }, .. }] = &plan.steps[..] else {
        panic!("not created: {plan:?}")
    };
    let mut slice = serde_json::to_value(object).unwrap();
    slice["metadata"]["uid"] = json!("w");
    slice["status"] = json!({ "conditions": [] });
    slice
}

#[test]
fn an_elastic_job_that_grows_gets_a_slice_that_replaces_the_first() {
    let first = first_slice(&elastic(1, 2));
    let name = first["metadata"]["name"].as_str().unwrap();
    let annotations =
        json!({ "kueue.x-k8s.io/elastic-job": "true", "kueue.x-k8s.io/workload-slice-name": name });
    assert_eq!(first["metadata"]["annotations"], annotations);
    let mut admitted = first.clone();
    admit(&mut admitted, 2);
    assert_eq!(Case::of(elastic(1, 2), &[admitted.clone()]).plan(), Plan::default(), "it runs");

    let mut started = elastic(2, 3);
    started["spec"]["template"]["spec"]["nodeSelector"] = json!({ "disk": "ssd" });
    let plan = Case::of(started.clone(), &[admitted.clone()]).plan();
    let [Step { action: Action::Create { object, .. }, .. }] = &plan.steps[..] else {
        panic!("not created: {plan:?}")
    };
    let mut second = serde_json::to_value(object).unwrap();
    let of = |name: &str| second["metadata"]["annotations"][format!("kueue.x-k8s.io/{name}")].clone();
    assert_eq!(of("workload-slice-replacement-for"), format!("ns/{name}"));
    assert_eq!(of("workload-slice-name"), name);
    assert_ne!(second["metadata"]["name"], name);
    let set = &second["spec"]["podSets"][0];
    assert_eq!((&set["count"], &set["template"]["spec"]["nodeSelector"]), (&json!(3), &Value::Null));

    second["metadata"]["uid"] = json!("second");
    second["status"] = json!({ "conditions": [condition("PodsReady", "False", "WaitForStart", "")] });
    let waits = Case::of(started, &[admitted, second]).plan();
    assert!(waits.steps.is_empty() && waits.awaits.len() == 1, "it goes on with the pods it has: {waits:?}");
}

#[test]
fn an_elastic_job_that_shrinks_or_waits_keeps_its_slice() {
    let mut slice = first_slice(&elastic(1, 3));
    let shrunk = elastic(2, 1);
    assert_eq!(Case::of(shrunk.clone(), &[slice.clone()]).patch(0)["spec"]["podSets"][0]["count"], 1);
    admit(&mut slice, 3);
    assert_eq!(Case::of(shrunk, &[slice]).patch(0)["spec"]["podSets"][0]["count"], 1);
}

#[test]
fn an_elastic_job_that_shrinks_has_fewer_pods_to_reclaim() {
    let mut job = elastic(2, 3);
    job["spec"]["completions"] = 20.into();
    job["status"] = json!({ "succeeded": 18 });
    let mut slice = first_slice(&job);
    admit(&mut slice, 3);
    slice["status"]["reclaimablePods"] = json!([{ "name": "main", "count": 2 }]);
    let case = Case::of(job, &[slice]);
    assert_eq!(case.patch(0)["status"]["reclaimablePods"], json!([{ "name": "main", "count": 1 }]));
}

#[test]
fn an_elastic_job_stops_before_a_slice_that_was_evicted_ends() {
    let mut evicted = first_slice(&elastic(1, 2));
    let name = evicted["metadata"]["name"].clone();
    admit(&mut evicted, 2);
    let conditions = evicted["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(condition("Evicted", "True", "Preempted", "why"));
    let mut waiting = first_slice(&elastic(2, 3));
    waiting["metadata"]["uid"] = json!("second");
    waiting["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-replacement-for"] =
        format!("ns/{}", name.as_str().unwrap()).into();
    let both = [evicted, waiting];
    let mut job = elastic(2, 3);
    job["status"] = json!({ "active": 2 });
    assert!(Case::of(job.clone(), &both).steps()[0].ends_with("(Stopped)"));
    job["spec"]["suspend"] = json!(true);
    assert_eq!(Case::of(job.clone(), &both).plan().awaits, ["the end of its pods"]);
    job["status"] = json!({});
    let conditions = Case::of(job, &both).patch(0)["status"]["conditions"].clone();
    assert_eq!(conditions.as_array().unwrap().last().unwrap()["reason"], "WorkloadSliceReplaced");
}

#[test]
fn the_name_of_the_first_slice_replaces_one_of_another_chain() {
    let mut job = elastic(3, 2);
    job["spec"]["suspend"] = json!(true);
    job["spec"]["template"]["metadata"]["annotations"] =
        json!({ "kueue.x-k8s.io/workload-slice-name": "old", "kueue.x-k8s.io/workload": "old" });
    let mut slice = first_slice(&job);
    admit(&mut slice, 2);
    let name = slice["metadata"]["name"].clone();
    let case = Case::of(job, &[slice]);
    assert_eq!(case.steps(), ["patch Job.batch ns/a (Started)"]);
    let annotations = case.patch(0)["spec"]["template"]["metadata"]["annotations"].clone();
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-name"], name);
    assert_eq!(annotations["kueue.x-k8s.io/workload"], name);
}

#[test]
fn without_its_gate_the_annotation_names_no_prebuilt_workload() {
    let mut settings = Settings::default();
    let metadata = |of: Value| -> Job { serde_json::from_value(json!({ "metadata": of })).unwrap() };
    let named = json!({ "kueue.x-k8s.io/prebuilt-workload-name": "w" });
    let (by_annotation, by_label) =
        (metadata(json!({ "annotations": named })), metadata(json!({ "labels": named })));
    assert_eq!(prebuilt_name(&by_annotation.metadata, &settings), Some("w"));
    settings.gates.identifier_annotations = false;
    assert_eq!(prebuilt_name(&by_annotation.metadata, &settings), None);
    assert_eq!(prebuilt_name(&by_label.metadata, &settings), Some("w"));
}
