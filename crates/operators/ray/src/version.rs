//! Versions of Ray, read as leniently as Kubernetes reads versions: `2.53`, `v2.53.0`, `2.53.0rc1`.

use std::{fmt, str::FromStr};

/// A version of Ray.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RayVersion {
    major: u64,
    minor: u64,
    patch: u64,
}

impl RayVersion {
    /// A known version.
    pub const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self { major, minor, patch }
    }
}

impl fmt::Display for RayVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for RayVersion {
    type Err = String;

    /// An optional `v`, then at least two numbers with dots between them; what follows is ignored.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("could not parse {text:?} as version");
        let rest = text.trim();
        let mut rest = rest.strip_prefix('v').unwrap_or(rest);
        let mut numbers = Vec::new();
        loop {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, after) = rest.split_at(digits);
            if number.is_empty() {
                break;
            }
            numbers.push(number.parse().map_err(|_| wrong())?);
            match after.strip_prefix('.') {
                Some(next) => rest = next,
                None => break,
            }
        }
        match *numbers.as_slice() {
            [major, minor] => Ok(Self::new(major, minor, 0)),
            [major, minor, patch, ..] => Ok(Self::new(major, minor, patch)),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_leniently() {
        for (text, expected) in [
            ("2.53.0", Some((2, 53, 0))),
            ("v2.53", Some((2, 53, 0))),
            ("2.53.0rc1", Some((2, 53, 0))),
            ("2.53.1.4", Some((2, 53, 1))),
            ("2", None),
            ("", None),
            ("latest", None),
            ("99999999999999999999.1", None),
        ] {
            let read = text.parse::<RayVersion>().ok();
            assert_eq!(read, expected.map(|(a, b, c)| RayVersion::new(a, b, c)), "{text}");
        }
        assert!("2.9.0".parse::<RayVersion>().unwrap() < RayVersion::new(2, 53, 0));
    }
}
