use serde_json::{Value, json};

use super::*;

/// A moment between two seconds.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_400 + seconds * 1000).unwrap()
}

/// A pod, driven through its life on a clock of its own.
struct Life {
    pod: Pod,
    now: i64,
}

impl Life {
    fn new(annotations: &Value, spec: &Value) -> Self {
        let mut whole = json!({ "metadata": { "generation": 1 }, "spec": {
            "nodeName": "n", "containers": [{ "name": "main", "image": "i" }],
        } });
        whole["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let wishes = annotations.as_object().unwrap().iter();
        whole["metadata"]["annotations"] =
            wishes.map(|(wish, value)| (format!("node.quintet.dev/{wish}"), value.clone())).collect();
        Self { pod: Pod::read(&whole.to_string()).unwrap(), now: 0 }
    }

    /// One look; the status is written as the API would keep it.
    fn look(&mut self) -> Step {
        let place = Place { host_ip: "198.18.0.1".to_owned(), pod_ip: "100.64.0.1".to_owned() };
        let step = step(&self.pod, &place, at(self.now));
        let text = serde_json::to_string(&step.status).unwrap();
        self.pod.status = serde_json::from_str(&text).unwrap();
        assert_eq!(self.pod.status, step.status, "a status survives being stored");
        step
    }

    fn at(&mut self, seconds: i64) -> Step {
        self.now = seconds;
        self.look()
    }

    fn wish(&mut self, wish: &str, value: &str) {
        let name = format!("node.quintet.dev/{wish}");
        self.pod.wishes = crate::wishes::Wishes::read(&[(name, value.to_owned())].into());
    }

    fn delete(&mut self, grace: i64) {
        let deadline = at(self.now + grace).as_second();
        self.pod.deletion = Some((Timestamp::from_second(deadline).unwrap(), grace));
    }
}

/// Phase, whether ready, and how each container is.
fn brief(status: &Status) -> String {
    let state = |container: &crate::pod::ContainerStatus| {
        let state = &container.state;
        let waiting = state.waiting.as_ref().map(|waiting| waiting.reason.clone().unwrap_or_default());
        let ended = state.terminated.as_ref().map(|ended| format!("exit {}", ended.exit_code));
        let restarts =
            if container.restart_count > 0 { format!("#{}", container.restart_count) } else { String::new() };
        format!("{}{restarts}", waiting.or(ended).unwrap_or_else(|| "runs".to_owned()))
    };
    let all = status.init_container_statuses.iter().chain(&status.container_statuses);
    let phase = status.phase.as_deref().unwrap_or("none");
    let reason = status.reason.as_ref().map(|reason| format!(" {reason}")).unwrap_or_default();
    let ready = if status.is_true("Ready") { " ready" } else { "" };
    format!("{phase}{reason}{ready}: {}", all.map(state).collect::<Vec<_>>().join(", "))
}

/// The second, what is seen, and how many milliseconds until the next look.
type Looks<'a> = &'a [(i64, &'a str, Option<u64>)];

/// Every case is a life: what is seen at which second, and how long until the next look.
#[test]
fn lives() {
    let init = json!({ "initContainers": [{ "name": "a" }, { "name": "side", "restartPolicy": "Always" }] });
    let cases: &[(&str, Value, Value, Looks)] = &[
        ("nothing asked for", json!({}), json!({}), &[(0, "Running ready: runs", None)]),
        (
            "slow to start and to be ready",
            json!({ "start-after": "2s", "ready-after": "3s" }),
            json!({}),
            &[
                (0, "Pending: ContainerCreating", Some(2600)),
                (2, "Pending: ContainerCreating", Some(600)),
                (3, "Running: runs", Some(3600)),
                (7, "Running ready: runs", None),
            ],
        ),
        (
            "a job that succeeds",
            json!({ "run-for": "5s" }),
            json!({ "restartPolicy": "Never" }),
            &[
                (0, "Running ready: runs", Some(5600)),
                (6, "Succeeded: exit 0", None),
                (60, "Succeeded: exit 0", None),
            ],
        ),
        (
            "a job that fails",
            json!({ "run-for": "0s", "exit-code": "3" }),
            json!({ "restartPolicy": "Never" }),
            &[(0, "Failed: exit 3", None)],
        ),
        (
            "a service that crashes",
            json!({ "run-for": "1s", "exit-code": "1" }),
            json!({ "restartPolicy": "OnFailure" }),
            &[
                (0, "Running ready: runs", Some(1600)),
                (2, "Running ready: runs#1", Some(1600)),
                (4, "Running: CrashLoopBackOff#1", Some(10_600)),
                (15, "Running ready: runs#2", Some(1600)),
                (17, "Running: CrashLoopBackOff#2", Some(20_600)),
            ],
        ),
        (
            "init containers in order, beside one that stays",
            json!({ "init-for": "1s", "run-for": "1s" }),
            {
                let mut spec = init;
                spec["restartPolicy"] = json!("Never");
                spec
            },
            &[
                (0, "Pending: runs, PodInitializing, PodInitializing", Some(1600)),
                (2, "Running ready: exit 0, runs, runs", Some(1600)),
                (4, "Succeeded: exit 0, exit 0, exit 0", None),
            ],
        ),
        (
            "an image that is not there",
            json!({ "stuck": "ImagePullBackOff" }),
            json!({}),
            &[(0, "Pending: ImagePullBackOff", None)],
        ),
        (
            "an annotation that says nothing",
            json!({ "run-for": "soon" }),
            json!({}),
            &[(0, "Pending: InvalidAnnotation", None)],
        ),
        (
            "a deadline",
            json!({}),
            json!({ "activeDeadlineSeconds": 30 }),
            &[(0, "Running ready: runs", Some(30_600)), (31, "Failed DeadlineExceeded: exit 137", None)],
        ),
        (
            "a readiness gate that nobody opens",
            json!({}),
            json!({ "readinessGates": [{ "conditionType": "example.com/open" }] }),
            &[(0, "Running: runs", None)],
        ),
    ];
    for (name, annotations, spec, looks) in cases {
        let mut life = Life::new(annotations, spec);
        for (second, expected, wake) in *looks {
            let step = life.at(*second);
            assert_eq!(brief(&step.status), *expected, "{name}, second {second}");
            assert_eq!(
                step.wake.map(|wake| u64::try_from(wake.as_millis()).unwrap()),
                *wake,
                "{name}, second {second}"
            );
            assert!(!step.remove, "{name}");
            assert_eq!(life.look().status, step.status, "{name}: a second look changes nothing");
        }
    }
}

#[test]
fn the_status_is_what_a_kubelet_reports() {
    let status = Life::new(&json!({}), &json!({})).look().status;
    let time = "2027-01-15T08:00:00Z";
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "observedGeneration": 1, "lastTransitionTime": time });
    let conditions = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"].map(condition);
    assert_eq!(
        serde_json::to_value(status).unwrap(),
        json!({
            "observedGeneration": 1, "phase": "Running", "startTime": time,
            "hostIP": "198.18.0.1", "hostIPs": [{ "ip": "198.18.0.1" }],
            "podIP": "100.64.0.1", "podIPs": [{ "ip": "100.64.0.1" }],
            "conditions": conditions,
            "containerStatuses": [{
                "name": "main", "image": "i", "imageID": "i", "containerID": "simulated://main-0",
                "ready": true, "started": true, "restartCount": 0,
                "state": { "running": { "startedAt": time } },
            }],
        })
    );
}

#[test]
fn a_pod_is_evicted_when_told() {
    let mut life = Life::new(&json!({}), &json!({}));
    life.look();
    life.wish("evict", "The node was low on resource: memory.");
    let status = life.at(5).status;
    assert_eq!(brief(&status), "Failed Evicted: exit 137");
    assert_eq!(status.message.as_deref(), Some("The node was low on resource: memory."));
    assert!(status.is_true("DisruptionTarget"));
}

#[test]
fn a_deleted_pod_ends_and_is_removed() {
    let mut life = Life::new(&json!({ "stop-for": "2s" }), &json!({}));
    life.look();
    life.delete(30);
    let step = life.look();
    assert_eq!(
        (brief(&step.status).as_str(), step.wake),
        ("Running ready: runs", Some(Duration::from_millis(2600)))
    );
    let step = life.at(3);
    assert_eq!((brief(&step.status).as_str(), step.remove), ("Failed: exit 143", false));
    let step = life.at(3);
    assert!(step.remove, "said once, it can go");
    // The API has accepted that; finalizers hold it.
    life.pod.deletion = Some((at(3), 0));
    assert_eq!((life.at(4).remove, life.at(4).wake), (false, None));
}

#[test]
fn who_takes_longer_than_the_grace_is_killed() {
    let mut life = Life::new(&json!({ "stop-for": "1h" }), &json!({}));
    life.look();
    life.delete(5);
    assert_eq!(brief(&life.at(5).status), "Running ready: runs");
    assert_eq!(brief(&life.at(6).status), "Failed: exit 137");
}

#[test]
fn conditions_of_others_stay() {
    let mut life = Life::new(&json!({}), &json!({}));
    life.pod.status.conditions.push(crate::pod::Condition {
        kind: "PodScheduled".to_owned(),
        status: "True".to_owned(),
        ..crate::pod::Condition::default()
    });
    assert!(life.look().status.is_true("PodScheduled"));
}
