//! Where volumes are mounted in a container.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1 as core;

use crate::pod::environment::{ConfigError, expand};
use crate::shim::protocol::{Mount, MountSource};

/// Where the volumes of a pod are on the machine, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumePaths {
    /// Directories, or files of the host.
    pub paths: BTreeMap<String, PathBuf>,
    /// Read-only volumes: files that the kubelet writes, and read-only claims.
    pub read_only: Vec<String>,
}

/// The mounts of a container's volumes. `variables` are those of the container, for `subPathExpr`.
pub fn container_mounts(
    container: &core::Container,
    volumes: &VolumePaths,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, ConfigError> {
    container.volume_mounts.iter().flatten().map(|mount| one(mount, volumes, variables)).collect()
}

fn one(
    mount: &core::VolumeMount,
    volumes: &VolumePaths,
    variables: &BTreeMap<String, String>,
) -> Result<Mount, ConfigError> {
    let volume = volumes.paths.get(&mount.name);
    let volume = volume.ok_or_else(|| ConfigError(format!("volume {:?} does not exist", mount.name)))?;
    let below = match (&mount.sub_path, &mount.sub_path_expr) {
        (_, Some(expression)) if !expression.is_empty() => expand(expression, variables),
        (Some(path), _) => path.clone(),
        _ => String::new(),
    };
    let source = if below.is_empty() {
        MountSource::Bind(volume.clone())
    } else {
        MountSource::Part { volume: volume.clone(), path: inside(&below)?.to_owned() }
    };
    let is_read_only = mount.read_only == Some(true) || volumes.read_only.contains(&mount.name);
    Ok(Mount { target: PathBuf::from(&mount.mount_path), source, is_read_only })
}

/// A path below a volume, that stays there.
fn inside(path: &str) -> Result<&Path, ConfigError> {
    let as_path = Path::new(path);
    let is_inside = as_path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_inside {
        return Err(ConfigError(format!("subPath {path:?} must be relative and must not contain '..'")));
    }
    Ok(as_path)
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn mounts(mount: Value) -> Result<Mount, ConfigError> {
        let container = serde_json::from_value(json!({ "name": "c", "volumeMounts": [mount] })).unwrap();
        let volumes = VolumePaths {
            paths: [("data".to_owned(), "/pods/data".into()), ("conf".to_owned(), "/pods/conf".into())]
                .into(),
            read_only: vec!["conf".into()],
        };
        let variables = [("POD".to_owned(), "web-0".to_owned())].into();
        container_mounts(&container, &volumes, &variables).map(|mut mounts| mounts.remove(0))
    }

    fn bind(source: &str, target: &str, is_read_only: bool) -> Mount {
        Mount { target: target.into(), source: MountSource::Bind(source.into()), is_read_only }
    }

    #[test]
    fn volumes_go_where_the_container_says() {
        let found = mounts(json!({ "name": "data", "mountPath": "/data" }));
        assert_eq!(found, Ok(bind("/pods/data", "/data", false)));
        let found = mounts(json!({ "name": "data", "mountPath": "/data", "readOnly": true }));
        assert_eq!(found, Ok(bind("/pods/data", "/data", true)));
        let found = mounts(json!({ "name": "conf", "mountPath": "/etc/app" }));
        assert_eq!(found, Ok(bind("/pods/conf", "/etc/app", true)));
    }

    #[test]
    fn parts_of_volumes_can_be_mounted() {
        let part = |path: &str| {
            let source = MountSource::Part { volume: "/pods/data".into(), path: path.into() };
            Ok(Mount { target: "/d".into(), source, is_read_only: false })
        };
        assert_eq!(mounts(json!({ "name": "data", "mountPath": "/d", "subPath": "a/b" })), part("a/b"));
        let found = mounts(json!({ "name": "data", "mountPath": "/d", "subPathExpr": "logs/$(POD)" }));
        assert_eq!(found, part("logs/web-0"));
    }

    #[test]
    fn a_part_of_a_volume_is_inside_it() {
        for path in ["../other", "/etc", "a/../../b"] {
            assert!(mounts(json!({ "name": "data", "mountPath": "/d", "subPath": path })).is_err(), "{path}");
        }
        assert!(mounts(json!({ "name": "absent", "mountPath": "/d" })).is_err());
    }
}
