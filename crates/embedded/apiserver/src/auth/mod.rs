//! Who asks, and what they may.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Somebody who makes requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// User name.
    pub name: String,
    /// A unique id, if there is one.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Anything else that is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Members may do everything.
pub const MASTERS: &str = "system:masters";
/// Everybody with credentials is a member.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Everybody without is.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

impl Caller {
    /// Somebody with credentials.
    pub fn known(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// The server itself.
    pub fn server() -> Self {
        Self::known("system:apiserver", [MASTERS.to_owned()])
    }

    /// Somebody without credentials.
    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// Whether a group counts them as a member.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }

    /// As reviews and webhooks show them.
    pub fn to_value(&self) -> Value {
        let mut user = json!({"username": self.name, "groups": self.groups});
        if let Some(user) = user.as_object_mut() {
            if !self.uid.is_empty() {
                user.insert("uid".into(), self.uid.as_str().into());
            }
            if !self.extra.is_empty() {
                user.insert("extra".into(), json!(self.extra));
            }
        }
        user
    }
}
