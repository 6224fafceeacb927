//! The origins from which browsers may call the server.

use quintet_api::mlflow::MLflowSpec;

use crate::settings::Settings;

/// The origins, separated by commas: the server's own addresses, the external one, and those of the spec.
pub(super) fn allowed_origins(spec: &MLflowSpec, settings: &Settings) -> String {
    let namespace = &settings.namespace;
    let mut origins = vec![
        "https://mlflow:8443".to_owned(),
        settings.service_url(),
        format!("https://mlflow.{namespace}.svc.cluster.local:8443"),
        "localhost:*".to_owned(),
        "127.0.0.1:*".to_owned(),
    ];
    origins.extend(origin_of(&settings.url));
    let extra = spec.extra_allowed_origins.iter().flatten().map(|origin| origin.trim());
    // A comma separates origins, so it cannot be part of one.
    origins.extend(extra.filter(|origin| !origin.is_empty() && !origin.contains(',')).map(str::to_owned));
    origins.join(",")
}

/// Scheme, host and port of a URL; `None` if it has no scheme or no host.
fn origin_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // Go's `url.Parse` takes no other schemes, and writes them in lower case.
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|char| char.is_ascii_alphanumeric() || "+-.".contains(char));
    (is_scheme && !host.is_empty()).then(|| format!("{}://{host}", scheme.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_neither_path_nor_user() {
        let cases = [
            ("https://gw.example.com:8443/path/", Some("https://gw.example.com:8443")),
            ("http://me:secret@host?x", Some("http://host")),
            ("host/path", None),
            ("HTTPS://Host", Some("https://Host")),
            ("1ttps://host", None),
            ("https:///path", None),
            ("://host", None),
            ("", None),
        ];
        for (url, origin) in cases {
            assert_eq!(origin_of(url).as_deref(), origin, "{url}");
        }
    }

    #[test]
    fn extra_origins_are_trimmed_and_those_that_cannot_be_one_are_left_out() {
        let extra = [" https://a ", "", "https://b,https://c", "http://d:8080"].map(str::to_owned).to_vec();
        let spec = MLflowSpec { extra_allowed_origins: Some(extra), ..MLflowSpec::default() };
        let origins = allowed_origins(&spec, &Settings::default());
        assert!(
            origins.ends_with(",127.0.0.1:*,https://mlflow.example.com,https://a,http://d:8080"),
            "{origins}"
        );
    }
}
