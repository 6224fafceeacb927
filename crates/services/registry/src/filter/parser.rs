//! Reads a query.
//!
//! ```text
//! or := and ("OR" and)*    and := term ("AND" term)*    term := "(" or ")" | comparison
//! comparison := property operator value    property := ident ("." ident)* | `escaped`
//! ```
//!
//! Words are identifiers: `OR OR name` compares a property called `OR`. The texts of errors name
//! rules as upstream's parser does.

use super::lexer::{Token, TokenKind, tokens};
use super::{Expression, FilterError, Literal, Operator};
use crate::text::quoted;

/// ANDs and ORs may alternate this deep; SQLite limits the depth of an expression to 1,000.
const MAX_DEPTH: usize = 100;
/// A chain of comparisons counts towards the same limit.
const MAX_COMPARISONS: usize = 500;
const OPERATORS: &str = r#"("=" | "!=" | "<>" | ">=" | "<=" | ">" | "<" | "LIKE" | "ILIKE" | "IN") Value"#;
const VALUE_HINT: &str = "Hint: String values must be quoted (e.g., name=\"value\"). Numbers and booleans don't need quotes (e.g., id>5, active=true)";
const TOKEN_HINT: &str = "Check that operators and values are correctly formatted";

/// Reads `query`; a blank one is no filter.
pub(crate) fn parse(query: &str) -> Result<Option<Expression>, FilterError> {
    if query.trim().is_empty() {
        return Ok(None);
    }
    read(query).map(Some).map_err(|why| {
        let message = format!("invalid filter query syntax: error parsing filter query: {why}");
        FilterError::Syntax(if why.contains("expected Value") {
            format!("{message}. {VALUE_HINT}")
        } else if why.contains("unexpected token") {
            format!("{message}. {TOKEN_HINT}")
        } else {
            message
        })
    })
}

fn read(query: &str) -> Result<Expression, String> {
    let tokens = tokens(query)?;
    let mut parser = Parser { tokens: &tokens, at: 0, comparisons: 0 };
    let expression = parser.expression()?;
    match parser.peek() {
        Some(token) if token.kind != TokenKind::End => Err(unexpected(token, "")),
        _ => Ok(expression),
    }
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    comparisons: usize,
}

/// A group that is still being read. Groups are kept here and not on the stack: any number may nest.
#[derive(Default)]
struct Group {
    ors: Vec<Nested>,
    ands: Vec<Nested>,
}

/// An expression with its depth.
struct Nested {
    expression: Expression,
    depth: usize,
}

fn unexpected(token: &Token<'_>, expected: &str) -> String {
    let (line, column) = token.position;
    let expected = if expected.is_empty() { String::new() } else { format!(" (expected {expected})") };
    format!("{line}:{column}: unexpected token {}{expected}", quoted(token.text))
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token<'a>> {
        self.tokens.get(self.at).or_else(|| self.tokens.last())
    }

    /// The current token if it is `text` of this kind, which is then consumed.
    fn take(&mut self, kind: TokenKind, text: &str) -> bool {
        let found = self.peek().is_some_and(|token| token.kind == kind && token.text == text);
        self.at += usize::from(found);
        found
    }

    fn fail<T>(&self, expected: &str) -> Result<T, String> {
        match self.peek() {
            Some(token) => Err(unexpected(token, expected)),
            None => Err("1:1: unexpected token \"<EOF>\"".to_owned()),
        }
    }

    fn expression(&mut self) -> Result<Expression, String> {
        let mut groups = vec![Group::default()];
        let mut expected = "";
        loop {
            // The word before this term, if the term follows one inside of parentheses.
            let word = (!expected.is_empty() && groups.len() > 1).then(|| self.at - 1);
            while self.take(TokenKind::Punct, "(") {
                groups.push(Group::default());
                expected = r#"Expression ")""#;
            }
            let start = self.at;
            let expression = self.comparison(expected).or_else(|why| match word {
                // As upstream's parser, which looks one token ahead: a term that fails that early did not follow.
                Some(word) if self.at <= start + 1 => {
                    self.at = word;
                    self.fail(r#"")""#)
                }
                _ => Err(why),
            })?;
            let mut read = Nested { expression, depth: 0 };
            // Adds what was read to its group; a group that ends is read itself.
            loop {
                let Some(mut group) = groups.pop() else { return Ok(read.expression) };
                group.ands.push(read);
                if self.take(TokenKind::Ident, "AND") {
                    groups.push(group);
                    expected = "Term";
                    break;
                }
                group.ors.push(self.joined(group.ands, Expression::And)?);
                if self.take(TokenKind::Ident, "OR") {
                    groups.push(Group { ors: group.ors, ands: Vec::new() });
                    expected = "AndExpression";
                    break;
                }
                read = self.joined(group.ors, Expression::Or)?;
                if !groups.is_empty() && !self.take(TokenKind::Punct, ")") {
                    return self.fail(r#"")""#);
                }
            }
        }
    }

    /// Joins the parts of a group; a single one stays as it is.
    fn joined(
        &self,
        mut parts: Vec<Nested>,
        join: fn(Vec<Expression>) -> Expression,
    ) -> Result<Nested, String> {
        if parts.len() == 1
            && let Some(part) = parts.pop()
        {
            return Ok(part);
        }
        let depth = parts.iter().map(|part| part.depth).max().unwrap_or_default() + 1;
        if depth > MAX_DEPTH {
            return self.fail("fewer nested groups");
        }
        Ok(Nested { expression: join(parts.into_iter().map(|part| part.expression).collect()), depth })
    }

    fn comparison(&mut self, expected: &str) -> Result<Expression, String> {
        self.comparisons += 1;
        if self.comparisons > MAX_COMPARISONS {
            return self.fail("fewer comparisons");
        }
        let property = self.property(expected)?;
        let Some(operator) = self.peek().and_then(operator) else { return self.fail(OPERATORS) };
        self.at += 1;
        let value = self.value()?;
        Ok(Expression::Comparison { property, operator, value })
    }

    fn property(&mut self, expected: &str) -> Result<String, String> {
        let Some(token) = self.peek() else { return self.fail(expected) };
        match token.kind {
            TokenKind::EscapedIdent => {
                self.at += 1;
                let name = token.text.trim_matches('`');
                Ok(name.replace(r"\.", ".").replace(r"\\", r"\"))
            }
            TokenKind::Ident => {
                self.at += 1;
                let mut name = token.text.to_owned();
                while let [dot, part, ..] = self.tokens.get(self.at..).unwrap_or_default() {
                    if dot.text != "." || dot.kind != TokenKind::Punct || part.kind != TokenKind::Ident {
                        break;
                    }
                    name.push('.');
                    name.push_str(part.text);
                    self.at += 2;
                }
                Ok(name)
            }
            _ => self.fail(expected),
        }
    }

    fn value(&mut self) -> Result<Literal, String> {
        if !self.take(TokenKind::Punct, "(") {
            return self.single("Value");
        }
        let mut items = Vec::new();
        if self.take(TokenKind::Punct, ")") {
            return Ok(Literal::List(items));
        }
        items.push(self.single(r#"")""#)?);
        while self.take(TokenKind::Punct, ",") {
            items.push(self.single("SingleValue")?);
        }
        if !self.take(TokenKind::Punct, ")") {
            return self.fail(r#"")""#);
        }
        Ok(Literal::List(items))
    }

    fn single(&mut self, expected: &str) -> Result<Literal, String> {
        let Some(token) = self.peek() else { return self.fail(expected) };
        let (line, column) = token.position;
        let literal = match (token.kind, token.text) {
            (TokenKind::Text, text) => Literal::Text(unquote(text)),
            (TokenKind::Int, text) => Literal::Int(
                crate::text::int64(text)
                    .map_err(|why| format!("{line}:{column}: failed to conform: {why}"))?,
            ),
            (TokenKind::Float, text) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Literal::Float(number),
                _ => {
                    let why = format!("strconv.ParseFloat: parsing {}: value out of range", quoted(text));
                    return Err(format!("{line}:{column}: failed to conform: {why}"));
                }
            },
            (TokenKind::Ident, "true" | "TRUE") => Literal::Bool(true),
            (TokenKind::Ident, "false" | "FALSE") => Literal::Bool(false),
            _ => return self.fail(expected),
        };
        self.at += 1;
        Ok(literal)
    }
}

fn operator(token: &Token<'_>) -> Option<Operator> {
    Some(match (token.kind, token.text) {
        (TokenKind::Operator, "=") => Operator::Equal,
        (TokenKind::Operator, "<>") => Operator::EqualAsStored,
        (TokenKind::Operator, "!=") => Operator::NotEqual,
        (TokenKind::Operator, ">") => Operator::Greater,
        (TokenKind::Operator, ">=") => Operator::GreaterOrEqual,
        (TokenKind::Operator, "<") => Operator::Less,
        (TokenKind::Operator, "<=") => Operator::LessOrEqual,
        (TokenKind::Ident, "LIKE") => Operator::Like,
        (TokenKind::Ident, "ILIKE") => Operator::ILike,
        (TokenKind::Ident, "IN") => Operator::In,
        _ => return None,
    })
}

/// Upstream trims all quotes of both kinds from both ends, and only then resolves escapes.
fn unquote(text: &str) -> String {
    let inner = text.trim_matches(['"', '\'']);
    inner.replace("\\\"", "\"").replace("\\'", "'").replace("\\\\", "\\")
}
