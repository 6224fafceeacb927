use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-02T00:10:00Z".parse().unwrap()
}

fn of(group: &str, name: &str) -> Printer {
    Printer::builtin(crate::builtin::all().iter().find(|one| one.group == group && one.kind == name).unwrap())
}

#[test]
fn ages_are_short() {
    for (seconds, text) in [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (12_000, "3h20m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (-5, "<invalid>"),
    ] {
        assert_eq!(age(seconds), text, "{seconds}");
    }
}

#[test]
fn pods_say_how_they_are() {
    let status = |pod: Value| of("", "Pod").cells(&pod, now())[2].clone();
    assert_eq!(status(json!({ "status": { "phase": "Pending" } })), "Pending");
    assert_eq!(status(json!({ "status": { "phase": "Failed", "reason": "Evicted" } })), "Evicted");
    assert_eq!(
        status(
            json!({ "spec": { "initContainers": [{ "name": "a" }, { "name": "b" }] }, "status": { "phase": "Pending",
            "initContainerStatuses": [{ "name": "a", "state": { "terminated": { "exitCode": 0 } } }, { "name": "b", "state": { "running": {} } }] } })
        ),
        "Init:1/2"
    );
    assert_eq!(
        status(
            json!({ "status": { "phase": "Running", "containerStatuses": [{ "state": { "waiting": { "reason": "CrashLoopBackOff" } } }] } })
        ),
        "CrashLoopBackOff"
    );
    assert_eq!(
        status(json!({ "metadata": { "deletionTimestamp": "x" }, "status": { "phase": "Running" } })),
        "Terminating"
    );
    let pod = json!({ "metadata": { "name": "p", "creationTimestamp": "2026-01-02T00:00:00Z" },
        "spec": { "containers": [{ "name": "a" }, { "name": "b" }], "nodeName": "n" },
        "status": { "phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
            { "name": "a", "ready": true, "restartCount": 3, "state": { "running": {} },
              "lastState": { "terminated": { "finishedAt": "2026-01-02T00:08:00Z" } } },
            { "name": "b", "ready": false, "restartCount": 0, "state": { "running": {} } }] } });
    assert_eq!(
        of("", "Pod").cells(&pod, now()),
        json!(["p", "1/2", "Running", "3 (2m ago)", "10m", "10.0.0.1", "n", "<none>", "<none>"])
            .as_array()
            .unwrap()
            .clone()
    );
}

#[test]
fn services_and_nodes() {
    let service = json!({ "metadata": { "name": "s" }, "spec": { "type": "NodePort", "clusterIP": "10.0.0.1",
        "ports": [{ "port": 80, "nodePort": 31562, "protocol": "TCP" }] } });
    assert_eq!(
        of("", "Service").cells(&service, now()),
        json!(["s", "NodePort", "10.0.0.1", "<none>", "80:31562/TCP", "<unknown>", "<none>"])
            .as_array()
            .unwrap()
            .clone()
    );
    let node = json!({ "metadata": { "name": "n", "labels": { "node-role.kubernetes.io/control-plane": "" } },
        "spec": { "unschedulable": true }, "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    let cells = of("", "Node").cells(&node, now());
    assert_eq!(cells[1], "Ready,SchedulingDisabled");
    assert_eq!(cells[2], "control-plane");
}

#[test]
fn every_kind_has_as_many_cells_as_columns() {
    for kind in crate::builtin::all() {
        let printer = Printer::builtin(kind);
        for object in [json!({}), json!({ "metadata": 1, "spec": [], "status": "x" })] {
            let cells = printer.cells(&object, now());
            assert_eq!(cells.len(), printer.definitions().as_array().unwrap().len(), "{}", kind.kind);
        }
    }
}

#[test]
fn custom_columns_follow_their_paths() {
    let printer = Printer::custom(&json!({ "additionalPrinterColumns": [
        { "name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status" },
        { "name": "N", "type": "integer", "jsonPath": ".spec.n", "priority": 1 },
        { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" }
    ] }));
    let object = json!({ "apiVersion": "x/v1", "kind": "X", "metadata": { "name": "o", "creationTimestamp": "2026-01-02T00:00:00Z" },
        "spec": { "n": 3 }, "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    assert_eq!(printer.cells(&object, now()), [json!("o"), json!("True"), json!(3), json!("10m")]);
    assert_eq!(
        printer.cells(&json!({ "metadata": { "name": "e" } }), now()),
        [json!("e"), Value::Null, Value::Null, Value::Null]
    );
    let table =
        printer.table([&object], &json!({ "resourceVersion": "1" }), IncludeObject::Metadata, true, now());
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(
        table["columnDefinitions"][1]["description"],
        "Custom resource definition column (in JSONPath format): .status.conditions[?(@.type==\"Ready\")].status"
    );
    assert_eq!(table["columnDefinitions"][2]["priority"], 1);
    assert_eq!(Printer::custom(&json!({})).definitions()[1]["name"], "Age");
}
