//! What the network changes on the machine: the name and the subnet of the bridge, the route to cluster IPs and IP
//! forwarding. All of it is found again after a crash, and removed by [`clear`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

use super::netlink::{self, with_netlink};
use super::{Bridge, NetworkError, Subnet, outside};

/// What the bridges of all data directories begin with.
const PREFIX: &str = "qnt-";
/// The second octet of the subnets that are tried, in this order: all are 10.x.0.0/16.
const CANDIDATES: std::ops::RangeInclusive<u8> = 244..=254;
/// Platforms that share this machine set it up one after the other. The file says what was different before the first
/// of them; like what it says, it is gone after a reboot.
const LOCK: &str = "/run/quintet-network.lock";
/// In [`LOCK`]: IP forwarding was off.
const FORWARDING_WAS_OFF: &str = "ip_forward=0\n";
/// Where a data directory keeps what was changed.
const FILE: &str = "network.json";
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

/// What was changed on this machine on behalf of a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Changes {
    /// The bridge.
    pub bridge: String,
    /// The addresses of Services, which are local.
    pub services: String,
    /// All of it is in namespaces that go with their last process.
    pub is_private: bool,
}

impl Changes {
    fn path(data_directory: &Path) -> PathBuf {
        data_directory.join(FILE)
    }

    /// What an earlier run changed.
    pub(super) fn read(data_directory: &Path) -> Result<Option<Self>, NetworkError> {
        let path = Self::path(data_directory);
        let failed = |why: String| NetworkError::because(format!("read {}", path.display()), why);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(error.to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Written before the change is made, so that it can be undone after a crash.
    pub(super) fn write(&self, data_directory: &Path) -> Result<(), NetworkError> {
        let path = Self::path(data_directory);
        let written = serde_json::to_vec(self).map_err(io::Error::other).and_then(|bytes| {
            fs::create_dir_all(data_directory)?;
            fs::write(&path, bytes)
        });
        written.map_err(|error| NetworkError::because(format!("write {}", path.display()), error))
    }
}

/// The name of the bridge of a data directory.
pub(super) fn bridge_name(data_directory: &Path) -> String {
    let path = fs::canonicalize(data_directory).unwrap_or_else(|_| data_directory.to_owned());
    let hash = Sha1::digest(path.as_os_str().as_bytes());
    let short = hash.iter().take(4).fold(0_u32, |short, byte| short << 8 | u32::from(*byte));
    format!("{PREFIX}{short:08x}")
}

/// Opens the bridge of a data directory: that of an earlier run, or a new one with a subnet that is free. The
/// addresses of Services become local.
pub(super) async fn open_bridge(changes: &Changes, services: Subnet) -> Result<Bridge, NetworkError> {
    let name = changes.bridge.as_str();
    let lock = if changes.is_private { None } else { lock().await };
    let owned = name.to_owned();
    let subnet = with_netlink(None, async move |handle| {
        let links = netlink::links(&handle).await?;
        let existing = links.iter().find(|link| link.name == owned);
        let addresses = netlink::addresses(&handle).await?;
        let of_existing = existing.and_then(|link| {
            addresses
                .iter()
                .find(|(index, ..)| *index == link.index)
                .map(|(_, address, prefix)| (*address, *prefix))
        });
        if let Some((address, prefix)) = of_existing {
            return Subnet::new(address, prefix)
                .map_err(|why| NetworkError::because("take over the bridge", why));
        }
        free_subnet(&netlink::used_ranges(&handle).await?)
    })
    .await?;
    let bridge = Bridge::open(name, subnet).await?;
    with_netlink(None, async move |handle| netlink::make_local(&handle, services).await).await?;
    if !changes.is_private {
        enable_forwarding(lock.as_ref())?;
    }
    drop(lock);
    Ok(bridge)
}

/// The first subnet that overlaps with nothing that this machine knows.
fn free_subnet(used: &[(Ipv4Addr, u8)]) -> Result<Subnet, NetworkError> {
    let candidates = CANDIDATES.filter_map(|second| Subnet::new([10, second, 0, 0].into(), 16).ok());
    let mut free =
        candidates.filter(|subnet| !used.iter().any(|(other, prefix)| subnet.overlaps(*other, *prefix)));
    free.next().ok_or_else(|| {
        let tried = format!("10.{}.0.0/16 to 10.{}.0.0/16", CANDIDATES.start(), CANDIDATES.end());
        NetworkError::because(
            "find addresses for pods",
            format!("this machine has routes into all of {tried}"),
        )
    })
}

/// Waits until no other start looks for a subnet.
async fn lock() -> Option<File> {
    let lock = || {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(LOCK)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok::<File, io::Error>(file)
    };
    tokio::task::spawn_blocking(lock).await.ok()?.ok()
}

/// The address by which this machine reaches others; loopback if it reaches none.
pub(super) fn primary_address() -> Ipv4Addr {
    // Connecting a datagram socket sends nothing: the kernel chooses a route. The address is one for documentation.
    let address = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9))?;
        socket.local_addr()
    });
    match address.map(|address| address.ip()) {
        Ok(std::net::IpAddr::V4(address)) => address,
        _ => Ipv4Addr::LOCALHOST,
    }
}

/// Lets this process have as many connections as it may: the usual limit is for programs that wait with `select`.
pub(super) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Fewer connections are no reason not to start.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Lets this machine forward packets, which pods need to reach other machines.
fn enable_forwarding(lock: Option<&File>) -> Result<(), NetworkError> {
    let is_off = fs::read_to_string(FORWARDING).is_ok_and(|text| text.trim() == "0");
    if !is_off {
        return Ok(());
    }
    if let Some(mut lock) = lock {
        lock.write_all(FORWARDING_WAS_OFF.as_bytes())
            .map_err(|error| NetworkError::because(format!("write {LOCK}"), error))?;
    }
    set_forwarding(true)
}

fn set_forwarding(is_on: bool) -> Result<(), NetworkError> {
    fs::write(FORWARDING, if is_on { "1" } else { "0" })
        .map_err(|error| NetworkError::because(format!("write {FORWARDING}"), error))
}

/// Removes what a platform changed on this machine. Other platforms on it keep what they share.
pub(super) async fn clear(data_directory: &Path) -> Result<(), NetworkError> {
    let Some(changes) = Changes::read(data_directory)? else { return Ok(()) };
    let Changes { bridge, services, is_private } = changes;
    if is_private {
        return forget(data_directory);
    }
    let lock = lock().await;
    let links = with_netlink(None, async |handle| netlink::links(&handle).await).await?;
    let is_other = |name: &str| name.starts_with(PREFIX) && name != bridge;
    let is_last = !links.iter().any(|link| is_other(&link.name));
    outside::clear(&bridge).await?;
    Bridge::remove_named(&bridge).await?;
    if is_last {
        if let Ok(subnet) = services.parse::<Subnet>() {
            with_netlink(None, async move |handle| netlink::remove_local(&handle, subnet).await).await?;
        }
        if fs::read_to_string(LOCK).is_ok_and(|text| text.contains(FORWARDING_WAS_OFF)) {
            set_forwarding(false)?;
            fs::write(LOCK, "").map_err(|error| NetworkError::because(format!("write {LOCK}"), error))?;
        }
    }
    drop(lock);
    forget(data_directory)
}

fn forget(data_directory: &Path) -> Result<(), NetworkError> {
    let path = Changes::path(data_directory);
    fs::remove_file(&path).map_err(|error| NetworkError::because(format!("remove {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_is_free_if_no_route_or_address_overlaps_with_it() {
        let free = |used: &[(&str, u8)]| {
            let used: Vec<(Ipv4Addr, u8)> =
                used.iter().map(|(address, prefix)| (address.parse().unwrap(), *prefix)).collect();
            free_subnet(&used).map(|subnet| subnet.to_string())
        };
        assert_eq!(free(&[]).unwrap(), "10.244.0.0/16");
        assert_eq!(free(&[("10.244.3.0", 24)]).unwrap(), "10.245.0.0/16");
        assert_eq!(free(&[("10.244.0.0", 15), ("10.246.0.1", 32)]).unwrap(), "10.247.0.0/16");
        assert_eq!(free(&[("192.168.0.0", 16)]).unwrap(), "10.244.0.0/16");
        assert!(free(&[("10.0.0.0", 8)]).unwrap_err().to_string().contains("10.244.0.0/16"));
    }

    #[test]
    fn data_directories_have_bridges_of_their_own() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = bridge_name(one.path());
        assert!(name.len() <= 15 && name.starts_with(PREFIX), "{name}");
        assert_eq!(bridge_name(&one.path().join(".")), name);
        assert_ne!(bridge_name(two.path()), name);
    }

    #[test]
    fn changes_are_read_back() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Changes::read(directory.path()).unwrap(), None);
        let changes = Changes { bridge: "qnt-1".into(), services: "10.96.0.0/16".into(), is_private: false };
        changes.write(directory.path()).unwrap();
        assert_eq!(Changes::read(directory.path()).unwrap(), Some(changes));
        fs::write(directory.path().join(FILE), "{").unwrap();
        assert!(Changes::read(directory.path()).is_err());
    }
}
