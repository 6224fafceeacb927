//! Tokens for Google's APIs, found as its clients find them: a file with credentials, those of `gcloud`, or the service
//! account of the instance or pod.

use std::path::PathBuf;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Request;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::config::Variables;
use super::super::net::Http;
use super::super::token::{Expiring, ask_json, bearer, exchange, read};
use super::super::{Result, StoreError};
use crate::model::time;

const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type";

const TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Where tokens come from.
pub(super) struct Provider {
    variables: Variables,
    issued: Expiring<String>,
}

/// A file with credentials.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum File {
    ServiceAccount(ServiceAccount),
    AuthorizedUser { client_id: String, client_secret: String, refresh_token: String },
    ExternalAccount(ExternalAccount),
}

#[derive(Deserialize)]
struct ServiceAccount {
    client_email: String,
    private_key: String,
    #[serde(default)]
    private_key_id: String,
    #[serde(default = "token_uri")]
    token_uri: String,
}

fn token_uri() -> String {
    "https://oauth2.googleapis.com/token".to_owned()
}

/// The identity of another platform, such as a Kubernetes service account, that Google accepts.
#[derive(Deserialize)]
struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    credential_source: Source,
    #[serde(default)]
    service_account_impersonation_url: Option<String>,
}

#[derive(Deserialize)]
struct Source {
    file: String,
    #[serde(default)]
    format: Format,
}

#[derive(Default, Deserialize)]
struct Format {
    #[serde(default)]
    subject_token_field_name: Option<String>,
}

impl Provider {
    pub(super) fn new(variables: Variables) -> Self {
        Self { variables, issued: Expiring::new() }
    }

    pub(super) async fn token(&self, http: &Http) -> Result<String> {
        self.issued.get(self.issue(http)).await
    }

    /// The file that a variable names, or the one that `gcloud` has written.
    fn file(&self) -> Option<String> {
        if let Some(path) = (self.variables)("GOOGLE_APPLICATION_CREDENTIALS") {
            return Some(path);
        }
        let home = PathBuf::from((self.variables)("HOME")?);
        let path = home.join(".config/gcloud/application_default_credentials.json");
        path.exists().then(|| path.display().to_string())
    }

    async fn issue(&self, http: &Http) -> Result<(String, Duration)> {
        let Some(path) = self.file() else { return self.of_instance(http).await };
        let file = serde_json::from_str(&read(&path, "GCS")?)
            .map_err(|error| StoreError(format!("no credentials for GCS: {path}: {error}")))?;
        match file {
            File::ServiceAccount(account) => {
                let assertion = assertion(&account, time::now() / 1_000_000_000)
                    .map_err(|why| StoreError(format!("no credentials for GCS: {path}: {why}")))?;
                let grant = format!("{GRANT_TYPE}:jwt-bearer");
                let form = [("grant_type", grant.as_str()), ("assertion", &assertion)];
                exchange(http, &account.token_uri, &form, "GCS").await
            }
            File::AuthorizedUser { client_id, client_secret, refresh_token } => {
                let form = [
                    ("grant_type", "refresh_token"),
                    ("client_id", &client_id),
                    ("client_secret", &client_secret),
                    ("refresh_token", &refresh_token),
                ];
                exchange(http, &token_uri(), &form, "GCS").await
            }
            File::ExternalAccount(account) => federated(http, &account).await,
        }
    }

    async fn of_instance(&self, http: &Http) -> Result<(String, Duration)> {
        let host = (self.variables)("GCE_METADATA_HOST");
        let host = host.unwrap_or_else(|| "metadata.google.internal".to_owned());
        let url = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token");
        let request = Request::get(url).header("Metadata-Flavor", "Google");
        let response = ask_json(http, request, "", "GCS").await.map_err(|StoreError(why)| {
            StoreError(format!("{why}; GOOGLE_APPLICATION_CREDENTIALS names a file with credentials"))
        })?;
        bearer(&response, "GCS")
    }
}

/// Exchanges the token of another platform, and then for one of a service account if that is to be impersonated.
async fn federated(http: &Http, account: &ExternalAccount) -> Result<(String, Duration)> {
    let Source { file, format } = &account.credential_source;
    let text = read(file, "GCS")?;
    let subject = match &format.subject_token_field_name {
        None => text.trim().to_owned(),
        Some(field) => {
            let object: Value = serde_json::from_str(&text).unwrap_or_default();
            object[field.as_str()].as_str().unwrap_or_default().to_owned()
        }
    };
    let grant = format!("{GRANT_TYPE}:token-exchange");
    let form = [
        ("grant_type", grant.as_str()),
        ("audience", &account.audience),
        ("scope", "https://www.googleapis.com/auth/cloud-platform"),
        ("requested_token_type", TOKEN_TYPE),
        ("subject_token_type", &account.subject_token_type),
        ("subject_token", &subject),
    ];
    let (token, lifetime) = exchange(http, &account.token_url, &form, "GCS").await?;
    let Some(url) = &account.service_account_impersonation_url else { return Ok((token, lifetime)) };
    let request = Request::post(url)
        .header("Authorization", format!("Bearer {token}"))
        .header("Content-Type", "application/json");
    let response = ask_json(http, request, json!({ "scope": [SCOPE] }).to_string(), "GCS").await?;
    let token = response["accessToken"].as_str();
    let token =
        token.ok_or_else(|| StoreError("no credentials for GCS: there is no accessToken".to_owned()))?;
    Ok((token.to_owned(), lifetime))
}

/// A signed text that says who the service account is.
fn assertion(account: &ServiceAccount, now: i64) -> std::result::Result<String, String> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(account.private_key.as_bytes())
        .map_err(|error| format!("private_key is no PEM: {error}"))?;
    let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der())
        .map_err(|error| format!("private_key is no RSA key: {error}"))?;
    let header = json!({ "alg": "RS256", "typ": "JWT", "kid": account.private_key_id });
    let claims = json!({ "iss": account.client_email, "scope": SCOPE, "aud": account.token_uri, "iat": now, "exp": now + 3600 });
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(header), encode(claims));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .map_err(|_| "private_key cannot sign".to_owned())?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests;
