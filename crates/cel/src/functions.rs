//! The standard functions, and where the others are found.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::eval::{EvalError, Outcome};
use super::parse::Operator;
use super::schema::ListType;
use super::value::Val;
use super::{kubernetes, strings, time};

/// Global functions, with the least and greatest number of arguments.
const GLOBAL: &[(&str, usize, usize)] = &[
    ("size", 1, 1),
    ("int", 1, 1),
    ("uint", 1, 1),
    ("double", 1, 1),
    ("string", 1, 1),
    ("bool", 1, 1),
    ("bytes", 1, 1),
    ("type", 1, 1),
    ("dyn", 1, 1),
    ("timestamp", 1, 1),
    ("duration", 1, 1),
    ("matches", 2, 2),
    ("optional.of", 1, 1),
    ("optional.none", 0, 0),
    ("optional.ofNonZeroValue", 1, 1),
    ("sets.contains", 2, 2),
    ("sets.equivalent", 2, 2),
    ("sets.intersects", 2, 2),
    ("lists.range", 1, 1),
    ("strings.quote", 1, 1),
    ("jsonpatch.escapeKey", 1, 1),
    ("url", 1, 1),
    ("isURL", 1, 1),
    ("quantity", 1, 1),
    ("isQuantity", 1, 1),
    ("ip", 1, 1),
    ("isIP", 1, 1),
    ("ip.isCanonical", 1, 1),
    ("cidr", 1, 1),
    ("isCIDR", 1, 1),
    ("semver", 1, 2),
    ("isSemver", 1, 2),
    ("format.named", 1, 1),
    ("format.dns1123Label", 0, 0),
    ("format.dns1123Subdomain", 0, 0),
    ("format.dns1035Label", 0, 0),
    ("format.qualifiedName", 0, 0),
    ("format.dns1123LabelPrefix", 0, 0),
    ("format.dns1123SubdomainPrefix", 0, 0),
    ("format.dns1035LabelPrefix", 0, 0),
    ("format.labelValue", 0, 0),
    ("format.uri", 0, 0),
    ("format.uuid", 0, 0),
    ("format.byte", 0, 0),
    ("format.date", 0, 0),
    ("format.datetime", 0, 0),
];

/// Functions of a value, with the least and greatest number of further arguments.
const MEMBER: &[(&str, usize, usize)] = &[
    ("size", 0, 0),
    ("contains", 1, 1),
    ("startsWith", 1, 1),
    ("endsWith", 1, 1),
    ("matches", 1, 1),
    ("getFullYear", 0, 1),
    ("getMonth", 0, 1),
    ("getDate", 0, 1),
    ("getDayOfMonth", 0, 1),
    ("getDayOfWeek", 0, 1),
    ("getDayOfYear", 0, 1),
    ("getHours", 0, 1),
    ("getMinutes", 0, 1),
    ("getSeconds", 0, 1),
    ("getMilliseconds", 0, 1),
    ("hasValue", 0, 0),
    ("value", 0, 0),
    ("or", 1, 1),
    ("orValue", 1, 1),
    ("charAt", 1, 1),
    ("format", 1, 1),
    ("indexOf", 1, 2),
    ("lastIndexOf", 1, 2),
    ("join", 0, 1),
    ("lowerAscii", 0, 0),
    ("upperAscii", 0, 0),
    ("replace", 2, 3),
    ("split", 1, 2),
    ("substring", 1, 2),
    ("trim", 0, 0),
    ("reverse", 0, 0),
    ("find", 1, 1),
    ("findAll", 1, 2),
    ("isSorted", 0, 0),
    ("sum", 0, 0),
    ("min", 0, 0),
    ("max", 0, 0),
    ("slice", 2, 2),
    ("flatten", 0, 1),
    ("distinct", 0, 0),
    ("sort", 0, 0),
    ("first", 0, 0),
    ("last", 0, 0),
    ("getScheme", 0, 0),
    ("getHost", 0, 0),
    ("getHostname", 0, 0),
    ("getPort", 0, 0),
    ("getEscapedPath", 0, 0),
    ("getQuery", 0, 0),
    ("sign", 0, 0),
    ("isInteger", 0, 0),
    ("asInteger", 0, 0),
    ("asApproximateFloat", 0, 0),
    ("add", 1, 1),
    ("sub", 1, 1),
    ("isGreaterThan", 1, 1),
    ("isLessThan", 1, 1),
    ("compareTo", 1, 1),
    ("family", 0, 0),
    ("isUnspecified", 0, 0),
    ("isLoopback", 0, 0),
    ("isLinkLocalMulticast", 0, 0),
    ("isLinkLocalUnicast", 0, 0),
    ("isGlobalUnicast", 0, 0),
    ("containsIP", 1, 1),
    ("containsCIDR", 1, 1),
    ("ip", 0, 0),
    ("masked", 0, 0),
    ("prefixLength", 0, 0),
    ("validate", 1, 1),
    ("major", 0, 0),
    ("minor", 0, 0),
    ("patch", 0, 0),
];

/// Whether there is such a function with so many arguments.
pub(super) fn is_known(function: &str, is_member: bool, count: usize) -> bool {
    let functions = if is_member { MEMBER } else { GLOBAL };
    functions.iter().any(|(name, least, most)| *name == function && (*least..=*most).contains(&count))
}

/// Calls a function; a target comes first among the arguments.
pub(super) fn call<'v>(function: &str, is_member: bool, args: &[Val<'v>]) -> Outcome<'v> {
    match (function, args) {
        ("size", [value]) => {
            let size = value.size().ok_or_else(EvalError::no_overload)?;
            Ok(Val::Int(i64::try_from(size).unwrap_or(i64::MAX)))
        }
        ("type", [value]) => Ok(Val::Type(value.type_name())),
        ("dyn", [value]) => Ok(value.clone()),
        ("int" | "uint" | "double" | "bool" | "bytes" | "string" | "timestamp" | "duration", [value]) => {
            cast(function, value)
        }
        ("optional.of", [value]) => Ok(Val::optional(Some(value.clone()))),
        ("optional.none", []) => Ok(Val::Optional(None)),
        ("optional.ofNonZeroValue", [value]) => Ok(Val::optional((!value.is_zero()).then(|| value.clone()))),
        ("hasValue", [Val::Optional(inner)]) => Ok(Val::Bool(inner.is_some())),
        ("value", [Val::Optional(inner)]) => match inner {
            Some(value) => Ok((**value).clone()),
            None => Err(EvalError::new("optional.none() dereference")),
        },
        ("or", [Val::Optional(inner), other @ Val::Optional(_)]) => {
            Ok(if inner.is_some() { Val::Optional(inner.clone()) } else { other.clone() })
        }
        ("orValue", [Val::Optional(inner), other]) => {
            Ok(inner.as_ref().map_or_else(|| other.clone(), |value| (**value).clone()))
        }
        ("contains", [Val::String(text), Val::String(part)]) => Ok(Val::Bool(text.contains(part.as_ref()))),
        ("startsWith", [Val::String(text), Val::String(part)]) => {
            Ok(Val::Bool(text.starts_with(part.as_ref())))
        }
        ("endsWith", [Val::String(text), Val::String(part)]) => Ok(Val::Bool(text.ends_with(part.as_ref()))),
        ("matches", [Val::String(text), Val::String(pattern)]) => {
            Ok(Val::Bool(strings::regex(pattern)?.is_match(text)))
        }
        (name, _)
            if name.starts_with("get")
                && matches!(args.first(), Some(Val::Timestamp(_) | Val::Duration(_))) =>
        {
            time::part(name, args)
        }
        (name, _) if name.starts_with("sets.") => sets(name, args),
        _ => match strings::call(function, args) {
            Some(outcome) => outcome,
            None => {
                kubernetes::call(function, is_member, args).unwrap_or_else(|| Err(EvalError::no_overload()))
            }
        },
    }
}

/// `x in list` and `x in map`.
pub(super) fn is_in(item: &Val<'_>, of: &Val<'_>) -> Result<bool, EvalError> {
    if let (Val::String(key), Val::Json(Value::Object(fields), _)) = (item, of) {
        return Ok(fields.contains_key(key.as_ref()));
    }
    if let Some(items) = of.items() {
        return Ok(items.iter().any(|one| one.equals(item)));
    }
    let entries = of.entries().ok_or_else(EvalError::no_overload)?;
    Ok(entries.iter().any(|(key, _)| key.equals(item)))
}

pub(super) fn arithmetic<'v>(operator: Operator, left: &Val<'v>, right: &Val<'v>) -> Outcome<'v> {
    let overflow = || EvalError::new("integer overflow");
    match (operator, left, right) {
        (Operator::Add, Val::String(one), Val::String(two)) => Ok(Val::text(format!("{one}{two}"))),
        (Operator::Add, Val::Bytes(one), Val::Bytes(two)) => {
            Ok(Val::Bytes([one.as_ref(), two.as_ref()].concat().into()))
        }
        (Operator::Add, Val::Timestamp(time), Val::Duration(nanos))
        | (Operator::Add, Val::Duration(nanos), Val::Timestamp(time)) => {
            time.checked_add(SignedDuration::from_nanos(*nanos)).map(Val::Timestamp).map_err(|_| overflow())
        }
        (Operator::Add, Val::Duration(one), Val::Duration(two)) => {
            one.checked_add(*two).map(Val::Duration).ok_or_else(overflow)
        }
        (Operator::Subtract, Val::Timestamp(time), Val::Duration(nanos)) => {
            time.checked_sub(SignedDuration::from_nanos(*nanos)).map(Val::Timestamp).map_err(|_| overflow())
        }
        (Operator::Subtract, Val::Timestamp(one), Val::Timestamp(two)) => {
            let nanos = one.as_nanosecond() - two.as_nanosecond();
            i64::try_from(nanos).map(Val::Duration).map_err(|_| overflow())
        }
        (Operator::Subtract, Val::Duration(one), Val::Duration(two)) => {
            one.checked_sub(*two).map(Val::Duration).ok_or_else(overflow)
        }
        (_, Val::Int(one), Val::Int(two)) => match operator {
            Operator::Add => one.checked_add(*two),
            Operator::Subtract => one.checked_sub(*two),
            Operator::Multiply => one.checked_mul(*two),
            Operator::Divide if *two == 0 => return Err(EvalError::new("division by zero")),
            Operator::Divide => one.checked_div(*two),
            _ if *two == 0 => return Err(EvalError::new("modulus by zero")),
            _ => one.checked_rem(*two),
        }
        .map(Val::Int)
        .ok_or_else(overflow),
        (_, Val::Uint(one), Val::Uint(two)) => match operator {
            Operator::Add => one.checked_add(*two),
            Operator::Subtract => one.checked_sub(*two),
            Operator::Multiply => one.checked_mul(*two),
            Operator::Divide if *two == 0 => return Err(EvalError::new("division by zero")),
            Operator::Divide => one.checked_div(*two),
            _ if *two == 0 => return Err(EvalError::new("modulus by zero")),
            _ => one.checked_rem(*two),
        }
        .map(Val::Uint)
        .ok_or_else(|| EvalError::new("unsigned integer overflow")),
        (_, Val::Double(one), Val::Double(two)) => match operator {
            Operator::Add => Ok(Val::Double(one + two)),
            Operator::Subtract => Ok(Val::Double(one - two)),
            Operator::Multiply => Ok(Val::Double(one * two)),
            Operator::Divide => Ok(Val::Double(one / two)),
            _ => Err(EvalError::no_overload()),
        },
        (Operator::Add, one, two) => match (one.items(), two.items()) {
            (Some(one_items), Some(two_items)) => Ok(joined(one, &one_items, &two_items)),
            _ => Err(EvalError::no_overload()),
        },
        _ => Err(EvalError::no_overload()),
    }
}

/// Lists are joined; sets are united; lists with keys keep their order and take the new values.
fn joined<'v>(left: &Val<'v>, one: &[Val<'v>], two: &[Val<'v>]) -> Val<'v> {
    let schema = match left {
        Val::Json(_, Some(schema)) => schema.list_type().clone(),
        _ => ListType::Atomic,
    };
    let mut out = one.to_vec();
    for item in two {
        let same = match &schema {
            ListType::Atomic => None,
            ListType::Set => out.iter().position(|known| known.equals(item)),
            ListType::Map(keys) => out.iter().position(|known| {
                keys.iter().all(|key| {
                    let at = |value: &Val<'v>| super::access::field(value, key).ok().flatten();
                    matches!((at(known), at(item)), (Some(one), Some(two)) if one.equals(&two))
                })
            }),
        };
        match same.and_then(|at| out.get_mut(at)) {
            Some(known) => *known = item.clone(),
            None => out.push(item.clone()),
        }
    }
    Val::list(out)
}

/// A value as text, as `string()` gives it.
pub(super) fn to_text(value: &Val<'_>) -> Option<String> {
    Some(match value {
        Val::String(text) => text.to_string(),
        Val::Bool(value) => value.to_string(),
        Val::Int(number) => number.to_string(),
        Val::Uint(number) => number.to_string(),
        Val::Double(number) => double_text(*number),
        Val::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
        Val::Timestamp(time) => time.to_string(),
        Val::Duration(nanos) => time::duration_text(*nanos),
        Val::Ip(address) => address.to_string(),
        Val::Cidr(address, bits) => format!("{address}/{bits}"),
        Val::Quantity(quantity) => quantity.to_string(),
        Val::Url(url) => url.to_string(),
        Val::Semver(version) => version.to_string(),
        _ => return None,
    })
}

/// A double as Go's `%g` writes it.
fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "ranges are checked first, and doubles are as exact as doubles are"
)]
fn cast<'v>(function: &str, value: &Val<'v>) -> Outcome<'v> {
    let range = || EvalError::new("integer overflow");
    let unsigned_range = || EvalError::new("unsigned integer overflow");
    let unreadable = |kind: &str| EvalError::new(format!("type conversion error from 'string' to '{kind}'"));
    match (function, value) {
        ("int", Val::Int(number)) => Ok(Val::Int(*number)),
        ("int", Val::Uint(number)) => i64::try_from(*number).map(Val::Int).map_err(|_| range()),
        ("int", Val::Double(number)) if number.abs() < 9.223_372_036_854_775e18 => {
            Ok(Val::Int(*number as i64))
        }
        ("int", Val::Double(_)) => Err(range()),
        ("int", Val::String(text)) => text.parse().map(Val::Int).map_err(|_| unreadable("int")),
        ("int", Val::Timestamp(time)) => Ok(Val::Int(time.as_second())),
        ("int", Val::Duration(nanos)) => Ok(Val::Int(*nanos)),
        ("uint", Val::Uint(number)) => Ok(Val::Uint(*number)),
        ("uint", Val::Int(number)) => u64::try_from(*number).map(Val::Uint).map_err(|_| unsigned_range()),
        ("uint", Val::Double(number)) if (0.0..1.844_674_407_370_955e19).contains(number) => {
            Ok(Val::Uint(*number as u64))
        }
        ("uint", Val::Double(_)) => Err(unsigned_range()),
        ("uint", Val::String(text)) => text.parse().map(Val::Uint).map_err(|_| unreadable("uint")),
        ("double", Val::Double(number)) => Ok(Val::Double(*number)),
        ("double", Val::Int(number)) => Ok(Val::Double(*number as f64)),
        ("double", Val::Uint(number)) => Ok(Val::Double(*number as f64)),
        ("double", Val::String(text)) => text.parse().map(Val::Double).map_err(|_| unreadable("double")),
        ("bool", Val::Bool(value)) => Ok(Val::Bool(*value)),
        ("bool", Val::String(text)) => match text.as_ref() {
            "true" | "True" | "TRUE" | "t" | "1" => Ok(Val::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(Val::Bool(false)),
            _ => Err(unreadable("bool")),
        },
        ("bytes", Val::Bytes(bytes)) => Ok(Val::Bytes(bytes.clone())),
        ("bytes", Val::String(text)) => Ok(Val::Bytes(text.as_bytes().into())),
        ("string", Val::String(text)) => Ok(Val::String(Cow::clone(text))),
        ("string", value) => to_text(value).map(Val::text).ok_or_else(EvalError::no_overload),
        ("timestamp", Val::Timestamp(time)) => Ok(Val::Timestamp(*time)),
        ("timestamp", Val::Int(seconds)) => {
            Timestamp::from_second(*seconds).map(Val::Timestamp).map_err(|_| range())
        }
        ("timestamp", Val::String(text)) => {
            text.parse().map(Val::Timestamp).map_err(|_| unreadable("google.protobuf.Timestamp"))
        }
        ("duration", Val::Duration(nanos)) => Ok(Val::Duration(*nanos)),
        ("duration", Val::String(text)) => {
            time::duration(text).map(Val::Duration).ok_or_else(|| unreadable("google.protobuf.Duration"))
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn sets<'v>(function: &str, args: &[Val<'v>]) -> Outcome<'v> {
    let [one, two] = args else { return Err(EvalError::no_overload()) };
    let (Some(one), Some(two)) = (one.items(), two.items()) else { return Err(EvalError::no_overload()) };
    let holds = |list: &[Val<'v>], item: &Val<'v>| list.iter().any(|other| other.equals(item));
    Ok(Val::Bool(match function {
        "sets.contains" => two.iter().all(|item| holds(&one, item)),
        "sets.equivalent" => {
            two.iter().all(|item| holds(&one, item)) && one.iter().all(|item| holds(&two, item))
        }
        _ => one.iter().any(|item| holds(&two, item)),
    }))
}
