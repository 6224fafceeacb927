//! Functions of texts and lists that are extensions of the language.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;

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
    let items = args.first()?.items()?;
    of_list(function, &items, args.get(1..).unwrap_or_default())
}

fn of_text<'v>(function: &str, text: &str, args: &[Val<'v>]) -> Option<Outcome<'v>> {
    let outcome = match (function, args) {
        ("charAt", [Val::Int(at)]) => match usize::try_from(*at) {
            Ok(at) if at <= text.chars().count() => {
                Ok(Val::text(text.chars().nth(at).map(String::from).unwrap_or_default()))
            }
            _ => Err(out_of_range(*at)),
        },
        ("format", [list]) => format(text, list),
        ("indexOf", [Val::String(part), rest @ ..]) => index_of(text, part, offset_of(rest)),
        ("lastIndexOf", [Val::String(part), rest @ ..]) => last_index_of(text, part, offset_of(rest)),
        ("lowerAscii", []) => Ok(Val::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Val::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Val::text(text.trim())),
        ("strings.quote", []) => Ok(Val::text(quoted(text))),
        ("jsonpatch.escapeKey", []) => Ok(Val::text(text.replace('~', "~0").replace('/', "~1"))),
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

fn offset_of(args: &[Val<'_>]) -> Option<i64> {
    match args {
        [Val::Int(offset)] => Some(*offset),
        _ => None,
    }
}

/// The first place of a part at or after an offset, in characters.
fn index_of<'v>(text: &str, part: &str, offset: Option<i64>) -> Outcome<'v> {
    let start = offset.unwrap_or(0);
    if part.is_empty() {
        return Ok(Val::Int(start));
    }
    let Ok(start) = usize::try_from(start) else { return Err(out_of_range(start)) };
    let (text, part): (Vec<char>, Vec<char>) = (text.chars().collect(), part.chars().collect());
    Ok(found(&text, &part, start..text.len()))
}

/// The last place of a part at or before an offset, in characters. Nothing is found from an offset behind the end.
fn last_index_of<'v>(text: &str, part: &str, offset: Option<i64>) -> Outcome<'v> {
    let (text, part): (Vec<char>, Vec<char>) = (text.chars().collect(), part.chars().collect());
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    if part.is_empty() {
        return Ok(Val::Int(offset.unwrap_or(length)));
    }
    match offset {
        None => Ok(found(&text, &part, (0..text.len()).rev())),
        Some(offset) if offset < 0 => Err(out_of_range(offset)),
        Some(offset) if offset >= length => Ok(Val::Int(-1)),
        Some(offset) => Ok(found(&text, &part, (0..=usize::try_from(offset).unwrap_or(0)).rev())),
    }
}

fn found<'v>(text: &[char], part: &[char], mut places: impl Iterator<Item = usize>) -> Val<'v> {
    let place = places.find(|at| text.get(*at..).is_some_and(|rest| rest.starts_with(part)));
    Val::Int(place.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1))
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
        let sign = if number.is_some_and(|number| number < 0) { "-" } else { "" };
        let size = number.map(i128::unsigned_abs);
        let shown = match (verb, item, size) {
            ('s', item, _) => shown(item, 0),
            ('d', _, Some(size)) => format!("{sign}{size}"),
            ('x', _, Some(size)) => format!("{sign}{size:x}"),
            ('X', _, Some(size)) => format!("{sign}{size:X}"),
            ('o', _, Some(size)) => format!("{sign}{size:o}"),
            ('b', _, Some(size)) => format!("{sign}{size:b}"),
            ('b', Val::Bool(value), _) => u8::from(*value).to_string(),
            ('x', Val::String(text), _) => text.bytes().flat_map(hex).collect(),
            ('X', Val::String(text), _) => {
                text.bytes().flat_map(hex).collect::<String>().to_ascii_uppercase()
            }
            ('x', Val::Bytes(bytes), _) => bytes.iter().copied().flat_map(hex).collect(),
            ('X', Val::Bytes(bytes), _) => {
                bytes.iter().copied().flat_map(hex).collect::<String>().to_ascii_uppercase()
            }
            ('f', Val::Double(number), _) => fixed(*number, precision.unwrap_or(6)),
            ('e', Val::Double(number), _) => scientific(*number, precision.unwrap_or(6)),
            _ => return Err(EvalError::new(wrong_argument(verb, item))),
        };
        out.push_str(&shown);
    }
    Ok(Val::text(out))
}

/// Why a verb cannot be used with an argument.
fn wrong_argument(verb: char, item: &Val<'_>) -> String {
    let clause = match verb {
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
        _ => return format!("unrecognized formatting clause \"{verb}\""),
    };
    format!("error during formatting: {clause}, was given {}", item.type_name())
}

/// A double with thousands separators, as Kubernetes formats it.
fn fixed(number: f64, precision: usize) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "∞" } else { "-∞" }.into();
    }
    let text = format!("{:.precision$}", number.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
    let mut out = String::from(if number < 0.0 { "-" } else { "" });
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A double with an exponent, as Kubernetes formats it.
fn scientific(number: f64, precision: usize) -> String {
    if !number.is_finite() {
        return fixed(number, precision);
    }
    let text = format!("{number:.precision$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = exponent.strip_prefix('-').map_or(("", exponent), |digits| ("⁻", digits));
    let raised: String = format!("{digits:0>2}").chars().map(superscript).collect();
    format!("{mantissa}×10{sign}{raised}")
}

fn superscript(digit: char) -> char {
    match digit {
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => char::from_u32(0x2070 + digit.to_digit(10).unwrap_or(0)).unwrap_or(digit),
    }
}

fn shown(item: &Val<'_>, depth: usize) -> String {
    if depth > 16 {
        return String::new();
    }
    if let Val::String(text) = item
        && depth > 0
    {
        return quoted(text);
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
            .map(|(key, value)| format!("{}:{}", shown(key, depth + 1), shown(value, depth + 1)))
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

/// A text in double quotes, with the escapes Go's `%q` uses.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            other if u32::from(other) < 0x20 || other == '\u{7f}' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\x{:02x}", u32::from(other));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
