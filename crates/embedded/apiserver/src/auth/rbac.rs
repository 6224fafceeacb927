//! Role-based access control: roles, bindings, and what follows from them.

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;
use serde_json::{Value, json};

use super::{Caller, MASTERS};
use crate::{
    api::Api,
    json::{items, text, texts},
    status::{Failure, Named},
    store::{Store, split_key},
    verbs::{RequestContext, update},
};

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
            && self.urls.iter().any(|url| match url.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => url == path,
            })
    }

    /// As escalation messages print it.
    fn shown(&self) -> String {
        let list =
            |items: &[String]| items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(" ");
        let parts = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.names),
            ("NonResourceURLs", &self.urls),
            ("Verbs", &self.verbs),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, items)| !items.is_empty())
            .map(|(name, items)| format!("{name}:[{}]", list(items)))
            .collect();
        format!("{{{}}}", parts.join(", "))
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

#[derive(Debug)]
struct Binding {
    name: String,
    namespace: String,
    role_kind: String,
    role: String,
    subjects: Vec<(String, String, String)>,
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
    fn subject_of(&self, caller: &Caller) -> Option<&(String, String, String)> {
        self.subjects.iter().find(|(kind, namespace, name)| match kind.as_str() {
            "User" => *name == caller.name,
            "Group" => caller.is_in(name),
            "ServiceAccount" => {
                let account = caller.name.strip_prefix("system:serviceaccount:");
                account.and_then(|account| account.split_once(':')) == Some((namespace, name))
            }
            _ => false,
        })
    }

    /// Why a user is allowed something, as reviews tell it.
    fn reason(&self, (kind, namespace, name): &(String, String, String)) -> String {
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

    fn rules_of(&self, binding: &Binding) -> &[Rule] {
        let rules = if binding.role_kind == "Role" {
            self.roles.get(&format!("{}/{}", binding.namespace, binding.role))
        } else {
            self.cluster_roles.get(&binding.role)
        };
        rules.map(Vec::as_slice).unwrap_or_default()
    }

    /// The bindings that apply to a user in a namespace (or cluster-wide), each with its subject and rules.
    fn bound<'a>(
        &'a self,
        caller: &'a Caller,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a Binding, &'a (String, String, String), &'a [Rule])> {
        let local = self.bindings.get(namespace).into_iter().flatten();
        self.cluster_bindings.iter().chain(local).filter_map(move |binding| {
            let subject = binding.subject_of(caller)?;
            Some((binding, subject, self.rules_of(binding)))
        })
    }

    /// Why a user is allowed what a rule must allow; `None` if nothing does.
    fn reason(&self, caller: &Caller, namespace: &str, allows: impl Fn(&Rule) -> bool) -> Option<String> {
        let mut bound = self.bound(caller, namespace);
        let (binding, subject, _) = bound.find(|(_, _, rules)| rules.iter().any(&allows))?;
        Some(binding.reason(subject))
    }
}

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

/// Whether a user may do something; `Some` with the reason, which may be empty, if so.
pub(crate) fn allows(api: &Api, caller: &Caller, wanted: &Attributes<'_>) -> Option<String> {
    if caller.is_in(MASTERS) {
        return Some(String::new());
    }
    let index = api.rbac().index(api.store());
    index.reason(caller, wanted.namespace, |rule| rule.allows(wanted))
}

/// Whether a user may use a path that is no resource.
pub(crate) fn allows_path(api: &Api, caller: &Caller, verb: &str, path: &str) -> Option<String> {
    if caller.is_in(MASTERS) {
        return Some(String::new());
    }
    let index = api.rbac().index(api.store());
    index.reason(caller, "", |rule| rule.allows_path(verb, path))
}

/// All rules a user has in a namespace.
pub(crate) fn rules_for(api: &Api, caller: &Caller, namespace: &str) -> Vec<Rule> {
    if caller.is_in(MASTERS) {
        let all = || vec!["*".to_owned()];
        return vec![
            Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), urls: all(), ..Rule::default() },
        ];
    }
    let index = api.rbac().index(api.store());
    index.bound(caller, namespace).flat_map(|(_, _, rules)| rules).cloned().collect()
}

impl Rule {
    /// Whether the rule is about paths rather than resources.
    pub(crate) fn is_about_paths(&self) -> bool {
        !self.urls.is_empty()
    }
}

/// Prevents privilege escalation: a user cannot grant permissions that they do not have.
pub(crate) fn check_escalation(
    context: &RequestContext,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let caller = &context.caller;
    if caller.is_in(MASTERS) || *context.resource.group != *GROUP {
        return Ok(());
    }
    let name = text(object, "/metadata/name");
    let named = Named { name, ..context.named() };
    let (verb, granted) = match &*context.resource.plural {
        "roles" | "clusterroles" => {
            if old.is_some_and(|old| is_same_role(old, object)) {
                return Ok(());
            }
            let mut rules: Vec<Rule> = items(object, "/rules").iter().map(Rule::of).collect();
            // Who decides what is gathered may gather everything.
            let gathers = |role: &Value| role.get("aggregationRule").is_some_and(|rule| !rule.is_null());
            if gathers(object) || old.is_some_and(gathers) {
                rules.extend(everything());
            }
            ("escalate", rules)
        }
        "rolebindings" | "clusterrolebindings" => {
            if old.is_some_and(|old| {
                old.get("subjects") == object.get("subjects") && old.get("roleRef") == object.get("roleRef")
            }) {
                return Ok(());
            }
            let index = context.api.rbac().index(context.api.store());
            let binding = Binding::of(&context.key(), object);
            ("bind", index.rules_of(&binding).to_vec())
        }
        _ => return Ok(()),
    };
    let (resource, target) = match (verb, text(object, "/roleRef/kind")) {
        ("bind", "Role") => ("roles", text(object, "/roleRef/name")),
        ("bind", _) => ("clusterroles", text(object, "/roleRef/name")),
        _ => (&*context.resource.plural, name),
    };
    let wanted = Attributes {
        verb,
        group: GROUP,
        version: "v1",
        resource,
        subresource: "",
        namespace: &context.namespace,
        name: target,
    };
    if allows(&context.api, caller, &wanted).is_some() {
        return Ok(());
    }
    let held = rules_for(&context.api, caller, &context.namespace);
    let missing: Vec<String> = granted.iter().filter(|rule| !covers(&held, rule)).map(Rule::shown).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let groups = caller.groups.iter().map(|group| format!("{group:?}")).collect::<Vec<_>>().join(" ");
    let why = format!(
        "user {:?} (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{}",
        caller.name,
        missing.join("\n")
    );
    Err(Failure::forbidden(named, &why))
}

/// Whether nothing but what the garbage collector and field owners write differs. Labels count: others gather by them.
fn is_same_role(old: &Value, new: &Value) -> bool {
    let plain = |role: &Value| {
        let mut role = role.clone();
        for key in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            crate::json::metadata(&mut role).remove(key);
        }
        role
    };
    plain(old) == plain(new)
}

/// The right to do anything.
fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), urls: all(), ..Rule::default() },
    ]
}

/// Whether rules together allow all that another one does.
fn covers(held: &[Rule], rule: &Rule) -> bool {
    let none = [String::new()];
    let names = if rule.names.is_empty() { &none[..] } else { &rule.names };
    let covers_resources = rule.verbs.iter().all(|verb| {
        rule.groups.iter().all(|group| {
            rule.resources.iter().all(|resource| {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                names.iter().all(|name| {
                    let wanted =
                        Attributes { verb, group, version: "", resource, subresource, namespace: "", name };
                    held.iter().any(|one| one.allows(&wanted))
                })
            })
        })
    });
    let covers_urls = rule
        .verbs
        .iter()
        .all(|verb| rule.urls.iter().all(|url| held.iter().any(|one| one.allows_path(verb, url))));
    covers_resources && covers_urls
}

/// Fills ClusterRoles that gather the rules of others.
pub(crate) async fn aggregate(api: &Api) -> Result<(), Failure> {
    let resource = api.built_in(GROUP, "clusterroles")?;
    let entries = api.store().objects(&resource.bucket, "");
    let all: Vec<(Arc<str>, Arc<crate::store::Entry>, Value)> = entries
        .into_iter()
        .map(|(key, entry)| {
            let value = entry.to_value("rbac.authorization.k8s.io/v1", "ClusterRole");
            (key, entry, value)
        })
        .collect();
    for (key, _, role) in &all {
        let selectors = items(role, "/aggregationRule/clusterRoleSelectors");
        if selectors.is_empty() {
            continue;
        }
        let mut gathered: Vec<Value> = Vec::new();
        for (other_key, other_entry, other) in &all {
            let is_wanted = other_key != key
                && selectors.iter().any(|selector| {
                    crate::model::label_selector(Some(selector))
                        .is_some_and(|s| crate::verbs::filter::selects(&s, &other_entry.head))
                });
            if is_wanted {
                for rule in items(other, "/rules") {
                    if !gathered.contains(rule) {
                        gathered.push(rule.clone());
                    }
                }
            }
        }
        if items(role, "/rules") == gathered.as_slice() {
            continue;
        }
        let context = RequestContext::internal(api, &resource, "", key);
        let gathered = &gathered;
        Box::pin(update::update(&context, false, update::Made::Changed, move |mut role: Value| async move {
            crate::json::as_map(&mut role).insert("rules".into(), gathered.clone().into());
            Ok(role)
        }))
        .await?;
    }
    Ok(())
}
