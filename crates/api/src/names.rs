//! Names that fit: shortening, and short hashes that keep shortened names apart.

pub mod problems;

use std::hash::{DefaultHasher, Hash, Hasher};

use sha1::{Digest as _, Sha1};

/// The longest DNS label, and so the longest label value and Service name.
pub const MAX_LABEL: usize = 63;
/// The longest DNS subdomain, and so the longest name of most objects.
pub const MAX_SUBDOMAIN: usize = 253;

/// Letters and digits that never make a word, as Kubernetes uses for generated names.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

const BASE32_HEX: &[u8; 32] = b"0123456789ABCDEFGHIJKLMNOPQRSTUV";

/// Whether a text is a DNS label, as the names of namespaces are.
pub fn is_dns_label(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends_well = !name.starts_with('-') && !name.ends_with('-');
    !name.is_empty() && name.len() <= MAX_LABEL && ends_well && name.bytes().all(is_inner)
}

/// Whether a text is a DNS label that begins with a letter, as the names of Services are.
pub fn is_dns_1035_label(name: &str) -> bool {
    is_dns_label(name) && name.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Whether a text is the key of a label or annotation: a word, maybe after a DNS subdomain and a slash.
pub fn is_qualified_name(name: &str) -> bool {
    let is_prefix = |prefix: &str| prefix.len() <= MAX_SUBDOMAIN && prefix.split('.').all(is_dns_label);
    match name.split_once('/') {
        Some((prefix, word)) => is_prefix(prefix) && is_word(word),
        None => is_word(name),
    }
}

/// Whether a text is the value of a label.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_word(value)
}

fn is_word(word: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let mut bytes = word.bytes();
    word.len() <= MAX_LABEL
        && word.bytes().all(is_inner)
        && is_end(bytes.next())
        && is_end(word.bytes().next_back())
}

/// At most the first `max` bytes, never splitting a character.
pub fn head(name: &str, max: usize) -> &str {
    name.get(..name.floor_char_boundary(max)).unwrap_or(name)
}

/// At most the last `max` bytes, never splitting a character.
pub fn tail(name: &str, max: usize) -> &str {
    name.get(name.ceil_char_boundary(name.len().saturating_sub(max))..).unwrap_or(name)
}

/// The first `length` hexadecimal digits (40 at most) of the SHA-1 of a text.
pub fn short_hash(text: &str, length: usize) -> String {
    let digits = Sha1::digest(text).into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).take(length).collect()
}

/// `<prefix>-<hash>`, the prefix shortened so that the hash of `identity` always fits into `max` bytes.
pub fn with_hash(prefix: &str, identity: &str, hash_length: usize, max: usize) -> String {
    let hash = short_hash(identity, hash_length);
    format!("{}-{hash}", head(prefix, max.saturating_sub(hash.len() + 1)))
}

/// Five characters that look random and depend on nothing but `source`.
pub fn suffix(source: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    let mut rest = hasher.finish();
    let alphabet = SUFFIX_ALPHABET.len() as u64;
    (0..SUFFIX_LENGTH)
        .map(|_| {
            let index = usize::try_from(rest % alphabet).unwrap_or_default();
            rest /= alphabet;
            char::from(SUFFIX_ALPHABET.get(index).copied().unwrap_or(b'x'))
        })
        .collect()
}

/// The SHA-1 of some bytes in base 32 with the "extended hex" alphabet, 32 upper-case characters.
pub fn base32_hash(bytes: &[u8]) -> String {
    let digest = Sha1::digest(bytes);
    // 160 bits are exactly 32 groups of five, so that no padding is ever needed.
    (0..32)
        .map(|group| {
            let bits = (0..5).fold(0_usize, |value, bit| {
                let position = group * 5 + bit;
                let byte = digest.get(position / 8).copied().unwrap_or_default();
                value << 1 | usize::from(byte >> (7 - position % 8) & 1)
            });
            char::from(BASE32_HEX.get(bits).copied().unwrap_or(b'0'))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hashes_are_the_published_ones() {
        // SHA-1 of "abc" is the first example of the standard.
        assert_eq!(short_hash("abc", 40), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(short_hash("abc", 5), "a9993");
        assert_eq!(base32_hash(b"abc"), "L6CJSDI70Q0MLEHU4LONGK62DIED1M4T");
    }

    #[test]
    fn a_dns_label_is_lower_case_and_short() {
        let longest = "a".repeat(63);
        assert!(["a", "a-1", "0", longest.as_str()].into_iter().all(is_dns_label));
        let too_long = "a".repeat(64);
        assert!(!["", "-a", "a-", "A", "a.b", "a_b", "ä", too_long.as_str()].into_iter().any(is_dns_label));
    }

    #[test]
    fn names_of_services_begin_with_a_letter() {
        assert!(is_dns_1035_label("a1") && !is_dns_1035_label("1a") && !is_dns_1035_label(""));
    }

    #[test]
    fn keys_and_values_of_labels_are_words() {
        for name in ["a", "A.b_c-1", "ray.io/cluster", "a.b/C"] {
            assert!(is_qualified_name(name), "{name}");
        }
        let long = "a".repeat(64);
        for name in ["", "-a", "a-", "/a", "a/", "a/b/c", "A.b/c", "a b", long.as_str()] {
            assert!(!is_qualified_name(name), "{name}");
        }
        assert!(is_label_value("") && is_label_value("1.2") && !is_label_value("a/b"));
    }

    #[test]
    fn suffixes_are_of_the_alphabet_and_repeatable() {
        let one = suffix(("uid", 1));
        assert_eq!(one.len(), 5);
        assert!(one.bytes().all(|byte| SUFFIX_ALPHABET.contains(&byte)));
        assert_eq!(one, suffix(("uid", 1)));
        assert_ne!(one, suffix(("uid", 2)));
    }

    #[test]
    fn long_names_that_differ_at_the_end_stay_apart() {
        let (a, b) = ("x".repeat(300) + "a", "x".repeat(300) + "b");
        let (short_a, short_b) = (with_hash(&a, &a, 5, MAX_LABEL), with_hash(&b, &b, 5, MAX_LABEL));
        assert_ne!(short_a, short_b);
        assert_eq!(short_a.len(), MAX_LABEL);
    }

    proptest! {
        #[test]
        fn shortened_names_fit(name in "\\PC{0,80}", max in 0_usize..100) {
            prop_assert!(head(&name, max).len() <= max && name.starts_with(head(&name, max)));
            prop_assert!(tail(&name, max).len() <= max && name.ends_with(tail(&name, max)));
            prop_assert!(name.len() > max || (head(&name, max) == name && tail(&name, max) == name));
        }
    }
}
