//! User names and groups of service accounts.

use quintet_objects::names::{is_dns_label, is_dns_subdomain};

const PREFIX: &str = "system:serviceaccount:";

/// The user name of a service account.
pub(crate) fn user_name(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}:{name}")
}

/// The groups of a namespace's service accounts.
pub(crate) fn groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// Namespace and name of the service account that a user name is of, if it is of one.
pub(crate) fn split(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user_name.strip_prefix(PREFIX)?.split_once(':')?;
    (is_dns_label(namespace) && is_dns_subdomain(name)).then_some((namespace, name))
}

/// Whether a user name is that of a service account.
pub(crate) fn is_user_name(user_name: &str, namespace: &str, name: &str) -> bool {
    user_name.strip_prefix(PREFIX).and_then(|rest| rest.split_once(':')) == Some((namespace, name))
}
