//! Patterns of file names, as the doublestar library of Go matches them.

/// A pattern that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadPattern;

/// Steps of a match before it is given up: patterns with many stars could take forever.
const MOST_STEPS: usize = 20_000;

/// The longest pattern. A match is as deep in the stack as its pattern is long.
const LONGEST: usize = 1024;

/// The directory of a pattern up to its first element with a special character, and the rest. As upstream, escapes of
/// special characters in the directory are resolved.
pub(super) fn split(pattern: &str) -> (String, &str) {
    let mut slash = None;
    let mut characters = pattern.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '/' => slash = Some(at),
            '*' | '?' | '[' | '{' => break,
            _ => {}
        }
    }
    match slash {
        None => (".".to_owned(), pattern),
        Some(0) => ("/".to_owned(), &pattern[1..]),
        Some(slash) => (unescaped(&pattern[..slash]), &pattern[slash + 1..]),
    }
}

fn unescaped(directory: &str) -> String {
    let mut characters = directory.chars().peekable();
    let mut plain = String::with_capacity(directory.len());
    while let Some(character) = characters.next() {
        let is_escape = character == '\\' && characters.peek().is_some_and(|it| "*?[]{}".contains(*it));
        if !is_escape {
            plain.push(character);
        }
    }
    plain
}

/// Whether a path fits a pattern.
pub(super) fn matches(pattern: &str, path: &str) -> Result<bool, BadPattern> {
    if pattern.len() > LONGEST {
        return Err(BadPattern);
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let path: Vec<char> = path.chars().collect();
    check(&pattern)?;
    Ok(step(&pattern, &path, true, &mut 0))
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

/// Whether a class at the beginning of the pattern holds a character, and how long the class is. A sign `-` that has
/// nothing before or after it stands for itself, and so does the beginning of a range that has an earlier end.
fn class(pattern: &[char], character: char) -> Option<(bool, usize)> {
    let mut position = 1;
    let is_negated = matches!(pattern.get(position), Some('!' | '^'));
    if is_negated {
        position += 1;
    }
    if pattern.get(position) == Some(&']') {
        return None;
    }
    let mut found = false;
    let mut low = None;
    loop {
        let mut next = *pattern.get(position)?;
        position += 1;
        if next == ']' {
            return Some((found != is_negated, position));
        }
        if next == '-'
            && let Some(low) = low.take()
            && pattern.get(position).is_some_and(|it| *it != ']')
        {
            let mut high = *pattern.get(position)?;
            if high == '\\' {
                position += 1;
                high = *pattern.get(position)?;
            }
            position += 1;
            found |= (low..=high).contains(&character);
            continue;
        }
        if next == '\\' {
            next = *pattern.get(position)?;
            position += 1;
        }
        found |= next == character;
        low = Some(next);
    }
}

/// Whether the rest of a path fits the rest of a pattern. `**` is special only as a whole element: `is_start` says that
/// an element begins here.
fn step(pattern: &[char], path: &[char], is_start: bool, steps: &mut usize) -> bool {
    *steps += 1;
    if *steps > MOST_STEPS {
        return false;
    }
    match pattern {
        [] => path.is_empty(),
        // What may stand for nothing at the end.
        ['/', '*', '*'] | ['*', '*', '/'] | ['/', '*', '*', '/'] if path.is_empty() => true,
        ['*', '*'] if is_start => true,
        ['*', '*', '/', rest @ ..] if is_start => {
            step(rest, path, true, steps)
                || (0..path.len()).any(|it| path[it] == '/' && step(rest, &path[it + 1..], true, steps))
        }
        ['*', '*', rest @ ..] | ['*', rest @ ..] => {
            let end = path.iter().position(|it| *it == '/').unwrap_or(path.len());
            (0..=end).any(|it| step(rest, &path[it..], false, steps))
        }
        ['?', rest @ ..] => path.first().is_some_and(|it| *it != '/') && step(rest, &path[1..], false, steps),
        ['[', ..] => match (class(pattern, path.first().copied().unwrap_or('/')), path) {
            (Some((true, length)), [_, after @ ..]) => step(&pattern[length..], after, false, steps),
            _ => false,
        },
        ['{', ..] => alternatives(pattern, path, steps),
        ['\\', character, rest @ ..] | [character, rest @ ..] => {
            path.first() == Some(character) && step(rest, &path[1..], *character == '/', steps)
        }
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
                    // As the library does: it begins anew with each of them, as if an element began.
                    return options.iter().any(|option| step(&[option, rest].concat(), path, true, steps));
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
            ("[a-]x", "-x", true),
            ("[-a]x", "-x", true),
            ("[z-a]x", "zx", true),
            ("[z-a]x", "bx", false),
            ("[a-c-e]x", "-x", true),
            ("[a\\-c]x", "bx", false),
            ("\\[br\\].log", "[br].log", true),
            ("{a,b*}.log", "bcd.log", true),
            ("*", "events/", false),
            ("", "", true),
            ("raylet**", "raylet.out", true),
            ("raylet**", "raylet/out", false),
            ("**", "raylet/out", true),
            ("a/**", "a/b/c", true),
            ("a/**", "a", true),
            ("a**/c", "a/b/c", false),
            ("a**/c", "ab/c", true),
            ("a/**/c", "a/c", true),
            ("a/**/c", "a/b/b/c", true),
            ("**/", "a", false),
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
            ("./serve/*", ("./serve", "*")),
            ("/x*", ("/", "x*")),
            ("a\\*/b*", ("a*", "b*")),
            ("a\\/b*", (".", "a\\/b*")),
        ];
        for (pattern, expected) in cases {
            let (directory, rest) = split(pattern);
            assert_eq!((directory.as_str(), rest), expected, "{pattern}");
        }
    }
}
