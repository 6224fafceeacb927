//! Signatures with the key of an account: `SharedKey`.

use std::fmt::Write as _;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What of a request is signed.
pub(super) struct Signed<'a> {
    pub(super) method: &'a str,
    /// Bytes of the body.
    pub(super) length: u64,
    /// Headers whose names begin with `x-ms-`, sorted. Requests have no others that are signed.
    pub(super) headers: &'a [(&'static str, String)],
    /// Encoded, without a slash at its start.
    pub(super) path: &'a str,
    /// Not encoded, sorted.
    pub(super) query: &'a [(&'static str, &'a str)],
}

impl Signed<'_> {
    pub(super) fn signature(&self, account: &str, key: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        STANDARD.encode(hmac::sign(&key, self.text(account).as_bytes()))
    }

    /// The text that is signed: the method, eleven standard headers, of which only the length is used, those of the API, and
    /// what is asked for.
    fn text(&self, account: &str) -> String {
        let length = if self.length == 0 { String::new() } else { self.length.to_string() };
        let mut text = format!("{}\n\n\n{length}\n\n\n\n\n\n\n\n\n", self.method);
        // Writing to a string cannot fail.
        for (name, value) in self.headers {
            let _ = writeln!(text, "{name}:{value}");
        }
        let _ = write!(text, "/{account}/{}", self.path);
        for (name, value) in self.query {
            let _ = write!(text, "\n{name}:{value}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Signed;

    #[test]
    fn the_text_is_as_azure_documents_it() {
        let headers = [
            ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT".to_owned()),
            ("x-ms-version", "2015-02-21".to_owned()),
        ];
        let query = [("comp", "metadata"), ("restype", "container"), ("timeout", "20")];
        let signed =
            Signed { method: "GET", length: 0, headers: &headers, path: "mycontainer", query: &query };
        let expected = "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20";
        assert_eq!(signed.text("myaccount"), expected);
        assert!(Signed { length: 11, ..signed }.text("a").starts_with("GET\n\n\n11\n\n"));
    }
}
