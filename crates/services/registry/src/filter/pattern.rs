//! LIKE patterns as PostgreSQL reads them: `%`, `_`, and a backslash that takes the next
//! character literally. SQLite's own LIKE ignores case, so its connections use this one.

/// Whether `text` matches `pattern`.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
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
            Some('\\') => (pattern.get(p + 1) == text.get(t)).then_some(2),
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
            (None, None) => return false,
        }
    }
    pattern.iter().skip(p).all(|character| *character == '%')
}

/// [`matches`] without regard to case.
pub(crate) fn matches_ignoring_case(pattern: &str, text: &str) -> bool {
    matches(&pattern.to_lowercase(), &text.to_lowercase())
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
