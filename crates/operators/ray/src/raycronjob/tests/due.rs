//! When a RayCronJob makes a RayJob, and which.

use quintet_controller::{Action, Next};
use serde_json::{Value, json};

use crate::{
    raycronjob::*,
    testing::{NOW, cluster_spec, entry, events, golden, merge, now, replayed, steps},
};

fn observed(spec: Value, status: Value) -> Observed {
    let mut cron = json!({
        "metadata": {
            "name": "nightly", "namespace": "ns", "uid": "uid-of-nightly",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"queue": "a"},
        },
        "spec": {
            "schedule": "*/5 * * * *", "timeZone": "UTC",
            "jobTemplate": {"entrypoint": "python a.py", "rayClusterSpec": cluster_spec()},
        },
        "status": status,
    });
    merge(&mut cron["spec"], &spec);
    let cron: RayCronJob = serde_json::from_value(cron).unwrap();
    Observed {
        zone: schedule::zone(cron.spec.time_zone.as_deref()).map_or_else(Zone::Unknown, Zone::Known),
        cron: std::sync::Arc::new(entry("ns", "nightly", cron)),
        settings: std::sync::Arc::new(Settings::default()),
        now: now(),
    }
}

fn last(time: &str) -> Value {
    json!({"lastScheduleTime": time})
}

#[test]
fn a_job_is_made_for_the_tick_and_not_for_now() {
    assert_eq!(NOW, "2026-01-01T00:10:00Z");
    let plan = replayed::<CronController>(&observed(json!({}), last("2026-01-01T00:05:00Z")));
    let minute = now().as_second() / 60;
    assert_eq!(steps(&plan), [format!("create RayJob.ray.io ns/nightly-{minute}")]);
    assert_eq!(plan.status.unwrap().status, last(NOW));
    assert_eq!(plan.next, Next::After(std::time::Duration::from_mins(5)));
    assert!(plan.events.is_empty());
    let Action::Create { object, .. } = &plan.steps[0].action else { panic!() };
    golden(
        "raycronjob/tests/child.yaml",
        &(serde_saphyr::to_string(object).unwrap().trim_end().to_owned() + "\n"),
    );
}

#[test]
fn before_its_time_nothing_is_made() {
    let plan = replayed::<CronController>(&observed(json!({}), last(NOW)));
    assert!(plan.is_empty());
    assert_eq!(plan.next, Next::After(std::time::Duration::from_mins(5)));
}

#[test]
fn of_several_missed_ticks_only_the_last_is_made_up_for() {
    for status in [Value::Null, last("2020-01-01T00:00:00Z")] {
        let plan = replayed::<CronController>(&observed(json!({}), status));
        assert_eq!(plan.steps.len(), 1);
        assert_eq!(plan.status.as_ref().unwrap().status, last(NOW));
        assert_eq!(events(&plan), ["MissedSchedule"]);
    }
    let every =
        replayed::<CronController>(&observed(json!({"schedule": "@every 7m"}), last("2025-12-31T00:00:00Z")));
    assert_eq!(every.status.unwrap().status, last("2026-01-01T00:09:00Z"), "in step with the first");
}

#[test]
fn what_never_comes_makes_nothing() {
    let plan = replayed::<CronController>(&observed(json!({"schedule": "0 0 30 2 *"}), Value::Null));
    assert!(plan.steps.is_empty() && plan.status.is_none());
    assert_eq!(events(&plan), ["InvalidRayCronJobSpec"]);
}

#[test]
fn suspended() {
    let plan = replayed::<CronController>(&observed(json!({"suspend": true}), Value::Null));
    assert!(plan.steps.is_empty() && plan.status.is_none());
    assert_eq!((events(&plan), plan.next), (vec!["SuspendedRayCronJob".to_owned()], Next::AwaitChange));
}

#[test]
fn mistakes_are_told() {
    for (spec, expected) in [
        (
            json!({"schedule": "CRON_TZ=UTC * * * * *"}),
            "schedule must not contain TZ or CRON_TZ; set timeZone instead",
        ),
        (json!({"schedule": "61 * * * *"}), "schedule: minute: 61 is above the maximum 59"),
        (json!({"timeZone": "Mars/Olympus"}), "timeZone: unknown time zone \"Mars/Olympus\""),
        (
            json!({"jobTemplate": {"activeDeadlineSeconds": 0}}),
            "invalid RayJob template: The RayJob spec is invalid: activeDeadlineSeconds",
        ),
    ] {
        let plan = replayed::<CronController>(&observed(spec, Value::Null));
        assert!(plan.steps.is_empty() && plan.status.is_none(), "{expected}");
        let event = &plan.events[0];
        assert_eq!(event.reason, "InvalidRayCronJobSpec");
        assert!(event.note.contains(expected), "{}", event.note);
    }
    let mut long = observed(json!({}), Value::Null);
    let mut object = long.cron.object.clone();
    object.metadata.name = Some("n".repeat(37));
    long.cron = std::sync::Arc::new(entry("ns", &"n".repeat(37), object));
    assert!(replayed::<CronController>(&long).events[0].note.contains("no more than 36 characters"));
}
