//! Owners of jobs: a job whose ancestor is managed has no Workload of its own.

use quintet_api::kueue::metadata::QUEUE_NAME;
use quintet_controller::cache::{Cache, Caches, ObjectMetadata, Owner, WatchSpec};
use quintet_controller::object::Uid;
use quintet_controller::{ApiKind, Error, ObjectKey, Runtime};
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// How far up owners are followed. As `managedOwnersChainLimit` of Kueue.
const LIMIT: usize = 10;

/// Group, version, kind, plural and framework of kinds that own jobs. All are followed; those whose framework is enabled
/// may be managed.
const KINDS: [(&str, &str, &str, &str, &str); 18] = [
    ("apps", "v1", "Deployment", "deployments", "deployment"),
    ("apps", "v1", "ReplicaSet", "replicasets", ""),
    ("apps", "v1", "StatefulSet", "statefulsets", "statefulset"),
    ("batch", "v1", "Job", "jobs", "batch/job"),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", "jobset.x-k8s.io/jobset"),
    ("kubeflow.org", "v1", "JAXJob", "jaxjobs", "kubeflow.org/jaxjob"),
    ("kubeflow.org", "v1", "PaddleJob", "paddlejobs", "kubeflow.org/paddlejob"),
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", "kubeflow.org/pytorchjob"),
    ("kubeflow.org", "v1", "TFJob", "tfjobs", "kubeflow.org/tfjob"),
    ("kubeflow.org", "v1", "XGBoostJob", "xgboostjobs", "kubeflow.org/xgboostjob"),
    ("kubeflow.org", "v2beta1", "MPIJob", "mpijobs", "kubeflow.org/mpijob"),
    (
        "leaderworkerset.x-k8s.io",
        "v1",
        "LeaderWorkerSet",
        "leaderworkersets",
        "leaderworkerset.x-k8s.io/leaderworkerset",
    ),
    ("ray.io", "v1", "RayCluster", "rayclusters", "ray.io/raycluster"),
    ("ray.io", "v1", "RayJob", "rayjobs", "ray.io/rayjob"),
    ("ray.io", "v1", "RayService", "rayservices", "ray.io/rayservice"),
    (
        "sparkoperator.k8s.io",
        "v1beta2",
        "SparkApplication",
        "sparkapplications",
        "sparkoperator.k8s.io/sparkapplication",
    ),
    ("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs", "trainer.kubeflow.org/trainjob"),
    ("workload.codeflare.dev", "v1beta2", "AppWrapper", "appwrappers", "workload.codeflare.dev/appwrapper"),
];

/// A kind beyond Kubernetes' own that is followed, for permissions.
pub(crate) struct ForeignKind {
    pub(crate) group: String,
    pub(crate) plural: String,
    /// Whether its jobs are queued.
    pub(crate) is_queued: bool,
}

/// The kinds beyond Kubernetes' own.
pub(crate) fn foreign_kinds(settings: &Settings) -> Vec<ForeignKind> {
    let known = KINDS.iter().filter(|(group, ..)| is_foreign(group));
    let known = known.map(|(group, _, _, plural, framework)| ForeignKind {
        group: (*group).to_owned(),
        plural: (*plural).to_owned(),
        is_queued: settings.is_enabled(framework),
    });
    let external = external_kinds(settings).into_iter().map(|kind| ForeignKind {
        group: kind.group.into_owned(),
        plural: kind.plural.into_owned(),
        is_queued: false,
    });
    known.chain(external).collect()
}

fn is_foreign(group: &str) -> bool {
    group.contains('.')
}

/// Kinds that other controllers queue, as `Kind.version.group` in the configuration.
fn external_kinds(settings: &Settings) -> Vec<ApiKind> {
    let frameworks = settings.configuration.integrations.external_frameworks.iter();
    frameworks.filter_map(|text| kind_of_framework(text)).collect()
}

/// The kind of a framework, as `Kind.version.group`.
pub(crate) fn kind_argument(framework: &str) -> Option<String> {
    let (group, version, kind, ..) = KINDS.iter().find(|(.., own)| !own.is_empty() && *own == framework)?;
    Some(format!("{kind}.{version}.{group}"))
}

/// The kind that `Kind.version.group` names. Its resources are called as Kubernetes guesses the plural of a kind.
pub(super) fn kind_of_framework(text: &str) -> Option<ApiKind> {
    let (kind, rest) = text.split_once('.')?;
    let (version, group) = rest.split_once('.')?;
    let lower = kind.to_lowercase();
    let plural = match (lower.strip_suffix('y'), lower.ends_with('s')) {
        (Some(stem), _) => format!("{stem}ies"),
        (None, true) => format!("{lower}es"),
        (None, false) => format!("{lower}s"),
    };
    Some(ApiKind {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        kind: kind.to_owned().into(),
        plural: plural.into(),
        namespaced: true,
    })
}

/// Whether an owner may be of a kind that is followed. Jobs of CronJobs, for one, have nothing above them.
pub(crate) fn is_followed(owner: &Owner) -> bool {
    let group = group_of(owner);
    is_foreign(group)
        || KINDS.iter().any(|(own_group, _, kind, ..)| *own_group == group && *kind == &*owner.kind)
}

/// Whether an owner is of a kind that is queued, here or by another controller.
pub(crate) fn is_integrated(owner: &Owner, settings: &Settings) -> bool {
    let group = group_of(owner);
    let mut known = KINDS.iter().filter(|(own, _, kind, ..)| *own == group && *kind == &*owner.kind);
    let is_external = |kind: &ApiKind| kind.group == group && *kind.kind == *owner.kind;
    known.any(|(.., framework)| settings.is_enabled(framework))
        || external_kinds(settings).iter().any(is_external)
}

fn group_of(owner: &Owner) -> &str {
    owner.api_version.split_once('/').map_or("", |(group, _)| group)
}

/// What is above a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Ancestor {
    /// Nothing that is managed.
    None,
    /// The highest managed object.
    Managed(Uid),
    /// An owner of a known kind that does not exist.
    Missing(String),
    /// More owners than are followed, or owners that own each other.
    TooDeep,
}

impl Ancestor {
    /// Whether a job below it waits by itself: one that a managed object owns waits with that. The error says that this
    /// cannot be known.
    pub(super) fn lets_wait(&self) -> Result<bool, String> {
        match self {
            Self::None => Ok(true),
            Self::Managed(_) => Ok(false),
            Self::Missing(owner) => Err(format!("{owner} not found")),
            Self::TooDeep => Err("its owners are nested too deep, or own each other".to_owned()),
        }
    }
}

/// An owner of a known kind that the caches do not show.
struct Unseen {
    kind: ApiKind,
    key: ObjectKey,
}

impl From<Unseen> for Ancestor {
    fn from(Unseen { kind, key }: Unseen) -> Self {
        Self::Missing(format!("{kind} {:?}", key.name()))
    }
}

/// Whose objects of a kind are managed.
#[derive(Clone, Copy, Debug)]
enum Manager {
    /// This operator, if the framework is enabled.
    Framework(&'static str),
    /// Another controller.
    External,
}

/// The metadata of all kinds that own jobs.
#[derive(Clone)]
pub(crate) struct Ancestors(Vec<(Manager, Cache<ObjectMetadata>)>);

impl Ancestors {
    pub(crate) fn watch(caches: &Caches, settings: &Settings) -> Result<Self, Error> {
        let known = KINDS.iter().map(|(group, version, kind, plural, framework)| {
            (Manager::Framework(framework), ApiKind::namespaced(group, version, kind, plural))
        });
        let external = external_kinds(settings).into_iter().map(|kind| (Manager::External, kind));
        let watch = |(manager, kind): (Manager, ApiKind)| -> Result<_, Error> {
            Ok((manager, caches.watch(WatchSpec::metadata(kind).optional())?))
        };
        known.chain(external).map(watch).collect::<Result<_, _>>().map(Self)
    }

    /// Follows the controllers of an object upwards, as far as the caches show them.
    pub(crate) fn of(&self, namespace: &str, controller: Option<&Owner>, settings: &Settings) -> Ancestor {
        self.follow(namespace, controller, settings).unwrap_or_else(Into::into)
    }

    /// The same for webhooks. They are asked once, and an owner may be newer than the caches: then it is read.
    pub(crate) async fn read(
        &self,
        runtime: &Runtime,
        namespace: &str,
        controller: Option<&Owner>,
        settings: &Settings,
    ) -> Ancestor {
        for _ in 0..LIMIT {
            let unseen = match self.follow(namespace, controller, settings) {
                Ok(ancestor) => return ancestor,
                Err(unseen) => unseen,
            };
            match runtime.api().get(&unseen.kind, &unseen.key).await {
                Ok(Some(text)) => runtime.caches().written(&unseen.kind, &text),
                Ok(None) => return unseen.into(),
                Err(error) => {
                    // Whether that matters is not decided here: an object without a queue is let through.
                    tracing::warn!("an owner cannot be read: {error}");
                    return unseen.into();
                }
            }
        }
        self.of(namespace, controller, settings)
    }

    fn follow(
        &self,
        namespace: &str,
        controller: Option<&Owner>,
        settings: &Settings,
    ) -> Result<Ancestor, Unseen> {
        let mut next = controller.cloned();
        let mut managed = Ancestor::None;
        for _ in 0..LIMIT {
            let Some(owner) = next else { return Ok(managed) };
            let Some((manager, cache)) = self.known(&owner) else { return Ok(managed) };
            let key = ObjectKey::new(namespace, &owner.name);
            let Some(entry) = cache.get(&key) else {
                return Err(Unseen { kind: cache.kind().clone(), key });
            };
            if entry.uid.as_str() != &*owner.uid {
                return Ok(managed);
            }
            let has_queue = entry.object.labels.contains_key(QUEUE_NAME);
            let counts = has_queue || settings.configuration.manage_jobs_without_queue_name;
            let is_managed = match manager {
                Manager::Framework(framework) => settings.is_enabled(framework),
                Manager::External => true,
            };
            if counts && is_managed {
                managed = Ancestor::Managed(entry.uid.clone());
            }
            next = entry.object.controller().cloned();
        }
        Ok(if next.is_some() { Ancestor::TooDeep } else { managed })
    }

    fn known(&self, owner: &Owner) -> Option<&(Manager, Cache<ObjectMetadata>)> {
        let group = group_of(owner);
        self.0.iter().find(|(_, cache)| cache.kind().group == group && *cache.kind().kind == *owner.kind)
    }
}

/// The managing controller of a typed object.
pub(crate) fn controller_of(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Option<Owner> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    Some(Owner {
        api_version: owner.api_version.as_str().into(),
        kind: owner.kind.as_str().into(),
        name: owner.name.as_str().into(),
        uid: owner.uid.as_str().into(),
        controller: true,
    })
}
