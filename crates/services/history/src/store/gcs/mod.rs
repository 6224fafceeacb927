//! Google Cloud Storage, by its JSON API.

mod credentials;

use std::path::Path;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Builder;
use http::{Request, Response};
use serde_json::{Value, json};

use super::config::Variables;
use super::net::{Body, Http, content, file_content, percent_encoded};
use super::{Objects, Result, StoreError};
use credentials::Provider;

/// Separates the parts of an upload.
const BOUNDARY: &str = "quintet-part";

/// A bucket. It has to exist: the roles that pods usually have do not allow making one.
pub(super) struct Gcs {
    http: Http,
    /// Where the API is.
    base: String,
    bucket: String,
    /// `None` at emulators, which want no credentials.
    provider: Option<Provider>,
}

impl Gcs {
    pub(super) fn new(bucket: String, variables: Variables) -> Result<Self> {
        let http = Http::new()?;
        // As Google's clients: the variable names an emulator.
        let emulator = variables("STORAGE_EMULATOR_HOST");
        let provider = if emulator.is_none() { Some(Provider::new(variables)) } else { None };
        let base = match emulator {
            Some(address) if address.contains("://") => address.trim_end_matches('/').to_owned(),
            Some(address) => format!("http://{address}"),
            None => "https://storage.googleapis.com".to_owned(),
        };
        Ok(Self { http, base, bucket, provider })
    }

    /// The URL of the objects of the bucket, or of one of them.
    fn objects(&self, key: Option<&str>) -> String {
        let bucket = percent_encoded(&self.bucket, false);
        let key = key.map(|key| format!("/{}", percent_encoded(key, false))).unwrap_or_default();
        format!("{}/storage/v1/b/{bucket}/o{key}", self.base)
    }

    async fn send(&self, mut request: Builder, body: Body) -> Result<Response<Bytes>> {
        if let Some(provider) = &self.provider {
            request =
                request.header("Authorization", format!("Bearer {}", provider.token(&self.http).await?));
        }
        let request = request.body(body).map_err(|error| StoreError(format!("GCS: {error}")))?;
        let response = self.http.fetch_stored(request).await;
        response.map_err(|error| StoreError(format!("GCS: {error}")))
    }

    fn check(&self, response: &Response<Bytes>, what: &str) -> Result<()> {
        if response.status().is_success() {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(response.body()).unwrap_or_default();
        let message = body["error"]["message"].as_str().unwrap_or_default();
        Err(StoreError(format!(
            "GCS responds {} to {what} in bucket {}: {message}",
            response.status(),
            self.bucket
        )))
    }

    async fn upload(&self, key: &str, body: Body) -> Result<()> {
        let bucket = percent_encoded(&self.bucket, false);
        let url = format!("{}/upload/storage/v1/b/{bucket}/o", self.base);
        let response = if hyper::body::Body::size_hint(&body).exact() == Some(0) {
            // Emulators take nothing as a missing upload, so what says its name is sent as another part.
            let part = |kind: &str, content: &str| {
                format!("--{BOUNDARY}\r\nContent-Type: {kind}\r\n\r\n{content}\r\n")
            };
            let name = part("application/json", &json!({ "name": key }).to_string());
            let parts = format!("{name}{}--{BOUNDARY}--\r\n", part("application/octet-stream", ""));
            let kind = format!("multipart/related; boundary={BOUNDARY}");
            let request = Request::post(format!("{url}?uploadType=multipart")).header("Content-Type", kind);
            self.send(request, content(parts)).await?
        } else {
            let url = format!("{url}?uploadType=media&name={}", percent_encoded(key, false));
            let request = Request::post(url).header("Content-Type", "application/octet-stream");
            self.send(request, body).await?
        };
        self.check(&response, "a write")
    }
}

impl Objects for Gcs {
    fn list<'a>(&'a self, prefix: &'a str, deep: bool) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            let mut found = Vec::new();
            let mut url = format!("{}?prefix={}", self.objects(None), percent_encoded(prefix, false));
            if !deep {
                url.push_str("&delimiter=%2F");
            }
            let mut page = String::new();
            loop {
                let request = Request::get(format!("{url}{page}"));
                let response = self.send(request, content(Bytes::new())).await?;
                self.check(&response, "a list")?;
                let listed: Value = serde_json::from_slice(response.body())
                    .map_err(|error| StoreError(format!("GCS: a list is no JSON: {error}")))?;
                let strings = |values: &Value, field: Option<&str>| -> Vec<String> {
                    let values = values.as_array().into_iter().flatten();
                    let text = |value: &Value| {
                        field.map_or(value.as_str(), |it| value[it].as_str()).map(str::to_owned)
                    };
                    values.filter_map(text).collect()
                };
                // Objects that end in a slash are placeholders of directories.
                let names =
                    strings(&listed["items"], Some("name")).into_iter().filter(|it| !it.ends_with('/'));
                let below = names.chain(strings(&listed["prefixes"], None));
                found.extend(below.filter_map(|it| it.strip_prefix(prefix).map(str::to_owned)));
                match listed["nextPageToken"].as_str().filter(|it| !it.is_empty()) {
                    Some(token) => page = format!("&pageToken={}", percent_encoded(token, false)),
                    None => break,
                }
            }
            found.retain(|path| !path.is_empty());
            found.sort_unstable();
            Ok(found)
        })
    }

    fn size<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>>> {
        Box::pin(async move {
            let response = self.send(Request::get(self.objects(Some(key))), content(Bytes::new())).await?;
            if response.status().as_u16() == 404 {
                return Ok(None);
            }
            self.check(&response, "a look at an object")?;
            let object: Value = serde_json::from_slice(response.body()).unwrap_or_default();
            let size = &object["size"];
            let size = size.as_u64().or_else(|| size.as_str()?.parse().ok());
            size.map(Some).ok_or_else(|| StoreError(format!("GCS does not say how large {key} is")))
        })
    }

    fn read<'a>(&'a self, key: &'a str, offset: u64, length: u64) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            if length == 0 {
                return Ok(Bytes::new());
            }
            let range = format!("bytes={offset}-{}", offset + length - 1);
            let request =
                Request::get(format!("{}?alt=media", self.objects(Some(key)))).header("Range", range);
            let response = self.send(request, content(Bytes::new())).await?;
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
        Box::pin(async { Ok(()) })
    }
}
