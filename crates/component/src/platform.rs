//! What a cluster serves beyond Kubernetes' own APIs.

use std::collections::{BTreeMap, BTreeSet};

/// API groups that tell an OpenShift cluster.
const OPENSHIFT: [&str; 3] = ["route.openshift.io", "security.openshift.io", "config.openshift.io"];

/// The API groups a cluster serves, and its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    groups: BTreeMap<String, BTreeSet<String>>,
    /// Major and minor version of the API server; `None` where nothing was asked, as for `manifests`.
    pub version: Option<(String, String)>,
}

impl Platform {
    /// Asks a cluster.
    pub async fn discover(client: &kube::Client) -> Result<Self, kube::Error> {
        let (groups, version) = futures::try_join!(client.list_api_groups(), client.apiserver_version())?;
        let groups = groups
            .groups
            .into_iter()
            .map(|group| (group.name, group.versions.into_iter().map(|version| version.version).collect()));
        Ok(Self { groups: groups.collect(), version: Some((version.major, version.minor)) })
    }

    /// An OpenShift cluster without discovery, for manifests.
    pub fn openshift() -> Self {
        let groups = OPENSHIFT.map(|group| (group.to_owned(), BTreeSet::from(["v1".to_owned()])));
        Self { groups: groups.into(), version: None }
    }

    /// Whether the cluster serves an API group, in any version.
    pub fn serves_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// Whether the cluster serves an API group in a version.
    pub fn serves(&self, group: &str, version: &str) -> bool {
        self.groups.get(group).is_some_and(|versions| versions.contains(version))
    }

    /// Whether this is OpenShift.
    pub fn is_openshift(&self) -> bool {
        OPENSHIFT.iter().any(|group| self.serves_group(group))
    }
}
