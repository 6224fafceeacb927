//! Query strings, read as Go's `url.ParseQuery` reads them.

use std::fmt::Write;

use crate::text::quoted;

/// The parameters of a query, or why they cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query(Result<Vec<Parameter>, String>);

/// A parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    /// With what is not UTF-8 replaced.
    pub(crate) value: String,
    is_binary: bool,
}

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let parts = query.split('&').filter(|part| !part.is_empty());
        Self(parts.map(parameter).collect())
    }

    /// All parameters; `None` if the query is malformed.
    pub(crate) fn parameters(&self) -> Option<&[Parameter]> {
        self.0.as_deref().ok()
    }

    /// Why the query is malformed.
    pub(crate) fn error(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// Whether one of these parameters is not UTF-8, which no database can compare with anything.
    pub(crate) fn is_binary(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.find(name).is_some_and(|parameter| parameter.is_binary))
    }

    /// The first value of a parameter; empty if there is none.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.find(name).map_or("", |parameter| parameter.value.as_str())
    }

    /// Whether a parameter is there, be it empty.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<&Parameter> {
        self.parameters()?.iter().find(|parameter| parameter.name == name)
    }
}

fn parameter(part: &str) -> Result<Parameter, String> {
    if part.contains(';') {
        return Err("invalid semicolon separator in query".to_owned());
    }
    let (name, value) = part.split_once('=').unwrap_or((part, ""));
    let (name, value) = (unescape(name, true)?, unescape(value, true)?);
    let is_binary = std::str::from_utf8(&value).is_err();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Parameter { name: text(&name), value: text(&value), is_binary })
}

/// Decodes percent escapes, and `+` as a blank if `plus_is_blank`.
pub(crate) fn unescape(text: &str, plus_is_blank: bool) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match first {
            b'%' => {
                let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
                let (Some(high), Some(low)) = (hex(tail.first()), hex(tail.get(1))) else {
                    let wrong = String::from_utf8_lossy(rest.get(..3).unwrap_or(rest)).into_owned();
                    return Err(format!("invalid URL escape {}", quoted(&wrong)));
                };
                bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
                rest = tail.get(2..).unwrap_or_default();
                continue;
            }
            b'+' if plus_is_blank => bytes.push(b' '),
            other => bytes.push(*other),
        }
        rest = tail;
    }
    Ok(bytes)
}

/// Whether a path is spelled as Go's `url` package would spell it, with escapes only where they are needed. Its router
/// shows the segments of such a path decoded, and those of any other path as they were sent. `None` if an escape is
/// malformed.
pub(crate) fn is_plain_path(path: &str) -> Option<bool> {
    let decoded = unescape(path, false).ok()?;
    let mut escaped = String::with_capacity(path.len());
    for byte in decoded {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    Some(escaped == path)
}

/// A segment of a path as the router shows it.
pub(crate) fn segment(text: &str, is_plain: bool) -> String {
    match unescape(text, false) {
        Ok(decoded) if is_plain => String::from_utf8_lossy(&decoded).into_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Query, is_plain_path, segment};

    #[test]
    fn segments_are_decoded_where_all_escapes_are_needed() {
        for (path, is_plain) in [
            ("/a/b%20c", Some(true)),
            ("/a/1%2F2", Some(false)),
            ("/%61", Some(false)),
            ("/a%c3", Some(false)),
            ("/a%zz", None),
        ] {
            assert_eq!(is_plain_path(path), is_plain, "{path}");
        }
        assert_eq!(segment("b%20c", true), "b c");
        assert_eq!(segment("1%2F2", false), "1%2F2");
    }

    #[test]
    fn the_first_of_repeated_parameters_counts() {
        let query = Query::parse("pageSize=1&pageSize=2&name=a+b%2Bc");
        assert_eq!(query.get("pageSize"), "1");
        assert_eq!(query.get("name"), "a b+c");
        assert_eq!(query.get("absent"), "");
    }

    #[test]
    fn malformed_queries_are_refused_as_a_whole() {
        assert_eq!(Query::parse("pageSize=%zz").error(), Some("invalid URL escape \"%zz\""));
        assert_eq!(Query::parse("a=%4").error(), Some("invalid URL escape \"%4\""));
        assert_eq!(Query::parse("a=1;b=2").error(), Some("invalid semicolon separator in query"));
    }
}
