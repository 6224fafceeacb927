//! Identifiers: base64 in exported events, lower-case hex everywhere else.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, PAD};

/// As Go's decoders: bits that no byte uses are ignored.
const RAW_URL: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));
const STANDARD: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, PAD.with_decode_allow_trailing_bits(true));

/// Room for the binary form of ordinary identifiers: they have 28 bytes at most.
const USUAL: usize = 64;

/// The normal form of an identifier, in `buffer`: lower-case hex if it is hex or base64, else the text itself.
pub(crate) fn normalize<'b>(id: &'b str, buffer: &'b mut String) -> &'b str {
    buffer.clear();
    if id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        if id.bytes().any(|byte| byte.is_ascii_uppercase()) {
            buffer.push_str(id);
            buffer.make_ascii_lowercase();
            return buffer;
        }
        return id;
    }
    if id.contains(['\r', '\n']) {
        // Go's decoders leave out line breaks.
        let plain = id.replace(['\r', '\n'], "");
        let decoded = RAW_URL.decode(&plain).or_else(|_| STANDARD.decode(&plain));
        let Ok(decoded) = decoded else { return id };
        push_hex(buffer, &decoded);
        return buffer;
    }
    let mut short = [0; USUAL];
    let mut long = Vec::new();
    let needed = id.len() / 4 * 3 + 3;
    let binary = if needed <= USUAL {
        &mut short[..]
    } else {
        long.resize(needed, 0);
        &mut long[..]
    };
    let decoded =
        RAW_URL.decode_slice_unchecked(id, binary).or_else(|_| STANDARD.decode_slice_unchecked(id, binary));
    let Ok(length) = decoded else { return id };
    push_hex(buffer, &binary[..length]);
    buffer
}

/// The normal form as a text of its own.
pub(crate) fn normalized(id: &str) -> String {
    let mut buffer = String::new();
    normalize(id, &mut buffer).to_owned()
}

/// The normal form, or why there is none, in the words of Go's decoder.
pub(crate) fn checked(id: &str) -> Result<String, String> {
    let normal = normalized(id);
    if normal.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(normal);
    }
    Err(format!("failed to decode Base64 ID: illegal base64 data at input byte {}", illegal(id.as_bytes())))
}

/// Where Go's decoder of standard base64 gives up.
fn illegal(id: &[u8]) -> usize {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let Some(end) = id.iter().position(|byte| !is_digit(*byte)) else {
        // It ends within a group of four: the group is what is wrong.
        return id.len() - id.len() % 4;
    };
    if id[end] != b'=' || end % 4 < 2 {
        return end;
    }
    // Padding: a second sign after two digits, and nothing after it.
    let padding = 4 - end % 4;
    match id.get(end + 1) {
        Some(b'=') | None if padding == 2 => (end + padding).min(id.len()),
        _ if padding == 2 => end,
        _ => end + padding,
    }
}

/// Appends bytes as hex.
pub(crate) fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.reserve(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests {
    use super::{checked, normalized};

    #[test]
    fn identifiers_have_one_form() {
        let cases = [
            ("", ""),
            ("ABCDEF01", "abcdef01"),
            ("abcd", "abcd"),
            ("abc", "abc"),
            ("AQAAAA==", "01000000"),
            ("AQAAAA", "01000000"),
            ("_w-_", "ff0fbf"),
            ("/w+/", "ff0fbf"),
            ("ABC=", "0010"),
            ("AQAA\nAA==\r\n", "01000000"),
            ("QUJD", "414243"),
            ("_-_-AA==", "_-_-AA=="),
            ("+/+/AAA", "+/+/AAA"),
            ("not base64 !", "not base64 !"),
            ("  abcd", "  abcd"),
        ];
        for (id, expected) in cases {
            assert_eq!(normalized(id), expected, "{id:?}");
        }
        assert_eq!(normalized(&"////".repeat(40)).len(), 240);
    }

    #[test]
    fn identifiers_that_cannot_be_decoded_say_where() {
        for (id, expected) in [
            ("node1", 4),
            ("abcdefghi", 8),
            ("no such", 2),
            ("_-_-AA==", 0),
            ("ab=", 3),
            ("ab=x", 2),
            ("a===", 1),
            ("QUJD=", 4),
            ("+/+=x", 4),
        ] {
            let error = checked(id).expect_err("an error");
            assert!(error.ends_with(&format!("input byte {expected}")), "{id}: {error}");
        }
        assert_eq!(checked("AQAAAA=="), Ok("01000000".to_owned()));
    }
}
