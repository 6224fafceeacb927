//! Names of the objects of an installation.

/// The name of everything that is ours.
pub(crate) const NAME: &str = "quintet";
/// The namespace of an installation unless the user says otherwise.
pub(crate) const DEFAULT_NAMESPACE: &str = "quintet-system";

/// A name for an object outside the namespace of the installation. Several installations may exist on one cluster, so
/// all but the one in the default namespace have the namespace in the name.
pub(crate) fn shared_name(namespace: &str, name: &str) -> String {
    if namespace == DEFAULT_NAMESPACE { name.to_owned() } else { format!("{name}-{namespace}") }
}
