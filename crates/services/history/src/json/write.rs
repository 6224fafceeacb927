//! Writes JSON as Go's `encoding/json` does: compact, with `<`, `>` and `&` escaped.

use std::collections::BTreeMap;
use std::io::Write as _;

use super::{Fault, Scanner};

/// A JSON text that grows.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Text that is JSON already.
    pub(crate) fn raw(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// A string.
    pub(crate) fn text(&mut self, text: &str) {
        escape(&mut self.bytes, text);
    }

    /// A string, or `null`.
    pub(crate) fn text_or_null(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.raw("null"),
        }
    }

    pub(crate) fn integer(&mut self, number: i64) {
        // Writing to memory cannot fail.
        let _ = write!(self.bytes, "{number}");
    }

    pub(crate) fn integer_or_null(&mut self, number: Option<i64>) {
        match number {
            Some(number) => self.integer(number),
            None => self.raw("null"),
        }
    }

    pub(crate) fn float(&mut self, number: f64) {
        self.raw(&float(number));
    }

    /// `"name":` of a member, after a comma unless it is the first.
    pub(crate) fn name(&mut self, name: &str) {
        self.comma();
        self.text(name);
        self.bytes.push(b':');
    }

    /// A comma, unless an object or array has just begun.
    pub(crate) fn comma(&mut self) {
        if !matches!(self.bytes.last(), None | Some(b'{' | b'[' | b',' | b':')) {
            self.bytes.push(b',');
        }
    }

    /// A member whose value is a string.
    pub(crate) fn text_member(&mut self, name: &str, value: &str) {
        self.name(name);
        self.text(value);
    }

    /// A member whose value is a whole number.
    pub(crate) fn integer_member(&mut self, name: &str, value: i64) {
        self.name(name);
        self.integer(value);
    }

    /// A member whose value is JSON already.
    pub(crate) fn raw_member(&mut self, name: &str, value: &str) {
        self.name(name);
        self.raw(value);
    }
}

fn escape(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(b'"');
    let mut plain = 0;
    for (index, byte) in text.bytes().enumerate() {
        let replaced: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            b'<' => b"\\u003c",
            b'>' => b"\\u003e",
            b'&' => b"\\u0026",
            0..0x20 => b"",
            _ => continue,
        };
        bytes.extend_from_slice(&text.as_bytes()[plain..index]);
        if replaced.is_empty() {
            let _ = write!(bytes, "\\u{byte:04x}");
        } else {
            bytes.extend_from_slice(replaced);
        }
        plain = index + 1;
    }
    bytes.extend_from_slice(&text.as_bytes()[plain..]);
    bytes.push(b'"');
}

/// A number as Go writes it: the shortest form, with an exponent below 1e-6 and from 1e21 on.
pub(crate) fn float(number: f64) -> String {
    if !number.is_finite() {
        return "null".to_owned();
    }
    let size = number.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{number:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent:0>2}"),
            _ => text,
        };
    }
    format!("{number}")
}

/// A text in quotes, as Go's `%q` writes it: with its escapes for what cannot be printed.
pub(crate) fn go_quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        let escaped = match character {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\t' => "\\t",
            '\n' => "\\n",
            '\u{b}' => "\\v",
            '\u{c}' => "\\f",
            '\r' => "\\r",
            ' ' => " ",
            _ if character.is_ascii_graphic() => {
                quoted.push(character);
                continue;
            }
            _ => {
                push_unusual(&mut quoted, character);
                continue;
            }
        };
        quoted.push_str(escaped);
    }
    quoted.push('"');
    quoted
}

/// A character that is not of ASCII or controls something. What can be printed is told from what cannot as Rust does.
fn push_unusual(quoted: &mut String, character: char) {
    use std::fmt::Write as _;
    let code = u32::from(character);
    let is_printable = character.escape_debug().len() == 1 && !character.is_whitespace();
    // Writing to a string cannot fail.
    let _ = match code {
        _ if is_printable => quoted.write_char(character),
        0..0x80 => write!(quoted, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(quoted, "\\u{code:04x}"),
        _ => write!(quoted, "\\U{code:08x}"),
    };
}

/// The next value with sorted members, of which each name is there once: the last one of equal names counts.
pub(crate) fn sorted(scanner: &mut Scanner<'_>, writer: &mut Writer) -> Result<(), Fault> {
    match scanner.peek()? {
        b'{' => {
            let mut members = BTreeMap::new();
            scanner.object(|scanner, name| {
                let mut value = Writer::new();
                sorted(scanner, &mut value)?;
                members.insert(name.to_owned(), value);
                Ok(())
            })?;
            writer.raw("{");
            for (name, value) in &members {
                writer.name(name);
                writer.bytes.extend_from_slice(&value.bytes);
            }
            writer.raw("}");
            Ok(())
        }
        b'[' => {
            writer.raw("[");
            scanner.array(|scanner| {
                writer.comma();
                sorted(scanner, writer)
            })?;
            writer.raw("]");
            Ok(())
        }
        _ => {
            writer.bytes.extend_from_slice(scanner.skip()?);
            Ok(())
        }
    }
}

/// The same JSON on several lines. Arrays and objects without elements stay on one.
pub(crate) fn indent(compact: &[u8], step: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(compact.len() * 2);
    let mut depth = 0;
    let mut in_string = false;
    let mut position = 0;
    let new_line = |bytes: &mut Vec<u8>, depth: usize| {
        bytes.push(b'\n');
        bytes.extend(step.as_bytes().repeat(depth));
    };
    while let Some(byte) = compact.get(position) {
        if in_string {
            bytes.push(*byte);
            match byte {
                b'\\' => {
                    position += 1;
                    bytes.extend(compact.get(position));
                }
                b'"' => in_string = false,
                _ => {}
            }
            position += 1;
            continue;
        }
        match byte {
            b'"' => {
                in_string = true;
                bytes.push(b'"');
            }
            b'{' | b'[' => {
                bytes.push(*byte);
                if let Some(close @ (b'}' | b']')) = compact.get(position + 1) {
                    bytes.push(*close);
                    position += 1;
                } else {
                    depth += 1;
                    new_line(&mut bytes, depth);
                }
            }
            b'}' | b']' => {
                depth -= 1;
                new_line(&mut bytes, depth);
                bytes.push(*byte);
            }
            b',' => {
                bytes.push(b',');
                new_line(&mut bytes, depth);
            }
            b':' => bytes.extend_from_slice(b": "),
            other => bytes.push(*other),
        }
        position += 1;
    }
    bytes
}
