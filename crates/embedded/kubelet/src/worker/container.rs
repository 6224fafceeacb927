//! Starting a container: everything between its specification and its process.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use quintet_controller::Event;

use super::context::Context;
use super::handle::PodHandle;
use super::image::{Pulls, after};
use super::sandbox::{TERMINATION_LOG, is_on_host};
use crate::cgroups::Cgroups;
use crate::images::{Image, command_line};
use crate::pod::environment::{ConfigError, References, environment, expand};
use crate::pod::lifecycle::{Waiting, target_of};
use crate::pod::names::hostname;
use crate::pod::observe::not_executed;
use crate::pod::resources::{limits, oom_score_adj, wants};
use crate::pod::security::{Policy, identity};
use crate::shim::ShimError;
use crate::shim::protocol::{
    ContainerConfig, Failure, Identity, Mount, MountSource, ProcessConfig, RootConfig,
};
use crate::volumes::{VolumePaths, container_mounts};

/// The first user of pods that do not say who they are; each has one of its own.
const FIRST_USER: u32 = 200_000;
/// What a container that cannot be made waits before it is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Secrets of the machine in `/etc`, which the root user of a container could read.
const SECRETS: [&str; 9] = [
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/krb5.keytab",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
];
/// The home of a user that the image does not know.
const HOME: &str = "/home/user";

/// What containers of a pod need that was prepared before.
pub(super) struct Prepared {
    pub references: References,
    pub volumes: VolumePaths,
}

/// Starts an instance of a container. On failure the container waits, or the instance has ended already.
pub(super) async fn start(
    context: &Context,
    handle: &PodHandle,
    (pod, container): (&core::Pod, &core::Container),
    attempt: u32,
    prepared: &Prepared,
    pulls: &mut Pulls,
) -> Result<bool, Waiting> {
    let image = pulls.image(context, handle, container).await?;
    let record = |event| context.event((&handle.key, &handle.uid), event);
    handle.update(|record| record.images.insert(container.name.clone(), image.id.clone()));
    let waiting = |reason: &'static str, message: String| {
        record(Event::warning("Failed", "Starting", format!("Error: {message}")));
        Waiting { reason, message, until: after(context.clock.now(), RETRY) }
    };
    let mut config = configure(context, handle, (pod, container), attempt, prepared, &image)
        .map_err(|ConfigError(message)| waiting("CreateContainerConfigError", message))?;
    config.cgroups = make(context, handle, container, &config)
        .map_err(|error| waiting("CreateContainerError", error.to_string()))?;
    record(Event::normal("Created", "Starting", format!("Created container: {}", container.name)));
    let id = config.id.clone();
    match handle.shim().start_container(config).await {
        Ok(()) => {
            record(Event::normal("Started", "Starting", format!("Started container {}", container.name)));
            Ok(true)
        }
        Err(ShimError::Failed { failure: Failure::Start, message }) => {
            record(Event::warning("Failed", "Starting", format!("Error: {message}")));
            let now = context.clock.now();
            handle.update(|record| not_executed(record, &container.name, &id, attempt, &message, now));
            Ok(false)
        }
        Err(error) => Err(waiting("CreateContainerError", error.to_string())),
    }
}

fn configure(
    context: &Context,
    handle: &PodHandle,
    (pod, container): (&core::Pod, &core::Container),
    attempt: u32,
    prepared: &Prepared,
    image: &Image,
) -> Result<ContainerConfig, ConfigError> {
    let policy = Policy {
        default_user: default_user(&handle.uid),
        allows_privileged: context.settings.allow_privileged,
    };
    let identity = context.ids.fit(identity(pod, container, image.user, policy)?);
    let base = base_environment(pod, image, &identity);
    let environment = environment(pod, container, &base, &prepared.references)?;
    let variables: BTreeMap<String, String> = environment.iter().cloned().collect();
    let expanded = |list: &Option<Vec<String>>| {
        list.as_ref().map(|list| list.iter().map(|word| expand(word, &variables)).collect::<Vec<_>>())
    };
    let (command, args) = (expanded(&container.command), expanded(&container.args));
    let directory = handle.instance(&container.name, attempt);
    let mut mounts = own_mounts(handle, pod, container, &directory, image);
    mounts.extend(devices(context, container));
    mounts.extend(container_mounts(container, &prepared.volumes, &variables)?);
    // What is below something else is mounted after it, also parts of the image below a volume.
    mounts.sort_by_key(|mount| mount.target.components().count());
    let working_directory = container.working_dir.as_deref().filter(|path| !path.is_empty());
    let home = variables.get("HOME").map_or("/", String::as_str);
    let image_directory = &image.working_directory;
    let working_directory = match working_directory {
        Some(path) => PathBuf::from(path),
        None if image_directory == Path::new("/") => PathBuf::from(home),
        None => image_directory.clone(),
    };
    let is_read_only = container.security_context.as_ref().and_then(|own| own.read_only_root_filesystem);
    Ok(ContainerConfig {
        name: container.name.clone(),
        id: identifier(context),
        attempt,
        log: handle.log(&container.name, attempt),
        process: ProcessConfig {
            command: command_line(image, command.as_deref(), args.as_deref()),
            environment,
            working_directory,
            identity,
            tty: container.tty == Some(true),
        },
        root: RootConfig {
            mounts,
            masked: SECRETS.iter().map(PathBuf::from).collect(),
            is_read_only: is_read_only == Some(true),
        },
        cgroups: Vec::new(),
        oom_score_adj: oom_score_adj(pod, container, context.machine.memory),
        stdin: container.stdin == Some(true),
        processes_of: target_of(pod, &container.name).map(str::to_owned),
        directory,
    })
}

/// A user that no other pod has.
fn default_user(uid: &str) -> u32 {
    let digits: String = uid.chars().filter(char::is_ascii_hexdigit).take(7).collect();
    FIRST_USER + u32::from_str_radix(&digits, 16).unwrap_or_default()
}

/// 64 hexadecimal digits, as container runtimes have them.
fn identifier(context: &Context) -> String {
    format!("{}{}", context.rng.uuid(), context.rng.uuid()).replace('-', "")
}

/// Variables of the image, and those that every container has.
fn base_environment(pod: &core::Pod, image: &Image, identity: &Identity) -> Vec<(String, String)> {
    let mut variables = image.environment.clone();
    let home = if identity.uid == 0 { "/root" } else { HOME };
    if let Some((_, value)) = variables.iter_mut().find(|(name, value)| name == "HOME" && value == "/") {
        home.clone_into(value);
    }
    variables.push(("HOSTNAME".into(), hostname(pod)));
    variables
}

/// Mounts that every container has: what its image needs, names, and the file for its last words.
fn own_mounts(
    handle: &PodHandle,
    pod: &core::Pod,
    container: &core::Container,
    directory: &Path,
    image: &Image,
) -> Vec<Mount> {
    let bind = |source: PathBuf, target: &str, is_read_only| Mount {
        target: target.into(),
        source: MountSource::Bind(source),
        is_read_only,
    };
    let of_image = image.mounts.iter().map(|(source, target)| Mount {
        target: target.clone(),
        source: MountSource::Bind(source.clone()),
        is_read_only: true,
    });
    let mut mounts: Vec<Mount> = of_image.collect();
    let etc = handle.directory.join("etc");
    mounts.push(bind(etc.join("resolv.conf"), "/etc/resolv.conf", false));
    if !is_on_host(pod) {
        mounts.push(bind(etc.join("hosts"), "/etc/hosts", false));
        mounts.push(bind(etc.join("hostname"), "/etc/hostname", false));
    }
    let last_words = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
    mounts.push(bind(directory.join(TERMINATION_LOG), last_words, false));
    mounts
}

/// Graphics processors, for containers that ask for them.
fn devices(context: &Context, container: &core::Container) -> Vec<Mount> {
    if context.machine.gpus == 0 || !wants(container, "nvidia.com/gpu") {
        return Vec::new();
    }
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let devices = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("nvidia"));
    let mount =
        |path: PathBuf| Mount { target: path.clone(), source: MountSource::Bind(path), is_read_only: false };
    devices.map(|entry| mount(entry.path())).collect()
}

/// Makes the directory and the control groups of an instance, and removes what older ones left.
fn make(
    context: &Context,
    handle: &PodHandle,
    container: &core::Container,
    config: &ContainerConfig,
) -> io::Result<Vec<PathBuf>> {
    let identity = &config.process.identity;
    remove_old(handle, &container.name, config.attempt);
    fs::create_dir_all(&config.directory)?;
    let last_words = config.directory.join(TERMINATION_LOG);
    fs::write(&last_words, "")?;
    fs::set_permissions(&last_words, fs::Permissions::from_mode(0o666))?;
    chown(&last_words, Some(identity.uid), Some(identity.gid))?;
    let home = config.process.environment.iter().find(|(name, _)| name == "HOME");
    let home = home.map_or("/", |(_, home)| home.as_str());
    write_users(&config.directory.join("etc"), identity, home)?;
    let name = Cgroups::name(&handle.uid, &container.name, config.attempt);
    context.cgroups.create(&name, limits(container))
}

/// Of older instances only the log of the one before stays.
fn remove_old(handle: &PodHandle, container: &str, attempt: u32) {
    for old in attempt.saturating_sub(2)..attempt {
        // Gone already, unless it is the newest of them.
        let _ = fs::remove_dir_all(handle.instance(container, old));
    }
    if let Some(old) = attempt.checked_sub(2) {
        for file in crate::shim::log_files(&handle.log(container, old)) {
            let _ = fs::remove_file(file);
        }
    }
}

/// The user has a name, as many programs expect. `etc` is laid over the machine's.
fn write_users(etc: &Path, identity: &Identity, home: &str) -> io::Result<()> {
    fs::create_dir_all(etc)?;
    fs::set_permissions(etc, fs::Permissions::from_mode(0o755))?;
    let Identity { uid, gid, .. } = identity;
    let files = [
        ("passwd", uid, format!("user:x:{uid}:{gid}:user:{home}:/bin/sh\n")),
        ("group", gid, format!("user:x:{gid}:\n")),
    ];
    for (name, id, line) in files {
        let text = fs::read_to_string(Path::new("/etc").join(name)).unwrap_or_default();
        let has_name = text.lines().any(|line| line.split(':').nth(2) == Some(&id.to_string()));
        if !has_name {
            fs::write(etc.join(name), format!("{text}{line}"))?;
            fs::set_permissions(etc.join(name), fs::Permissions::from_mode(0o644))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_has_a_user_of_its_own() {
        assert_eq!(default_user("00000ff0-aaaa"), FIRST_USER + 0xff);
        assert_ne!(default_user("12345678-1"), default_user("12345698-1"));
        assert!(default_user("ffffffff-ffff") < u32::MAX / 2);
    }

    #[test]
    fn users_that_the_machine_does_not_know_get_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity { uid: 345_678, gid: 345_679, ..Identity::default() };
        write_users(directory.path(), &identity, "/home/user").unwrap();
        let passwd = fs::read_to_string(directory.path().join("passwd")).unwrap();
        assert!(passwd.ends_with("user:x:345678:345679:user:/home/user:/bin/sh\n"), "{passwd}");
        assert!(passwd.starts_with("root:"), "{passwd}");
        let root = tempfile::tempdir().unwrap();
        write_users(root.path(), &Identity::default(), "/root").unwrap();
        assert!(!root.path().join("passwd").exists());
    }

    #[test]
    fn the_home_is_where_the_user_can_write() {
        let pod = core::Pod::default();
        let image = Image { environment: vec![("HOME".into(), "/".into())], ..Image::default() };
        let home = |uid| {
            let identity = Identity { uid, ..Identity::default() };
            base_environment(&pod, &image, &identity).remove(0).1
        };
        assert_eq!((home(0).as_str(), home(7).as_str()), ("/root", HOME));
    }
}
