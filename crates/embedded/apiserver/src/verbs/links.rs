//! Rewrites links in proxied pages so that they lead through the proxy.

/// Attributes that hold a link.
const ATTRIBUTES: [&[u8]; 7] = [b"action", b"data", b"formaction", b"href", b"manifest", b"poster", b"src"];

/// A link as it has to be; `None` if it leads elsewhere or is relative.
pub(super) fn location(link: &str, prefix: &str, host: &str, port: u16) -> Option<String> {
    let path = match link.split_once("://") {
        Some(("http" | "https", rest)) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at_checked(end)?;
            let is_same = authority == host || authority == format!("{host}:{port}");
            is_same.then_some(path)?
        }
        _ if link.starts_with('/') && !link.starts_with("//") => link,
        _ => return None,
    };
    let slash = if path.starts_with('/') { "" } else { "/" };
    // One that already leads through here stays.
    if path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#'])) {
        return None;
    }
    Some(format!("{prefix}{slash}{path}"))
}

/// A page with its links changed.
pub(super) fn page(page: &[u8], prefix: &str, host: &str, port: u16) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.len() + 1024);
    let mut rest = page;
    while let Some((before, value, after)) = next_link(rest) {
        out.extend_from_slice(before);
        let changed = std::str::from_utf8(value).ok().and_then(|link| location(link, prefix, host, port));
        out.extend_from_slice(changed.as_deref().map_or(value, str::as_bytes));
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

/// The next value of an attribute that holds a link: what comes before it, the value, what comes after it.
fn next_link(page: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut from = 0;
    loop {
        let at = from + page.get(from..)?.iter().position(|byte| *byte == b'=')?;
        from = at + 1;
        let (before, after) = page.split_at_checked(from)?;
        let quote = *after.first()?;
        let name = before.get(..at)?;
        let start = name.iter().rposition(u8::is_ascii_whitespace).map_or(0, |at| at + 1);
        let is_link = name
            .get(start..)
            .is_some_and(|name| ATTRIBUTES.iter().any(|attribute| attribute.eq_ignore_ascii_case(name)));
        if !is_link || !matches!(quote, b'"' | b'\'') {
            continue;
        }
        let value = after.get(1..)?;
        let end = value.iter().position(|byte| *byte == quote)?;
        let (value, after) = value.split_at_checked(end)?;
        let (before, _) = page.split_at_checked(from + 1)?;
        return Some((before, value, after));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_back_through_the_server() {
        let prefix = "/api/v1/namespaces/a/services/b/proxy";
        let moved = |link: &str| location(link, prefix, "10.0.0.1", 80);
        assert_eq!(moved("/x?y"), Some(format!("{prefix}/x?y")));
        assert_eq!(moved("http://10.0.0.1:80/x"), Some(format!("{prefix}/x")));
        assert_eq!(moved("http://10.0.0.1"), Some(format!("{prefix}/")));
        assert_eq!(moved("x"), None);
        assert_eq!(moved("//elsewhere/x"), None);
        assert_eq!(moved("https://elsewhere/x"), None);
        assert_eq!(moved(&format!("{prefix}/x")), None);
        let html = b"<a href=\"/x\">1=2</a><img SRC='/y'><a href=\"z\"> a = \"/no\" <p title=\"/no\">";
        let expected = format!(
            "<a href=\"{prefix}/x\">1=2</a><img SRC='{prefix}/y'><a href=\"z\"> a = \"/no\" <p title=\"/no\">"
        );
        assert_eq!(String::from_utf8(page(html, prefix, "h", 1)).unwrap(), expected);
        assert_eq!(page(b"<a href=\"", prefix, "h", 1), b"<a href=\"");
    }
}
