//! From text to tokens.

use super::CompileError;

/// A piece of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Ident(String),
    Int(i64),
    /// The magnitude of the least integer, which only a minus sign makes one.
    LeastInt,
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Sign(&'static str),
}

const SIGNS: [&str; 29] = [
    "&&", "||", "==", "!=", "<=", ">=", ".?", "[?", "?", "<", ">", "+", "-", "*", "/", "%", "!", "(", ")",
    "[", "]", "{", "}", ".", ",", ":", "=", "&", "|",
];

/// Reads all tokens, each with the position it starts at.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, usize)>, CompileError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space();
        let start = lexer.at;
        match lexer.next()? {
            Some(token) => tokens.push((token, start)),
            None => return Ok(tokens),
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, what: &str) -> CompileError {
        CompileError::syntax(self.at, what)
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("//") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Result<Option<Token>, CompileError> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(None) };
        if let Some(token) = self.string()? {
            return Ok(Some(token));
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|one: char| !one.is_ascii_alphanumeric() && one != '_').unwrap_or(rest.len());
            self.at += end;
            return Ok(Some(Token::Ident(rest.get(..end).unwrap_or_default().into())));
        }
        if first == '`' {
            let inner = rest.get(1..).unwrap_or_default();
            let end = inner.find('`').ok_or_else(|| self.error("unterminated identifier"))?;
            self.at += end + 2;
            return Ok(Some(Token::Ident(inner.get(..end).unwrap_or_default().into())));
        }
        let is_fraction = first == '.' && rest.chars().nth(1).is_some_and(|one| one.is_ascii_digit());
        if first.is_ascii_digit() || is_fraction {
            return self.number().map(Some);
        }
        for sign in SIGNS {
            if rest.starts_with(sign) {
                self.at += sign.len();
                return Ok(Some(Token::Sign(sign)));
            }
        }
        Err(self.error(&format!("token recognition error at: '{first}'")))
    }

    fn number(&mut self) -> Result<Token, CompileError> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let get = |at: usize| bytes.get(at).copied().unwrap_or(0);
        if get(0) == b'0' && matches!(get(1), b'x' | b'X') {
            let mut end = 2;
            while get(end).is_ascii_hexdigit() {
                end += 1;
            }
            let number = u64::from_str_radix(rest.get(2..end).unwrap_or_default(), 16)
                .map_err(|_| self.error("invalid hexadecimal number"))?;
            return self.integer(number, end);
        }
        let mut end = 0;
        while get(end).is_ascii_digit() {
            end += 1;
        }
        let mut is_double = false;
        if get(end) == b'.' && get(end + 1).is_ascii_digit() {
            is_double = true;
            end += 1;
            while get(end).is_ascii_digit() {
                end += 1;
            }
        }
        if matches!(get(end), b'e' | b'E') {
            let sign = usize::from(matches!(get(end + 1), b'+' | b'-'));
            if get(end + 1 + sign).is_ascii_digit() {
                is_double = true;
                end += 1 + sign;
                while get(end).is_ascii_digit() {
                    end += 1;
                }
            }
        }
        let text = rest.get(..end).unwrap_or_default();
        if is_double {
            self.at += end;
            return text.parse().map(Token::Double).map_err(|_| self.error("invalid double literal"));
        }
        let number = text.parse::<u64>().map_err(|_| self.error("invalid int literal"))?;
        self.integer(number, end)
    }

    fn integer(&mut self, number: u64, end: usize) -> Result<Token, CompileError> {
        self.at += end;
        if self.rest().starts_with(['u', 'U']) {
            self.at += 1;
            return Ok(Token::Uint(number));
        }
        match i64::try_from(number) {
            Ok(number) => Ok(Token::Int(number)),
            Err(_) if number == i64::MIN.unsigned_abs() => Ok(Token::LeastInt),
            Err(_) => Err(self.error("invalid int literal")),
        }
    }

    fn string(&mut self) -> Result<Option<Token>, CompileError> {
        let rest = self.rest();
        let prefix = rest.find(['"', '\'']).unwrap_or(rest.len());
        let marks = rest.get(..prefix).unwrap_or_default().to_ascii_lowercase();
        if !matches!(marks.as_str(), "" | "r" | "b" | "rb" | "br") || prefix == rest.len() {
            return Ok(None);
        }
        let (is_raw, is_bytes) = (marks.contains('r'), marks.contains('b'));
        let body = rest.get(prefix..).unwrap_or_default();
        let quote =
            ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| body.starts_with(quote)).unwrap_or("\"");
        let inner = body.get(quote.len()..).unwrap_or_default();
        let mut characters = inner.char_indices();
        let mut out: Vec<u8> = Vec::new();
        while let Some((at, character)) = characters.next() {
            if inner.get(at..).is_some_and(|rest| rest.starts_with(quote)) {
                self.at += prefix + quote.len() + at + quote.len();
                return if is_bytes {
                    Ok(Some(Token::Bytes(out)))
                } else {
                    String::from_utf8(out)
                        .map(|text| Some(Token::Text(text)))
                        .map_err(|_| self.error("invalid text"))
                };
            }
            if character == '\n' && quote.len() == 1 {
                return Err(self.error("unterminated string"));
            }
            if character == '\\' && !is_raw {
                self.escape(&mut characters, is_bytes, &mut out)?;
            } else {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        Err(self.error("unterminated string"))
    }

    fn escape(
        &self,
        characters: &mut std::str::CharIndices<'_>,
        is_bytes: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), CompileError> {
        let fail = || self.error("invalid escape sequence");
        let (_, first) = characters.next().ok_or_else(fail)?;
        let mut digits = |count: usize, radix: u32, start: u32| -> Result<u32, CompileError> {
            let mut number = start;
            for _ in 0..count {
                let (_, digit) = characters.next().ok_or_else(fail)?;
                number = number * radix + digit.to_digit(radix).ok_or_else(fail)?;
            }
            Ok(number)
        };
        let code = match first {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '\\' | '\'' | '"' | '`' | '?' => u32::from(first),
            'x' | 'X' => digits(2, 16, 0)?,
            'u' => digits(4, 16, 0)?,
            'U' => digits(8, 16, 0)?,
            '0'..='3' => digits(2, 8, first.to_digit(8).unwrap_or(0))?,
            _ => return Err(fail()),
        };
        if is_bytes && matches!(first, 'x' | 'X' | '0'..='3') {
            out.push(u8::try_from(code).map_err(|_| fail())?);
        } else {
            let character = char::from_u32(code).ok_or_else(fail)?;
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(())
    }
}
