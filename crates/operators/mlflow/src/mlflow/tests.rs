use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::core::Status;
use quintet_api::mlflow::MLflow;
use quintet_api::platform::MLflowOperator;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Error, Next, ObjectKey, Plan};
use serde_json::{Value, json};

use super::objects::{Bundles, OptionalApis};
use super::observe::Observed;
use super::plan::{on_error, plan};
use crate::settings::Settings;
use crate::watches::{DeploymentView, JobView, PodView};

const JOB: &str = "mlflow-mg-3140-g1";

/// An MLflow with this spec beyond what it needs, and with this status.
fn mlflow(spec: &Value, status: &Value) -> MLflow {
    let mut object = json!({
        "metadata": {"name": "mlflow", "uid": "u", "generation": 1},
        "spec": {"backendStoreUri": "postgresql://db", "defaultArtifactRoot": "s3://b"},
        "status": status,
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn observed(spec: &Value, status: &Value) -> Observed {
    let settings = Settings { image: Some("image".to_owned()), ..Settings::default() };
    Observed {
        mlflow: Arc::new(Entry::new(ObjectKey::cluster("mlflow"), mlflow(spec, status))),
        settings: Arc::new(settings),
        now: Timestamp::UNIX_EPOCH,
        apis: OptionalApis::default(),
        module: None,
        deployment: Some(DeploymentView::default()),
        jobs: Vec::new(),
        pods: Vec::new(),
        bundles: Bundles::default(),
        custom_bundle_is_missing: false,
        leftovers: Vec::new(),
    }
}

/// One that nothing was done for yet.
fn new() -> Observed {
    observed(&json!({}), &json!({}))
}

/// One that serves after its first migration.
fn migrated() -> Observed {
    let condition = migration("True", "MigrationSucceeded", 1);
    let mut observed = observed(&json!({}), &json!({"version": "3.14.0", "conditions": [condition]}));
    observed.deployment = Some(DeploymentView { replicas: 1, ready_replicas: 1 });
    observed
}

fn migration(status: &str, reason: &str, generation: i64) -> Value {
    json!({"type": "Migration", "status": status, "reason": reason, "message": "m", "observedGeneration": generation,
           "lastTransitionTime": "1970-01-01T00:00:00Z"})
}

fn change(observed: &mut Observed, change: impl FnOnce(&mut MLflow)) {
    let mut object = observed.mlflow.object.clone();
    change(&mut object);
    observed.mlflow = Arc::new(Entry::new(ObjectKey::cluster("mlflow"), object));
}

fn force(observed: &mut Observed) {
    change(observed, |object| {
        object.metadata.annotations =
            Some([("mlflow.opendatahub.io/force-migrate".to_owned(), String::new())].into());
    });
}

fn job(name: &str, status: &Value) -> Arc<Entry<JobView>> {
    let labels = json!({"mlflow.opendatahub.io/migration-instance": "mlflow"});
    let job = json!({"metadata": {"labels": labels}, "status": status});
    Arc::new(Entry::new(ObjectKey::new("opendatahub", name), JobView::project(&job.to_string()).unwrap()))
}

fn succeeded() -> Value {
    json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]})
}

fn failed() -> Value {
    json!({"conditions": [{"type": "Failed", "status": "True", "message": "no luck",
                           "lastTransitionTime": "1970-01-01T00:00:00Z"}]})
}

fn exited(code: i32) -> Arc<Entry<PodView>> {
    let pod = json!({
        "metadata": {"labels": {"job-name": JOB}},
        "status": {"containerStatuses": [{"name": "db-migrate", "state": {"terminated": {"exitCode": code}}}]},
    });
    Arc::new(Entry::new(ObjectKey::new("opendatahub", "p"), PodView::project(&pod.to_string()).unwrap()))
}

/// Status and reason of a condition in what is written.
fn condition(plan: &Plan, type_: &str) -> (String, String) {
    let Some(status) = &plan.status else { return Default::default() };
    let conditions = status.status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|one| one["type"] == type_).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn says(plan: &Plan, type_: &str, status: &str, reason: &str) {
    assert_eq!(condition(plan, type_), (status.to_owned(), reason.to_owned()), "{type_} of {plan:#?}");
}

/// The message of a condition.
fn message(plan: &Plan, type_: &str) -> String {
    let status = plan.status.as_ref().map(|status| status.status.clone()).unwrap_or_default();
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == type_);
    found.and_then(|condition| condition["message"].as_str()).unwrap_or_default().to_owned()
}

/// The replicas that the Deployment is applied with, if it is.
fn replicas(plan: &Plan) -> Option<i64> {
    let applied = plan.steps.iter().find_map(|step| match &step.action {
        Action::Apply { kind, object, .. } if *kind == ApiKind::of::<Deployment>() => Some(object),
        _ => None,
    });
    applied.and_then(|object| object["spec"]["replicas"].as_i64())
}

fn actions(plan: &Plan, verb: &str, kind: &str) -> Vec<String> {
    let start = format!("{verb} {kind}");
    plan.steps.iter().map(|step| step.action.to_string()).filter(|text| text.starts_with(&start)).collect()
}

#[test]
fn a_new_mlflow_is_migrated_before_it_serves() {
    let first = plan(&new());
    assert_eq!(replicas(&first), Some(0));
    assert_eq!(actions(&first, "create", "Job"), [format!("create Job.batch opendatahub/{JOB}")]);
    says(&first, "Available", "False", "MigrationRunning");
    says(&first, "Migration", "Unknown", "MigrationRunning");
    let mut running = new();
    running.jobs = vec![job(JOB, &json!({"active": 1}))];
    let running = plan(&running);
    assert!(replicas(&running) == Some(0) && actions(&running, "create", "Job").is_empty());
}

#[test]
fn pods_end_before_the_migration() {
    let mut observed = new();
    observed.deployment = Some(DeploymentView { replicas: 2, ready_replicas: 0 });
    let plan = plan(&observed);
    says(&plan, "Migration", "Unknown", "MigrationScalingDown");
    assert!(actions(&plan, "create", "Job").is_empty() && plan.awaits[0].contains("2 replicas remain"));
}

#[test]
fn a_job_of_another_generation_is_waited_for() {
    let mut observed = new();
    observed.jobs = vec![job("mlflow-mg-3140-g0", &json!({"active": 1}))];
    let waiting = plan(&observed);
    assert!(actions(&waiting, "create", "Job").is_empty() && waiting.awaits[0].contains("mlflow-mg-3140-g0"));
    observed.jobs = vec![job("mlflow-mg-3140-g0", &failed())];
    assert_eq!(actions(&plan(&observed), "create", "Job").len(), 1);
}

#[test]
fn of_two_jobs_the_later_one_is_deleted_and_the_server_waits_for_both() {
    let created = |name: &str, minute: u32, status: &Value| {
        let mut job = Arc::into_inner(job(name, status)).unwrap();
        job.object.created = Some(format!("2026-01-01T00:0{minute}:00Z").parse().unwrap());
        Arc::new(job)
    };
    let (other, active) = ("mlflow-mg-3140-g0", json!({"active": 1}));
    for (minute, deleted) in [(0, JOB), (2, other)] {
        let mut observed = new();
        observed.jobs = vec![created(JOB, 1, &active), created(other, minute, &active)];
        let ending = plan(&observed);
        assert_eq!(actions(&ending, "delete", "Job"), [format!("delete Job.batch opendatahub/{deleted}")]);
        assert_eq!(replicas(&ending), Some(0));
        says(&ending, "Migration", "Unknown", "MigrationRunning");
    }
    let mut observed = new();
    observed.jobs = vec![created(JOB, 1, &succeeded()), created(other, 2, &active)];
    let waiting = plan(&observed);
    assert!(replicas(&waiting) == Some(0) && waiting.awaits[0].contains(other), "{waiting:?}");
    assert!(actions(&waiting, "delete", "Job").is_empty());
}

#[test]
fn success_is_recorded_when_the_server_is_ready() {
    let mut observed = new();
    observed.jobs = vec![job(JOB, &succeeded())];
    let starting = plan(&observed);
    assert_eq!(replicas(&starting), Some(1));
    says(&starting, "Available", "False", "DeploymentNotReady");
    assert_eq!(starting.status.as_ref().unwrap().status.get("version"), None);
    observed.deployment = Some(DeploymentView { replicas: 1, ready_replicas: 1 });
    let ready = plan(&observed);
    says(&ready, "Available", "True", "DeploymentReady");
    says(&ready, "Progressing", "False", "ReconcileComplete");
    says(&ready, "Migration", "True", "MigrationSucceeded");
    assert_eq!(ready.status.unwrap().status["version"], "3.14.0");
}

#[test]
fn a_later_generation_is_migrated_in_mode_always_only() {
    let mut observed = migrated();
    change(&mut observed, |object| object.metadata.generation = Some(2));
    assert_eq!(replicas(&plan(&observed)), Some(1));
    let always = serde_json::from_value(json!({"mode": "Always"})).unwrap();
    change(&mut observed, |object| object.spec.migration = Some(always));
    let again = plan(&observed);
    assert_eq!(replicas(&again), Some(0));
    says(&again, "Migration", "Unknown", "MigrationScalingDown");
}

#[test]
fn the_server_waits_for_a_job_that_is_no_longer_requested() {
    let mut observed = migrated();
    change(&mut observed, |object| object.metadata.generation = Some(3));
    observed.jobs = vec![job("mlflow-mg-3140-g2", &json!({"active": 1}))];
    let waiting = plan(&observed);
    assert_eq!(replicas(&waiting), Some(0));
    says(&waiting, "Available", "False", "MigrationRunning");
    says(&waiting, "Migration", "True", "MigrationSucceeded");
    observed.jobs = vec![job("mlflow-mg-3140-g2", &failed())];
    assert_eq!(replicas(&plan(&observed)), Some(1));
}

#[test]
fn another_version_is_migrated_up_or_down() {
    for version in ["3.13.0", "4.0.0"] {
        let mut observed = migrated();
        change(&mut observed, |object| object.status.as_mut().unwrap().version = Some(version.to_owned()));
        observed.deployment = Some(DeploymentView::default());
        says(&plan(&observed), "Migration", "Unknown", "MigrationRunning");
    }
}

#[test]
fn a_requested_migration_does_not_take_an_earlier_job_for_its_own() {
    let mut observed = migrated();
    observed.jobs = vec![job(JOB, &succeeded())];
    force(&mut observed);
    let restart = plan(&observed);
    assert_eq!(actions(&restart, "delete", "Job").len(), 1);
    says(&restart, "Migration", "Unknown", "ForceMigrationRestartRequested");
    observed.jobs = Vec::new();
    says(&plan(&observed), "Migration", "Unknown", "ForceMigrationScalingDown");
    observed.deployment = Some(DeploymentView::default());
    let running = plan(&observed);
    says(&running, "Migration", "Unknown", "ForceMigrationRunning");
    assert_eq!(actions(&running, "create", "Job").len(), 1);
}

#[test]
fn the_annotation_goes_when_the_requested_migration_is_done() {
    let mut observed = migrated();
    force(&mut observed);
    change(&mut observed, |object| {
        let status =
            json!({"version": "3.14.0", "conditions": [migration("Unknown", "ForceMigrationRunning", 1)]});
        object.status = serde_json::from_value(status).unwrap();
    });
    observed.jobs = vec![job(JOB, &succeeded())];
    observed.deployment = Some(DeploymentView::default());
    assert!(actions(&plan(&observed), "patch", "MLflow").is_empty(), "not before the server is ready");
    observed.deployment = Some(DeploymentView { replicas: 1, ready_replicas: 1 });
    assert_eq!(actions(&plan(&observed), "patch", "MLflow").len(), 1);
}

#[test]
fn a_failure_that_may_pass_is_repeated_after_two_minutes() {
    let mut observed = new();
    observed.jobs = vec![job(JOB, &failed())];
    observed.now = Timestamp::from_second(30).unwrap();
    let waiting = plan(&observed);
    says(&waiting, "Migration", "Unknown", "MigrationRetrying");
    assert_eq!(waiting.next, Next::After(std::time::Duration::from_secs(90)));
    assert!(waiting.awaits[0].starts_with("no luck Retrying automatically after 1970-01-01T00:02:00Z."));
    assert!(actions(&waiting, "delete", "Job").is_empty());
    observed.now = Timestamp::from_second(120).unwrap();
    assert_eq!(actions(&plan(&observed), "delete", "Job").len(), 1);
}

#[test]
fn a_failure_that_needs_the_user_stays_until_the_user_asks() {
    let mut observed = new();
    observed.jobs = vec![job(JOB, &failed())];
    observed.pods = vec![exited(13)];
    let failed = plan(&observed);
    says(&failed, "Migration", "False", "MigrationFailed");
    says(&failed, "Progressing", "False", "MigrationFailed");
    assert_eq!((failed.next, replicas(&failed)), (Next::AwaitChange, Some(0)));
    // The Job and its pods are gone, the spec changes.
    let status = json!({"conditions": [migration("False", "MigrationFailed", 1)]});
    let mut later = self::observed(&json!({"workers": 2}), &status);
    change(&mut later, |object| object.metadata.generation = Some(2));
    let still = plan(&later);
    says(&still, "Migration", "False", "MigrationFailed");
    assert!(actions(&still, "create", "Job").is_empty());
    force(&mut later);
    assert_eq!(actions(&plan(&later), "create", "Job"), ["create Job.batch opendatahub/mlflow-mg-3140-g2"]);
}

#[test]
fn bad_input_is_reported_and_nothing_is_made() {
    let odd = json!({"matchExpressions": [{"key": "a", "operator": "Odd"}]});
    let on_disk = json!({"enabled": true, "location": "file:///mlflow/traces", "retention": "1d"});
    let cases = [
        (json!({"workspaceLabelSelector": odd}), "\"Odd\" is not a valid label selector operator"),
        (json!({"traceArchival": on_disk}), "storage must be configured when traceArchival.location"),
    ];
    for (spec, text) in cases {
        let plan = plan(&observed(&spec, &json!({})));
        says(&plan, "Available", "False", "RenderFailed");
        says(&plan, "Progressing", "False", "RenderFailed");
        assert!(plan.steps.is_empty() && plan.awaits[0].contains(text), "{plan:#?}");
    }
    let mut imageless = new();
    imageless.settings = Arc::new(Settings::default());
    assert!(plan(&imageless).awaits[0].contains("MLFLOW_IMAGE"));
    let mut bundle = new();
    (bundle.custom_bundle_is_missing, bundle.bundles.custom) = (true, Some("ca".to_owned()));
    let bundle = plan(&bundle);
    says(&bundle, "Available", "False", "CABundleConfigMapError");
    let expected = "CA bundle ConfigMap \"ca\" not found in namespace \"opendatahub\"";
    assert_eq!(message(&bundle, "Available"), expected);
    assert!(bundle.steps.is_empty());
}

#[test]
fn a_rejected_write_is_reported_by_where_it_happened() {
    let rejected = |observed: &Observed, kind: &str, code: u16| {
        let action = plan(observed).steps.into_iter().map(|step| step.action);
        let action =
            action.into_iter().find(|action| action.kind().is_some_and(|found| found.kind == kind)).unwrap();
        let status = Status::failure("no", "Invalid").with_code(code);
        let error = Error::request("apply", action.kind().unwrap(), None, kube::Error::Api(Box::new(status)));
        let on_error = on_error(observed, &action, &error);
        Plan { status: on_error.status, ..Plan::default() }
    };
    let first = rejected(&new(), "Deployment", 422);
    says(&first, "Migration", "Unknown", "MigrationError");
    says(&first, "Progressing", "False", "MigrationError");
    let mut serving = migrated();
    serving.apis = OptionalApis { console_links: true, http_routes: true, service_monitors: true };
    says(&rejected(&serving, "Deployment", 422), "Available", "False", "ApplyFailed");
    says(&rejected(&serving, "ConsoleLink", 403), "Available", "False", "ConsoleLinkFailed");
    let route = rejected(&serving, "HTTPRoute", 422);
    says(&route, "Available", "False", "HttpRouteFailed");
    let available = |plan: &Plan| message(plan, "Available");
    assert_eq!(available(&route), "Failed to reconcile HttpRoute: no");
    assert_eq!(available(&first), "Failed to reconcile migration: apply Deployment/mlflow: no");
    let deployment = rejected(&serving, "Deployment", 422);
    assert_eq!(available(&deployment), "Failed to apply resources: apply Deployment/mlflow: no");
    for passing in [409, 429, 503] {
        assert!(rejected(&serving, "Deployment", passing).status.is_none(), "{passing}");
    }
}

#[test]
fn what_is_rejected_does_not_hold_back_the_others() {
    let collects = json!({"garbageCollection": {"schedule": "0 1 * * *"}});
    let last = |name: &str, reason: &str| {
        let message = format!("Failed to reconcile migration: apply {name}: no");
        let told = json!({"type": "Available", "status": "False", "reason": reason, "message": message,
                          "lastTransitionTime": "1970-01-01T00:00:00Z"});
        let plan = plan(&observed(&collects, &json!({"conditions": [told]})));
        let steps = plan.steps.iter().map(|step| step.action.to_string());
        let applied: Vec<_> = steps.filter(|step| step.starts_with("apply ")).collect();
        applied[applied.len() - 2..].to_vec()
    };
    let policy = "apply NetworkPolicy.networking.k8s.io opendatahub/mlflow-migration";
    let collection = "apply CronJob.batch opendatahub/mlflow-gc";
    assert_eq!(last("Deployment/mlflow", "MigrationRunning"), [collection, policy]);
    assert_eq!(
        last("Deployment/mlflow", "MigrationError"),
        ["apply Deployment.apps opendatahub/mlflow", policy]
    );
    assert_eq!(last("CronJob/mlflow-gc", "ApplyFailed"), [collection, policy]);
    assert_eq!(last("Nothing/x", "ApplyFailed"), [collection, policy]);
    assert_eq!(last("NetworkPolicy/mlflow-migration", "ApplyFailed"), [collection, policy]);
}

#[test]
fn the_module_has_to_be_ready() {
    let mut observed = new();
    observed.settings = Arc::new(Settings { module_mode: true, ..Settings::clone(&observed.settings) });
    says(&plan(&observed), "MLflowOperatorReady", "False", "MLflowOperatorMissing");
    let module = |status: Value| {
        let module = json!({"metadata": {"generation": 2}, "spec": {}, "status": status});
        let module: MLflowOperator = serde_json::from_value(module).unwrap();
        Entry::new(ObjectKey::cluster("default-mlflowoperator"), module)
    };
    let ready = |status: &str, reason: &str| json!({"observedGeneration": 2, "conditions": [{"type": "Ready", "status": status, "reason": reason, "message": "why"}]});
    let cases = [
        (json!({}), "MLflowOperatorNotReady", "MLflowOperator to report Ready"),
        (
            json!({"observedGeneration": 1}),
            "MLflowOperatorStatusStale",
            "MLflowOperator status to observe generation 2",
        ),
        (ready("False", "ConfigPending"), "ConfigPending", "MLflowOperator to become ready"),
    ];
    for (status, reason, awaited) in cases {
        observed.module = Some(Arc::new(module(status)));
        let plan = plan(&observed);
        let expected = format!("Waiting for {awaited} before reconciling MLflow custom resources");
        let detail = if reason == "ConfigPending" { ": why" } else { "" };
        assert_eq!(message(&plan, "Available"), expected + detail);
        says(&plan, "MLflowOperatorReady", "False", reason);
        says(&plan, "Available", "False", reason);
        assert!(plan.steps.is_empty());
    }
    // What serves goes on while the module is kept from being deleted.
    let mut deleted = module(ready("False", "MLflowInstancesPresent"));
    deleted.deleting = true;
    observed.module = Some(Arc::new(deleted));
    let kept = plan(&observed);
    says(&kept, "MLflowOperatorReady", "False", "MLflowInstancesPresent");
    says(&kept, "Available", "", "");
    observed.module = Some(Arc::new(module(ready("True", "Ready"))));
    let ready = plan(&observed);
    says(&ready, "MLflowOperatorReady", "True", "Ready");
    assert_eq!(replicas(&ready), Some(0));
}

#[test]
fn an_external_address_needs_a_route_and_a_configured_url() {
    let url = |http_routes: bool, url_is_configured: bool| {
        let mut observed = migrated();
        observed.apis.http_routes = http_routes;
        let url = "https://gw/path//".to_owned();
        observed.settings =
            Arc::new(Settings { url, url_is_configured, ..Settings::clone(&observed.settings) });
        plan(&observed).status.unwrap().status["url"].clone()
    };
    assert_eq!(url(true, true), "https://gw/path/mlflow");
    assert_eq!((url(true, false), url(false, true)), (Value::Null, Value::Null));
}

#[test]
fn nothing_is_done_about_an_mlflow_that_is_deleted_or_has_another_name() {
    let mut observed = new();
    let mut entry = Entry::new(ObjectKey::cluster("mlflow"), observed.mlflow.object.clone());
    entry.deleting = true;
    observed.mlflow = Arc::new(entry);
    assert!(plan(&observed).is_empty());
    observed.mlflow = Arc::new(Entry::new(ObjectKey::cluster("other"), observed.mlflow.object.clone()));
    assert!(plan(&observed).is_empty());
}

#[test]
fn what_is_empty_in_the_spec_is_left_out_of_pods() {
    let empty = json!({
        "affinity": {}, "nodeSelector": {}, "tolerations": [], "resourceClaims": [], "podAnnotations": {}, "envFrom": [],
    });
    assert_eq!(plan(&observed(&empty, &json!({}))).steps, plan(&new()).steps);
}

#[test]
fn a_migration_pod_gets_no_read_replica_and_no_claims() {
    let spec = json!({
        "readReplicaBackendStoreUri": "postgresql://replica",
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
        "resources": {"claims": [{"name": "gpu"}]},
        "podLabels": {"team": "a"},
    });
    let plan = plan(&observed(&spec, &json!({})));
    let job = plan.steps.iter().find_map(|step| match &step.action {
        Action::Create { object, .. } if object["kind"] == "Job" => Some(object),
        _ => None,
    });
    let pod = &job.unwrap()["spec"]["template"];
    assert_eq!(pod["metadata"]["labels"]["team"], "a");
    assert_eq!(
        (&pod["metadata"]["labels"]["app"], &pod["spec"]["resourceClaims"]),
        (&Value::Null, &Value::Null)
    );
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["resources"]["claims"], Value::Null);
    let env = container["env"].as_array().unwrap();
    let replicas: Vec<_> =
        env.iter().filter(|one| one["name"] == "MLFLOW_READ_REPLICA_BACKEND_STORE_URI").collect();
    assert_eq!(replicas, [&json!({"name": "MLFLOW_READ_REPLICA_BACKEND_STORE_URI"})]);
}
