//! Names, which become parts of other names.

use quintet_api::names::problems;

use super::{Verdict, ensure};

/// Whether a name of this kind leaves room for what is appended to it, and can begin a Service's name.
pub fn name(kind: &str, name: &str, longest: usize) -> Verdict {
    ensure(name.len() <= longest, || format!("{kind} name should be no more than {longest} characters"))?;
    let problems = problems::dns1035_label(name);
    ensure(problems.is_empty(), || {
        format!("{kind} name should be a valid DNS1035 label: [{}]", problems.join(" "))
    })
}
