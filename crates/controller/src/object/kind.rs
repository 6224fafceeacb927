use std::{borrow::Cow, fmt};

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Serialize};

use super::ObjectKey;

/// An API kind in one served version, with what is needed to build its paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ApiKind {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// Served version.
    pub version: Cow<'static, str>,
    /// Kind, as in manifests.
    pub kind: Cow<'static, str>,
    /// Plural resource name, as in paths.
    pub plural: Cow<'static, str>,
    /// Whether the kind is namespaced.
    pub namespaced: bool,
}

/// Whether a typed kind is namespaced, at compile time.
pub trait Scoped {
    /// `true` for namespaced kinds.
    const NAMESPACED: bool;
}

impl Scoped for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Scoped for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

impl ApiKind {
    /// The kind of a typed resource.
    pub fn of<K>() -> Self
    where
        K: kube::Resource<DynamicType = ()>,
        K::Scope: Scoped,
    {
        Self {
            group: K::group(&()),
            version: K::version(&()),
            kind: K::kind(&()),
            plural: K::plural(&()),
            namespaced: K::Scope::NAMESPACED,
        }
    }

    /// A kind of objects in namespaces, where there is no type for it.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self::untyped(group, version, kind, plural, true)
    }

    /// A kind of objects outside of namespaces, where there is no type for it.
    pub const fn cluster_scoped(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self::untyped(group, version, kind, plural, false)
    }

    const fn untyped(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(kind),
            plural: Cow::Borrowed(plural),
            namespaced,
        }
    }

    /// `group/version`, or `version` for the core group, as in `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Path of the whole collection, in one namespace if one is given.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api/" } else { "/apis/" };
        let version = self.api_version();
        let plural = &self.plural;
        match namespace {
            Some(namespace) => format!("{root}{version}/namespaces/{namespace}/{plural}"),
            None => format!("{root}{version}/{plural}"),
        }
    }

    /// Path of one object.
    pub fn object_path(&self, key: &ObjectKey) -> String {
        format!("{}/{}", self.collection_path(key.namespace()), key.name())
    }
}

impl fmt::Display for ApiKind {
    /// `Pod` or `RayCluster.ray.io`: unique, and short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}
