//! Numbers and base64 with the error texts of Go's `strconv` and `encoding/base64`, which the
//! API's messages contain.

use std::fmt::Write;

/// Reads a decimal integer between two bounds.
fn parse_int(text: &str, min: i64, max: i64) -> Result<i64, String> {
    let failed = |why: &str| format!("strconv.ParseInt: parsing {}: {why}", quoted(text));
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    match text.parse::<i64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(failed("value out of range")),
    }
}

/// Reads a decimal 32-bit integer.
pub(crate) fn int32(text: &str) -> Result<i32, String> {
    let number = parse_int(text, i64::from(i32::MIN), i64::from(i32::MAX))?;
    i32::try_from(number).map_err(|error| error.to_string())
}

/// Reads a decimal 64-bit integer.
pub(crate) fn int64(text: &str) -> Result<i64, String> {
    parse_int(text, i64::MIN, i64::MAX)
}

/// Whether two names are the same to Go's decoder of JSON, which ignores case; two characters outside of ASCII are
/// variants of letters in it.
pub(crate) fn is_same_name(one: &str, other: &str) -> bool {
    let fold = |character: char| match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    one.chars().map(fold).eq(other.chars().map(fold))
}

/// A text in double quotes, with the escapes of Go's `%q`.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(character));
            }
            other if is_printable(other) => out.push(other),
            other => {
                let code = u32::from(other);
                let _ =
                    if code < 0x10000 { write!(out, "\\u{code:04x}") } else { write!(out, "\\U{code:08x}") };
            }
        }
    }
    out.push('"');
    out
}

/// Whether Go prints a character as it is: letters, marks, digits, punctuation and symbols, but no blanks other than
/// that of ASCII. Rust escapes the same ones in texts, unless they come first.
fn is_printable(character: char) -> bool {
    character.is_ascii() || format!("a{character}").escape_debug().nth(1) != Some('\\')
}

/// Decodes standard base64; line breaks are skipped.
pub(crate) fn base64_decode(text: &str) -> Result<Vec<u8>, String> {
    let corrupt = |at: usize| Err(format!("illegal base64 data at input byte {at}"));
    let source = text.as_bytes();
    let mut out = Vec::with_capacity(source.len() / 4 * 3);
    let mut at = 0;
    loop {
        let mut quantum = [0_u8; 4];
        let mut filled = 0;
        let mut is_last = false;
        while filled < 4 {
            let Some(&byte) = source.get(at) else {
                if filled == 0 {
                    return Ok(out);
                }
                return corrupt(at - filled);
            };
            at += 1;
            match sextet(byte) {
                Some(bits) => {
                    if let Some(slot) = quantum.get_mut(filled) {
                        *slot = bits;
                    }
                    filled += 1;
                }
                None if byte == b'\n' || byte == b'\r' => {}
                None if byte != b'=' || filled < 2 => return corrupt(at - 1),
                None => {
                    if filled == 2 {
                        at = skip_line_breaks(source, at);
                        match source.get(at) {
                            None => return corrupt(source.len()),
                            Some(b'=') => at += 1,
                            Some(_) => return corrupt(at - 1),
                        }
                    }
                    at = skip_line_breaks(source, at);
                    if at < source.len() {
                        return corrupt(at);
                    }
                    is_last = true;
                    break;
                }
            }
        }
        let [a, b, c, d] = quantum;
        let bytes = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
        out.extend(bytes.iter().take(filled - 1));
        if is_last {
            return Ok(out);
        }
    }
}

fn skip_line_breaks(source: &[u8], mut at: usize) -> usize {
    while matches!(source.get(at), Some(b'\n' | b'\r')) {
        at += 1;
    }
    at
}

fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{base64_decode, int32, quoted};

    #[test]
    fn quotes_are_those_of_go() {
        assert_eq!(quoted("a\"\\\n\u{7}\u{8}\u{b}\u{c}\u{1}\u{7f}é"), r#""a\"\\\n\a\b\v\f\x01\x7fé""#);
        assert_eq!(
            quoted("e\u{301}\u{80}\u{a0}\u{ad}\u{2028}\u{1f600}\u{e0001}"),
            "\"e\u{301}\\u0080\\u00a0\\u00ad\\u2028\u{1f600}\\U000e0001\""
        );
    }

    #[test]
    fn integers_that_do_not_fit_are_named() {
        assert_eq!(int32("007"), Ok(7));
        assert_eq!(int32("+7"), Ok(7));
        assert_eq!(int32(""), Err("strconv.ParseInt: parsing \"\": invalid syntax".to_owned()));
        assert_eq!(int32("1.5"), Err("strconv.ParseInt: parsing \"1.5\": invalid syntax".to_owned()));
        let error = Err("strconv.ParseInt: parsing \"2147483648\": value out of range".to_owned());
        assert_eq!(int32("2147483648"), error);
    }

    #[test]
    fn base64_errors_name_the_byte() {
        assert_eq!(base64_decode("MTox"), Ok(b"1:1".to_vec()));
        assert_eq!(base64_decode("e30="), Ok(b"{}".to_vec()));
        for (text, at) in [("abc", 0), ("!!!", 0), ("{\"a\":1}", 0), ("MTox=", 4), ("TQ=x", 2)] {
            assert_eq!(base64_decode(text), Err(format!("illegal base64 data at input byte {at}")), "{text}");
        }
    }
}
