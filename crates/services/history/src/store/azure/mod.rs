//! Azure Blob Storage.

mod access;
mod signature;

use std::path::Path;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use hyper::body::Body as _;

use super::config::Variables;
use super::net::{Body, Http, content, file_content, percent_encoded};
use super::{Objects, Result, StoreError, xml};
use crate::model::time;
pub(super) use access::{Access, access};
use access::{Authorization, Provider};
use signature::Signed;

/// The version of the API. It allows blobs of 5000 MiB in one request.
const VERSION: &str = "2021-12-02";

/// A container.
pub(super) struct Azure {
    http: Http,
    /// The URL of the account.
    account: String,
    container: String,
    provider: Provider,
}

/// A request of the API.
struct Call<'a> {
    method: Method,
    /// The blob; `None` for the container.
    key: Option<&'a str>,
    query: Vec<(&'static str, &'a str)>,
    /// Headers of the API, sorted by name.
    headers: Vec<(&'static str, String)>,
    body: Body,
}

impl<'a> Call<'a> {
    fn blob(method: Method, key: &'a str) -> Self {
        Self { method, key: Some(key), query: Vec::new(), headers: Vec::new(), body: content(Bytes::new()) }
    }

    fn container(method: Method) -> Self {
        let query = vec![("restype", "container")];
        Self { method, key: None, query, headers: Vec::new(), body: content(Bytes::new()) }
    }
}

impl Azure {
    pub(super) fn new(access: Access, container: String, variables: Variables) -> Result<Self> {
        let Access { account, authorization } = access;
        let provider = Provider::new(authorization, variables);
        Ok(Self { http: Http::new()?, account, container, provider })
    }

    async fn send(&self, call: Call<'_>) -> Result<Response<Bytes>> {
        let Call { method, key, mut query, mut headers, body } = call;
        let mut url = format!("{}/{}", self.account, percent_encoded(&self.container, false));
        if let Some(key) = key {
            url = format!("{url}/{}", percent_encoded(key, true));
        }
        query.sort_unstable();
        headers.push(("x-ms-date", time::format(time::now() / 1_000_000_000, "%a, %d %b %Y %H:%M:%S GMT")));
        headers.push(("x-ms-version", VERSION.to_owned()));
        headers.sort_unstable();
        let pairs: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", percent_encoded(value, false))).collect();
        let mut pairs = pairs.join("&");
        match self.provider.authorization() {
            Authorization::Key { account, key } => {
                let signed = Signed {
                    method: method.as_str(),
                    length: body.size_hint().exact().unwrap_or_default(),
                    headers: &headers,
                    path: url.splitn(4, '/').nth(3).unwrap_or_default(),
                    query: &query,
                };
                let signature = signed.signature(account, key);
                headers.push(("authorization", format!("SharedKey {account}:{signature}")));
            }
            Authorization::Signature(signature) => {
                let separator = if pairs.is_empty() { "" } else { "&" };
                pairs = format!("{pairs}{separator}{signature}");
            }
            Authorization::Identity | Authorization::Workload => {
                let token = self.provider.token(&self.http).await?;
                headers.push(("authorization", format!("Bearer {token}")));
            }
        }
        if !pairs.is_empty() {
            url = format!("{url}?{pairs}");
        }
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(body).map_err(|error| StoreError(format!("Azure: {error}")))?;
        let response = self.http.fetch_stored(request).await;
        response.map_err(|error| StoreError(format!("Azure: {error}")))
    }

    fn check(&self, response: &Response<Bytes>, what: &str) -> Result<()> {
        if response.status().is_success() {
            return Ok(());
        }
        let body = String::from_utf8_lossy(response.body());
        // Responses to HEAD have no body, but a header with the code.
        let code = response.headers().get("x-ms-error-code").and_then(|it| it.to_str().ok());
        let message = xml::text(&body, "Message").or_else(|| code.map(str::to_owned)).unwrap_or_default();
        let message = message.lines().next().unwrap_or_default();
        Err(StoreError(format!(
            "Azure responds {} to {what} in container {}: {message}",
            response.status(),
            self.container
        )))
    }

    async fn upload(&self, key: &str, body: Body) -> Result<()> {
        let headers = vec![("x-ms-blob-type", "BlockBlob".to_owned())];
        let response = self.send(Call { headers, body, ..Call::blob(Method::PUT, key) }).await?;
        self.check(&response, "a write")
    }
}

impl Objects for Azure {
    fn list<'a>(&'a self, prefix: &'a str, deep: bool) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            let mut found = Vec::new();
            let mut marker = String::new();
            loop {
                let mut call = Call::container(Method::GET);
                call.query.extend([("comp", "list"), ("prefix", prefix)]);
                if !deep {
                    call.query.push(("delimiter", "/"));
                }
                if !marker.is_empty() {
                    call.query.push(("marker", &marker));
                }
                let response = self.send(call).await?;
                self.check(&response, "a list")?;
                let body = String::from_utf8_lossy(response.body()).into_owned();
                let names = |element: &str| -> Vec<String> {
                    xml::elements(&body, element).into_iter().filter_map(|it| xml::text(it, "Name")).collect()
                };
                // Blobs that end in a slash are placeholders of directories.
                let blobs = names("Blob").into_iter().filter(|it| !it.ends_with('/'));
                let below = blobs.chain(names("BlobPrefix"));
                found.extend(below.filter_map(|it| it.strip_prefix(prefix).map(str::to_owned)));
                marker = xml::text(&body, "NextMarker").unwrap_or_default();
                if marker.is_empty() {
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
            let response = self.send(Call::blob(Method::HEAD, key)).await?;
            if response.status().as_u16() == 404 {
                return Ok(None);
            }
            self.check(&response, "a look at a blob")?;
            let length = response.headers().get(http::header::CONTENT_LENGTH);
            let length = length.and_then(|it| it.to_str().ok()).and_then(|it| it.parse().ok());
            length.map(Some).ok_or_else(|| StoreError(format!("Azure does not say how large {key} is")))
        })
    }

    fn read<'a>(&'a self, key: &'a str, offset: u64, length: u64) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            if length == 0 {
                return Ok(Bytes::new());
            }
            let headers = vec![("x-ms-range", format!("bytes={offset}-{}", offset + length - 1))];
            let response = self.send(Call { headers, ..Call::blob(Method::GET, key) }).await?;
            if response.status().as_u16() == 416 {
                return Ok(Bytes::new());
            }
            self.check(&response, "a read")?;
            Ok(response.into_body())
        })
    }

    fn put<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.upload(key, content(bytes)).await })
    }

    fn put_file<'a>(&'a self, key: &'a str, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let body =
                file_content(path).map_err(|error| StoreError(format!("{}: {error}", path.display())))?;
            self.upload(key, body).await
        })
    }

    fn prepare(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let response = self.send(Call::container(Method::HEAD)).await?;
            if response.status().as_u16() != 404 {
                return self.check(&response, "a look at the container");
            }
            let response = self.send(Call::container(Method::PUT)).await?;
            match response.status().as_u16() {
                409 => Ok(()),
                _ => self.check(&response, "making the container"),
            }
        })
    }
}
