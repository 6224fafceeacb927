//! Indexes cost what changes, and always know what a rebuild would.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    Api, Caller, Clock, admission,
    commit::Held,
    store::{Expect, Put, Store, Write},
    verbs::RequestContext,
};

async fn send(api: &Api, method: &str, path: &str, body: Value) -> u16 {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let request = request.body(Bytes::from(body.to_string())).unwrap();
    let admin = Caller::known("admin", ["system:masters".to_owned()]);
    api.handle(request, admin).await.status().as_u16()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn service(name: &str, address: &str, port: i64) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"type": "NodePort", "clusterIP": address,
        "ports": [{"port": 80, "nodePort": port}]}})
}

#[tokio::test]
async fn a_service_write_parses_that_service_only() {
    let api = Api::in_memory(&[]).await.unwrap();
    for n in 0..3_000 {
        let service = service(&format!("s{n}"), &format!("10.96.{}.{}", n / 250 + 10, n % 250), 0);
        let put = Some(Put::new("v1".into(), &service, 0));
        let (bucket, key) = (Arc::from("core/services"), Arc::from(format!("default/s{n}")));
        let write = Write { bucket, key, expect: Expect::Absent, put, parents: Vec::new() };
        api.store().write(write).await.unwrap();
    }
    let indexes = api.store().indexes();
    let before = indexes.services().parsed;
    let path = "/api/v1/namespaces/default/services";
    for n in 0..20 {
        let body = json!({"metadata": {"name": format!("new{n}")}, "spec": {"ports": [{"port": 80}]}});
        assert_eq!(send(&api, "POST", path, body).await, 201);
    }
    let taken =
        json!({"metadata": {"name": "taken"}, "spec": {"clusterIP": "10.96.10.7", "ports": [{"port": 80}]}});
    assert_eq!(send(&api, "POST", path, taken).await, 422);
    assert_eq!(indexes.services().parsed - before, 20, "3,000 others are not parsed again");
}

#[tokio::test]
async fn a_status_update_counts_that_pod_only() {
    let api = Api::in_memory(&[]).await.unwrap();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5k", "requests.cpu": "5k"}}});
    assert_eq!(send(&api, "POST", "/api/v1/namespaces/default/resourcequotas", quota).await, 201);
    assert_eq!(send(&api, "POST", "/api/v1/namespaces/default/pods", pod("p", "1", "Running")).await, 201);
    let mut template = api.store().get("core/pods", "default/p").unwrap().parse();
    for n in 0..1_999 {
        template["metadata"]["name"] = format!("p{n}").into();
        let put = Some(Put::new("v1".into(), &template, 0));
        let (bucket, key) = (Arc::from("core/pods"), Arc::from(format!("default/p{n}")));
        let write = Write { bucket, key, expect: Expect::Absent, put, parents: Vec::new() };
        api.store().write(write).await.unwrap();
    }
    let indexes = api.store().indexes();
    let buckets = ["core/pods".to_owned()].into();
    let used = |index: &UsageIndex| index.used("default", &json!({}), &buckets)["pods"].to_string();
    assert_eq!(used(&indexes.usage("default")), "2k");
    let before = indexes.usage("default").parsed;
    for n in 0..10 {
        let path = format!("/api/v1/namespaces/default/pods/p{n}/status");
        let code = send(&api, "PATCH", &path, json!({"status": {"phase": "Succeeded"}})).await;
        assert_eq!(code, 200);
        drop(indexes.usage("default"));
    }
    assert_eq!(used(&indexes.usage("default")), "1990");
    assert_eq!(indexes.usage("default").parsed - before, 10, "1,990 others are not parsed again");
}

#[test]
fn a_write_does_not_wait_for_readers_of_indexes() {
    let store = Arc::new(Store::in_memory());
    let put = |bucket: &str, name: &str| Write {
        bucket: bucket.into(),
        key: format!("n0/{name}").into(),
        expect: Expect::Absent,
        put: Some(Put::new("v1".into(), &object(bucket, 1), 0)),
        parents: Vec::new(),
    };
    block_on(store.write(put("core/resourcequotas", "q"))).unwrap();
    let indexes = store.indexes();
    let readers = (indexes.services(), indexes.usage("n0"));
    let writes = [put("core/services", "s"), put("core/pods", "p")];
    let (done, written) = std::sync::mpsc::channel();
    let writer = std::thread::spawn({
        let store = Arc::clone(&store);
        move || {
            for write in writes {
                drop(block_on(store.write(write)).unwrap());
            }
            done.send(()).unwrap();
        }
    });
    written.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
    drop(readers);
    writer.join().unwrap();
    assert!(indexes.usage("n0").contains("n0", "core/pods", "n0/p"), "readers see it from then on");
}

fn pod(name: &str, cpu: &str, phase: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase}})
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Put {
        bucket: &'static str,
        namespace: u8,
        name: u8,
        variant: u8,
    },
    Delete {
        bucket: &'static str,
        namespace: u8,
        name: u8,
    },
    /// Readers make the index catch up at random times.
    Read,
    Fork,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bucket = || {
        prop::sample::select(vec![
            "core/services",
            "core/pods",
            "core/persistentvolumeclaims",
            "core/configmaps",
            "core/resourcequotas",
        ])
    };
    let put = (bucket(), 0..2_u8, 0..4_u8, 0..4_u8)
        .prop_map(|(bucket, namespace, name, variant)| Step::Put { bucket, namespace, name, variant });
    let delete = (bucket(), 0..2_u8, 0..4_u8).prop_map(|(bucket, namespace, name)| Step::Delete {
        bucket,
        namespace,
        name,
    });
    let step = prop_oneof![12 => put, 6 => delete, 4 => Just(Step::Read), 1 => Just(Step::Fork), 1 => Just(Step::Restart)];
    prop::collection::vec(step, 1..80)
}

fn object(bucket: &str, variant: u8) -> Value {
    let metadata = json!({"name": "x"});
    match bucket {
        "core/services" => service("x", &format!("10.96.9.{}", variant % 3), i64::from(variant)),
        "core/pods" => {
            let mut pod = pod("x", ["0", "1", "500m", "2"][usize::from(variant)], "Running");
            if variant == 3 {
                pod["spec"]["activeDeadlineSeconds"] = 5.into();
                pod["status"]["phase"] = "Failed".into();
            }
            pod
        }
        "core/persistentvolumeclaims" => {
            json!({"metadata": metadata, "spec": {"resources": {"requests": {"storage": format!("{variant}Gi")}}}})
        }
        _ => json!({"metadata": metadata, "spec": {"hard": {"pods": "3"}}}),
    }
}

/// Whether the indexes of a store are those that its objects lead to.
fn agree(store: &Store) -> bool {
    let rebuilt = Store::in_memory();
    for bucket in store.buckets() {
        for (key, entry) in store.list(&bucket, "", None, None).unwrap().0 {
            let put = Put {
                version: Arc::clone(&entry.version),
                body: entry.body.clone(),
                head: entry.head.clone(),
                epoch: 0,
            };
            let write = Write {
                bucket: Arc::clone(&bucket),
                key,
                expect: Expect::Absent,
                put: Some(put),
                parents: Vec::new(),
            };
            block_on(rebuilt.write(write)).unwrap();
        }
    }
    let (known, wanted) = (store.indexes(), rebuilt.indexes());
    let services = known.services().agrees_with(&wanted.services());
    for index in [&known, &wanted] {
        drop(index.usage("n0"));
        drop(index.usage("n1"));
    }
    services && known.usage("n0").agrees_with(&wanted.usage("n0"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn indexes_equal_a_rebuild_after_any_history(steps in steps()) {
        let path = std::env::temp_dir().join(format!("quintet-index-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let mut store = Store::open(&path).unwrap();
        for step in steps {
            match step {
                Step::Put { bucket, namespace, name, variant } => {
                    let key: Arc<str> = format!("n{namespace}/o{name}").into();
                    let expect = store.get(bucket, &key).map_or(Expect::Absent, |entry| Expect::Version(entry.rv));
                    let put = Some(Put::new("v1".into(), &object(bucket, variant), 0));
                    let write = Write { bucket: bucket.into(), key, expect, put, parents: Vec::new() };
                    block_on(store.write(write)).unwrap();
                }
                Step::Delete { bucket, namespace, name } => {
                    let key: Arc<str> = format!("n{namespace}/o{name}").into();
                    if let Some(entry) = store.get(bucket, &key) {
                        let write = Write::remove(&bucket.into(), key, entry.rv);
                        block_on(store.write(write)).unwrap();
                    }
                }
                Step::Read => {
                    drop(store.indexes().services());
                    drop(store.indexes().usage("n0"));
                }
                Step::Fork => {
                    prop_assert!(agree(&store.fork()));
                    prop_assert!(agree(&store));
                }
                Step::Restart => {
                    drop(store);
                    store = Store::open(&path).unwrap();
                }
            }
        }
        prop_assert!(agree(&store));
        drop(store);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[tokio::test]
async fn a_service_cannot_take_what_a_renamed_one_was_given() {
    let api = Api::in_memory(&[]).await.unwrap();
    let path = "/api/v1/namespaces/default/services";
    let ported = |port: i64| json!({"metadata": {"name": "a"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
    assert_eq!(send(&api, "POST", path, ported(31_001)).await, 201);
    // Another service is created with the generated name "a", which is taken, and tries another.
    let resource = api.built_in("", "services").unwrap();
    let context = RequestContext::internal(&api, &resource, "default", "");
    let claim = admission::allocate(&context, &mut ported(31_002), None).unwrap();
    let held = Held { claim, reservation: None };
    held.rename("b");
    assert_eq!(send(&api, "PATCH", &format!("{path}/a"), ported(31_002)).await, 422);
    drop(held);
    assert_eq!(send(&api, "PATCH", &format!("{path}/a"), ported(31_002)).await, 200);
}

#[tokio::test]
async fn a_fork_of_an_api_knows_the_addresses_of_its_services() {
    let api = Api::in_memory(&[]).await.unwrap();
    let path = "/api/v1/namespaces/default/services";
    let body = |name: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": "10.96.9.9", "ports": [{"port": 80}]}});
    assert_eq!(send(&api, "POST", path, body("a")).await, 201);
    let fork = api.fork(Clock::system(), crate::Rng::seeded(1));
    assert_eq!(send(&fork, "POST", path, body("b")).await, 422);
    assert_eq!(send(&fork, "DELETE", &format!("{path}/a"), json!({})).await, 200);
    assert_eq!(send(&fork, "POST", path, body("b")).await, 201);
    assert_eq!(send(&api, "POST", path, body("b")).await, 422);
    api.stop().await;
    fork.stop().await;
}
