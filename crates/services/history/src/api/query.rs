//! Query strings and paths.

/// The parameters of a query, in order.
pub(crate) struct Query {
    parameters: Vec<(String, String)>,
}

impl Query {
    /// Reads a raw query. Parameters that are malformed are left out, as Go does.
    pub(crate) fn parse(raw: &str) -> Self {
        let parameters =
            raw.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')).filter_map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((decode(name, true)?, decode(value, true)?))
            });
        Self { parameters: parameters.collect() }
    }

    /// The first value of a parameter; empty if it is absent.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.parameters.iter().filter(move |(it, _)| it == name).map(|(_, value)| value.as_str())
    }
}

/// Resolves percent encoding; `None` if it is malformed. What is not UTF-8 becomes U+FFFD.
pub(crate) fn decode(text: &str, is_query: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            b'+' if is_query => bytes.push(b' '),
            other => bytes.push(*other),
        }
    }
    Some(
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

/// The path without `//`, `.` and `..`, as Go's `ServeMux` redirects to it.
pub(crate) fn clean(path: &str) -> String {
    let mut elements: Vec<&str> = Vec::new();
    for element in path.split('/') {
        match element {
            "" | "." => {}
            ".." => drop(elements.pop()),
            other => elements.push(other),
        }
    }
    let mut cleaned = format!("/{}", elements.join("/"));
    if path.ends_with('/') && cleaned != "/" {
        cleaned.push('/');
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::{Query, clean, decode};

    #[test]
    fn queries_are_read() {
        let query = Query::parse("a=1&b&a=2&c=%2F+x&bad=%zz&d;e=1");
        assert_eq!(query.get("a"), "1");
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert!(query.has("b") && query.get("b").is_empty());
        assert_eq!(query.get("c"), "/ x");
        assert!(!query.has("bad") && !query.has("d"));
        assert_eq!(decode("a+b%41", false).as_deref(), Some("a+bA"));
    }

    #[test]
    fn paths_are_cleaned() {
        let cases = [
            ("/nodes/../nodes", "/nodes"),
            ("/api//v0/", "/api/v0/"),
            ("/", "/"),
            ("/..", "/"),
            ("/a/.", "/a"),
            ("/a/b", "/a/b"),
        ];
        for (path, expected) in cases {
            assert_eq!(clean(path), expected, "{path}");
        }
    }
}
