//! Volumes of a pod on this machine.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1 as core;
use nix::mount::{MsFlags, mount};
use quintet_controller::ObjectKey;

use super::context::Context;
use super::handle::PodHandle;
use super::references;
use crate::kubelet::Settings;
use crate::pod::resources::pod_memory;
use crate::volumes::{Content, Sources, VolumeError, VolumePaths, content, write_files};

/// Sets up all volumes that containers of the pod mount. What exists is brought up to date.
pub(super) async fn prepare(
    context: &Context,
    handle: &PodHandle,
    pod: &core::Pod,
    sources: &Sources,
) -> Result<VolumePaths, VolumeError> {
    let mut found = VolumePaths::default();
    let used = mounted(pod);
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    for volume in volumes.filter(|volume| used.contains(volume.name.as_str())) {
        let failed = |why: String| VolumeError::new(&volume.name, why);
        let what = content(pod, volume, sources)?;
        let is_read_only = matches!(what, Content::Files(_) | Content::Claim { is_read_only: true, .. });
        let path = set_up(context, handle, pod, volume, what).await.map_err(failed)?;
        if is_read_only {
            found.read_only.push(volume.name.clone());
        }
        found.paths.insert(volume.name.clone(), path);
    }
    Ok(found)
}

/// The volumes that some container mounts; others are not set up, as in a kubelet.
fn mounted(pod: &core::Pod) -> BTreeSet<&str> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mounts = containers.flat_map(|one| one.volume_mounts.iter().flatten());
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let mounts = mounts.chain(ephemeral.flat_map(|one| one.volume_mounts.iter().flatten()));
    mounts.map(|mount| mount.name.as_str()).collect()
}

async fn set_up(
    context: &Context,
    handle: &PodHandle,
    pod: &core::Pod,
    volume: &core::Volume,
    what: Content,
) -> Result<PathBuf, String> {
    let path = handle.directory.join("volumes").join(&volume.name);
    let own = |error: io::Error| format!("{}: {error}", path.display());
    let group = FsGroup::of(pod).filter(|group| context.ids.has_group(group.id));
    match what {
        Content::Files(files) => {
            fs::create_dir_all(&path).map_err(own)?;
            if volume.secret.is_some() || volume.projected.is_some() {
                // Secrets are never written to a disk.
                mount_memory(&path, None, 0o755).map_err(own)?;
            }
            set_mode(&path, 0o755).map_err(own)?;
            let is_new = write_files(&path, &files, context.clock.now()).map_err(own)?;
            if let Some(group) = group.filter(|_| is_new) {
                give_to_group(&path, group.id, 0o040).map_err(own)?;
            }
        }
        Content::Empty(_) => {
            if !path.exists() {
                fs::create_dir_all(&path).map_err(own)?;
                set_mode(&path, 0o777).map_err(own)?;
                own_by_group(&path, group).map_err(own)?;
            }
        }
        Content::Memory(limit) => {
            fs::create_dir_all(&path).map_err(own)?;
            let limit = limit.or_else(|| pod_memory(pod)).unwrap_or(context.machine.memory / 2);
            mount_memory(&path, Some(limit), 0o777).map_err(own)?;
            own_by_group(&path, group).map_err(own)?;
        }
        Content::Host { path, kind } => return host_path(&context.settings, &path, &kind),
        Content::Claim { name, .. } => {
            let path = claim(context, pod, &name).await?;
            own_by_group(&path, group).map_err(|error| format!("{}: {error}", path.display()))?;
            return Ok(path);
        }
    }
    Ok(path)
}

/// The group that volumes of a pod belong to.
#[derive(Clone, Copy)]
struct FsGroup {
    id: u32,
    /// Whether a volume whose root is as it should be stays as it is (`fsGroupChangePolicy: OnRootMismatch`).
    only_on_mismatch: bool,
}

impl FsGroup {
    fn of(pod: &core::Pod) -> Option<Self> {
        let context = pod.spec.as_ref()?.security_context.as_ref()?;
        let only_on_mismatch = context.fs_group_change_policy.as_deref() == Some("OnRootMismatch");
        Some(Self { id: u32::try_from(context.fs_group?).ok()?, only_on_mismatch })
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Mounts memory at a path, once.
fn mount_memory(path: &Path, limit: Option<u64>, mode: u32) -> io::Result<()> {
    let real = path.canonicalize()?;
    if crate::init::mounts_below(&real)?.contains(&real) {
        return Ok(());
    }
    let size = limit.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
    let options = format!("mode={mode:o}{size}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options.as_str()))?)
}

/// The volume belongs to the group of the pod, and so does what is made in it.
fn own_by_group(path: &Path, group: Option<FsGroup>) -> io::Result<()> {
    let Some(group) = group else { return Ok(()) };
    let root = fs::metadata(path)?;
    if group.only_on_mismatch && root.gid() == group.id && root.permissions().mode() & 0o2070 == 0o2070 {
        return Ok(());
    }
    give_to_group(path, group.id, 0o060)?;
    let mode = fs::metadata(path)?.permissions().mode();
    set_mode(path, mode | 0o2070)
}

/// Files of a tree belong to a group that has these rights on them. Links are not followed.
fn give_to_group(path: &Path, group: u32, rights: u32) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    std::os::unix::fs::lchown(path, None, Some(group))?;
    if metadata.is_symlink() {
        return Ok(());
    }
    if !metadata.is_dir() {
        return set_mode(path, metadata.permissions().mode() | rights);
    }
    set_mode(path, metadata.permissions().mode() | rights | 0o010)?;
    for entry in fs::read_dir(path)? {
        give_to_group(&entry?.path(), group, rights)?;
    }
    Ok(())
}

/// A path of the host, if the pod may have it. Links are resolved before the path is checked.
fn host_path(settings: &Settings, path: &Path, kind: &str) -> Result<PathBuf, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    check_host_path(settings, &existing_part(path).map_err(failed)?)?;
    match kind {
        "DirectoryOrCreate" if !path.exists() => {
            fs::create_dir_all(path).and_then(|()| set_mode(path, 0o755)).map_err(failed)?;
        }
        "FileOrCreate" if !path.exists() => {
            fs::File::create(path).and_then(|_| set_mode(path, 0o644)).map_err(failed)?;
        }
        _ => {}
    }
    let real = path.canonicalize().map_err(failed)?;
    check_host_path(settings, &real)?;
    check_kind(&real, kind)?;
    Ok(real)
}

/// What of a path exists, without links.
fn existing_part(path: &Path) -> io::Result<PathBuf> {
    let mut part = path;
    loop {
        match part.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match part.parent() {
                Some(parent) => part = parent,
                None => return Err(error),
            },
            outcome => return outcome,
        }
    }
}

fn check_host_path(settings: &Settings, real: &Path) -> Result<(), String> {
    if settings.allow_privileged {
        return Ok(());
    }
    let refused = |why: &str| {
        Err(format!(
            "hostPath {} is {why}; start quintet up with --allow-privileged to allow it",
            real.display()
        ))
    };
    let overlaps = |private: &PathBuf| {
        let private = private.canonicalize().unwrap_or_else(|_| private.clone());
        real.starts_with(&private) || private.starts_with(real)
    };
    if settings.private.iter().any(overlaps) {
        return refused("where the platform keeps its keys");
    }
    let is_at_home = settings.home.as_ref().is_some_and(|home| real.starts_with(home));
    if is_at_home { Ok(()) } else { refused("not below the user's home directory") }
}

fn check_kind(path: &Path, kind: &str) -> Result<(), String> {
    use std::os::unix::fs::FileTypeExt as _;
    let found = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?.file_type();
    let (is_right, what) = match kind {
        "Directory" | "DirectoryOrCreate" => (found.is_dir(), "a directory"),
        "File" | "FileOrCreate" => (found.is_file(), "a file"),
        "Socket" => (found.is_socket(), "a socket file"),
        "CharDevice" => (found.is_char_device(), "a character device"),
        "BlockDevice" => (found.is_block_device(), "a block device"),
        _ => (true, ""),
    };
    if is_right {
        Ok(())
    } else {
        Err(format!("hostPath type check failed: {} is not {what}", path.display()))
    }
}

/// The directory of a claim's volume.
async fn claim(context: &Context, pod: &core::Pod, name: &str) -> Result<PathBuf, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let claim =
        references::get::<core::PersistentVolumeClaim>(context, &ObjectKey::new(namespace, name)).await;
    let claim = claim.map_err(|error| error.to_string())?;
    let claim = claim.ok_or_else(|| format!("persistentvolumeclaim {name:?} not found"))?;
    let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let volume = claim.spec.and_then(|spec| spec.volume_name).filter(|_| is_bound);
    let volume = volume.ok_or_else(|| format!("PVC {namespace}/{name} is not bound"))?;
    let found = references::get::<core::PersistentVolume>(context, &ObjectKey::cluster(&volume)).await;
    let found = found.map_err(|error| error.to_string())?;
    let spec = found.and_then(|found| found.spec).ok_or_else(|| format!("PV {volume} not found"))?;
    if let Some(local) = spec.local {
        return host_path(&context.settings, Path::new(&local.path), "");
    }
    let Some(source) = spec.host_path else {
        return Err(format!("the kind of volume of PV {volume} is not supported by this node"));
    };
    let path = Path::new(&source.path);
    if context.settings.volumes.as_ref().is_some_and(|ours| path.starts_with(ours)) {
        return provisioned(path).map_err(|error| format!("{}: {error}", path.display()));
    }
    host_path(&context.settings, path, source.type_.as_deref().unwrap_or_default())
}

/// The directory of a volume that this platform provisioned: every user may write to it.
fn provisioned(path: &Path) -> io::Result<PathBuf> {
    if !path.exists() {
        fs::create_dir_all(path)?;
    }
    let metadata = fs::metadata(path)?;
    if metadata.permissions().mode() & 0o777 == 0o755 && fs::read_dir(path)?.next().is_none() {
        chown(path, Some(0), Some(0))?;
        set_mode(path, 0o777)?;
    }
    path.canonicalize()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(home: &Path, private: &Path) -> Settings {
        let mut settings = Settings::new("n", private.join("node"), "/p".into());
        settings.home = Some(home.to_owned());
        settings.private = vec![private.to_owned()];
        settings
    }

    #[test]
    fn paths_of_the_host_are_below_the_home_and_away_from_keys() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let private = home.join("data");
        fs::create_dir_all(private.join("node")).unwrap();
        fs::create_dir(home.join("work")).unwrap();
        std::os::unix::fs::symlink(&private, home.join("work/link")).unwrap();
        let settings = settings(&home, &private);
        let check = |path: &str, kind: &str| host_path(&settings, &home.join(path), kind);
        assert_eq!(check("work", "Directory"), Ok(home.join("work")));
        assert_eq!(check("work/new", "DirectoryOrCreate"), Ok(home.join("work/new")));
        assert_eq!(check("work/file", "FileOrCreate"), Ok(home.join("work/file")));
        for refused in
            ["data", "data/node", "work/link", "work/link/new", "", "/etc", "/etc/passwd", "work/../data"]
        {
            let error = check(refused, "DirectoryOrCreate").unwrap_err();
            assert!(error.contains("--allow-privileged"), "{refused}: {error}");
        }
        assert!(!private.join("new").exists());
        let error = check("work", "File").unwrap_err();
        assert!(
            error.starts_with("hostPath type check failed:") && error.ends_with("is not a file"),
            "{error}"
        );
        let free = Settings { allow_privileged: true, ..settings.clone() };
        assert_eq!(host_path(&free, Path::new("/etc"), ""), Ok("/etc".into()));
    }

    #[test]
    fn a_group_gets_its_rights_on_a_tree() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::write(path.join("file"), "").unwrap();
        fs::set_permissions(path.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path.join("link")).unwrap();
        let before = fs::metadata("/etc/passwd").unwrap().permissions().mode();
        let group = FsGroup { id: rustix::process::getegid().as_raw(), only_on_mismatch: false };
        own_by_group(path, Some(group)).unwrap();
        assert_eq!(fs::metadata(path.join("file")).unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o2070, 0o2070);
        assert_eq!(fs::metadata("/etc/passwd").unwrap().permissions().mode(), before);
    }

    #[test]
    fn a_volume_whose_root_is_right_may_stay_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (root, file) = (directory.path(), directory.path().join("file"));
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        let context = json!({ "fsGroup": rustix::process::getegid().as_raw(), "fsGroupChangePolicy": "OnRootMismatch" });
        let pod = json!({ "spec": { "containers": [], "securityContext": context } });
        let group = FsGroup::of(&serde_json::from_value(pod).unwrap());
        set_mode(root, 0o2770).unwrap();
        own_by_group(root, group).unwrap();
        assert_eq!(mode(), 0o600);
        set_mode(root, 0o755).unwrap();
        own_by_group(root, group).unwrap();
        assert_eq!(mode(), 0o660);
    }
}
