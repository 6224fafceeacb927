//! A pull scanner over one JSON text.

use std::borrow::Cow;

/// Deeper nesting is rejected: it costs stack, and no event of Ray has it.
const MAX_DEPTH: u16 = 256;

/// Why a text cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is no JSON. The message is worded as Go's decoder words it.
    Syntax(String),
    /// It is JSON, but not of the expected type.
    Type,
    /// A member is there more than once, in the same case or another, and the scanner does not take that.
    Repeated,
}

/// Shorter numbers without exponents are floats.
const LONGEST_FLOAT: usize = 300;

type Result<T> = std::result::Result<T, Fault>;

/// Reads a text value by value. Every method consumes exactly one value and checks its syntax.
pub(crate) struct Scanner<'a> {
    input: &'a [u8],
    at: usize,
    depth: u16,
    takes_repeated: bool,
    too_large: Option<String>,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0, depth: 0, takes_repeated: true, too_large: None }
    }

    /// A scanner whose user is told of repeated members, because their order decides.
    pub(crate) fn strict(input: &'a [u8]) -> Self {
        Self { takes_repeated: false, ..Self::new(input) }
    }

    /// What is wrong with the first number since the last call that no float holds; only its size is wrong, not its syntax.
    pub(crate) fn take_too_large(&mut self) -> Option<String> {
        self.too_large.take()
    }

    /// Notes one of up to 64 members as seen.
    pub(crate) fn see(&self, seen: &mut u64, member: usize) -> Result<()> {
        let bit = 1 << member;
        if *seen & bit != 0 && !self.takes_repeated {
            return Err(Fault::Repeated);
        }
        *seen |= bit;
        Ok(())
    }

    /// Checks that nothing but white space is left.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.white();
        match self.input.get(self.at) {
            None => Ok(()),
            Some(_) => Err(self.unexpected("after top-level value")),
        }
    }

    /// The first byte of the next value.
    pub(crate) fn peek(&mut self) -> Result<u8> {
        self.white();
        self.input.get(self.at).copied().ok_or_else(ended)
    }

    /// What is left of the text, from the next value on.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.white();
        &self.input[self.at..]
    }

    /// Reads an object, member by member. `member` has to consume the value.
    pub(crate) fn object(&mut self, mut member: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        self.open(b'{')?;
        if self.peek()? == b'}' {
            self.close();
            return Ok(());
        }
        loop {
            if self.peek()? != b'"' {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let name = self.quoted()?;
            if self.peek()? != b':' {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            member(self, &name)?;
            match self.peek()? {
                b',' => {
                    self.at += 1;
                    // A comma must be followed by a member.
                    self.peek()?;
                }
                b'}' => {
                    self.close();
                    return Ok(());
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    /// Reads an array, element by element. `element` has to consume the value.
    pub(crate) fn array(&mut self, mut element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.open(b'[')?;
        if self.peek()? == b']' {
            self.close();
            return Ok(());
        }
        loop {
            element(self)?;
            match self.peek()? {
                b',' => {
                    self.at += 1;
                    self.peek()?;
                }
                b']' => {
                    self.close();
                    return Ok(());
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    /// Reads an object or `null`, which has no members.
    pub(crate) fn object_or_null(&mut self, member: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        match self.peek()? {
            b'{' => self.object(member),
            b'n' => self.skip().map(drop),
            _ => self.wrong_type(),
        }
    }

    /// Reads an array or `null`, which has no elements.
    pub(crate) fn array_or_null(&mut self, element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        match self.peek()? {
            b'[' => self.array(element),
            b'n' => self.skip().map(drop),
            _ => self.wrong_type(),
        }
    }

    /// Reads a string; `None` for `null`.
    pub(crate) fn text(&mut self) -> Result<Option<Cow<'a, str>>> {
        match self.peek()? {
            b'"' => self.quoted().map(Some),
            b'n' => self.skip().map(|_| None),
            _ => self.wrong_type(),
        }
    }

    /// Reads a whole number; `None` for `null`.
    pub(crate) fn integer(&mut self) -> Result<Option<i64>> {
        let raw = self.number()?;
        let Some(raw) = raw else { return Ok(None) };
        if let Ok(number) = raw.parse() {
            return Ok(Some(number));
        }
        // Numbers went through a float before: 1.0 is one, 1.5 is of a wrong type.
        match raw.parse::<f64>() {
            #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and in range")]
            Ok(number) if number.fract() == 0.0 && number.abs() < 9.2e18 => Ok(Some(number as i64)),
            _ => Err(Fault::Type),
        }
    }

    /// Reads a number; `None` for `null`.
    pub(crate) fn float(&mut self) -> Result<Option<f64>> {
        let Some(raw) = self.number()? else { return Ok(None) };
        raw.parse().map(Some).map_err(|_| Fault::Type)
    }

    /// Reads `true` or `false`; `None` for `null`.
    pub(crate) fn boolean(&mut self) -> Result<Option<bool>> {
        match self.peek()? {
            b't' => self.skip().map(|_| Some(true)),
            b'f' => self.skip().map(|_| Some(false)),
            b'n' => self.skip().map(|_| None),
            _ => self.wrong_type(),
        }
    }

    /// Skips a value and returns its bytes.
    pub(crate) fn skip(&mut self) -> Result<&'a [u8]> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => drop(self.raw_string()?),
            b'{' => self.object(|scanner, _| scanner.skip().map(drop))?,
            b'[' => self.array(|scanner| scanner.skip().map(drop))?,
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            b'-' | b'0'..=b'9' => self.numeric()?,
            _ => return Err(self.unexpected("looking for beginning of value")),
        }
        Ok(&self.input[start..self.at])
    }

    /// Skips a value of a wrong type: its syntax counts first.
    pub(crate) fn wrong_type<T>(&mut self) -> Result<T> {
        self.skip()?;
        Err(Fault::Type)
    }

    fn number(&mut self) -> Result<Option<&'a str>> {
        match self.peek()? {
            b'-' | b'0'..=b'9' => {
                let raw = self.skip()?;
                std::str::from_utf8(raw).map(Some).map_err(|_| Fault::Type)
            }
            b'n' => self.skip().map(|_| None),
            _ => self.wrong_type(),
        }
    }

    fn open(&mut self, bracket: u8) -> Result<()> {
        if self.peek()? != bracket {
            return Err(self.unexpected("looking for beginning of value"));
        }
        if self.depth == MAX_DEPTH {
            return Err(Fault::Syntax("exceeded max depth".to_owned()));
        }
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    fn white(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.input.get(self.at) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &str) -> Result<()> {
        for expected in word.bytes() {
            match self.input.get(self.at) {
                Some(byte) if *byte == expected => self.at += 1,
                _ => {
                    let place = format!("in literal {word} (expecting '{}')", char::from(expected));
                    return Err(self.unexpected(&place));
                }
            }
        }
        Ok(())
    }

    fn digits(&mut self, place: &str) -> Result<()> {
        match self.input.get(self.at) {
            Some(b'0'..=b'9') => {}
            _ => return Err(self.unexpected(place)),
        }
        while let Some(b'0'..=b'9') = self.input.get(self.at) {
            self.at += 1;
        }
        Ok(())
    }

    fn numeric(&mut self) -> Result<()> {
        let start = self.at;
        if self.input.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match self.input.get(self.at) {
            Some(b'0') => self.at += 1,
            _ => self.digits("in numeric literal")?,
        }
        if self.input.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.input.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.input.get(self.at) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        // Readers that use floats could not read such a number again.
        let raw = &self.input[start..self.at];
        let may_be_large = raw.len() > LONGEST_FLOAT || raw.contains(&b'e') || raw.contains(&b'E');
        if may_be_large && self.too_large.is_none() {
            let raw = String::from_utf8_lossy(raw);
            if raw.parse::<f64>().is_ok_and(f64::is_infinite) {
                let message = format!("json: cannot unmarshal number {raw} into Go value of type float64");
                self.too_large = Some(message);
            }
        }
        Ok(())
    }

    /// Reads a string and resolves its escapes. What is not UTF-8 becomes U+FFFD.
    fn quoted(&mut self) -> Result<Cow<'a, str>> {
        let (raw, has_escapes) = self.raw_string()?;
        if has_escapes {
            return Ok(Cow::Owned(unescape(raw)));
        }
        Ok(String::from_utf8_lossy(raw))
    }

    /// The bytes between the quotes, and whether they hold escapes.
    fn raw_string(&mut self) -> Result<(&'a [u8], bool)> {
        self.at += 1;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            match self.input.get(self.at) {
                None => return Err(ended()),
                Some(b'"') => {
                    let raw = &self.input[start..self.at];
                    self.at += 1;
                    return Ok((raw, has_escapes));
                }
                Some(b'\\') => {
                    has_escapes = true;
                    self.at += 1;
                    self.escape()?;
                }
                Some(0..=0x1f) => return Err(self.unexpected("in string literal")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<()> {
        match self.input.get(self.at) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    match self.input.get(self.at) {
                        Some(byte) if byte.is_ascii_hexdigit() => self.at += 1,
                        _ => return Err(self.unexpected("in \\u hexadecimal character escape")),
                    }
                }
                Ok(())
            }
            _ => Err(self.unexpected("in string escape code")),
        }
    }

    #[cold]
    #[expect(clippy::match_same_arms, reason = "the last arm is for the other half of the bytes")]
    fn unexpected(&self, place: &str) -> Fault {
        // Go's scanner takes a blank for the end of a text.
        let byte = self.input.get(self.at).unwrap_or(&b' ');
        let character = match byte {
            b'\'' => "'\\''".to_owned(),
            b'"' => "'\"'".to_owned(),
            b'\\' => "'\\\\'".to_owned(),
            b'\n' => "'\\n'".to_owned(),
            b'\r' => "'\\r'".to_owned(),
            b'\t' => "'\\t'".to_owned(),
            0x07 => "'\\a'".to_owned(),
            0x08 => "'\\b'".to_owned(),
            0x0b => "'\\v'".to_owned(),
            0x0c => "'\\f'".to_owned(),
            0x20..0x7f => format!("'{}'", char::from(*byte)),
            // Go prints a byte as the character of that number.
            0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
            0x80..=0xa0 | 0xad => format!("'\\u{byte:04x}'"),
            _ => format!("'{}'", char::from(*byte)),
        };
        Fault::Syntax(format!("invalid character {character} {place}"))
    }
}

#[cold]
fn ended() -> Fault {
    Fault::Syntax("unexpected end of JSON input".to_owned())
}

/// A line without the white space around it, as Unicode has it.
pub(crate) fn trimmed(line: &[u8]) -> &[u8] {
    if line.first() == Some(&b'{') && line.last() == Some(&b'}') {
        return line;
    }
    std::str::from_utf8(line).map_or_else(|_| line.trim_ascii(), |line| line.trim().as_bytes())
}

/// Resolves escapes of a string whose syntax was checked. Lone surrogates become U+FFFD.
fn unescape(raw: &[u8]) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(position) = rest.iter().position(|byte| *byte == b'\\') {
        text.push_str(&String::from_utf8_lossy(&rest[..position]));
        rest = &rest[position + 1..];
        let Some((kind, after)) = rest.split_first() else { break };
        rest = after;
        match kind {
            b'b' => text.push('\u{8}'),
            b'f' => text.push('\u{c}'),
            b'n' => text.push('\n'),
            b'r' => text.push('\r'),
            b't' => text.push('\t'),
            b'u' => {
                let first = hex4(rest);
                rest = &rest[4.min(rest.len())..];
                let mut code = first;
                if (0xd800..0xdc00).contains(&first)
                    && let Some(low) = rest.strip_prefix(b"\\u").map(hex4)
                    && (0xdc00..0xe000).contains(&low)
                {
                    code = 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00);
                    rest = &rest[6.min(rest.len())..];
                }
                text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            other => text.push(char::from(*other)),
        }
    }
    text.push_str(&String::from_utf8_lossy(rest));
    text
}

fn hex4(raw: &[u8]) -> u32 {
    raw.get(..4)
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .unwrap_or(0xfffd)
}
