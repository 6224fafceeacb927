//! Role-based access control: roles and bindings, and what they allow.

mod aggregation;
mod escalation;

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;
use serde_json::{Value, json};

use super::{Caller, MASTERS, serviceaccount};
use crate::{
    api::Api,
    json::{items, text, texts},
    status::{Failure, Named},
    store::{Store, split_key},
};

pub(crate) use aggregation::aggregate;
pub(crate) use escalation::check_escalation;

/// The group of all kinds here.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

const BUCKETS: [&str; 4] = [
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/clusterrolebindings",
];

/// What a user wants to do to a resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes<'a> {
    /// Verb.
    pub verb: &'a str,
    /// API group.
    pub group: &'a str,
    /// API version; rules do not look at it.
    pub version: &'a str,
    /// Plural of the resource.
    pub resource: &'a str,
    /// Subresource, or empty.
    pub subresource: &'a str,
    /// Namespace, or empty.
    pub namespace: &'a str,
    /// Name of the object, or empty.
    pub name: &'a str,
}

/// A policy rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    urls: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == wanted || one == "*")
}

impl Rule {
    fn of(rule: &Value) -> Self {
        let list = |key: &str| texts(rule, key).map(str::to_owned).collect();
        Self {
            verbs: list("/verbs"),
            groups: list("/apiGroups"),
            resources: list("/resources"),
            names: list("/resourceNames"),
            urls: list("/nonResourceURLs"),
        }
    }

    fn allows(&self, wanted: &Attributes<'_>) -> bool {
        let matches_resource = self.resources.iter().any(|one| {
            if one == "*" {
                return true;
            }
            if wanted.subresource.is_empty() {
                return one == wanted.resource;
            }
            match one.split_once('/') {
                Some(("*", sub)) => sub == wanted.subresource,
                Some((resource, sub)) => resource == wanted.resource && sub == wanted.subresource,
                None => false,
            }
        });
        has(&self.verbs, wanted.verb)
            && has(&self.groups, wanted.group)
            && matches_resource
            && (self.names.is_empty() || self.names.iter().any(|name| name == wanted.name))
    }

    fn allows_path(&self, verb: &str, path: &str) -> bool {
        has(&self.verbs, verb)
            && self
                .urls
                .iter()
                .any(|url| url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*'))))
    }

    /// Whether the rule is about paths rather than resources.
    pub(crate) fn is_about_paths(&self) -> bool {
        !self.urls.is_empty()
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut rule = serde_json::Map::new();
        let parts = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
        ];
        for (name, items) in parts {
            if !items.is_empty() {
                rule.insert(name.into(), json!(items));
            }
        }
        Value::Object(rule)
    }
}

/// Kind, namespace and name.
type Subject = (String, String, String);

#[derive(Debug)]
struct Binding {
    name: String,
    namespace: String,
    role_kind: String,
    role: String,
    subjects: Vec<Subject>,
}

impl Binding {
    fn of(key: &str, object: &Value) -> Self {
        let (namespace, name) = split_key(key);
        Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            role_kind: text(object, "/roleRef/kind").to_owned(),
            role: text(object, "/roleRef/name").to_owned(),
            subjects: items(object, "/subjects")
                .iter()
                .map(|subject| {
                    let part = |key| text(subject, key).to_owned();
                    let own = Some(part("/namespace")).filter(|own| !own.is_empty());
                    (part("/kind"), own.unwrap_or_else(|| namespace.to_owned()), part("/name"))
                })
                .collect(),
        }
    }

    /// The subject through which the binding applies to a user.
    fn subject_of(&self, caller: &Caller) -> Option<&Subject> {
        self.subjects.iter().find(|(kind, namespace, name)| match kind.as_str() {
            "User" => *name == caller.name,
            "Group" => caller.is_in(name),
            "ServiceAccount" => {
                !namespace.is_empty() && serviceaccount::is_user_name(&caller.name, namespace, name)
            }
            _ => false,
        })
    }

    /// Why a user is allowed something, as reviews tell it.
    fn reason(&self, (kind, namespace, name): &Subject) -> String {
        let subject = if kind == "ServiceAccount" { format!("{name}/{namespace}") } else { name.clone() };
        let (binding, place) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        format!(
            "RBAC: allowed by {binding} \"{place}\" of {} \"{}\" to {kind} \"{subject}\"",
            self.role_kind, self.role
        )
    }
}

/// Roles and bindings, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Index {
    roles: HashMap<String, Vec<Rule>>,
    cluster_roles: HashMap<String, Vec<Rule>>,
    bindings: HashMap<String, Vec<Binding>>,
    cluster_bindings: Vec<Binding>,
}

impl Index {
    fn build(store: &Store) -> Self {
        let all = |bucket: &str| -> Vec<(Arc<str>, Value)> {
            let listed = store.objects(bucket, "");
            listed.into_iter().map(|(key, entry)| (key, entry.parse())).collect()
        };
        let parsed = |object: &Value| items(object, "/rules").iter().map(Rule::of).collect::<Vec<_>>();
        let [roles, bindings, cluster_roles, cluster_bindings] = BUCKETS.map(all);
        let mut index = Self {
            roles: roles.iter().map(|(key, role)| (key.to_string(), parsed(role))).collect(),
            cluster_roles: cluster_roles.iter().map(|(key, role)| (key.to_string(), parsed(role))).collect(),
            bindings: HashMap::new(),
            cluster_bindings: cluster_bindings.iter().map(|(key, b)| Binding::of(key, b)).collect(),
        };
        for (key, binding) in &bindings {
            let binding = Binding::of(key, binding);
            index.bindings.entry(binding.namespace.clone()).or_default().push(binding);
        }
        index
    }

    /// The rules that a binding refers to; `None` if it refers to neither a Role nor a ClusterRole.
    fn rules_of(&self, binding: &Binding) -> Option<Result<&[Rule], MissingRole>> {
        let (rules, kind) = match binding.role_kind.as_str() {
            "Role" => (self.roles.get(&format!("{}/{}", binding.namespace, binding.role)), "role"),
            "ClusterRole" => (self.cluster_roles.get(&binding.role), "clusterrole"),
            _ => return None,
        };
        let missing = || MissingRole { kind, name: binding.role.clone() };
        Some(rules.map(Vec::as_slice).ok_or_else(missing))
    }

    /// The bindings that apply to a user in a namespace (or cluster-wide), each with its subject and rules.
    fn bound<'a>(
        &'a self,
        caller: &'a Caller,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a Binding, &'a Subject, Result<&'a [Rule], MissingRole>)> {
        let local = self.bindings.get(namespace).into_iter().flatten();
        self.cluster_bindings.iter().chain(local).filter_map(move |binding| {
            let subject = binding.subject_of(caller)?;
            Some((binding, subject, self.rules_of(binding)?))
        })
    }

    /// Decides by the first rule that allows what is wanted.
    fn decide(&self, caller: &Caller, namespace: &str, allows: impl Fn(&Rule) -> bool) -> Decision {
        let mut missing = Vec::new();
        for (binding, subject, rules) in self.bound(caller, namespace) {
            match rules {
                Ok(rules) if rules.iter().any(&allows) => return Ok(binding.reason(subject)),
                Ok(_) => {}
                Err(role) => missing.push(role),
            }
        }
        let missing = (!missing.is_empty()).then(|| in_one_line(missing.iter().map(MissingRole::to_failure)));
        Err(missing.map(|missing| format!("RBAC: {missing}")).unwrap_or_default())
    }
}

/// A role that a binding refers to and that does not exist.
#[derive(Debug)]
struct MissingRole {
    kind: &'static str,
    name: String,
}

impl MissingRole {
    fn to_failure(&self) -> Failure {
        Failure::not_found(Named { group: GROUP, resource: self.kind, name: &self.name })
    }
}

/// Errors as Kubernetes joins them: one as it is, several in brackets, each once.
fn in_one_line(failures: impl IntoIterator<Item = Failure>) -> String {
    let mut texts: Vec<String> = Vec::new();
    for failure in failures {
        if !texts.iter().any(|text| text == failure.message()) {
            texts.push(failure.message().to_owned());
        }
    }
    if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) }
}

/// Whether something is allowed, and why or why not, as reviews and errors say it. The reason may be empty.
pub(crate) type Decision = Result<String, String>;

/// The index as of the last change of a role or binding.
#[derive(Debug, Default)]
pub struct Cache(RwLock<([u64; 4], Arc<Index>)>);

impl Cache {
    pub(crate) fn index(&self, store: &Store) -> Arc<Index> {
        let versions = BUCKETS.map(|bucket| store.bucket_version(bucket));
        {
            let cached = self.0.read();
            if cached.0 == versions {
                return Arc::clone(&cached.1);
            }
        }
        let index = Arc::new(Index::build(store));
        *self.0.write() = (versions, Arc::clone(&index));
        index
    }
}

/// Whether a user may do something.
pub(crate) fn decide(api: &Api, caller: &Caller, wanted: &Attributes<'_>) -> Decision {
    if caller.is_in(MASTERS) {
        return Ok(String::new());
    }
    let index = api.rbac().index(api.store());
    index.decide(caller, wanted.namespace, |rule| rule.allows(wanted))
}

/// Whether a user may use a path that is no resource.
pub(crate) fn decide_path(api: &Api, caller: &Caller, verb: &str, path: &str) -> Decision {
    if caller.is_in(MASTERS) {
        return Ok(String::new());
    }
    let index = api.rbac().index(api.store());
    index.decide(caller, "", |rule| rule.allows_path(verb, path))
}

/// All rules a user has in a namespace.
pub(crate) fn rules_for(api: &Api, caller: &Caller, namespace: &str) -> Vec<Rule> {
    if caller.is_in(MASTERS) {
        return everything().into();
    }
    let index = api.rbac().index(api.store());
    index.bound(caller, namespace).filter_map(|(_, _, rules)| rules.ok()).flatten().cloned().collect()
}

/// The right to do anything.
fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), urls: all(), ..Rule::default() },
    ]
}
