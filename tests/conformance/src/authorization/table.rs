//! A seeded table of roles, bindings and requests. The same seed makes the same table, names included, so that what
//! two clusters say to it can be compared word for word.

use quintet_foundation::rng::Rng;
use serde_json::{Value, json};

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";
pub(super) const PATH: &str = "/apis/rbac.authorization.k8s.io/v1";
const CORE_AND_RBAC: [&str; 4] = ["", "apps", GROUP, "*"];
const RESOURCES: [&str; 10] = [
    "pods",
    "pods/log",
    "*/log",
    "*/scale",
    "deployments",
    "deployments/scale",
    "roles",
    "clusterroles",
    "configmaps",
    "*",
];
const VERBS: [&str; 8] = ["get", "list", "create", "patch", "delete", "escalate", "bind", "*"];
const URLS: [&str; 6] = ["/metrics", "/logs/*", "/logs/a", "/l*", "/l**", "*"];
const IMPERSONATION: [&str; 6] = [
    "impersonate",
    "impersonate:user-info",
    "impersonate:serviceaccount",
    "impersonate:arbitrary-node",
    "impersonate-on:user-info:create",
    "*",
];

/// Roles, bindings and requests that belong together: one namespace, and names of their own.
pub(super) struct Round {
    pub(super) namespace: String,
    /// Objects that are there before the requests: the path of their collection, and the object.
    pub(super) objects: Vec<(String, Value)>,
    /// Aggregated ClusterRoles with the rules they are to have.
    pub(super) aggregated: Vec<(String, Value)>,
    pub(super) requests: Vec<Request>,
}

/// Who makes a request.
pub(super) enum Requestor {
    /// A user with groups, whom the administrator impersonates.
    User(Vec<(String, String)>),
    /// A service account with its own token, and what it wants to impersonate.
    Account(String, Vec<(String, String)>),
}

/// One request. None changes anything: writes are dry runs.
pub(super) struct Request {
    pub(super) requestor: Requestor,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) content_type: &'static str,
    pub(super) body: Value,
}

pub(super) fn role(kind: &str, name: &str, rules: &Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}, "rules": rules})
}

pub(super) fn binding(kind: &str, name: &str, role: (&str, &str), subjects: &Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}, "subjects": subjects,
        "roleRef": {"apiGroup": GROUP, "kind": role.0, "name": role.1}})
}

/// Makes a round.
pub(super) struct Generator<'a> {
    rng: &'a Rng,
    namespace: String,
}

impl<'a> Generator<'a> {
    pub(super) fn new(rng: &'a Rng, namespace: String) -> Self {
        Self { rng, namespace }
    }

    /// Everything of a round.
    pub(super) fn round(&self, requests: usize) -> Round {
        let mut objects = self.basics();
        let mut aggregated = Vec::new();
        for index in 0..3 {
            objects.push((self.namespaced("roles"), role("Role", &format!("r{index}"), &self.rules(false))));
            let mut cluster_role = role("ClusterRole", &self.cluster_name(index), &self.rules(true));
            cluster_role["metadata"]["labels"] = json!({&self.namespace: format!("{}", index % 2)});
            objects.push((format!("{PATH}/clusterroles"), cluster_role));
        }
        for (index, value) in ["0", "1"].into_iter().enumerate() {
            let name = format!("{}-all{index}", self.namespace);
            let mut whole = role("ClusterRole", &name, &json!([]));
            whole["aggregationRule"] =
                json!({"clusterRoleSelectors": [{"matchLabels": {&self.namespace: value}}]});
            let mut rules: Vec<Value> = Vec::new();
            let parts =
                objects.iter().filter(|(_, part)| part["metadata"]["labels"][&self.namespace] == value);
            for rule in parts.flat_map(|(_, part)| part["rules"].as_array().into_iter().flatten()) {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
            objects.push((format!("{PATH}/clusterroles"), whole));
            aggregated.push((name, rules.into()));
        }
        for index in 0..4 {
            let reference = self.role_reference(false);
            let bound = binding(
                "RoleBinding",
                &format!("b{index}"),
                (reference.0, &reference.1),
                &json!([self.subject()]),
            );
            objects.push((self.namespaced("rolebindings"), bound));
        }
        for index in 0..3 {
            let reference = self.role_reference(true);
            let subjects = json!([self.subject()]);
            let name = self.cluster_name(index);
            let bound = binding("ClusterRoleBinding", &name, (reference.0, &reference.1), &subjects);
            objects.push((format!("{PATH}/clusterrolebindings"), bound));
        }
        let requests = (0..requests).map(|_| self.request()).collect();
        Round { namespace: self.namespace.clone(), objects, aggregated, requests }
    }

    /// Service accounts, and the right to write roles and bindings as such for some users.
    fn basics(&self) -> Vec<(String, Value)> {
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace);
        let mut objects: Vec<(String, Value)> = (0..2)
            .map(|index| {
                let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": format!("s{index}")}});
                (accounts.clone(), account)
            })
            .collect();
        let writer = format!("{}-writer", self.namespace);
        let rules = json!([{"apiGroups": [GROUP], "verbs": ["create", "update", "patch"],
            "resources": ["roles", "clusterroles", "rolebindings", "clusterrolebindings"]}]);
        objects.push((format!("{PATH}/clusterroles"), role("ClusterRole", &writer, &rules)));
        let subjects =
            json!([{"kind": "Group", "apiGroup": GROUP, "name": format!("{}-writers", self.namespace)}]);
        let bound = binding("ClusterRoleBinding", &writer, ("ClusterRole", &writer), &subjects);
        objects.push((format!("{PATH}/clusterrolebindings"), bound));
        objects
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).unwrap_or_default()
    }

    fn one<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// One or two of some words.
    fn some(&self, words: &[&str]) -> Vec<String> {
        (0..=self.below(2)).map(|_| self.one(words).to_owned()).collect()
    }

    fn cluster_name(&self, index: usize) -> String {
        format!("{}-c{index}", self.namespace)
    }

    fn namespaced(&self, resource: &str) -> String {
        format!("{PATH}/namespaces/{}/{resource}", self.namespace)
    }

    fn user(&self) -> String {
        format!("{}-u{}", self.namespace, self.below(3))
    }

    fn group(&self) -> String {
        format!("{}-g{}", self.namespace, self.below(2))
    }

    fn subject(&self) -> Value {
        match self.below(5) {
            0 | 1 => json!({"kind": "User", "apiGroup": GROUP, "name": self.user()}),
            2 => json!({"kind": "Group", "apiGroup": GROUP, "name": self.group()}),
            _ => {
                let name = format!("s{}", self.below(2));
                json!({"kind": "ServiceAccount", "name": name, "namespace": self.namespace})
            }
        }
    }

    fn rules(&self, is_cluster: bool) -> Value {
        (0..=self.below(3)).map(|_| self.rule(is_cluster)).collect()
    }

    fn rule(&self, is_cluster: bool) -> Value {
        match self.below(8) {
            0 | 1 if is_cluster => {
                json!({"nonResourceURLs": self.some(&URLS), "verbs": self.some(&["get", "post", "*"])})
            }
            2 | 3 => self.impersonation_rule(),
            _ => {
                let mut rule = json!({"apiGroups": self.some(&CORE_AND_RBAC), "resources": self.some(&RESOURCES),
                    "verbs": self.some(&VERBS)});
                if self.below(4) == 0 {
                    let names =
                        ["a", "r0", "r1", &self.cluster_name(0), &self.cluster_name(1)].map(str::to_owned);
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    rule["resourceNames"] = self.some(&names).into();
                }
                rule
            }
        }
    }

    fn impersonation_rule(&self) -> Value {
        let resources = [
            "users",
            "groups",
            "serviceaccounts",
            "uids",
            "nodes",
            "userextras/example.com%2fteam",
            "userextras/example.com/team",
            "selfsubjectreviews",
            "*",
        ];
        json!({"apiGroups": self.some(&["", "authentication.k8s.io", "*"]), "resources": self.some(&resources),
            "verbs": self.some(&IMPERSONATION)})
    }

    fn role_reference(&self, is_cluster: bool) -> (&'static str, String) {
        match self.below(8) {
            0 => ("ClusterRole", format!("{}-none", self.namespace)),
            1 if !is_cluster => ("Role", "none".to_owned()),
            2 => ("ClusterRole", format!("{}-all{}", self.namespace, self.below(2))),
            3 | 4 if !is_cluster => ("Role", format!("r{}", self.below(3))),
            _ => ("ClusterRole", self.cluster_name(self.below(3))),
        }
    }

    fn request(&self) -> Request {
        match self.below(10) {
            0 | 1 => self.review(),
            2 => self.read(),
            3 | 4 => self.new_role(),
            5 | 6 => self.new_binding(),
            7 | 8 => self.change(),
            _ => self.impersonation(),
        }
    }

    /// A user, usually one who may write roles and bindings.
    fn requestor(&self) -> Requestor {
        let account = format!("system:serviceaccount:{}:s{}", self.namespace, self.below(2));
        let name = if self.below(3) == 0 { account } else { self.user() };
        let mut headers = vec![("impersonate-user".to_owned(), name)];
        for group in [self.group(), format!("{}-writers", self.namespace)] {
            if self.below(4) > 0 {
                headers.push(("impersonate-group".to_owned(), group));
            }
        }
        Requestor::User(headers)
    }

    fn write(&self, method: &'static str, path: &str, body: Value) -> Request {
        let content_type =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let separator = if path.contains('?') { '&' } else { '?' };
        Request {
            requestor: self.requestor(),
            method,
            path: format!("{path}{separator}dryRun=All"),
            content_type,
            body,
        }
    }

    fn review(&self) -> Request {
        let mut spec = json!({"user": self.user(), "groups": [self.group()]});
        if self.below(4) == 0 {
            spec["nonResourceAttributes"] = json!({"path": self.one(&["/metrics", "/logs/a", "/logs/b", "/l", "/x"]),
                "verb": self.one(&["get", "post"])});
        } else {
            let (resource, subresource) = self.one(&[
                ("pods", ""),
                ("pods", "log"),
                ("deployments", "scale"),
                ("roles", ""),
                ("clusterroles", ""),
                ("users", ""),
                ("*", ""),
            ]);
            spec["resourceAttributes"] = json!({"group": self.one(&CORE_AND_RBAC), "resource": resource,
                "subresource": subresource, "verb": self.one(&VERBS), "name": self.one(&["", "a", "r0"]),
                "namespace": self.one(&["", self.namespace.as_str()])});
        }
        Request {
            requestor: Requestor::User(Vec::new()),
            method: "POST",
            path: "/apis/authorization.k8s.io/v1/subjectaccessreviews".into(),
            content_type: "application/json",
            body: json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}),
        }
    }

    fn read(&self) -> Request {
        let path = match self.below(5) {
            0 => format!("/api/v1/namespaces/{}/pods", self.namespace),
            1 => format!("/api/v1/namespaces/{}/configmaps/a", self.namespace),
            2 => format!("/api/v1/namespaces/{}/configmaps?fieldSelector=metadata.name%3Da", self.namespace),
            3 => format!("/apis/apps/v1/namespaces/{}/deployments/a/scale", self.namespace),
            _ => self.one(&["/metrics", "/logs/a", "/logs/", "/x%3Cy%3E"]).to_owned(),
        };
        Request { path, ..self.write("GET", "", Value::Null) }
    }

    fn new_role(&self) -> Request {
        let is_cluster = self.below(2) == 0;
        let (kind, collection) = if is_cluster {
            ("ClusterRole", format!("{PATH}/clusterroles"))
        } else {
            ("Role", self.namespaced("roles"))
        };
        let mut object = role(kind, "a", &self.rules(is_cluster));
        if is_cluster && self.below(4) == 0 {
            object["aggregationRule"] =
                json!({"clusterRoleSelectors": [{"matchLabels": {&self.namespace: "0"}}]});
        }
        match self.below(5) {
            0 => self.write("PUT", &format!("{collection}/a"), object),
            1 => Request {
                content_type: "application/apply-patch+yaml",
                ..self.write("PATCH", &format!("{collection}/a?fieldManager=m"), object)
            },
            _ => self.write("POST", &collection, object),
        }
    }

    fn new_binding(&self) -> Request {
        let is_cluster = self.below(2) == 0;
        let (kind, collection) = if is_cluster {
            ("ClusterRoleBinding", format!("{PATH}/clusterrolebindings"))
        } else {
            ("RoleBinding", self.namespaced("rolebindings"))
        };
        let reference = self.role_reference(is_cluster);
        let kind_of_role = if self.below(20) == 0 { "Policy" } else { reference.0 };
        let object = binding(kind, "a", (kind_of_role, &reference.1), &json!([self.subject()]));
        if self.below(5) == 0 {
            return self.write("PUT", &format!("{collection}/a"), object);
        }
        self.write("POST", &collection, object)
    }

    fn change(&self) -> Request {
        let (path, is_cluster) = match self.below(5) {
            0 => (self.namespaced(&format!("roles/r{}", self.below(3))), false),
            1 => (format!("{PATH}/clusterroles/{}", self.cluster_name(self.below(3))), true),
            2 => (format!("{PATH}/clusterroles/{}-all{}", self.namespace, self.below(2)), true),
            3 => (self.namespaced(&format!("rolebindings/b{}", self.below(4))), false),
            _ => (format!("{PATH}/clusterrolebindings/{}", self.cluster_name(self.below(3))), true),
        };
        let patch = match self.below(5) {
            0 => json!({"metadata": {"labels": {"a": "b"}}}),
            1 => json!({"metadata": {"finalizers": ["example.com/wait"]}}),
            2 if path.contains("clusterroles/") => json!({"aggregationRule": null}),
            _ if path.contains("bindings/") => json!({"subjects": [self.subject()]}),
            _ => json!({"rules": self.rules(is_cluster)}),
        };
        self.write("PATCH", &path, patch)
    }

    fn impersonation(&self) -> Request {
        let name = match self.below(6) {
            0 => format!("system:serviceaccount:{}:s0", self.namespace),
            1 => "system:node:n".to_owned(),
            2 => "system:anonymous".to_owned(),
            3 => String::new(),
            _ => self.user(),
        };
        let mut headers = Vec::new();
        if !name.is_empty() {
            headers.push(("impersonate-user".to_owned(), name));
        }
        for _ in 0..self.below(3) {
            let group = self
                .one(&["system:masters", "system:unauthenticated", "system:authenticated", "g"])
                .to_owned();
            headers.push(("impersonate-group".to_owned(), group));
        }
        if self.below(5) == 0 {
            headers.push(("impersonate-uid".to_owned(), "7".to_owned()));
        }
        if self.below(4) == 0 {
            let key = self.one(&["team", "example.com%2fteam"]);
            headers.push((format!("impersonate-extra-{key}"), "x".to_owned()));
        }
        Request {
            requestor: Requestor::Account(format!("s{}", self.below(2)), headers),
            method: "POST",
            path: "/apis/authentication.k8s.io/v1/selfsubjectreviews".into(),
            content_type: "application/json",
            body: json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
        }
    }
}
