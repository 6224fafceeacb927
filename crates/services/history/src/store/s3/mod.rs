//! Amazon S3 and what speaks its API, such as Aliyun OSS.

mod credentials;
mod signature;

use std::path::Path;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};

use super::config::Variables;
use super::net::{Body, Http, content, file_content, percent_encoded};
use super::{Objects, Result, StoreError, xml};
use crate::model::time;
pub(super) use credentials::Issuer;
use credentials::Provider;
use signature::{Signed, sign};

/// Where a bucket is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct S3Settings {
    pub(super) issuer: Issuer,
    pub(super) bucket: String,
    pub(super) endpoint: Option<String>,
    pub(super) region: String,
    pub(super) is_path_style: bool,
    pub(super) is_plain: bool,
}

/// A bucket.
pub(super) struct S3 {
    http: Http,
    settings: S3Settings,
    provider: Provider,
}

/// A request of the API.
struct Call<'a> {
    method: Method,
    key: &'a str,
    query: &'a [(&'a str, &'a str)],
    range: Option<(u64, u64)>,
    body: Body,
}

impl<'a> Call<'a> {
    fn new(method: Method, key: &'a str) -> Self {
        Self { method, key, query: &[], range: None, body: content(Bytes::new()) }
    }
}

impl S3 {
    pub(super) fn new(settings: S3Settings, variables: Variables) -> Result<Self> {
        let provider = Provider::new(settings.issuer, &settings.region, variables);
        Ok(Self { http: Http::new()?, settings, provider })
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

    async fn send(&self, call: Call<'_>) -> Result<Response<Bytes>> {
        let Call { method, key, query, range, body } = call;
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
        let mut request = Request::builder().method(method.clone()).uri(url).header("Host", &host);
        if let Some((offset, length)) = range {
            request = request.header("Range", format!("bytes={offset}-{}", offset + length - 1));
        }
        if let Some(credentials) = self.provider.get(&self.http).await? {
            let signed = Signed {
                region: &self.settings.region,
                method: method.as_str(),
                host: &host,
                path: &path,
                query: &query,
                now: time::now() / 1_000_000_000,
            };
            for (name, value) in sign(&credentials, &signed) {
                request = request.header(name, value);
            }
        }
        let request =
            request.body(body).map_err(|error| StoreError(format!("{key:?} is no key: {error}")))?;
        let name = self.settings.issuer.name();
        let response = self.http.fetch_stored(request).await;
        response.map_err(|error| StoreError(format!("{name}: {error}")))
    }

    fn check(&self, response: &Response<Bytes>, what: &str) -> Result<()> {
        if response.status().is_success() {
            return Ok(());
        }
        let body = String::from_utf8_lossy(response.body());
        let message = xml::text(&body, "Message").or_else(|| xml::text(&body, "Code")).unwrap_or_default();
        let (name, bucket) = (self.settings.issuer.name(), &self.settings.bucket);
        Err(StoreError(format!(
            "{name} responds {} to {what} in bucket {bucket}: {message}",
            response.status()
        )))
    }
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
                let response = self.send(Call { query: &query, ..Call::new(Method::GET, "") }).await?;
                self.check(&response, "a list")?;
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
            let response = self.send(Call::new(Method::HEAD, key)).await?;
            if response.status().as_u16() == 404 {
                return Ok(None);
            }
            self.check(&response, "a look at an object")?;
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
            let range = Some((offset, length));
            let response = self.send(Call { range, ..Call::new(Method::GET, key) }).await?;
            if response.status().as_u16() == 416 {
                return Ok(Bytes::new());
            }
            self.check(&response, "a read")?;
            Ok(response.into_body())
        })
    }

    fn put<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let response = self.send(Call { body: content(bytes), ..Call::new(Method::PUT, key) }).await?;
            self.check(&response, "a write")
        })
    }

    fn put_file<'a>(&'a self, key: &'a str, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let body =
                file_content(path).map_err(|error| StoreError(format!("{}: {error}", path.display())))?;
            let response = self.send(Call { body, ..Call::new(Method::PUT, key) }).await?;
            self.check(&response, "a write")
        })
    }

    fn prepare(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // Roles of pods may use a bucket of OSS, but not make one.
            if self.settings.issuer == Issuer::Aliyun {
                return Ok(());
            }
            let response = self.send(Call::new(Method::HEAD, "")).await?;
            if response.status().as_u16() != 404 {
                return self.check(&response, "a look at the bucket");
            }
            let region = &self.settings.region;
            let body = if region == "us-east-1" {
                String::new()
            } else {
                format!(
                    "<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
                )
            };
            let response = self.send(Call { body: content(body), ..Call::new(Method::PUT, "") }).await?;
            match response.status().as_u16() {
                409 => Ok(()),
                _ => self.check(&response, "making the bucket"),
            }
        })
    }
}
