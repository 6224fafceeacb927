//! Valid requests, damaged at random: each is answered, soon, and every bad one with a Status that says why.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use quintet_apiserver::{Api, Chance, Clock, request::body::Answer};
use support::admin;

/// Method, path, content type, body: one of each kind of request.
const VALID: [(&str, &str, &str, &str); 14] = [
    ("GET", "/api/v1/namespaces/default/configmaps?limit=5&labelSelector=a%3Db", "", ""),
    ("GET", "/api/v1/pods?watch=true&resourceVersion=1&timeoutSeconds=1", "", ""),
    ("GET", "/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dx", "", ""),
    ("GET", "/openapi/v3/apis/apps/v1?hash=0", "", ""),
    (
        "POST",
        "/api/v1/namespaces/default/configmaps?fieldValidation=Strict",
        "application/json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"m-","labels":{"a":"b"}},"data":{"k":"v"}}"#,
    ),
    (
        "POST",
        "/api/v1/namespaces/default/pods?dryRun=All",
        "application/json",
        r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}},"ports":[{"containerPort":80}]}]}}"#,
    ),
    (
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All",
        "application/json",
        r#"{"metadata":{"name":"ws.ex.io"},"spec":{"group":"ex.io","scope":"Namespaced","names":{"plural":"ws","kind":"W"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-validations":[{"rule":"self.a.all(x, x > 1)"}],"properties":{"a":{"type":"array","maxItems":3,"items":{"type":"integer"}}}}}}}}]}}"#,
    ),
    (
        "POST",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All",
        "application/json",
        r#"{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["pods"]}]},"validations":[{"expression":"object.metadata.name.matches('^a[b-z]+$')"}]}}"#,
    ),
    (
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
        "application/json",
        r#"{"metadata":{"name":"l"},"spec":{"holderIdentity":"me","leaseDurationSeconds":15}}"#,
    ),
    (
        "PATCH",
        "/api/v1/namespaces/default?dryRun=All",
        "application/strategic-merge-patch+json",
        r#"{"metadata":{"labels":{"x":"y"},"finalizers":["a/b"],"$patch":"merge"}}"#,
    ),
    (
        "PATCH",
        "/api/v1/namespaces/default/configmaps/kube-root-ca.crt?dryRun=All",
        "application/json-patch+json",
        r#"[{"op":"copy","from":"/data","path":"/data/x"},{"op":"test","path":"/kind","value":"ConfigMap"}]"#,
    ),
    (
        "PATCH",
        "/api/v1/namespaces/default/configmaps/a?fieldManager=f&force=true",
        "application/apply-patch+yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: |\n    v\n",
    ),
    (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "application/vnd.kubernetes.protobuf",
        "k8s\0\n4\n\x18authorization.k8s.io/v1\x12\x18SelfSubjectAccessReview\x12\x0e\n\0\x12\n\n\x08\n\0\x12\x03get",
    ),
    (
        "DELETE",
        "/api/v1/namespaces/default/configmaps?labelSelector=a",
        "application/json",
        r#"{"propagationPolicy":"Foreground","dryRun":["All"],"gracePeriodSeconds":5}"#,
    ),
];

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit.max(1)
    }
}

/// Pieces that mean something to somebody.
const PIECES: [&[u8]; 20] = [
    b"null",
    b"-1",
    b"99999999999999999999",
    b"1e400",
    b"\"\"",
    b"{}",
    b"[]",
    b"[[[[[[[[",
    b"\"\\ud800\"",
    b"\xff\xfe",
    b"../..",
    b"%00",
    b"\0",
    b"$patch",
    b"9223372036854775807",
    b"k8s\0",
    b"&a [*a,*a]",
    b"self.all(x, self.all(y, true))",
    b"kube-system",
    b"\xf0\x9f\xa6\x80",
];

fn damage(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(text.len() + 1);
        let end = (at + random.below(8)).min(text.len());
        match random.below(4) {
            0 => drop(text.drain(at..end)),
            1 => drop(text.splice(at..end, PIECES[random.below(PIECES.len())].iter().copied())),
            2 => {
                let copy = text[at..end].repeat(1 + random.below(20));
                drop(text.splice(at..at, copy));
            }
            _ if at < text.len() => text[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
    text
}

fn request(random: &mut Random) -> Option<Request<Bytes>> {
    let (method, path, kind, body) = VALID[random.below(VALID.len())];
    let is_path = body.is_empty() || random.below(3) == 0;
    let path = if is_path { damage(path.as_bytes(), random) } else { path.as_bytes().to_vec() };
    let body = if is_path { body.as_bytes().to_vec() } else { damage(body.as_bytes(), random) };
    let uri = http::Uri::try_from(path).ok().filter(|uri| uri.path().starts_with('/'))?;
    Request::builder().method(method).uri(uri).header("content-type", kind).body(body.into()).ok()
}

async fn check(api: &Api, seed: u64) {
    let Some(request) = request(&mut Random(seed)) else { return };
    let shown = format!(
        "seed {seed}: {} {}\n{}",
        request.method(),
        request.uri(),
        String::from_utf8_lossy(request.body())
    );
    let answer = tokio::time::timeout(Duration::from_secs(20), api.handle(request, admin()));
    let response = answer.await;
    assert!(response.is_ok(), "no answer to {shown}");
    let response = response.unwrap();
    let code = response.status().as_u16();
    let (head, body) = response.into_parts();
    assert!(code < 500 || matches!(code, 500 | 503 | 504), "{code} to {shown}");
    let Answer::Whole(_) = &body else { return };
    let bytes = body.collect().await.unwrap().to_bytes();
    assert!(bytes.len() < 8 << 20, "{} bytes to {shown}", bytes.len());
    let is_json = head.headers.get("content-type").is_some_and(|value| value == "application/json");
    if code >= 400 && is_json {
        let status: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &code.into()), "{shown}");
        assert!(status["message"].as_str().is_some_and(|message| !message.is_empty()), "{shown}");
    }
}

#[tokio::test]
async fn damaged_requests_are_answered() {
    let template = Api::in_memory(&[]).await.unwrap();
    // More of them, or others: MUTATIONS=FIRST..LAST.
    let range = std::env::var("MUTATIONS").ok();
    let range = range.as_deref().and_then(|range| range.split_once(".."));
    let range =
        range.and_then(|(first, last)| Some(first.parse().ok()?..last.parse().ok()?)).unwrap_or(0..3000_u64);
    let mut api = template.fork(Clock::system(), Chance::seeded(0));
    for seed in range {
        if seed % 500 == 0 {
            api.stop().await;
            api = template.fork(Clock::system(), Chance::seeded(seed));
        }
        check(&api, seed).await;
    }
}
