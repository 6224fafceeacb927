use serde_json::{Value, json};

use super::*;

fn checked(configuration: Value, gates: &[(&str, bool)]) -> Result<(), String> {
    let configuration = serde_json::from_value(configuration).unwrap();
    let gates = gates.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
    check(&configuration, &gates, "kueue-system")
}

fn mapping(name: &str, classes: &[&str]) -> Value {
    json!({ "name": name, "deviceClassNames": classes })
}

fn with_mappings(mappings: &[Value]) -> Value {
    json!({ "resources": { "deviceClassMappings": mappings } })
}

#[test]
fn what_cannot_be_honoured_is_refused_with_its_path() {
    let requeuing = |name: &str| json!({ "waitForPodsReady": { "requeuingStrategy": { name: -1 } } });
    let selector =
        |requirement: Value| json!({ "managedJobsNamespaceSelector": { "matchExpressions": [requirement] } });
    let incremental = "kueue.x-k8s.io/multikueue-dispatcher-incremental";
    let provider = |mode: &str, variable: &str| {
        json!({ "name": "a", "execConfig": { "command": "c", "apiVersion": "v", "interactiveMode": mode,
            "env": [{ "name": variable, "value": "v" }] } })
    };
    let table = [
        (json!({ "integrations": { "frameworks": ["batch/jobs"] } }), "integrations.frameworks[0]: unknown"),
        (json!({ "integrations": { "frameworks": ["pod", "pod"] } }), "integrations.frameworks[1]:"),
        (
            json!({ "integrations": { "externalFrameworks": ["F.v1.g", "F.v1.g"] } }),
            "integrations.externalFrameworks[1]:",
        ),
        (
            json!({ "integrations": { "externalFrameworks": ["F.v1"] } }),
            "integrations.externalFrameworks[0]:",
        ),
        (
            json!({ "integrations": { "externalFrameworks": ["Job.v1.batch"] } }),
            "integrations.externalFrameworks[0]:",
        ),
        (json!({ "integrations": { "frameworks": [SPARK] } }), "integrations.frameworks: sparkoperator"),
        (
            json!({ "admissionFairSharing": { "resourceWeights": { "cpu": -1.0 } } }),
            "admissionFairSharing.resourceWeights[cpu]:",
        ),
        (json!({ "managedJobsNamespaceSelector": {} }), "managedJobsNamespaceSelector: it must"),
        (
            selector(json!({ "key": "a", "operator": "Like", "values": ["b"] })),
            "managedJobsNamespaceSelector.matchExpressions[0].operator:",
        ),
        (
            selector(json!({ "key": "a", "operator": "In" })),
            "managedJobsNamespaceSelector.matchExpressions[0].values:",
        ),
        (
            selector(json!({ "key": "a b", "operator": "Exists" })),
            "managedJobsNamespaceSelector.matchExpressions[0].key:",
        ),
        (
            json!({ "managedJobsNamespaceSelector": { "matchLabels": { "a": "b c" } } }),
            "managedJobsNamespaceSelector.matchLabels[a]:",
        ),
        (requeuing("backoffLimitCount"), "waitForPodsReady.requeuingStrategy.backoffLimitCount:"),
        (requeuing("backoffBaseSeconds"), "waitForPodsReady.requeuingStrategy.backoffBaseSeconds:"),
        (requeuing("backoffMaxSeconds"), "waitForPodsReady.requeuingStrategy.backoffMaxSeconds:"),
        (json!({ "waitForPodsReady": { "timeout": "0s" } }), "waitForPodsReady.timeout:"),
        (
            json!({ "resources": { "transformations": [{ "input": "a" }, { "input": "a" }] } }),
            "resources.transformations[1].input:",
        ),
        (json!({ "visibilityServer": { "bindPort": 0 } }), "visibilityServer.bindPort:"),
        (json!({ "multiKueue": { "origin": "Q_" } }), "multiKueue.origin:"),
        (
            json!({ "multiKueue": { "incrementalDispatcherConfig": { "stepSize": 2 } } }),
            "multiKueue.incrementalDispatcherConfig: it needs",
        ),
        (
            json!({ "multiKueue": {
                "dispatcherName": incremental, "incrementalDispatcherConfig": { "stepSize": 0 } } }),
            "multiKueue.incrementalDispatcherConfig.stepSize:",
        ),
        (
            json!({ "multiKueue": { "externalFrameworks": [{ "name": "Kind" }] } }),
            "multiKueue.externalFrameworks[0].name:",
        ),
        (
            json!({ "multiKueue": { "externalFrameworks": [{ "name": "Job.v1.batch" }] } }),
            "multiKueue.externalFrameworks[0].name:",
        ),
        (
            json!({ "multiKueue": { "externalFrameworks": [{ "name": "A.v1.b" }, { "name": "A.v1.b" }] } }),
            "multiKueue.externalFrameworks[1].name:",
        ),
        (
            json!({ "multiKueue": { "clusterProfile": { "accessProviders": [{ "name": "a" }] } } }),
            "multiKueue.clusterProfile.accessProviders.execConfig.command:",
        ),
        (
            json!({ "multiKueue": { "clusterProfile": {
                "accessProviders": [provider("Never", "A")],
                "credentialsProviders": [provider("Never", "A")] } } }),
            "multiKueue.clusterProfile.credentialsProviders: leave it out",
        ),
        (
            json!({ "multiKueue": { "clusterProfile": { "credentialsProviders": [provider("Ever", "A")] } } }),
            "multiKueue.clusterProfile.credentialsProviders.execConfig.interactiveMode: unknown",
        ),
        (
            json!({ "multiKueue": { "clusterProfile": { "accessProviders": [provider("Never", "")] } } }),
            "multiKueue.clusterProfile.accessProviders.execConfig.env.name:",
        ),
    ];
    for (configuration, expected) in table {
        let error = checked(configuration.clone(), &[]).expect_err(&configuration.to_string());
        assert!(error.starts_with(expected), "{configuration}: {error}");
    }
    assert_eq!(checked(json!({}), &[]), Ok(()));
    let spark = json!({ "integrations": { "frameworks": [SPARK] } });
    assert_eq!(checked(spark, &[("SparkApplicationIntegration", true)]), Ok(()));
    let provided =
        json!({ "multiKueue": { "clusterProfile": { "accessProviders": [provider("Never", "A")] } } });
    assert_eq!(checked(provided, &[]), Ok(()));
    let of_another = json!({ "multiKueue": { "dispatcherName": "example.com/own" } });
    assert_eq!(checked(of_another, &[]), Ok(()));
}

#[test]
fn mappings_of_device_classes_are_checked() {
    let many: Vec<String> = (0..9).map(|number| format!("c{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mappings: Vec<Value> = (0..17).map(|number| mapping(&format!("m{number}"), &["c"])).collect();
    let counter = |name: &str, counter: &str| {
        json!({ "name": name, "deviceClassNames": ["c"], "sources": [{ "counter": {
            "name": counter, "driver": "gpu.example.com", "deviceSelector": { "cel": { "expression": "true" } } } }] })
    };
    let source = |source: Value| json!({ "name": "a", "deviceClassNames": ["c"], "sources": [source] });
    for (mappings, expected) in [
        (mappings, "resources.deviceClassMappings: there are 17"),
        (vec![mapping("a b", &["c"])], "resources.deviceClassMappings[0].name:"),
        (vec![mapping("a", &["c"]), mapping("a", &["d"])], "resources.deviceClassMappings[1].name:"),
        (vec![mapping("a", &[])], "resources.deviceClassMappings[0].deviceClassNames:"),
        (vec![mapping("a", &many)], "resources.deviceClassMappings[0].deviceClassNames: there are 9"),
        (vec![mapping("a", &["c", "c"])], "resources.deviceClassMappings[0].deviceClassNames[1]:"),
        (vec![mapping("a", &["c d"])], "resources.deviceClassMappings[0].deviceClassNames[0]:"),
        (
            vec![mapping("a", &["c"]), mapping("b", &["c"])],
            "resources.deviceClassMappings[1].deviceClassNames[0]: \"c\" is mapped",
        ),
        (
            vec![counter("a", "memory"), counter("b", "memory")],
            "resources.deviceClassMappings[1].deviceClassNames[0]:",
        ),
        (vec![source(json!({}))], "resources.deviceClassMappings[0].sources[0]:"),
        (
            vec![source(json!({ "capacity": { "name": "memory" } }))],
            "resources.deviceClassMappings[0].sources[0].capacity: it needs the feature gate",
        ),
        (
            vec![source(json!({ "counter": { "name": "memory" } }))],
            "resources.deviceClassMappings[0].sources[0].counter.driver:",
        ),
        (
            vec![source(json!({ "counter": { "name": "memory", "driver": "gpu.example.com",
                "deviceSelector": { "cel": { "expression": "device.nope" } } } }))],
            "resources.deviceClassMappings[0].sources[0].counter.deviceSelector.cel.expression: \"device.nope\": compilation failed",
        ),
    ] {
        let error = checked(with_mappings(&mappings), &[]).unwrap_err();
        assert!(error.starts_with(expected), "{mappings:?}: {error}");
    }
    assert_eq!(checked(with_mappings(&[counter("a", "memory"), counter("b", "compute")]), &[]), Ok(()));
}
