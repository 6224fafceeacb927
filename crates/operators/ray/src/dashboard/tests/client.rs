//! The client against a real server that behaves as Ray does, well and badly.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
};
use parking_lot::Mutex;
use serde_json::json;

use super::*;

/// What the server was asked.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    method: String,
    uri: String,
    authorization: Option<String>,
    body: String,
}

/// A server that gives one response to everything, and remembers what it was asked.
struct Server {
    host: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Script {
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Answers in order; the last one is repeated.
    responses: Arc<Mutex<Vec<(u16, String)>>>,
    hangs: bool,
}

async fn response(
    State(script): State<Script>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    script.asked.lock().push(Asked {
        method: method.to_string(),
        uri: uri.to_string(),
        authorization: headers.get(http::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned()),
        body: String::from_utf8(body.to_vec()).unwrap(),
    });
    if script.hangs {
        std::future::pending::<()>().await;
    }
    let mut responses = script.responses.lock();
    let (code, text) = if responses.len() > 1 { responses.remove(0) } else { responses[0].clone() };
    (StatusCode::from_u16(code).unwrap(), text)
}

#[expect(clippy::disallowed_methods, reason = "the server ends with the test")]
async fn serve(responses: &[(u16, &str)], hangs: bool) -> Server {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let responses = responses.iter().map(|(code, text)| (*code, (*text).to_owned())).collect();
    let script = Script { asked: Arc::clone(&asked), responses: Arc::new(Mutex::new(responses)), hangs };
    let router = Router::new().fallback(response).with_state(script);
    let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Server { host, asked, task }
}

fn client() -> HttpDashboard {
    HttpDashboard::new(Route::Direct, FixedToken("secret".to_owned()))
}

#[tokio::test]
async fn a_job_is_read_and_its_absence_is_told_from_trouble() {
    let body = r#"{"status": "SUCCEEDED", "message": "done", "start_time": 1767225600000, "end_time": null, "more": 1}"#;
    let server = serve(&[(200, body)], false).await;
    let info = client().job(&address(&server.host, None), "a/b").await.unwrap().unwrap();
    assert_eq!(info.status, JobStatus::Succeeded);
    assert_eq!((info.message.as_str(), info.end_time), ("done", None));
    assert_eq!(info.start_time.unwrap().to_string(), "2026-01-01T00:00:00Z");
    let asked = server.asked.lock().remove(0);
    assert_eq!((asked.method.as_str(), asked.uri.as_str()), ("GET", "/api/jobs/a%2Fb"));
    assert_eq!(asked.authorization, None);

    let server = serve(&[(404, "Job not found")], false).await;
    assert_eq!(client().job(&address(&server.host, None), "a").await.unwrap(), None);

    for (code, body) in [(500, r#"{"status": "RUNNING"}"#), (503, "{}"), (401, "Unauthorized")] {
        let server = serve(&[(code, body)], false).await;
        let error = client().job(&address(&server.host, None), "a").await.unwrap_err();
        assert!(matches!(&error, DashboardError::Refused { code: told, .. } if *told == code), "{error}");
    }
    for body in ["<html>", "", "{}", r#"{"status": ""}"#, r#"{"status": "ODD"}"#] {
        let server = serve(&[(200, body)], false).await;
        let error = client().job(&address(&server.host, None), "a").await.unwrap_err();
        assert!(matches!(error, DashboardError::Garbage { .. }), "{body:?}: {error}");
    }
}

#[tokio::test]
async fn a_token_goes_where_ray_looks_for_it() {
    let server = serve(&[(404, "")], false).await;
    client().job(&address(&server.host, Some("auth")), "a").await.unwrap();
    assert_eq!(server.asked.lock()[0].authorization.as_deref(), Some("Bearer secret"));
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let server = serve(&[(200, "{}")], true).await;
    let client = client().waiting(std::time::Duration::from_millis(100));
    let error = client.job(&address(&server.host, None), "a").await.unwrap_err();
    assert!(error.to_string().contains("timed out after 100ms"), "{error}");
    let nobody =
        tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let error = client.job(&address(&nobody, None), "a").await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_body_without_end_is_not_read_to_the_end() {
    let huge = "x".repeat(9 << 20);
    let server = serve(&[(200, &huge)], false).await;
    let error = client().job(&address(&server.host, None), "a").await.unwrap_err();
    assert!(matches!(error, DashboardError::Unreachable { .. }), "{error}");
    assert!(error.to_string().len() < 1000);
}

#[tokio::test]
async fn a_submission() {
    let job =
        Submission { entrypoint: "python a.py".into(), submission_id: "a".into(), ..Submission::default() };
    let server = serve(&[(200, r#"{"job_id": "a", "submission_id": "a"}"#)], false).await;
    client().submit(&address(&server.host, None), &job).await.unwrap();
    let asked = server.asked.lock().remove(0);
    assert_eq!((asked.method.as_str(), asked.uri.as_str()), ("POST", "/api/jobs/"));
    assert_eq!(asked.body, r#"{"entrypoint":"python a.py","submission_id":"a"}"#);

    let taken = "ValueError: Job with submission_id a already exists. Please use a different submission_id.";
    let server = serve(&[(500, taken)], false).await;
    let error = client().submit(&address(&server.host, None), &job).await.unwrap_err();
    assert_eq!(error, DashboardError::AlreadyUsed("a".to_owned()));

    let server = serve(&[(500, "no space left")], false).await;
    let error = client().submit(&address(&server.host, None), &job).await.unwrap_err();
    assert!(error.to_string().contains("no space left"), "{error}");
}

#[tokio::test]
async fn stopping_what_has_ended_is_no_error() {
    let server = serve(&[(200, r#"{"stopped": true}"#)], false).await;
    client().stop(&address(&server.host, None), "a").await.unwrap();
    assert_eq!(server.asked.lock()[0].uri, "/api/jobs/a/stop");
    for (then, works) in [("SUCCEEDED", true), ("RUNNING", false)] {
        let info = json!({"status": then}).to_string();
        let server = serve(&[(200, r#"{"stopped": false}"#), (200, &info)], false).await;
        let stopped = client().stop(&address(&server.host, None), "a").await;
        assert_eq!(stopped.is_ok(), works, "{then}");
    }
    let server = serve(&[(404, "")], false).await;
    client().stop(&address(&server.host, None), "a").await.unwrap();
}

#[tokio::test]
async fn applications_are_read_and_deployed() {
    let body = json!({"applications": {
        "": {"status": "RUNNING", "deployments": {"d": {"status": "HEALTHY", "message": ""}}},
        "b": {"status": "DEPLOYING", "message": "soon"},
    }, "proxies": {}});
    let server = serve(&[(200, &body.to_string())], false).await;
    let response = client().applications(&address(&server.host, None)).await.unwrap();
    assert_eq!(response.applications.keys().collect::<Vec<_>>(), ["b", "default"]);
    assert_eq!(response.applications["default"].deployments["d"].status, "HEALTHY");
    assert_eq!(server.asked.lock()[0].uri, "/api/serve/applications/?api_type=declarative");

    let server = serve(&[(200, "")], false).await;
    client().deploy(&address(&server.host, None), &json!({"applications": []})).await.unwrap();
    let asked = server.asked.lock().remove(0);
    assert_eq!((asked.method.as_str(), asked.body.as_str()), ("PUT", r#"{"applications":[]}"#));

    let server = serve(&[(400, "bad schema")], false).await;
    let error = client().deploy(&address(&server.host, None), &json!({})).await.unwrap_err();
    assert_eq!(error.while_trying("cannot deploy").class(), Class::Invalid);
}

#[tokio::test]
async fn a_proxy_is_healthy_if_it_says_so() {
    for (code, healthy) in [(200, true), (204, false), (503, false)] {
        let server = serve(&[(code, "success")], false).await;
        let (ip, port) = server.host.split_once(':').unwrap();
        let at = ProxyAddress {
            namespace: "ns".into(),
            pod: "head".into(),
            ip: ip.into(),
            port: port.parse().unwrap(),
        };
        assert_eq!(client().is_healthy(&at).await, healthy, "{code}");
        assert_eq!(server.asked.lock()[0].uri, "/-/healthz");
    }
}

#[tokio::test]
async fn through_the_api_server() {
    let server = serve(&[(404, "")], false).await;
    let config = kube::Config::new(format!("http://{}", server.host).parse().unwrap());
    let route = Route::Proxied(kube::Client::try_from(config).unwrap());
    let client = HttpDashboard::new(route, FixedToken("secret".to_owned()));
    assert_eq!(client.job(&address("unused", Some("auth")), "a").await.unwrap(), None);
    let at = ProxyAddress { namespace: "ns".into(), pod: "head".into(), ip: "unused".into(), port: 8000 };
    assert!(!client.is_healthy(&at).await);
    let asked = server.asked.lock();
    assert_eq!(asked[0].uri, "/api/v1/namespaces/ns/services/head:dashboard/proxy/api/jobs/a");
    assert_eq!(asked[0].authorization.as_deref(), Some("Bearer secret"));
    assert_eq!(asked[1].uri, "/api/v1/namespaces/ns/pods/head:8000/proxy/-/healthz");
}

#[tokio::test]
async fn what_the_api_server_does_not_find_says_nothing_about_the_job() {
    let missing = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "services \"head\" not found",
    });
    for (body, is_ray) in [(missing.to_string(), false), ("Job a does not exist".to_owned(), true)] {
        let server = serve(&[(404, &body)], false).await;
        let config = kube::Config::new(format!("http://{}", server.host).parse().unwrap());
        let route = Route::Proxied(kube::Client::try_from(config).unwrap());
        let client = HttpDashboard::new(route, FixedToken("secret".to_owned()));
        match client.job(&address("unused", None), "a").await {
            Ok(None) => assert!(is_ray, "{body}"),
            Err(error @ DashboardError::Unreachable { .. }) => {
                assert!(!is_ray && error.to_string().contains("services \"head\" not found"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_refusal_is_told_without_what_ray_quotes() {
    let trace = "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    check()\n\
                 pydantic.ValidationError: 1 validation error for ServeDeploySchema\napplications\n  \
                 field required [input_value={'env_vars': {'PASSWORD': 'hush'}}]\n";
    let long = format!("bad value {}", "x".repeat(1000));
    for (body, told) in [
        (trace, "answered 400: pydantic.ValidationError: 1 validation error for ServeDeploySchema"),
        ("no such field\n{'PASSWORD': 'hush'}", "answered 400: no such field"),
        (long.as_str(), "answered 400: bad value x"),
        ("", "answered 400: "),
    ] {
        let server = serve(&[(400, body)], false).await;
        let error = client().deploy(&address(&server.host, None), &json!({})).await.unwrap_err().to_string();
        assert!(error.contains(told) && !error.contains("hush") && error.len() < 300, "{error}");
    }
}
