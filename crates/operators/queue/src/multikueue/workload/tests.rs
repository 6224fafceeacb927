//! Tables of the plan: a Workload, what three clusters have of it, and what follows.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use quintet_api::config::kueue::IncrementalDispatcher;
use quintet_api::kueue::metadata::MULTIKUEUE_CONTROLLER;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Class, Error, Next, Plan};
use serde_json::{Value, json};

use super::observe::{Copies, Job, LocalJob, Observed, Present, Reach, RemoteJob};
use super::{Call, plan};
use crate::jobs::JobFacts;
use crate::settings::Settings;
use crate::testing::{entry, patch_of};

const NOW: &str = "2026-01-01T01:00:00Z";
const EARLIER: &str = "2026-01-01T00:50:00Z";
const CHECK: &str = "check";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn condition(kind: &str, reason: &str, since: &str) -> Value {
    json!({ "type": kind, "status": "True", "reason": reason, "message": "why", "lastTransitionTime": since })
}

/// A Workload with a condition of each of these types.
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
fn workload(conditions: &[&str], status: Value) -> Value {
    let conditions: Vec<Value> = conditions.iter().map(|kind| condition(kind, kind, EARLIER)).collect();
    let mut object = json!({ "metadata": { "name": "w", "namespace": "ns", "uid": "w",
            "creationTimestamp": EARLIER, "labels": { "kueue.x-k8s.io/job-uid": "j", "team": "a" } },
        "spec": { "queueName": "lq", "podSets": [{ "name": "main", "count": 1, "template": {} }] },
        "status": { "conditions": conditions } });
    for (name, value) in status.as_object().unwrap() {
        object["status"][name] = value.clone();
    }
    object
}

fn check(state: &str) -> Value {
    json!([{ "name": CHECK, "state": state, "message": "", "lastTransitionTime": EARLIER }])
}

/// One that waits for its check.
fn pending(nominated: &[&str]) -> Value {
    let mut status = json!({ "admission": { "clusterQueue": "cq" }, "admissionChecks": check("Pending") });
    if !nominated.is_empty() {
        status["nominatedClusterNames"] = json!(nominated);
    }
    workload(&["QuotaReserved"], status)
}

/// One that runs on a cluster.
fn placed(cluster: &str, conditions: &[&str]) -> Value {
    let status = json!({ "admission": { "clusterQueue": "cq" }, "clusterName": cluster,
        "admissionChecks": check("Ready") });
    workload(&[&["QuotaReserved", "Admitted"], conditions].concat(), status)
}

fn job(spec: &Value, status: &Value) -> Arc<Entry<Value>> {
    entry(&json!({ "kind": "Job", "metadata": { "name": "j", "namespace": "ns", "uid": "j",
        "labels": { "kueue.x-k8s.io/queue-name": "lq" } }, "spec": spec, "status": status }))
}

fn kind() -> ApiKind {
    ApiKind::of::<k8s_openapi::api::batch::v1::Job>()
}

fn local_job(is_suspended: bool, status: &Value) -> LocalJob {
    let spec = json!({ "managedBy": MULTIKUEUE_CONTROLLER, "suspend": is_suspended });
    let facts = JobFacts { is_suspended, is_active: status["active"] == 1, has_ended: false };
    let managed_by = "/spec/managedBy".to_owned();
    LocalJob { kind: kind(), entry: job(&spec, status), managed_by, facts, counts: None }
}

fn nothing(cluster: &str) -> Copies {
    let cluster = cluster.to_owned();
    Copies { cluster, reach: Reach::Connected, workload: None, jobs: Vec::new() }
}

fn copy(cluster: &str, conditions: &[&str]) -> Copies {
    Copies { workload: Some(entry(&workload(conditions, json!({})))), ..nothing(cluster) }
}

fn with_job(copies: Copies, status: Value, has_ended: bool) -> Copies {
    let facts = JobFacts { has_ended, ..JobFacts::default() };
    let entry = job(&json!({}), &status);
    Copies { jobs: vec![RemoteJob { kind: kind(), entry, status, facts }], ..copies }
}

fn lost(copies: Copies, since: &str) -> Copies {
    Copies { reach: Reach::LostSince(at(since)), ..copies }
}

fn present(workload: &Value, job: LocalJob, copies: Vec<Copies>) -> Present {
    Present {
        workload: entry(workload),
        check: CHECK.to_owned(),
        configured: ["b", "a", "c"].map(str::to_owned).to_vec(),
        job: Job::Found(vec![job]),
        copies,
        settings: Arc::new(Settings::default()),
        now: at(NOW),
    }
}

fn planned(present: Present) -> Plan<Call> {
    plan::plan(&Observed::Present(Box::new(present)))
}

/// The steps of a plan in words.
fn steps(plan: &Plan<Call>) -> Vec<String> {
    plan.steps.iter().map(|step| step.action.to_string()).collect()
}

fn status(plan: &Plan<Call>) -> Value {
    plan.status.as_ref().map(|status| status.status.clone()).unwrap_or_default()
}

/// What a plan makes of the check.
fn checked(plan: &Plan<Call>) -> String {
    let check = &status(plan)["admissionChecks"][0];
    let text = |field: &str| check[field].as_str().unwrap_or_default();
    format!("{}: {}", text("state"), text("message"))
}

fn suspended() -> LocalJob {
    local_job(true, &json!({}))
}

#[test]
fn connected_clusters_are_nominated_then_asked() {
    let copies = || vec![nothing("b"), nothing("a"), lost(nothing("c"), EARLIER)];
    let plan = planned(present(&pending(&[]), suspended(), copies()));
    assert_eq!((steps(&plan), status(&plan)), (vec![], json!({ "nominatedClusterNames": ["a", "b"] })));

    let plan = planned(present(&pending(&["a", "b"]), suspended(), copies()));
    let create = "create Workload.kueue.x-k8s.io ns/w on cluster";
    assert_eq!(steps(&plan), [format!("{create} b; {create} a")]);
    let Action::Call(call) = &plan.steps[0].action else { panic!() };
    let Action::Create { object, .. } = &call.writes[0].actions[0] else { panic!() };
    assert_eq!(
        object["metadata"]["labels"],
        json!({ "team": "a", "kueue.x-k8s.io/multikueue-origin": "multikueue" })
    );
    assert_eq!((&object["spec"]["queueName"], &object["status"]), (&json!("lq"), &Value::Null));
}

#[test]
fn nothing_is_asked_before_the_other_checks_are_ready() {
    let mut waiting = pending(&[]);
    let checks = waiting["status"]["admissionChecks"].as_array_mut().unwrap();
    checks.push(json!({ "name": "other", "state": "Pending", "message": "", "lastTransitionTime": EARLIER }));
    let plan = planned(present(&waiting, suspended(), vec![nothing("a")]));
    assert!(plan.is_empty(), "{plan:?}");
}

#[test]
fn copies_on_clusters_that_are_not_nominated_are_removed() {
    let copies = vec![copy("b", &[]), copy("a", &[]), lost(copy("c", &[]), EARLIER)];
    let mut present = present(&pending(&["a"]), suspended(), copies);
    let mut settings = Settings::default();
    settings.configuration.multi_kueue.dispatcher_name = "example.com/mine".to_owned();
    present.settings = Arc::new(settings);
    assert_eq!(steps(&planned(present)), ["delete Workload.kueue.x-k8s.io ns/w on cluster b"]);
}

#[test]
fn the_incremental_dispatcher_asks_a_few_more_each_round() {
    let with = |nominated: &[&str], copies: Vec<Copies>, step: i32, in_config_order: bool| {
        let mut settings = Settings::default();
        settings.configuration.multi_kueue.dispatcher_name =
            "kueue.x-k8s.io/multikueue-dispatcher-incremental".to_owned();
        settings.configuration.multi_kueue.incremental_dispatcher_config =
            Some(IncrementalDispatcher { step_size: step });
        settings.gates.multikueue_config_order = in_config_order;
        let mut present = present(&pending(nominated), suspended(), copies);
        present.settings = Arc::new(settings);
        let plan = planned(present);
        (status(&plan)["nominatedClusterNames"].clone(), plan.next)
    };
    let all = || vec![nothing("b"), nothing("a"), nothing("c")];
    assert_eq!(with(&[], all(), 2, true).0, json!(["b", "a"]));
    assert_eq!(with(&[], all(), 2, false).0, json!(["a", "b"]));
    // Ten minutes ago: the round is over.
    assert_eq!(with(&["b"], vec![copy("b", &[]), nothing("a"), nothing("c")], 1, true).0, json!(["b", "a"]));
    // A copy of four minutes ago: one minute is left.
    let mut young = workload(&[], json!({}));
    young["metadata"]["creationTimestamp"] = "2026-01-01T00:56:00Z".into();
    let young = Copies { workload: Some(entry(&young)), ..nothing("b") };
    let (nominated, next) = with(&["b"], vec![young, nothing("a"), nothing("c")], 1, true);
    assert_eq!((nominated, next), (Value::Null, Next::After(std::time::Duration::from_mins(1))));
    // A cluster that is lost is not waited for.
    let copies = vec![lost(nothing("b"), EARLIER), nothing("a"), nothing("c")];
    assert_eq!(with(&["b"], copies, 1, true).0, json!(["b", "a"]));
}

#[test]
fn the_first_cluster_that_admits_it_gets_the_job() {
    let reserved = copy("b", &["QuotaReserved"]);
    let mut late = workload(&["QuotaReserved"], json!({}));
    late["status"]["conditions"].as_array_mut().unwrap().push(condition("Admitted", "Admitted", NOW));
    let late = Copies { workload: Some(entry(&late)), ..nothing("a") };
    let first = copy("c", &["QuotaReserved", "Admitted"]);
    let plan = planned(present(&pending(&["a", "b", "c"]), suspended(), vec![reserved, late, first]));
    assert_eq!(steps(&plan), ["create Job.batch ns/j on cluster c"]);
    assert_eq!(checked(&plan), "Ready: The workload was admitted on \"c\"");
    let status = status(&plan);
    assert_eq!((&status["clusterName"], &status["nominatedClusterNames"]), (&json!("c"), &Value::Null));
    assert_eq!(plan.events[0].reason, "MultiKueue");
    let Action::Call(call) = &plan.steps[0].action else { panic!() };
    let Action::Create { object, .. } = &call.writes[0].actions[0] else { panic!() };
    assert_eq!(object["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"], "w");
    assert_eq!(object["spec"], json!({ "suspend": true }));
}

#[test]
fn a_reservation_is_no_admission() {
    let copies = vec![copy("b", &["QuotaReserved"]), nothing("a"), nothing("c")];
    let plan = planned(present(&pending(&["a", "b", "c"]), suspended(), copies));
    assert!(plan.status.is_none() && !steps(&plan).is_empty(), "{plan:?}");
}

#[test]
fn the_others_are_removed_once_a_cluster_is_chosen_and_the_status_follows() {
    let running = json!({ "active": 1 });
    let winner = || with_job(copy("a", &["QuotaReserved", "Admitted"]), running.clone(), false);
    let others = || vec![winner(), copy("b", &[]), lost(copy("c", &[]), EARLIER)];
    let started = || local_job(false, &json!({}));
    let plan = planned(present(&placed("a", &[]), started(), others()));
    let removes = "delete Workload.kueue.x-k8s.io ns/w on cluster b";
    assert_eq!(steps(&plan), ["patch Job.batch ns/j", removes]);
    let patch = patch_of(&plan.steps[0].action);
    assert_eq!(patch["status"], running);
    // A job that is suspended here cannot run.
    let plan = planned(present(&placed("a", &[]), suspended(), others()));
    assert_eq!(steps(&plan), [removes]);
    // Nothing is left to do.
    let plan = planned(present(&placed("a", &[]), local_job(false, &running), vec![winner()]));
    assert!(plan.is_empty(), "{plan:?}");
}

#[test]
fn a_workload_without_a_recorded_cluster_runs_where_its_copy_is_admitted() {
    let mut unrecorded = placed("", &[]);
    unrecorded["status"]["clusterName"].take();
    let copies = || vec![nothing("b"), copy("a", &["QuotaReserved", "Admitted"]), copy("c", &[])];
    let plan = planned(present(&unrecorded, suspended(), copies()));
    let expected = ["create Job.batch ns/j on cluster a; delete Workload.kueue.x-k8s.io ns/w on cluster c"];
    assert_eq!(steps(&plan), expected);
    assert_eq!(checked(&plan), ": ", "its check stays");
}

#[test]
fn a_workload_ends_as_its_copy_does_after_the_last_status() {
    let finished = || {
        let mut object = workload(&["QuotaReserved", "Admitted"], json!({}));
        let ended = condition("Finished", "Succeeded", NOW);
        object["status"]["conditions"].as_array_mut().unwrap().push(ended);
        Copies { workload: Some(entry(&object)), ..nothing("a") }
    };
    let started = || local_job(false, &json!({ "active": 1 }));
    let early = with_job(finished(), json!({ "active": 1 }), false);
    let plan = planned(present(&placed("a", &[]), started(), vec![early]));
    assert!(plan.is_empty() && !plan.awaits.is_empty(), "{plan:?}");
    let done = with_job(finished(), json!({ "succeeded": 1 }), true);
    let plan = planned(present(&placed("a", &[]), started(), vec![done]));
    assert_eq!(steps(&plan), ["patch Job.batch ns/j"]);
    let conditions = status(&plan)["conditions"].as_array().cloned().unwrap();
    let ended = conditions.iter().find(|own| own["type"] == "Finished").unwrap();
    assert_eq!((&ended["reason"], &ended["message"]), (&json!("Succeeded"), &json!("why")));
}

#[test]
fn a_workload_that_cannot_stay_is_tried_again() {
    let out_of_sync = || {
        let mut object = workload(&[], json!({}));
        let ended = condition("Finished", "OutOfSync", NOW);
        object["status"]["conditions"].as_array_mut().unwrap().push(ended);
        Copies { workload: Some(entry(&object)), ..nothing("a") }
    };
    let evicted = copy("a", &["QuotaReserved", "Admitted", "Evicted"]);
    let admitted = || copy("a", &["QuotaReserved", "Admitted"]);
    // A start of the operator is no loss of its clusters.
    let connecting = Copies { reach: Reach::Connecting, ..nothing("a") };
    let lost_message = "Retry: Reserving remote lost";
    let out_of_sync_message = "Retry: Remote workload on worker cluster \"a\" is out of sync with its user job, \
        resetting for re-dispatch, Previously: \"Ready\"";
    let evicted_message = "Retry: Workload evicted on worker cluster: \"a\", resetting for re-admission";
    let table = [
        ("out of sync", out_of_sync(), out_of_sync_message),
        ("evicted there", evicted, evicted_message),
        ("gone there", nothing("a"), lost_message),
        ("no longer admitted there", copy("a", &[]), lost_message),
        ("lost for too long", lost(admitted(), "2026-01-01T00:44:00Z"), lost_message),
        ("lost a while ago", lost(admitted(), "2026-01-01T00:46:00Z"), ": "),
        ("not connected yet", connecting, ": "),
        ("not configured any more", Copies { reach: Reach::Unknown, ..nothing("a") }, ": "),
        ("there", with_job(admitted(), json!({}), false), ": "),
    ];
    for (case, copies, expected) in table {
        let plan = planned(present(&placed("a", &[]), local_job(false, &json!({})), vec![copies]));
        assert_eq!(checked(&plan), expected, "{case}");
    }
}

#[test]
fn a_lost_cluster_is_given_time() {
    let copies = lost(copy("a", &["QuotaReserved", "Admitted"]), "2026-01-01T00:46:00Z");
    let plan = planned(present(&placed("a", &[]), local_job(false, &json!({})), vec![copies]));
    assert_eq!(plan.next, Next::After(std::time::Duration::from_mins(1)));
    assert!(plan.is_empty());
}

#[test]
fn an_evicted_workload_stops_its_copy_and_waits_for_its_job() {
    let evicted = placed("a", &["Evicted"]);
    let running = with_job(copy("a", &["QuotaReserved", "Admitted"]), json!({ "active": 1 }), false);
    let local = || local_job(true, &json!({ "active": 1 }));
    let plan = planned(present(&evicted, local(), vec![running.clone(), copy("b", &[])]));
    let expected =
        "patch Workload.kueue.x-k8s.io ns/w on cluster a; delete Workload.kueue.x-k8s.io ns/w on cluster b";
    assert_eq!(steps(&plan), [expected]);
    let Action::Call(call) = &plan.steps[0].action else { panic!() };
    let patch = patch_of(&call.writes[0].actions[0]);
    let target = patch["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&target["type"], &target["reason"]),
        (&json!("DeactivationTarget"), &json!("EvictedOnManagerCluster"))
    );
    // The job has stopped there.
    let stopped = with_job(copy("a", &["QuotaReserved", "Admitted", "DeactivationTarget"]), json!({}), false);
    assert_eq!(steps(&planned(present(&evicted, local(), vec![stopped]))), ["patch Job.batch ns/j"]);
    // Nobody can say whether it has.
    let plan = planned(present(&evicted, local(), vec![lost(running, EARLIER)]));
    assert_eq!(steps(&plan), ["patch Job.batch ns/j"]);
    let patch = patch_of(&plan.steps[0].action);
    assert_eq!(patch["status"]["active"], 0);
}

#[test]
fn copies_end_with_the_workload_and_its_reservation() {
    let copies = || {
        let running = with_job(copy("a", &["QuotaReserved", "Admitted"]), json!({}), false);
        vec![running, lost(copy("b", &[]), EARLIER)]
    };
    let removes = ["delete Job.batch ns/j, delete Workload.kueue.x-k8s.io ns/w on cluster a"];
    let unreserved = workload(&[], json!({ "admissionChecks": check("Pending") }));
    for ended in [unreserved, placed("a", &["Finished"])] {
        assert_eq!(steps(&planned(present(&ended, suspended(), copies()))), removes);
    }
    assert_eq!(steps(&plan::plan(&Observed::Gone(copies()))), removes);
}

#[test]
fn jobs_that_cannot_run_elsewhere_are_rejected() {
    let of = |job: Job| {
        let mut present = present(&pending(&[]), suspended(), vec![nothing("a")]);
        present.job = job;
        checked(&planned(present))
    };
    let mut other = suspended();
    other.entry = job(&json!({}), &json!({}));
    let message = "Rejected: Expecting spec.managedBy to be \"kueue.x-k8s.io/multikueue\" not \"\"";
    assert_eq!(of(Job::Found(vec![other])), message);
    let message = "Rejected: No multikueue adapter found, Previously: \"Pending\"";
    assert_eq!(of(Job::Unsupported(None)), message);
    assert_eq!(of(Job::Missing), ": ");
}

#[test]
fn a_copy_that_stands_for_something_else_is_made_again_and_priorities_follow() {
    let mut other = workload(&["QuotaReserved", "Admitted"], json!({}));
    other["spec"]["podSets"][0]["count"] = 5.into();
    let other = Copies { workload: Some(entry(&other)), ..nothing("a") };
    let plan = planned(present(&pending(&["a"]), suspended(), vec![other]));
    assert_eq!(steps(&plan), ["delete Workload.kueue.x-k8s.io ns/w on cluster a"]);
    let mut urgent = pending(&["a"]);
    urgent["spec"]["priority"] = 7.into();
    let plan = planned(present(&urgent, suspended(), vec![copy("a", &[])]));
    assert_eq!(steps(&plan), ["patch Workload.kueue.x-k8s.io ns/w on cluster a"]);
}

#[test]
fn a_cluster_that_takes_no_writes_delays_no_others() {
    let call = Action::Call(Call { queue: "cq".to_owned(), writes: Vec::new() });
    let of = |class: Class| plan::on_error(&call, &Error::new(class, "cannot write", "no response"));
    let slow = of(Class::Transient);
    assert_eq!(slow.requeue, Some(Next::After(std::time::Duration::from_secs(10))));
    assert_eq!(slow.events[0].note, "cannot write: no response");
    assert_eq!(of(Class::Invalid).requeue, None, "it is reported as any other error");
}

fn pod(name: &str, phase: &str, scheduled: &str) -> Arc<Entry<Value>> {
    entry(&json!({ "kind": "Pod", "metadata": { "name": name, "namespace": "ns", "uid": name },
        "spec": { "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }] },
        "status": { "phase": phase, "conditions": [{ "type": "PodScheduled", "status": scheduled }] } }))
}

fn pod_kind() -> ApiKind {
    ApiKind::of::<k8s_openapi::api::core::v1::Pod>()
}

fn local_pod(name: &str) -> LocalJob {
    let managed_by = String::new();
    LocalJob {
        kind: pod_kind(),
        entry: pod(name, "Pending", "False"),
        managed_by,
        facts: JobFacts::default(),
        counts: None,
    }
}

fn with_pods(copies: Copies, pods: &[(&str, &str, &str)]) -> Copies {
    let jobs = pods.iter().map(|(name, phase, scheduled)| {
        let entry = pod(name, phase, scheduled);
        let facts = JobFacts { has_ended: *phase == "Succeeded", ..JobFacts::default() };
        RemoteJob { kind: pod_kind(), status: entry.object["status"].clone(), entry, facts }
    });
    Copies { jobs: jobs.collect(), ..copies }
}

#[test]
fn the_pods_of_a_group_run_elsewhere_and_have_their_state_here() {
    let group = || Job::Found(vec![local_pod("p0"), local_pod("p1")]);
    let of = |copies: Copies| {
        let mut present = present(&placed("a", &[]), suspended(), vec![copies]);
        present.job = group();
        planned(present)
    };
    let create = |name: &str| format!("create Pod ns/{name}");
    let plan = of(copy("a", &["QuotaReserved", "Admitted"]));
    assert_eq!(steps(&plan), [format!("{}, {} on cluster a", create("p0"), create("p1"))]);
    let pods = [("p0", "Running", "True"), ("p1", "Pending", "False")];
    let plan = of(with_pods(copy("a", &["QuotaReserved", "Admitted"]), &pods));
    assert_eq!(steps(&plan), ["patch Pod ns/p0"], "p1 is not scheduled there yet");
}

#[test]
fn one_copy_at_a_time_may_preempt() {
    let blocked = |cluster: &str, since: &str, gates: Value| {
        let mut object = workload(&[], json!({ "preemptionGates": gates }));
        object["spec"]["preemptionGates"] = json!([{ "name": "kueue.x-k8s.io/multikueue" }]);
        object["status"]["conditions"] = json!([{ "type": "BlockedOnPreemptionGates", "status": "True",
            "reason": "PreemptionGated", "message": "", "lastTransitionTime": since }]);
        Copies { workload: Some(entry(&object)), ..nothing(cluster) }
    };
    let of = |copies: Vec<Copies>, is_orchestrated: bool| {
        let mut present = present(&pending(&["a", "b"]), suspended(), copies);
        let mut settings = Settings::default();
        settings.scheduling.orchestrated_preemption = is_orchestrated;
        present.settings = Arc::new(settings);
        present.configured = ["a", "b"].map(str::to_owned).to_vec();
        planned(present)
    };
    let both = || vec![blocked("a", NOW, json!([])), blocked("b", EARLIER, json!([]))];
    let plan = of(both(), true);
    let open = "patch Workload.kueue.x-k8s.io ns/w on cluster b";
    assert_eq!(steps(&plan), [open], "the one that waits longest");
    assert!(steps(&of(both(), false)).is_empty());

    let opened =
        json!([{ "name": "kueue.x-k8s.io/multikueue", "position": "Open", "lastTransitionTime": NOW }]);
    let plan = of(vec![blocked("a", NOW, json!([])), blocked("b", EARLIER, opened)], true);
    assert!(steps(&plan).is_empty(), "{:?}", steps(&plan));
    assert_eq!(plan.next, Next::After(Duration::from_mins(5)));
}

#[test]
fn a_slice_runs_where_the_one_before_it_runs() {
    let elastic = |mut object: Value| {
        object["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/elastic-job": "true" });
        object
    };
    let mut waiting = elastic(pending(&[]));
    waiting["status"]["clusterName"] = json!("a");
    let job = || {
        let spec = json!({ "managedBy": MULTIKUEUE_CONTROLLER, "suspend": false, "parallelism": 2 });
        LocalJob { entry: job(&spec, &json!({})), ..local_job(false, &json!({})) }
    };
    let running = |copies: Copies| with_job(copies, json!({ "active": 1 }), false);
    let plan = planned(present(&waiting, job(), vec![running(nothing("a")), nothing("b")]));
    assert_eq!(steps(&plan), ["create Workload.kueue.x-k8s.io ns/w on cluster a"]);
    assert!(status(&plan)["nominatedClusterNames"].is_null());

    let mut copies = running(copy("a", &["QuotaReserved", "Admitted"]));
    copies.jobs[0].entry = super::tests::job(&json!({ "parallelism": 1 }), &json!({ "active": 1 }));
    let plan = planned(present(&elastic(placed("a", &[])), job(), vec![copies]));
    let resized = plan.steps.iter().any(|step| step.action.to_string().contains("patch Job"));
    assert!(resized, "{:?}", steps(&plan));

    let mut replaced = elastic(placed("a", &[]));
    let finished = condition("Finished", "WorkloadSliceReplaced", EARLIER);
    replaced["status"]["conditions"].as_array_mut().unwrap().push(finished);
    let plan = planned(present(&replaced, job(), vec![copy("a", &["QuotaReserved"])]));
    assert!(plan.steps.is_empty(), "its job goes on: {:?}", steps(&plan));
}

#[test]
fn a_job_elsewhere_follows_the_size_of_its_slice() {
    // How many pods the job wants, its slice has and its copies have, and the writes there.
    let table: [(i32, i64, i64, &[&str]); 4] = [
        (2, 2, 2, &["patch Job.batch ns/j"]),
        (2, 1, 1, &[]),
        (1, 2, 2, &["patch Job.batch ns/j"]),
        (1, 1, 2, &["patch Job.batch ns/j", "patch Workload.kueue.x-k8s.io ns/w"]),
    ];
    for (wanted, of_slice, of_copy, expected) in table {
        let sized = |mut object: Value, count: i64| {
            object["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/elastic-job": "true" });
            object["spec"]["podSets"][0]["count"] = count.into();
            object
        };
        let spec = json!({ "managedBy": MULTIKUEUE_CONTROLLER, "suspend": false, "parallelism": wanted });
        let local = LocalJob {
            entry: job(&spec, &json!({})),
            counts: Some([("main".to_owned(), wanted)].into()),
            ..local_job(false, &json!({}))
        };
        let copy = sized(workload(&["QuotaReserved", "Admitted"], json!({})), of_copy);
        let mut copies = Copies { workload: Some(entry(&copy)), ..nothing("a") };
        copies = with_job(copies, json!({}), false);
        copies.jobs[0].entry = entry(&json!({ "kind": "Job",
            "metadata": { "name": "j", "namespace": "ns", "uid": "r", "labels": { "kueue.x-k8s.io/prebuilt-workload-name": "w" },
                "annotations": { "kueue.x-k8s.io/prebuilt-workload-name": "w" } },
            "spec": { "parallelism": 9 } }));
        let plan = planned(present(&sized(placed("a", &[]), of_slice), local, vec![copies]));
        let writes = if expected.is_empty() {
            Vec::new()
        } else {
            vec![format!("{} on cluster a", expected.join(", "))]
        };
        assert_eq!(steps(&plan), writes, "{wanted} of {of_slice}, {of_copy} there");
    }
}
