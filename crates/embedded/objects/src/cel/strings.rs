//! Functions of texts and lists that are extensions of the language.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::{Regex, RegexBuilder};

use super::eval::{EvalError, Outcome, is_sortable};
use super::functions::to_text;
use super::value::Val;

/// Patterns compiled by expressions of this thread; rules use few.
const REGEX_CACHE: usize = 256;
const REGEX_SIZE: usize = 1 << 20;
/// The longest text that may come out of shorter ones: several times the largest object.
const TEXT_AT_MOST: usize = 16 << 20;
/// No list made by an expression is longer than an object could hold.
const MAX_RANGE: i64 = 1_000_000;

thread_local! {
    static REGEXES: RefCell<HashMap<String, Regex>> = RefCell::new(HashMap::new());
}

/// A compiled pattern.
pub(super) fn regex(pattern: &str) -> Result<Regex, EvalError> {
    REGEXES.with_borrow_mut(|known| {
        if let Some(regex) = known.get(pattern) {
            return Ok(regex.clone());
        }
        let regex = RegexBuilder::new(pattern)
            .size_limit(REGEX_SIZE)
            .build()
            .map_err(|error| EvalError::new(format!("error parsing regexp: {error}")))?;
        if known.len() >= REGEX_CACHE {
            known.clear();
        }
        known.insert(pattern.into(), regex.clone());
        Ok(regex)
    })
}

/// Calls a function of texts or lists; `None` if there is none for these arguments.
pub(super) fn call<'v>(function: &str, args: &[Val<'v>]) -> Option<Outcome<'v>> {
    if let Some(Val::String(text)) = args.first() {
        return of_text(function, text, args.get(1..).unwrap_or_default());
    }
    if let ("lists.range", [Val::Int(end)]) = (function, args) {
        let end = (*end).clamp(0, MAX_RANGE);
        return Some(Ok(Val::list((0..end).map(Val::Int).collect())));
    }
    if let ("base64.encode", [Val::Bytes(bytes)]) = (function, args) {
        return Some(Ok(Val::text(STANDARD.encode(bytes))));
    }
    let items = args.first()?.items()?;
    of_list(function, &items, args.get(1..).unwrap_or_default())
}

fn of_text<'v>(function: &str, text: &str, args: &[Val<'v>]) -> Option<Outcome<'v>> {
    let position = |at: usize| Val::Int(i64::try_from(at).unwrap_or(i64::MAX));
    let outcome = match (function, args) {
        ("charAt", [Val::Int(at)]) => match usize::try_from(*at) {
            Ok(at) if at <= text.chars().count() => {
                Ok(Val::text(text.chars().nth(at).map(String::from).unwrap_or_default()))
            }
            _ => Err(out_of_range(*at)),
        },
        ("format", [list]) => format(text, list),
        ("indexOf", [Val::String(part), rest @ ..]) => {
            let start = match rest {
                [Val::Int(start)] => usize::try_from(*start).unwrap_or(0),
                _ => 0,
            };
            let characters: Vec<char> = text.chars().collect();
            let part: Vec<char> = part.chars().collect();
            Ok((start..=characters.len())
                .find(|at| characters.get(*at..).is_some_and(|rest| rest.starts_with(&part)))
                .map_or(Val::Int(-1), position))
        }
        ("lastIndexOf", [Val::String(part), rest @ ..]) => {
            let characters: Vec<char> = text.chars().collect();
            let part: Vec<char> = part.chars().collect();
            let end = match rest {
                [Val::Int(end)] => usize::try_from(*end).unwrap_or(0),
                _ => characters.len(),
            };
            Ok((0..=end.min(characters.len()))
                .rev()
                .find(|at| characters.get(*at..).is_some_and(|rest| rest.starts_with(&part)))
                .map_or(Val::Int(-1), position))
        }
        ("lowerAscii", []) => Ok(Val::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Val::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Val::text(text.trim())),
        ("reverse", []) => Ok(Val::text(text.chars().rev().collect::<String>())),
        ("strings.quote", []) => Ok(Val::text(crate::error::quoted(text))),
        ("base64.decode", []) => STANDARD
            .decode(text)
            .map(|bytes| Val::Bytes(bytes.into()))
            .map_err(|_| EvalError::new("illegal base64 data")),
        ("replace", [Val::String(from), Val::String(to)]) => replaced(text, from, to, usize::MAX),
        ("replace", [Val::String(from), Val::String(to), Val::Int(count)]) => {
            replaced(text, from, to, usize::try_from(*count).unwrap_or(usize::MAX))
        }
        ("split", [Val::String(by), rest @ ..]) => {
            let limit = match rest {
                [Val::Int(limit)] => *limit,
                _ => -1,
            };
            Ok(Val::list(split(text, by, limit).into_iter().map(Val::text).collect()))
        }
        ("substring", [Val::Int(start), rest @ ..]) => {
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            let end = match rest {
                [Val::Int(end)] => *end,
                _ => length,
            };
            if *start < 0 || *start > length {
                return Some(Err(out_of_range(*start)));
            }
            if end < *start || end > length {
                return Some(Err(out_of_range(end)));
            }
            let (start, count) =
                (usize::try_from(*start).unwrap_or(0), usize::try_from(end - start).unwrap_or(0));
            Ok(Val::text(text.chars().skip(start).take(count).collect::<String>()))
        }
        ("find", [Val::String(pattern)]) => {
            regex(pattern).map(|regex| Val::text(regex.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", [Val::String(pattern), rest @ ..]) => {
            let limit = match rest {
                [Val::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            regex(pattern).map(|regex| {
                Val::list(regex.find_iter(text).take(limit).map(|found| Val::text(found.as_str())).collect())
            })
        }
        _ => return None,
    };
    Some(outcome)
}

fn out_of_range(at: i64) -> EvalError {
    EvalError::new(format!("index out of range: {at}"))
}

fn split(text: &str, by: &str, limit: i64) -> Vec<String> {
    let limit = match limit {
        0 => return Vec::new(),
        negative if negative < 0 => usize::MAX,
        limit => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    if by.is_empty() {
        let characters: Vec<String> = text.chars().map(String::from).collect();
        let kept = limit.saturating_sub(1).min(characters.len());
        let (before, after) = characters.split_at(kept);
        let mut out = before.to_vec();
        if !after.is_empty() {
            if limit == usize::MAX { out.extend_from_slice(after) } else { out.push(after.concat()) }
        }
        return out;
    }
    text.splitn(limit, by).map(Into::into).collect()
}

fn of_list<'v>(function: &str, items: &Rc<Vec<Val<'v>>>, args: &[Val<'v>]) -> Option<Outcome<'v>> {
    let position = |at: Option<usize>| Val::Int(at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1));
    let outcome = match (function, args) {
        ("join", rest) => {
            let by = match rest {
                [Val::String(by)] => by.as_ref(),
                _ => "",
            };
            let texts: Option<Vec<String>> = items
                .iter()
                .map(|item| if let Val::String(text) = item { Some(text.to_string()) } else { None })
                .collect();
            let Some(texts) = texts else { return Some(Err(EvalError::no_overload())) };
            if texts.iter().map(|text| text.len() + by.len()).sum::<usize>() > TEXT_AT_MOST {
                return Some(Err(EvalError::over_budget()));
            }
            Ok(Val::text(texts.join(by)))
        }
        ("isSorted", []) => {
            let mut is_sorted = true;
            for pair in items.windows(2) {
                let [one, two] = pair else { continue };
                match one.order(two) {
                    Some(order) => is_sorted &= order.is_le(),
                    None => return Some(Err(EvalError::no_overload())),
                }
            }
            Ok(Val::Bool(is_sorted))
        }
        ("sum", []) => sum(items),
        ("min" | "max", []) => {
            let wanted = if function == "min" { Ordering::Less } else { Ordering::Greater };
            let mut best: Option<&Val<'v>> = None;
            for item in items.iter() {
                match best.map(|best| item.order(best)) {
                    None => best = Some(item),
                    Some(Some(order)) if order == wanted => best = Some(item),
                    Some(Some(_)) => {}
                    Some(None) => return Some(Err(EvalError::no_overload())),
                }
            }
            best.cloned().ok_or_else(|| EvalError::new(format!("{function} called on empty list")))
        }
        ("indexOf", [item]) => Ok(position(items.iter().position(|one| one.equals(item)))),
        ("lastIndexOf", [item]) => Ok(position(items.iter().rposition(|one| one.equals(item)))),
        ("slice", [Val::Int(start), Val::Int(end)]) => {
            match (usize::try_from(*start), usize::try_from(*end)) {
                (Ok(start), Ok(end)) if start <= end && end <= items.len() => {
                    Ok(Val::list(items.get(start..end).unwrap_or_default().to_vec()))
                }
                _ => Err(EvalError::new(format!(
                    "cannot slice({start}, {end}), list is length {}",
                    items.len()
                ))),
            }
        }
        ("flatten", rest) => {
            let depth = match rest {
                [Val::Int(depth)] => *depth,
                _ => 1,
            };
            let mut out = Vec::new();
            flatten(items, depth.clamp(0, 32), &mut out);
            Ok(Val::list(out))
        }
        ("distinct", []) => {
            let mut out: Vec<Val<'v>> = Vec::new();
            for item in items.iter() {
                if !out.iter().any(|known| known.equals(item)) {
                    out.push(item.clone());
                }
            }
            Ok(Val::list(out))
        }
        ("sort", []) => {
            if !is_sortable(&items.iter().collect::<Vec<_>>()) {
                return Some(Err(EvalError::no_overload()));
            }
            let mut out = items.to_vec();
            out.sort_by(|one, two| one.order(two).unwrap_or(Ordering::Equal));
            Ok(Val::list(out))
        }
        ("reverse", []) => Ok(Val::list(items.iter().rev().cloned().collect())),
        ("first", []) => Ok(Val::optional(items.first().cloned())),
        ("last", []) => Ok(Val::optional(items.last().cloned())),
        _ => return None,
    };
    Some(outcome)
}

fn sum<'v>(items: &[Val<'v>]) -> Outcome<'v> {
    let mut total: Option<Val<'v>> = None;
    for item in items {
        total = Some(match total {
            None => item.clone(),
            Some(total) => super::functions::arithmetic(super::parse::Operator::Add, &total, item)?,
        });
    }
    match total {
        None => Ok(Val::Int(0)),
        Some(total @ (Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Duration(_))) => Ok(total),
        Some(_) => Err(EvalError::no_overload()),
    }
}

fn flatten<'v>(items: &[Val<'v>], depth: i64, out: &mut Vec<Val<'v>>) {
    for item in items {
        match item.items() {
            Some(inner) if depth > 0 => flatten(&inner, depth - 1, out),
            _ => out.push(item.clone()),
        }
    }
}

/// `"%s has %d".format([name, count])`.
fn format<'v>(text: &str, list: &Val<'v>) -> Outcome<'v> {
    let items = list.items().ok_or_else(EvalError::no_overload)?;
    let mut items = items.iter();
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut precision = None;
        if characters.peek() == Some(&'.') {
            characters.next();
            let mut digits = String::new();
            while let Some(digit) = characters.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            precision = digits.parse::<usize>().ok().map(|precision| precision.min(100));
        }
        let Some(verb) = characters.next() else {
            return Err(EvalError::new("unexpected end of format string"));
        };
        if verb == '%' {
            out.push('%');
            continue;
        }
        let item = items.next().ok_or_else(|| EvalError::new("index out of range in format"))?;
        let number = match item {
            Val::Int(number) => Some(i128::from(*number)),
            Val::Uint(number) => Some(i128::from(*number)),
            _ => None,
        };
        let shown = match (verb, item, number) {
            ('s', item, _) => shown(item, 0),
            ('d', _, Some(number)) => number.to_string(),
            ('x', _, Some(number)) => format!("{number:x}"),
            ('X', _, Some(number)) => format!("{number:X}"),
            ('o', _, Some(number)) => format!("{number:o}"),
            ('b', _, Some(number)) => format!("{number:b}"),
            ('x', Val::String(text), _) => text.bytes().flat_map(hex).collect(),
            ('f', Val::Double(number), _) => format!("{number:.*}", precision.unwrap_or(6)),
            ('e', Val::Double(number), _) => format!("{number:.*e}", precision.unwrap_or(6)),
            _ => return Err(EvalError::new(format!("unrecognized formatting clause \"{verb}\""))),
        };
        out.push_str(&shown);
    }
    Ok(Val::text(out))
}

fn shown(item: &Val<'_>, depth: usize) -> String {
    if depth > 16 {
        return String::new();
    }
    if let Some(text) = to_text(item) {
        return text;
    }
    if let Some(items) = item.items() {
        let items: Vec<String> = items.iter().map(|item| shown(item, depth + 1)).collect();
        return format!("[{}]", items.join(", "));
    }
    if let Some(entries) = item.entries() {
        let entries: Vec<String> = entries
            .iter()
            .map(|(key, value)| format!("{}: {}", shown(key, depth + 1), shown(value, depth + 1)))
            .collect();
        return format!("{{{}}}", entries.join(", "));
    }
    match item {
        Val::Null => "null".into(),
        Val::Type(name) => (*name).into(),
        _ => String::new(),
    }
}

/// A byte as two hexadecimal digits.
fn hex(byte: u8) -> [char; 2] {
    [byte >> 4, byte & 15].map(|digit| char::from_digit(u32::from(digit), 16).unwrap_or('0'))
}

/// Replaces text, unless too much would come out.
fn replaced<'v>(text: &str, from: &str, to: &str, count: usize) -> Outcome<'v> {
    let times = text.matches(from).take(count).count();
    if text.len().saturating_add(times.saturating_mul(to.len())) > TEXT_AT_MOST {
        return Err(EvalError::over_budget());
    }
    Ok(Val::text(text.replacen(from, to, count)))
}
