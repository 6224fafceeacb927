//! Names of images: `[registry/]repository[:tag][@digest]`.

use std::fmt;

/// A name of an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The repository, with its registry unless that is the default one.
    pub repository: String,
    /// The tag; `latest` if there is none.
    pub tag: String,
}

impl Reference {
    /// Reads a name; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let without_digest = text.split_once('@').map_or(text, |(name, _)| name);
        let (repository, tag) = match without_digest.rsplit_once(':') {
            // A colon before a slash belongs to the port of a registry.
            Some((repository, tag)) if !tag.contains('/') => (repository, tag),
            _ => (without_digest, "latest"),
        };
        let repository = strip(repository);
        let is_name = |text: &str, others: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
        };
        let is_valid = is_name(repository, "._-/:") && is_name(tag, "._-") && !repository.ends_with('/');
        is_valid.then(|| Self { repository: repository.to_owned(), tag: tag.to_owned() })
    }

    /// The numbers at the beginning of the tag, like `2.52.0` of `2.52.0-py311-gpu`.
    pub fn version(&self) -> Option<&str> {
        let tag = self.tag.strip_prefix('v').unwrap_or(&self.tag);
        let end = tag.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(tag.len());
        let version = tag.get(..end)?.trim_end_matches('.');
        (!version.is_empty()).then_some(version)
    }
}

/// Without the default registry, in all its spellings.
fn strip(repository: &str) -> &str {
    let rest = ["docker.io/", "index.docker.io/"].iter().find_map(|prefix| repository.strip_prefix(prefix));
    let rest = rest.unwrap_or(repository);
    rest.strip_prefix("library/").unwrap_or(rest)
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repository, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_all_spellings() {
        let cases = [
            ("busybox", "busybox:latest"),
            ("docker.io/library/busybox:1.36", "busybox:1.36"),
            ("rayproject/ray:2.52.0@sha256:abc", "rayproject/ray:2.52.0"),
            ("localhost:5000/team/app", "localhost:5000/team/app:latest"),
            ("quay.io/a/b:v1", "quay.io/a/b:v1"),
        ];
        for (text, expected) in cases {
            assert_eq!(
                Reference::parse(text).map(|found| found.to_string()).as_deref(),
                Some(expected),
                "{text}"
            );
        }
        for text in ["", "a b", "a:", "a/", ":x", "a;rm"] {
            assert_eq!(Reference::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn versions_are_the_numbers_of_a_tag() {
        let version =
            |tag: &str| Reference { repository: "r".into(), tag: tag.into() }.version().map(str::to_owned);
        assert_eq!(version("2.52.0-py311-gpu").as_deref(), Some("2.52.0"));
        assert_eq!(version("v3.1").as_deref(), Some("3.1"));
        assert_eq!(version("3.11-slim").as_deref(), Some("3.11"));
        assert_eq!(version("2.9.0.deadbee").as_deref(), Some("2.9.0"));
        assert_eq!(version("latest"), None);
        assert_eq!(version("nightly"), None);
    }
}
