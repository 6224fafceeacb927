//! Changes of AppWrappers: what runs and who created it is fixed.

use quintet_api::appwrapper::metadata::{USER, USER_ID};
use quintet_api::appwrapper::{AppWrapper, AppWrapperPodSet};

use crate::appwrapper::podsets;
use crate::field_errors::forbidden;

const IMMUTABLE: &str = "attempt to change immutable field";

/// Errors of a change.
pub(crate) fn check_update(old: &AppWrapper, new: &AppWrapper) -> Vec<String> {
    let (before, after) = (&old.spec.components, &new.spec.components);
    if before.len() != after.len() {
        return vec![forbidden("spec.components", IMMUTABLE)];
    }
    let mut errors = Vec::new();
    let mut check = |path: &str, is_changed: bool| {
        if is_changed {
            errors.push(forbidden(path, IMMUTABLE));
        }
    };
    for (number, (before, after)) in before.iter().zip(after).enumerate() {
        let path = format!("spec.components[{number}]");
        // Two texts of the same object are the same template.
        check(&format!("{path}.template.raw"), before.template != after.template);
        let (before, after) = (before.pod_sets.as_deref(), after.pod_sets.as_deref());
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        check(&format!("{path}.podsets"), before.len() != after.len());
        if before.len() == after.len() {
            check_pod_sets(&path, before, after, &mut check);
        }
    }
    // A label that is absent and one without a value are the same.
    let label = |appwrapper: &AppWrapper, name: &str| {
        appwrapper.metadata.labels.as_ref().and_then(|labels| labels.get(name).cloned()).unwrap_or_default()
    };
    for name in [USER, USER_ID] {
        check(&format!("metadata.labels[{name}]"), label(old, name) != label(new, name));
    }
    check("spec.managedBy", old.spec.managed_by != new.spec.managed_by);
    errors
}

fn check_pod_sets(
    path: &str,
    before: &[AppWrapperPodSet],
    after: &[AppWrapperPodSet],
    check: &mut impl FnMut(&str, bool),
) {
    for (number, (before, after)) in before.iter().zip(after).enumerate() {
        let path = format!("{path}.podsets[{number}]");
        check(&format!("{path}.replicas"), podsets::replicas(before) != podsets::replicas(after));
        check(&format!("{path}.path"), before.path != after.path);
    }
}
