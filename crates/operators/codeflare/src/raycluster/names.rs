//! Names of what is made for a RayCluster.

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use quintet_api::ray::v1::RayCluster;

/// The controller, its field manager, and what hashes begin with.
pub(super) const CONTROLLER: &str = "codeflare-raycluster-controller";
/// On RayClusters: the version of the operator whose webhook changed it last. Its presence decides how objects are named.
pub(super) const VERSION: &str = "ray.openshift.ai/version";
/// Holds a RayCluster until its ClusterRoleBinding is deleted.
pub(super) const FINALIZER: &str = "ray.openshift.ai/oauth-finalizer";
/// On everything that is made: the RayCluster.
pub(super) const CLUSTER_NAME: &str = "ray.openshift.ai/cluster-name";
/// On ClusterRoleBindings: the namespace of the RayCluster.
pub(super) const CLUSTER_NAMESPACE: &str = "ray.openshift.ai/cluster-namespace";

/// Names of what is made for one RayCluster.
pub(super) struct Names<'a> {
    pub(super) cluster: &'a str,
    pub(super) namespace: &'a str,
    /// Names end in a hash; those of older versions do not.
    is_hashed: bool,
}

impl<'a> Names<'a> {
    pub(super) fn new(cluster: &'a str, namespace: &'a str, is_hashed: bool) -> Self {
        Self { cluster, namespace, is_hashed }
    }

    pub(super) fn of(cluster: &'a RayCluster) -> Self {
        let metadata = &cluster.metadata;
        let has_version =
            metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(VERSION));
        let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
        Self::new(text(&metadata.name), text(&metadata.namespace), has_version)
    }

    fn unique(&self, base: String) -> String {
        if self.is_hashed { format!("{base}-{}", hash(&base)) } else { base }
    }

    pub(super) fn ca_secret(&self) -> String {
        if self.is_hashed {
            self.unique(format!("{}-ca-secret", self.cluster))
        } else {
            format!("ca-secret-{}", self.cluster)
        }
    }

    pub(super) fn oauth_service_account(&self) -> String {
        self.unique(format!("{}-oauth-proxy", self.cluster))
    }

    pub(super) fn oauth_service(&self) -> String {
        self.unique(format!("{}-oauth", self.cluster))
    }

    pub(super) fn cookie_secret(&self) -> String {
        self.unique(format!("{}-oauth-config", self.cluster))
    }

    /// OpenShift makes it.
    pub(super) fn serving_certificate(&self) -> String {
        self.unique(format!("{}-proxy-tls-secret", self.cluster))
    }

    pub(super) fn role_binding(&self) -> String {
        self.unique(format!("{}-{}-auth", self.cluster, self.namespace))
    }

    pub(super) fn head_policy(&self) -> String {
        self.unique(format!("{}-head", self.cluster))
    }

    pub(super) fn workers_policy(&self) -> String {
        self.unique(format!("{}-workers", self.cluster))
    }

    pub(super) fn dashboard(&self) -> String {
        format!("ray-dashboard-{}", self.cluster)
    }

    pub(super) fn client(&self) -> String {
        format!("rayclient-{}", self.cluster)
    }

    /// The Service of the head, as upstream expects it. That of a long name is shortened by KubeRay.
    pub(super) fn head_service(&self) -> String {
        format!("{}-head-svc", self.cluster)
    }

    /// Where a Route or Ingress is reached.
    pub(super) fn host(&self, name: &str, domain: &str) -> String {
        format!("{name}-{}.{domain}", self.namespace)
    }
}

/// The first eight hexadecimal digits of the hash of the controller and a text.
fn hash(text: &str) -> String {
    let digest = digest(&SHA256, format!("{CONTROLLER}{text}").as_bytes());
    digest.as_ref().iter().take(4).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_upstream() {
        let names = Names::new("test-raycluster", "ns", true);
        assert_eq!(names.oauth_service_account(), "test-raycluster-oauth-proxy-ecaffa62");
        assert_eq!(names.cookie_secret(), "test-raycluster-oauth-config-01e408a7");
        assert_eq!(names.serving_certificate(), "test-raycluster-proxy-tls-secret-3e5a0266");
        assert_eq!(names.ca_secret(), "test-raycluster-ca-secret-001432aa");
        let names = Names::new("old", "ns", false);
        assert_eq!((names.ca_secret(), names.head_policy()), ("ca-secret-old".into(), "old-head".into()));
    }
}
