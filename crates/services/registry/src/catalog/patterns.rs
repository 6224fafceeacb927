//! Which names of a source are in the catalog: `*` matches anything, case does not matter, and what is excluded wins.

/// Patterns of names to include and to exclude.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patterns {
    included: Vec<String>,
    excluded: Vec<String>,
}

impl Patterns {
    /// Reads the patterns of two fields of a source; none to include means all.
    pub(crate) fn new(included: (&str, &[String]), excluded: (&str, &[String])) -> Result<Self, String> {
        Ok(Self { included: read(included)?, excluded: read(excluded)? })
    }

    pub(crate) fn allow(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let matches = |pattern: &String| is_match(pattern, &name);
        (self.included.is_empty() || self.included.iter().any(matches)) && !self.excluded.iter().any(matches)
    }
}

fn read((field, patterns): (&str, &[String])) -> Result<Vec<String>, String> {
    let read = |(index, pattern): (usize, &String)| match pattern.trim() {
        "" => Err(format!("{field}[{index}]: pattern cannot be empty")),
        pattern => Ok(pattern.to_lowercase()),
    };
    patterns.iter().enumerate().map(read).collect()
}

fn is_match(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut rest = rest;
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::Patterns;

    fn allows(included: &[&str], excluded: &[&str], name: &str) -> bool {
        let owned = |patterns: &[&str]| patterns.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let patterns =
            Patterns::new(("includedModels", &owned(included)), ("excludedModels", &owned(excluded)));
        patterns.expect("patterns").allow(name)
    }

    #[test]
    fn what_is_excluded_wins() {
        assert!(allows(&[], &[], "any"));
        assert!(allows(&["org/*", "solo"], &["*-draft"], "ORG/Three"));
        assert!(allows(&["org/*", "solo"], &["*-draft"], "solo"));
        assert!(!allows(&["org/*", "solo"], &["*-draft"], "org/two-draft"));
        assert!(!allows(&["org/*", "solo"], &["*-draft"], "other"));
        assert!(!allows(&["solo"], &[], "solo2"));
    }

    #[test]
    fn stars_match_anything_between() {
        assert!(allows(&["a*b*c"], &[], "a-x-b-y-c"));
        assert!(allows(&["a*b*c"], &[], "abc"));
        assert!(!allows(&["a*b*c"], &[], "acb"));
        assert!(allows(&["*"], &[], ""));
        assert!(allows(&["*ab"], &[], "aab"));
        assert!(!allows(&["a.c"], &[], "abc"));
    }

    #[test]
    fn empty_patterns_are_refused() {
        let refused = Patterns::new(("includedModels", &["a".to_owned(), " ".to_owned()]), ("x", &[]));
        assert_eq!(refused.err().as_deref(), Some("includedModels[1]: pattern cannot be empty"));
    }
}
