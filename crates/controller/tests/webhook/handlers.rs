//! Webhook handlers, called in the same process.

use k8s_openapi::api::core::v1::ConfigMap;
use quintet_controller::{
    cache::WatchSpec,
    webhook::{Admission, HandlerError, Mutation, Routes, Verdict},
};

use super::*;
use crate::support::simulate;

const LIMIT: Duration = Duration::from_secs(10);

/// The patch of a response.
fn patch(review: &Value) -> Value {
    let patch: ByteString = serde_json::from_value(review["response"]["patch"].clone()).unwrap();
    serde_json::from_slice(&patch.0).unwrap()
}

#[test]
fn handlers_can_await_and_read_caches() {
    simulate(async {
        let server = api_server(1);
        let place = ("v1/configmaps".to_owned(), "n".to_owned(), "quota".to_owned());
        server.store(|store| store.create(&place, json!({"metadata": {}, "data": {"left": "1"}})).unwrap());
        let process = Process::bare(&server, 1, None);
        let quotas = process.runtime.caches().watch(WatchSpec::<ConfigMap>::typed()).unwrap();
        let api = process.api.clone();
        let routes = Routes::new().validate("/validate", move |admission: Admission<ConfigMap>| {
            let (quotas, api) = (quotas.clone(), api.clone());
            async move {
                let key = ObjectKey::new("n", "quota");
                let cached = quotas.get(&key).is_some();
                let live = api.get(&quintet_controller::ApiKind::of::<ConfigMap>(), &key).await.unwrap();
                match (cached, live) {
                    (true, Some(_)) => Verdict::allow().warn(admission.request.name),
                    _ => Verdict::deny("no quota"),
                }
            }
        });
        process.runtime.start();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let response = routes.handle("/validate", review(&json!({})), LIMIT).await.unwrap();
        assert_eq!(response["response"], json!({"uid": "q", "allowed": true, "warnings": ["a"]}));
        process.stop().await;
    });
}

#[tokio::test]
async fn mutations_patch_what_changed_whether_typed_or_dynamic() {
    let routes = Routes::new()
        .mutate("/typed", |mut admission: Admission<ConfigMap>| {
            admission.object.immutable = Some(true);
            Mutation::to(admission.object).warn("made immutable")
        })
        .mutate("/dynamic", |mut admission: Admission<Value>| async move {
            admission.object["unknown"]["added"] = json!(1);
            Mutation::to(admission.object)
        })
        .mutate("/deny", |_: Admission<Value>| Mutation::deny("spec: no"))
        .mutate("/unchanged", |_: Admission<Value>| Mutation::unchanged());
    let object = json!({"metadata": {"name": "a"}, "unknown": {"kept": true}});
    let handle = async |path: &str| routes.handle(path, review(&object), LIMIT).await.unwrap();
    let typed = handle("/typed").await;
    assert_eq!(patch(&typed), json!([{"op": "add", "path": "/immutable", "value": true}]));
    assert_eq!(typed["response"]["warnings"], json!(["made immutable"]));
    let dynamic = handle("/dynamic").await;
    assert_eq!(patch(&dynamic), json!([{"op": "add", "path": "/unknown/added", "value": 1}]));
    let denied = handle("/deny").await;
    assert_eq!(denied["response"]["status"]["message"], "spec: no");
    assert_eq!(handle("/unchanged").await["response"], json!({"uid": "q", "allowed": true}));
    let malformed = json!({"metadata": {"name": "a"}, "immutable": "perhaps"});
    let left_to_the_schema = routes.handle("/typed", review(&malformed), LIMIT).await.unwrap();
    assert_eq!(left_to_the_schema["response"], json!({"uid": "q", "allowed": true}));
    let deletion = json!({"request": {"uid": "q", "operation": "DELETE", "oldObject": {"unknown": {}}}});
    let deleted = routes.handle("/dynamic", deletion, LIMIT).await.unwrap();
    assert_eq!(deleted["response"], json!({"uid": "q", "allowed": true}), "a deletion has no patch");
}

#[test]
fn a_handler_that_is_slow_or_panics_fails_its_own_request_only() {
    simulate(async {
        let routes = Routes::new()
            .validate("/slow", |_: Admission<Value>| std::future::pending::<Verdict>())
            .validate("/panic", |_: Admission<Value>| -> Verdict { panic!("as told") })
            .validate("/panic-later", |_: Admission<Value>| async {
                tokio::task::yield_now().await;
                panic!("as told")
            })
            .validate("/good", |_: Admission<Value>| Verdict::allow());
        let handle = async |path: &str| routes.handle(path, review(&json!({})), LIMIT).await;
        let slow = handle("/slow").await.unwrap_err();
        assert_eq!(slow.to_string(), "the webhook at /slow did not finish within 10000 ms");
        for path in ["/panic", "/panic-later"] {
            let error = handle(path).await.unwrap_err().to_string();
            assert!(error.contains("it panicked: as told"), "{error}");
        }
        assert!(matches!(handle("/absent").await, Err(HandlerError::NotFound(_))));
        assert!(matches!(
            routes.handle("/good", json!({"request": 7}), LIMIT).await,
            Err(HandlerError::BadRequest(_))
        ));
        assert_eq!(handle("/good").await.unwrap()["response"]["allowed"], true);
    });
}

#[tokio::test]
async fn a_conversion_that_takes_too_long_or_panics_fails_its_own_request_only() {
    let routes = Routes::new()
        .convert("/slow", |object, _| {
            std::thread::sleep(Duration::from_secs(2));
            Ok(object)
        })
        .convert("/panic", |_, _| panic!("as told"));
    let review =
        json!({"request": {"uid": "c", "desiredAPIVersion": "g/v2", "objects": [{"apiVersion": "g/v1"}]}});
    let limit = Duration::from_millis(100);
    let started = tokio::time::Instant::now();
    let slow = routes.handle("/slow", review.clone(), limit).await;
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert!(matches!(slow, Err(HandlerError::TimedOut { .. })), "{slow:?}");
    let panicked = routes.handle("/panic", review, LIMIT).await.unwrap_err().to_string();
    assert!(panicked.contains("it panicked: as told"), "{panicked}");
}
