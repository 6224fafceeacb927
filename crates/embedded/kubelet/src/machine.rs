//! What this machine has and is, as its Node object says it.

use std::fs;
use std::path::Path;

/// Facts about the machine that do not change while the kubelet runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Processors this process may use.
    pub processors: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of the file system that holds the data directory.
    pub storage: u64,
    /// NVIDIA devices.
    pub gpus: u32,
    /// As `nodeInfo.architecture`.
    pub architecture: String,
    /// The release of the kernel.
    pub kernel: String,
    /// The name of the distribution.
    pub os_image: String,
    /// Changes with every boot.
    pub boot_id: String,
    /// Identifies the installation.
    pub machine_id: String,
}

/// What is left at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Bytes of memory that could be had without swapping.
    pub memory: u64,
    /// Bytes of the file system that holds the data directory.
    pub storage: u64,
}

impl Machine {
    /// Reads the facts; `data_directory` exists.
    pub fn read(data_directory: &Path) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Self {
            processors: u64::try_from(processors).unwrap_or(1),
            memory: meminfo("MemTotal:"),
            storage: storage(data_directory).map_or(0, |(total, _)| total),
            gpus: count_gpus(Path::new("/dev")),
            architecture: architecture(std::env::consts::ARCH).to_owned(),
            kernel: line("/proc/sys/kernel/osrelease"),
            os_image: pretty_name(&line("/etc/os-release")),
            boot_id: line("/proc/sys/kernel/random/boot_id"),
            machine_id: line("/etc/machine-id"),
        }
    }
}

impl Free {
    /// What is left now.
    pub fn read(data_directory: &Path) -> Self {
        let storage = storage(data_directory).map_or(u64::MAX, |(_, free)| free);
        Self { memory: meminfo("MemAvailable:"), storage }
    }
}

fn storage(path: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some((found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize))
}

fn meminfo(name: &str) -> u64 {
    amount(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), name)
}

fn amount(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}

fn count_gpus(devices: &Path) -> u32 {
    let names = fs::read_dir(devices).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_gpu = |name: &str| name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u16>().is_ok());
    let count = names.filter(|name| name.to_str().is_some_and(is_gpu)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// As Go names it.
fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn pretty_name(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

/// Nanoseconds that all processors were busy since boot, in the text of `/proc/stat`.
pub(crate) fn busy_nanos(stat: &str) -> u64 {
    /// The kernel counts hundredths of a second for programs.
    const TICK_NANOS: u64 = 10_000_000;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let numbers = line.split_whitespace().map(|number| number.parse::<u64>().unwrap_or_default());
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted as user.
    let busy = numbers.take(7).enumerate().filter(|(index, _)| !matches!(index, 3 | 4));
    busy.map(|(_, ticks)| ticks.saturating_mul(TICK_NANOS)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_are_bytes() {
        let text = "MemTotal:       16384 kB\nMemAvailable:    1024 kB\n";
        assert_eq!((amount(text, "MemTotal:"), amount(text, "MemAvailable:")), (16 << 20, 1 << 20));
        assert_eq!(amount(text, "SwapTotal:"), 0);
    }

    #[test]
    fn only_numbered_devices_are_gpus() {
        let devices = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"] {
            fs::write(devices.path().join(name), "").unwrap();
        }
        assert_eq!(count_gpus(devices.path()), 2);
    }

    #[test]
    fn the_distribution_names_itself() {
        assert_eq!(pretty_name("ID=debian\nPRETTY_NAME=\"Debian 12\"\n"), "Debian 12");
        assert_eq!(pretty_name(""), "Linux");
    }

    #[test]
    fn this_machine_has_something() {
        let machine = Machine::read(Path::new("/tmp"));
        assert!(machine.processors > 0 && machine.memory > 0 && machine.storage > 0, "{machine:?}");
    }

    #[test]
    fn idle_time_is_not_busy() {
        let text = "cpu  10 1 5 1000 50 2 3 7 0 0\ncpu0 5 0 0 500 25 1 1 0 0 0\n";
        assert_eq!(busy_nanos(text), 21 * 10_000_000);
        assert_eq!(busy_nanos(""), 0);
    }
}
