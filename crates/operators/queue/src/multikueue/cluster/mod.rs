//! MultiKueueClusters: how to reach a worker cluster, and whether it is reached.

mod plan;

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use quintet_api::kueue::reasons::MultiKueueClusterActiveReason as Reason;
use quintet_api::kueue::v1beta2::{ClusterSource, KubeConfig, LocationType, MultiKueueCluster};
use quintet_controller::cache::{Cache, Entry, Selector, WatchSpec};
use quintet_controller::{Action, ApiKind, Class, Controller, Error, ObjectKey, OnError, Plan};
use serde::{Deserialize, Serialize};

use super::access::{self, Access, ClusterProfile};
use super::connections::{ConnectionState, Connections, Listeners};
use super::kubeconfig::{self, Problem};
use crate::Context;
pub(super) use plan::active;

/// The key of a kubeconfig in a Secret. As `MultiKueueConfigSecretKey` of Kueue.
const SECRET_KEY: &str = "kubeconfig";

/// How often a file is read again: mounted Secrets are replaced without a notification that reaches every container.
const FILE_INTERVAL: Duration = Duration::from_secs(2);

/// Clusters of an inventory.
fn cluster_profiles() -> ApiKind {
    ApiKind {
        group: "multicluster.x-k8s.io".into(),
        version: "v1alpha1".into(),
        kind: "ClusterProfile".into(),
        plural: "clusterprofiles".into(),
        namespaced: true,
    }
}

/// Kubeconfigs in the namespace of the operator, by Secret.
type Kubeconfigs = Cache<Option<String>>;

/// The controller.
pub(super) struct ClusterController {
    context: Context,
    clusters: Cache<MultiKueueCluster>,
    kubeconfigs: Kubeconfigs,
    /// ClusterProfiles in the namespace of the operator, where clusters can be found by them.
    profiles: Option<Cache<ClusterProfile>>,
    connections: Arc<Connections>,
}

/// What was observed of a cluster.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Observed {
    /// It is gone, and the connection to it is not.
    Gone(String),
    /// It exists.
    Present(Box<Present>),
}

/// A cluster.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Present {
    cluster: Arc<Entry<MultiKueueCluster>>,
    /// A digest of how it is reached; the error says why it is not.
    access: Result<u64, Problem>,
    connection: Option<(u64, ConnectionState)>,
    /// When to read the kubeconfig again, if nothing tells that it has changed.
    again: Option<Duration>,
    /// The path of its kubeconfig, where that is not where it should be.
    deprecated_path: Option<String>,
    now: Timestamp,
}

/// What is done outside of the own cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Call {
    /// Connects in the way of this digest.
    Connect {
        /// The name of the cluster.
        cluster: String,
        /// Of how it is reached.
        digest: u64,
    },
    /// Closes the connection.
    Disconnect {
        /// The name of the cluster.
        cluster: String,
    },
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { cluster, .. } => write!(f, "connect to MultiKueueCluster {cluster}"),
            Self::Disconnect { cluster } => write!(f, "disconnect from MultiKueueCluster {cluster}"),
        }
    }
}

/// Adds the controller. Changes on other clusters are told to it, and to the controller of Workloads.
pub(super) fn add(
    context: &Context,
    connections: &Arc<Connections>,
    workloads: quintet_controller::controller::Trigger,
) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let clusters = caches.watch(WatchSpec::<MultiKueueCluster>::typed())?;
    let in_namespace = || Selector::all().in_namespace(&context.settings.namespace);
    let secrets = WatchSpec::projected(ApiKind::of::<Secret>(), kubeconfig_of).select(in_namespace());
    let kubeconfigs = caches.watch(secrets)?;
    let profiles = context.settings.gates.multikueue_cluster_profile.then(|| {
        let spec = WatchSpec::projected(cluster_profiles(), access::decode);
        caches.watch(spec.select(in_namespace()).optional())
    });
    let profiles = profiles.transpose()?;
    let controller = ClusterController {
        context: context.clone(),
        clusters: clusters.clone(),
        kubeconfigs: kubeconfigs.clone(),
        profiles: profiles.clone(),
        connections: Arc::clone(connections),
    };
    let (users, of_profile) = (clusters.clone(), clusters.clone());
    let mut added = context.runtime.add(controller, &clusters, context.concurrency).watches_changes(
        &kubeconfigs,
        move |change| {
            let Some(secret) = change.states().next() else { return Vec::new() };
            let is_user = |entry: &&Arc<Entry<MultiKueueCluster>>| {
                secret_of(&entry.object.spec.cluster_source) == Some(secret.key.name())
            };
            users.all().iter().filter(is_user).map(|entry| entry.key.clone()).collect()
        },
    );
    if let Some(profiles) = &profiles {
        added = added.watches_changes(profiles, move |change| {
            let Some(profile) = change.states().next() else { return Vec::new() };
            let is_user = |entry: &&Arc<Entry<MultiKueueCluster>>| {
                let named = entry.object.spec.cluster_source.cluster_profile_ref.as_ref();
                named.is_some_and(|own| own.name == profile.key.name())
            };
            of_profile.all().iter().filter(is_user).map(|entry| entry.key.clone()).collect()
        });
    }
    connections.tell(Listeners { clusters: added.trigger(), workloads });
    added.done();
    Ok(())
}

/// The Secret with the kubeconfig of a cluster.
fn secret_of(source: &ClusterSource) -> Option<&str> {
    let config = source.kube_config.as_ref()?;
    let is_secret = config.location_type.unwrap_or_default() == LocationType::Secret;
    is_secret.then_some(config.location.as_str())
}

/// Keeps of a Secret its kubeconfig, if it has one.
fn kubeconfig_of(text: &str) -> Result<Option<String>, serde_json::Error> {
    let secret: Secret = serde_json::from_str(text)?;
    let value = secret.data.unwrap_or_default().remove(SECRET_KEY);
    Ok(value.and_then(|bytes| String::from_utf8(bytes.0).ok()))
}

impl ClusterController {
    /// How a cluster is reached.
    async fn access(&self, source: &ClusterSource) -> Result<Access, Problem> {
        match &source.kube_config {
            Some(config) => Access::by_kubeconfig(&self.kubeconfig(config).await?),
            None => self.access_by_profile(source),
        }
    }

    fn access_by_profile(&self, source: &ClusterSource) -> Result<Access, Problem> {
        let Some(profiles) = &self.profiles else {
            let message = "MultiKueueClusterProfile feature gate is disabled";
            return Err(Problem::new(Reason::MultiKueueClusterProfileFeatureDisabled, message));
        };
        let settings = &self.context.settings;
        let name = source.cluster_profile_ref.as_ref().map(|own| own.name.as_str()).unwrap_or_default();
        let profile = profiles.get(&ObjectKey::new(&settings.namespace, name)).ok_or_else(|| {
            let message = format!("ClusterProfile.multicluster.x-k8s.io {name:?} not found");
            Problem::new(Reason::BadClusterProfile, message)
        })?;
        let configured = settings.configuration.multi_kueue.cluster_profile.as_ref();
        access::access(name, &profile.object, configured)
    }

    /// The text of a kubeconfig.
    async fn kubeconfig(&self, config: &KubeConfig) -> Result<String, Problem> {
        let settings = &self.context.settings;
        let location = config.location.as_str();
        let bad = |message: String| Problem::new(Reason::BadKubeConfig, message);
        match config.location_type.unwrap_or_default() {
            LocationType::Secret => {
                let secret = self.kubeconfigs.get(&ObjectKey::new(&settings.namespace, location));
                let secret = secret.ok_or_else(|| bad(format!("Secret {location:?} not found")))?;
                secret
                    .object
                    .clone()
                    .ok_or_else(|| bad(format!("key {SECRET_KEY:?} not found in Secret {location:?}")))
            }
            LocationType::Path => {
                let unreadable = |error: std::io::Error| {
                    bad(match error.kind() {
                        ErrorKind::NotFound => format!("open {location}: no such file or directory"),
                        _ => format!("open {location}: {error}"),
                    })
                };
                // A link may lead elsewhere, but not out of the directory: mounted Secrets consist of links.
                let is_refused = |path: &Path| {
                    settings.gates.multikueue_path_validation && !kubeconfig::is_allowed_path(path)
                };
                if is_refused(Path::new(location)) {
                    return Err(kubeconfig::path_problem(location));
                }
                let path = tokio::fs::canonicalize(Path::new(location)).await.map_err(unreadable)?;
                if is_refused(&path) {
                    return Err(kubeconfig::path_problem(location));
                }
                tokio::fs::read_to_string(path).await.map_err(unreadable)
            }
        }
    }

    async fn read(&self, cluster: Arc<Entry<MultiKueueCluster>>) -> Present {
        let source = &cluster.object.spec.cluster_source;
        let access = self.access(source).await.map(|access| access.digest);
        let access = access.map_err(|Problem { reason, message }| Problem {
            reason,
            message: format!("load client config failed: {message}"),
        });
        let connection = self.connections.get(cluster.key.name());
        let path = source.kube_config.as_ref().filter(|_| secret_of(source).is_none());
        let deprecated_path = path.filter(|own| !kubeconfig::is_allowed_path(Path::new(&own.location)));
        Present {
            access,
            connection: connection.map(|connection| (connection.digest, connection.state())),
            again: path.map(|_| FILE_INTERVAL),
            deprecated_path: deprecated_path.map(|own| own.location.clone()),
            now: self.context.clock.now(),
            cluster,
        }
    }

    async fn connect(&self, name: &str, wanted: u64) -> Result<(), Error> {
        let attempt = format!("cannot connect to MultiKueueCluster {name}");
        let moved = |cause: String| Error::new(Class::Transient, attempt.clone(), cause);
        let cluster =
            self.clusters.get(&ObjectKey::cluster(name)).ok_or_else(|| moved("it is gone".into()))?;
        let access = self.access(&cluster.object.spec.cluster_source).await;
        let access = access.map_err(|problem| moved(problem.message))?;
        if access.digest != wanted {
            return Err(moved("it is reached in another way meanwhile".into()));
        }
        self.connections.connect(name, access).await
    }
}

impl Controller for ClusterController {
    type Observed = Observed;
    type Call = Call;

    const NAME: &'static str = "multikueue-cluster";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let name = key.name();
        Ok(match self.clusters.get(key) {
            Some(cluster) => Some(Observed::Present(Box::new(self.read(cluster).await))),
            None => self.connections.get(name).map(|_| Observed::Gone(name.to_owned())),
        })
    }

    fn plan(observed: &Observed) -> Plan<Call> {
        plan::plan(observed)
    }

    async fn call(&self, call: &Call) -> Result<(), Error> {
        match call {
            Call::Connect { cluster, digest } => self.connect(cluster, *digest).await,
            Call::Disconnect { cluster } => {
                self.connections.disconnect(cluster);
                Ok(())
            }
        }
    }

    fn on_error(observed: &Observed, action: &Action<Call>, error: &Error) -> OnError {
        plan::on_error(observed, action, error)
    }
}
