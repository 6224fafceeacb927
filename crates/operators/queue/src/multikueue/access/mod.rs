//! How a worker cluster is reached: by a kubeconfig, or by a ClusterProfile and a program that gives credentials.

mod credentials;
mod exec;
mod profile;

use std::hash::{DefaultHasher, Hash, Hasher};

use http::Uri;
use kube::config::{KubeConfigOptions, Kubeconfig};
use quintet_controller::api::connect;
use quintet_controller::clock::Clock;

use super::kubeconfig::{self, Problem};
use exec::Program;
pub(super) use profile::{ClusterProfile, access, decode};

/// How a cluster is reached.
pub(super) struct Access {
    /// Where it is, and the credentials for it, unless a program gives them.
    kubeconfig: Kubeconfig,
    profile: Option<ByProfile>,
    /// Distinguishes ways to reach a cluster without showing secrets.
    pub(super) digest: u64,
}

/// What a kubeconfig does not have.
struct ByProfile {
    program: Program,
    proxy: Option<Uri>,
}

/// A client of a cluster.
pub(super) struct Reached {
    pub(super) client: kube::Client,
    /// The URL of its API.
    pub(super) server: String,
}

fn digest(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Access {
    /// By the text of a kubeconfig.
    pub(super) fn by_kubeconfig(text: &str) -> Result<Self, Problem> {
        Ok(Self { kubeconfig: kubeconfig::read(text)?, profile: None, digest: digest(text) })
    }

    /// A client, which has not sent a request yet; the error says why there cannot be one.
    pub(super) async fn client(self, clock: &Clock) -> Result<Reached, String> {
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(self.kubeconfig, &options).await;
        let mut config = config.map_err(|error| error.to_string())?;
        if let Some(profile) = &self.profile {
            // Not the proxy of this process, which is for its own cluster.
            config.proxy_url.clone_from(&profile.proxy);
        }
        let server = config.cluster_url.to_string();
        // Without credentials, too, this tells whether the rest of the configuration can be used.
        let client = connect(config.clone()).map_err(|error| error.cause())?;
        let client = match self.profile {
            Some(profile) => credentials::client(config, profile.program, clock.clone()),
            None => client,
        };
        Ok(Reached { client, server })
    }
}
