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
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ),
        (json!({"schedule": ""}), "invalid cron schedule: empty spec string"),
        (
            json!({"schedule": "* * * *"}),
            "invalid cron schedule: expected exactly 5 fields, found 4: [* * * *]",
        ),
        (
            json!({"schedule": "61 * * * *"}),
            "invalid cron schedule: end of range (61) above maximum (59): 61",
        ),
        (
            json!({"schedule": "* * 0 * *"}),
            "invalid cron schedule: beginning of range (0) below minimum (1): 0",
        ),
        (
            json!({"schedule": "9-5 * * * *"}),
            "invalid cron schedule: beginning of range (9) beyond end of range (5): 9-5",
        ),
        (
            json!({"schedule": "*/0 * * * *"}),
            "invalid cron schedule: step of range should be a positive number: */0",
        ),
        (json!({"schedule": "1-2-3 * * * *"}), "invalid cron schedule: too many hyphens: 1-2-3"),
        (json!({"schedule": "*/1/2 * * * *"}), "invalid cron schedule: too many slashes: */1/2"),
        (
            json!({"schedule": "x * * * *"}),
            "invalid cron schedule: failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (json!({"schedule": "*/-5 * * * *"}), "invalid cron schedule: negative number (-5) not allowed: -5"),
        (json!({"schedule": "@often"}), "invalid cron schedule: unrecognized descriptor: @often"),
        (
            json!({"schedule": "@every now"}),
            "invalid cron schedule: failed to parse duration @every now: time: invalid duration \"now\"",
        ),
        (json!({"timeZone": "Mars/Olympus"}), "invalid time zone: unknown time zone Mars/Olympus"),
        (
            json!({"timeZone": ""}),
            "timeZone must not be empty string, omit the field to use the local time zone of the KubeRay operator",
        ),
        (
            json!({"jobTemplate": {"activeDeadlineSeconds": 0}}),
            "invalid RayJob template: The RayJob spec is invalid: activeDeadlineSeconds must be a positive integer",
        ),
    ] {
        let plan = replayed::<CronController>(&observed(spec, Value::Null));
        assert!(plan.steps.is_empty() && plan.status.is_none(), "{expected}");
        let event = &plan.events[0];
        assert_eq!(event.reason, "InvalidRayCronJobSpec");
        let (_, told) = event.note.split_once(": ").unwrap();
        assert_eq!(told, expected);
        assert!(event.note.starts_with("ns/"), "{}", event.note);
    }
    let mut long = observed(json!({}), Value::Null);
    let mut object = long.cron.object.clone();
    object.metadata.name = Some("n".repeat(37));
    long.cron = std::sync::Arc::new(entry("ns", &"n".repeat(37), object));
    let told = &replayed::<CronController>(&long).events[0].note;
    assert!(told.ends_with(": RayCronJob name should be no more than 36 characters"), "{told}");
}
