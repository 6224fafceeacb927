//! Which resources are served: the built-in ones, and those that CustomResourceDefinitions add.
//!
//! The registry is never changed, only replaced as a whole: a request works with the one it began with.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use quintet_objects::builtin;

use crate::crd::CustomVersion;

/// Where the behaviour of a kind comes from.
#[derive(Clone, Debug)]
pub enum Model {
    /// Compiled in.
    BuiltIn(&'static builtin::Kind),
    /// One version of a CustomResourceDefinition.
    Custom(Arc<CustomVersion>),
}

/// Something below an object, such as `scale`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Its name.
    pub name: String,
    /// Group of its kind.
    pub group: String,
    /// Version of its kind.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// What can be done with it.
    pub verbs: Vec<String>,
}

/// A resource in one served version.
#[derive(Clone, Debug)]
pub struct Resource {
    /// API group; empty for core.
    pub group: Arc<str>,
    /// API version.
    pub version: Arc<str>,
    /// Group and version as objects write them.
    pub api_version: Arc<str>,
    /// Kind of the objects.
    pub kind: Arc<str>,
    /// Kind of lists of them.
    pub list_kind: Arc<str>,
    /// Name in paths.
    pub plural: Arc<str>,
    /// Name of one.
    pub singular: String,
    /// Abbreviations.
    pub short_names: Vec<String>,
    /// Groups of kinds it belongs to.
    pub categories: Vec<String>,
    /// Whether objects live in a namespace.
    pub is_namespaced: bool,
    /// What can be done with it.
    pub verbs: Vec<String>,
    /// What is below an object.
    pub subresources: Vec<Subresource>,
    /// Where objects are kept; shared by all versions.
    pub bucket: Arc<str>,
    /// Version (without group) in which objects are kept.
    pub storage_version: Arc<str>,
    /// The same with its group.
    pub storage_api_version: Arc<str>,
    /// Where the behaviour comes from.
    pub model: Model,
    /// Changes whenever stored bodies have to be checked anew.
    pub epoch: u64,
}

/// Group and version as objects write them.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Where objects of a resource are kept.
pub fn bucket(group: &str, plural: &str) -> String {
    format!("{}/{plural}", if group.is_empty() { "core" } else { group })
}

/// Group and plural of a bucket, the reverse of [`bucket`].
pub(crate) fn split_bucket(bucket: &str) -> (&str, &str) {
    match bucket.split_once('/') {
        Some(("core", plural)) => ("", plural),
        Some((group, plural)) => (group, plural),
        None => ("", bucket),
    }
}

impl Resource {
    fn built_in(kind: &'static builtin::Kind) -> Self {
        let (storage_group, storage_version) = kind.storage;
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            group: kind.group.into(),
            version: kind.version.into(),
            api_version: kind.api_version().into(),
            kind: kind.kind.into(),
            list_kind: format!("{}List", kind.kind).into(),
            plural: kind.plural.into(),
            singular: kind.singular.to_owned(),
            short_names: owned(kind.short_names),
            categories: owned(kind.categories),
            is_namespaced: kind.is_namespaced,
            verbs: owned(kind.verbs),
            subresources: kind
                .subresources
                .iter()
                .map(|sub| Subresource {
                    name: sub.name.to_owned(),
                    group: sub.group.to_owned(),
                    version: sub.version.to_owned(),
                    kind: sub.kind.to_owned(),
                    verbs: owned(sub.verbs),
                })
                .collect(),
            bucket: bucket(storage_group, kind.plural).into(),
            storage_version: storage_version.into(),
            storage_api_version: api_version(storage_group, storage_version).into(),
            model: Model::BuiltIn(kind),
            epoch: 0,
        }
    }

    /// The built-in kind, if it is one.
    pub fn as_built_in(&self) -> Option<&'static builtin::Kind> {
        match &self.model {
            Model::BuiltIn(kind) => Some(kind),
            Model::Custom(_) => None,
        }
    }

    /// The custom version, if it is one.
    pub fn as_custom(&self) -> Option<&Arc<CustomVersion>> {
        match &self.model {
            Model::BuiltIn(_) => None,
            Model::Custom(version) => Some(version),
        }
    }

    /// Whether this is the given core or grouped kind.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        *self.group == *group && *self.plural == *plural
    }

    /// A subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Whether it has a status of its own.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Whether a verb is served.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|one| one == verb)
    }

    /// Whether requests may read stored bodies as they are.
    pub fn reads_as_stored(&self) -> bool {
        self.version == self.storage_version && *self.api_version == *self.storage_api_version
    }
}

/// By group, version and plural.
type ByName = HashMap<Arc<str>, HashMap<Arc<str>, HashMap<Arc<str>, Arc<Resource>>>>;

/// All served resources.
#[derive(Debug, Default)]
pub struct Registry {
    resources: ByName,
    /// Groups in the order of discovery, each with its versions, best first.
    pub groups: Vec<Group>,
}

/// A group as discovery shows it.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name; empty for core.
    pub name: Arc<str>,
    /// Its versions, best first.
    pub versions: Vec<GroupVersion>,
}

/// A version of a group as discovery shows it.
#[derive(Clone, Debug)]
pub struct GroupVersion {
    /// Its name.
    pub version: Arc<str>,
    /// Its resources, in order.
    pub resources: Vec<Arc<Resource>>,
}

impl Registry {
    /// The built-in resources and these.
    pub fn new(custom: Vec<Arc<Resource>>) -> Self {
        let mut registry = Self::default();
        for kind in builtin::all() {
            registry.add(Arc::new(Resource::built_in(kind)));
        }
        let built_in_groups = registry.groups.len();
        let mut by_group: BTreeMap<Arc<str>, Vec<Arc<Resource>>> = BTreeMap::new();
        for resource in custom {
            by_group.entry(Arc::clone(&resource.group)).or_default().push(resource);
        }
        for resource in by_group.into_values().flatten() {
            registry.add(resource);
        }
        for group in registry.groups.iter_mut().skip(built_in_groups) {
            group.versions.sort_by_key(|version| rank(&version.version));
            for version in &mut group.versions {
                version.resources.sort_by(|a, b| a.plural.cmp(&b.plural));
            }
        }
        registry
    }

    fn add(&mut self, resource: Arc<Resource>) {
        let versions = self.resources.entry(Arc::clone(&resource.group)).or_default();
        let plurals = versions.entry(Arc::clone(&resource.version)).or_default();
        if plurals.contains_key(&resource.plural) {
            return;
        }
        plurals.insert(Arc::clone(&resource.plural), Arc::clone(&resource));
        let position = self.groups.iter().position(|group| group.name == resource.group);
        let position = position.unwrap_or_else(|| {
            self.groups.push(Group { name: Arc::clone(&resource.group), versions: Vec::new() });
            self.groups.len() - 1
        });
        if let Some(group) = self.groups.get_mut(position) {
            match group.versions.iter_mut().find(|version| version.version == resource.version) {
                Some(version) => version.resources.push(resource),
                None => group
                    .versions
                    .push(GroupVersion { version: Arc::clone(&resource.version), resources: vec![resource] }),
            }
        }
    }

    /// A resource by group, version and plural.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(group)?.get(version)?.get(plural)
    }

    /// A group by name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| *group.name == *name)
    }

    /// A resource of a group by its kind, in the given version.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let group = self.group(group)?;
        let version = group.versions.iter().find(|one| *one.version == *version)?;
        version.resources.iter().find(|resource| *resource.kind == *kind)
    }

    /// All resources in the preferred versions of their groups, one per bucket.
    pub fn by_bucket(&self) -> HashMap<Arc<str>, Arc<Resource>> {
        let mut buckets: HashMap<Arc<str>, Arc<Resource>> = HashMap::new();
        for group in &self.groups {
            for resource in group.versions.iter().flat_map(|version| &version.resources) {
                let known = buckets.entry(Arc::clone(&resource.bucket));
                let known = known.or_insert_with(|| Arc::clone(resource));
                if resource.reads_as_stored() && !known.reads_as_stored() {
                    *known = Arc::clone(resource);
                }
            }
        }
        buckets
    }

    /// Every served resource.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources)
    }
}

/// Orders versions as Kubernetes does: stable before beta before alpha, higher numbers first, then
/// anything else by name.
pub(crate) fn rank(version: &str) -> (u8, std::cmp::Reverse<u64>, std::cmp::Reverse<u64>, String) {
    let parsed = version.strip_prefix('v').and_then(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, suffix) = rest.split_at_checked(digits)?;
        let major: u64 = major.parse().ok()?;
        if suffix.is_empty() {
            return Some((0, major, 0));
        }
        if let Some(minor) = suffix.strip_prefix("beta") {
            return Some((1, major, minor.parse().ok()?));
        }
        Some((2, major, suffix.strip_prefix("alpha")?.parse().ok()?))
    });
    let reverse = std::cmp::Reverse;
    match parsed {
        Some((stage, major, minor)) => (stage, reverse(major), reverse(minor), String::new()),
        None => (3, reverse(0), reverse(0), version.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut versions = ["foo", "v1beta1", "v10", "v3alpha1", "v2", "v11beta2", "v1"];
        versions.sort_by_key(|version| rank(version));
        assert_eq!(versions, ["v10", "v2", "v1", "v11beta2", "v1beta1", "v3alpha1", "foo"]);
    }

    #[test]
    fn built_in_resources_are_found() {
        let registry = Registry::new(Vec::new());
        let pods = registry.get("", "v1", "pods").unwrap();
        assert!(pods.is_namespaced && pods.has_status() && pods.allows("deletecollection"));
        assert_eq!(&*registry.get("events.k8s.io", "v1", "events").unwrap().bucket, "core/events");
        assert!(registry.get("apps", "v1", "pods").is_none());
    }
}
