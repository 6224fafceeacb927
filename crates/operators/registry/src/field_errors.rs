//! Errors about fields, in the words of Kubernetes' `field` package and of its errors about invalid objects.

pub(crate) fn required(path: &str, why: &str) -> String {
    format!("{path}: Required value: {why}")
}

pub(crate) fn invalid(path: &str, value: &str, why: &str) -> String {
    format!("{path}: Invalid value: {value:?}: {why}")
}

pub(crate) fn duplicate(path: &str, value: &str) -> String {
    format!("{path}: Duplicate value: {value:?}")
}

/// All errors of an object as one message; `None` if there are none.
pub(crate) fn of_object(kind: &str, name: &str, errors: &[String]) -> Option<String> {
    let errors = match errors {
        [] => return None,
        [one] => one.clone(),
        _ => format!("[{}]", errors.join(", ")),
    };
    Some(format!("{kind} {name:?} is invalid: {errors}"))
}

/// The error about a namespace in which objects must not be, if they may only be in one.
pub(crate) fn check_namespace(namespace: &str, only: Option<&str>) -> Option<String> {
    let only = only.filter(|only| *only != namespace)?;
    Some(invalid("metadata.namespace", namespace, &format!("namespace must be {only}")))
}
