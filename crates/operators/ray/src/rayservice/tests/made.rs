//! What is made, in files that a reviewer can read.

use super::*;
use crate::testing::golden;

fn yaml(object: &impl serde::Serialize) -> String {
    serde_saphyr::to_string(object).unwrap().trim_end().to_owned() + "\n"
}

fn service(spec: Value) -> RayService {
    world(spec, Value::Null).observed.service.object.clone()
}

#[test]
fn a_cluster() {
    let made = objects::cluster(&service(json!({})), "chat-a", false, &Settings::default());
    golden("rayservice/tests/golden/cluster.yaml", &yaml(&made));
    let small = objects::cluster(&service(json!({})), "chat-a", true, &Settings::default());
    assert_eq!(small.spec.worker_group_specs.unwrap()[0].replicas, None);
}

#[test]
fn services() {
    let cluster = cluster("chat-a", &cluster_spec()).object;
    let made = [
        yaml(&objects::head_service(&service(json!({})), &cluster, &Settings::default())),
        yaml(&objects::serve_service(&service(json!({})), &cluster).unwrap()),
        yaml(&objects::cluster_serve_service(&cluster).unwrap()),
    ];
    golden("rayservice/tests/golden/services.yaml", &made.join("---\n"));
}

#[test]
fn a_users_service() {
    let custom = json!({"serveService": {
        "metadata": {"name": "mine", "namespace": "elsewhere", "labels": {"a": "b", "ray.io/serve": "x"}},
        "spec": {
            "type": "NodePort", "selector": {"mine": "x"},
            "ports": [{"name": "serve", "port": 80, "targetPort": 8000, "appProtocol": "http"}, {"name": "other", "port": 12345}],
        },
    }});
    let object = cluster("chat-a", &cluster_spec()).object;
    golden(
        "rayservice/tests/golden/custom-serve-service.yaml",
        &yaml(&objects::serve_service(&service(custom.clone()), &object).unwrap()),
    );
    // Ports that are not for Serve: the user's are all there is.
    let mut spec = cluster_spec();
    spec["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"] =
        json!([{"name": "dashboard", "containerPort": 8265}]);
    let portless = cluster("chat-a", &spec).object;
    let ports = objects::serve_service(&service(custom), &portless).unwrap().spec.unwrap().ports.unwrap();
    assert_eq!(ports.iter().map(|port| port.port).collect::<Vec<_>>(), [80, 12345]);
    let error = objects::serve_service(&service(json!({})), &portless).unwrap_err();
    assert!(error.contains("none of them is named serve"), "{error}");
}

#[test]
fn routing() {
    let service = service(json!({"upgradeStrategy": {
        "type": "NewClusterWithIncrementalUpgrade",
        "clusterUpgradeOptions": {"gatewayClassName": "istio", "intervalSeconds": 10, "stepSizePercent": 20},
    }}));
    let (a, b) = (cluster("chat-a", &cluster_spec()).object, cluster("chat-b", &cluster_spec()).object);
    let backends =
        [gateway::Backend { cluster: &a, weight: 80 }, gateway::Backend { cluster: &b, weight: 20 }];
    let made = [yaml(&gateway::gateway(&service)), yaml(&gateway::route(&service, &backends))];
    golden("rayservice/tests/golden/routing.yaml", &made.join("---\n"));
}

#[test]
fn routing_is_repaired_where_it_is_ours() {
    let service = service(json!({}));
    let object = cluster("chat-a", &cluster_spec()).object;
    let wanted = gateway::route(&service, &[gateway::Backend { cluster: &object, weight: 100 }]);
    let mut live = wanted.clone();
    live["spec"]["rules"][0]["backendRefs"][0]["group"] = json!("");
    live["spec"]["parentRefs"][0]["kind"] = json!("Gateway");
    live["status"] = json!({"parents": []});
    let ensure = |live: &Value| {
        gateway::ensure(
            gateway::route_kind(),
            Some(&entry(NAMESPACE, "chat-httproute", live.clone())),
            &wanted,
        )
    };
    assert_eq!(ensure(&live), None, "what others fill in stays");
    live["spec"]["rules"][0]["backendRefs"][0]["weight"] = json!(1);
    let step = ensure(&live).unwrap();
    assert_eq!(step.event.unwrap().reason, "UpdatedHTTPRoute");
}
