//! `[]byte` fields: base64 as Go's `encoding/json` reads and writes it.
//!
//! Go skips line breaks and ignores the unused bits of the last symbol, so that several texts mean the same bytes.
//! Objects are stored with the one text that Go writes, which every reader of base64 accepts.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Text that is not base64. The message is that of Go's `base64.CorruptInputError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct CorruptInput(pub usize);

/// The bytes that a text means.
pub fn decode(text: &str) -> Result<Vec<u8>, CorruptInput> {
    let decoded = if text.contains(['\n', '\r']) {
        LENIENT.decode(text.replace(['\n', '\r'], ""))
    } else {
        LENIENT.decode(text)
    };
    decoded.map_err(|_| CorruptInput(corrupt_at(text)))
}

/// Replaces a text by the one that Go writes for the same bytes.
pub fn normalize(text: &mut String) -> Result<(), CorruptInput> {
    *text = STANDARD.encode(decode(text)?);
    Ok(())
}

/// The offset that Go's decoder names for corrupt text: of the symbol that cannot be where it is, or of the incomplete
/// group at the end.
fn corrupt_at(text: &str) -> usize {
    let is_symbol = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let mut symbols = text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\n' | b'\r'));
    let mut in_group = 0;
    while let Some((at, byte)) = symbols.next() {
        if is_symbol(byte) {
            in_group = (in_group + 1) % 4;
            continue;
        }
        if byte != b'=' || in_group < 2 {
            return at;
        }
        // Two symbols take two signs of padding.
        return match (in_group == 2).then(|| symbols.next()) {
            Some(None) => text.len(),
            Some(Some((second, byte))) if byte != b'=' => second - 1,
            _ => symbols.next().map_or(text.len(), |(garbage, _)| garbage),
        };
    }
    text.len() - in_group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_mean_the_bytes_that_go_reads() {
        let texts = [
            ("", ""),
            ("YQ==", "YQ=="),
            ("YR==", "YQ=="),
            ("YQ==\n", "YQ=="),
            ("Y\nQ=\r=", "YQ=="),
            ("YWJj\r\nZGVm\n", "YWJjZGVm"),
        ];
        for (text, normal) in texts {
            let mut normalized = text.to_owned();
            normalize(&mut normalized).unwrap();
            assert_eq!(normalized, normal, "{text:?}");
        }
    }

    /// Offsets as printed by Go 1.26.
    #[test]
    fn corrupt_text_is_located_where_go_locates_it() {
        let texts = [
            ("YQ", 0),
            ("YWI", 0),
            ("Y", 0),
            ("YQ=", 3),
            ("Y Q==", 1),
            ("YQ==YQ==", 4),
            ("YWJj\nZG!m", 7),
            ("=", 0),
            ("YWJjZA=\n", 8),
            ("====", 0),
            ("YWJjZGVmZ2hpamts!", 16),
            ("YWJjZGVmZ2hpamtsY", 16),
            ("YQ=x", 2),
            ("-_==", 0),
            ("YWJjZGVmZ2hpamts\nYQ", 17),
        ];
        for (text, at) in texts {
            assert_eq!(decode(text), Err(CorruptInput(at)), "{text:?}");
        }
    }
}
