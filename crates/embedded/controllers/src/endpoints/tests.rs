use quintet_controller::Action;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Bench, stored};

struct ServiceBench {
    bench: Bench,
    nodes: BTreeMap<String, Option<String>>,
}

impl ServiceBench {
    fn new(spec: &Value) -> Self {
        let mut bench = Bench::new();
        let mut service = json!({
            "metadata": { "name": "web", "uid": "web-uid", "labels": { "team": "a" } },
            "spec": { "clusterIP": "10.96.0.7", "selector": { "app": "web" }, "ports": [{ "name": "http", "port": 80 }] },
        });
        service["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        bench.create("Service", service);
        Self { bench, nodes: BTreeMap::from([("n".to_owned(), Some("zone-1".to_owned()))]) }
    }

    fn pod(&mut self, name: &str, ip: &str, is_ready: bool, change: &Value) -> &mut Self {
        let ready = if is_ready { "True" } else { "False" };
        self.bench.create("Pod", json!({
            "metadata": { "name": name, "labels": { "app": "web" } },
            "spec": { "nodeName": "n", "containers": [{ "name": "main", "ports": [{ "name": "web", "containerPort": 8080 }] }] },
            "status": { "phase": "Running", "podIP": ip, "conditions": [{ "type": "Ready", "status": ready }] },
        }));
        self.bench.patch("Pod", name, change);
        self
    }

    fn reconcile(&mut self) -> &mut Self {
        for _ in 0..5 {
            let observed = || Observed {
                service: self.bench.entry("Service", "web"),
                pods: self.bench.entries("Pod"),
                nodes: self.nodes.clone(),
                slices: self.bench.entries("EndpointSlice"),
                endpoints: self.bench.entries("Endpoints").into_iter().next(),
            };
            let plans = [SliceController::plan(&stored(&observed())), EndpointsController::plan(&observed())];
            let changed =
                plans.iter().map(|plan| self.bench.act("Service", "web", plan)).fold(false, |a, b| a | b);
            if !changed {
                return self;
            }
        }
        panic!("still changing");
    }

    fn slices(&self) -> Vec<Value> {
        self.bench
            .names("EndpointSlice")
            .iter()
            .map(|name| self.bench.get("EndpointSlice", name).clone())
            .collect()
    }

    /// Addresses of all slices with ready, serving, terminating.
    fn endpoints(&self) -> Vec<(String, [bool; 3])> {
        let mut all: Vec<_> = self
            .slices()
            .iter()
            .flat_map(|slice| slice["endpoints"].as_array().unwrap().clone())
            .map(|endpoint| {
                let is = |name: &str| endpoint["conditions"][name] == true;
                let address = endpoint["addresses"][0].as_str().unwrap().to_owned();
                (address, [is("ready"), is("serving"), is("terminating")])
            })
            .collect();
        all.sort();
        all
    }

    fn subsets(&self) -> Value {
        self.bench.get("Endpoints", "web")["subsets"].clone()
    }
}

#[test]
fn pods_with_an_address_are_endpoints_whatever_their_state() {
    let mut web = ServiceBench::new(&json!({}));
    web.pod("ready", "10.0.0.1", true, &json!({}))
        .pod("unready", "10.0.0.2", false, &json!({}))
        .pod(
            "leaving",
            "10.0.0.3",
            true,
            &json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
        )
        .pod("ended", "10.0.0.4", true, &json!({ "status": { "phase": "Succeeded" } }))
        .pod("lost", "10.0.0.5", true, &json!({ "spec": { "nodeName": "gone" } }))
        .pod("starting", "", false, &json!({}))
        .reconcile();
    let expected = [
        ("10.0.0.1".to_owned(), [true, true, false]),
        ("10.0.0.2".to_owned(), [false, false, false]),
        ("10.0.0.3".to_owned(), [false, true, true]),
    ];
    assert_eq!(web.endpoints(), expected);
    let slice = &web.slices()[0];
    assert_eq!(slice["metadata"]["labels"][SERVICE_NAME], "web");
    assert_eq!(slice["metadata"]["labels"]["team"], "a");
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], "web-uid");
    assert_eq!(slice["ports"], json!([{ "name": "http", "protocol": "TCP", "port": 80 }]));
    assert_eq!(slice["endpoints"][0]["zone"], "zone-1");
    let subset = &web.subsets()[0];
    assert_eq!(subset["addresses"].as_array().unwrap().len(), 1, "a leaving pod is not among them");
    assert_eq!(subset["notReadyAddresses"][0]["ip"], "10.0.0.2");
}

#[test]
fn unready_addresses_can_be_published() {
    let mut web = ServiceBench::new(&json!({ "publishNotReadyAddresses": true, "clusterIP": "None" }));
    web.pod("unready", "10.0.0.2", false, &json!({})).reconcile();
    assert_eq!(web.endpoints(), [("10.0.0.2".to_owned(), [true, false, false])]);
    assert_eq!(web.slices()[0]["metadata"]["labels"][HEADLESS], "");
    assert_eq!(web.subsets()[0]["addresses"][0]["ip"], "10.0.0.2");
}

#[test]
fn a_named_port_is_found_in_the_pod_or_left_out() {
    let ports = json!({ "ports": [{ "name": "http", "port": 80, "targetPort": "web" }] });
    let mut web = ServiceBench::new(&ports);
    web.pod("with", "10.0.0.1", true, &json!({}))
        .pod("without", "10.0.0.2", true, &json!({ "spec": { "containers": [{ "name": "main" }] } }))
        .reconcile();
    let ports: Vec<_> = web.slices().iter().map(|slice| slice["ports"].clone()).collect();
    assert!(ports.contains(&json!([])) && ports.iter().any(|ports| ports[0]["port"] == 8080), "{ports:?}");
}

#[test]
fn a_service_without_pods_has_an_empty_slice() {
    let mut web = ServiceBench::new(&json!({}));
    web.reconcile();
    assert_eq!(web.slices().len(), 1);
    assert_eq!((&web.slices()[0]["endpoints"], &web.slices()[0]["ports"]), (&json!([]), &json!([])));
    web.pod("first", "10.0.0.1", true, &json!({})).reconcile();
    assert_eq!(web.slices().len(), 1, "the placeholder goes");
    assert_eq!(web.endpoints().len(), 1);
}

#[test]
fn services_without_a_selector_are_left_alone() {
    for spec in [json!({ "selector": {} }), json!({ "type": "ExternalName", "externalName": "example.com" })]
    {
        let mut web = ServiceBench::new(&spec);
        web.pod("one", "10.0.0.1", true, &json!({})).reconcile();
        assert!(web.slices().is_empty() && web.subsets().is_null(), "{spec}");
    }
}

#[test]
fn hundreds_of_pods_share_slices_that_change_little() {
    let mut web = ServiceBench::new(&json!({}));
    for number in 0..150 {
        web.pod(&format!("p{number:03}"), &format!("10.0.1.{number}"), true, &json!({}));
    }
    web.reconcile();
    let sizes = |web: &ServiceBench| -> Vec<usize> {
        let mut sizes: Vec<_> =
            web.slices().iter().map(|slice| slice["endpoints"].as_array().unwrap().len()).collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(sizes(&web), [50, 100]);
    web.bench.remove("Pod", "p000");
    let observed = Observed {
        service: web.bench.entry("Service", "web"),
        pods: web.bench.entries("Pod"),
        nodes: web.nodes.clone(),
        slices: web.bench.entries("EndpointSlice"),
        endpoints: None,
    };
    let plan = SliceController::plan(&observed);
    assert!(
        matches!(plan.steps[..], [ref only] if matches!(only.action, Action::Patch { .. })),
        "one slice changes"
    );
    web.pod("new", "10.0.2.1", true, &json!({})).reconcile();
    assert_eq!((sizes(&web).len(), sizes(&web).iter().sum()), (2, 150), "room in a slice is used");
}

#[test]
fn pods_with_a_hostname_in_the_domain_of_the_service_have_a_name() {
    let mut web = ServiceBench::new(&json!({ "clusterIP": "None" }));
    web.pod("web-0", "10.0.0.1", true, &json!({ "spec": { "hostname": "web-0", "subdomain": "web" } }));
    web.pod("stray", "10.0.0.2", true, &json!({ "spec": { "hostname": "stray", "subdomain": "other" } }));
    web.reconcile();
    let endpoints = web.slices()[0]["endpoints"].clone();
    let names: Vec<_> = endpoints.as_array().unwrap().iter().map(|one| one["hostname"].clone()).collect();
    assert!(names.contains(&json!("web-0")) && names.contains(&Value::Null), "{names:?}");
}
