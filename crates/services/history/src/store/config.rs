//! Which storage: flags, a JSON file and the environment.

use std::path::PathBuf;

use serde::Deserialize;

use super::s3::{S3, S3Settings};
use super::{Store, StoreError};

/// Where sessions are stored.
#[derive(Debug, Clone, Default)]
pub struct StorageConfig {
    /// `local` or `s3`, in any case.
    pub backend: String,
    /// The directory of `local`.
    pub directory: Option<PathBuf>,
    /// The root of all keys.
    pub root: String,
    /// A JSON file with the settings of the back end; empty for none.
    pub config: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_field_names, reason = "the names in the file")]
struct File {
    s3_bucket: String,
    s3_endpoint: String,
    s3_region: String,
    s3_force_path_style: String,
    #[serde(rename = "s3DisableSSL")]
    s3_disable_ssl: String,
}

impl StorageConfig {
    /// Whether the back end exists here.
    pub fn is_supported(&self) -> bool {
        matches!(self.backend.to_ascii_lowercase().as_str(), "local" | "s3")
    }

    /// Opens the storage.
    pub fn open(&self) -> Result<Store, String> {
        match self.backend.to_ascii_lowercase().as_str() {
            "local" => {
                let directory =
                    self.directory.as_ref().ok_or("the storage back end local needs --storage-dir DIR")?;
                Ok(Store::directory(directory, &self.root))
            }
            "s3" => {
                let settings = self.s3(&|name| std::env::var(name).ok())?;
                let s3 = S3::new(settings).map_err(|StoreError(message)| message)?;
                Ok(Store::new(s3, &self.root))
            }
            other => {
                Err(format!("Unsupported storage-backend for reader: {other}; local and s3 are supported"))
            }
        }
    }

    /// The settings of S3. A file with settings replaces the variables, but for the bucket.
    fn s3(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<S3Settings, String> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let file = if self.config.is_empty() {
            None
        } else {
            let path = &self.config;
            let text = std::fs::read_to_string(path).map_err(|error| {
                format!("Failed to read storage-backend-config-path from {path}: {error}")
            })?;
            let file: File =
                serde_json::from_str(&text).map_err(|error| format!("{path} is no JSON object: {error}"))?;
            Some(file)
        };
        let is_true = |text: &str| text.eq_ignore_ascii_case("true");
        let filled = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let bucket = file.as_ref().and_then(|file| filled(&file.s3_bucket)).or_else(|| variable("S3_BUCKET"));
        let value = |of_file: fn(&File) -> &str, name: &str| match &file {
            Some(file) => filled(of_file(file)),
            None => variable(name),
        };
        let region = value(|file| &file.s3_region, "S3_REGION").or_else(|| variable("AWS_REGION"));
        let path_style = value(|file| &file.s3_force_path_style, "S3FORCE_PATH_STYLE").unwrap_or_default();
        let disable_ssl = value(|file| &file.s3_disable_ssl, "S3DISABLE_SSL").unwrap_or_default();
        Ok(S3Settings {
            bucket: bucket.unwrap_or_else(|| "ray-historyserver".to_owned()),
            endpoint: value(|file| &file.s3_endpoint, "S3_ENDPOINT"),
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            is_path_style: is_true(&path_style),
            is_plain: is_true(&disable_ssl),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::StorageConfig;

    #[test]
    fn backends_are_recognised() {
        let config =
            |backend: &str| StorageConfig { backend: backend.to_owned(), ..StorageConfig::default() };
        assert!(config("S3").is_supported() && !config("floppy").is_supported());
        assert!(config("local").open().is_err_and(|error| error.contains("--storage-dir")));
        assert!(config("floppy").open().is_err_and(|error| error.contains("Unsupported storage-backend")));
        let settings = config("s3").s3(&|name| (name == "S3_ENDPOINT").then(|| "http://x".to_owned()));
        let settings = settings.map(|it| (it.bucket, it.endpoint));
        assert_eq!(settings, Ok(("ray-historyserver".to_owned(), Some("http://x".to_owned()))));
    }
}
