use serde_json::{Value, json};

use super::*;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn references() -> References {
    References {
        config_maps: [("settings".to_owned(), read(json!({ "data": { "colour": "blue", "SIZE": "3" } })))]
            .into(),
        secrets: [("login".to_owned(), read(json!({ "data": { "password": "aHVudGVyMg==" } })))].into(),
        services: vec![
            read(json!({
                "metadata": { "namespace": "team", "name": "my-db" },
                "spec": { "clusterIP": "10.96.0.7", "ports": [{ "name": "sql-port", "port": 5432 }, { "port": 53, "protocol": "UDP" }] },
            })),
            read(json!({
                "metadata": { "namespace": "team", "name": "peers" },
                "spec": { "clusterIP": "None", "ports": [{ "port": 1 }] },
            })),
            read(json!({
                "metadata": { "namespace": "default", "name": "kubernetes" },
                "spec": { "clusterIP": "10.96.0.1", "ports": [{ "name": "https", "port": 443 }] },
            })),
            read(json!({
                "metadata": { "namespace": "other", "name": "far" },
                "spec": { "clusterIP": "10.96.0.9", "ports": [{ "port": 1 }] },
            })),
        ],
        pod_ips: vec!["10.244.0.5".into()],
        host_ips: vec!["10.244.0.1".into()],
        allocatable: [
            ("cpu".to_owned(), "8".parse().unwrap()),
            ("memory".to_owned(), "1Gi".parse().unwrap()),
        ]
        .into(),
    }
}

fn variables_with(spec: &Value, container: Value) -> Result<BTreeMap<String, String>, ConfigError> {
    let pod = read(json!({
        "metadata": { "name": "web-0", "namespace": "team", "uid": "u-1", "labels": { "app": "web" }, "annotations": { "b": "2", "a": "say \"1\"" } },
        "spec": spec,
    }));
    let image = [("PATH".to_owned(), "/usr/bin".to_owned()), ("FROM_IMAGE".to_owned(), "yes".to_owned())];
    environment(&pod, &read(container), &image, &references())
        .map(|variables| variables.into_iter().collect())
}

/// The given variables in a pod without service links; what the image and the API's service bring is left out.
fn variables(container: Value) -> Result<BTreeMap<String, String>, ConfigError> {
    let found = variables_with(
        &json!({ "containers": [], "enableServiceLinks": false, "nodeName": "n1" }),
        container,
    )?;
    let is_own = |name: &String| !name.starts_with("KUBERNETES_") && name != "PATH" && name != "FROM_IMAGE";
    Ok(found.into_iter().filter(|(name, _)| is_own(name)).collect())
}

fn env(list: Value) -> Result<BTreeMap<String, String>, ConfigError> {
    variables(json!({ "name": "c", "env": list }))
}

fn map<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    entries.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

#[test]
fn names_in_values_are_replaced_by_variables_defined_before() {
    let found = env(json!([
        { "name": "A", "value": "1" },
        { "name": "B", "value": "$(A)-$(C)-$$(A)-$A-$" },
        { "name": "C", "value": "3" },
        { "name": "EMPTY" },
    ]));
    assert_eq!(found.unwrap(), map([("A", "1"), ("B", "1-$(C)-$(A)-$A-$"), ("C", "3"), ("EMPTY", "")]));
}

#[test]
fn an_unclosed_name_stays_as_it_is() {
    let variables = map([("A", "1")]);
    for (text, expected) in [("$(A", "$(A"), ("x$(A)y", "x1y"), ("$$$(A)", "$1"), ("$()", "$()"), ("", "")] {
        assert_eq!(expand(text, &variables), expected, "{text}");
    }
}

#[test]
fn whole_maps_come_before_single_variables() {
    let found = variables(json!({
        "name": "c",
        "envFrom": [
            { "prefix": "CFG_", "configMapRef": { "name": "settings" } },
            { "secretRef": { "name": "login" } },
            { "configMapRef": { "name": "absent", "optional": true } },
        ],
        "env": [{ "name": "CFG_colour", "value": "red" }, { "name": "LOGIN", "value": "$(password)" }],
    }));
    let expected = [("CFG_SIZE", "3"), ("CFG_colour", "red"), ("LOGIN", "hunter2"), ("password", "hunter2")];
    assert_eq!(found.unwrap(), map(expected));
}

#[test]
fn values_of_references_are_not_expanded_again() {
    let mut references = references();
    references.config_maps.insert("odd".into(), read(json!({ "data": { "k": "$(A)" } })));
    let container = read(json!({ "name": "c", "env": [
        { "name": "A", "value": "1" },
        { "name": "B", "valueFrom": { "configMapKeyRef": { "name": "odd", "key": "k" } } },
    ]}));
    let found = environment(&core::Pod::default(), &container, &[], &references).unwrap();
    assert!(found.contains(&("B".into(), "$(A)".into())), "{found:?}");
}

#[test]
fn missing_references_are_named() {
    let from = |source: Value| env(json!([{ "name": "X", "valueFrom": source }]));
    let cases = [
        (json!({ "configMapKeyRef": { "name": "absent", "key": "k" } }), "configmap \"absent\" not found"),
        (json!({ "secretKeyRef": { "name": "absent", "key": "k" } }), "secret \"absent\" not found"),
        (
            json!({ "configMapKeyRef": { "name": "settings", "key": "k" } }),
            "couldn't find key k in ConfigMap team/settings",
        ),
        (
            json!({ "secretKeyRef": { "name": "login", "key": "k" } }),
            "couldn't find key k in Secret team/login",
        ),
        (json!({ "fieldRef": { "fieldPath": "spec.priority" } }), "unsupported fieldPath: spec.priority"),
    ];
    for (source, expected) in cases {
        assert_eq!(from(source), Err(ConfigError(expected.into())));
    }
    let optional = json!({ "secretKeyRef": { "name": "absent", "key": "k", "optional": true } });
    assert_eq!(from(optional).unwrap(), map([]));
    let whole = variables(json!({ "name": "c", "envFrom": [{ "configMapRef": { "name": "absent" } }] }));
    assert_eq!(whole, Err(ConfigError("configmap \"absent\" not found".into())));
}

#[test]
fn fields_of_the_pod_can_be_referred_to() {
    let field = |path: &str| {
        let found = env(json!([{ "name": "X", "valueFrom": { "fieldRef": { "fieldPath": path } } }]));
        found.unwrap().remove("X").unwrap()
    };
    let cases = [
        ("metadata.name", "web-0"),
        ("metadata.namespace", "team"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['b']", "2"),
        ("metadata.annotations", "a=\"say \\\"1\\\"\"\nb=\"2\""),
        ("spec.nodeName", "n1"),
        ("status.podIP", "10.244.0.5"),
        ("status.hostIPs", "10.244.0.1"),
    ];
    for (path, expected) in cases {
        assert_eq!(field(path), expected, "{path}");
    }
}

#[test]
fn resources_are_divided_and_rounded_up() {
    let value = |resource: &str, divisor: &str| {
        let container = json!({
            "name": "c",
            "resources": { "limits": { "cpu": "1500m" }, "requests": { "memory": "100Mi" } },
            "env": [{ "name": "X", "valueFrom": { "resourceFieldRef": { "resource": resource, "divisor": divisor } } }],
        });
        variables(container).unwrap().remove("X").unwrap()
    };
    let cases = [
        ("limits.cpu", "0", "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.memory", "1Mi", "100"),
        ("requests.memory", "1", "104857600"),
        ("limits.memory", "1Mi", "1024"),
        ("requests.cpu", "1", "0"),
    ];
    for (resource, divisor, expected) in cases {
        assert_eq!(value(resource, divisor), expected, "{resource} in {divisor}");
    }
}

#[test]
fn services_of_the_namespace_are_variables() {
    let found = variables_with(&json!({ "containers": [] }), json!({ "name": "c" })).unwrap();
    let expected = [
        ("MY_DB_SERVICE_HOST", "10.96.0.7"),
        ("MY_DB_SERVICE_PORT", "5432"),
        ("MY_DB_SERVICE_PORT_SQL_PORT", "5432"),
        ("MY_DB_PORT", "tcp://10.96.0.7:5432"),
        ("MY_DB_PORT_5432_TCP", "tcp://10.96.0.7:5432"),
        ("MY_DB_PORT_5432_TCP_PROTO", "tcp"),
        ("MY_DB_PORT_5432_TCP_PORT", "5432"),
        ("MY_DB_PORT_5432_TCP_ADDR", "10.96.0.7"),
        ("MY_DB_PORT_53_UDP", "udp://10.96.0.7:53"),
        ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
        ("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
    ];
    for (name, value) in expected {
        assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!found.keys().any(|name| name.starts_with("PEERS") || name.starts_with("FAR")), "{found:?}");
}

#[test]
fn service_links_can_be_refused_except_for_the_api() {
    let found =
        variables_with(&json!({ "containers": [], "enableServiceLinks": false }), json!({ "name": "c" }))
            .unwrap();
    assert!(!found.contains_key("MY_DB_PORT"));
    assert!(found.contains_key("KUBERNETES_PORT"));
}
