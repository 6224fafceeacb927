//! Whether an operator was given the right to do what it does.

use http::Method;
use k8s_openapi::api::rbac::v1::PolicyRule;
use quintet_ray::{permissions, settings::Settings};

/// What an operator with certain settings may do, by the role it is installed with.
#[derive(Clone, Debug)]
pub struct Rights(Vec<PolicyRule>);

impl Rights {
    /// The rights that follow from settings.
    pub fn of(settings: &Settings) -> Self {
        let mut rules = permissions::rules(settings);
        // What the machinery needs, whatever the operator.
        let rule = |group: &str, resource: &str, verbs: &[&str]| PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        };
        rules.push(rule("events.k8s.io", "events", &["create", "patch"]));
        rules.push(rule("coordination.k8s.io", "leases", &["create", "get", "update"]));
        Self(rules)
    }

    /// Whether a request is allowed; the error says which right is missing.
    pub fn check(&self, method: &Method, path: &str, query: &str) -> Result<(), String> {
        let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            // Discovery is for everybody.
            _ => return Ok(()),
        };
        let rest = match rest {
            ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
            rest => rest,
        };
        let (resource, is_collection) = match rest {
            [resource] => ((*resource).to_owned(), true),
            [resource, _] => ((*resource).to_owned(), false),
            [resource, _, subresource, ..] => (format!("{resource}/{subresource}"), false),
            [] => return Ok(()),
        };
        let verb = match (method.as_str(), is_collection) {
            ("GET", true) if query.contains("watch=true") => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            (other, _) => return Err(format!("{other} {path}")),
        };
        let has = |all: &Option<Vec<String>>, one: &str| all.iter().flatten().any(|given| given == one);
        let allows = |rule: &PolicyRule| {
            has(&rule.api_groups, group)
                && has(&rule.resources, &resource)
                && rule.verbs.iter().any(|given| given == verb)
        };
        if self.0.iter().any(allows) { Ok(()) } else { Err(format!("{verb} {resource}.{group}: {path}")) }
    }
}
