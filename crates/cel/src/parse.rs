//! From tokens to a tree, with macros expanded.

use super::CompileError;
use super::lex::{Token, tokens};

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Ident(String),
    /// A field; optional if written `.?`.
    Select {
        of: Box<Self>,
        field: String,
        is_optional: bool,
    },
    /// `has(of.field)`.
    Has {
        of: Box<Self>,
        field: String,
    },
    Index {
        of: Box<Self>,
        at: Box<Self>,
        is_optional: bool,
    },
    Call {
        function: String,
        target: Option<Box<Self>>,
        args: Vec<Self>,
    },
    List(Vec<(Self, bool)>),
    Map(Vec<(Self, Self, bool)>),
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Minus(Box<Self>),
    If(Box<[Self; 3]>),
    Binary(Operator, Box<[Self; 2]>),
    Loop(Box<Loop>),
}

/// What a comprehension does with each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    /// Two variables, a list of results.
    TransformList,
    /// Two variables, a map of results under the same keys.
    TransformMap,
    /// Two variables, a map made of the entries that result.
    TransformMapEntry,
    SortBy,
    OptMap,
    OptFlatMap,
    /// No loop: the body with a name for a value.
    Bind,
}

/// A comprehension over a list, a map or an optional.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loop {
    pub(super) kind: LoopKind,
    pub(super) over: Expr,
    pub(super) name: String,
    pub(super) second: Option<String>,
    pub(super) condition: Option<Expr>,
    pub(super) body: Expr,
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// Names whose members are functions, not fields.
const NAMESPACES: [&str; 7] = ["optional", "sets", "ip", "format", "lists", "strings", "jsonpatch"];
const RESERVED: [&str; 18] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "in",
];
/// The nesting cel-go allows is 250; this much always fits a thread's stack.
const MAX_DEPTH: usize = 100;
/// Chains of `+` and of members nest too.
const MAX_CHAIN: usize = 150;
const MAX_TEXT: usize = 100_000;

/// `has_bindings` says whether `cel.bind` is part of the language.
pub(super) fn parse(text: &str, has_bindings: bool) -> Result<Expr, CompileError> {
    if text.len() > MAX_TEXT {
        return Err(CompileError::syntax(0, "expression code point size exceeds limit"));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0, end: text.len(), has_bindings };
    let expr = parser.ternary()?;
    match parser.tokens.get(parser.at) {
        None => Ok(expr),
        Some((token, position)) => {
            Err(CompileError::syntax(*position, &format!("mismatched input '{}'", shown(token))))
        }
    }
}

fn shown(token: &Token) -> String {
    match token {
        Token::Ident(name) => name.clone(),
        Token::Sign(sign) => (*sign).into(),
        Token::Text(text) => format!("\"{text}\""),
        other => format!("{other:?}"),
    }
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
    end: usize,
    has_bindings: bool,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn position(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(_, position)| *position)
    }

    fn eat(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), CompileError> {
        if self.eat(sign) {
            return Ok(());
        }
        let found = self.peek().map_or_else(|| "<EOF>".into(), shown);
        Err(self.error(&format!("mismatched input '{found}' expecting '{sign}'")))
    }

    fn error(&self, what: &str) -> CompileError {
        CompileError::syntax(self.position(), what)
    }

    fn ternary(&mut self) -> Result<Expr, CompileError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("expression recursion limit exceeded"));
        }
        let condition = self.or()?;
        let expr = if self.eat("?") {
            let then = self.or()?;
            self.expect(":")?;
            let otherwise = self.ternary()?;
            Expr::If(Box::new([condition, then, otherwise]))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn or(&mut self) -> Result<Expr, CompileError> {
        let first = self.and()?;
        let mut operands = vec![first];
        while self.eat("||") {
            operands.push(self.and()?);
        }
        Ok(if operands.len() == 1 { operands.remove(0) } else { Expr::Or(operands) })
    }

    fn and(&mut self) -> Result<Expr, CompileError> {
        let first = self.relation()?;
        let mut operands = vec![first];
        while self.eat("&&") {
            operands.push(self.relation()?);
        }
        Ok(if operands.len() == 1 { operands.remove(0) } else { Expr::And(operands) })
    }

    fn chain(
        &mut self,
        operators: &[(&str, Operator)],
        operand: fn(&mut Self) -> Result<Expr, CompileError>,
    ) -> Result<Expr, CompileError> {
        let mut left = operand(self)?;
        let mut length = 0;
        loop {
            let found = operators.iter().find(|(sign, _)| match self.peek() {
                Some(Token::Sign(found)) => found == sign,
                Some(Token::Ident(name)) => name == sign,
                _ => false,
            });
            let Some((_, operator)) = found else { return Ok(left) };
            self.at += 1;
            length += 1;
            if length > MAX_CHAIN {
                return Err(self.error("expression recursion limit exceeded"));
            }
            let right = operand(self)?;
            left = Expr::Binary(*operator, Box::new([left, right]));
        }
    }

    fn relation(&mut self) -> Result<Expr, CompileError> {
        const OPERATORS: [(&str, Operator); 7] = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<", Operator::Less),
            ("<=", Operator::LessOrEqual),
            (">", Operator::Greater),
            (">=", Operator::GreaterOrEqual),
            ("in", Operator::In),
        ];
        self.chain(&OPERATORS, Self::sum)
    }

    fn sum(&mut self) -> Result<Expr, CompileError> {
        self.chain(&[("+", Operator::Add), ("-", Operator::Subtract)], Self::product)
    }

    fn product(&mut self) -> Result<Expr, CompileError> {
        const OPERATORS: [(&str, Operator); 3] =
            [("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Modulo)];
        self.chain(&OPERATORS, Self::unary)
    }

    fn unary(&mut self) -> Result<Expr, CompileError> {
        let (mut nots, mut minuses) = (0_usize, 0_usize);
        while self.eat("!") {
            nots += 1;
        }
        if nots > 0 {
            let inner = self.member()?;
            return Ok(if nots % 2 == 1 {
                Expr::Not(Box::new(inner))
            } else {
                Expr::Not(Box::new(Expr::Not(Box::new(inner))))
            });
        }
        while self.eat("-") {
            minuses += 1;
        }
        if minuses == 0 {
            return self.member();
        }
        let is_negative = minuses % 2 == 1;
        match self.peek() {
            Some(Token::LeastInt) if is_negative => {
                self.at += 1;
                Ok(Expr::Int(i64::MIN))
            }
            _ => {
                let inner = self.member()?;
                Ok(match inner {
                    Expr::Int(number) if is_negative => Expr::Int(-number),
                    Expr::Double(number) if is_negative => Expr::Double(-number),
                    inner if is_negative => Expr::Minus(Box::new(inner)),
                    inner => inner,
                })
            }
        }
    }

    fn member(&mut self) -> Result<Expr, CompileError> {
        let mut expr = self.primary()?;
        let mut length = 0;
        loop {
            length += 1;
            if length > MAX_CHAIN {
                return Err(self.error("expression recursion limit exceeded"));
            }
            if self.eat(".?") {
                let field = self.ident()?;
                expr = Expr::Select { of: Box::new(expr), field, is_optional: true };
            } else if self.eat(".") {
                let position = self.position();
                let field = self.ident()?;
                expr = if self.eat("(") {
                    let args = self.arguments(")")?;
                    let is_binding = self.has_bindings
                        && field == "bind"
                        && matches!(&expr, Expr::Ident(name) if name == "cel");
                    if is_binding {
                        binding(args, position)?
                    } else {
                        member_call(expr, field, args, position)?
                    }
                } else {
                    selected(expr, field)
                };
            } else if self.eat("[?") {
                let at = Box::new(self.ternary()?);
                self.expect("]")?;
                expr = Expr::Index { of: Box::new(expr), at, is_optional: true };
            } else if self.eat("[") {
                let at = Box::new(self.ternary()?);
                self.expect("]")?;
                expr = Expr::Index { of: Box::new(expr), at, is_optional: false };
            } else if self.peek() == Some(&Token::Sign("{")) && is_message_type(&expr) {
                self.at += 1;
                expr = self.message()?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn ident(&mut self) -> Result<String, CompileError> {
        match self.peek() {
            Some(Token::Ident(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.error("no viable alternative: expected an identifier")),
        }
    }

    fn arguments(&mut self, close: &str) -> Result<Vec<Expr>, CompileError> {
        let mut args = Vec::new();
        if self.eat(close) {
            return Ok(args);
        }
        loop {
            args.push(self.ternary()?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect(close)?;
        Ok(args)
    }

    fn primary(&mut self) -> Result<Expr, CompileError> {
        let position = self.position();
        let Some(token) = self.peek().cloned() else {
            return Err(self.error("mismatched input '<EOF>'"));
        };
        self.at += 1;
        match token {
            Token::Int(number) => Ok(Expr::Int(number)),
            Token::Uint(number) => Ok(Expr::Uint(number)),
            Token::Double(number) => Ok(Expr::Double(number)),
            Token::Text(text) => Ok(Expr::Text(text)),
            Token::Bytes(bytes) => Ok(Expr::Bytes(bytes)),
            Token::LeastInt => Err(CompileError::syntax(position, "invalid int literal")),
            Token::Ident(name) => self.named(name, position),
            Token::Sign(".") => {
                let name = self.ident()?;
                self.named(name, position)
            }
            Token::Sign("(") => {
                let inner = self.ternary()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => self.list(),
            Token::Sign("[?") => {
                self.at -= 1;
                self.list_from_optional()
            }
            Token::Sign("{") => self.map(),
            Token::Sign(sign) => Err(CompileError::syntax(position, &format!("mismatched input '{sign}'"))),
        }
    }

    fn named(&mut self, name: String, position: usize) -> Result<Expr, CompileError> {
        match name.as_str() {
            "true" => return Ok(Expr::Bool(true)),
            "false" => return Ok(Expr::Bool(false)),
            "null" => return Ok(Expr::Null),
            reserved if RESERVED.contains(&reserved) => {
                return Err(CompileError::syntax(position, &format!("reserved identifier: {reserved}")));
            }
            _ => {}
        }
        if !self.eat("(") {
            return Ok(Expr::Ident(name));
        }
        let args = self.arguments(")")?;
        if name == "has" {
            return match <[Expr; 1]>::try_from(args) {
                Ok([Expr::Select { of, field, is_optional: false }]) => Ok(Expr::Has { of, field }),
                _ => Err(CompileError::syntax(position, "invalid argument to has() macro")),
            };
        }
        Ok(Expr::Call { function: name, target: None, args })
    }

    fn list_from_optional(&mut self) -> Result<Expr, CompileError> {
        self.at += 1;
        let first = self.ternary()?;
        let mut items = vec![(first, true)];
        if self.eat(",") {
            self.items(&mut items)?;
        } else {
            self.expect("]")?;
        }
        Ok(Expr::List(items))
    }

    fn list(&mut self) -> Result<Expr, CompileError> {
        let mut items = Vec::new();
        self.items(&mut items)?;
        Ok(Expr::List(items))
    }

    fn items(&mut self, items: &mut Vec<(Expr, bool)>) -> Result<(), CompileError> {
        while !self.eat("]") {
            let is_optional = self.eat("?");
            items.push((self.ternary()?, is_optional));
            if !self.eat(",") {
                return self.expect("]");
            }
        }
        Ok(())
    }

    /// The fields of a message. It is a map: only the values that are given matter to those who read it.
    fn message(&mut self) -> Result<Expr, CompileError> {
        let mut fields = Vec::new();
        while !self.eat("}") {
            let is_optional = self.eat("?");
            let name = self.ident()?;
            self.expect(":")?;
            fields.push((Expr::Text(super::access::unescape(&name)), self.ternary()?, is_optional));
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Expr::Map(fields))
    }

    fn map(&mut self) -> Result<Expr, CompileError> {
        let mut entries = Vec::new();
        while !self.eat("}") {
            let is_optional = self.eat("?");
            let key = self.ternary()?;
            self.expect(":")?;
            entries.push((key, self.ternary()?, is_optional));
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Expr::Map(entries))
    }
}

/// A field, or a type whose name has dots.
fn selected(of: Expr, field: String) -> Expr {
    if let Expr::Select { of: package, field: inner, is_optional: false } = &of
        && matches!(&**package, Expr::Ident(name) if name == "google")
        && inner == "protobuf"
        && matches!(field.as_str(), "Timestamp" | "Duration")
    {
        return Expr::Ident(format!("google.protobuf.{field}"));
    }
    Expr::Select { of: Box::new(of), field, is_optional: false }
}

/// Whether an expression names a type that mutations make: `Object`, `Object.spec.template`, `JSONPatch`.
fn is_message_type(expr: &Expr) -> bool {
    match expr {
        Expr::Ident(name) => matches!(name.as_str(), "Object" | "JSONPatch"),
        Expr::Select { of, is_optional: false, .. } => {
            is_message_type(of) && **of != Expr::Ident("JSONPatch".into())
        }
        _ => false,
    }
}

/// `cel.bind(name, value, body)`.
fn binding(args: Vec<Expr>, position: usize) -> Result<Expr, CompileError> {
    match <[Expr; 3]>::try_from(args) {
        Ok([Expr::Ident(name), over, body]) => Ok(Expr::Loop(Box::new(Loop {
            kind: LoopKind::Bind,
            over,
            name,
            second: None,
            condition: None,
            body,
        }))),
        Ok(_) => Err(CompileError::syntax(position, "cel.bind() variable names must be simple identifiers")),
        Err(_) => Err(CompileError::syntax(position, "cel.bind() takes a name, a value and an expression")),
    }
}

fn member_call(target: Expr, name: String, args: Vec<Expr>, position: usize) -> Result<Expr, CompileError> {
    if let Expr::Ident(namespace) = &target
        && NAMESPACES.contains(&namespace.as_str())
    {
        let function = format!("{namespace}.{name}");
        return Ok(Expr::Call { function, target: None, args });
    }
    let count = args.len();
    let kind = match (name.as_str(), count) {
        ("all", 2 | 3) => LoopKind::All,
        ("exists", 2 | 3) => LoopKind::Exists,
        ("exists_one" | "existsOne", 2 | 3) => LoopKind::ExistsOne,
        ("map", 2 | 3) => LoopKind::Map,
        ("filter", 2) => LoopKind::Filter,
        ("transformList", 3 | 4) => LoopKind::TransformList,
        ("transformMap", 3 | 4) => LoopKind::TransformMap,
        ("transformMapEntry", 3 | 4) => LoopKind::TransformMapEntry,
        ("sortBy", 2) => LoopKind::SortBy,
        ("optMap", 2) => LoopKind::OptMap,
        ("optFlatMap", 2) => LoopKind::OptFlatMap,
        _ => return Ok(Expr::Call { function: name, target: Some(Box::new(target)), args }),
    };
    let mut args = args.into_iter();
    let mut variable = || match args.next() {
        Some(Expr::Ident(name)) => Ok(name),
        _ => Err(CompileError::syntax(position, "argument must be a simple name")),
    };
    let first = variable()?;
    let has_two =
        matches!(kind, LoopKind::TransformList | LoopKind::TransformMap | LoopKind::TransformMapEntry)
            || (count == 3 && matches!(kind, LoopKind::All | LoopKind::Exists | LoopKind::ExistsOne));
    let second = if has_two { Some(variable()?) } else { None };
    let rest: Vec<Expr> = args.collect();
    let (condition, body) = match <[Expr; 2]>::try_from(rest) {
        Ok([condition, body]) => (Some(condition), body),
        Err(rest) => match rest.into_iter().next() {
            Some(body) => (None, body),
            None => return Err(CompileError::syntax(position, "missing argument")),
        },
    };
    Ok(Expr::Loop(Box::new(Loop { kind, over: target, name: first, second, condition, body })))
}
