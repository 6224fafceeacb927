use serde_json::{Value, json};

use super::*;

/// A moment between two seconds.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_400 + seconds * 1000).unwrap()
}

/// A pod, driven through its lifecycle on its own clock.
struct Driver {
    pod: Pod,
    now: i64,
}

impl Driver {
    fn new(annotations: &Value, spec: &Value) -> Self {
        let mut whole = json!({ "metadata": { "generation": 1 }, "spec": {
            "nodeName": "n", "containers": [{ "name": "main", "image": "i" }],
        } });
        whole["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let options = annotations.as_object().unwrap().iter();
        whole["metadata"]["annotations"] =
            options.map(|(name, value)| (format!("node.quintet.dev/{name}"), value.clone())).collect();
        Self { pod: Pod::read(&whole.to_string()).unwrap(), now: 0 }
    }

    /// One reconcile; the status is stored as the API would keep it.
    fn reconcile(&mut self) -> Step {
        let addresses = PodAddresses { host_ip: "198.18.0.1".to_owned(), pod_ip: "100.64.0.1".to_owned() };
        let step = step(&self.pod, &addresses, at(self.now));
        let text = serde_json::to_string(&step.status).unwrap();
        self.pod.status = serde_json::from_str(&text).unwrap();
        assert_eq!(self.pod.status, step.status, "a status survives being stored");
        step
    }

    fn at(&mut self, seconds: i64) -> Step {
        self.now = seconds;
        self.reconcile()
    }

    fn annotate(&mut self, option: &str, value: &str) {
        let name = format!("node.quintet.dev/{option}");
        self.pod.options = crate::options::Options::read(&[(name, value.to_owned())].into());
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

/// The second, the status, and the milliseconds until the next reconcile.
type Reconciles<'a> = &'a [(i64, &'a str, Option<u64>)];

/// Every case is a pod: its status at each second, and when it is reconciled next.
#[test]
fn lifecycles() {
    let init = json!({ "initContainers": [{ "name": "a" }, { "name": "side", "restartPolicy": "Always" }] });
    let cases: &[(&str, Value, Value, Reconciles)] = &[
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
            "an invalid annotation",
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
            "a readiness gate that stays closed",
            json!({}),
            json!({ "readinessGates": [{ "conditionType": "example.com/open" }] }),
            &[(0, "Running: runs", None)],
        ),
    ];
    for (name, annotations, spec, reconciles) in cases {
        let mut driver = Driver::new(annotations, spec);
        for (second, expected, wake) in *reconciles {
            let step = driver.at(*second);
            assert_eq!(brief(&step.status), *expected, "{name}, second {second}");
            assert_eq!(
                step.wake.map(|wake| u64::try_from(wake.as_millis()).unwrap()),
                *wake,
                "{name}, second {second}"
            );
            assert!(!step.remove, "{name}");
            assert_eq!(driver.reconcile().status, step.status, "{name}: a second reconcile changes nothing");
        }
    }
}

#[test]
fn the_status_is_what_a_kubelet_reports() {
    let status = Driver::new(&json!({}), &json!({})).reconcile().status;
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
                "state": { "running": { "startedAt": time } }, "resources": {},
            }],
        })
    );
}

#[test]
fn running_containers_have_the_resources_of_the_spec() {
    let container = |cpu: &str| json!({ "name": "main", "image": "i", "resources": { "requests": { "cpu": cpu }, "limits": { "memory": "1Gi" } } });
    let mut driver = Driver::new(&json!({}), &json!({ "containers": [container("500m")] }));
    let reported = serde_json::to_value(driver.reconcile().status).unwrap()["containerStatuses"][0].take();
    assert_eq!(reported["allocatedResources"], json!({ "cpu": "500m" }));
    assert_eq!(
        reported["resources"],
        json!({ "requests": { "cpu": "500m" }, "limits": { "memory": "1Gi" } })
    );
    driver.pod.spec = Driver::new(&json!({}), &json!({ "containers": [container("2")] })).pod.spec;
    let reported = serde_json::to_value(driver.reconcile().status).unwrap()["containerStatuses"][0].take();
    assert_eq!(reported["allocatedResources"], json!({ "cpu": "2" }), "a resize takes effect");
    assert_eq!(reported["resources"]["requests"], json!({ "cpu": "2" }));
}

#[test]
fn ephemeral_containers_run_until_the_pod_ends() {
    let mut driver = Driver::new(&json!({ "run-for": "5s" }), &json!({ "restartPolicy": "Never" }));
    driver.reconcile();
    driver.pod.spec.ephemeral_containers.push(crate::pod::Container {
        name: "debugger".to_owned(),
        image: "busybox".to_owned(),
        ..crate::pod::Container::default()
    });
    let status = driver.at(1).status;
    let [reported] = &status.ephemeral_container_statuses[..] else { panic!("{status:?}") };
    assert_eq!((reported.name.as_str(), reported.state.running.is_some()), ("debugger", true));
    assert_eq!(brief(&status), "Running ready: runs", "the others go on");
    let status = driver.at(7).status;
    assert!(status.ephemeral_container_statuses[0].state.terminated.is_some(), "{status:?}");
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
}

#[test]
fn a_pod_is_evicted_when_told() {
    let mut driver = Driver::new(&json!({}), &json!({}));
    driver.reconcile();
    driver.annotate("evict", "The node was low on resource: memory.");
    let status = driver.at(5).status;
    assert_eq!(brief(&status), "Failed Evicted: exit 137");
    assert_eq!(status.message.as_deref(), Some("The node was low on resource: memory."));
    assert!(status.is_true("DisruptionTarget"));
}

#[test]
fn a_deleted_pod_ends_and_is_removed() {
    let mut driver = Driver::new(&json!({ "stop-for": "2s" }), &json!({}));
    driver.reconcile();
    driver.delete(30);
    let step = driver.reconcile();
    assert_eq!(
        (brief(&step.status).as_str(), step.wake),
        ("Running ready: runs", Some(Duration::from_millis(2600)))
    );
    let step = driver.at(3);
    assert_eq!((brief(&step.status).as_str(), step.remove), ("Failed: exit 143", false));
    let step = driver.at(3);
    assert!(step.remove, "reported once, it can be removed");
    // The API has accepted that; finalizers hold it.
    driver.pod.deletion = Some((at(3), 0));
    assert_eq!((driver.at(4).remove, driver.at(4).wake), (false, None));
}

#[test]
fn a_pod_that_outlasts_its_grace_period_is_killed() {
    let mut driver = Driver::new(&json!({ "stop-for": "1h" }), &json!({}));
    driver.reconcile();
    driver.delete(5);
    assert_eq!(brief(&driver.at(5).status), "Running ready: runs");
    assert_eq!(brief(&driver.at(6).status), "Failed: exit 137");
}

#[test]
fn foreign_conditions_are_kept() {
    let mut driver = Driver::new(&json!({}), &json!({}));
    driver.pod.status.conditions.push(crate::pod::Condition {
        kind: "PodScheduled".to_owned(),
        status: "True".to_owned(),
        ..crate::pod::Condition::default()
    });
    assert!(driver.reconcile().status.is_true("PodScheduled"));
}
