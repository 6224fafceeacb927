//! The state machine, row by row.

use serde_json::Value::Null;

use super::*;
use crate::testing::{events, steps};

/// A row of a table: what the world is like, and the state, reason and job status that follow.
pub(super) type Row = (&'static str, World, (&'static str, &'static str, &'static str));

pub(super) fn check(rows: Vec<Row>) {
    for (name, world, (state, reason, job_status)) in rows {
        let outcome = world.outcome();
        assert_eq!(
            (outcome.0.as_str(), outcome.1.as_str(), outcome.2.as_str()),
            (state, reason, job_status),
            "{name}"
        );
    }
}

/// The cluster was ready and is being deleted.
pub(super) fn losing_its_cluster(world: World) -> World {
    let mut world = world.with_cluster("ready");
    let mut cluster = cluster("ready");
    cluster.deleting = true;
    world.observed.cluster = Some(Arc::new(cluster));
    world
}

pub(super) fn initializing(more: Value) -> Value {
    let mut status = json!({
        "jobDeploymentStatus": "Initializing", "jobId": "train-id", "rayClusterName": "train-c",
        "startTime": ago(100), "failed": 0, "succeeded": 0,
    });
    merge(&mut status, &more);
    status
}

#[test]
fn a_new_job_gets_its_names_before_anything_is_made() {
    let world = world(json!({}), Null);
    let plan = world.plan();
    assert!(plan.steps.is_empty(), "{plan:?}");
    let status = world.status_after(&plan);
    assert_eq!(status.job_deployment_status.as_deref(), Some("Initializing"));
    for name in [status.job_id.unwrap(), status.ray_cluster_name.unwrap()] {
        assert!(name.starts_with("train-") && name.len() == "train-".len() + 5, "{name}");
    }
    assert_eq!((status.failed, status.succeeded), (Some(0), Some(0)));
    assert_eq!(status.start_time.unwrap().0, now());
}

#[test]
fn a_new_job_gets_its_finalizer_and_its_status_is_derived_again() {
    let mut world = world(json!({}), Null);
    let mut job = entry(NAMESPACE, "train", world.observed.job.object.clone());
    job.object.metadata.finalizers = Some(vec!["other".to_owned()]);
    world.observed.job = Arc::new(job);
    let plan = world.plan();
    let [Step { action: Action::Patch { patch, .. }, .. }] = plan.steps.as_slice() else {
        panic!("{plan:?}")
    };
    let expected =
        json!({"metadata": {"resourceVersion": "7", "finalizers": ["other", labels::JOB_FINALIZER]}});
    assert_eq!(*patch, expected);
}

#[test]
fn names_that_users_choose_are_taken() {
    let spec =
        json!({"jobId": "mine", "rayClusterSpec": null, "clusterSelector": {"ray.io/cluster": "theirs"}});
    let world = world(spec, Null);
    let status = world.status_after(&world.plan());
    assert_eq!(status.job_id.as_deref(), Some("mine"));
    assert_eq!(status.ray_cluster_name.as_deref(), Some("theirs"));
    let interactive = self::world(json!({"submissionMode": "InteractiveMode"}), Null);
    assert_eq!(interactive.status_after(&interactive.plan()).job_id, None, "the user submits");
}

#[test]
fn while_initializing() {
    check(vec![
        (
            "suspend comes first",
            world(
                json!({"suspend": true, "shutdownAfterJobFinishes": true, "activeDeadlineSeconds": 1}),
                initializing(json!({})),
            ),
            ("Suspending", "", ""),
        ),
        (
            "the deadline counts from the start of the attempt",
            world(
                json!({"activeDeadlineSeconds": 100, "preRunningDeadlineSeconds": 1}),
                initializing(json!({})),
            ),
            ("Failed", "DeadlineExceeded", ""),
        ),
        (
            "the deadline for running",
            world(
                json!({"activeDeadlineSeconds": 101, "preRunningDeadlineSeconds": 100}),
                initializing(json!({})),
            ),
            ("Failed", "PreRunningDeadlineExceeded", ""),
        ),
        ("without a cluster it stays", world(json!({}), initializing(json!({}))), ("Initializing", "", "")),
        (
            "a cluster that is not ready",
            world(json!({}), initializing(json!({}))).with_cluster(""),
            ("Initializing", "", ""),
        ),
        (
            "a cluster that is about to go",
            losing_its_cluster(world(json!({}), initializing(json!({})))),
            ("Initializing", "", ""),
        ),
        (
            "a cluster that is ready",
            world(json!({}), initializing(json!({}))).with_cluster("ready"),
            ("Running", "", ""),
        ),
        (
            "the user submits",
            world(json!({"submissionMode": "InteractiveMode"}), initializing(json!({})))
                .with_cluster("ready"),
            ("Waiting", "", ""),
        ),
    ]);
}

#[test]
fn the_cluster_is_made_and_its_status_copied() {
    let plan = world(json!({"activeDeadlineSeconds": 130}), initializing(json!({}))).plan();
    assert_eq!(steps(&plan), ["create RayCluster.ray.io ns/train-c"]);
    assert_eq!(events(&plan), ["CreatedRayCluster"]);
    assert_eq!(after(plan.next), Some(30), "the deadline is kept in mind");
    let with_status = self::world(json!({}), initializing(json!({}))).with_cluster("suspended");
    let status = with_status.status_after(&with_status.plan());
    assert_eq!(status.ray_cluster_status.unwrap().state.as_deref(), Some("suspended"));
    let copied = initializing(json!({"rayClusterStatus": {"state": "suspended"}}));
    assert!(self::world(json!({}), copied).with_cluster("suspended").plan().is_empty(), "once");
    for (spec, state) in [(json!({}), "Running"), (json!({"submissionMode": "InteractiveMode"}), "Waiting")] {
        let stale = initializing(json!({"rayClusterStatus": {"state": "suspended"}}));
        let world = self::world(spec, stale).with_cluster("ready");
        let status = world.status_after(&world.plan());
        assert_eq!(status.job_deployment_status.as_deref(), Some(state));
        assert_eq!(status.ray_cluster_status.unwrap().state.as_deref(), Some("ready"), "in {state}");
    }
}

#[test]
fn a_selected_cluster_that_is_missing_is_told() {
    let spec = json!({"rayClusterSpec": null, "clusterSelector": {"ray.io/cluster": "train-c"}});
    let plan = world(spec, initializing(json!({}))).plan();
    assert_eq!((steps(&plan).len(), events(&plan)), (0, vec!["RayClusterNotFound".to_owned()]));
}

#[test]
fn a_ready_cluster_gets_a_submitter_once() {
    let world = self::world(json!({}), initializing(json!({}))).with_cluster("ready");
    let plan = world.plan();
    assert_eq!(steps(&plan), ["create Job.batch ns/train"]);
    assert_eq!(events(&plan), ["CreatedRayJobSubmitter"]);
    let status = world.status_after(&plan);
    assert_eq!(status.dashboard_url.as_deref(), Some("train-c-head-svc.ns.svc.cluster.local:8265"));
    let again = self::world(json!({}), initializing(json!({}))).with_cluster("ready").with_submitter(None);
    assert!(again.plan().steps.is_empty());
    let http =
        self::world(json!({"submissionMode": "HTTPMode"}), initializing(json!({}))).with_cluster("ready");
    assert!(http.plan().steps.is_empty());
}

#[test]
fn the_submitter_of_an_earlier_job_of_the_same_name_is_waited_out() {
    let old = |mut world: World, deleting: bool| {
        let end = JobEnd { failed: false, at: Some(ago(50)), reason: String::new(), message: String::new() };
        let view =
            JobView { controller: Some("uid-of-another".into()), end: Some(end), ..JobView::default() };
        let mut submitter = entry(NAMESPACE, "train", view);
        submitter.deleting = deleting;
        world.observed.submitter = Some(Arc::new(submitter));
        world
    };
    for (deleting, told) in [(true, vec![]), (false, vec!["FailedToCreateRayJobSubmitter".to_owned()])] {
        let world = old(self::world(json!({}), initializing(json!({}))).with_cluster("ready"), deleting);
        assert_eq!(world.outcome().0, "Initializing");
        assert_eq!((steps(&world.plan()).len(), events(&world.plan())), (0, told));
    }
    let running = || self::world(json!({}), running(json!({}))).with_cluster("ready").heard(1, Ok(None));
    assert_eq!(old(running(), false).outcome().0, "Running", "its end is not that of ours");
    let clearing = self::world(json!({}), self::running(json!({"jobDeploymentStatus": "Suspending"})));
    assert_eq!(old(clearing, false).outcome().0, "Suspended", "nor is it ours to delete");
}

#[test]
fn a_submitter_that_is_gone_before_ray_knows_the_job_is_made_again() {
    let running = |mode: &str| {
        let spec = json!({"submissionMode": mode});
        self::world(spec, running(json!({}))).with_cluster("ready")
    };
    let lost = running("K8sJobMode").heard(1, Ok(None));
    assert_eq!(steps(&lost.plan()), ["create Job.batch ns/train"]);
    assert_eq!(lost.outcome().0, "Running");
    for (why, world) in [
        ("there is one", running("K8sJobMode").with_submitter(None).heard(1, Ok(None))),
        ("Ray knows the job", running("K8sJobMode").heard(1, info(JobStatus::Running))),
        ("Ray was not asked", running("K8sJobMode")),
        ("another one submits", running("InteractiveMode").heard(1, Ok(None))),
    ] {
        assert!(world.plan().steps.is_empty(), "{why}");
    }
}

#[test]
fn a_cluster_without_its_service_is_waited_for() {
    let mut world = self::world(json!({}), initializing(json!({}))).with_cluster("ready");
    world.observed.cluster_service = None;
    assert!(world.plan().steps.is_empty());
    assert_eq!(world.outcome().0, "Initializing");
}

#[test]
fn waiting() {
    let waiting = || {
        let mut status = initializing(json!({"jobDeploymentStatus": "Waiting"}));
        status.as_object_mut().unwrap().remove("jobId");
        status
    };
    let interactive = |more: Value| {
        let mut spec = json!({"submissionMode": "InteractiveMode"});
        merge(&mut spec, &more);
        spec
    };
    check(vec![
        ("for the user", world(interactive(json!({})), waiting()), ("Waiting", "", "")),
        (
            "the user has submitted",
            world(interactive(json!({"jobId": "mine"})), waiting()),
            ("Running", "", ""),
        ),
        (
            "too long",
            world(interactive(json!({"preRunningDeadlineSeconds": 100, "jobId": "mine"})), waiting()),
            ("Failed", "PreRunningDeadlineExceeded", ""),
        ),
        (
            "suspend and the other deadline are not looked at",
            world(
                interactive(
                    json!({"activeDeadlineSeconds": 1, "suspend": true, "shutdownAfterJobFinishes": true}),
                ),
                waiting(),
            ),
            ("Waiting", "", ""),
        ),
        (
            "in another mode it is a mistake",
            world(json!({}), waiting()),
            ("ValidationFailed", "ValidationFailed", ""),
        ),
    ]);
    let mut stale = waiting();
    merge(&mut stale, &json!({"rayClusterStatus": {"state": "ready"}}));
    let changed = world(interactive(json!({})), stale).with_cluster("suspended");
    let copied = changed.status_after(&changed.plan()).ray_cluster_status.unwrap();
    assert_eq!(copied.state.as_deref(), Some("suspended"), "the copy follows the cluster");
    let idle = world(interactive(json!({"preRunningDeadlineSeconds": 160})), waiting()).plan();
    assert!(idle.status.is_none() && after(idle.next) == Some(60));
}

#[test]
fn running_by_time() {
    let suspended = json!({"suspend": true, "shutdownAfterJobFinishes": true, "activeDeadlineSeconds": 1});
    let ended = |status: &str, seconds| {
        running(json!({"jobStatus": status, "rayJobInfo": {"endTime": time(ago(seconds))}}))
    };
    check(vec![
        ("suspend comes first", world(suspended, running(json!({}))), ("Suspending", "", "")),
        (
            "the deadline",
            world(json!({"activeDeadlineSeconds": 100}), running(json!({"jobStatus": "RUNNING"}))),
            ("Failed", "DeadlineExceeded", "RUNNING"),
        ),
        (
            "a job that succeeded and whose submitter does not end",
            world(json!({}), ended("SUCCEEDED", 300)),
            ("Complete", "JobDeploymentStatusTransitionGracePeriodExceeded", "SUCCEEDED"),
        ),
        (
            "a job that was stopped",
            world(json!({}), ended("STOPPED", 300)),
            ("Complete", "JobDeploymentStatusTransitionGracePeriodExceeded", "STOPPED"),
        ),
        (
            "a job that failed",
            world(json!({}), ended("FAILED", 300)),
            ("Failed", "JobDeploymentStatusTransitionGracePeriodExceeded", "FAILED"),
        ),
        ("within its grace", world(json!({}), ended("SUCCEEDED", 299)), ("Running", "", "SUCCEEDED")),
        (
            "Ray could not be asked for too long",
            world(json!({}), running(json!({"jobStatusCheckFailureStartTime": time(ago(300))}))),
            ("Failed", "JobStatusCheckTimeoutExceeded", ""),
        ),
        (
            "or not quite",
            world(json!({}), running(json!({"jobStatusCheckFailureStartTime": time(ago(299))}))),
            ("Running", "", ""),
        ),
    ]);
}

#[test]
fn running_by_what_ray_says() {
    let submitted = || world(json!({}), running(json!({}))).with_cluster("ready");
    let http = || world(json!({"submissionMode": "HTTPMode"}), running(json!({}))).with_cluster("ready");
    check(vec![
        ("nothing yet", submitted().with_submitter(None), ("Running", "", "")),
        (
            "pending",
            submitted().with_submitter(None).heard(1, info(JobStatus::Pending)),
            ("Running", "", "PENDING"),
        ),
        (
            "succeeded, and the submitter still shows the logs",
            submitted().with_submitter(None).heard(1, info(JobStatus::Succeeded)),
            ("Running", "", "SUCCEEDED"),
        ),
        (
            "succeeded",
            submitted().with_submitter(Some((3, false))).heard(1, info(JobStatus::Succeeded)),
            ("Complete", "", "SUCCEEDED"),
        ),
        (
            "stopped",
            submitted().with_submitter(Some((3, false))).heard(1, info(JobStatus::Stopped)),
            ("Complete", "", "STOPPED"),
        ),
        (
            "failed, though the submitter ended well",
            submitted().with_submitter(Some((3, false))).heard(1, info(JobStatus::Failed)),
            ("Failed", "AppFailed", "FAILED"),
        ),
        (
            "the clock of the submitter's node is ahead",
            submitted().with_submitter(Some((-100, false))).heard(1, info(JobStatus::Succeeded)),
            ("Complete", "", "SUCCEEDED"),
        ),
        (
            "without a submitter nobody is waited for",
            http().heard(1, info(JobStatus::Succeeded)),
            ("Complete", "", "SUCCEEDED"),
        ),
        (
            "unknown to Ray, and the submitter is at work",
            submitted().with_submitter(None).heard(1, Ok(None)),
            ("Running", "", ""),
        ),
        (
            "unknown to Ray, and the submitter is done",
            submitted().with_submitter(Some((3, false))).heard(1, Ok(None)),
            ("Failed", "AppFailed", ""),
        ),
        (
            "a submitter that failed before Ray knew of the job",
            submitted().with_submitter(Some((3, true))).heard(1, silence()),
            ("Failed", "SubmissionFailed", ""),
        ),
        (
            "a submitter that failed because the job did",
            submitted().with_submitter(Some((3, true))).heard(1, info(JobStatus::Failed)),
            ("Failed", "AppFailed", "FAILED"),
        ),
        (
            "a submitter that failed long ago keeps its reason",
            submitted().with_submitter(Some((500, true))).heard(1, silence()),
            ("Failed", "SubmissionFailed", ""),
        ),
        (
            "Ray does not notice the end",
            submitted().with_submitter(Some((31, false))).heard(1, info(JobStatus::Running)),
            ("Failed", "JobDeploymentStatusTransitionGracePeriodExceeded", "FAILED"),
        ),
        (
            "Ray has noticed it, while we were away",
            submitted().with_submitter(Some((500, false))).heard(1, info(JobStatus::Succeeded)),
            ("Complete", "", "SUCCEEDED"),
        ),
        (
            "after we were away, one failed poll decides nothing",
            submitted().with_submitter(Some((500, false))).heard(1, silence()),
            ("Running", "", ""),
        ),
        (
            "nor do those that failed before we were away",
            world(json!({}), running(json!({"jobStatusCheckFailureStartTime": time(ago(200))})))
                .with_cluster("ready")
                .with_submitter(Some((500, false)))
                .heard_since(1, 20, silence()),
            ("Running", "", ""),
        ),
        (
            "Ray does not answer for as long as it may take",
            submitted().with_submitter(Some((500, false))).heard_since(1, 30, silence()),
            ("Failed", "JobDeploymentStatusTransitionGracePeriodExceeded", "FAILED"),
        ),
        (
            "Ray does not answer any more, but had said how the job ended",
            world(json!({}), running(json!({"jobStatus": "SUCCEEDED"})))
                .with_cluster("ready")
                .with_submitter(Some((500, false)))
                .heard_since(1, 30, silence()),
            ("Complete", "", "SUCCEEDED"),
        ),
        (
            "nor any more of one that failed",
            world(json!({}), running(json!({"jobStatus": "FAILED"})))
                .with_cluster("ready")
                .with_submitter(Some((2, false)))
                .heard(1, silence()),
            ("Failed", "AppFailed", "FAILED"),
        ),
        (
            "a submitter that is gone",
            submitted().heard(1, info(JobStatus::Running)),
            ("Running", "", "RUNNING"),
        ),
    ]);
}

#[test]
fn a_question_that_fails_starts_a_timer_once() {
    let world =
        world(json!({}), running(json!({}))).with_cluster("ready").with_submitter(None).heard(1, silence());
    let plan = world.plan();
    let status = world.status_after(&plan);
    assert_eq!(status.job_status_check_failure_start_time.unwrap().0, now());
    assert_eq!(after(plan.next), Some(300));
    let timed = running(json!({"jobStatusCheckFailureStartTime": time(ago(10)), "jobStatus": "RUNNING"}));
    let again =
        self::world(json!({}), timed.clone()).with_cluster("ready").with_submitter(None).heard(1, silence());
    let plan = again.plan();
    assert_eq!((plan.status.is_none(), after(plan.next)), (true, Some(290)));
    let unknown =
        self::world(json!({}), timed.clone()).with_cluster("ready").with_submitter(None).heard(1, Ok(None));
    let status = unknown.status_after(&unknown.plan());
    assert_eq!(
        status.job_status_check_failure_start_time, None,
        "Ray answers, though it does not know the job"
    );
    let back = self::world(json!({}), timed)
        .with_cluster("ready")
        .with_submitter(None)
        .heard(1, info(JobStatus::Running));
    assert_eq!(back.status_after(&back.plan()).job_status_check_failure_start_time, None);
}

#[test]
fn the_operator_submits_what_ray_does_not_know() {
    let spec = json!({"submissionMode": "HTTPMode", "entrypointResources": "{\"disk\": 1}"});
    let timed = running(json!({"jobStatusCheckFailureStartTime": time(ago(10))}));
    let world = world(spec, timed).with_cluster("ready").heard(1, Ok(None));
    let plan = world.plan();
    assert_eq!(steps(&plan), ["submit Ray job train-id"]);
    let [Step { action: Action::Call(JobRequest::SubmitJob { job, at, .. }), .. }] = plan.steps.as_slice()
    else {
        panic!("{plan:?}")
    };
    assert_eq!((job.submission_id.as_str(), at.service.as_str()), ("train-id", "train-c-head-svc"));
    assert_eq!(world.status_after(&plan).job_status_check_failure_start_time, None);

    let wrong =
        self::world(json!({"submissionMode": "HTTPMode", "entrypointResources": "disk"}), running(json!({})));
    let outcome = wrong.with_cluster("ready").heard(1, Ok(None)).outcome();
    assert_eq!((outcome.0.as_str(), outcome.1.as_str()), ("Failed", "SubmissionFailed"));
}

#[test]
fn a_submission_that_fails_starts_the_timer() {
    let world = world(json!({"submissionMode": "HTTPMode"}), running(json!({})))
        .with_cluster("ready")
        .heard(1, Ok(None));
    let plan = world.plan();
    let error = Error::new(Class::Transient, "cannot submit Ray job train-id", "refused");
    let on_error = on_error(&world.observed, &plan.steps[0].action, &error);
    let mut status = world.job["status"].clone();
    merge(&mut status, &on_error.status.unwrap().status);
    assert_eq!(status["jobStatusCheckFailureStartTime"], time(now()));
}

#[test]
fn failures_of_steps_are_told_in_upstreams_words() {
    let world = world(json!({}), initializing(json!({})));
    let error = Error::new(Class::Invalid, "cannot create RayCluster ns/train-c", "quota");
    let on_error = on_error(&world.observed, &world.plan().steps[0].action, &error);
    assert_eq!(on_error.events[0].reason, "FailedToCreateRayCluster");
    assert!(on_error.events[0].note.contains("quota") && on_error.status.is_none());
}

#[test]
fn a_service_that_cannot_be_made_holds_nothing_up() {
    let http = |answer| {
        let spec = json!({"submissionMode": "HTTPMode"});
        let mut world = world(spec, running(json!({}))).with_cluster("ready").heard(1, answer);
        world.observed.head_service = None;
        world
    };
    let steps_of_new = steps(&http(Ok(None)).plan());
    assert_eq!(steps_of_new, ["submit Ray job train-id", "create Service ns/train-head-svc"]);
    let over = http(info(JobStatus::Succeeded));
    let error = Error::new(Class::Invalid, "cannot create Service ns/train-head-svc", "quota");
    let on_error = on_error(&over.observed, &over.plan().steps[0].action, &error);
    assert_eq!(on_error.events[0].reason, "FailedToCreateService");
    assert_eq!(on_error.status.unwrap().status["jobDeploymentStatus"], "Complete");
}

#[test]
fn a_sidecar_submits() {
    let sidecar =
        || world(json!({"submissionMode": "SidecarMode"}), running(json!({}))).with_cluster("ready");
    let ended = |exit_code, seconds| ContainerState::Terminated {
        exit_code,
        reason: "Error".into(),
        message: "".into(),
        finished_at: Some(ago(seconds)),
    };
    let restarting =
        |world: World| world.with_settings(|settings| settings.gates.sidecar_submitter_restart = true);
    check(vec![
        (
            "it runs",
            sidecar().with_sidecar(ContainerState::Running, 0).heard(1, info(JobStatus::Running)),
            ("Running", "", "RUNNING"),
        ),
        ("its head is gone", sidecar(), ("Failed", "AppFailed", "")),
        (
            "it ended well",
            sidecar().with_sidecar(ended(0, 3), 0).heard(1, info(JobStatus::Succeeded)),
            ("Complete", "", "SUCCEEDED"),
        ),
        (
            "it failed with the job",
            sidecar().with_sidecar(ended(1, 3), 0).heard(1, info(JobStatus::Failed)),
            ("Failed", "AppFailed", "FAILED"),
        ),
        (
            "it failed by itself",
            sidecar().with_sidecar(ended(1, 3), 0).heard(1, Ok(None)),
            ("Failed", "SubmissionFailed", ""),
        ),
        (
            "it may fail twice where it is restarted",
            restarting(sidecar()).with_sidecar(ended(1, 3), 1).heard(1, silence()),
            ("Running", "", ""),
        ),
        (
            "but not more often",
            restarting(sidecar()).with_sidecar(ended(1, 3), 2).heard(1, silence()),
            ("Failed", "SubmissionFailed", ""),
        ),
    ]);
    let starting = |state| {
        let spec = json!({"submissionMode": "SidecarMode"});
        world(spec, initializing(json!({}))).with_cluster("").with_sidecar(state, 0)
    };
    check(vec![
        ("it waits for the cluster", starting(ContainerState::Running), ("Initializing", "", "")),
        ("it ended before the cluster was ready", starting(ended(0, 3)), ("Running", "", "")),
        ("it failed before the cluster was ready", starting(ended(1, 3)), ("Running", "", "")),
    ]);
    let failed = sidecar().with_sidecar(ended(7, 3), 0).heard(1, Ok(None));
    let message = failed.status_after(&failed.plan()).message.unwrap();
    assert_eq!(message, "Ray head pod container ray-job-submitter terminated with exit code 7: Error");
}

#[test]
fn the_service_follows_the_cluster() {
    let mut world = world(json!({}), running(json!({}))).with_cluster("ready").with_submitter(None);
    assert!(world.plan().steps.is_empty(), "it is right");
    world.observed.head_service = None;
    assert_eq!(steps(&world.plan()), ["create Service ns/train-head-svc"]);
    let selector = BTreeMap::from([
        (labels::CLUSTER.to_owned(), "train-old".to_owned()),
        ("extra".to_owned(), "x".to_owned()),
    ]);
    let service = ServiceView { selector, controller: Some("uid-of-train".into()), ..ServiceView::default() };
    world.observed.head_service = Some(Arc::new(entry(NAMESPACE, "train-head-svc", service)));
    let plan = world.plan();
    assert_eq!(events(&plan), ["UpdatedService"]);
    let Action::Patch { patch, .. } = &plan.steps[0].action else { panic!("{plan:?}") };
    assert_eq!(patch["spec"]["selector"][labels::CLUSTER], "train-c");
    assert_eq!(patch["spec"]["selector"]["extra"], Null);
    assert_eq!(patch["spec"].get("clusterIP"), None, "addresses are kept");
}

#[test]
fn a_service_of_the_same_name_that_is_anothers_stays_as_it_is() {
    let mut world = world(json!({}), running(json!({})))
        .with_cluster("ready")
        .with_submitter(Some((3, false)))
        .heard(1, info(JobStatus::Succeeded));
    let service = ServiceView {
        labels: BTreeMap::from([(labels::CLUSTER.to_owned(), "train".to_owned())]),
        selector: BTreeMap::from([(labels::CLUSTER.to_owned(), "train".to_owned())]),
        controller: Some("uid-of-a-cluster".into()),
        ..ServiceView::default()
    };
    world.observed.head_service = Some(Arc::new(entry(NAMESPACE, "train-head-svc", service)));
    let plan = world.plan();
    assert!(plan.steps.is_empty(), "{:?}", steps(&plan));
    assert_eq!(events(&plan), ["FailedToUpdateService"]);
    assert!(plan.events[0].note.contains("RayCluster train"), "{}", plan.events[0].note);
    assert_eq!(world.outcome().0, "Complete", "the job does not need it");
}

#[test]
fn a_cluster_that_was_deleted_by_hand_is_made_again_under_its_name() {
    let plan = world(json!({}), running(json!({}))).with_submitter(None).plan();
    assert_eq!(steps(&plan), ["create RayCluster.ray.io ns/train-c"]);
}

#[test]
fn failures_are_counted_and_retried() {
    let spec = |limit: i32| json!({"backoffLimit": limit});
    let failing = |failed: i32, limit: i32| {
        world(spec(limit), running(json!({"failed": failed})))
            .with_cluster("ready")
            .with_submitter(Some((3, false)))
            .heard(1, info(JobStatus::Failed))
    };
    for (failed, limit, state) in [(0, 0, "Failed"), (0, 2, "Retrying"), (1, 2, "Retrying"), (2, 2, "Failed")]
    {
        let world = failing(failed, limit);
        let status = world.status_after(&world.plan());
        assert_eq!(status.job_deployment_status.as_deref(), Some(state), "{failed} of {limit}");
        assert_eq!((status.failed, status.succeeded), (Some(failed + 1), Some(0)));
        assert_eq!(status.end_time.is_some(), state == "Failed");
        assert_eq!(status.reason.as_deref(), Some("AppFailed"), "visible until the next attempt");
    }
    for (seconds, state) in [(json!({"activeDeadlineSeconds": 1}), "Failed"), (json!({}), "Failed")] {
        let mut spec = json!({"backoffLimit": 2});
        merge(&mut spec, &seconds);
        let world = world(spec, running(json!({"jobStatusCheckFailureStartTime": time(ago(300))})));
        assert_eq!(world.outcome().0, state, "deadlines are not retried");
    }
    let pre_running =
        world(json!({"backoffLimit": 2, "preRunningDeadlineSeconds": 1}), initializing(json!({})));
    assert_eq!(pre_running.outcome().0, "Retrying", "but that for running is");
    let done = world(json!({"backoffLimit": 2}), running(json!({"failed": 1})))
        .with_cluster("ready")
        .with_submitter(Some((3, false)))
        .heard(1, info(JobStatus::Succeeded));
    let status = done.status_after(&done.plan());
    assert_eq!((status.failed, status.succeeded), (Some(1), Some(1)));
    assert_eq!(status.end_time.unwrap().0, now());
}

#[test]
fn what_an_attempt_made_goes_before_its_names_are_forgotten() {
    for (state, then) in [("Suspending", "Suspended"), ("Retrying", "")] {
        let status =
            || running(json!({"jobDeploymentStatus": state, "reason": "AppFailed", "jobStatus": "FAILED"}));
        let world = self::world(json!({}), status()).with_cluster("ready").with_submitter(None);
        let plan = world.plan();
        assert_eq!(steps(&plan), ["delete RayCluster.ray.io ns/train-c", "delete Job.batch ns/train"]);
        assert_eq!(events(&plan), ["DeletedRayCluster", "DeletedRayJobSubmitter"]);
        assert!(plan.status.is_none());
        let clear = self::world(json!({}), status());
        let after = clear.status_after(&clear.plan());
        assert_eq!(after.job_deployment_status.as_deref(), Some(then));
        assert_eq!(after.job_status.as_deref(), Some(""));
        assert_eq!(
            (after.ray_cluster_name, after.job_id, after.dashboard_url, after.reason),
            (None, None, None, None)
        );
    }
    // A submitter of the same name is not ours in these modes.
    let http =
        world(json!({"submissionMode": "HTTPMode"}), running(json!({"jobDeploymentStatus": "Suspending"})));
    assert_eq!(http.with_submitter(None).outcome().0, "Suspended");
}

#[test]
fn suspended_until_resumed() {
    let suspended = json!({"jobDeploymentStatus": "Suspended", "jobStatus": ""});
    let still = world(json!({"suspend": true, "shutdownAfterJobFinishes": true}), suspended.clone());
    assert_eq!(still.plan(), Plan::awaiting("spec.suspend to be false"));
    assert_eq!(world(json!({}), suspended).outcome().0, "");
    let toggled = world(json!({}), running(json!({"jobDeploymentStatus": "Suspending"})));
    assert_eq!(toggled.outcome().0, "Suspended", "a suspension that has begun runs to its end");
    let complete = world(
        json!({"suspend": true, "shutdownAfterJobFinishes": false}),
        running(json!({"jobDeploymentStatus": "Complete"})),
    );
    assert!(complete.plan().status.is_none(), "what has ended stays as it ended");
}

#[test]
fn what_others_manage_is_left_alone() {
    let world = world(json!({"managedBy": "kueue.x-k8s.io/multikueue"}), Null);
    assert_eq!(world.plan(), Plan::awaiting("the controller kueue.x-k8s.io/multikueue, which manages it"));
    let deleted =
        self::world(json!({"managedBy": "kueue.x-k8s.io/multikueue"}), running(json!({}))).deleted();
    assert!(deleted.plan().is_empty());
}

#[test]
fn a_deleted_job_is_stopped_if_it_runs() {
    let running_job =
        world(json!({}), running(json!({"jobStatus": "RUNNING"}))).with_cluster("ready").deleted();
    assert_eq!(steps(&running_job.plan()), ["stop Ray job train-id", "patch RayJob.ray.io ns/train"]);
    let over = world(json!({}), running(json!({"jobStatus": "SUCCEEDED"}))).with_cluster("ready").deleted();
    assert_eq!(steps(&over.plan()), ["patch RayJob.ray.io ns/train"]);
    let clusterless = world(json!({}), running(json!({"jobStatus": "RUNNING"}))).deleted();
    assert_eq!(steps(&clusterless.plan()), ["patch RayJob.ray.io ns/train"]);
}

#[test]
fn a_deletion_does_not_wait_for_ever() {
    let deleted = |seconds: i64| {
        let mut world =
            world(json!({}), running(json!({"jobStatus": "RUNNING"}))).with_cluster("ready").deleted();
        let mut job = entry(NAMESPACE, "train", world.observed.job.object.clone());
        job.deleting = true;
        job.object.metadata.deletion_timestamp = Some(Time(ago(seconds)));
        world.observed.job = Arc::new(job);
        world.plan()
    };
    assert_eq!(steps(&deleted(299)), ["stop Ray job train-id", "patch RayJob.ray.io ns/train"]);
    assert_eq!(steps(&deleted(300)), ["patch RayJob.ray.io ns/train"]);
    assert_eq!(
        (events(&deleted(299)).len(), events(&deleted(300))),
        (0, vec!["FailedToStopRayJob".to_owned()])
    );
}

#[test]
fn a_message_alone_is_not_written() {
    let status = running(json!({
        "jobStatus": "RUNNING", "message": "before", "rayClusterStatus": {"state": "ready"},
        "rayJobInfo": {"startTime": time(ago(50))},
    }));
    let world = world(json!({}), status)
        .with_cluster("ready")
        .with_submitter(None)
        .heard(1, info(JobStatus::Running));
    assert!(world.plan().is_empty(), "{:?}", world.plan());
}

#[test]
fn a_rayjob_says_what_it_waits_for() {
    let counted = |mut world: World| {
        let mut cluster = cluster("");
        let status = json!({"desiredWorkerReplicas": 3, "readyWorkerReplicas": 1});
        cluster.object.status = Some(serde_json::from_value(status).unwrap());
        world.observed.cluster = Some(Arc::new(cluster));
        world
    };
    let submitted = || world(json!({}), running(json!({}))).with_cluster("ready").with_submitter(None);
    let host = "train-c-head-svc.ns.svc.cluster.local:8265";
    let refused = || DashboardError::Unreachable { url: "http://x".to_owned(), cause: "refused".to_owned() };
    for (world, expected) in [
        (world(json!({}), initializing(json!({}))), vec!["RayCluster train-c to be created".to_owned()]),
        (
            counted(world(json!({}), initializing(json!({})))),
            vec!["RayCluster train-c: 1 of 3 workers ready".to_owned()],
        ),
        (
            submitted(),
            vec![format!("Ray dashboard at {host}: first response"), "submitter Job train to end".to_owned()],
        ),
        (
            submitted().heard(1, Err(refused())),
            vec![
                format!("Ray dashboard at {host}: no response from http://x: refused"),
                "submitter Job train to end".to_owned(),
            ],
        ),
        (
            submitted().heard(1, info(JobStatus::Running)),
            vec!["Ray job train-id: RUNNING".to_owned(), "submitter Job train to end".to_owned()],
        ),
    ] {
        assert_eq!(world.plan().awaits, expected);
    }
}
