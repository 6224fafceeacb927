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

/// Cells as `pkg/printers/internalversion` of Kubernetes 1.36 makes them.
#[test]
fn kinds_that_programs_read_have_the_columns_of_kubernetes() {
    let metadata = json!({ "name": "n", "creationTimestamp": "2026-01-02T00:00:00Z" });
    let rows = [
        (
            "",
            "PodTemplate",
            json!({ "template": { "metadata": { "labels": { "a": "b" } },
            "spec": { "containers": [{ "name": "c", "image": "i" }] } } }),
            "Name,Containers,Images,Pod Labels",
            json!(["n", "c", "i", "a=b"]),
        ),
        (
            "apps",
            "ControllerRevision",
            json!({ "revision": 3, "metadata": { "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true }] } }),
            "Name,Controller,Revision,Age",
            json!(["n", "statefulset.apps/web", 3, "10m"]),
        ),
        (
            "certificates.k8s.io",
            "CertificateSigningRequest",
            json!({
            "spec": { "signerName": "s", "username": "u", "expirationSeconds": 86400 },
            "status": { "certificate": "YQ==", "conditions": [{ "type": "Approved" }] } }),
            "Name,Age,SignerName,Requestor,RequestedDuration,Condition",
            json!(["n", "10m", "s", "u", "24h", "Approved,Issued"]),
        ),
        (
            "networking.k8s.io",
            "IngressClass",
            json!({ "spec": { "controller": "c",
            "parameters": { "apiGroup": "k8s.example.com", "kind": "P", "name": "x" } } }),
            "Name,Controller,Parameters,Age",
            json!(["n", "c", "P.k8s.example.com/x", "10m"]),
        ),
        (
            "networking.k8s.io",
            "IPAddress",
            json!({ "spec": {
            "parentRef": { "resource": "services", "namespace": "default", "name": "kubernetes" } } }),
            "Name,ParentRef",
            json!(["n", "services/default/kubernetes"]),
        ),
        (
            "networking.k8s.io",
            "ServiceCIDR",
            json!({ "spec": { "cidrs": ["10.96.0.0/12", "fd00::/108"] } }),
            "Name,CIDRs,Age",
            json!(["n", "10.96.0.0/12,fd00::/108", "10m"]),
        ),
        (
            "storage.k8s.io",
            "CSINode",
            json!({ "spec": { "drivers": [{}, {}] } }),
            "Name,Drivers,Age",
            json!(["n", 2, "10m"]),
        ),
        (
            "storage.k8s.io",
            "CSIDriver",
            json!({ "spec": { "volumeLifecycleModes": ["Persistent", "Ephemeral"],
            "tokenRequests": [{ "audience": "a" }] } }),
            "Name,AttachRequired,PodInfoOnMount,StorageCapacity,TokenRequests,RequiresRepublish,Modes,Age",
            json!(["n", true, false, false, "a", false, "Persistent,Ephemeral", "10m"]),
        ),
        (
            "storage.k8s.io",
            "CSIStorageCapacity",
            json!({ "storageClassName": "s", "capacity": "1Gi" }),
            "Name,StorageClassName,Capacity",
            json!(["n", "s", "1Gi"]),
        ),
        (
            "storage.k8s.io",
            "VolumeAttachment",
            json!({ "status": { "attached": true },
            "spec": { "attacher": "a", "nodeName": "node", "source": { "persistentVolumeName": "pv" } } }),
            "Name,Attacher,PV,Node,Attached,Age",
            json!(["n", "a", "pv", "node", true, "10m"]),
        ),
        (
            "storage.k8s.io",
            "VolumeAttributesClass",
            json!({ "driverName": "d" }),
            "Name,DriverName,Age",
            json!(["n", "d", "10m"]),
        ),
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy",
            json!({ "spec": { "validations": [{}],
            "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" } } }),
            "Name,Validations,ParamKind,Age",
            json!(["n", 1, "v1/ConfigMap", "10m"]),
        ),
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding",
            json!({ "spec": { "policyName": "p", "paramRef": { "name": "x" } } }),
            "Name,PolicyName,ParamRef,Age",
            json!(["n", "p", "*/x", "10m"]),
        ),
        (
            "admissionregistration.k8s.io",
            "MutatingAdmissionPolicy",
            json!({ "spec": { "mutations": [{}, {}] } }),
            "Name,Mutations,ParamKind,Age",
            json!(["n", 2, "<unset>", "10m"]),
        ),
        (
            "admissionregistration.k8s.io",
            "MutatingAdmissionPolicyBinding",
            json!({ "spec": { "policyName": "p",
            "paramRef": { "selector": { "matchLabels": { "a": "b" } } } } }),
            "Name,PolicyName,ParamRef,Age",
            json!([
                "n",
                "p",
                "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}",
                "10m"
            ]),
        ),
        (
            "node.k8s.io",
            "RuntimeClass",
            json!({ "handler": "runc" }),
            "Name,Handler,Age",
            json!(["n", "runc", "10m"]),
        ),
        (
            "resource.k8s.io",
            "ResourceSlice",
            json!({ "spec": { "nodeName": "node", "driver": "d", "pool": { "name": "p" } } }),
            "Name,Node,Driver,Pool,Age",
            json!(["n", "node", "d", "p", "10m"]),
        ),
        (
            "flowcontrol.apiserver.k8s.io",
            "FlowSchema",
            json!({
            "spec": { "priorityLevelConfiguration": { "name": "l" }, "matchingPrecedence": 9000,
                "distinguisherMethod": { "type": "ByUser" } },
            "status": { "conditions": [{ "type": "Dangling", "status": "False" }] } }),
            "Name,PriorityLevel,MatchingPrecedence,DistinguisherMethod,Age,MissingPL",
            json!(["n", "l", 9000, "ByUser", "10m", "False"]),
        ),
        (
            "flowcontrol.apiserver.k8s.io",
            "PriorityLevelConfiguration",
            json!({ "spec": { "type": "Limited",
            "limited": { "nominalConcurrencyShares": 30, "limitResponse": { "type": "Queue",
                "queuing": { "queues": 64, "handSize": 6, "queueLengthLimit": 50 } } } } }),
            "Name,Type,NominalConcurrencyShares,Queues,HandSize,QueueLengthLimit,Age",
            json!(["n", "Limited", 30, 64, 6, 50, "10m"]),
        ),
    ];
    for (group, kind, mut object, columns, cells) in rows {
        for (field, value) in metadata.as_object().unwrap() {
            object["metadata"][field] = value.clone();
        }
        let printer = of(group, kind);
        let definitions = printer.definitions();
        let names = definitions.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>().join(","), columns, "{kind}");
        assert_eq!(json!(printer.cells(&object, now())), cells, "{kind}");
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
