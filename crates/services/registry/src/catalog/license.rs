//! Names of licences, as the catalog shows them.

/// Licence ids, in lower case, with the names that people know them by.
const NAMES: &[(&str, &str)] = &[
    ("0bsd", "BSD Zero Clause License"),
    ("afl-3.0", "Academic Free License v3.0"),
    ("agpl-3.0", "GNU Affero General Public License v3.0"),
    ("apache-2.0", "Apache 2.0"),
    ("artistic-2.0", "Artistic License 2.0"),
    ("bsd-2-clause", "BSD 2-Clause"),
    ("bsd-3-clause", "BSD 3-Clause"),
    ("bsl-1.0", "Boost Software License 1.0"),
    ("cc-by-4.0", "Creative Commons Attribution 4.0 International"),
    ("cc-by-nc-4.0", "Creative Commons Attribution Non Commercial 4.0 International"),
    ("cc-by-nc-nd-4.0", "Creative Commons Attribution Non Commercial No Derivatives 4.0 International"),
    ("cc-by-nc-sa-4.0", "Creative Commons Attribution Non Commercial Share Alike 4.0 International"),
    ("cc-by-nd-4.0", "Creative Commons Attribution No Derivatives 4.0 International"),
    ("cc-by-sa-4.0", "Creative Commons Attribution Share Alike 4.0 International"),
    ("cc0-1.0", "Creative Commons Zero v1.0 Universal"),
    ("ecl-2.0", "Educational Community License v2.0"),
    ("epl-2.0", "Eclipse Public License 2.0"),
    ("eupl-1.2", "European Union Public License 1.2"),
    ("gemma", "Gemma License"),
    ("gpl-2.0", "GPL 2.0"),
    ("gpl-3.0", "GPL 3.0"),
    ("isc", "ISC License"),
    ("lgpl-2.1", "LGPL 2.1"),
    ("lgpl-3.0", "LGPL 3.0"),
    ("llama2", "Llama 2 Community License"),
    ("llama3", "Llama 3 Community License"),
    ("llama3.1", "Llama 3.1 Community License"),
    ("llama3.2", "Llama 3.2 Community License"),
    ("llama3.3", "Llama 3.3 Community License"),
    ("llama4", "Llama 4 Community License"),
    ("mit", "MIT"),
    ("mpl-2.0", "Mozilla Public License 2.0"),
    ("ms-pl", "Microsoft Public License"),
    ("ncsa", "University of Illinois/NCSA Open Source License"),
    ("nvidia-open-model-license", "NVIDIA Open Model License"),
    ("ofl-1.1", "SIL Open Font License 1.1"),
    ("openrail", "OpenRAIL License"),
    ("osl-3.0", "Open Software License 3.0"),
    ("postgresql", "PostgreSQL License"),
    ("unlicense", "The Unlicense"),
    ("wtfpl", "Do What The F*ck You Want To Public License"),
    ("zlib", "zlib License"),
];

/// The name of a licence; what is not known stays as it is.
pub(crate) fn name(license: &str) -> String {
    let license = license.trim();
    let id = license.to_lowercase();
    NAMES.iter().find(|(it, _)| *it == id).map_or(license, |(_, name)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn known_ids_get_names() {
        assert_eq!(name(" Apache-2.0 "), "Apache 2.0");
        assert_eq!(name("mit"), "MIT");
        assert_eq!(name("House rules"), "House rules");
    }
}
