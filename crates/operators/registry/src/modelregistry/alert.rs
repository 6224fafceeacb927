//! What the log of a server that does not start says about its database.

use quintet_api::modelregistry::reasons;
use serde::{Deserialize, Serialize};

/// The server marks what administrators have to know by this.
const MARK: &str = "{{ALERT}}";
/// What the former server logs when it cannot use its database: `(OK vs. CODE) TEXT`.
const FAILED_CHECK: &str = "Check failed: absl::OkStatus() == status (OK vs. ";

/// What users learn of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Alert {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// Why the server does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reason {
    Alert,
    Database,
}

impl Reason {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Alert => reasons::RESOURCES_ALERT,
            Self::Database => reasons::CONFIGURATION_ERROR,
        }
    }
}

/// Finds it in a log.
pub(super) fn find(log: &str) -> Option<Alert> {
    log.lines().find_map(|line| {
        if line.contains(MARK) {
            let message = format!("rest container alert: {line}");
            return Some(Alert { reason: Reason::Alert, message });
        }
        let (_, rest) = line.split_once(FAILED_CHECK)?;
        let (code, text) = rest.split_once(')')?;
        let message = format!("database configuration error: {}: {code}", text.trim());
        Some(Alert { reason: Reason::Database, message })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_and_failed_checks_are_found() {
        let alert = find("starting\nE0101 {{ALERT}} cannot connect to the datastore\n").unwrap();
        assert_eq!(alert.reason.text(), "ResourcesAlert");
        assert_eq!(alert.message, "rest container alert: E0101 {{ALERT}} cannot connect to the datastore");
        let log =
            "F main.cc:77] Check failed: absl::OkStatus() == status (OK vs. INTERNAL) mysql_query failed";
        let failed = find(log).unwrap();
        assert_eq!(failed.reason.text(), "ConfigurationError");
        assert_eq!(failed.message, "database configuration error: mysql_query failed: INTERNAL");
        assert_eq!(find("nothing special"), None);
    }
}
