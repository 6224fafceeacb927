//! A whole API: storage, keys, certificates, and the server in front of them.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::task::JoinHandle;

use super::{
    ServeError,
    certificates::{Authority, AuthorityError, FrontProxy},
    listen, serve, tls,
};
use crate::{
    api::{Api, Converter, Parts},
    auth::tokens::{KeyError, Tokens},
    controllers::Controller,
    status::Failure,
    store::{Salvaged, Store, StoreError},
};

/// How an API is set up.
#[derive(Clone)]
pub struct Settings {
    /// Where everything is kept; nowhere if `None`.
    pub data_dir: Option<PathBuf>,
    /// Address to listen at; port 0 takes any.
    pub address: SocketAddr,
    /// Converts custom kinds without webhooks.
    pub converter: Option<Converter>,
    /// Controllers that are not started.
    pub disabled_controllers: BTreeSet<Controller>,
}

impl Default for Settings {
    /// In memory, on any free port of the loopback interface.
    fn default() -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { data_dir: None, address, converter: None, disabled_controllers: BTreeSet::new() }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("data_dir", &self.data_dir)
            .field("address", &self.address)
            .field("disabled_controllers", &self.disabled_controllers)
            .finish_non_exhaustive()
    }
}

/// Why an API cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Tokens cannot be signed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A key or certificate of the data directory cannot be used.
    #[error("{} {problem}: restore it from a backup, or remove {remove} and start again: {consequence}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
        /// The files without which a start makes new ones.
        remove: &'static str,
        /// What new ones mean.
        consequence: &'static str,
    },
    /// Certificates cannot be made.
    #[error("cannot make certificates: {0}")]
    Certificates(#[from] rcgen::Error),
    /// A file of the data directory cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The objects every cluster has cannot be created.
    #[error("cannot prepare the API: {0}")]
    Bootstrap(#[from] Failure),
}

/// A running API.
#[derive(Debug)]
pub struct Cluster {
    api: Api,
    authority: Authority,
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Cluster {
    /// Makes a data directory usable again that is damaged or incomplete, and reports what is lost.
    pub fn recover(data_dir: &Path) -> Result<Salvaged, StartError> {
        Ok(Store::recover(&data_dir.join("store"))?)
    }

    /// Opens the data, listens, and serves until [`Cluster::stop`].
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let cluster = Self::start_unready(settings).await?;
        cluster.api.set_ready(true);
        Ok(cluster)
    }

    /// The same for a cluster that is not ready yet: `/readyz` fails until [`Api::set_ready`] says that it is.
    pub async fn start_unready(settings: Settings) -> Result<Self, StartError> {
        let store = match &settings.data_dir {
            Some(path) => Store::open(&path.join("store"))?,
            None => Store::in_memory(),
        };
        let listener = listen(settings.address).await?;
        let bound = |source| ServeError::Listen { address: settings.address, source };
        let address = listener.local_addr().map_err(bound)?;
        let (authority, tokens) = keys(settings.data_dir.as_deref())?;
        let tls = tls(&authority, &names(address.ip()))?;
        let parts = Parts {
            store,
            tokens,
            converter: settings.converter,
            ca: authority.certificate.clone(),
            front_proxy: Some(Arc::new(FrontProxy::generate()?)),
            disabled_controllers: settings.disabled_controllers,
            address: reachable(address).to_string(),
            clock: quintet_foundation::clock::Clock::system(),
            rng: quintet_foundation::rng::Rng::from_entropy(),
        };
        let api = Api::start(parts).await?;
        api.set_ready(false);
        #[expect(clippy::disallowed_methods, reason = "joined by `stop`")]
        let server = tokio::spawn(serve(api.clone(), listener, tls));
        Ok(Self { api, authority, address, server })
    }

    /// The API itself.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The authority that its clients' certificates are of.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients on this machine reach it.
    pub fn url(&self) -> String {
        format!("https://{}", reachable(self.address))
    }

    /// A kubeconfig of its administrator.
    pub fn kubeconfig(&self) -> Result<String, rcgen::Error> {
        self.authority.kubeconfig(&self.url())
    }

    /// Ends watches, completes requests in progress, and releases the data directory.
    pub async fn stop(self) {
        self.api.stop().await;
        let _ = self.server.await;
    }
}

/// An address that can be connected to, where one that means all of them was listened at.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Names under which clients inside and outside know the server.
fn names(ip: IpAddr) -> Vec<String> {
    let mut names: Vec<String> = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
        "::1",
        "10.96.0.1",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut add = |name: String| {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    };
    if ip.is_unspecified() {
        // Reached from elsewhere by what this machine is called there.
        add(fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned());
        if let Some(ip) = outward(ip) {
            add(ip.to_string());
        }
    } else {
        add(ip.to_string());
    }
    names
}

/// The address from which this machine reaches others. Nothing is sent to find out.
fn outward(any: IpAddr) -> Option<IpAddr> {
    let elsewhere: IpAddr = match any {
        IpAddr::V4(_) => std::net::Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    socket.connect((elsewhere, 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// The keys of a data directory, made at its first start.
fn keys(data_dir: Option<&Path>) -> Result<(Authority, Tokens), StartError> {
    let Some(data_dir) = data_dir else {
        return Ok((Authority::generate()?, Tokens::generate()?.0));
    };
    Ok((authority(data_dir)?, tokens(data_dir)?))
}

fn authority(data_dir: &Path) -> Result<Authority, StartError> {
    let (certificate_path, key_path) = (data_dir.join("ca.crt"), data_dir.join("ca.key"));
    let unusable = |path: &Path, problem| StartError::KeyFile {
        path: path.to_owned(),
        problem,
        remove: "ca.crt and ca.key",
        consequence: "a new authority is made, and kubeconfigs and client certificates of the old one are refused",
    };
    let (certificate, key) = match (read(&certificate_path)?, read(&key_path)?) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, Some(_)) => return Err(unusable(&certificate_path, "is missing")),
        (Some(_), None) => return Err(unusable(&key_path, "is missing")),
        (None, None) => {
            let authority = Authority::generate()?;
            write_private(&key_path, authority.key.as_bytes())?;
            write_private(&certificate_path, authority.certificate.as_bytes())?;
            return Ok(authority);
        }
    };
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let authority = Authority { certificate: text(&certificate), key: text(&key) };
    match authority.check() {
        Ok(()) => Ok(authority),
        Err(AuthorityError::Certificate) => Err(unusable(&certificate_path, "is damaged")),
        Err(AuthorityError::Key) => Err(unusable(&key_path, "is damaged")),
        Err(AuthorityError::Mismatch) => Err(unusable(&key_path, "is not the key of ca.crt")),
    }
}

fn tokens(data_dir: &Path) -> Result<Tokens, StartError> {
    let path = data_dir.join("tokens.key");
    let Some(key) = read(&path)? else {
        let (tokens, key) = Tokens::generate()?;
        write_private(&path, &key)?;
        return Ok(tokens);
    };
    Tokens::read(&key).map_err(|_| StartError::KeyFile {
        path,
        problem: "is damaged",
        remove: "it",
        consequence: "a new key is made, and tokens of service accounts that were issued so far are refused",
    })
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, StartError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StartError::File { path: path.to_owned(), source }),
    }
}

/// Writes a file that only its owner can read, whole or not at all.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), StartError> {
    let write = || -> std::io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        let _ = fs::remove_file(&temporary);
        let mut options = fs::OpenOptions::new();
        options.create_new(true).write(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(0o600);
        }
        let mut file = options.open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // The name is only safe once the directory is.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs::File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
    };
    write().map_err(|source| StartError::File { path: path.to_owned(), source })
}
