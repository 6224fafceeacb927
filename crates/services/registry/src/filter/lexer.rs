//! Splits a query into tokens.

use crate::text::quoted;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Ident,
    EscapedIdent,
    Float,
    Int,
    Text,
    Operator,
    Punct,
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    /// Where it starts, as `line:column`, both from 1.
    pub(super) position: (usize, usize),
}

/// How much of the rest of the query an error shows.
const SAMPLE: usize = 16;

pub(super) fn tokens(query: &str) -> Result<Vec<Token<'_>>, String> {
    let mut tokens = Vec::new();
    let mut rest = query;
    let mut position = (1, 1);
    while !rest.is_empty() {
        let Some((kind, length)) = next(rest) else {
            let mut sample: String = rest.chars().take(SAMPLE).collect();
            if rest.chars().nth(SAMPLE).is_some() {
                sample.push_str("...");
            }
            let (line, column) = position;
            return Err(format!("{line}:{column}: lexer: invalid input text {}", quoted(&sample)));
        };
        let (text, after) = rest.split_at(length);
        if let Some(kind) = kind {
            tokens.push(Token { kind, text, position });
        }
        position = advance(position, text);
        rest = after;
    }
    tokens.push(Token { kind: TokenKind::End, text: "<EOF>", position });
    Ok(tokens)
}

fn advance((line, column): (usize, usize), text: &str) -> (usize, usize) {
    match text.rsplit_once('\n') {
        Some((before, last)) => (line + before.matches('\n').count() + 1, last.chars().count() + 1),
        None => (line, column + text.chars().count()),
    }
}

/// The token at the start of `text` and its length; no kind for blanks and comments.
fn next(text: &str) -> Option<(Option<TokenKind>, usize)> {
    let bytes = text.as_bytes();
    let first = *bytes.first()?;
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c);
    if blank(&first) {
        return Some((None, count(bytes, blank)));
    }
    if bytes.starts_with(b"--") {
        return Some((None, count(bytes, |byte| !matches!(byte, b'\r' | b'\n'))));
    }
    if first.is_ascii_alphabetic() || first == b'_' {
        let length = count(bytes, |byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        return Some((Some(TokenKind::Ident), length));
    }
    if let Some(length) = float(bytes) {
        return Some((Some(TokenKind::Float), length));
    }
    if let Some(length) = int(bytes) {
        return Some((Some(TokenKind::Int), length));
    }
    match first {
        b'\'' | b'"' => Some((Some(TokenKind::Text), delimited(bytes, first)?)),
        b'`' => Some((Some(TokenKind::EscapedIdent), delimited(bytes, first)?)),
        b'(' | b')' | b'.' | b',' => Some((Some(TokenKind::Punct), 1)),
        b'>' | b'!' if bytes.get(1) == Some(&b'=') => Some((Some(TokenKind::Operator), 2)),
        b'<' if matches!(bytes.get(1), Some(b'=' | b'>')) => Some((Some(TokenKind::Operator), 2)),
        b'=' | b'>' | b'<' => Some((Some(TokenKind::Operator), 1)),
        _ => None,
    }
}

fn count(bytes: &[u8], is_part: impl Fn(&u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| is_part(byte)).count()
}

fn digits(bytes: &[u8], from: usize) -> usize {
    count(bytes.get(from..).unwrap_or_default(), u8::is_ascii_digit)
}

fn sign(bytes: &[u8], at: usize) -> usize {
    usize::from(matches!(bytes.get(at), Some(b'+' | b'-')))
}

fn exponent(bytes: &[u8], at: usize) -> Option<usize> {
    if !matches!(bytes.get(at), Some(b'e' | b'E')) {
        return None;
    }
    let start = at + 1 + sign(bytes, at + 1);
    let length = digits(bytes, start);
    (length > 0).then_some(start + length)
}

fn float(bytes: &[u8]) -> Option<usize> {
    let start = sign(bytes, 0);
    let point = start + digits(bytes, start);
    if bytes.get(point) == Some(&b'.') {
        let fraction = digits(bytes, point + 1);
        if fraction > 0 {
            let end = point + 1 + fraction;
            return Some(exponent(bytes, end).unwrap_or(end));
        }
    }
    if point > start { exponent(bytes, point) } else { None }
}

fn int(bytes: &[u8]) -> Option<usize> {
    let start = sign(bytes, 0);
    let length = digits(bytes, start);
    (length > 0).then_some(start + length)
}

/// The length of a quoted token; a backslash takes the next character with it.
fn delimited(bytes: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    loop {
        match *bytes.get(at)? {
            // A dot in the expression for escapes does not match a line break.
            b'\\' if bytes.get(at + 1) == Some(&b'\n') => return None,
            b'\\' => at += 2,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}
