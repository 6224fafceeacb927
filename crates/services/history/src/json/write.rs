//! Writes JSON as Go's `encoding/json` does: compact, with `<`, `>` and `&` escaped.

use std::io::Write as _;

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
