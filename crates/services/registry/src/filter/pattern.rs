//! LIKE patterns as PostgreSQL reads them: `%`, `_`, and a backslash that takes the next
//! character literally. SQLite's own LIKE ignores case, so its connections use this one.

/// A pattern ends in the midst of an escape. PostgreSQL notices where a text gets that far, and so do we.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("LIKE pattern must not end with escape character")]
pub(crate) struct DanglingEscape;

/// Whether `text` matches `pattern`; one that ends in an escape matches nothing.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    compare(pattern, text).unwrap_or_default()
}

/// [`matches`] without regard to case.
pub(crate) fn matches_ignoring_case(pattern: &str, text: &str) -> bool {
    compare_ignoring_case(pattern, text).unwrap_or_default()
}

/// Whether `text` matches `pattern`.
pub(crate) fn compare(pattern: &str, text: &str) -> Result<bool, DanglingEscape> {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to resume after the last `%`: behind it in the pattern, and one further in the text.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some('%') => {
                retry = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some('_') => Some(1),
            Some('\\') => {
                let escaped = pattern.get(p + 1).ok_or(DanglingEscape)?;
                (Some(escaped) == text.get(t)).then_some(2)
            }
            Some(character) => (Some(character) == text.get(t)).then_some(1),
            None => None,
        };
        match (step, retry) {
            (Some(length), _) => {
                p += length;
                t += 1;
            }
            (None, Some((after, from))) => {
                retry = Some((after, from + 1));
                p = after;
                t = from + 1;
            }
            (None, None) => return Ok(false),
        }
    }
    Ok(pattern.iter().skip(p).all(|character| *character == '%'))
}

/// [`compare`] without regard to case.
pub(crate) fn compare_ignoring_case(pattern: &str, text: &str) -> Result<bool, DanglingEscape> {
    compare(&pattern.to_lowercase(), &text.to_lowercase())
}

/// The only text a pattern without wildcards matches.
pub(crate) fn literal(pattern: &str) -> Option<String> {
    let mut text = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '%' | '_' => return None,
            '\\' => text.push(characters.next()?),
            other => text.push(other),
        }
    }
    Some(text)
}
