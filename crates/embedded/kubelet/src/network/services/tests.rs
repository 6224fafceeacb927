use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::*;

fn view(spec: &Value, endpoints: &Value) -> Option<ServiceView> {
    let service: Service = serde_json::from_value(json!({ "spec": spec })).unwrap();
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": { "name": "s" }, "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }, { "name": "dns", "port": 5353, "protocol": "UDP" }],
    }))
    .unwrap();
    ServiceView::new(&service, [&slice])
}

fn node() -> NodeAddresses {
    NodeAddresses {
        bridge: Some("qnt-0".into()),
        gateway: [10, 244, 0, 1].into(),
        host: Ipv4Addr::LOCALHOST.into(),
        name: "node".into(),
    }
}

/// `clients protocol address -> endpoints`, one line per frontend.
fn lines(view: &ServiceView) -> Vec<String> {
    let line = |(frontend, endpoints): (Frontend, Vec<SocketAddrV4>)| {
        let Frontend { clients, protocol, address } = frontend;
        let endpoints: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
        format!("{clients:?} {} {address} -> {}", protocol.label(), endpoints.join(","))
    };
    node().frontends(view).into_iter().map(line).collect()
}

fn endpoint(address: &str, conditions: &Value) -> Value {
    json!({ "addresses": [address], "conditions": conditions, "nodeName": if address.ends_with('9') { "other" } else { "node" } })
}

#[test]
fn a_cluster_ip_is_served_for_pods_and_for_the_machine() {
    let spec = json!({ "clusterIP": "10.96.3.4", "ports": [
        { "name": "http", "port": 80, "targetPort": 8080 }, { "name": "dns", "port": 53, "protocol": "UDP" },
        { "name": "missing", "port": 81 }, { "name": "sctp", "port": 82, "protocol": "SCTP" }] });
    let endpoints =
        json!([endpoint("10.244.0.2", &json!({ "ready": true })), endpoint("10.244.0.3", &json!({}))]);
    assert_eq!(
        lines(&view(&spec, &endpoints).unwrap()),
        [
            "Pods tcp 10.96.3.4:80 -> 10.244.0.2:8080,10.244.0.3:8080",
            "Pods udp 10.96.3.4:53 -> 10.244.0.2:5353,10.244.0.3:5353",
            "Machine tcp 10.96.3.4:80 -> 10.244.0.2:8080,10.244.0.3:8080",
            "Machine udp 10.96.3.4:53 -> 10.244.0.2:5353,10.244.0.3:5353",
        ]
    );
}

#[test]
fn only_ready_endpoints_are_used_unless_all_are_terminating() {
    let spec = |publish: bool| json!({ "clusterIP": "10.96.3.4", "publishNotReadyAddresses": publish, "ports": [{ "name": "http", "port": 80 }] });
    let ready = json!({ "ready": true, "serving": true });
    let starting = json!({ "ready": false, "serving": false });
    let ending = json!({ "ready": false, "serving": true, "terminating": true });
    let all =
        json!([endpoint("10.0.0.2", &ready), endpoint("10.0.0.3", &starting), endpoint("10.0.0.4", &ending)]);
    let used = |spec: &Value, endpoints: &Value| {
        let view = view(spec, endpoints).unwrap();
        let addresses = view.backends(&view.ports[0], None);
        addresses.iter().map(|address| address.ip().octets()[3]).collect::<Vec<u8>>()
    };
    assert_eq!(used(&spec(false), &all), [2]);
    assert_eq!(used(&spec(true), &all), [2, 3, 4]);
    let none_ready = json!([endpoint("10.0.0.3", &starting), endpoint("10.0.0.4", &ending)]);
    assert_eq!(used(&spec(false), &none_ready), [4]);
    assert_eq!(used(&spec(false), &json!([endpoint("10.0.0.3", &starting)])), [0_u8; 0]);
}

#[test]
fn traffic_policies_keep_to_the_endpoints_of_the_node() {
    let endpoints = json!([endpoint("10.0.0.2", &json!({})), endpoint("10.0.0.9", &json!({}))]);
    let spec = json!({ "clusterIP": "10.96.3.4", "type": "NodePort", "internalTrafficPolicy": "Local",
        "externalTrafficPolicy": "Cluster", "ports": [{ "name": "http", "port": 80, "nodePort": 30080 }] });
    assert_eq!(
        lines(&view(&spec, &endpoints).unwrap()),
        [
            "Pods tcp 10.96.3.4:80 -> 10.0.0.2:8080",
            "Machine tcp 10.96.3.4:80 -> 10.0.0.2:8080",
            "Node tcp 10.244.0.1:30080 -> 10.0.0.2:8080,10.0.0.9:8080",
            "Host tcp 127.0.0.1:30080 -> 10.0.0.2:8080,10.0.0.9:8080",
        ]
    );
    let elsewhere = json!([endpoint("10.0.0.9", &json!({}))]);
    assert_eq!(lines(&view(&spec, &elsewhere).unwrap()).len(), 2, "the cluster IP refuses");
}

#[test]
fn headless_and_external_services_have_no_listener() {
    let endpoints = json!([endpoint("10.0.0.2", &json!({}))]);
    let ports = json!([{ "name": "http", "port": 80 }]);
    let headless = view(&json!({ "clusterIP": "None", "ports": ports }), &endpoints).unwrap();
    assert_eq!((lines(&headless).len(), headless.reach), (0, Reach::Headless));
    let external = json!({ "type": "ExternalName", "externalName": "db.example.com", "ports": ports });
    let external = view(&external, &json!([])).unwrap();
    assert_eq!((lines(&external).len(), external.reach), (0, Reach::ExternalName("db.example.com".into())));
    assert_eq!(view(&json!({ "clusterIP": "fd00::1" }), &json!([])), None);
}

#[test]
fn session_affinity_has_a_timeout() {
    let affinity = |spec: Value| view(&spec, &json!([])).unwrap().affinity.map(|timeout| timeout.as_secs());
    assert_eq!(affinity(json!({ "clusterIP": "10.96.0.9", "sessionAffinity": "None" })), None);
    assert_eq!(affinity(json!({ "clusterIP": "10.96.0.9", "sessionAffinity": "ClientIP" })), Some(10_800));
    let config = json!({ "clientIP": { "timeoutSeconds": 60 } });
    let spec =
        json!({ "clusterIP": "10.96.0.9", "sessionAffinity": "ClientIP", "sessionAffinityConfig": config });
    assert_eq!(affinity(spec), Some(60));
}

#[test]
fn endpoints_for_programs_of_the_machine_only_are_left_out() {
    let addresses = ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255", "10.0.0.2"];
    let endpoints: Vec<Value> = addresses.iter().map(|address| endpoint(address, &json!({}))).collect();
    let spec = json!({ "clusterIP": "10.96.0.9", "ports": [{ "name": "http", "port": 80 }] });
    let view = view(&spec, &json!(endpoints)).unwrap().without_local_targets();
    let left: Vec<String> = view.targets.iter().map(|target| target.address.to_string()).collect();
    assert_eq!(left, ["10.0.0.2"]);
}
