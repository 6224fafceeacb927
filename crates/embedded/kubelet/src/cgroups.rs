//! Control groups: the limits of containers, where the machine lets us set them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The directory below the root of a hierarchy that is ours.
const OURS: &str = "quintet";
/// CPU time is given out in periods of this many microseconds.
const CPU_PERIOD: i64 = 100_000;
/// Processes and threads of one container, so that none forks without end.
const PIDS: u64 = 4096;

/// Limits of one container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Thousandths of a processor at most.
    pub cpu: Option<i64>,
    /// Thousandths of a processor that others cannot take.
    pub cpu_request: i64,
}

/// What a container uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds of processor time since its start.
    pub cpu_nanos: u64,
    /// Bytes of memory that it works with.
    pub memory: u64,
}

/// The hierarchies of this machine that can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// One hierarchy for everything.
    V2(PathBuf),
    /// One per controller; those that can be written.
    V1 {
        /// Limits memory.
        memory: Option<PathBuf>,
        /// Limits processor time.
        cpu: Option<PathBuf>,
        /// Limits processes.
        pids: Option<PathBuf>,
        /// Counts processor time.
        accounting: Option<PathBuf>,
    },
    /// None: limits are not enforced.
    None,
}

impl Cgroups {
    /// Finds out what this machine has, below the usual place.
    pub fn detect() -> Self {
        Self::below(Path::new("/sys/fs/cgroup"))
    }

    fn below(root: &Path) -> Self {
        if root.join("cgroup.controllers").exists() {
            let ours = root.join(OURS);
            return match prepare_v2(root, &ours) {
                Ok(()) => Self::V2(ours),
                Err(_) => Self::None,
            };
        }
        let usable = |controller: &str| {
            let ours = root.join(controller).join(OURS);
            let is_there =
                root.join(controller).join("cgroup.procs").exists() && fs::create_dir_all(&ours).is_ok();
            // It may be there because a platform of another user made it.
            (is_there && rustix::fs::access(&ours, rustix::fs::Access::WRITE_OK).is_ok()).then_some(ours)
        };
        let (memory, cpu, pids) = (usable("memory"), usable("cpu"), usable("pids"));
        if memory.is_none() && cpu.is_none() && pids.is_none() {
            return Self::None;
        }
        Self::V1 { memory, cpu, pids, accounting: usable("cpuacct") }
    }

    /// What cannot be limited on this machine, for people.
    pub fn missing(&self) -> Vec<&'static str> {
        match self {
            Self::V2(_) => Vec::new(),
            Self::None => vec!["memory", "processor time", "processes"],
            Self::V1 { memory, cpu, pids, .. } => {
                let named = [(memory, "memory"), (cpu, "processor time"), (pids, "processes")];
                named.into_iter().filter(|(path, _)| path.is_none()).map(|(_, name)| name).collect()
            }
        }
    }

    /// Gives pods together the weight of all processors, as the kubelet does for its group of pods: without it, they have
    /// that of one process of this machine.
    pub fn weigh(&self, processors: u64) -> io::Result<()> {
        let millis = i64::try_from(processors).unwrap_or(i64::MAX).saturating_mul(1000);
        let shares = shares(Limits { cpu: Some(millis), ..Limits::default() });
        match self {
            Self::V2(ours) => write_all(ours, &vec![("cpu.weight", weight(shares).to_string())]),
            Self::V1 { cpu: Some(ours), .. } => write_all(ours, &vec![("cpu.shares", shares.to_string())]),
            Self::V1 { .. } | Self::None => Ok(()),
        }
    }

    /// Makes the groups of a container; returns the directories it has to join. `name` is unique on this machine.
    pub fn create(&self, name: &str, limits: Limits) -> io::Result<Vec<PathBuf>> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::V2(ours) => {
                let group = ours.join(name);
                fs::create_dir_all(&group)?;
                write_all(&group, &v2_settings(limits))?;
                forbid_swap(&group)?;
                Ok(vec![group])
            }
            Self::V1 { memory, cpu, pids, accounting } => {
                let mut groups = Vec::new();
                for (root, settings) in [
                    (memory, v1_memory(limits)),
                    (cpu, v1_cpu(limits)),
                    (pids, vec![("pids.max", PIDS.to_string())]),
                    (accounting, Settings::new()),
                ] {
                    let Some(root) = root else { continue };
                    let group = root.join(name);
                    fs::create_dir_all(&group)?;
                    write_all(&group, &settings)?;
                    groups.push(group);
                }
                Ok(groups)
            }
        }
    }

    /// Gives the groups of a running container other limits; what is no longer limited becomes unlimited.
    pub fn resize(&self, name: &str, limits: Limits) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::V2(ours) => {
                let unlimited = |is_limited: bool, file| (!is_limited).then(|| (file, "max".to_owned()));
                let mut settings = v2_settings(limits);
                settings.extend(unlimited(limits.memory.is_some(), "memory.max"));
                settings.extend(unlimited(limits.cpu.is_some(), "cpu.max"));
                write_all(&ours.join(name), &settings)
            }
            Self::V1 { memory, cpu, .. } => {
                let unlimited = |is_limited: bool, file| (!is_limited).then(|| (file, "-1".to_owned()));
                let (mut of_memory, mut of_cpu) = (v1_memory(limits), v1_cpu(limits));
                of_memory.extend(unlimited(limits.memory.is_some(), "memory.limit_in_bytes"));
                of_cpu.extend(unlimited(limits.cpu.is_some(), "cpu.cfs_quota_us"));
                for (root, settings) in [(memory, of_memory), (cpu, of_cpu)] {
                    if let Some(root) = root {
                        write_all(&root.join(name), &settings)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// What a container uses; `None` where that is not counted.
    pub fn usage(&self, name: &str) -> Option<Usage> {
        let read = |path: PathBuf| fs::read_to_string(path).ok();
        let (cpu_nanos, memory, statistics) = match self {
            Self::None => return None,
            Self::V2(ours) => {
                let group = ours.join(name);
                let micros = field(&read(group.join("cpu.stat"))?, "usage_usec")?;
                (micros.saturating_mul(1000), read(group.join("memory.current"))?, group.join("memory.stat"))
            }
            Self::V1 { memory, accounting, .. } => {
                let group = memory.as_ref()?.join(name);
                let nanos = read(accounting.as_ref()?.join(name).join("cpuacct.usage"))?;
                let used = read(group.join("memory.usage_in_bytes"))?;
                (nanos.trim().parse().ok()?, used, group.join("memory.stat"))
            }
        };
        let statistics = read(statistics).unwrap_or_default();
        let inactive =
            field(&statistics, "total_inactive_file").or_else(|| field(&statistics, "inactive_file"));
        // As the kubelet: files that could be dropped at once do not count.
        let memory = memory.trim().parse::<u64>().ok()?.saturating_sub(inactive.unwrap_or_default());
        Some(Usage { cpu_nanos, memory })
    }

    /// The name of the groups of a container instance.
    pub fn name(pod: &str, container: &str, attempt: u32) -> String {
        format!("pod{pod}-{container}-{attempt}")
    }

    /// Removes all groups of a pod whose processes have ended. The kernel may still be busy with the last of them.
    pub async fn remove_pod(&self, pod: &str) -> io::Result<()> {
        let prefix = format!("pod{pod}-");
        for root in self.roots() {
            for entry in fs::read_dir(root).into_iter().flatten().flatten() {
                if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
                    remove(&entry.path()).await?;
                }
            }
        }
        Ok(())
    }

    /// Removes the groups of a container instance that has ended.
    pub async fn remove(&self, name: &str) -> io::Result<()> {
        for root in self.roots() {
            remove(&root.join(name)).await?;
        }
        Ok(())
    }

    /// Removes our part of the hierarchies, if nothing is left in it.
    pub fn clear(&self) {
        // Another platform on this machine may use it.
        self.roots().into_iter().for_each(|root| drop(fs::remove_dir(root)));
    }

    fn roots(&self) -> Vec<&Path> {
        match self {
            Self::None => Vec::new(),
            Self::V2(ours) => vec![ours],
            Self::V1 { memory, cpu, pids, accounting } => {
                [memory, cpu, pids, accounting].into_iter().flatten().map(PathBuf::as_path).collect()
            }
        }
    }
}

/// A group whose last process is being reaped cannot be removed at once.
async fn remove(group: &Path) -> io::Result<()> {
    // On a machine that is busy, killed processes take seconds to go.
    for wait in [1, 4, 16, 64, 256, 1024, 2048, 4096, 8192, 16384] {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
            }
            outcome => return outcome,
        }
    }
    fs::remove_dir(group)
}

fn prepare_v2(root: &Path, ours: &Path) -> io::Result<()> {
    fs::write(root.join("cgroup.subtree_control"), "+cpu +memory +pids")?;
    fs::create_dir_all(ours)?;
    fs::write(ours.join("cgroup.subtree_control"), "+cpu +memory +pids")
}

/// As on a node without swap: a limit of memory would only make a container slow otherwise. Kernels that do not count swap
/// have no such file.
fn forbid_swap(group: &Path) -> io::Result<()> {
    if !group.join("memory.swap.max").exists() {
        return Ok(());
    }
    write_all(group, &vec![("memory.swap.max", "0".to_owned())])
}

type Settings = Vec<(&'static str, String)>;

fn v2_settings(limits: Limits) -> Settings {
    let mut settings =
        vec![("pids.max", PIDS.to_string()), ("cpu.weight", weight(shares(limits)).to_string())];
    if let Some(bytes) = limits.memory {
        // A container is killed as a whole; what is left of it would only hang.
        settings.extend([("memory.max", bytes.to_string()), ("memory.oom.group", "1".to_owned())]);
    }
    if let Some(quota) = quota(limits) {
        settings.push(("cpu.max", format!("{quota} {CPU_PERIOD}")));
    }
    settings
}

fn v1_memory(limits: Limits) -> Settings {
    limits.memory.map(|bytes| ("memory.limit_in_bytes", bytes.to_string())).into_iter().collect()
}

fn v1_cpu(limits: Limits) -> Settings {
    let mut settings = vec![("cpu.shares", shares(limits).to_string())];
    if let Some(quota) = quota(limits) {
        settings
            .extend([("cpu.cfs_period_us", CPU_PERIOD.to_string()), ("cpu.cfs_quota_us", quota.to_string())]);
    }
    settings
}

/// As the kubelet computes it: 1024 for a processor, at least 2. A container without a request gets that of its limit.
fn shares(limits: Limits) -> i64 {
    let millis = if limits.cpu_request > 0 { limits.cpu_request } else { limits.cpu.unwrap_or_default() };
    (millis.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

/// Shares of the first version in the range of the second.
fn weight(shares: i64) -> i64 {
    1 + (shares - 2) * 9999 / 262_142
}

/// At least a millisecond of every period.
fn quota(limits: Limits) -> Option<i64> {
    limits.cpu.map(|millis| (millis * CPU_PERIOD / 1000).max(1000))
}

/// A number in a file of `name number` lines.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok())
}

fn write_all(group: &Path, settings: &Settings) -> io::Result<()> {
    for (file, value) in settings {
        let path = group.join(file);
        fs::write(&path, value)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_the_kubelet_computes_them() {
        let limits = Limits { memory: Some(1 << 20), cpu: Some(1500), cpu_request: 500 };
        let expected =
            [("cpu.shares", "512"), ("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "150000")];
        assert_eq!(v1_cpu(limits), expected.map(|(file, value)| (file, value.to_owned())));
        assert!(v2_settings(limits).contains(&("cpu.max", "150000 100000".to_owned())));
        assert!(v2_settings(limits).contains(&("memory.max", "1048576".to_owned())));
    }

    #[test]
    fn small_and_missing_limits() {
        let tiny = Limits { cpu: Some(1), ..Limits::default() };
        assert_eq!(quota(tiny), Some(1000));
        assert_eq!(shares(Limits::default()), 2);
        assert_eq!(shares(Limits { cpu: Some(2000), ..Limits::default() }), 2048);
        assert_eq!((weight(2), weight(262_144)), (1, 10_000));
        assert_eq!(v1_memory(Limits::default()), Settings::new());
    }

    #[test]
    fn usage_is_read_from_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("two/c/cpu.stat", "usage_usec 5\nuser_usec 4\n");
        write("two/c/memory.current", "1000\n");
        write("two/c/memory.stat", "anon 1\ninactive_file 300\n");
        write("memory/c/memory.usage_in_bytes", "900\n");
        write("memory/c/memory.stat", "inactive_file 1\ntotal_inactive_file 200\n");
        write("cpuacct/c/cpuacct.usage", "7000\n");
        let two = Cgroups::V2(root.path().join("two"));
        assert_eq!(two.usage("c"), Some(Usage { cpu_nanos: 5000, memory: 700 }));
        let place = |name: &str| Some(root.path().join(name));
        let one =
            Cgroups::V1 { memory: place("memory"), cpu: None, pids: None, accounting: place("cpuacct") };
        assert_eq!(one.usage("c"), Some(Usage { cpu_nanos: 7000, memory: 700 }));
        assert_eq!((one.usage("gone"), Cgroups::None.usage("c")), (None, None));
    }

    #[test]
    fn pods_together_have_the_weight_of_all_processors() {
        let root = tempfile::tempdir().unwrap();
        let groups = Cgroups::V2(root.path().to_owned());
        groups.weigh(4).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("cpu.weight")).unwrap(), weight(4096).to_string());
        let cpu = Some(root.path().to_owned());
        Cgroups::V1 { memory: None, cpu, pids: None, accounting: None }.weigh(4).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("cpu.shares")).unwrap(), "4096");
        Cgroups::None.weigh(4).unwrap();
    }

    #[test]
    fn containers_have_no_swap_where_that_is_counted() {
        let root = tempfile::tempdir().unwrap();
        let groups = Cgroups::V2(root.path().to_owned());
        let swap = |name: &str| root.path().join(name).join("memory.swap.max");
        groups.create("uncounted", Limits::default()).unwrap();
        assert!(!swap("uncounted").exists());
        fs::create_dir(root.path().join("counted")).unwrap();
        fs::write(swap("counted"), "max").unwrap();
        groups.create("counted", Limits::default()).unwrap();
        assert_eq!(fs::read_to_string(swap("counted")).unwrap(), "0");
    }

    #[test]
    fn hierarchies_are_found_by_what_they_hold() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Cgroups::below(root.path()), Cgroups::None);
        assert_eq!(Cgroups::None.missing().len(), 3);
        fs::create_dir_all(root.path().join("memory")).unwrap();
        fs::write(root.path().join("memory/cgroup.procs"), "").unwrap();
        let found = Cgroups::below(root.path());
        assert_eq!(found.missing(), ["processor time", "processes"]);
        let groups = found.create("pod-a", Limits { memory: Some(5), ..Limits::default() }).unwrap();
        assert_eq!(fs::read_to_string(groups[0].join("memory.limit_in_bytes")).unwrap(), "5");
    }
}
