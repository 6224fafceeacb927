//! Patterns of file names, as the doublestar library of Go matches them.

/// A pattern that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadPattern;

/// Steps of a match before it is given up: patterns with many stars could take forever.
const MOST_STEPS: usize = 20_000;

/// The longest pattern. A match is as deep in the stack as its pattern is long.
const LONGEST: usize = 1024;

/// The directory of a pattern up to its first element with a special character, and the rest.
pub(super) fn split(pattern: &str) -> (&str, &str) {
    let special = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    match pattern[..special].rfind('/') {
        Some(slash) => (&pattern[..slash], &pattern[slash + 1..]),
        None => (".", pattern),
    }
}

/// Whether a path fits a pattern.
pub(super) fn matches(pattern: &str, path: &str) -> Result<bool, BadPattern> {
    if pattern.len() > LONGEST {
        return Err(BadPattern);
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let path: Vec<char> = path.chars().collect();
    check(&pattern)?;
    Ok(step(&pattern, &path, &mut 0))
}

/// Checks brackets, braces and escapes.
fn check(pattern: &[char]) -> Result<(), BadPattern> {
    let mut position = 0;
    let mut braces = 0_usize;
    while let Some(character) = pattern.get(position) {
        match character {
            '\\' => {
                position += 1;
                pattern.get(position).ok_or(BadPattern)?;
            }
            '[' => position = class(&pattern[position..], ' ').ok_or(BadPattern)?.1 + position - 1,
            '{' => braces += 1,
            '}' => braces = braces.checked_sub(1).ok_or(BadPattern)?,
            _ => {}
        }
        position += 1;
    }
    if braces == 0 { Ok(()) } else { Err(BadPattern) }
}

/// Whether a class at the beginning of the pattern holds a character, and how long the class is.
fn class(pattern: &[char], character: char) -> Option<(bool, usize)> {
    let mut position = 1;
    let is_negated = matches!(pattern.get(position), Some('!' | '^'));
    if is_negated {
        position += 1;
    }
    let mut found = false;
    let first = position;
    loop {
        let low = *pattern.get(position)?;
        if low == ']' && position > first {
            return Some((found != is_negated, position + 1));
        }
        let low = if low == '\\' {
            position += 1;
            *pattern.get(position)?
        } else if low == ']' || low == '-' {
            return None;
        } else {
            low
        };
        position += 1;
        let mut high = low;
        if pattern.get(position) == Some(&'-') {
            position += 1;
            high = *pattern.get(position)?;
            if high == '\\' {
                position += 1;
                high = *pattern.get(position)?;
            } else if high == ']' {
                return None;
            }
            position += 1;
        }
        found |= (low..=high).contains(&character);
    }
}

fn step(pattern: &[char], path: &[char], steps: &mut usize) -> bool {
    *steps += 1;
    if *steps > MOST_STEPS {
        return false;
    }
    match pattern {
        [] => path.is_empty(),
        ['*', '*', '/', rest @ ..] => {
            step(rest, path, steps)
                || (0..path.len()).any(|it| path[it] == '/' && step(rest, &path[it + 1..], steps))
        }
        ['*', '*'] => true,
        ['*', rest @ ..] => {
            let end = path.iter().position(|it| *it == '/').unwrap_or(path.len());
            (0..=end).any(|it| step(rest, &path[it..], steps))
        }
        ['?', rest @ ..] => path.first().is_some_and(|it| *it != '/') && step(rest, &path[1..], steps),
        ['[', ..] => match (class(pattern, path.first().copied().unwrap_or('/')), path) {
            (Some((true, length)), [first, after @ ..]) if *first != '/' => {
                step(&pattern[length..], after, steps)
            }
            _ => false,
        },
        ['{', ..] => alternatives(pattern, path, steps),
        ['\\', escaped, rest @ ..] => path.first() == Some(escaped) && step(rest, &path[1..], steps),
        [character, rest @ ..] => path.first() == Some(character) && step(rest, &path[1..], steps),
    }
}

/// Tries each of `{a,b}`.
fn alternatives(pattern: &[char], path: &[char], steps: &mut usize) -> bool {
    let mut depth = 0;
    let mut start = 1;
    let mut options: Vec<&[char]> = Vec::new();
    for (position, character) in pattern.iter().enumerate() {
        match character {
            '{' => depth += 1,
            ',' if depth == 1 => {
                options.push(&pattern[start..position]);
                start = position + 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    options.push(&pattern[start..position]);
                    let rest = &pattern[position + 1..];
                    return options.iter().any(|option| step(&[option, rest].concat(), path, steps));
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{BadPattern, matches, split};

    #[test]
    fn long_patterns_are_refused_before_they_fill_the_stack() {
        assert_eq!(matches(&"*".repeat(60_000), "raylet.out"), Err(BadPattern));
        assert_eq!(matches(&"*".repeat(1024), "raylet.out"), Ok(true));
    }

    #[test]
    fn patterns_match_paths() {
        let cases = [
            ("raylet*", "raylet.out", true),
            ("*.out", "a/raylet.out", false),
            ("**", "a/b/c", true),
            ("**/c", "a/b/c", true),
            ("raylet.???", "raylet.out", true),
            ("raylet.???", "raylet.out.1", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("\\[br\\].log", "[br].log", true),
            ("{a,b*}.log", "bcd.log", true),
            ("*", "events/", false),
            ("", "", true),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(pattern, path), Ok(expected), "{pattern} {path}");
        }
        for pattern in ["[abc", "[", "a\\", "{a", "a}", "[]"] {
            assert_eq!(matches(pattern, "x"), Err(BadPattern), "{pattern}");
        }
        let stars = "*a".repeat(50);
        assert_eq!(matches(&stars, &"a".repeat(60).replace('a', "ab")), Ok(false));
    }

    #[test]
    fn patterns_begin_with_a_directory() {
        let cases = [
            ("raylet*", (".", "raylet*")),
            ("events/event_*", ("events", "event_*")),
            ("serve/deep/er.log", ("serve/deep", "er.log")),
            ("serve/", ("serve", "")),
            ("e*/x", (".", "e*/x")),
            ("../*", ("..", "*")),
        ];
        for (pattern, expected) in cases {
            assert_eq!(split(pattern), expected, "{pattern}");
        }
    }
}
