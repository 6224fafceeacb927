//! Prevents privilege escalation: a user cannot grant permissions that they do not have.
//!
//! As upstream's `pkg/registry/rbac/{role,clusterrole,rolebinding,clusterrolebinding}/policybased`: checked after
//! mutating admission and before validation, so that an error never tells more than the user may know.

use std::collections::BTreeSet;

use quintet_objects::error::quoted;
use serde_json::Value;

use super::{Attributes, Binding, GROUP, MASTERS, MissingRole, Rule, decide, everything, in_one_line};
use crate::{
    json::{items, metadata, text},
    status::{Failure, Named},
    verbs::RequestContext,
};

/// Refuses a role or binding that grants what the caller does not have, unless they may `escalate` or `bind`.
pub(crate) fn check_escalation(
    context: &RequestContext,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Failure> {
    if context.caller.is_in(MASTERS) || *context.resource.group != *GROUP || !context.subresource.is_empty() {
        return Ok(());
    }
    match &*context.resource.plural {
        "roles" | "clusterroles" => check_role(context, object, old),
        "rolebindings" | "clusterrolebindings" => check_binding(context, object, old),
        _ => Ok(()),
    }
}

fn check_role(context: &RequestContext, role: &Value, old: Option<&Value>) -> Result<(), Failure> {
    // The name of the request, not of the object: the creation of an object that the URL does not name can only be
    // allowed for all names.
    if may(context, "escalate", &context.resource.plural, &context.name) {
        return Ok(());
    }
    if old.is_some_and(|old| is_same_but_for_deletion(old, role)) {
        return Ok(());
    }
    let rules: Vec<Rule> = items(role, "/rules").iter().map(Rule::of).collect();
    check_held(context, role, &rules)?;
    // Who decides what is aggregated may aggregate everything.
    let aggregates = |role: &Value| !items(role, "/aggregationRule/clusterRoleSelectors").is_empty();
    if (aggregates(role) || old.is_some_and(aggregates)) && !is_held(context, &everything()) {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        return Err(Failure::forbidden(named(context, role), why));
    }
    Ok(())
}

fn check_binding(context: &RequestContext, object: &Value, old: Option<&Value>) -> Result<(), Failure> {
    if old.is_some_and(|old| is_same_but_for_deletion(old, object)) {
        return Ok(());
    }
    let binding = Binding::of(&context.key(), object);
    let resource = if binding.role_kind == "Role" { "roles" } else { "clusterroles" };
    let index = context.api.rbac().index(context.api.store());
    let Some(rules) = index.rules_of(&binding) else {
        return Err(Failure::untyped(format!(
            "unsupported role reference kind: {}",
            quoted(&binding.role_kind)
        )));
    };
    if may(context, "bind", resource, &binding.role) {
        return Ok(());
    }
    // A role that does not exist yet may grant anything once it does.
    check_held(context, object, rules.map_err(|role| not_found(context, &role))?)
}

/// Upstream reads roles on behalf of the request, and so its error names the resource of the request.
fn not_found(context: &RequestContext, role: &MissingRole) -> Failure {
    Failure::not_found(Named { name: &role.name, ..context.named() })
}

fn may(context: &RequestContext, verb: &str, resource: &str, name: &str) -> bool {
    let namespace = &context.namespace;
    let wanted = Attributes { verb, group: GROUP, version: "v1", resource, subresource: "", namespace, name };
    decide(&context.api, &context.caller, &wanted).is_ok()
}

fn named<'a>(context: &'a RequestContext, object: &'a Value) -> Named<'a> {
    Named { name: text(object, "/metadata/name"), ..context.named() }
}

/// Whether nothing but what the garbage collector and field owners write differs. Labels count: roles are aggregated
/// by them.
fn is_same_but_for_deletion(old: &Value, new: &Value) -> bool {
    let plain = |object: &Value| {
        let mut object = object.clone();
        for key in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            metadata(&mut object).remove(key);
        }
        object
    };
    plain(old) == plain(new)
}

fn is_held(context: &RequestContext, granted: &[Rule]) -> bool {
    let (held, _) = held_rules(context);
    granted.iter().flat_map(single_permissions).all(|rule| is_covered(&held, &rule))
}

/// The caller's rules, and the roles that are missing for more.
fn held_rules(context: &RequestContext) -> (Vec<Rule>, Vec<MissingRole>) {
    let index = context.api.rbac().index(context.api.store());
    let (mut held, mut missing) = (Vec::new(), Vec::new());
    for (_, _, rules) in index.bound(&context.caller, &context.namespace) {
        match rules {
            Ok(rules) => held.extend_from_slice(rules),
            Err(role) => missing.push(role),
        }
    }
    (held, missing)
}

fn check_held(context: &RequestContext, object: &Value, granted: &[Rule]) -> Result<(), Failure> {
    let (held, unresolved) = held_rules(context);
    let lacking = granted.iter().flat_map(single_permissions).filter(|rule| !is_covered(&held, rule));
    let lacking = compact(lacking);
    if lacking.is_empty() {
        return Ok(());
    }
    let lines: BTreeSet<String> = lacking.iter().map(Rule::to_text).collect();
    let lines: Vec<String> = lines.into_iter().collect();
    let mut why = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quoted(&context.caller.name),
        quoted_list(&context.caller.groups),
        lines.join("\n")
    );
    if !unresolved.is_empty() {
        why.push_str("; resolution errors: [");
        why.push_str(&in_one_line(unresolved.iter().map(|role| not_found(context, role))));
        why.push(']');
    }
    Err(Failure::forbidden(named(context, object), &why))
}

fn quoted_list(items: &[String]) -> String {
    format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(" "))
}

/// A rule taken apart into rules of one verb and one group, resource and name, or one path.
fn single_permissions(rule: &Rule) -> Vec<Rule> {
    let one = |text: &String| vec![text.clone()];
    let mut all = Vec::new();
    for group in &rule.groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let whole = Rule {
                    verbs: one(verb),
                    groups: one(group),
                    resources: one(resource),
                    ..Rule::default()
                };
                if rule.names.is_empty() {
                    all.push(whole.clone());
                }
                all.extend(rule.names.iter().map(|name| Rule { names: one(name), ..whole.clone() }));
            }
        }
    }
    for url in &rule.urls {
        all.extend(rule.verbs.iter().map(|verb| Rule {
            verbs: one(verb),
            urls: one(url),
            ..Rule::default()
        }));
    }
    all
}

/// Whether one of the rules allows all that a rule of a single permission does.
fn is_covered(held: &[Rule], single: &Rule) -> bool {
    let first = |list: &[String]| list.first().cloned().unwrap_or_default();
    let (verb, name) = (first(&single.verbs), first(&single.names));
    if let Some(url) = single.urls.first() {
        return held.iter().any(|rule| rule.allows_path(&verb, url));
    }
    let (group, resource) = (first(&single.groups), first(&single.resources));
    let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
    let wanted = Attributes {
        verb: &verb,
        group: &group,
        version: "",
        resource,
        subresource,
        namespace: "",
        name: &name,
    };
    held.iter().any(|rule| (!single.names.is_empty() || rule.names.is_empty()) && rule.allows(&wanted))
}

/// Joins rules about the same resource and name that differ in their verbs.
fn compact(singles: impl Iterator<Item = Rule>) -> Vec<Rule> {
    let mut compacted: Vec<Rule> = Vec::new();
    for rule in singles {
        let same = compacted.iter_mut().find(|one| {
            one.urls.is_empty()
                && (&one.groups, &one.resources, &one.names, &one.urls)
                    == (&rule.groups, &rule.resources, &rule.names, &rule.urls)
        });
        match same {
            Some(same) => same.verbs.extend(rule.verbs),
            None => compacted.push(rule),
        }
    }
    compacted
}

impl Rule {
    /// As messages about escalation write it.
    fn to_text(&self) -> String {
        let parts = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, items)| !items.is_empty())
            .map(|(name, items)| format!("{name}:{}", quoted_list(items)))
            .collect();
        format!("{{{}}}", parts.join(", "))
    }
}
