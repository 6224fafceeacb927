//! The decoder. It keeps its own stack, so nesting cannot exhaust the thread's.

use super::Value;

/// Go's limit on nesting.
const MAX_DEPTH: usize = 10_000;
/// Nesting that is kept. The API reads at most a few levels; the rest is only checked for syntax.
const KEPT_DEPTH: usize = 256;

/// Decodes the first value of `text` and ignores what follows, as a stream decoder does.
pub(crate) fn parse(text: &[u8]) -> Result<Value, String> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.blanks();
    if scanner.peek().is_none() {
        return Err("EOF".to_owned());
    }
    scanner.value("unexpected EOF")
}

/// Decodes `text` as one value with nothing behind it.
pub(crate) fn parse_whole(text: &[u8]) -> Result<Value, String> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.blanks();
    let value = scanner.value("unexpected end of JSON input")?;
    scanner.blanks();
    match scanner.peek() {
        None => Ok(value),
        Some(byte) => Err(invalid(byte, "after top-level value")),
    }
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

/// A container whose members are still being read.
enum Open {
    Array(Vec<Value>),
    Object(Vec<(String, Value)>, String),
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn value(&mut self, eof: &str) -> Result<Value, String> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            self.blanks();
            let byte = self.peek().ok_or(eof)?;
            let mut done = match byte {
                b'{' | b'[' => {
                    self.at += 1;
                    if open.len() >= MAX_DEPTH {
                        return Err(invalid(byte, "exceeded max depth"));
                    }
                    match self.enter(byte, eof)? {
                        Ok(container) => {
                            open.push(container);
                            continue;
                        }
                        Err(empty) => empty,
                    }
                }
                b'"' => {
                    self.at += 1;
                    Value::String(self.string(eof)?)
                }
                b'-' | b'0'..=b'9' => Value::Number(self.number(eof)?),
                b't' => self.literal("true", Value::Bool(true), eof)?,
                b'f' => self.literal("false", Value::Bool(false), eof)?,
                b'n' => self.literal("null", Value::Null, eof)?,
                other => return Err(invalid(other, "looking for beginning of value")),
            };
            loop {
                let depth = open.len();
                let Some(container) = open.pop() else { return Ok(done) };
                match self.after_member(container, done, depth, eof)? {
                    Ok(container) => {
                        open.push(container);
                        break;
                    }
                    Err(complete) => done = complete,
                }
            }
        }
    }

    /// Reads up to the first member; `Err` holds an empty container.
    fn enter(&mut self, byte: u8, eof: &str) -> Result<Result<Open, Value>, String> {
        self.blanks();
        let next = self.peek().ok_or(eof)?;
        if byte == b'[' {
            if next == b']' {
                self.at += 1;
                return Ok(Err(Value::Array(Vec::new())));
            }
            return Ok(Ok(Open::Array(Vec::new())));
        }
        if next == b'}' {
            self.at += 1;
            return Ok(Err(Value::Object(Vec::new())));
        }
        Ok(Ok(Open::Object(Vec::new(), self.key(eof)?)))
    }

    fn key(&mut self, eof: &str) -> Result<String, String> {
        self.blanks();
        match self.peek().ok_or(eof)? {
            b'"' => self.at += 1,
            other => return Err(invalid(other, "looking for beginning of object key string")),
        }
        let key = self.string(eof)?;
        self.blanks();
        match self.peek().ok_or(eof)? {
            b':' => self.at += 1,
            other => return Err(invalid(other, "after object key")),
        }
        Ok(key)
    }

    /// Adds a member to the innermost container; `Err` holds the container once it is complete.
    fn after_member(
        &mut self,
        container: Open,
        member: Value,
        depth: usize,
        eof: &str,
    ) -> Result<Result<Open, Value>, String> {
        self.blanks();
        let byte = self.peek().ok_or(eof)?;
        let keep = depth <= KEPT_DEPTH;
        match container {
            Open::Array(mut items) => {
                if keep {
                    items.push(member);
                }
                match byte {
                    b',' => self.at += 1,
                    b']' => {
                        self.at += 1;
                        return Ok(Err(if keep { Value::Array(items) } else { Value::TooDeep }));
                    }
                    other => return Err(invalid(other, "after array element")),
                }
                Ok(Ok(Open::Array(items)))
            }
            Open::Object(mut members, key) => {
                if keep {
                    members.push((key, member));
                }
                match byte {
                    b',' => self.at += 1,
                    b'}' => {
                        self.at += 1;
                        return Ok(Err(if keep { Value::Object(members) } else { Value::TooDeep }));
                    }
                    other => return Err(invalid(other, "after object key:value pair")),
                }
                let key = self.key(eof)?;
                Ok(Ok(Open::Object(members, key)))
            }
        }
    }

    fn literal(&mut self, word: &str, value: Value, eof: &str) -> Result<Value, String> {
        for expected in word.bytes() {
            let byte = self.peek().ok_or(eof)?;
            if byte != expected {
                let context = format!("in literal {word} (expecting '{}')", char::from(expected));
                return Err(invalid(byte, &context));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn number(&mut self, eof: &str) -> Result<String, String> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek().ok_or(eof)? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            other => return Err(invalid(other, "in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            match self.peek().ok_or(eof)? {
                b'0'..=b'9' => self.digits(),
                other => return Err(invalid(other, "after decimal point in numeric literal")),
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            match self.peek().ok_or(eof)? {
                b'0'..=b'9' => self.digits(),
                other => return Err(invalid(other, "in exponent of numeric literal")),
            }
        }
        let digits = self.text.get(start..self.at).unwrap_or_default();
        Ok(String::from_utf8_lossy(digits).into_owned())
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    /// Reads the rest of a string whose opening quote has been read.
    fn string(&mut self, eof: &str) -> Result<String, String> {
        let mut bytes = Vec::new();
        loop {
            let byte = self.peek().ok_or(eof)?;
            self.at += 1;
            match byte {
                b'"' => return Ok(replace_invalid(&bytes)),
                b'\\' => self.escape(&mut bytes, eof)?,
                0..=0x1f => return Err(invalid(byte, "in string literal")),
                _ => bytes.push(byte),
            }
        }
    }

    fn escape(&mut self, bytes: &mut Vec<u8>, eof: &str) -> Result<(), String> {
        let byte = self.peek().ok_or(eof)?;
        self.at += 1;
        match byte {
            b'"' | b'\\' | b'/' => bytes.push(byte),
            b'b' => bytes.push(8),
            b'f' => bytes.push(12),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'u' => {
                let character = self.unicode(eof)?;
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => return Err(invalid(other, "in string escape code")),
        }
        Ok(())
    }

    /// Reads the digits of `\u`, and a following low surrogate; a lone surrogate is replaced.
    fn unicode(&mut self, eof: &str) -> Result<char, String> {
        let unit = self.hex(eof)?;
        if let Some(character) = char::from_u32(unit) {
            return Ok(character);
        }
        let mark = self.at;
        if (0xd800..0xdc00).contains(&unit) && self.text.get(mark..mark + 2) == Some(b"\\u") {
            self.at += 2;
            let low = self.hex(eof)?;
            if (0xdc00..0xe000).contains(&low) {
                let code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = mark;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex(&mut self, eof: &str) -> Result<u32, String> {
        let mut unit = 0;
        for _ in 0..4 {
            let byte = self.peek().ok_or(eof)?;
            let digit = char::from(byte).to_digit(16);
            unit = unit * 16 + digit.ok_or_else(|| invalid(byte, "in \\u hexadecimal character escape"))?;
            self.at += 1;
        }
        Ok(unit)
    }
}

/// Go replaces each invalid byte by itself, where Rust's lossy decoding joins truncated sequences.
fn replace_invalid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

fn invalid(byte: u8, context: &str) -> String {
    format!("invalid character {} {context}", quoted(byte))
}

fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        0..=0x1f | 0x7f => format!("'\\x{byte:02x}'"),
        // The byte is quoted as the code point of that number.
        0x80..=0x9f => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}
