//! Names of objects, labels and the like: what they must look like, in Kubernetes' words.

use std::net::{IpAddr, Ipv4Addr};

use quintet_api::names::problems::length;
pub use quintet_api::names::problems::{
    dns_label, dns_subdomain, dns1035_label, label_value, port_name, qualified_name,
};

const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const ENV_NAME: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

/// Whether a text is a DNS label of at most 63 bytes.
pub fn is_dns_label(text: &str) -> bool {
    dns_label(text).is_empty()
}

/// Whether a text is a DNS subdomain of at most 253 bytes.
pub fn is_dns_subdomain(text: &str) -> bool {
    dns_subdomain(text).is_empty()
}

/// What keeps a text from being part of a path.
pub fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|bad| text.contains(*bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// What keeps a text from being a key of a ConfigMap or Secret.
pub fn config_key(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    length(text, 253, &mut problems);
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        problems.push(CONFIG_KEY.into());
    }
    if text == "." || text == ".." {
        problems.push(format!("must not be '{text}'"));
    } else if text.starts_with("..") {
        problems.push("must not start with '..'".into());
    }
    problems
}

/// What keeps a text from being the name of an environment variable.
pub fn env_name(text: &str) -> Vec<String> {
    let is_fine = !text.is_empty() && text.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'=');
    if is_fine { Vec::new() } else { vec![ENV_NAME.into()] }
}

/// What is wrong with an IP address that is compared as text, as `IsValidIP` of apimachinery checks it.
pub fn ip_address(text: &str) -> Vec<String> {
    let problem = match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            "must not be an IPv4-mapped IPv6 address".to_owned()
        }
        Ok(address) if address.to_string() == text => return Vec::new(),
        Ok(address) => format!("must be in canonical form (\"{address}\")"),
        Err(_) if without_leading_zeros(text).parse::<Ipv4Addr>().is_ok() => {
            "must not have leading 0s".to_owned()
        }
        Err(_) => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned(),
    };
    vec![problem]
}

fn without_leading_zeros(text: &str) -> String {
    let part = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    text.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// Whether a text is the name of a kernel parameter, with dots or slashes between its parts.
pub fn is_sysctl(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|byte| is_plain(*byte))
            && bytes.last().is_some_and(|byte| is_plain(*byte))
            && bytes.iter().all(|byte| is_plain(*byte) || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(is_part)
}
