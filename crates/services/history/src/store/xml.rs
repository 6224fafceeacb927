//! The little XML that object stores answer with: elements without attributes that matter.

/// The contents of all elements of a name, in order.
pub(super) fn elements<'a>(xml: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut found = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find(&open) {
        let after = &rest[start + open.len()..];
        let Some(end) = after.find(&close) else { break };
        found.push(&after[..end]);
        rest = &after[end + close.len()..];
    }
    found
}

/// The text of the first element of a name.
pub(super) fn text(xml: &str, name: &str) -> Option<String> {
    elements(xml, name).first().map(|text| unescape(text))
}

pub(super) fn unescape(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        plain.push_str(&rest[..start]);
        rest = &rest[start..];
        let Some(end) = rest.find(';') else { break };
        let entity = &rest[1..end];
        let character = match entity {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => entity.strip_prefix('#').and_then(|number| {
                let code = match number.strip_prefix('x') {
                    Some(hex) => u32::from_str_radix(hex, 16).ok(),
                    None => number.parse().ok(),
                };
                code.and_then(char::from_u32)
            }),
        };
        match character {
            Some(character) => plain.push(character),
            None => plain.push_str(&rest[..=end]),
        }
        rest = &rest[end + 1..];
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::{elements, text, unescape};

    #[test]
    fn elements_are_found() {
        let xml = "<R><Key>a&amp;b</Key><P><Key>c</Key></P><Empty></Empty></R>";
        assert_eq!(elements(xml, "Key"), ["a&amp;b", "c"]);
        assert_eq!(text(xml, "Key").as_deref(), Some("a&b"));
        assert_eq!(text(xml, "Empty").as_deref(), Some(""));
        assert_eq!(text(xml, "None"), None);
        assert_eq!(unescape("&#65;&#x42;&unknown;&"), "AB&unknown;&");
    }
}
