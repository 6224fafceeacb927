//! Which storage: flags, a JSON file and the environment.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use super::azure::Azure;
use super::gcs::Gcs;
use super::s3::{Issuer, S3, S3Settings};
use super::{Store, StoreError};

/// What the environment says: the value of a variable, if it has one that is not empty.
pub(super) type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The bucket or container if none is named.
const BUCKET: &str = "ray-historyserver";

/// Where sessions are stored.
#[derive(Debug, Clone, Default)]
pub struct StorageConfig {
    /// One of [`StorageConfig::BACKENDS`], in any case.
    pub backend: String,
    /// The directory of `local`.
    pub directory: Option<PathBuf>,
    /// The root of all keys.
    pub root: String,
    /// A JSON file with the settings of the back end; empty for none.
    pub config: String,
}

/// The settings in the file. Those of other back ends may be there, too.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    s3_bucket: String,
    s3_endpoint: String,
    s3_region: String,
    s3_force_path_style: String,
    #[serde(rename = "s3DisableSSL")]
    s3_disable_ssl: String,
    gcs_bucket: String,
    azure_container: String,
    azure_connection_string: String,
    #[serde(rename = "azureAccountURL")]
    azure_account_url: String,
    azure_auth_mode: String,
    oss_bucket: String,
    oss_endpoint: String,
    oss_region: String,
}

fn filled(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

impl StorageConfig {
    /// The names of the back ends.
    pub const BACKENDS: [&str; 5] = ["local", "s3", "gcs", "azureblob", "aliyunoss"];

    /// Whether the back end exists here.
    pub fn is_supported(&self) -> bool {
        Self::BACKENDS.contains(&self.backend.to_ascii_lowercase().as_str())
    }

    /// Opens the storage.
    pub fn open(&self) -> Result<Store, String> {
        self.open_with(&(Arc::new(|name: &str| std::env::var(name).ok().and_then(|it| filled(&it))) as _))
    }

    fn open_with(&self, variables: &Variables) -> Result<Store, String> {
        let opened = match self.backend.to_ascii_lowercase().as_str() {
            "local" => {
                let directory =
                    self.directory.as_ref().ok_or("the storage back end local needs --storage-dir DIR")?;
                Ok(Store::directory(directory, &self.root))
            }
            "s3" => {
                let settings = s3(self.file()?.as_ref(), variables);
                S3::new(settings, Arc::clone(variables)).map(|it| Store::new(it, &self.root))
            }
            "aliyunoss" => {
                let settings = oss(&self.file()?.unwrap_or_default(), variables)?;
                S3::new(settings, Arc::clone(variables)).map(|it| Store::new(it, &self.root))
            }
            "gcs" => {
                let file = self.file()?.unwrap_or_default();
                let bucket = filled(&file.gcs_bucket).or_else(|| variables("GCS_BUCKET"));
                let bucket =
                    bucket.ok_or("the storage back end gcs needs GCS_BUCKET, or gcsBucket in its file")?;
                Gcs::new(bucket, Arc::clone(variables)).map(|it| Store::new(it, &self.root))
            }
            "azureblob" => {
                let file = self.file()?.unwrap_or_default();
                let value = |of_file: &str, name: &str| {
                    filled(of_file).or_else(|| variables(&format!("AZURE_STORAGE_{name}")))
                };
                let container =
                    value(&file.azure_container, "CONTAINER").unwrap_or_else(|| BUCKET.to_owned());
                let access = super::azure::access(
                    &value(&file.azure_auth_mode, "AUTH_MODE").unwrap_or_default(),
                    value(&file.azure_connection_string, "CONNECTION_STRING"),
                    value(&file.azure_account_url, "ACCOUNT_URL"),
                )?;
                Azure::new(access, container, Arc::clone(variables)).map(|it| Store::new(it, &self.root))
            }
            other => {
                return Err(format!(
                    "Unsupported storage-backend for reader: {other}; choose one of {}",
                    Self::BACKENDS.join(", ")
                ));
            }
        };
        opened.map_err(|StoreError(message)| message)
    }

    fn file(&self) -> Result<Option<File>, String> {
        if self.config.is_empty() {
            return Ok(None);
        }
        let path = &self.config;
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("Failed to read storage-backend-config-path from {path}: {error}"))?;
        let file = serde_json::from_str(&text)
            .map_err(|error| format!("{path} is no JSON object of settings: {error}"))?;
        Ok(Some(file))
    }
}

/// The settings of S3. A file replaces the variables, but for the bucket.
fn s3(file: Option<&File>, variables: &Variables) -> S3Settings {
    let bucket = file.and_then(|file| filled(&file.s3_bucket)).or_else(|| variables("S3_BUCKET"));
    let value = |of_file: fn(&File) -> &str, name: &str| match file {
        Some(file) => filled(of_file(file)),
        None => variables(name),
    };
    let region = value(|file| &file.s3_region, "S3_REGION").or_else(|| variables("AWS_REGION"));
    let path_style = value(|file| &file.s3_force_path_style, "S3FORCE_PATH_STYLE").unwrap_or_default();
    let disable_ssl = value(|file| &file.s3_disable_ssl, "S3DISABLE_SSL").unwrap_or_default();
    S3Settings {
        issuer: Issuer::Aws,
        bucket: bucket.unwrap_or_else(|| BUCKET.to_owned()),
        endpoint: value(|file| &file.s3_endpoint, "S3_ENDPOINT"),
        region: region.unwrap_or_else(|| "us-east-1".to_owned()),
        is_path_style: is_true(&path_style),
        is_plain: is_true(&disable_ssl),
    }
}

/// The settings of Aliyun OSS, through the part of its API that is S3's. Buckets are part of the host name; addresses have
/// none, as in Aliyun's own clients.
fn oss(file: &File, variables: &Variables) -> Result<S3Settings, String> {
    let value = |of_file: &str, key: &str, name: &str| {
        let value = filled(of_file).or_else(|| variables(name));
        value.ok_or_else(|| format!("the storage back end aliyunoss needs {name}, or {key} in its file"))
    };
    let endpoint = value(&file.oss_endpoint, "ossEndpoint", "OSS_ENDPOINT")?;
    let host = endpoint.split_once("://").map_or(endpoint.as_str(), |(_, host)| host);
    let host = host.split(['/', ':']).next().unwrap_or_default();
    Ok(S3Settings {
        issuer: Issuer::Aliyun,
        bucket: value(&file.oss_bucket, "ossBucket", "OSS_BUCKET")?,
        region: value(&file.oss_region, "ossRegion", "OSS_REGION")?,
        is_path_style: host.parse::<std::net::IpAddr>().is_ok(),
        is_plain: false,
        endpoint: Some(endpoint),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{StorageConfig, Variables};

    fn opened(backend: &str, variables: &[(&'static str, &'static str)]) -> Result<(), String> {
        let variables = variables.to_vec();
        let find = move |name: &str| {
            let found = variables.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let config = StorageConfig { backend: backend.to_owned(), ..StorageConfig::default() };
        config.open_with(&(Arc::new(find) as Variables)).map(drop)
    }

    #[test]
    fn what_is_missing_is_said() {
        let account = ("AZURE_STORAGE_ACCOUNT_URL", "https://a.blob.core.windows.net");
        let mode = |mode: &'static str| ("AZURE_STORAGE_AUTH_MODE", mode);
        let oss = [("OSS_BUCKET", "b"), ("OSS_REGION", "cn-hangzhou"), ("OSS_ENDPOINT", "oss.example.com")];
        for (backend, variables, expected) in [
            ("floppy", &[][..], Err("choose one of local, s3, gcs, azureblob, aliyunoss")),
            ("local", &[], Err("--storage-dir")),
            ("S3", &[], Ok(())),
            ("GCS", &[], Err("GCS_BUCKET")),
            ("gcs", &[("GCS_BUCKET", "b")], Ok(())),
            ("AliyunOSS", &oss[..2], Err("OSS_ENDPOINT")),
            ("aliyunoss", &oss[1..], Err("OSS_BUCKET")),
            ("aliyunoss", &oss, Ok(())),
            ("azureblob", &[], Err("AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_ACCOUNT_URL")),
            ("azureblob", &[account], Ok(())),
            ("azureblob", &[mode("connection_string"), account], Err("AZURE_STORAGE_CONNECTION_STRING")),
            ("azureblob", &[mode("default")], Err("AZURE_STORAGE_ACCOUNT_URL")),
            ("azureblob", &[mode("guess"), account], Err("connection_string, workload_identity or default")),
        ] {
            match (opened(backend, variables), expected) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(part)) => assert!(error.contains(part), "{backend}: {error}"),
                (found, _) => panic!("{backend} {variables:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_file_replaces_the_variables_of_s3_but_for_the_bucket() {
        let variables: Variables = Arc::new(|name: &str| Some(format!("value of {name}")));
        let settings = super::s3(None, &variables);
        assert_eq!(settings.endpoint.as_deref(), Some("value of S3_ENDPOINT"));
        let file = serde_json::from_str(r#"{"s3Region":"eu-west-1","s3DisableSSL":"True","other":1}"#);
        let settings = super::s3(Some(&file.expect("a file")), &variables);
        assert_eq!(
            (settings.bucket.as_str(), settings.endpoint, settings.region.as_str(), settings.is_plain),
            ("value of S3_BUCKET", None, "eu-west-1", true)
        );
    }

    #[test]
    fn addresses_have_no_bucket_in_front() {
        for (endpoint, expected) in [
            ("oss-cn-hangzhou.aliyuncs.com", false),
            ("https://oss-cn-hangzhou-internal.aliyuncs.com", false),
            ("http://127.0.0.1:9000", true),
        ] {
            let variables: Variables = Arc::new(move |_: &str| Some(endpoint.to_owned()));
            let settings = super::oss(&super::File::default(), &variables).expect("settings");
            assert_eq!(settings.is_path_style, expected, "{endpoint}");
        }
    }
}
