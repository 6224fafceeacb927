//! Evaluation.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::rc::Rc;

use serde_json::Value;

use super::parse::{Expr, Loop, LoopKind, Operator};
use super::value::Val;
use super::{access, compile, functions};

/// Why an evaluation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvalError {
    message: String,
    is_over_budget: bool,
}

impl EvalError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_over_budget: false }
    }

    pub(super) fn no_overload() -> Self {
        Self::new("no such overload")
    }

    pub(super) fn over_budget() -> Self {
        Self { message: "operation cancelled: actual cost limit exceeded".into(), is_over_budget: true }
    }

    /// Whether evaluation was stopped because it took too many steps.
    pub const fn is_over_budget(&self) -> bool {
        self.is_over_budget
    }
}

pub(super) type Outcome<'v> = Result<Val<'v>, EvalError>;

pub(super) fn eval<'v>(expr: &'v Expr, variables: &[(&'v str, Val<'v>)], budget: &Cell<u64>) -> Outcome<'v> {
    let mut machine = Machine { scope: variables.to_vec(), budget };
    machine.expr(expr)
}

struct Machine<'v, 'b> {
    scope: Vec<(&'v str, Val<'v>)>,
    budget: &'b Cell<u64>,
}

impl<'v> Machine<'v, '_> {
    fn spend(&self, steps: usize) -> Result<(), EvalError> {
        let left = self.budget.get().checked_sub(steps as u64);
        self.budget.set(left.unwrap_or(0));
        if left.is_some() { Ok(()) } else { Err(EvalError::over_budget()) }
    }

    fn expr(&mut self, expr: &'v Expr) -> Outcome<'v> {
        self.spend(1)?;
        match expr {
            Expr::Null => Ok(Val::Null),
            Expr::Bool(value) => Ok(Val::Bool(*value)),
            Expr::Int(number) => Ok(Val::Int(*number)),
            Expr::Uint(number) => Ok(Val::Uint(*number)),
            Expr::Double(number) => Ok(Val::Double(*number)),
            Expr::Text(text) => Ok(Val::String(Cow::Borrowed(text))),
            Expr::Bytes(bytes) => Ok(Val::Bytes(bytes.as_slice().into())),
            Expr::Ident(name) => Ok(self.variable(name)),
            Expr::Select { of, field, is_optional } => self.select(of, field, *is_optional),
            Expr::Has { of, field } => {
                let of = self.expr(of)?;
                if matches!(of, Val::Null) {
                    return Ok(Val::Bool(false));
                }
                Ok(Val::Bool(access::field(&of, field)?.is_some()))
            }
            Expr::Index { of, at, is_optional } => self.index(of, at, *is_optional),
            Expr::Call { function, target, args } => {
                let mut values = Vec::with_capacity(args.len() + 1);
                if let Some(target) = target {
                    let target = self.expr(target)?;
                    // The alternative of an optional is evaluated only if it is needed.
                    match (function.as_str(), &target) {
                        ("orValue", Val::Optional(Some(value))) => return Ok((**value).clone()),
                        ("or", Val::Optional(Some(_))) => return Ok(target),
                        _ => values.push(target),
                    }
                }
                for arg in args {
                    values.push(self.expr(arg)?);
                }
                let size: usize = values.iter().filter_map(size_of).sum();
                self.spend(size / 10)?;
                functions::call(function, target.is_some(), &values)
            }
            Expr::List(items) => self.list(items),
            Expr::Map(entries) => self.map(entries),
            Expr::And(operands) => self.logical(operands, false),
            Expr::Or(operands) => self.logical(operands, true),
            Expr::Not(inner) => match self.expr(inner)? {
                Val::Bool(value) => Ok(Val::Bool(!value)),
                _ => Err(EvalError::no_overload()),
            },
            Expr::Minus(inner) => match self.expr(inner)? {
                Val::Int(number) => number.checked_neg().map(Val::Int).ok_or_else(overflow),
                Val::Double(number) => Ok(Val::Double(-number)),
                Val::Duration(nanos) => nanos.checked_neg().map(Val::Duration).ok_or_else(overflow),
                _ => Err(EvalError::no_overload()),
            },
            Expr::If(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                match self.expr(condition)? {
                    Val::Bool(true) => self.expr(then),
                    Val::Bool(false) => self.expr(otherwise),
                    _ => Err(EvalError::no_overload()),
                }
            }
            Expr::Binary(operator, sides) => {
                let [left, right] = sides.as_ref();
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                self.spend((size_of(&left).unwrap_or(0) + size_of(&right).unwrap_or(0)) / 10)?;
                binary(*operator, &left, &right)
            }
            Expr::Loop(comprehension) => self.comprehension(comprehension),
        }
    }

    fn variable(&self, name: &'v str) -> Val<'v> {
        if let Some((_, value)) = self.scope.iter().rev().find(|(known, _)| *known == name) {
            return value.clone();
        }
        match compile::TYPES.iter().find(|known| **known == name) {
            Some(known) => Val::Type(known),
            // A variable that was declared and not given has no value.
            None => Val::Null,
        }
    }

    fn select(&mut self, of: &'v Expr, field: &str, is_optional: bool) -> Outcome<'v> {
        let of = self.expr(of)?;
        let keeps_optional = is_optional || matches!(of, Val::Optional(_));
        let found = match access::field(&of, field) {
            Err(_) if keeps_optional && matches!(of, Val::Null) => None,
            found => found?,
        };
        match found {
            found if keeps_optional => Ok(Val::optional(found)),
            Some(value) => Ok(value),
            None => Err(EvalError::new(format!("no such key: {field}"))),
        }
    }

    fn index(&mut self, of: &'v Expr, at: &'v Expr, is_optional: bool) -> Outcome<'v> {
        let (of, at) = (self.expr(of)?, self.expr(at)?);
        let keeps_optional = is_optional || matches!(of, Val::Optional(_));
        let found = access::index(&of, &at)?;
        match found {
            found if keeps_optional => Ok(Val::optional(found)),
            Some(value) => Ok(value),
            None => {
                let shown = functions::to_text(&at).unwrap_or_default();
                let is_list = matches!(of.type_name(), "list");
                Err(EvalError::new(if is_list {
                    format!("index out of bounds: {shown}")
                } else {
                    format!("no such key: {shown}")
                }))
            }
        }
    }

    fn list(&mut self, items: &'v [(Expr, bool)]) -> Outcome<'v> {
        let mut out = Vec::with_capacity(items.len());
        for (item, is_optional) in items {
            match (self.expr(item)?, is_optional) {
                (Val::Optional(None), true) => {}
                (Val::Optional(Some(value)), true) => out.push((*value).clone()),
                (_, true) => return Err(EvalError::no_overload()),
                (value, false) => out.push(value),
            }
        }
        Ok(Val::list(out))
    }

    fn map(&mut self, entries: &'v [(Expr, Expr, bool)]) -> Outcome<'v> {
        let mut out: Vec<(Val<'v>, Val<'v>)> = Vec::with_capacity(entries.len());
        for (key, value, is_optional) in entries {
            let key = self.expr(key)?;
            out.retain(|(known, _)| !known.equals(&key));
            match (self.expr(value)?, is_optional) {
                (Val::Optional(None), true) => {}
                (Val::Optional(Some(value)), true) => out.push((key, (*value).clone())),
                (_, true) => return Err(EvalError::no_overload()),
                (value, false) => out.push((key, value)),
            }
        }
        Ok(Val::Map(Rc::new(out)))
    }

    /// One operand that decides is enough, whatever the others are.
    fn logical(&mut self, operands: &'v [Expr], decisive: bool) -> Outcome<'v> {
        let mut failure = None;
        for operand in operands {
            match self.expr(operand) {
                Ok(Val::Bool(value)) if value == decisive => return Ok(Val::Bool(decisive)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => failure = failure.or_else(|| Some(EvalError::no_overload())),
                Err(error) if error.is_over_budget => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(Val::Bool(!decisive)),
        }
    }

    fn with(&mut self, variables: &[(&'v str, Val<'v>)], body: &'v Expr) -> Outcome<'v> {
        let before = self.scope.len();
        self.scope.extend_from_slice(variables);
        let outcome = self.expr(body);
        self.scope.truncate(before);
        outcome
    }

    fn comprehension(&mut self, comprehension: &'v Loop) -> Outcome<'v> {
        let over = self.expr(&comprehension.over)?;
        if comprehension.kind == LoopKind::Bind {
            return self.with(&[(&comprehension.name, over)], &comprehension.body);
        }
        if matches!(comprehension.kind, LoopKind::OptMap | LoopKind::OptFlatMap) {
            return match over {
                Val::Optional(None) => Ok(Val::Optional(None)),
                Val::Optional(Some(value)) => {
                    let result =
                        self.with(&[(&comprehension.name, (*value).clone())], &comprehension.body)?;
                    Ok(if comprehension.kind == LoopKind::OptMap {
                        Val::optional(Some(result))
                    } else {
                        result
                    })
                }
                _ => Err(EvalError::no_overload()),
            };
        }
        let pairs = pairs(&over)?;
        let is_map = matches!(over, Val::Map(_) | Val::Maps(_) | Val::Json(Value::Object(_), _));
        let mut state = State::default();
        for (first, second) in pairs.iter() {
            self.spend(1)?;
            let mut variables: Vec<(&'v str, Val<'v>)> = Vec::with_capacity(2);
            match &comprehension.second {
                Some(name) => {
                    variables.push((&comprehension.name, first.clone()));
                    variables.push((name, second.clone()));
                }
                // With one variable, maps give their keys and lists their items.
                None => {
                    variables
                        .push((&comprehension.name, if is_map { first.clone() } else { second.clone() }));
                }
            }
            if let Some(condition) = &comprehension.condition {
                match self.with(&variables, condition)? {
                    Val::Bool(true) => {}
                    Val::Bool(false) => continue,
                    _ => return Err(EvalError::no_overload()),
                }
            }
            let result = self.with(&variables, &comprehension.body);
            let key = if comprehension.second.is_some() {
                first
            } else {
                &variables.first().map_or(Val::Null, |one| one.1.clone())
            };
            if state.step(comprehension.kind, key, result)? {
                break;
            }
        }
        state.finish(comprehension.kind)
    }
}

/// What a comprehension has found so far.
#[derive(Default)]
struct State<'v> {
    failure: Option<EvalError>,
    count: usize,
    is_decided: bool,
    list: Vec<Val<'v>>,
    keyed: Vec<(Val<'v>, Val<'v>)>,
}

impl<'v> State<'v> {
    /// Takes in one result; true means that the rest does not matter.
    fn step(&mut self, kind: LoopKind, item: &Val<'v>, result: Outcome<'v>) -> Result<bool, EvalError> {
        let truth = |result: Outcome<'v>| match result? {
            Val::Bool(value) => Ok(value),
            _ => Err(EvalError::no_overload()),
        };
        match kind {
            LoopKind::All | LoopKind::Exists => {
                match truth(result) {
                    Ok(value) => self.is_decided = value == (kind == LoopKind::Exists),
                    Err(error) if error.is_over_budget => return Err(error),
                    Err(error) => self.failure = self.failure.take().or(Some(error)),
                }
                return Ok(self.is_decided);
            }
            LoopKind::ExistsOne => self.count += usize::from(truth(result)?),
            LoopKind::Filter => {
                if truth(result)? {
                    self.list.push(item.clone());
                }
            }
            LoopKind::Map | LoopKind::TransformList => self.list.push(result?),
            LoopKind::TransformMap | LoopKind::SortBy => self.keyed.push((item.clone(), result?)),
            LoopKind::TransformMapEntry => {
                let entries = result?.entries().ok_or_else(EvalError::no_overload)?;
                self.keyed.extend(entries.iter().cloned());
            }
            LoopKind::OptMap | LoopKind::OptFlatMap | LoopKind::Bind => {}
        }
        Ok(false)
    }

    fn finish(mut self, kind: LoopKind) -> Outcome<'v> {
        match kind {
            LoopKind::All | LoopKind::Exists => match self.failure {
                _ if self.is_decided => Ok(Val::Bool(kind == LoopKind::Exists)),
                Some(error) => Err(error),
                None => Ok(Val::Bool(kind == LoopKind::All)),
            },
            LoopKind::ExistsOne => Ok(Val::Bool(self.count == 1)),
            LoopKind::TransformMap | LoopKind::TransformMapEntry => Ok(Val::Map(Rc::new(self.keyed))),
            LoopKind::SortBy => {
                let keys: Vec<&Val<'_>> = self.keyed.iter().map(|(_, key)| key).collect();
                if !is_sortable(&keys) {
                    return Err(EvalError::no_overload());
                }
                self.keyed.sort_by(|one, two| one.1.order(&two.1).unwrap_or(Ordering::Equal));
                Ok(Val::list(self.keyed.into_iter().map(|(item, _)| item).collect()))
            }
            _ => Ok(Val::list(self.list)),
        }
    }
}

/// Whether values have one order: all of a type that has, and none that is not even in order with itself.
pub(super) fn is_sortable(values: &[&Val<'_>]) -> bool {
    let kind = values.first().map(|value| std::mem::discriminant(*value));
    values.iter().all(|value| Some(std::mem::discriminant(*value)) == kind && value.order(value).is_some())
}

/// Keys and values of a map; positions and items of a list.
fn pairs<'v>(over: &Val<'v>) -> Result<Rc<Vec<(Val<'v>, Val<'v>)>>, EvalError> {
    if let Some(entries) = over.entries() {
        return Ok(entries);
    }
    let items = over.items().ok_or_else(EvalError::no_overload)?;
    let position = |at: usize| Val::Int(i64::try_from(at).unwrap_or(i64::MAX));
    Ok(Rc::new(items.iter().enumerate().map(|(at, item)| (position(at), item.clone())).collect()))
}

fn size_of(value: &Val<'_>) -> Option<usize> {
    match value {
        Val::String(text) => Some(text.len()),
        other => other.size(),
    }
}

fn overflow() -> EvalError {
    EvalError::new("integer overflow")
}

fn binary<'v>(operator: Operator, left: &Val<'v>, right: &Val<'v>) -> Outcome<'v> {
    match operator {
        Operator::Equal => Ok(Val::Bool(left.equals(right))),
        Operator::NotEqual => Ok(Val::Bool(!left.equals(right))),
        Operator::In => functions::is_in(left, right).map(Val::Bool),
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            let Some(order) = left.order(right) else {
                let is_nan = |value: &Val<'v>| matches!(value, Val::Double(number) if number.is_nan());
                let is_number =
                    |value: &Val<'v>| matches!(value, Val::Int(_) | Val::Uint(_) | Val::Double(_));
                return Err(if is_number(left) && is_number(right) && (is_nan(left) || is_nan(right)) {
                    EvalError::new("NaN values cannot be ordered")
                } else {
                    EvalError::no_overload()
                });
            };
            Ok(Val::Bool(match operator {
                Operator::Less => order.is_lt(),
                Operator::LessOrEqual => order.is_le(),
                Operator::Greater => order.is_gt(),
                _ => order.is_ge(),
            }))
        }
        _ => functions::arithmetic(operator, left, right),
    }
}
