//! What the decoder of protobuf's JSON refuses in a text that is JSON: repeated names, numbers that are too large, text
//! that is not UTF-8, and halves of surrogate pairs.

use std::collections::HashSet;

/// Checks a text that has been parsed before. Errors read as those of Go's `protojson`.
pub(crate) fn check(text: &[u8]) -> Result<(), String> {
    // The names in each object that is open; arrays have none.
    let mut open: Vec<Option<HashSet<Vec<u8>>>> = Vec::new();
    let mut is_name = false;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'{' => open.push(Some(HashSet::new())),
            b'[' => open.push(None),
            b'}' | b']' => drop(open.pop()),
            b'-' | b'0'..=b'9' => {
                at = end_of_number(text, at);
                check_number(text, start, at)?;
            }
            b'"' => {
                at = end_of_string(text, at);
                let string = text.get(start + 1..at - 1).unwrap_or_default();
                check_string(string, text.get(start + 1..).unwrap_or_default(), text, start)?;
                if let Some(Some(names)) = open.last_mut()
                    && is_name
                    && !names.insert(unescaped(string))
                {
                    let name = crate::text::quoted(&String::from_utf8_lossy(&unescaped(string)));
                    return Err(format!("proto: ({}): duplicate map key {name}", position(text, start)));
                }
            }
            _ => {}
        }
        match byte {
            b'{' => is_name = true,
            b',' => is_name = matches!(open.last(), Some(Some(_))),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => is_name = false,
        }
    }
    Ok(())
}

fn end_of_number(text: &[u8], at: usize) -> usize {
    let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    at + text.get(at..).unwrap_or_default().iter().take_while(is_part).count()
}

/// JSON has numbers of any size, and a protobuf value none beyond those of a double.
fn check_number(text: &[u8], start: usize, end: usize) -> Result<(), String> {
    let number = String::from_utf8_lossy(text.get(start..end).unwrap_or_default()).into_owned();
    if number.parse::<f64>().is_ok_and(f64::is_finite) {
        return Ok(());
    }
    Err(format!("proto: ({}): invalid google.protobuf.Value: {number}", position(text, start)))
}

/// The place behind the quote that ends the string.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

/// `rest` is the text from the string on: what follows it is read for the second half of a pair.
fn check_string(string: &[u8], rest: &[u8], text: &[u8], start: usize) -> Result<(), String> {
    let refused = |why: String| Err(format!("proto: syntax error ({}): {why}", position(text, start)));
    if std::str::from_utf8(string).is_err() {
        return refused("invalid UTF-8 in string".to_owned());
    }
    let mut at = 0;
    while let Some(byte) = string.get(at) {
        if *byte != b'\\' {
            at += 1;
            continue;
        }
        if string.get(at + 1) != Some(&b'u') {
            at += 2;
            continue;
        }
        at += 6;
        let Some(first) = unit(rest, at - 6).filter(|unit| (0xd800..0xe000).contains(unit)) else { continue };
        let Some(next) = rest.get(at..at + 6) else { return Err("proto: unexpected EOF".to_owned()) };
        let low = unit(rest, at).filter(|unit| (0xdc00..0xe000).contains(unit));
        if !next.starts_with(b"\\u") || low.is_none() || first >= 0xdc00 {
            let next = crate::text::quoted(&String::from_utf8_lossy(next));
            return refused(format!("invalid escape code {next} in string"));
        }
        at += 6;
    }
    Ok(())
}

/// The number of the escape `\uXXXX` at a place.
fn unit(text: &[u8], at: usize) -> Option<u32> {
    let digits = std::str::from_utf8(text.get(at + 2..at + 6)?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

/// A name as it counts: two spellings of one name are the same.
fn unescaped(string: &[u8]) -> Vec<u8> {
    let quoted = [b"\"", string, b"\""].concat();
    match super::parse_whole(&quoted) {
        Ok(super::Value::String(text)) => text.into_bytes(),
        _ => string.to_vec(),
    }
}

fn position(text: &[u8], at: usize) -> String {
    let before = String::from_utf8_lossy(text.get(..at).unwrap_or_default()).into_owned();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}:{column}")
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn what_protobuf_refuses_is_named_with_its_place() {
        let cases: [(&[u8], Option<&str>); 11] = [
            (br#"{"a":1,"b":{"a":2},"c":["a","a"]}"#, None),
            (br#"{"a":1,"a":2}"#, Some(r#"proto: (line 1:8): duplicate map key "a""#)),
            (b"{\"a\":1,\n \"\\u0061\":2}", Some(r#"proto: (line 2:2): duplicate map key "a""#)),
            (b"{\"a\":\"\xff\"}", Some("proto: syntax error (line 1:6): invalid UTF-8 in string")),
            (br#"{"a":"\ud83d\ude00"}"#, None),
            (br#"{"a":"\ud800"}"#, Some("proto: unexpected EOF")),
            (
                br#"{"a":"\ud800xxxxxx"}"#,
                Some(r#"proto: syntax error (line 1:6): invalid escape code "xxxxxx" in string"#),
            ),
            (br#"{"a":"\\ud800"}"#, None),
            (br#"{"a":1e308,"b":[-0.5,"1e400"]}"#, None),
            (br#"{"a":1e400}"#, Some("proto: (line 1:6): invalid google.protobuf.Value: 1e400")),
            (br#"{"a":[0,-1E+999]}"#, Some("proto: (line 1:9): invalid google.protobuf.Value: -1E+999")),
        ];
        for (text, expected) in cases {
            let shown = String::from_utf8_lossy(text);
            assert_eq!(check(text).err().as_deref(), expected, "{shown}");
        }
    }
}
