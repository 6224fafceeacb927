//! Representations of objects, and discovery.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod support;

use bytes::Bytes;
use http::Request;
use quintet_apiserver::Api;
use serde_json::json;
use support::{Reply, admin, api, send, send_as};

async fn get(api: &Api, path: &str, headers: &[(&str, &str)]) -> Reply {
    let request =
        headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    send_as(api, admin(), request.body(Bytes::new()).unwrap()).await
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[tokio::test]
async fn tables_and_metadata() {
    let api = api().await;
    let table = get(&api, MAPS, &[("accept", TABLE)]).await.expect(200);
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["columnDefinitions"][1]["name"], "Data");
    assert_eq!(table["rows"][0]["cells"][0], "kube-root-ca.crt");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let bare = get(&api, &format!("{MAPS}?includeObject=None"), &[("accept", TABLE)]).await.expect(200);
    assert!(bare["rows"][0].get("object").is_none());
    let list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let metadata = get(&api, MAPS, &[("accept", list)]).await.expect(200);
    assert_eq!(metadata["kind"], "PartialObjectMetadataList");
    assert!(metadata["items"][0].get("data").is_none());
    let one = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let wrong = get(&api, MAPS, &[("accept", one)]).await;
    assert_eq!(wrong.code, 406);
    assert!(
        wrong
            .message()
            .starts_with("you requested PartialObjectMetadata, but the requested object is a list")
    );
    let one = get(&api, &format!("{MAPS}/kube-root-ca.crt"), &[("accept", one)]).await.expect(200);
    assert_eq!(
        (&one["kind"], &one["apiVersion"]),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"))
    );
}

#[tokio::test]
async fn what_is_never_read_again_has_no_table() {
    let api = api().await;
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}).to_string();
    let post = |accept: &'static str| {
        let request = Request::post(reviews).header("accept", accept);
        send_as(&api, admin(), request.body(Bytes::from(review.clone())).unwrap())
    };
    let refused = post("application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert_eq!((refused.code, &refused.body["reason"]), (406, &json!("NotAcceptable")));
    assert_eq!(post(TABLE).await.expect(201)["kind"], "SelfSubjectAccessReview", "the second choice");
}

#[tokio::test]
async fn protobuf_and_yaml() {
    let api = api().await;
    let path = format!("{MAPS}/kube-root-ca.crt");
    let reply = get(&api, &path, &[("accept", "application/vnd.kubernetes.protobuf,application/json")]).await;
    assert_eq!(reply.headers["content-type"], "application/vnd.kubernetes.protobuf");
    assert!(reply.bytes.starts_with(b"k8s\0"));
    // What the server wrote, it reads.
    let mut request = Request::put(&path).header("content-type", "application/vnd.kubernetes.protobuf");
    request = request.header("accept", "application/json");
    let again = send_as(&api, admin(), request.body(reply.bytes).unwrap()).await.expect(200);
    let read = send(&api, "GET", &path, None).await.expect(200);
    assert_eq!(again, read, "nothing changed on the way");
    let yaml = get(&api, &path, &[("accept", "application/yaml")]).await;
    assert!(String::from_utf8_lossy(&yaml.bytes).contains("kind: ConfigMap"));
    let request = Request::post(MAPS).header("content-type", "application/yaml");
    let body =
        Bytes::from_static(b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: made\ndata:\n  a: b\n");
    send_as(&api, admin(), request.body(body).unwrap()).await.expect(201);
    assert_eq!(get(&api, &path, &[("accept", "text/html")]).await.code, 406);
}

#[tokio::test]
async fn discovery_tells_everything_once() {
    let api = api().await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let first = get(&api, "/apis", &[("accept", accept)]).await;
    assert_eq!(
        first.headers["content-type"],
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let tag = first.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(first.body["kind"], "APIGroupDiscoveryList");
    let again = get(&api, "/apis", &[("accept", accept), ("if-none-match", &tag)]).await;
    assert_eq!((again.code, again.bytes.len()), (304, 0));
    let legacy = get(&api, "/apis", &[]).await.expect(200);
    assert_eq!(legacy["kind"], "APIGroupList");
    let core = get(&api, "/api/v1", &[]).await.expect(200);
    assert!(
        core["resources"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["name"] == "pods/eviction" && one["group"] == "policy")
    );
    let index = get(&api, "/openapi/v3", &[]).await.expect(200);
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = get(&api, url, &[]).await;
    assert_eq!(document.headers["cache-control"], "public, immutable");
    assert!(document.expect(200)["components"]["schemas"].get("io.k8s.api.apps.v1.Deployment").is_some());
    let moved = get(&api, "/openapi/v3/apis/apps/v1?hash=OLD", &[]).await;
    assert_eq!((moved.code, moved.headers["location"].to_str().unwrap()), (301, url));
    // kubectl asks by the first name; Go cannot parse it in a response.
    for name in ["spec.v2@v1.0", "spec.v2.v1.0"] {
        let accept = format!("application/com.github.proto-openapi.{name}+protobuf");
        let document = get(&api, "/openapi/v2", &[("accept", &accept)]).await;
        assert_eq!(document.code, 200, "{accept}");
        let content_type = &document.headers["content-type"];
        assert_eq!(content_type, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    }
    let health = get(&api, "/readyz?verbose", &[]).await;
    assert!(String::from_utf8_lossy(&health.bytes).ends_with("readyz check passed\n"));
}

#[tokio::test]
async fn a_cluster_that_is_being_set_up_is_alive_and_not_ready() {
    let api = api().await;
    api.set_ready(false);
    let early = get(&api, "/readyz", &[]).await;
    assert_eq!(early.code, 500);
    assert!(String::from_utf8_lossy(&early.bytes).contains("[-]start failed"), "{:?}", early.bytes);
    assert_eq!(get(&api, "/livez", &[]).await.code, 200);
    api.set_ready(true);
    assert_eq!(get(&api, "/readyz", &[]).await.code, 200);
}
