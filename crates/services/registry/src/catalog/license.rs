//! Names of licences, as the catalog shows them.

use spdx::identifiers::LICENSES;

/// Licences, by their ids in lower case, that people know by other names than those of the SPDX list, or that are not on it.
const NAMES: &[(&str, &str)] = &[
    ("apache-2.0", "Apache 2.0"),
    ("bigscience-openrail-m", "BigScience OpenRAIL-M License"),
    ("bsd-2-clause", "BSD 2-Clause"),
    ("bsd-3-clause", "BSD 3-Clause"),
    ("gemma", "Gemma License"),
    ("gpl-2.0", "GPL 2.0"),
    ("gpl-3.0", "GPL 3.0"),
    ("lgpl-2.1", "LGPL 2.1"),
    ("lgpl-3.0", "LGPL 3.0"),
    ("llama2", "Llama 2 Community License"),
    ("llama3", "Llama 3 Community License"),
    ("llama3.1", "Llama 3.1 Community License"),
    ("llama3.2", "Llama 3.2 Community License"),
    ("llama3.3", "Llama 3.3 Community License"),
    ("llama4", "Llama 4 Community License"),
    ("mit", "MIT"),
    ("nvidia-open-model-license", "NVIDIA Open Model License"),
    ("openrail", "OpenRAIL License"),
];

/// What the SPDX list has for a licence that nobody has stated.
const UNSTATED: &str = "NOASSERTION";

/// The name of a licence; what is not known stays as it is.
pub(crate) fn name(license: &str) -> String {
    let license = license.trim();
    let known = NAMES.iter().find(|(id, _)| id.eq_ignore_ascii_case(license)).map(|(_, name)| *name);
    known.or_else(|| spdx_name(license)).unwrap_or(license).to_owned()
}

fn spdx_name(license: &str) -> Option<&'static str> {
    let mut licenses = LICENSES.iter().filter(|it| it.name != UNSTATED);
    licenses.find(|it| it.name.eq_ignore_ascii_case(license)).map(|it| it.full_name)
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn known_ids_get_names() {
        assert_eq!(name(" Apache-2.0 "), "Apache 2.0");
        assert_eq!(name("mit"), "MIT");
        assert_eq!(name("llama3.1"), "Llama 3.1 Community License");
        assert_eq!(name("Apache-1.1"), "Apache License 1.1");
        assert_eq!(name("eupl-1.2"), "European Union Public License 1.2");
        assert_eq!(name("House rules"), "House rules");
        assert_eq!(name("noassertion"), "noassertion");
        assert_eq!(name(" "), "");
    }
}
