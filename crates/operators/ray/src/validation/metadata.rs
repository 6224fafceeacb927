//! Names, which become parts of other names.

use quintet_api::names::is_dns_1035_label;

use super::{Verdict, ensure};

/// Whether a name of this kind leaves room for what is appended to it, and can begin a Service's name.
pub fn name(kind: &str, name: &str, longest: usize) -> Verdict {
    ensure(name.len() <= longest, || {
        format!("{kind} name should be no more than {longest} characters, and {name:?} has {}", name.len())
    })?;
    ensure(is_dns_1035_label(name), || {
        format!(
            "{kind} name should be a valid DNS1035 label: {name:?} must consist of lower case letters, digits and \
             '-', begin with a letter and not end with '-'"
        )
    })
}
