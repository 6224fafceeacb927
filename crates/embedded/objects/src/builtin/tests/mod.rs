use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn of(group: &str, name: &str) -> &'static Kind {
    all().iter().find(|one| one.group == group && one.kind == name).unwrap()
}

fn ready(kind: &Kind, mut object: Value) -> Value {
    kind.apply_defaults(&mut object);
    kind.prepare_create(&mut object);
    object
}

fn texts(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<String> {
    kind.validate(new, old).iter().map(ToString::to_string).collect()
}

fn pod_spec() -> Value {
    json!({ "containers": [{ "name": "c", "image": "nginx", "resources": { "limits": { "cpu": "1" } },
        "livenessProbe": { "httpGet": { "port": 80 } }, "ports": [{ "containerPort": 80 }] }], "volumes": [{ "name": "v" }] })
}

fn pod() -> Value {
    ready(
        of("", "Pod"),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "n" }, "spec": pod_spec() }),
    )
}

fn deployment() -> Value {
    ready(
        of("apps", "Deployment"),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "d", "namespace": "n" },
        "spec": { "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } }, "spec": pod_spec() } } }),
    )
}

#[test]
fn pods_get_their_defaults() {
    let pod = pod();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["resources"], json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "1" } }));
    assert_eq!(container["livenessProbe"]["httpGet"], json!({ "port": 80, "path": "/", "scheme": "HTTP" }));
    assert_eq!(container["livenessProbe"]["failureThreshold"], 3);
    assert_eq!(pod["spec"]["volumes"][0]["emptyDir"], json!({}));
    assert_eq!(pod["spec"]["enableServiceLinks"], true);
    assert_eq!(pod["status"], json!({ "phase": "Pending", "qosClass": "Burstable" }));
    assert_eq!(pod["metadata"]["generation"], 1);
    assert!(texts(of("", "Pod"), &pod, None).is_empty(), "{:?}", texts(of("", "Pod"), &pod, None));
}

#[test]
fn templates_get_fewer_defaults() {
    let object = deployment();
    let spec = &object["spec"]["template"]["spec"];
    assert!(spec.get("enableServiceLinks").is_none());
    assert!(spec["containers"][0]["resources"].get("requests").is_none());
    assert_eq!(
        object["spec"]["strategy"],
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "25%", "maxSurge": "25%" } })
    );
    assert!(texts(of("apps", "Deployment"), &object, None).is_empty());
}

#[test]
fn stateful_sets_mount_their_claims() {
    let kind = of("apps", "StatefulSet");
    let mut object = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "s", "namespace": "n" },
        "spec": { "serviceName": "s", "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [
                { "name": "c", "image": "i", "volumeMounts": [{ "name": "data", "mountPath": "/d" }] }] } },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }] } });
    assert_eq!(texts(kind, &ready(kind, object.clone()), None), Vec::<String>::new());
    object["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] = json!("other");
    assert_eq!(
        texts(kind, &ready(kind, object), None),
        ["spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"data\""]
    );
}

#[test]
fn mistakes_are_refused_in_known_words() {
    let kind = of("apps", "Deployment");
    let mut wrong = deployment();
    wrong["spec"]["template"]["metadata"]["labels"] = json!({ "a": "c" });
    assert_eq!(
        texts(kind, &wrong, None),
        [
            "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`"
        ]
    );
    let mut wrong = deployment();
    wrong["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    assert_eq!(
        texts(kind, &wrong, None),
        ["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""]
    );
    let mut changed = deployment();
    changed["spec"]["selector"] = json!({ "matchLabels": { "x": "y" } });
    changed["spec"]["template"]["metadata"]["labels"] = json!({ "x": "y" });
    assert!(texts(kind, &changed, Some(&deployment()))[0].ends_with("field is immutable"));

    let mut wrong = pod();
    wrong["spec"]["containers"] = json!([]);
    assert_eq!(texts(of("", "Pod"), &wrong, None), ["spec.containers: Required value"]);
    let mut wrong = pod();
    wrong["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    assert_eq!(
        texts(of("", "Pod"), &wrong, None),
        [
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"
        ]
    );
    let mut moved = pod();
    moved["spec"]["nodeName"] = json!("other");
    assert!(
        texts(of("", "Pod"), &moved, Some(&pod()))[0]
            .starts_with("spec: Forbidden: pod updates may not change fields other than")
    );
    let mut image = pod();
    image["spec"]["containers"][0]["image"] = json!("other");
    assert!(texts(of("", "Pod"), &image, Some(&pod())).is_empty());
}

#[test]
fn jobs_select_their_own_pods() {
    let kind = of("batch", "Job");
    let mut spec = pod_spec();
    spec["restartPolicy"] = json!("Never");
    let job = ready(
        kind,
        json!({ "metadata": { "name": "j", "namespace": "n", "uid": "u" }, "spec": { "template": { "spec": spec } } }),
    );
    assert_eq!(
        job["spec"]["selector"],
        json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": "u" } })
    );
    assert_eq!(job["metadata"]["labels"]["job-name"], "j");
    assert_eq!(job["spec"]["backoffLimit"], 6);
    assert_eq!(job["spec"]["completions"], 1);
    assert!(texts(kind, &job, None).is_empty());
    let mut always = job.clone();
    always["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    assert!(texts(kind, &always, None).contains(
        &"spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"".into()
    ));
    let mut more = job.clone();
    more["spec"]["completions"] = json!(3);
    assert_eq!(texts(kind, &more, Some(&job)), ["spec.completions: Invalid value: 3: field is immutable"]);
    let mut suspended = job.clone();
    suspended["spec"]["suspend"] = json!(true);
    let mut placed = suspended.clone();
    placed["spec"]["template"]["spec"]["nodeSelector"] = json!({ "a": "b" });
    assert!(texts(kind, &placed, Some(&suspended)).is_empty());
    assert_eq!(texts(kind, &placed, Some(&job)).len(), 1);
}

#[test]
fn the_rest_of_the_contract() {
    let meta = |name: &str| json!({ "name": name, "namespace": "n" });
    let cron = ready(
        of("batch", "CronJob"),
        json!({ "metadata": meta("c"), "spec": { "schedule": "bad", "jobTemplate": { "spec": {
        "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } } } } }),
    );
    assert_eq!(
        texts(of("batch", "CronJob"), &cron, None),
        ["spec.schedule: Invalid value: \"bad\": expected exactly 5 fields, found 1: [bad]"]
    );
    let tls = ready(
        of("", "Secret"),
        json!({ "kind": "Secret", "metadata": meta("s"), "type": "kubernetes.io/tls", "stringData": { "tls.key": "k" } }),
    );
    assert_eq!(tls["data"]["tls.key"], "aw==");
    assert_eq!(texts(of("", "Secret"), &tls, None), ["data[tls.crt]: Required value"]);
    let sealed =
        json!({ "kind": "ConfigMap", "metadata": meta("c"), "immutable": true, "data": { "a": "1" } });
    let mut opened = sealed.clone();
    opened["data"]["a"] = json!("2");
    assert_eq!(
        texts(of("", "ConfigMap"), &opened, Some(&sealed)),
        ["data: Forbidden: field is immutable when `immutable` is set"]
    );
    let service = ready(
        of("", "Service"),
        json!({ "metadata": meta("s"), "spec": { "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{ "port": 80 }] } }),
    );
    assert_eq!(service["spec"]["ports"][0], json!({ "port": 80, "targetPort": 80, "protocol": "TCP" }));
    let mut other = service.clone();
    other["spec"]["clusterIP"] = json!("10.0.0.99");
    other["spec"]["clusterIPs"] = json!(["10.0.0.99"]);
    assert_eq!(
        texts(of("", "Service"), &other, Some(&service)),
        ["spec.clusterIPs[0]: Invalid value: [\"10.0.0.99\"]: may not change once set"]
    );
    let class = json!({ "metadata": { "name": "p" }, "value": 1, "preemptionPolicy": "Never" });
    let mut higher = class.clone();
    higher["value"] = json!(2);
    assert_eq!(
        texts(of("scheduling.k8s.io", "PriorityClass"), &higher, Some(&class)),
        ["value: Forbidden: may not be changed in an update."]
    );
}

#[test]
fn our_own_definitions_are_valid() {
    let kind = of("apiextensions.k8s.io", "CustomResourceDefinition");
    let service = quintet_api::crd::WebhookService { namespace: "q".into(), name: "w".into() };
    for crd in quintet_api::crd::all(&service) {
        let mut object = serde_json::to_value(&crd).unwrap();
        let decoded = crate::types::decode(kind.schema().unwrap(), &mut object).unwrap();
        assert!(decoded.unknown.is_empty(), "{:?}", decoded.unknown);
        let object = ready(kind, object);
        let problems: Vec<String> =
            texts(kind, &object, None).into_iter().filter(|text| !text.contains("api-approved")).collect();
        assert!(problems.is_empty(), "{problems:?}");
    }
}

#[test]
fn generations_count_what_they_should() {
    let kind = of("apps", "Deployment");
    let old = deployment();
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(5);
    new["status"] = json!({ "replicas": 9 });
    kind.prepare_update(&mut new, &old);
    assert_eq!(new["metadata"]["generation"], 2);
    assert_eq!(new["status"], json!({}));
    let mut status = old.clone();
    status["spec"]["replicas"] = json!(7);
    status["status"] = json!({ "replicas": 1 });
    kind.prepare_status_update(&mut status, &old);
    assert_eq!(status["spec"], old["spec"]);
    assert_eq!(status["status"], json!({ "replicas": 1 }));
    assert_eq!(status["metadata"]["generation"], 1);
}

#[test]
fn fields_are_selectable() {
    let kind = of("", "Pod");
    assert!(kind.selectable_fields().contains(&"spec.nodeName"));
    let pod = json!({ "spec": { "nodeName": "n1" }, "status": { "podIPs": [{ "ip": "1" }, { "ip": "2" }] } });
    assert_eq!(field_value(&pod, "spec.nodeName"), "n1");
    assert_eq!(field_value(&pod, "spec.hostNetwork"), "false");
    assert_eq!(field_value(&pod, "status.podIPs"), "1,2");
}

#[test]
fn ports_of_services_are_named_as_in_kubernetes() {
    let named = |name: &str| {
        json!({ "metadata": { "name": "s", "namespace": "n" }, "spec": { "type": "ClusterIP", "sessionAffinity": "None",
            "ports": [{ "name": "web", "port": 80, "protocol": "TCP", "targetPort": name, "appProtocol": name }] } })
    };
    assert_eq!(texts(of("", "Service"), &named("grpc"), None), Vec::<String>::new());
    let problems = texts(of("", "Service"), &named("h2 c"), None);
    let about = |field: &str| {
        problems.iter().any(|text| text.starts_with(&format!("spec.ports[0].{field}: Invalid value")))
    };
    assert!(about("targetPort") && about("appProtocol"), "{problems:?}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i8>().prop_map(|number| json!(number)),
        any::<bool>().prop_map(Value::Bool),
        "[a-c/-]{0,3}".prop_map(Value::String)
    ];
    leaf.prop_recursive(6, 64, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::btree_map(
                "spec|template|containers|name|ports|metadata|labels|volumes|resources|limits|webhooks|rules|subjects|versions|data|status",
                inner,
                0..5
            )
            .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes in, no kind panics, and defaults are filled in once.
    #[test]
    fn nothing_panics(object in any_json(), old in any_json()) {
        for kind in all() {
            let mut new = object.clone();
            kind.apply_defaults(&mut new);
            let once = new.clone();
            kind.apply_defaults(&mut new);
            prop_assert_eq!(&once, &new, "{}", kind.kind);
            let _ = kind.validate(&new, Some(&old));
            kind.prepare_update(&mut new, &old);
            kind.prepare_status_update(&mut new, &old);
            kind.prepare_create(&mut new);
            if let Some(schema) = kind.schema() {
                let _ = crate::types::decode(schema, &mut new);
            }
        }
    }
}
