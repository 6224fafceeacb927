//! The labels, annotations and finalizers that tie the objects of a Ray cluster together. Clients, the Ray
//! autoscaler and other operators read them: they are part of the API.

/// Name of the RayCluster an object belongs to.
pub const CLUSTER: &str = "ray.io/cluster";
/// `head`, `worker` or `redis-cleanup`.
pub const NODE_TYPE: &str = "ray.io/node-type";
/// Name of the worker group, or [`HEAD_GROUP`].
pub const GROUP: &str = "ray.io/group";
/// `<cluster>-<node type>`.
pub const IDENTIFIER: &str = "ray.io/identifier";
/// `yes` on every pod that runs Ray.
pub const IS_RAY_NODE: &str = "ray.io/is-ray-node";
/// `true` on pods that take Serve requests; on Serve services their own name.
pub const SERVE: &str = "ray.io/serve";
/// Marks the headless Service of multi-host workers with the name of its cluster.
pub const HEADLESS_WORKER_SERVICE: &str = "ray.io/headless-worker-svc";
/// Which replica of its group a worker is.
pub const REPLICA_INDEX: &str = "ray.io/worker-group-replica-index";
/// Name shared by the hosts of one multi-host replica.
pub const REPLICA_NAME: &str = "ray.io/worker-group-replica-name";
/// Which host of its replica a worker is.
pub const HOST_INDEX: &str = "ray.io/replica-host-index";
/// Name of the RayJob or RayService (or RayCluster) that asked for an object.
pub const ORIGIN_NAME: &str = "ray.io/originated-from-cr-name";
/// Kind of the object named by [`ORIGIN_NAME`].
pub const ORIGIN_KIND: &str = "ray.io/originated-from-crd";
/// How the RayJob of a cluster is submitted.
pub const SUBMISSION_MODE: &str = "ray.io/job-submission-mode";
/// Asks a batch scheduler to start all pods of a cluster together.
pub const GANG_SCHEDULING: &str = "ray.io/gang-scheduling-enabled";
/// Priority class for a batch scheduler.
pub const PRIORITY_CLASS: &str = "ray.io/priority-class-name";
/// Name of the RayCronJob that made a RayJob.
pub const CRON_JOB: &str = "ray.io/cronjob-name";

/// The application's name.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// Who made an object.
pub const APP_CREATED_BY: &str = "app.kubernetes.io/created-by";
/// Value of [`APP_NAME`].
pub const APPLICATION: &str = "kuberay";
/// Value of [`APP_CREATED_BY`]; upstream's, because selectors of running clusters contain it.
pub const CREATOR: &str = "kuberay-operator";

/// Value of [`NODE_TYPE`] on the head.
pub const HEAD: &str = "head";
/// Value of [`NODE_TYPE`] on workers.
pub const WORKER: &str = "worker";
/// Value of [`NODE_TYPE`] on the Job that clears Redis.
pub const REDIS_CLEANUP: &str = "redis-cleanup";
/// Value of [`GROUP`] on the head.
pub const HEAD_GROUP: &str = "headgroup";

/// Annotation: turns GCS fault tolerance on, the old way.
pub const FT_ENABLED: &str = "ray.io/ft-enabled";
/// Annotation: prefix of the cluster's keys in Redis.
pub const EXTERNAL_STORAGE_NAMESPACE: &str = "ray.io/external-storage-namespace";
/// Annotation: seconds after which a cluster loses its finalizer although Redis was not cleared.
pub const FT_DELETION_TIMEOUT: &str = "ray.io/gcs-ft-deletion-timeout";
/// Annotation: the user's container command is used as it is.
pub const OVERWRITE_COMMAND: &str = "ray.io/overwrite-container-cmd";
/// Annotation: a RayCluster gets a Service for Serve.
pub const ENABLE_SERVE_SERVICE: &str = "ray.io/enable-serve-service";
/// Annotation: a head that was provisioned once is not made again.
pub const DISABLE_HEAD_RESTART: &str = "ray.io/disable-provisioned-head-restart";
/// Annotation on the head: hash of the spec it was made from.
pub const RECREATE_HASH: &str = "ray.io/upgrade-strategy-recreate-hash";
/// Annotation: version of the operator that made an object.
pub const OPERATOR_VERSION: &str = "ray.io/kuberay-version";
/// Annotation on a RayService's clusters: hash of what an upgrade is decided by.
pub const UPGRADE_HASH: &str = "ray.io/hash-without-replicas-and-workers-to-delete";
/// Annotation of KubeRay on a RayService's clusters: worker groups when it was made. Ours do not have it: without it,
/// KubeRay's `isClusterSpecHashEqual` keeps a cluster whose hash it did not write, instead of replacing it.
pub const NUM_WORKER_GROUPS: &str = "ray.io/num-worker-groups";
/// Annotation on a RayService: how long its first cluster may take.
pub const INITIALIZING_TIMEOUT: &str = "ray.io/initializing-timeout";
/// Annotation on a cron job's RayJob: the tick it was made for.
pub const SCHEDULED_TIMESTAMP: &str = "ray.io/cronjob-scheduled-timestamp";
/// Annotation: class of the Ingress, the old way.
pub const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

/// Finalizer: Redis has to be cleared before a cluster goes.
pub const REDIS_CLEANUP_FINALIZER: &str = "ray.io/gcs-ft-redis-cleanup-finalizer";
/// Finalizer: the Ray job has to be stopped before a RayJob goes.
pub const JOB_FINALIZER: &str = "ray.io/rayjob-finalizer";
/// Finalizer: the clusters have to go before a RayService does.
pub const SERVICE_FINALIZER: &str = "ray.io/rayservice-finalizer";

/// The value of `managedBy` that means us; so does leaving it out.
pub const MANAGER: &str = "ray.io/kuberay-operator";

/// What an object waits for that another controller manages.
pub fn managed_elsewhere(managed_by: Option<&str>) -> String {
    format!("the controller {}, which manages it", managed_by.unwrap_or_default())
}

/// Whether another controller manages an object with this `managedBy`.
pub fn is_managed_elsewhere(managed_by: Option<&str>) -> bool {
    managed_by.is_some_and(|manager| manager != MANAGER)
}
