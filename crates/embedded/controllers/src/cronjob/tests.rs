use quintet_controller::{Controller as _, Next};
use serde_json::{Value, json};

use super::*;
use crate::testing::{Bench, stored};

struct CronBench {
    bench: Bench,
    next: Next,
}

impl CronBench {
    fn new(spec: &Value) -> Self {
        let mut bench = Bench::new();
        let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "template": {} } });
        let mut cron = json!({
            "metadata": { "name": "tick", "uid": "tick-uid" },
            "spec": { "schedule": "*/10 * * * *", "timeZone": "Etc/UTC", "jobTemplate": template },
        });
        cron["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        bench.create("CronJob", cron);
        Self { bench, next: Next::AwaitChange }
    }

    fn reconcile(&mut self) -> &mut Self {
        for _ in 0..10 {
            let cron = self.bench.entry::<CronJob>("CronJob", "tick");
            let is_missing = |name: &String| self.bench.get("Job", name).is_null();
            let missing = status::active_names(&cron.object).into_iter().filter(is_missing).collect();
            let zone = cron.object.spec.time_zone.as_deref();
            let zone = schedule::zone(zone).map_or_else(Zone::Unknown, Zone::Known);
            let jobs = self.bench.entries("Job");
            let observed = stored(&Observed { cron, jobs, missing, zone, now: self.bench.now });
            let plan = CronJobController::plan(&observed);
            self.next = plan.next;
            if !self.bench.act("CronJob", "tick", &plan) {
                return self;
            }
        }
        panic!("still changing: {:#}", self.status());
    }

    fn wait(&mut self, seconds: i64) -> &mut Self {
        self.bench.wait(seconds);
        self
    }

    fn finish(&mut self, job: &str, condition: &str) -> &mut Self {
        let conditions = json!([{ "type": condition, "status": "True" }]);
        let now = self.bench.now;
        let status = json!({ "conditions": conditions, "startTime": now, "completionTime": now });
        self.bench.patch("Job", job, &json!({ "status": status }));
        self
    }

    fn status(&self) -> &Value {
        &self.bench.get("CronJob", "tick")["status"]
    }

    fn jobs(&self) -> Vec<String> {
        self.bench.names("Job")
    }
}

#[test]
fn a_job_is_created_at_every_scheduled_time() {
    let mut cron = CronBench::new(&json!({ "timeZone": "Europe/Berlin" }));
    cron.reconcile();
    assert!(cron.jobs().is_empty());
    assert_eq!(cron.next, Next::After(std::time::Duration::from_mins(10)));
    cron.wait(600).reconcile();
    let minute = "2026-01-01T00:10:00Z".parse::<Timestamp>().unwrap().as_second() / 60;
    assert_eq!(cron.jobs(), [format!("tick-{minute}")]);
    let job = cron.bench.get("Job", &cron.jobs()[0]);
    let stamp = &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(stamp, "2026-01-01T01:10:00+01:00");
    assert_eq!(
        (&job["metadata"]["labels"]["a"], &job["metadata"]["ownerReferences"][0]["uid"]),
        (&json!("b"), &json!("tick-uid"))
    );
    assert_eq!(cron.status()["lastScheduleTime"], "2026-01-01T00:10:00Z");
    assert_eq!(cron.status()["active"].as_array().unwrap().len(), 1);
    let job = cron.jobs()[0].clone();
    cron.finish(&job, "Complete").reconcile();
    assert_eq!(cron.status().get("active"), None);
    assert!(cron.status()["lastSuccessfulTime"].is_string());
    assert_eq!(cron.bench.take_reasons(), ["SuccessfulCreate", "SawCompletedJob"]);
}

#[test]
fn only_the_latest_missed_time_is_made_up_for() {
    let mut cron = CronBench::new(&json!({}));
    cron.wait(24 * 3600).reconcile();
    assert_eq!(cron.jobs().len(), 1);
    assert_eq!(cron.status()["lastScheduleTime"], "2026-01-02T00:00:00Z");
    assert!(cron.bench.take_reasons().contains(&"TooManyMissedTimes".to_owned()));
}

#[test]
fn a_starting_deadline_that_is_over_is_a_missed_schedule() {
    let mut cron = CronBench::new(&json!({ "startingDeadlineSeconds": 30 }));
    cron.wait(700).reconcile();
    assert!(cron.jobs().is_empty());
    assert!(cron.bench.take_reasons().contains(&"MissSchedule".to_owned()));
    cron.wait(520).reconcile();
    assert_eq!(cron.jobs().len(), 1, "20 seconds late");
}

#[test]
fn the_concurrency_policy_decides_about_active_jobs() {
    for (policy, jobs) in [("Allow", 2), ("Forbid", 1), ("Replace", 1)] {
        let mut cron = CronBench::new(&json!({ "concurrencyPolicy": policy }));
        cron.wait(600).reconcile();
        let first = cron.jobs();
        cron.wait(600).reconcile();
        assert_eq!(cron.jobs().len(), jobs, "{policy}");
        assert_eq!(cron.jobs() == first, policy == "Forbid", "{policy}");
        let forbidden = cron.bench.take_reasons().contains(&"JobAlreadyActive".to_owned());
        assert_eq!(forbidden, policy == "Forbid");
    }
}

#[test]
fn old_jobs_beyond_the_limits_are_deleted() {
    let mut cron = CronBench::new(&json!({ "successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 0 }));
    for condition in ["Complete", "Failed", "Complete", "Complete"] {
        cron.wait(600).reconcile();
        let job = cron.jobs().pop().unwrap();
        cron.finish(&job, condition).reconcile();
    }
    assert_eq!(cron.jobs().len(), 2);
}

#[test]
fn a_suspended_cron_job_starts_nothing_and_a_resumed_one_the_latest_missed() {
    let mut cron = CronBench::new(&json!({ "suspend": true }));
    cron.wait(3700).reconcile();
    assert!(cron.jobs().is_empty());
    cron.bench.patch("CronJob", "tick", &json!({ "spec": { "suspend": false } }));
    cron.reconcile();
    assert_eq!(cron.jobs().len(), 1);
}

#[test]
fn mistakes_are_events() {
    for (spec, reason) in [
        (json!({ "schedule": "every day" }), "UnparseableSchedule"),
        (json!({ "timeZone": "Mars" }), "UnknownTimeZone"),
    ] {
        let mut cron = CronBench::new(&spec);
        cron.reconcile();
        assert_eq!(cron.bench.take_reasons(), [reason]);
    }
}

#[test]
fn missing_and_unexpected_jobs_are_told() {
    let mut cron = CronBench::new(&json!({}));
    cron.wait(600).reconcile();
    let job = cron.jobs()[0].clone();
    cron.bench.remove("Job", &job);
    cron.bench.take_reasons();
    cron.reconcile();
    assert_eq!(cron.bench.take_reasons(), ["MissingJob"]);
    let owner = json!([{ "apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": "tick-uid", "controller": true }]);
    cron.bench.create(
        "Job",
        json!({ "metadata": { "name": "other", "ownerReferences": owner }, "spec": { "template": {} } }),
    );
    cron.reconcile();
    assert_eq!(cron.bench.take_reasons(), ["UnexpectedJob"]);
}

#[test]
fn a_job_whose_time_was_not_written_down_neither_replaces_nor_forbids_itself() {
    for policy in ["Replace", "Forbid"] {
        let mut cron = CronBench::new(&json!({ "concurrencyPolicy": policy }));
        cron.wait(600).reconcile();
        let (jobs, last) = (cron.jobs(), cron.status()["lastScheduleTime"].clone());
        assert_eq!(jobs.len(), 1);
        cron.bench.patch("CronJob", "tick", &json!({ "status": { "lastScheduleTime": null } }));
        cron.reconcile();
        assert_eq!((cron.jobs(), &cron.status()["lastScheduleTime"]), (jobs, &last), "{policy}");
    }
}
