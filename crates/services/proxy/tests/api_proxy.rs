//! The proxy in front of a stand-in for the Kubernetes API: streams, upgrades, limits, refusals.
#![expect(clippy::disallowed_methods, reason = "tasks of a test end with it")]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code, unreachable_pub, reason = "shared with other tests")]
mod support;

use std::time::Duration;

use quintet_proxy::Settings;
use serde_json::json;
use support::Proxy;
use support::http::{Request, open, send};
use support::kubernetes::Kubernetes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const CLUSTERS: &str = "/apis/ray.io/v1/namespaces/default/rayclusters";

async fn start(settings: Settings) -> (Kubernetes, Proxy) {
    support::use_tls();
    let service = |name: &str, label: &str| json!({"namespace": "default", "name": name, "labels": {"app.kubernetes.io/name": label}});
    let template = json!({
        "metadata": {"name": "small", "namespace": "default"}, "data": {"cpu": "2", "memory": "4", "memory_unit": "Gi"},
    });
    let kubernetes =
        Kubernetes::start(&[template], &[service("head-svc", "kuberay"), service("plain", "nginx")]).await;
    let mut config = kubernetes.config();
    config.auth_info.token = Some("server".to_owned().into());
    let proxy = Proxy::start(&config, settings).await;
    (kubernetes, proxy)
}

#[tokio::test]
async fn watches_are_streamed() {
    let (kubernetes, proxy) = start(Settings::default()).await;
    let watch = Request::new("GET", &format!("{CLUSTERS}?watch=true"));
    let mut stream = open(proxy.address, &watch).await.expect("a response");
    let mut received = String::new();
    let mut next = async |events: usize| {
        let mut buffer = [0; 1024];
        while received.matches("ADDED").count() < events {
            let read = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut buffer)).await;
            let read = read.expect("the event is not held back").expect("the stream goes on");
            assert_ne!(read, 0, "the stream goes on");
            received.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    };
    next(1).await;
    kubernetes.send_event();
    next(2).await;
}

#[tokio::test]
async fn connections_can_be_upgraded() {
    let (_kubernetes, proxy) = start(Settings::default()).await;
    let path = "/api/v1/namespaces/default/services/head-svc/proxy/echo-socket";
    let upgrade = Request::new("GET", path).header("Connection", "Upgrade").header("Upgrade", "echo");
    let mut stream = open(proxy.address, &upgrade).await.expect("a response");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("headers"));
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: echo"), "{head}");
    stream.write_all(b"hello").await.expect("it is written");
    let mut echoed = [0; 5];
    stream.read_exact(&mut echoed).await.expect("it comes back");
    assert_eq!(&echoed, b"hello");
}

#[tokio::test]
async fn all_lookups_for_a_caller_are_made_with_its_token() {
    let (kubernetes, proxy) = start(Settings::default()).await;
    let as_caller =
        |request: Request| request.header("Authorization", "Bearer caller").header("Impersonate-User", "ann");
    let group =
        json!({"computeTemplate": "small", "template": {"spec": {"containers": [{"name": "ray-head"}]}}});
    let cluster = json!({"spec": {"headGroupSpec": group, "workerGroupSpecs": [group, group]}});
    let create = as_caller(Request::new("POST", CLUSTERS).json(&cluster));
    assert_eq!(send(proxy.address, &create).await.expect("a response").status, 200);
    let service = Request::new("GET", "/api/v1/namespaces/default/services/head-svc/proxy/");
    assert_eq!(send(proxy.address, &as_caller(service)).await.expect("a response").status, 200);
    let seen = kubernetes.seen();
    let uris: Vec<_> = seen.iter().map(|seen| seen.uri.split('?').next().expect("a path")).collect();
    let services = "/api/v1/namespaces/default/services";
    let proxied = format!("{services}/head-svc/proxy/");
    // Three groups have the template, which is read once.
    let expected = ["/api/v1/namespaces/default/configmaps/small", CLUSTERS, services, &proxied];
    assert_eq!(uris, expected);
    for seen in &seen {
        assert_eq!(seen.header("authorization"), Some("Bearer caller"), "{}", seen.uri);
        assert_eq!(seen.header("impersonate-user"), Some("ann"), "{}", seen.uri);
        let authorizations = seen.headers.iter().filter(|(name, _)| name == "authorization").count();
        assert_eq!(authorizations, 1, "{}", seen.uri);
    }
}

#[tokio::test]
async fn a_token_can_be_required() {
    let settings = Settings {
        require_token: true,
        cors_allow_origin: "http://ui.example".to_owned(),
        ..Settings::default()
    };
    let (kubernetes, proxy) = start(settings).await;
    let refused = send(proxy.address, &Request::new("GET", CLUSTERS)).await.expect("a response");
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
    let empty = Request::new("GET", CLUSTERS).header("Authorization", "");
    assert_eq!(send(proxy.address, &empty).await.expect("a response").status, 401);
    let preflight = Request::new("OPTIONS", "/api/v1/namespaces/default/services/head-svc/proxy/")
        .header("Origin", "http://ui.example")
        .header("Access-Control-Request-Method", "POST");
    let preflight = send(proxy.address, &preflight).await.expect("a response");
    assert_eq!((preflight.status, preflight.header("access-control-allow-methods")), (204, Some("POST")));
    assert!(kubernetes.seen().is_empty(), "nothing was asked with the server's token");
    let own = Request::new("GET", CLUSTERS).header("Authorization", "Bearer caller");
    assert_eq!(send(proxy.address, &own).await.expect("a response").status, 200);
    for path in ["/healthz", "/metrics"] {
        assert_eq!(send(proxy.address, &Request::new("GET", path)).await.expect("a response").status, 200);
    }
}

#[tokio::test]
async fn requests_that_could_reach_more_are_refused() {
    let (kubernetes, proxy) = start(Settings::default()).await;
    let refused = [
        Request::new("GET", "/apis/ray.io/v1/%2e%2e/%2e%2e/api/v1/secrets"),
        Request::new("GET", "/apis/ray.io/v1/..%2f..%2f..%2fapi%2fv1%2fsecrets"),
        Request::new("GET", "/api/v1/namespaces/default/services/head-svc/proxy/%2e%2e/%2e%2e/plain/proxy/"),
        Request::new("GET", "/apis/ray.io/v1/x%0d%0aX-Evil:%201"),
        Request::new("GET", "/apis/ray.io/v1/x%"),
        Request::new("GET", CLUSTERS).header("Authorization", "Bearer a").header("Authorization", "Bearer b"),
        Request::new("GET", CLUSTERS)
            .header("Authorization", "Bearer a")
            .header("Connection", "Authorization"),
        Request::new("GET", CLUSTERS).header("Host", "a").header("Host", "b"),
        Request::new("GET", CLUSTERS).header("X\u{1}Bad", "1"),
        Request::new("POST", CLUSTERS).header("Content-Length", "3").header("Content-Length", "4"),
    ];
    for request in refused {
        let response = send(proxy.address, &request).await.expect("a response");
        assert_eq!(response.status, 400, "{request:?}: {}", response.text());
    }
    // The lookup must not become a request through the proxy of another Service.
    let lured = "/api/v1/namespaces/default%2Fservices%2Fplain%2Fproxy%2F/services/head-svc/proxy/";
    let response = send(proxy.address, &Request::new("GET", lured)).await.expect("a response");
    assert_eq!((response.status, response.text().as_str()), (500, "failed to list kuberay services\n"));
    assert!(kubernetes.seen().is_empty(), "{:?}", kubernetes.seen());
}

#[tokio::test]
async fn a_body_with_two_lengths_is_forwarded_as_one_request() {
    let (kubernetes, proxy) = start(Settings::default()).await;
    let hidden = format!("0\r\n\r\nGET {CLUSTERS}/smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut request = Request::new("POST", "/apis/ray.io/v1/namespaces/default/raycronjobs")
        .header("Transfer-Encoding", "chunked");
    request.body = Some(hidden.into_bytes());
    let _ = send(proxy.address, &request).await;
    let uris: Vec<_> = kubernetes.seen().into_iter().map(|seen| seen.uri).collect();
    assert!(uris.iter().all(|uri| !uri.contains("smuggled")), "{uris:?}");
}

#[tokio::test]
async fn bodies_are_bounded() {
    let (kubernetes, proxy) = start(Settings::default()).await;
    let mut request = Request::new("POST", CLUSTERS).header("Content-Type", "application/json");
    request.body = Some(vec![b' '; (4 << 20) + 1]);
    // The server may close the connection while the rest is being sent.
    if let Ok(response) = send(proxy.address, &request).await {
        assert_eq!(response.status, 413);
        assert_eq!(response.text(), "the request body is larger than 4 MiB\n");
    }
    assert!(kubernetes.seen().is_empty());
    let mut package =
        Request::new("PUT", "/api/v1/namespaces/default/services/head-svc/proxy/api/packages/x");
    package.body = Some(vec![1; 20 << 20]);
    assert_eq!(send(proxy.address, &package).await.expect("a response").status, 200);
    assert_eq!(kubernetes.seen().last().expect("a request").body.len(), 20 << 20);
}

#[tokio::test]
async fn it_stops_with_idle_connections_open_and_finishes_requests() {
    let (kubernetes, proxy) = start(Settings::default()).await;
    let idle = tokio::net::TcpStream::connect(proxy.address).await.expect("a connection");
    let slow = Request::new("GET", "/apis/ray.io/v1/namespaces/default/rayjobs/answer-503-1");
    let address = proxy.address;
    let slow = tokio::spawn(async move { send(address, &slow).await.expect("a response").status });
    // It is in progress once the first attempt was made.
    while kubernetes.seen().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::timeout(Duration::from_secs(9), proxy.stop()).await.expect("it stops");
    assert_eq!(slow.await.expect("it ends"), 200);
    drop(idle);
}

#[tokio::test]
async fn what_has_not_changed_has_no_content_type() {
    let (_kubernetes, proxy) = start(Settings::default()).await;
    for (code, expected) in [(304, None), (404, Some("application/json"))] {
        let path = format!("/apis/ray.io/v1/namespaces/default/rayjobs/answer-{code}");
        let response = send(proxy.address, &Request::new("GET", &path)).await.expect("a response");
        assert_eq!((response.status, response.header("content-type")), (code, expected));
    }
}

#[tokio::test]
async fn an_unreachable_api_is_a_bad_gateway() {
    support::use_tls();
    let unused = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address")
    };
    let config = kube::Config::new(format!("http://{unused}").parse().expect("a URL"));
    let proxy = Proxy::start(&config, Settings::default()).await;
    let response = send(proxy.address, &Request::new("GET", CLUSTERS)).await.expect("a response");
    assert_eq!((response.status, response.text().as_str()), (502, ""));
    let metrics = send(proxy.address, &Request::new("GET", "/metrics")).await.expect("a response").text();
    let counted = "quintet_api_proxy_requests_total{route=\"resource\",code=\"502\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}
