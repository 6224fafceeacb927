//! Version 4 of Amazon's signatures.

use aws_lc_rs::{digest, hmac};

use super::credentials::Credentials;
use crate::model::ids::push_hex;
use crate::model::time;

/// Bodies are not part of signatures: they are streamed.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// What of a request is signed.
pub(super) struct Signed<'a> {
    pub(super) region: &'a str,
    pub(super) method: &'a str,
    pub(super) host: &'a str,
    /// Encoded.
    pub(super) path: &'a str,
    /// Encoded, with sorted names.
    pub(super) query: &'a str,
    /// Seconds since 1970.
    pub(super) now: i64,
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    push_hex(&mut text, bytes);
    text
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// The headers that sign a request.
pub(super) fn sign(credentials: &Credentials, signed: &Signed<'_>) -> Vec<(&'static str, String)> {
    let Signed { region, method, host, path, query, now } = signed;
    let moment = time::format(*now, "%Y%m%dT%H%M%SZ");
    let day = &moment[..moment.len().min(8)];
    let mut headers = vec![("host", (*host).to_owned()), ("x-amz-content-sha256", UNSIGNED.to_owned())];
    headers.push(("x-amz-date", moment.clone()));
    if let Some(token) = &credentials.token {
        headers.push(("x-amz-security-token", token.clone()));
    }
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let lines = lines.concat();
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{UNSIGNED}");
    let scope = format!("{day}/{region}/s3/aws4_request");
    let digest = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let to_sign = format!("AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}");
    let mut key = format!("AWS4{}", credentials.secret).into_bytes();
    for part in [day, region, "s3", "aws4_request"] {
        key = hmac_sha256(&key, part);
    }
    let signature = hex(&hmac_sha256(&key, &to_sign));
    headers.remove(0);
    headers.push((
        "authorization",
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            credentials.key
        ),
    ));
    headers
}

#[cfg(test)]
mod tests {
    use super::{Credentials, Signed, sign};

    #[test]
    fn requests_are_signed_as_amazon_asks() {
        let credentials = Credentials {
            key: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        };
        let signed = Signed {
            region: "us-east-1",
            method: "GET",
            host: "b.s3.amazonaws.com",
            path: "/k",
            query: "",
            now: 1_440_938_160,
        };
        let headers = sign(&credentials, &signed);
        let authorization =
            headers.iter().find(|(name, _)| *name == "authorization").map(|(_, value)| value.as_str());
        let start = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/s3/aws4_request, \
                     SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=";
        assert!(authorization.is_some_and(|it| it.starts_with(start) && it.len() == start.len() + 64));
        assert!(headers.iter().any(|(name, value)| *name == "x-amz-date" && value == "20150830T123600Z"));
    }
}
