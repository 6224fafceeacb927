//! What a volume holds. Pure: everything it refers to was read before.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1 as core;
use quintet_api::quantity::Quantity;

use crate::pod::environment::{References, field_value, resource_value};

/// The default mode of files.
const FILE_MODE: i32 = 0o644;

/// What a volume holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Files that the kubelet writes, and changes when their sources change.
    Files(BTreeMap<PathBuf, FileContent>),
    /// An empty directory, of at most this many bytes.
    Empty(Option<u64>),
    /// An empty directory in memory, of at most this many bytes.
    Memory(Option<u64>),
    /// A path of the host.
    Host {
        /// The path.
        path: PathBuf,
        /// What has to be there, as in `hostPath.type`.
        kind: String,
    },
    /// A claim, by its name.
    Claim {
        /// The name.
        name: String,
        /// Whether it is mounted read-only.
        is_read_only: bool,
    },
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
}

/// What volumes can refer to.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Other objects.
    pub references: References,
    /// Tokens that were requested for the pod.
    pub tokens: BTreeMap<TokenRequest, String>,
}

/// A token of the pod's service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenRequest {
    /// Whom it is for; the API server if empty.
    pub audience: String,
    /// How long it is to be valid, in seconds.
    pub expiration_seconds: i64,
}

/// Why a volume cannot be set up. The pod waits with `ContainerCreating` and is tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {why}")]
pub struct VolumeError {
    volume: String,
    why: String,
}

impl VolumeError {
    /// A volume that cannot be set up, and why.
    pub fn new(volume: &str, why: String) -> Self {
        Self { volume: volume.to_owned(), why }
    }
}

/// All tokens that the volumes of a pod hold.
pub fn token_requests(pod: &core::Pod) -> Vec<TokenRequest> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let projections = volumes.filter_map(|volume| volume.projected.as_ref()?.sources.as_ref()).flatten();
    projections.filter_map(|source| source.service_account_token.as_ref()).map(token_request).collect()
}

fn token_request(source: &core::ServiceAccountTokenProjection) -> TokenRequest {
    TokenRequest {
        audience: source.audience.clone().unwrap_or_default(),
        expiration_seconds: source.expiration_seconds.unwrap_or(3600),
    }
}

/// What a volume of a pod holds.
pub fn content(pod: &core::Pod, volume: &core::Volume, sources: &Sources) -> Result<Content, VolumeError> {
    content_of(pod, volume, sources).map_err(|why| VolumeError::new(&volume.name, why))
}

fn content_of(pod: &core::Pod, volume: &core::Volume, sources: &Sources) -> Result<Content, String> {
    let references = &sources.references;
    if let Some(source) = &volume.config_map {
        let mode = source.default_mode.unwrap_or(FILE_MODE);
        let (items, is_optional) = (source.items.as_deref(), source.optional == Some(true));
        return config_map(references, &source.name, items, mode, is_optional).map(Content::Files);
    }
    if let Some(source) = &volume.secret {
        let mode = source.default_mode.unwrap_or(FILE_MODE);
        let name = source.secret_name.as_deref().unwrap_or_default();
        let (items, is_optional) = (source.items.as_deref(), source.optional == Some(true));
        return secret(references, name, items, mode, is_optional).map(Content::Files);
    }
    if let Some(source) = &volume.downward_api {
        let mode = source.default_mode.unwrap_or(FILE_MODE);
        return downward(pod, source.items.as_deref(), mode, references).map(Content::Files);
    }
    if let Some(source) = &volume.projected {
        return projected(pod, source, sources).map(Content::Files);
    }
    if let Some(source) = &volume.empty_dir {
        let limit = source.size_limit.as_ref().and_then(|limit| Quantity::try_from(limit).ok());
        let limit = limit.and_then(|limit| u64::try_from(limit.units()).ok()).filter(|bytes| *bytes > 0);
        let is_memory = source.medium.as_deref() == Some("Memory");
        return Ok(if is_memory { Content::Memory(limit) } else { Content::Empty(limit) });
    }
    if let Some(source) = &volume.host_path {
        let kind = source.type_.clone().unwrap_or_default();
        return Ok(Content::Host { path: PathBuf::from(&source.path), kind });
    }
    if let Some(source) = &volume.persistent_volume_claim {
        let is_read_only = source.read_only == Some(true);
        return Ok(Content::Claim { name: source.claim_name.clone(), is_read_only });
    }
    if volume.ephemeral.is_some() {
        let pod = pod.metadata.name.as_deref().unwrap_or_default();
        return Ok(Content::Claim { name: format!("{pod}-{}", volume.name), is_read_only: false });
    }
    Err("this kind of volume is not supported by this node".into())
}

type Files = BTreeMap<PathBuf, FileContent>;

/// All keys, or those that `items` names, under the paths it gives them.
fn select<'a>(
    kind: &str,
    all: BTreeMap<&'a str, &'a [u8]>,
    items: Option<&[core::KeyToPath]>,
    mode: i32,
    is_optional: bool,
) -> Result<Files, String> {
    let file = |bytes: &[u8], mode: i32| FileContent { bytes: bytes.to_vec(), mode: permissions(mode) };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(all.into_iter().map(|(key, bytes)| (PathBuf::from(key), file(bytes, mode))).collect());
    };
    let mut files = Files::new();
    for item in items {
        match all.get(item.key.as_str()) {
            Some(bytes) => {
                files.insert(PathBuf::from(&item.path), file(bytes, item.mode.unwrap_or(mode)));
            }
            None if is_optional => {}
            None => return Err(format!("references non-existent {kind} key: {}", item.key)),
        }
    }
    Ok(files)
}

/// Only the permission bits.
fn permissions(mode: i32) -> u32 {
    u32::try_from(mode & 0o777).unwrap_or(0o644)
}

fn config_map(
    references: &References,
    name: &str,
    items: Option<&[core::KeyToPath]>,
    mode: i32,
    is_optional: bool,
) -> Result<Files, String> {
    let Some(map) = references.config_maps.get(name) else {
        return if is_optional { Ok(Files::new()) } else { Err(format!("configmap {name:?} not found")) };
    };
    let text = map.data.iter().flatten().map(|(key, text)| (key.as_str(), text.as_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, bytes)| (key.as_str(), bytes.0.as_slice()));
    select("config", text.chain(binary).collect(), items, mode, is_optional)
}

fn secret(
    references: &References,
    name: &str,
    items: Option<&[core::KeyToPath]>,
    mode: i32,
    is_optional: bool,
) -> Result<Files, String> {
    let Some(secret) = references.secrets.get(name) else {
        return if is_optional { Ok(Files::new()) } else { Err(format!("secret {name:?} not found")) };
    };
    let all = secret.data.iter().flatten().map(|(key, bytes)| (key.as_str(), bytes.0.as_slice()));
    select("secret", all.collect(), items, mode, is_optional)
}

fn downward(
    pod: &core::Pod,
    items: Option<&[core::DownwardAPIVolumeFile]>,
    mode: i32,
    references: &References,
) -> Result<Files, String> {
    let mut files = Files::new();
    for item in items.unwrap_or_default() {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => field_value(&field.field_path, pod, references),
            (None, Some(resource)) => resource_value(resource, pod, None, references),
            (None, None) => continue,
        };
        let bytes = text.map_err(|error| error.0)?.into_bytes();
        let mode = permissions(item.mode.unwrap_or(mode));
        files.insert(PathBuf::from(&item.path), FileContent { bytes, mode });
    }
    Ok(files)
}

fn projected(
    pod: &core::Pod,
    volume: &core::ProjectedVolumeSource,
    sources: &Sources,
) -> Result<Files, String> {
    let mode = volume.default_mode.unwrap_or(FILE_MODE);
    let references = &sources.references;
    let mut files = Files::new();
    for source in volume.sources.iter().flatten() {
        if let Some(map) = &source.config_map {
            let (items, is_optional) = (map.items.as_deref(), map.optional == Some(true));
            files.extend(config_map(references, &map.name, items, mode, is_optional)?);
        }
        if let Some(one) = &source.secret {
            let (items, is_optional) = (one.items.as_deref(), one.optional == Some(true));
            files.extend(secret(references, &one.name, items, mode, is_optional)?);
        }
        if let Some(api) = &source.downward_api {
            files.extend(downward(pod, api.items.as_deref(), mode, references)?);
        }
        if let Some(token) = &source.service_account_token {
            let Some(text) = sources.tokens.get(&token_request(token)) else {
                return Err("failed to fetch token: it was not issued yet".into());
            };
            let content = FileContent { bytes: text.clone().into_bytes(), mode: permissions(mode) };
            files.insert(PathBuf::from(&token.path), content);
        }
    }
    Ok(files)
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
#[path = "content_tests.rs"]
mod tests;
