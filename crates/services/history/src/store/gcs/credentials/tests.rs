use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::Provider;
use crate::store::fake::{Received, serve, variables};
use crate::store::net::Http;

async fn token(file: &Value) -> Result<String, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("credentials.json");
    std::fs::write(&path, file.to_string()).expect("a file");
    let path = path.display().to_string();
    let provider = Provider::new(variables(&[("GOOGLE_APPLICATION_CREDENTIALS", path)]));
    provider.token(&Http::new().expect("a client")).await.map_err(|error| error.to_string())
}

fn responds(token: &str) -> (u16, String) {
    (200, json!({ "access_token": token, "expires_in": 3599 }).to_string())
}

#[tokio::test]
async fn a_service_account_signs_who_it_is() {
    let key = KeyPair::generate(KeySize::Rsa2048).expect("a key");
    let public = key.public_key().as_ref().to_vec();
    let der: Pkcs8V1Der<'_> = key.as_der().expect("a key");
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(der.as_ref())
    );
    let address = serve(move |received: &Received| {
        let assertion = received.body.split("assertion=").nth(1).unwrap_or_default();
        let (signed, signature) = assertion.rsplit_once('.').expect("a signed text");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64");
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &public);
        public.verify(signed.as_bytes(), &signature).expect("its signature");
        let claims = URL_SAFE_NO_PAD.decode(signed.split('.').nth(1).expect("claims")).expect("base64");
        let claims: Value = serde_json::from_slice(&claims).expect("JSON");
        assert_eq!(claims["iss"], "a@p.iam");
        responds("of the account")
    });
    let mut file = json!({ "type": "service_account", "client_email": "a@p.iam", "private_key_id": "1",
        "private_key": pem, "token_uri": format!("http://{address}/token") });
    assert_eq!(token(&file).await.as_deref(), Ok("of the account"));
    file["private_key"] = json!("none");
    assert!(token(&file).await.is_err_and(|error| error.contains("private_key is no PEM")));
}

#[tokio::test]
async fn the_identity_of_a_pod_is_exchanged() {
    let directory = tempfile::tempdir().expect("a directory");
    let subject = directory.path().join("token");
    std::fs::write(&subject, r#"{"id":"of the pod"}"#).expect("a file");
    let address = serve(|received: &Received| match received.line.split(' ').nth(1) {
        Some("/sts") => {
            assert!(received.body.contains("subject_token=of%20the%20pod"), "{}", received.body);
            responds("federated")
        }
        Some("/impersonate") if received.headers.contains("authorization: bearer federated") => {
            (200, json!({ "accessToken": "of the account" }).to_string())
        }
        _ => (400, received.line.clone()),
    });
    let file = json!({ "type": "external_account", "audience": "a", "subject_token_type": "urn:x",
        "token_url": format!("http://{address}/sts"),
        "service_account_impersonation_url": format!("http://{address}/impersonate"),
        "credential_source": { "file": subject, "format": { "type": "json", "subject_token_field_name": "id" } } });
    assert_eq!(token(&file).await.as_deref(), Ok("of the account"));
}

#[tokio::test]
async fn the_instance_gives_a_token_or_says_why_not() {
    let address = serve(|received: &Received| {
        let is_google = received.headers.contains("metadata-flavor: google");
        if is_google && received.line.contains("/service-accounts/default/token") {
            responds("of the instance")
        } else {
            (404, String::new())
        }
    });
    let http = Http::new().expect("a client");
    let provider = Provider::new(variables(&[("GCE_METADATA_HOST", address)]));
    assert_eq!(provider.token(&http).await.ok().as_deref(), Some("of the instance"));
    let provider = Provider::new(variables(&[("GCE_METADATA_HOST", "127.0.0.1:1".to_owned())]));
    let error = provider.token(&http).await.expect_err("no token").to_string();
    assert!(error.contains("GOOGLE_APPLICATION_CREDENTIALS"), "{error}");
}
