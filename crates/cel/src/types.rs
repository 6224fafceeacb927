//! Type checking of expressions: unknown fields, operands of different types, a result of the wrong type.
//!
//! Only certain errors are reported. Where a type is not known, evaluation decides.

use std::fmt;

use super::CompileError;
use super::access::unescape;
use super::parse::{Expr, Loop, LoopKind, Operator};
use super::schema::{JsonType, Schema};

/// The type of a value, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Type<'s> {
    /// Anything.
    Dyn,
    /// Nothing.
    Null,
    /// True or false.
    Bool,
    /// A signed integer.
    Int,
    /// An unsigned integer.
    Uint,
    /// A floating point number.
    Double,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// A point in time.
    Timestamp,
    /// A span of time.
    Duration,
    /// A list of items of a type.
    List(Box<Self>),
    /// A map to values of a type.
    Map(Box<Self>),
    /// An object with fields.
    Object(Fields<'s>),
    /// A value that may be missing.
    Optional(Box<Self>),
}

/// The fields of an object.
#[derive(Clone, Copy, Debug)]
pub enum Fields<'s> {
    /// Of a schema.
    Of(&'s dyn Schema),
    /// Of a whole resource, which also has a type and a name.
    OfResource(&'s dyn Schema),
    /// What rules see of metadata.
    OfMetadata,
    /// These.
    Named(&'s [(&'s str, Type<'s>)]),
}

impl PartialEq for Fields<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Of(one) | Self::OfResource(one), Self::Of(two) | Self::OfResource(two)) => {
                std::ptr::addr_eq(*one, *two)
            }
            (Self::OfMetadata, Self::OfMetadata) => true,
            (Self::Named(one), Self::Named(two)) => one == two,
            _ => false,
        }
    }
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::Text => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Self::Duration => f.write_str("google.protobuf.Duration"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(value) => write!(f, "map(string, {value})"),
            Self::Object(_) => f.write_str("object"),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
        }
    }
}

impl<'s> Type<'s> {
    /// The type of values of a schema.
    pub fn of(schema: &'s dyn Schema) -> Self {
        if schema.is_int_or_string() {
            return Self::Dyn;
        }
        match schema.kind() {
            Some(JsonType::Object) => match schema.additional() {
                Some(values) => Self::Map(Box::new(Self::of(values))),
                None if schema.is_embedded() => Self::Object(Fields::OfResource(schema)),
                None if schema.is_open() => Self::Dyn,
                None => Self::Object(Fields::Of(schema)),
            },
            Some(JsonType::Array) => {
                let item = schema.items().map_or(Self::Dyn, Self::of);
                Self::List(Box::new(item))
            }
            Some(JsonType::String) => match schema.format() {
                Some("date-time" | "date") => Self::Timestamp,
                Some("duration") => Self::Duration,
                Some("byte") => Self::Bytes,
                _ => Self::Text,
            },
            Some(JsonType::Integer) => Self::Int,
            Some(JsonType::Number) => Self::Double,
            Some(JsonType::Boolean) => Self::Bool,
            None => Self::Dyn,
        }
    }

    fn list(item: Self) -> Self {
        Self::List(Box::new(item))
    }

    const fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether a value can be of both types.
    fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(one), Self::List(two))
            | (Self::Map(one), Self::Map(two))
            | (Self::Optional(one), Self::Optional(two)) => one.agrees(two),
            // A literal in braces can be a map or an object.
            (Self::Dyn | Self::Null, _)
            | (_, Self::Dyn | Self::Null)
            | (Self::Map(_) | Self::Object(_), Self::Map(_) | Self::Object(_)) => true,
            _ => self == other || (self.is_number() && other.is_number()),
        }
    }

    /// The type of what can be either.
    fn or(self, other: &Self) -> Self {
        if self == *other { self } else { Self::Dyn }
    }
}

/// The type of an expression over some variables.
pub(super) fn check<'s>(
    text: &str,
    expr: &Expr,
    variables: &[(&str, Type<'s>)],
) -> Result<Type<'s>, CompileError> {
    let variables = variables.iter().map(|(name, kind)| ((*name).to_owned(), kind.clone())).collect();
    Checker { text, variables }.expr(expr)
}

struct Checker<'t, 's> {
    text: &'t str,
    variables: Vec<(String, Type<'s>)>,
}

type Checked<'s> = Result<Type<'s>, CompileError>;

impl<'s> Checker<'_, 's> {
    fn expr(&mut self, expr: &Expr) -> Checked<'s> {
        Ok(match expr {
            Expr::Null => Type::Null,
            Expr::Bool(_) => Type::Bool,
            Expr::Int(_) => Type::Int,
            Expr::Uint(_) => Type::Uint,
            Expr::Double(_) => Type::Double,
            Expr::Text(_) => Type::Text,
            Expr::Bytes(_) => Type::Bytes,
            Expr::Ident(name) => {
                let known = self.variables.iter().rev().find(|(known, _)| known == name);
                known.map_or(Type::Dyn, |(_, kind)| kind.clone())
            }
            Expr::Select { of, field, is_optional } => {
                let of = self.expr(of)?;
                let found = self.field(&of, field)?;
                if *is_optional && !matches!(found, Type::Optional(_)) {
                    Type::Optional(Box::new(found))
                } else {
                    found
                }
            }
            Expr::Has { of, field } => {
                let of = self.expr(of)?;
                self.field(&of, field)?;
                Type::Bool
            }
            Expr::Index { of, at, is_optional } => {
                let of = self.expr(of)?;
                self.expr(at)?;
                let found = match of {
                    Type::List(item) | Type::Map(item) => *item,
                    _ => Type::Dyn,
                };
                if *is_optional { Type::Optional(Box::new(found)) } else { found }
            }
            Expr::Call { function, target, args } => {
                let target = target.as_deref().map(|target| self.expr(target)).transpose()?;
                let args = args.iter().map(|arg| self.expr(arg)).collect::<Result<Vec<_>, _>>()?;
                self.call(function, target.as_ref(), &args)?
            }
            Expr::List(items) => {
                let items = items.iter().map(|(item, is_optional)| self.entry(item, *is_optional));
                let items = items.collect::<Result<Vec<_>, _>>()?;
                Type::list(items.into_iter().reduce(|one, other| one.or(&other)).unwrap_or(Type::Dyn))
            }
            Expr::Map(entries) => {
                let mut values = Vec::with_capacity(entries.len());
                for (key, value, is_optional) in entries {
                    self.expr(key)?;
                    values.push(self.entry(value, *is_optional)?);
                }
                Type::Map(Box::new(
                    values.into_iter().reduce(|one, other| one.or(&other)).unwrap_or(Type::Dyn),
                ))
            }
            Expr::And(operands) | Expr::Or(operands) => {
                for operand in operands {
                    self.truth(operand)?;
                }
                Type::Bool
            }
            Expr::Not(inner) => {
                self.truth(inner)?;
                Type::Bool
            }
            Expr::Minus(inner) => self.expr(inner)?,
            Expr::If(parts) => {
                let [condition, yes, no] = &**parts;
                self.truth(condition)?;
                self.expr(yes)?.or(&self.expr(no)?)
            }
            Expr::Binary(operator, sides) => {
                let [left, right] = &**sides;
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                self.binary(*operator, &left, &right)?
            }
            Expr::Loop(comprehension) => self.comprehension(comprehension)?,
        })
    }

    /// An entry of a literal, which may be left out if it is an optional that has nothing.
    fn entry(&mut self, value: &Expr, is_optional: bool) -> Checked<'s> {
        Ok(match self.expr(value)? {
            Type::Optional(inner) if is_optional => *inner,
            found => found,
        })
    }

    fn within(&mut self, names: Vec<(String, Type<'s>)>, body: &Expr) -> Checked<'s> {
        let before = self.variables.len();
        self.variables.extend(names);
        let outcome = self.expr(body);
        self.variables.truncate(before);
        outcome
    }

    /// Something that must be true or false.
    fn truth(&mut self, expr: &Expr) -> Result<(), CompileError> {
        match self.expr(expr)? {
            Type::Bool | Type::Dyn => Ok(()),
            found => Err(self.refuse("", format!("expected type 'bool' but found '{found}'"))),
        }
    }

    /// An error, at the first place where the text has the word that it is about.
    fn refuse(&self, at: &str, message: String) -> CompileError {
        let ends = |end: usize| {
            let next = self.text.get(end..).and_then(|rest| rest.chars().next());
            !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
        };
        let mut places = self.text.match_indices(at).map(|(place, _)| place);
        let position = places.find(|place| !at.is_empty() && ends(place + at.len()));
        CompileError { position: position.unwrap_or(0), message }
    }

    fn field(&self, of: &Type<'s>, name: &str) -> Checked<'s> {
        let undefined = || Err(self.refuse(&format!(".{name}"), format!("undefined field '{name}'")));
        let of_schema = |schema: &'s dyn Schema| {
            let known = schema.property(name).or_else(|| schema.property(&unescape(name)));
            known.map(Type::of)
        };
        match of {
            Type::Dyn => Ok(Type::Dyn),
            Type::Optional(inner) => Ok(match self.field(inner, name)? {
                Type::Optional(found) => Type::Optional(found),
                found => Type::Optional(Box::new(found)),
            }),
            Type::Map(value) => Ok((**value).clone()),
            Type::Object(Fields::Of(schema)) => of_schema(*schema).map_or_else(undefined, Ok),
            Type::Object(Fields::OfResource(schema)) => match name {
                "apiVersion" | "kind" => Ok(Type::Text),
                "metadata" => Ok(Type::Object(Fields::OfMetadata)),
                _ => of_schema(*schema).map_or_else(undefined, Ok),
            },
            Type::Object(Fields::OfMetadata) => match name {
                "name" | "generateName" => Ok(Type::Text),
                _ => undefined(),
            },
            Type::Object(Fields::Named(fields)) => {
                let known = fields.iter().find(|(known, _)| *known == name);
                known.map_or_else(undefined, |(_, kind)| Ok(kind.clone()))
            }
            other => {
                Err(self
                    .refuse(&format!(".{name}"), format!("type '{other}' does not support field selection")))
            }
        }
    }

    fn binary(&self, operator: Operator, left: &Type<'s>, right: &Type<'s>) -> Checked<'s> {
        use Operator as Op;
        let refuse = |symbol: &str| {
            let function = if symbol == "in" { "@in".to_owned() } else { format!("_{symbol}_") };
            let message =
                format!("found no matching overload for '{function}' applied to '({left}, {right})'");
            Err(self.refuse("", message))
        };
        let is_open = *left == Type::Dyn || *right == Type::Dyn;
        match operator {
            Op::Equal | Op::NotEqual => {
                let symbol = if operator == Op::Equal { "==" } else { "!=" };
                if left.agrees(right) { Ok(Type::Bool) } else { refuse(symbol) }
            }
            Op::Less | Op::LessOrEqual | Op::Greater | Op::GreaterOrEqual => {
                let symbol = match operator {
                    Op::Less => "<",
                    Op::LessOrEqual => "<=",
                    Op::Greater => ">",
                    _ => ">=",
                };
                let has_order = |kind: &Type<'_>| {
                    !matches!(kind, Type::List(_) | Type::Map(_) | Type::Object(_) | Type::Null)
                };
                let is_fine = has_order(left) && has_order(right) && left.agrees(right);
                if is_fine { Ok(Type::Bool) } else { refuse(symbol) }
            }
            Op::In => match right {
                Type::List(item) if !item.agrees(left) => refuse("in"),
                Type::Dyn | Type::List(_) | Type::Map(_) | Type::Object(_) => Ok(Type::Bool),
                _ => refuse("in"),
            },
            _ if is_open => Ok(Type::Dyn),
            Op::Add => match (left, right) {
                (Type::List(_), Type::List(_)) => Ok(left.clone().or(right)),
                (Type::Text | Type::Bytes | Type::Int | Type::Uint | Type::Double, _) if left == right => {
                    Ok(left.clone())
                }
                (Type::Duration, Type::Duration) => Ok(Type::Duration),
                (Type::Timestamp, Type::Duration) | (Type::Duration, Type::Timestamp) => Ok(Type::Timestamp),
                _ => refuse("+"),
            },
            Op::Subtract => match (left, right) {
                (Type::Int | Type::Uint | Type::Double, _) if left == right => Ok(left.clone()),
                (Type::Timestamp, Type::Timestamp) | (Type::Duration, Type::Duration) => Ok(Type::Duration),
                (Type::Timestamp, Type::Duration) => Ok(Type::Timestamp),
                _ => refuse("-"),
            },
            Op::Multiply | Op::Divide if left == right && left.is_number() => Ok(left.clone()),
            Op::Modulo if left == right && matches!(left, Type::Int | Type::Uint) => Ok(left.clone()),
            Op::Multiply => refuse("*"),
            Op::Divide => refuse("/"),
            Op::Modulo => refuse("%"),
        }
    }

    fn comprehension(&mut self, comprehension: &Loop) -> Checked<'s> {
        let Loop { kind, over, name, second, condition, body } = comprehension;
        let over = self.expr(over)?;
        if *kind == LoopKind::Bind {
            return self.within(vec![(name.clone(), over)], body);
        }
        if matches!(kind, LoopKind::OptMap | LoopKind::OptFlatMap) {
            let inner = if let Type::Optional(inner) = over { *inner } else { Type::Dyn };
            let result = self.within(vec![(name.clone(), inner)], body)?;
            return Ok(if *kind == LoopKind::OptMap { Type::Optional(Box::new(result)) } else { Type::Dyn });
        }
        // The names, and what they stand for: items of a list or its positions, keys of a map or its values.
        let is_pair = second.is_some();
        let (first_type, second_type) = match &over {
            Type::Dyn | Type::Object(_) => (Type::Dyn, Type::Dyn),
            Type::List(item) if is_pair => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(value) => (Type::Dyn, (**value).clone()),
            other => {
                return Err(self.refuse(
                    "",
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    ),
                ));
            }
        };
        let mut names = vec![(name.clone(), first_type.clone())];
        names.extend(second.iter().map(|second| (second.clone(), second_type.clone())));
        if let Some(condition) = condition {
            match self.within(names.clone(), condition)? {
                Type::Bool | Type::Dyn => {}
                found => return Err(self.refuse("", format!("expected type 'bool' but found '{found}'"))),
            }
        }
        let result = self.within(names, body)?;
        Ok(match kind {
            LoopKind::All | LoopKind::Exists | LoopKind::ExistsOne => match result {
                Type::Bool | Type::Dyn => Type::Bool,
                found => return Err(self.refuse("", format!("expected type 'bool' but found '{found}'"))),
            },
            LoopKind::Map | LoopKind::TransformList => Type::list(result),
            LoopKind::Filter => match over {
                Type::Map(_) => Type::list(Type::Dyn),
                other => other,
            },
            LoopKind::TransformMap => Type::Map(Box::new(result)),
            LoopKind::SortBy => over,
            LoopKind::TransformMapEntry | LoopKind::OptMap | LoopKind::OptFlatMap | LoopKind::Bind => {
                Type::Dyn
            }
        })
    }

    /// What a function returns. Those that only texts have are refused to anything that is certainly none.
    fn call(&self, function: &str, target: Option<&Type<'s>>, args: &[Type<'s>]) -> Checked<'s> {
        let refuse = || {
            let shown = args.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let target = target.map(|target| format!("{target}.")).unwrap_or_default();
            let message =
                format!("found no matching overload for '{function}' applied to '{target}({shown})'");
            Err(self.refuse(function, message))
        };
        let of = target.or_else(|| args.first());
        let of_text = |result: Type<'s>| match target {
            None | Some(Type::Text | Type::Dyn) => Ok(result),
            Some(_) => refuse(),
        };
        match function {
            "size" => match of {
                Some(
                    Type::Int | Type::Uint | Type::Double | Type::Bool | Type::Timestamp | Type::Duration,
                ) => refuse(),
                _ => Ok(Type::Int),
            },
            "startsWith" | "endsWith" | "matches" => of_text(Type::Bool),
            "lowerAscii" | "upperAscii" | "trim" | "replace" | "substring" | "charAt" | "find" => {
                of_text(Type::Text)
            }
            "split" | "findAll" => of_text(Type::list(Type::Text)),
            "string" | "join" | "strings.quote" | "jsonpatch.escapeKey" => Ok(Type::Text),
            "int" | "getFullYear" | "getMonth" | "getDate" | "getDayOfMonth" | "getDayOfWeek"
            | "getDayOfYear" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => Ok(Type::Int),
            "uint" => Ok(Type::Uint),
            "double" => Ok(Type::Double),
            "isURL" | "isQuantity" | "isIP" | "isCIDR" | "isSemver"
                if !matches!(args.first(), None | Some(Type::Text | Type::Dyn)) =>
            {
                refuse()
            }
            "bool" | "isURL" | "isQuantity" | "isIP" | "isCIDR" | "isSemver" | "isSorted" | "hasValue"
            | "sets.contains" | "sets.equivalent" | "sets.intersects" => Ok(Type::Bool),
            "timestamp" => Ok(Type::Timestamp),
            "duration" => Ok(Type::Duration),
            "quantity" | "url" | "ip" | "cidr" | "semver"
                if target.is_none() && !matches!(args.first(), None | Some(Type::Text | Type::Dyn)) =>
            {
                refuse()
            }
            _ => Ok(Type::Dyn),
        }
    }
}
