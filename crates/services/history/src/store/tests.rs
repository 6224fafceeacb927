//! Clients of cloud storage against servers that respond as told: pages of lists, tokens, errors.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::json;

use super::azure::{Azure, access};
use super::fake::{Received, serve, variables};
use super::gcs::Gcs;
use super::s3::{Issuer, S3, S3Settings};
use super::{Objects, StoreError};

fn s3(issuer: Issuer, address: &str, pairs: &[(&'static str, String)]) -> S3 {
    let settings = S3Settings {
        issuer,
        bucket: "b".to_owned(),
        endpoint: Some(format!("http://{address}")),
        region: "r".to_owned(),
        is_path_style: true,
        is_plain: true,
    };
    S3::new(settings, variables(pairs)).expect("a client")
}

#[tokio::test]
async fn the_length_of_an_empty_object_is_sent() {
    let address = serve(|received: &Received| {
        (if received.headers.contains("content-length: 0\r\n") { 200 } else { 411 }, String::new())
    });
    let keys = [("AWS_ACCESS_KEY_ID", "k".to_owned()), ("AWS_SECRET_ACCESS_KEY", "s".to_owned())];
    s3(Issuer::Aws, &address, &keys).put("marker", Bytes::new()).await.expect("a write");
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let address = serve(|received: &Received| {
        let is_first = !received.line.contains("continuation-token=2%2F");
        let (name, next) = if is_first { ("p/b", "2/") } else { ("p/a &amp; c", "") };
        (
            200,
            format!(
                "<L><Contents><Key>{name}</Key></Contents><Contents><Key>p/d/</Key></Contents><NextContinuationToken>{next}</NextContinuationToken></L>"
            ),
        )
    });
    let keys = [("AWS_ACCESS_KEY_ID", "k".to_owned()), ("AWS_SECRET_ACCESS_KEY", "s".to_owned())];
    let found = s3(Issuer::Aws, &address, &keys).list("p/", true).await;
    assert_eq!(found.expect("a list"), ["a & c", "b"]);

    let address = serve(|received: &Received| {
        let is_first = !received.line.contains("pageToken=2%2F");
        let page = if is_first {
            json!({ "items": [{ "name": "p/b" }, { "name": "p/d/" }], "nextPageToken": "2/" })
        } else {
            json!({ "prefixes": ["p/a/"] })
        };
        (200, page.to_string())
    });
    let gcs = Gcs::new("b".to_owned(), variables(&[("STORAGE_EMULATOR_HOST", address)])).expect("a client");
    assert_eq!(gcs.list("p/", false).await.expect("a list"), ["a/", "b"]);

    let address = serve(|received: &Received| {
        assert!(received.line.ends_with("&sig=x HTTP/1.1\r\n"), "{}", received.line);
        let is_first = !received.line.contains("marker=2%2F");
        let (part, next) = if is_first {
            ("<Blob><Name>p/b</Name></Blob>", "2/")
        } else {
            ("<BlobPrefix><Name>p/a/</Name></BlobPrefix>", "")
        };
        (200, format!("<E><Blobs>{part}</Blobs><NextMarker>{next}</NextMarker></E>"))
    });
    let connection = format!("BlobEndpoint=http://{address};SharedAccessSignature=sig=x");
    let access = access("", Some(connection), None).expect("access");
    let azure = Azure::new(access, "c".to_owned(), variables(&[])).expect("a client");
    assert_eq!(azure.list("p/", false).await.expect("a list"), ["a/", "b"]);
}

#[tokio::test]
async fn reads_are_sent_again_when_the_store_is_busy() {
    let keys = [("AWS_ACCESS_KEY_ID", "k".to_owned()), ("AWS_SECRET_ACCESS_KEY", "s".to_owned())];
    let busy = |times: usize| {
        let asked = AtomicUsize::new(0);
        serve(move |_: &Received| {
            let is_busy = asked.fetch_add(1, Ordering::Relaxed) < times;
            if is_busy { (503, "<Code>SlowDown</Code>".to_owned()) } else { (200, "text".to_owned()) }
        })
    };
    let read = s3(Issuer::Aws, &busy(2), &keys).read("k", 0, 4).await;
    assert_eq!(read.expect("an object"), "text");
    let StoreError(error) = s3(Issuer::Aws, &busy(9), &keys).read("k", 0, 4).await.expect_err("busy");
    assert!(error.contains("503") && error.contains("SlowDown"), "{error}");
    // The collector tries a write again itself, when it comes to it.
    let write = s3(Issuer::Aws, &busy(1), &keys).put("k", Bytes::new()).await;
    write.expect_err("busy");
}

#[tokio::test]
async fn a_pod_of_aliyun_gets_keys_for_its_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let token = directory.path().join("token");
    std::fs::write(&token, "of the pod\n").expect("a file");
    let sts = serve(|received: &Received| {
        assert!(received.body.contains("OIDCToken=of%20the%20pod"), "{}", received.body);
        let keys = json!({ "AccessKeyId": "k", "AccessKeySecret": "s", "SecurityToken": "t" });
        (200, json!({ "Credentials": keys }).to_string())
    });
    let address = serve(|received: &Received| {
        let is_signed = received.headers.contains("x-amz-security-token: t\r\n")
            && received.headers.contains("credential=k/");
        (if is_signed { 200 } else { 403 }, "text".to_owned())
    });
    let pairs = [
        ("ALIBABA_CLOUD_ROLE_ARN", "acs:ram::1:role/x".to_owned()),
        ("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "acs:ram::1:oidc-provider/x".to_owned()),
        ("ALIBABA_CLOUD_OIDC_TOKEN_FILE", token.display().to_string()),
        ("ALIBABA_CLOUD_STS_ENDPOINT", format!("http://{sts}")),
    ];
    let oss = s3(Issuer::Aliyun, &address, &pairs);
    assert_eq!(oss.read("k", 0, 4).await.expect("an object"), "text");
    let StoreError(error) = s3(Issuer::Aliyun, &address, &[]).size("k").await.expect_err("no credentials");
    assert!(error.contains("ALIBABA_CLOUD_ACCESS_KEY_ID"), "{error}");
}

#[tokio::test]
async fn a_pod_of_azure_gets_a_token_for_its_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let token = directory.path().join("token");
    std::fs::write(&token, "of-the-pod").expect("a file");
    let authority = serve(|received: &Received| {
        assert!(received.line.starts_with("POST /tenant/oauth2/v2.0/token "), "{}", received.line);
        let is_known = received.body.contains("client_assertion=of-the-pod")
            && received.body.contains("client_id=client")
            || received.body.contains("client_secret=secret");
        if is_known {
            (200, json!({ "access_token": "issued", "expires_in": 3599 }).to_string())
        } else {
            (401, "unknown".to_owned())
        }
    });
    let address = serve(|received: &Received| {
        (if received.headers.contains("authorization: bearer issued") { 200 } else { 403 }, "text".to_owned())
    });
    let mut pairs = vec![
        ("AZURE_TENANT_ID", "tenant".to_owned()),
        ("AZURE_CLIENT_ID", "client".to_owned()),
        ("AZURE_AUTHORITY_HOST", format!("http://{authority}/")),
        ("AZURE_FEDERATED_TOKEN_FILE", token.display().to_string()),
    ];
    let read = async |mode: &str, pairs: &[(&'static str, String)]| {
        let access = access(mode, None, Some(format!("http://{address}"))).expect("access");
        let azure = Azure::new(access, "c".to_owned(), variables(pairs)).expect("a client");
        azure.read("k", 0, 4).await.map_err(|error| error.to_string())
    };
    assert_eq!(read("workload_identity", &pairs).await.as_deref(), Ok(&b"text"[..]));
    assert_eq!(read("default", &pairs).await.as_deref(), Ok(&b"text"[..]));
    pairs[3] = ("AZURE_CLIENT_SECRET", "secret".to_owned());
    assert_eq!(read("", &pairs).await.as_deref(), Ok(&b"text"[..]));
    let error = read("workload_identity", &pairs).await.expect_err("no token file");
    assert!(error.contains("AZURE_FEDERATED_TOKEN_FILE is not set"), "{error}");
}
