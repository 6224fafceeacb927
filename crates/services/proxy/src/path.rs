//! Paths: in their shortest form, and decoded.

/// The path without empty, `.` and `..` segments, as Go's `ServeMux` wants it. A slash at the end stays.
pub(crate) fn clean(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let mut cleaned = format!("/{}", segments.join("/"));
    if path.ends_with('/') && cleaned != "/" {
        cleaned.push('/');
    }
    cleaned
}

/// Why a path is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidPath {
    #[error("the path has a % that two hexadecimal digits do not follow")]
    Encoding,
    #[error("the path has an encoded control character")]
    ControlCharacter,
    /// Something behind this server could resolve it, and reach what is not proxied.
    #[error("the path has an encoded . or .. segment")]
    DotSegment,
}

/// The segments after the first slash, decoded.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, InvalidPath> {
    path.strip_prefix('/').unwrap_or(path).split('/').map(segment).collect()
}

fn segment(encoded: &str) -> Result<String, InvalidPath> {
    let decoded = decode(encoded, false).ok_or(InvalidPath::Encoding)?;
    if decoded.chars().any(|character| character.is_ascii_control()) {
        return Err(InvalidPath::ControlCharacter);
    }
    let has_dots = || decoded.split(['/', '\\']).any(|part| part == "." || part == "..");
    if decoded != encoded && has_dots() {
        return Err(InvalidPath::DotSegment);
    }
    Ok(decoded)
}

/// Resolves percent-encoding, and in queries `+`; `None` if it is malformed.
pub(crate) fn decode(text: &str, is_query: bool) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' if is_query => b' ',
            byte => byte,
        });
    }
    Some(String::from_utf8_lossy(&decoded).into_owned())
}

/// Encodes everything but letters, digits and `-_.~`, as Go's `url.QueryEscape`, which makes `+` of blanks.
pub(crate) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            // Writing to a string cannot fail.
            byte => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_go_does() {
        for (path, cleaned) in [
            ("", "/"),
            ("/", "/"),
            ("//", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("/a//b", "/a/b"),
            ("/a/./b/", "/a/b/"),
            ("/a/../b", "/b"),
            ("/../../b", "/b"),
            ("/a/.", "/a"),
            ("/a/..", "/"),
            ("/a%2F/b", "/a%2F/b"),
        ] {
            assert_eq!(clean(path), cleaned, "{path}");
        }
    }

    #[test]
    fn segments_are_decoded_and_hidden_dots_refused() {
        assert_eq!(segments("/a%2Fb/%72ay/").unwrap(), ["a/b", "ray", ""]);
        for path in ["/%2e%2e/x", "/%2E/x", "/..%2fx", "/x%2f%2e%2e%2fy", "/.%2e", "/..%5cx"] {
            assert_eq!(segments(path), Err(InvalidPath::DotSegment), "{path}");
        }
        assert_eq!(segments("/a%0d%0ax"), Err(InvalidPath::ControlCharacter));
        assert_eq!(segments("/a%00"), Err(InvalidPath::ControlCharacter));
        for path in ["/a%", "/a%2", "/a%zz"] {
            assert_eq!(segments(path), Err(InvalidPath::Encoding), "{path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(text: String) {
            proptest::prop_assert_eq!(decode(&encode(&text), true), Some(text));
        }

        #[test]
        fn a_clean_path_is_clean(path in "[a./%2]{0,20}") {
            let cleaned = clean(&path);
            proptest::prop_assert_eq!(clean(&cleaned), cleaned.clone());
            proptest::prop_assert!(cleaned.split('/').all(|segment| segment != ".." && segment != "."));
        }
    }
}
