//! Pages: a picker of sessions, and the front end of an installed Ray if its directory is given.

use std::path::{Component, Path};

use http::StatusCode;
use http::header::{self, HeaderValue};

use super::response::Reply;

/// The picker. It asks `/clusters` and enters what is chosen.
const PICKER: &str = include_str!("picker.html");

const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; connect-src 'self'",
);

/// The front end of a directory, if there is one.
fn front_end(directory: Option<&Path>) -> Option<&Path> {
    directory.filter(|it| it.join("index.html").is_file())
}

pub(super) fn picker(directory: Option<&Path>) -> Reply {
    let page = match front_end(directory) {
        Some(_) => PICKER.replace("const hasDashboard = false;", "const hasDashboard = true;"),
        None => PICKER.to_owned(),
    };
    Reply::new(StatusCode::OK, HeaderValue::from_static("text/html"), page)
        .no_sniff()
        .with(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"))
        .with(header::CONTENT_SECURITY_POLICY, POLICY)
}

/// A file of the front end. Without a front end, and before a session is chosen, the picker is the first page.
pub(super) fn page(directory: Option<&Path>, path: &str, has_choice: bool) -> Option<Reply> {
    let front_end = front_end(directory);
    if path == "/" && (front_end.is_none() || !has_choice) {
        return Some(picker(directory));
    }
    let directory = front_end?;
    let relative = Path::new(path.trim_start_matches('/'));
    if relative.components().any(|it| !matches!(it, Component::Normal(_))) {
        return None;
    }
    let file = if path == "/" { directory.join("index.html") } else { directory.join(relative) };
    let content = std::fs::read(&file).ok()?;
    let extension = file.extension().and_then(|it| it.to_str()).unwrap_or_default();
    let content_type = match extension {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    };
    Some(Reply::new(StatusCode::OK, HeaderValue::from_static(content_type), content).no_sniff())
}
