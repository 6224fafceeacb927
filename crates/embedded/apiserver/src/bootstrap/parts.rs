//! Roles of the parts of a cluster, which this API does not need itself: controllers and nodes of others run on it,
//! and charts bind these roles.

use serde_json::{Value, json};

use super::{BootstrapObject, RBAC, complete, role};

/// One role after the other, with its rules and who has it.
const TABLE: &str = include_str!("roles.txt");

/// The roles and their bindings.
pub(super) fn roles() -> Vec<BootstrapObject> {
    let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    let mut wanted = Vec::new();
    let mut lines = TABLE.lines().filter(|line| !line.starts_with('#')).peekable();
    while let Some(name) = lines.next().and_then(|line| line.strip_prefix("role ")) {
        let mut rules = Vec::new();
        let mut binding = None;
        while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
            match line.trim_start().strip_prefix("to ") {
                Some(subject) => binding = Some(subject),
                None => rules.push(rule(line)),
            }
        }
        wanted.push(role(name, &labels, &rules.into()));
        if let Some(subject) = binding {
            let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": name, "labels": labels},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}, "subjects": subjects(subject)});
            let binding = BootstrapObject::new(RBAC, "clusterrolebindings", "", object);
            wanted.push(binding.repaired_by(|present, wanted| complete(present, wanted, "subjects")));
        }
    }
    wanted
}

/// A rule: API groups, resources and verbs, and perhaps names or paths.
fn rule(line: &str) -> Value {
    let list = |words: &str| -> Vec<Value> {
        let words = words.split(',').filter(|word| *word != "-");
        words.map(|word| if word == "core" { "".into() } else { word.into() }).collect()
    };
    let mut words = line.split_whitespace();
    let mut next = || list(words.next().unwrap_or("-"));
    let (groups, resources, verbs) = (next(), next(), next());
    let mut rule = json!({"verbs": verbs});
    for (key, values) in [("apiGroups", groups), ("resources", resources)] {
        if !values.is_empty() {
            rule[key] = values.into();
        }
    }
    for word in words {
        match word.split_once('=') {
            Some(("names", names)) => rule["resourceNames"] = list(names).into(),
            Some(("urls", urls)) => rule["nonResourceURLs"] = list(urls).into(),
            _ => {}
        }
    }
    rule
}

/// Who has a role: `User NAME`, `Group NAME`, `ServiceAccount NAMESPACE/NAME` or `none`.
fn subjects(subject: &str) -> Value {
    match subject.split_once(' ') {
        Some((kind, name)) => match name.split_once('/') {
            Some((namespace, name)) => json!([{"kind": kind, "name": name, "namespace": namespace}]),
            None => json!([{"apiGroup": RBAC, "kind": kind, "name": name}]),
        },
        None => json!([]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::text;

    #[test]
    fn every_line_of_the_table_is_read() {
        let wanted = roles();
        let (roles, bindings): (Vec<_>, Vec<_>) = wanted.iter().partition(|one| one.plural == "clusterroles");
        let lines = |prefix: &str| TABLE.lines().filter(|line| line.starts_with(prefix)).count();
        assert_eq!((roles.len(), bindings.len()), (lines("role "), lines(" to ")));
        let rules: usize = roles.iter().map(|role| role.object["rules"].as_array().map_or(0, Vec::len)).sum();
        assert_eq!(rules, lines(" ") - lines(" to "));
        let named =
            |name: &str| roles.iter().find(|role| text(&role.object, "/metadata/name") == name).unwrap();
        let expected =
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["delete", "list", "watch"]});
        let cron_jobs = &named("system:controller:cronjob-controller").object["rules"];
        assert!(cron_jobs.as_array().unwrap().contains(&expected), "{cron_jobs}");
    }
}
