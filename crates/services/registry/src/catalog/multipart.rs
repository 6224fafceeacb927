//! Forms with files (`multipart/form-data`).

/// The longest boundary of RFC 2046.
const LONGEST_BOUNDARY: usize = 70;

/// The files of a form.
#[derive(Debug, Default)]
pub(crate) struct Form(Vec<(String, Vec<u8>)>);

impl Form {
    /// Reads a body; the boundary is in its content type.
    pub(crate) fn parse(content_type: &str, body: &[u8]) -> Result<Self, String> {
        let mut parameters = content_type.split(';').map(str::trim);
        if !parameters.next().is_some_and(|it| it.eq_ignore_ascii_case("multipart/form-data")) {
            return Err("request Content-Type isn't multipart/form-data".to_owned());
        }
        if parameters
            .clone()
            .any(|it| !it.is_empty() && it.split_once('=').is_none_or(|(_, value)| value.is_empty()))
        {
            return Err("request Content-Type isn't multipart/form-data".to_owned());
        }
        let boundary = parameters.find_map(|it| it.strip_prefix("boundary=")).map(|it| it.trim_matches('"'));
        let Some(boundary) = boundary.filter(|it| !it.is_empty()) else {
            return Err("no multipart boundary param in Content-Type".to_owned());
        };
        if boundary.len() > LONGEST_BOUNDARY {
            return Err("multipart: boundary is too long".to_owned());
        }
        let delimiter = format!("--{boundary}");
        let mut form = Self::default();
        let mut rest = body;
        let Some(start) = find(rest, delimiter.as_bytes()) else {
            return Err("multipart: NextPart: EOF".to_owned());
        };
        rest = rest.get(start + delimiter.len()..).unwrap_or_default();
        let separator = format!("\r\n{delimiter}");
        while !rest.starts_with(b"--") {
            let Some(end) = find(rest, separator.as_bytes()) else {
                return Err("unexpected EOF".to_owned());
            };
            form.0.extend(rest.get(..end).and_then(part));
            rest = rest.get(end + separator.len()..).unwrap_or_default();
        }
        Ok(form)
    }

    pub(crate) fn file(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(it, _)| it == name).map(|(_, content)| content.as_slice())
    }
}

/// A part that is a file: its field and its content. Fields with a plain value are no files.
fn part(part: &[u8]) -> Option<(String, Vec<u8>)> {
    let end = find(part, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(part.get(..end)?).into_owned();
    let disposition = head.lines().find(|it| it.to_lowercase().starts_with("content-disposition:"))?;
    let parameter = |name: &str| {
        let mut values = disposition.split(';').map(str::trim);
        values.find_map(|it| it.strip_prefix(name)?.strip_prefix('=')).map(|it| it.trim_matches('"'))
    };
    let (_, kind) = disposition.split(';').next()?.split_once(':')?;
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return None;
    }
    parameter("filename").filter(|it| !it.is_empty())?;
    Some((parameter("name")?.to_owned(), part.get(end + 4..)?.to_vec()))
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::Form;

    #[test]
    fn files_are_found_by_their_field() {
        let body = "--b\r\nContent-Disposition: form-data; name=\"config\"; filename=\"c.yaml\"\r\n\
                    Content-Type: text/yaml\r\n\r\ntype: yaml\r\n\r\n--b\r\n\
                    Content-Disposition: form-data; name=\"note\"\r\n\r\nno file\r\n--b--\r\n";
        let form = Form::parse("multipart/form-data; boundary=b", body.as_bytes()).expect("a form");
        assert_eq!(form.file("config"), Some(&b"type: yaml\r\n"[..]));
        assert_eq!(form.file("note"), None);
    }

    #[test]
    fn what_is_no_form_is_refused() {
        assert!(Form::parse("application/json", b"{}").is_err());
        assert!(Form::parse("multipart/form-data", b"").is_err());
        let long = "-".repeat(71);
        let error = Form::parse(&format!("multipart/form-data; boundary={long}"), b"").unwrap_err();
        assert_eq!(error, "multipart: boundary is too long");
        assert!(Form::parse("multipart/form-data; boundary=b", b"--b\r\nno end").is_err());
        let no_form = "request Content-Type isn't multipart/form-data";
        assert_eq!(Form::parse("multipart/form-data; boundary=b; x", b"").unwrap_err(), no_form);
        assert_eq!(Form::parse("multipart/form-data; boundary=", b"").unwrap_err(), no_form);
        let cut = b"--b\r\nContent-Disposition: form-data; name=\"config\"; filename=\"c\"\r\n\r\ntype";
        assert_eq!(Form::parse("multipart/form-data; boundary=b", cut).unwrap_err(), "unexpected EOF");
    }

    #[test]
    fn only_fields_of_the_form_count() {
        let body =
            b"--b\r\nContent-Disposition: attachment; name=\"config\"; filename=\"c\"\r\n\r\nx\r\n--b--\r\n";
        let form = Form::parse("multipart/form-data; boundary=b", body).expect("a form");
        assert_eq!(form.file("config"), None);
    }
}
