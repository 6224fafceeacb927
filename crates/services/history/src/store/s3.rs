//! Amazon S3 and what speaks its API.

use std::path::Path;
use std::time::{Duration, Instant};

use aws_lc_rs::{digest, hmac};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use parking_lot::Mutex;
use serde::Deserialize;

use super::net::{Body, Http, content, file_content, percent_encoded};
use super::{Objects, Result, StoreError, xml};
use crate::model::ids::push_hex;
use crate::model::time;

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Larger answers are not read.
const LARGEST: usize = 256 * 1024 * 1024;

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Where a bucket is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct S3Settings {
    pub(super) bucket: String,
    pub(super) endpoint: Option<String>,
    pub(super) region: String,
    pub(super) is_path_style: bool,
    pub(super) is_plain: bool,
}

#[derive(Clone)]
struct Credentials {
    key: String,
    secret: String,
    token: Option<String>,
    /// When they were read; those of the environment do not expire.
    read: Option<Instant>,
}

/// Credentials of an instance are read again after this time.
const CREDENTIAL_AGE: Duration = Duration::from_mins(10);

/// A bucket.
pub(crate) struct S3 {
    http: Http,
    settings: S3Settings,
    credentials: Mutex<Option<Credentials>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Issued {
    access_key_id: String,
    secret_access_key: String,
    #[serde(default)]
    token: Option<String>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl S3 {
    pub(super) fn new(settings: S3Settings) -> Result<Self> {
        Ok(Self { http: Http::new()?, settings, credentials: Mutex::new(None) })
    }

    /// Scheme and host of the bucket, and the path that keys are below.
    fn place(&self) -> (String, String) {
        let settings = &self.settings;
        let scheme = if settings.is_plain { "http" } else { "https" };
        let endpoint = match &settings.endpoint {
            Some(endpoint) if endpoint.contains("://") => endpoint.trim_end_matches('/').to_owned(),
            Some(endpoint) => format!("{scheme}://{}", endpoint.trim_end_matches('/')),
            None => format!("{scheme}://s3.{}.amazonaws.com", settings.region),
        };
        if settings.is_path_style {
            return (endpoint, format!("/{}", settings.bucket));
        }
        let (scheme, host) = endpoint.split_once("://").unwrap_or(("https", &endpoint));
        (format!("{scheme}://{}.{host}", settings.bucket), String::new())
    }

    /// Credentials of the environment, or those of the container or instance.
    async fn credentials(&self) -> Result<Option<Credentials>> {
        if let (Some(key), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"))
        {
            return Ok(Some(Credentials { key, secret, token: variable("AWS_SESSION_TOKEN"), read: None }));
        }
        let known = self.credentials.lock().clone();
        if let Some(known) = known.filter(|it| it.read.is_none_or(|read| read.elapsed() < CREDENTIAL_AGE)) {
            return Ok(Some(known));
        }
        let issued = self.issued().await?;
        let Some(issued) = issued else { return Ok(None) };
        let credentials = Credentials {
            key: issued.access_key_id,
            secret: issued.secret_access_key,
            token: issued.token,
            read: Some(Instant::now()),
        };
        *self.credentials.lock() = Some(credentials.clone());
        Ok(Some(credentials))
    }

    async fn ask(&self, request: http::request::Builder, body: Bytes) -> Result<String> {
        let request = request.body(content(body)).map_err(|error| StoreError(error.to_string()))?;
        let response = self.http.fetch(request, Duration::from_secs(5), 1024 * 1024).await;
        let response = response.map_err(|error| StoreError(format!("no credentials for S3: {error}")))?;
        if !response.status().is_success() {
            return Err(StoreError(format!("no credentials for S3: status {}", response.status())));
        }
        Ok(String::from_utf8_lossy(response.body()).into_owned())
    }

    async fn issued(&self) -> Result<Option<Issued>> {
        let parse = |text: String| {
            serde_json::from_str::<Issued>(&text)
                .map_err(|error| StoreError(format!("credentials for S3: {error}")))
        };
        if let (Some(role), Some(file)) = (variable("AWS_ROLE_ARN"), variable("AWS_WEB_IDENTITY_TOKEN_FILE"))
        {
            let token =
                std::fs::read_to_string(&file).map_err(|error| StoreError(format!("{file}: {error}")))?;
            let form = format!(
                "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleSessionName=quintet&RoleArn={}&WebIdentityToken={}",
                percent_encoded(&role, false),
                percent_encoded(token.trim(), false)
            );
            let url = format!("https://sts.{}.amazonaws.com/", self.settings.region);
            let request = Request::post(url).header("Content-Type", "application/x-www-form-urlencoded");
            let answer = self.ask(request, Bytes::from(form)).await?;
            let text = |name: &str| xml::text(&answer, name).unwrap_or_default();
            return Ok(Some(Issued {
                access_key_id: text("AccessKeyId"),
                secret_access_key: text("SecretAccessKey"),
                token: xml::text(&answer, "SessionToken"),
            }));
        }
        if let Some(url) = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
            let mut request = Request::get(url);
            if let Some(token) = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
                .and_then(|it| std::fs::read_to_string(it).ok())
            {
                request = request.header("Authorization", token.trim());
            }
            return self.ask(request, Bytes::new()).await.and_then(parse).map(Some);
        }
        if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let metadata = "http://169.254.169.254/latest";
        let request = Request::put(format!("{metadata}/api/token"))
            .header("X-aws-ec2-metadata-token-ttl-seconds", "600");
        // Not on an instance: requests go without credentials, as to a public bucket.
        let Ok(token) = self.ask(request, Bytes::new()).await else { return Ok(None) };
        let path = format!("{metadata}/meta-data/iam/security-credentials/");
        let get = |url: &str| Request::get(url).header("X-aws-ec2-metadata-token", &token);
        let role = self.ask(get(&path), Bytes::new()).await?;
        let role = role.lines().next().unwrap_or_default();
        self.ask(get(&format!("{path}{role}")), Bytes::new()).await.and_then(parse).map(Some)
    }

    async fn send(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        range: Option<(u64, u64)>,
        body: Body,
    ) -> Result<Response<Bytes>> {
        let (base, below) = self.place();
        let path = format!("{below}/{}", percent_encoded(key, true));
        let mut query: Vec<String> = query
            .iter()
            .map(|(name, value)| {
                format!("{}={}", percent_encoded(name, false), percent_encoded(value, false))
            })
            .collect();
        query.sort_unstable();
        let query = query.join("&");
        let url = if query.is_empty() { format!("{base}{path}") } else { format!("{base}{path}?{query}") };
        let host = base.split("://").nth(1).unwrap_or_default().to_owned();
        let now = time::now() / 1_000_000_000;
        let mut request = Request::builder().method(method.clone()).uri(url).header("Host", &host);
        if let Some((offset, length)) = range {
            request = request.header("Range", format!("bytes={offset}-{}", offset + length - 1));
        }
        if let Some(credentials) = self.credentials().await? {
            for (name, value) in
                sign(&credentials, &self.settings.region, method.as_str(), &host, &path, &query, now)
            {
                request = request.header(name, value);
            }
        }
        let request =
            request.body(body).map_err(|error| StoreError(format!("{key:?} is no key: {error}")))?;
        self.http.fetch(request, TIMEOUT, LARGEST).await.map_err(|error| StoreError(format!("S3: {error}")))
    }
}

fn sha256(bytes: &[u8]) -> String {
    let mut text = String::new();
    push_hex(&mut text, digest::digest(&digest::SHA256, bytes).as_ref());
    text
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// The headers that sign a request, by version 4 of Amazon's scheme.
fn sign(
    credentials: &Credentials,
    region: &str,
    method: &str,
    host: &str,
    path: &str,
    query: &str,
    now: i64,
) -> Vec<(&'static str, String)> {
    let moment = time::format(now, "%Y%m%dT%H%M%SZ");
    let day = &moment[..moment.len().min(8)];
    let mut headers = vec![("host", host.to_owned()), ("x-amz-content-sha256", UNSIGNED.to_owned())];
    headers.push(("x-amz-date", moment.clone()));
    if let Some(token) = &credentials.token {
        headers.push(("x-amz-security-token", token.clone()));
    }
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let lines = lines.concat();
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{UNSIGNED}");
    let scope = format!("{day}/{region}/s3/aws4_request");
    let to_sign = format!("AWS4-HMAC-SHA256\n{moment}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let mut key = format!("AWS4{}", credentials.secret).into_bytes();
    for part in [day, region, "s3", "aws4_request"] {
        key = hmac_sha256(&key, part);
    }
    let mut signature = String::new();
    push_hex(&mut signature, &hmac_sha256(&key, &to_sign));
    headers.remove(0);
    headers.push((
        "authorization",
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            credentials.key
        ),
    ));
    headers
}

fn check(response: &Response<Bytes>, what: &str) -> Result<()> {
    if response.status().is_success() {
        return Ok(());
    }
    let body = String::from_utf8_lossy(response.body());
    let message = xml::text(&body, "Message").or_else(|| xml::text(&body, "Code")).unwrap_or_default();
    Err(StoreError(format!("S3 answers {} to {what}: {message}", response.status())))
}

impl Objects for S3 {
    fn list<'a>(&'a self, prefix: &'a str, deep: bool) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            let mut found = Vec::new();
            let mut token: Option<String> = None;
            loop {
                let mut query = vec![("list-type", "2"), ("prefix", prefix)];
                if !deep {
                    query.push(("delimiter", "/"));
                }
                if let Some(token) = &token {
                    query.push(("continuation-token", token));
                }
                let response = self.send(Method::GET, "", &query, None, content(Bytes::new())).await?;
                check(&response, "a list")?;
                let body = String::from_utf8_lossy(response.body()).into_owned();
                let keys = xml::elements(&body, "Contents").into_iter().filter_map(|it| xml::text(it, "Key"));
                let folders = xml::elements(&body, "CommonPrefixes")
                    .into_iter()
                    .filter_map(|it| xml::text(it, "Prefix"));
                // Objects that end in a slash are placeholders of directories.
                let keys = keys.filter(|key| !key.ends_with('/'));
                found.extend(
                    keys.chain(folders).filter_map(|key| key.strip_prefix(prefix).map(str::to_owned)),
                );
                token = xml::text(&body, "NextContinuationToken").filter(|it| !it.is_empty());
                if token.is_none() {
                    break;
                }
            }
            found.retain(|path| !path.is_empty());
            found.sort_unstable();
            Ok(found)
        })
    }

    fn size<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>>> {
        Box::pin(async move {
            let response = self.send(Method::HEAD, key, &[], None, content(Bytes::new())).await?;
            if response.status().as_u16() == 404 {
                return Ok(None);
            }
            check(&response, "a look at an object")?;
            let length = response.headers().get(http::header::CONTENT_LENGTH);
            let length = length.and_then(|it| it.to_str().ok()).and_then(|it| it.parse().ok());
            length.map(Some).ok_or_else(|| StoreError(format!("S3 does not say how large {key} is")))
        })
    }

    fn read<'a>(&'a self, key: &'a str, offset: u64, length: u64) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            if length == 0 {
                return Ok(Bytes::new());
            }
            let response =
                self.send(Method::GET, key, &[], Some((offset, length)), content(Bytes::new())).await?;
            if response.status().as_u16() == 416 {
                return Ok(Bytes::new());
            }
            check(&response, "a read")?;
            Ok(response.into_body())
        })
    }

    fn put<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let response = self.send(Method::PUT, key, &[], None, content(bytes)).await?;
            check(&response, "a write")
        })
    }

    fn put_file<'a>(&'a self, key: &'a str, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let body =
                file_content(path).map_err(|error| StoreError(format!("{}: {error}", path.display())))?;
            let response = self.send(Method::PUT, key, &[], None, body).await?;
            check(&response, "a write")
        })
    }

    fn prepare(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let response = self.send(Method::HEAD, "", &[], None, content(Bytes::new())).await?;
            if response.status().as_u16() != 404 {
                return check(&response, "a look at the bucket");
            }
            let region = &self.settings.region;
            let body = if region == "us-east-1" {
                String::new()
            } else {
                format!(
                    "<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
                )
            };
            let response = self.send(Method::PUT, "", &[], None, content(body)).await?;
            match response.status().as_u16() {
                409 => Ok(()),
                _ => check(&response, "making the bucket"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Credentials, sign};

    #[test]
    fn requests_are_signed_as_amazon_asks() {
        let credentials = Credentials {
            key: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
            read: None,
        };
        let headers = sign(&credentials, "us-east-1", "GET", "b.s3.amazonaws.com", "/k", "", 1_440_938_160);
        let authorization =
            headers.iter().find(|(name, _)| *name == "authorization").map(|(_, value)| value.as_str());
        let start = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/s3/aws4_request, \
                     SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=";
        assert!(authorization.is_some_and(|it| it.starts_with(start) && it.len() == start.len() + 64));
        assert!(headers.iter().any(|(name, value)| *name == "x-amz-date" && value == "20150830T123600Z"));
    }
}
