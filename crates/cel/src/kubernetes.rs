//! Kubernetes' own types: quantities, addresses, URLs, versions, formats.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

use quintet_api::Quantity;
use quintet_api::names::problems as names;

use super::eval::{EvalError, Outcome};
use super::format;
use super::value::Val;

/// An absolute URL or path, in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
    rest: String,
}

impl Url {
    fn parse(text: &str) -> Option<Self> {
        if text.chars().any(|one| one.is_whitespace() || one.is_control()) {
            return None;
        }
        let (body, fragment) = text.split_once('#').map_or((text, ""), |(body, rest)| (body, rest));
        let (body, query) = body.split_once('?').map_or((body, ""), |(body, query)| (body, query));
        let rest = if fragment.is_empty() { String::new() } else { format!("#{fragment}") };
        let url = |scheme: &str, host: &str, path: &str| Self {
            scheme: scheme.into(),
            host: host.into(),
            path: path.into(),
            query: query.into(),
            rest: rest.clone(),
        };
        if body.starts_with('/') {
            return Some(url("", "", body));
        }
        let (scheme, after) = body.split_once(':')?;
        let is_scheme = scheme.starts_with(|one: char| one.is_ascii_alphabetic())
            && scheme.chars().all(|one| one.is_ascii_alphanumeric() || "+-.".contains(one));
        if !is_scheme {
            return None;
        }
        let Some(after) = after.strip_prefix("//") else { return Some(url(scheme, "", after)) };
        let at = after.find('/').unwrap_or(after.len());
        let (authority, path) = after.split_at_checked(at)?;
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        Some(url(scheme, host, path))
    }

    fn hostname(&self) -> &str {
        if let Some(inner) = self.host.strip_prefix('[') {
            return inner.split(']').next().unwrap_or_default();
        }
        self.host.rsplit_once(':').map_or(&self.host, |(name, _)| name)
    }

    fn port(&self) -> &str {
        self.host.rsplit_once(':').map_or("", |(_, port)| if port.contains(']') { "" } else { port })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(out, "{}://", self.scheme)?;
        }
        write!(out, "{}{}", self.host, self.path)?;
        if !self.query.is_empty() {
            write!(out, "?{}", self.query)?;
        }
        out.write_str(&self.rest)
    }
}

/// A semantic version.
#[derive(Clone, Debug)]
pub struct Semver {
    numbers: [u64; 3],
    pre: String,
    build: String,
}

impl Semver {
    pub(super) fn parse(text: &str, is_lenient: bool) -> Option<Self> {
        let text = if is_lenient { text.strip_prefix('v').unwrap_or(text) } else { text };
        let (text, build) = text.split_once('+').map_or((text, ""), |(text, build)| (text, build));
        let (core, pre) = text.split_once('-').map_or((text, ""), |(core, pre)| (core, pre));
        let mut numbers = [0; 3];
        let mut count = 0;
        for part in core.split('.') {
            let is_padded = part.len() > 1 && part.starts_with('0');
            if part.is_empty()
                || (is_padded && !is_lenient)
                || !part.bytes().all(|byte| byte.is_ascii_digit())
            {
                return None;
            }
            *numbers.get_mut(count)? = part.parse().ok()?;
            count += 1;
        }
        (count == 3 || is_lenient).then(|| Self { numbers, pre: pre.into(), build: build.into() })
    }

    /// Order of versions: a pre-release comes before its release.
    pub fn compare(&self, other: &Self) -> Ordering {
        let parts = |text: &str| -> Vec<String> { text.split('.').map(Into::into).collect() };
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let (one, two) = (parts(&self.pre), parts(&other.pre));
                for (one, two) in one.iter().zip(&two) {
                    let order = match (one.parse::<u64>(), two.parse::<u64>()) {
                        (Ok(one), Ok(two)) => one.cmp(&two),
                        (Ok(_), Err(_)) => Ordering::Less,
                        (Err(_), Ok(_)) => Ordering::Greater,
                        (Err(_), Err(_)) => one.cmp(two),
                    };
                    if order.is_ne() {
                        return order;
                    }
                }
                one.len().cmp(&two.len())
            }
        })
    }
}

impl fmt::Display for Semver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(out, "{major}.{minor}.{patch}")?;
        if !self.pre.is_empty() {
            write!(out, "-{}", self.pre)?;
        }
        if !self.build.is_empty() {
            write!(out, "+{}", self.build)?;
        }
        Ok(())
    }
}

const FORMATS: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

fn check_format(format: &str, text: &str) -> Vec<String> {
    let masked = || text.strip_suffix('-').map_or_else(|| text.to_owned(), |rest| format!("{rest}a"));
    match format {
        "dns1123Label" => names::dns_label(text),
        "dns1123LabelPrefix" => names::dns_label(&masked()),
        "dns1123Subdomain" => names::dns_subdomain(text),
        "dns1123SubdomainPrefix" => names::dns_subdomain(&masked()),
        "dns1035Label" => names::dns1035_label(text),
        "dns1035LabelPrefix" => names::dns1035_label(&masked()),
        "qualifiedName" => names::qualified_name(text),
        "labelValue" => names::label_value(text),
        other => {
            let known = if other == "datetime" { "date-time" } else { other };
            if format::is_valid(known, text) { Vec::new() } else { vec![format!("invalid {other}")] }
        }
    }
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    // Addresses in two notations at once confuse those who compare texts.
    let is_mapped = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    (!is_mapped).then_some(address)
}

fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address = parse_ip(address)?;
    let bits = if bits.len() > 1 && bits.starts_with('0') { None } else { bits.parse::<u8>().ok() }?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    let mask = |width: u32, value: u128| {
        if bits == 0 { 0 } else { value >> (width - u32::from(bits)) << (width - u32::from(bits)) }
    };
    match address {
        IpAddr::V4(address) => {
            let value = mask(32, u128::from(address.to_bits()));
            IpAddr::V4(std::net::Ipv4Addr::from_bits(u32::try_from(value).unwrap_or(0)))
        }
        IpAddr::V6(address) => IpAddr::V6(std::net::Ipv6Addr::from_bits(mask(128, address.to_bits()))),
    }
}

fn contains(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    network.is_ipv4() == address.is_ipv4() && bits_of(masked(network, bits)) == bits_of(masked(address, bits))
}

/// Calls a function of Kubernetes' own; `None` if there is none for these arguments.
pub(super) fn call<'v>(function: &str, is_member: bool, args: &[Val<'v>]) -> Option<Outcome<'v>> {
    if !is_member {
        return global(function, args);
    }
    match args {
        [Val::Quantity(quantity), rest @ ..] => of_quantity(function, *quantity, rest),
        [Val::Url(url), ..] => of_url(function, url),
        [Val::Ip(address)] => of_ip(function, *address),
        [Val::Cidr(address, bits), rest @ ..] => of_cidr(function, *address, *bits, rest),
        [Val::Semver(version), rest @ ..] => of_version(function, version, rest),
        [Val::Format(format), Val::String(text)] if function == "validate" => {
            let problems = check_format(format, text);
            let problems = problems.into_iter().map(Val::text).collect::<Vec<_>>();
            Some(Ok(Val::optional((!problems.is_empty()).then(|| Val::list(problems)))))
        }
        _ => None,
    }
}

fn global<'v>(function: &str, args: &[Val<'v>]) -> Option<Outcome<'v>> {
    if let Some(name) = function.strip_prefix("format.") {
        let name = match (name, args) {
            ("named", [Val::String(name)]) => name.as_ref(),
            (name, _) => name,
        };
        let known = FORMATS.into_iter().find(|known| *known == name);
        return Some(Ok(if function == "format.named" {
            Val::optional(known.map(Val::Format))
        } else {
            Val::Format(known?)
        }));
    }
    let (Some(Val::String(text)), rest) = (args.first(), args.get(1..).unwrap_or_default()) else {
        return match (function, args) {
            ("isURL" | "isQuantity" | "isIP" | "isCIDR" | "isSemver", _) => Some(Ok(Val::Bool(false))),
            _ => None,
        };
    };
    let is_lenient = matches!(rest, [Val::Bool(true)]);
    let fail = |what: String| Some(Err(EvalError::new(what)));
    match function {
        "url" => match Url::parse(text) {
            Some(url) => Some(Ok(Val::Url(Rc::new(url)))),
            None => fail(format!(
                "URL parse error during conversion from string: parse \"{text}\": invalid URI for request"
            )),
        },
        "isURL" => Some(Ok(Val::Bool(Url::parse(text).is_some()))),
        "quantity" => match text.parse::<Quantity>() {
            Ok(quantity) => Some(Ok(Val::Quantity(quantity))),
            Err(_) => fail(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                    .into(),
            ),
        },
        "isQuantity" => Some(Ok(Val::Bool(text.parse::<Quantity>().is_ok()))),
        "ip" => match parse_ip(text) {
            Some(address) => Some(Ok(Val::Ip(address))),
            None => fail(format!("IP Address \"{text}\" parse error during conversion from string")),
        },
        "isIP" => Some(Ok(Val::Bool(parse_ip(text).is_some()))),
        "ip.isCanonical" => match parse_ip(text) {
            Some(address) => Some(Ok(Val::Bool(address.to_string() == text.as_ref()))),
            None => fail(format!("IP Address \"{text}\" parse error during conversion from string")),
        },
        "cidr" => match parse_cidr(text) {
            Some((address, bits)) => Some(Ok(Val::Cidr(address, bits))),
            None => fail("network address parse error during conversion from string".into()),
        },
        "isCIDR" => Some(Ok(Val::Bool(parse_cidr(text).is_some()))),
        "semver" => match Semver::parse(text, is_lenient) {
            Some(version) => Some(Ok(Val::Semver(Rc::new(version)))),
            None => fail(format!("semver parse error: {text}")),
        },
        "isSemver" => Some(Ok(Val::Bool(Semver::parse(text, is_lenient).is_some()))),
        _ => None,
    }
}

fn of_quantity<'v>(function: &str, quantity: Quantity, args: &[Val<'v>]) -> Option<Outcome<'v>> {
    let is_whole = Quantity::from_units(quantity.units(), quantity.notation()) == quantity;
    let sign = |order: Ordering| Val::Int(i64::from(order as i8));
    Some(Ok(match (function, args) {
        ("sign", []) => sign(quantity.cmp(&Quantity::ZERO)),
        ("isInteger", []) => Val::Bool(is_whole),
        ("asInteger", []) if is_whole => Val::Int(quantity.units()),
        ("asInteger", []) => return Some(Err(EvalError::new("cannot convert value to integer"))),
        #[expect(clippy::cast_precision_loss, reason = "approximate by name")]
        ("asApproximateFloat", []) => Val::Double(quantity.millis() as f64 / 1000.0),
        ("add", [Val::Quantity(other)]) => Val::Quantity(quantity + *other),
        ("add", [Val::Int(other)]) => {
            Val::Quantity(quantity + Quantity::from_units(*other, quantity.notation()))
        }
        ("sub", [Val::Quantity(other)]) => Val::Quantity(quantity - *other),
        ("sub", [Val::Int(other)]) => {
            Val::Quantity(quantity - Quantity::from_units(*other, quantity.notation()))
        }
        ("isGreaterThan", [Val::Quantity(other)]) => Val::Bool(quantity > *other),
        ("isLessThan", [Val::Quantity(other)]) => Val::Bool(quantity < *other),
        ("compareTo", [Val::Quantity(other)]) => sign(quantity.cmp(other)),
        _ => return None,
    }))
}

fn of_url<'v>(function: &str, url: &Url) -> Option<Outcome<'v>> {
    Some(Ok(match function {
        "getScheme" => Val::text(&url.scheme),
        "getHost" => Val::text(&url.host),
        "getHostname" => Val::text(url.hostname()),
        "getPort" => Val::text(url.port()),
        "getEscapedPath" => Val::text(&url.path),
        "getQuery" => {
            let mut entries: Vec<(Val<'v>, Vec<Val<'v>>)> = Vec::new();
            for pair in url.query.split('&').filter(|pair| !pair.is_empty()) {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                let (key, value) = (Val::text(unescape(key)), Val::text(unescape(value)));
                match entries.iter_mut().find(|(known, _)| known.equals(&key)) {
                    Some((_, values)) => values.push(value),
                    None => entries.push((key, vec![value])),
                }
            }
            Val::Map(Rc::new(entries.into_iter().map(|(key, values)| (key, Val::list(values))).collect()))
        }
        _ => return None,
    }))
}

fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let rest = bytes.as_slice_hint();
                match rest {
                    Some(byte) => {
                        out.push(byte);
                        bytes.nth(1);
                    }
                    None => out.push(b'%'),
                }
            }
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

trait Hint {
    fn as_slice_hint(&self) -> Option<u8>;
}

impl Hint for std::str::Bytes<'_> {
    fn as_slice_hint(&self) -> Option<u8> {
        let mut ahead = self.clone();
        let digits = [ahead.next()?, ahead.next()?];
        u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()
    }
}

fn of_ip<'v>(function: &str, address: IpAddr) -> Option<Outcome<'v>> {
    let is_local_multicast = match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => address.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
    };
    let is_local_unicast = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    Some(Ok(match function {
        "family" => Val::Int(if address.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Val::Bool(address.is_unspecified()),
        "isLoopback" => Val::Bool(address.is_loopback()),
        "isLinkLocalMulticast" => Val::Bool(is_local_multicast),
        "isLinkLocalUnicast" => Val::Bool(is_local_unicast),
        "isGlobalUnicast" => Val::Bool(
            !(address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || is_local_unicast
                || is_broadcast),
        ),
        _ => return None,
    }))
}

fn of_cidr<'v>(function: &str, address: IpAddr, bits: u8, args: &[Val<'v>]) -> Option<Outcome<'v>> {
    let as_ip = |value: &Val<'v>| match value {
        Val::Ip(address) => Some(*address),
        Val::String(text) => parse_ip(text),
        _ => None,
    };
    let as_cidr = |value: &Val<'v>| match value {
        Val::Cidr(address, bits) => Some((*address, *bits)),
        Val::String(text) => parse_cidr(text),
        _ => None,
    };
    let fail = || Err(EvalError::new("network address parse error during conversion from string"));
    Some(match (function, args) {
        ("ip", []) => Ok(Val::Ip(address)),
        ("masked", []) => Ok(Val::Cidr(masked(address, bits), bits)),
        ("prefixLength", []) => Ok(Val::Int(i64::from(bits))),
        ("containsIP", [other]) => match as_ip(other) {
            Some(other) => Ok(Val::Bool(contains(address, bits, other))),
            None => fail(),
        },
        ("containsCIDR", [other]) => match as_cidr(other) {
            Some((other, others)) => Ok(Val::Bool(others >= bits && contains(address, bits, other))),
            None => fail(),
        },
        _ => return None,
    })
}

fn of_version<'v>(function: &str, version: &Semver, args: &[Val<'v>]) -> Option<Outcome<'v>> {
    let [major, minor, patch] = version.numbers;
    let number = |number: u64| Val::Int(i64::try_from(number).unwrap_or(i64::MAX));
    Some(Ok(match (function, args) {
        ("major", []) => number(major),
        ("minor", []) => number(minor),
        ("patch", []) => number(patch),
        ("isGreaterThan", [Val::Semver(other)]) => Val::Bool(version.compare(other).is_gt()),
        ("isLessThan", [Val::Semver(other)]) => Val::Bool(version.compare(other).is_lt()),
        ("compareTo", [Val::Semver(other)]) => Val::Int(i64::from(version.compare(other) as i8)),
        _ => return None,
    }))
}
