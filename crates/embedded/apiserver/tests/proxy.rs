//! Requests to services, pods and nodes, passed through the server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use support::{admin, api, backend::Backend, send, send_as};

fn page(request: &Request<Bytes>) -> Response<Full<Bytes>> {
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    match request.uri().path() {
        "/page" => Response::builder()
            .header("content-type", "text/html; charset=utf-8")
            .body(Full::from("<a href=\"/next\">next</a>"))
            .unwrap(),
        "/moved" => {
            Response::builder().status(302).header("location", "/elsewhere").body(Full::default()).unwrap()
        }
        path => {
            let seen = json!({"path": path, "query": request.uri().query(), "method": request.method().as_str(),
                "authorization": header("authorization"), "uri": header("x-forwarded-uri"),
                "body": String::from_utf8_lossy(request.body())});
            Response::builder().status(203).body(Full::from(seen.to_string())).unwrap()
        }
    }
}

#[tokio::test]
async fn a_service_is_reached_with_path_query_and_links() {
    let backend = Backend::start(&["localhost"], |request| page(&request)).await;
    let api = api().await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"name": "tls", "port": 443}]}});
    send(&api, "POST", services, service).await.expect(201);
    let through = format!("{services}/https:web:tls/proxy");
    let none = send(&api, "GET", &format!("{through}/x"), None).await;
    assert_eq!((none.code, none.message()), (503, "no endpoints available for service \"web\""));
    let endpoints = json!({"metadata": {"name": "web"}, "subsets": [{"addresses": [{"ip": "127.0.0.1"}],
        "ports": [{"name": "tls", "port": backend.address.port()}]}]});
    send(&api, "POST", "/api/v1/namespaces/default/endpoints", endpoints.clone()).await.expect(201);

    let path = format!("{through}/a%2Fb/?dryRun=nonsense&x=1");
    // What is passed on is not for this server to understand: neither what is accepted nor the query.
    let request = Request::put(&path).header("accept", "text/html").header("authorization", "Bearer secret");
    let reply = send_as(&api, admin(), request.body("hello".into()).unwrap()).await;
    assert_eq!(reply.code, 203);
    assert_eq!(
        reply.body,
        json!({"path": "/a%2Fb/", "query": "dryRun=nonsense&x=1", "method": "PUT", "authorization": null,
            "uri": format!("{through}/a%2Fb/"), "body": "hello"})
    );
    let reply = send(&api, "GET", &through, None).await;
    assert_eq!(
        (reply.code, reply.headers["location"].to_str().unwrap()),
        (301, format!("{through}/").as_str())
    );
    let reply = send(&api, "GET", &format!("{through}/moved"), None).await;
    assert_eq!(
        (reply.code, reply.headers["location"].to_str().unwrap()),
        (302, format!("{through}/elsewhere").as_str())
    );
    let reply = send(&api, "GET", &format!("{through}/page"), None).await;
    assert_eq!(reply.bytes, format!("<a href=\"{through}/next\">next</a>"));

    let unknown = send(&api, "GET", &format!("{services}/web:nope/proxy/"), None).await;
    assert_eq!(
        (unknown.code, unknown.message()),
        (503, "no service port \"nope\" found for service \"web\"")
    );
    assert_eq!(send(&api, "GET", &format!("{services}/nope/proxy/"), None).await.code, 404);
    assert_eq!(send(&api, "GET", "/api/v1/namespaces/default/configmaps/x/proxy/", None).await.code, 404);
    let mut far = endpoints;
    far["subsets"][0]["addresses"][0]["ip"] = "169.254.169.254".into();
    send(&api, "PUT", "/api/v1/namespaces/default/endpoints/web", far).await.expect(422);
    let stranger = quintet_apiserver::Caller::known("eve", []);
    let request = Request::get(format!("{through}/x")).body(Bytes::new()).unwrap();
    assert_eq!(send_as(&api, stranger, request).await.code, 403);
}

#[tokio::test]
async fn pods_and_nodes_are_reached_where_they_say_they_are() {
    let backend = Backend::start(&["localhost"], |request| page(&request)).await;
    let port = backend.address.port();
    let api = api().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": port}]}]}});
    send(&api, "POST", pods, pod).await.expect(201);
    let nowhere = send(&api, "GET", &format!("{pods}/https:p:/proxy/x"), None).await;
    assert_eq!((nowhere.code, nowhere.message()), (400, "address not allowed"));
    let mut pod: Value = send(&api, "GET", &format!("{pods}/p"), None).await.expect(200);
    pod["status"]["podIP"] = "169.254.169.254".into();
    pod["status"]["podIPs"] = json!([{"ip": "169.254.169.254"}]);
    pod = send(&api, "PUT", &format!("{pods}/p/status"), pod).await.expect(200);
    let refused = send(&api, "GET", &format!("{pods}/https:p:/proxy/x"), None).await;
    assert_eq!((refused.code, refused.message()), (400, "address not allowed"));
    pod["status"]["podIP"] = "127.0.0.1".into();
    pod["status"]["podIPs"] = json!([{"ip": "127.0.0.1"}]);
    send(&api, "PUT", &format!("{pods}/p/status"), pod).await.expect(200);
    let reply = send(&api, "GET", &format!("{pods}/https:p:/proxy/x"), None).await;
    assert_eq!((reply.code, &reply.body["path"]), (203, &json!("/x")));

    let node = json!({"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    send(&api, "POST", "/api/v1/nodes", node).await.expect(201);
    let reply = send(&api, "GET", "/api/v1/nodes/n/proxy/healthz", None).await;
    assert_eq!((reply.code, &reply.body["path"]), (203, &json!("/healthz")));
}
