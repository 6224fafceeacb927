//! What keeps a text from being a name or label of Kubernetes, in the words of its `validation` package.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn is_low(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| is_low(*byte))
        && bytes.last().is_some_and(|byte| is_low(*byte))
        && bytes.iter().all(|byte| is_low(*byte) || *byte == b'-')
}

fn is_name_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Adds to `problems` if a text is longer than `max` bytes.
pub fn length(text: &str, max: usize, problems: &mut Vec<String>) {
    if text.len() > max {
        problems.push(format!("must be no more than {max} bytes"));
    }
}

/// What keeps a text from being a DNS subdomain.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    length(text, 253, &mut problems);
    if !text.split('.').all(is_label_text) {
        problems.push(SUBDOMAIN.into());
    }
    problems
}

/// What keeps a text from being a DNS label.
pub fn dns_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    length(text, 63, &mut problems);
    if !is_label_text(text) {
        if dns_subdomain(text).is_empty() {
            problems.push("must not contain dots".into());
        } else {
            problems.push(LABEL.into());
        }
    }
    problems
}

/// What keeps a text from being a DNS label that starts with a letter.
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    length(text, 63, &mut problems);
    if !is_label_text(text) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        problems.push(LABEL_1035.into());
    }
    problems
}

/// What keeps a text from being a qualified name such as a label's key.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".into());
            } else {
                problems.extend(
                    dns_subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".into());
    }
    if !is_name_text(name) {
        problems.push(QUALIFIED.into());
    }
    problems
}

/// What keeps a text from being the value of a label.
pub fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    length(text, 63, &mut problems);
    if !text.is_empty() && !is_name_text(text) {
        problems.push(LABEL_VALUE.into());
    }
    problems
}

/// What is wrong with the name of a port.
pub fn port_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 15 {
        problems.push("must be no more than 15 characters".to_owned());
    }
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|c| c.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        problems.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        problems.push("must not begin or end with a hyphen".to_owned());
    }
    problems
}
