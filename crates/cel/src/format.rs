//! Formats of texts. Unknown formats are no formats.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use quintet_api::names::problems;
use regex::Regex;

/// The formats that are checked.
pub const KNOWN: [&str; 30] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "date-time",
    "datetime",
    "int32",
    "int64",
    "float",
    "k8s-short-name",
    "k8s-long-name",
];

/// Whether a text has a format.
pub fn is_valid(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_duration(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => matches(&MAC, text),
        "uuid" => matches(&UUID, text),
        "uuid3" | "uuid4" | "uuid5" => {
            matches(&UUID, text) && text.replace('-', "").get(12..13) == format.get(4..5)
        }
        "uri" => matches(&URI, text),
        "email" => matches(&EMAIL, text),
        "hostname" => text.len() <= 253 && matches(&HOSTNAME, text),
        "hexcolor" => matches(&HEX_COLOR, text),
        "rgbcolor" => matches(&RGB_COLOR, text),
        "ssn" => matches(&SSN, text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "creditcard" => {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            (12..=19).contains(&digits.len())
        }
        "isbn" => is_isbn(text, &[10, 13]),
        "isbn10" => is_isbn(text, &[10]),
        "isbn13" => is_isbn(text, &[13]),
        "k8s-short-name" => problems::dns_label(text).is_empty(),
        "k8s-long-name" => problems::dns_subdomain(text).is_empty(),
        _ => true,
    }
}

type Pattern = LazyLock<Option<Regex>>;

static MAC: Pattern = LazyLock::new(|| Regex::new("^([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}$").ok());
static UUID: Pattern = LazyLock::new(|| {
    Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$").ok()
});
static URI: Pattern = LazyLock::new(|| Regex::new(r"^([a-zA-Z][a-zA-Z0-9+.-]*:[^\s]*|/[^\s]*)$").ok());
static EMAIL: Pattern = LazyLock::new(|| Regex::new(r"^[^@\s<>]+@[^@\s<>]+$").ok());
static HOSTNAME: Pattern = LazyLock::new(|| {
    Regex::new(
        r"^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*\.?$",
    )
    .ok()
});
static HEX_COLOR: Pattern = LazyLock::new(|| Regex::new("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").ok());
static RGB_COLOR: Pattern = LazyLock::new(|| {
    Regex::new(r"^rgb\(\s*([0-9]{1,3}%?)\s*,\s*([0-9]{1,3}%?)\s*,\s*([0-9]{1,3}%?)\s*\)$").ok()
});
static SSN: Pattern = LazyLock::new(|| Regex::new("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$").ok());
static DURATION_WORDS: Pattern = LazyLock::new(|| {
    Regex::new(r"^\s*\d+(\.\d+)?\s*(ns|us|µs|ms|s|sec|secs|m|min|mins|h|hr|hrs|d|day|days|w|wk|wks|week|weeks|hour|hours|minute|minutes|second|seconds)\s*$").ok()
});

fn matches(pattern: &Pattern, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

fn is_duration(text: &str) -> bool {
    super::duration(text).is_some() || matches(&DURATION_WORDS, text)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(bits) = bits.parse::<u8>() else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

fn is_isbn(text: &str, lengths: &[usize]) -> bool {
    let digits = text.chars().filter(|character| character.is_ascii_digit() || *character == 'X').count();
    lengths.contains(&digits)
        && text.chars().all(|character| character.is_ascii_digit() || "X- ".contains(character))
}
