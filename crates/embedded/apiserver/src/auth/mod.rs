//! Authentication and authorization.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The user who makes a request.
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
    /// An authenticated user.
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

    /// The anonymous user.
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

pub mod impersonation;
pub(crate) mod permit;
pub mod rbac;
pub(crate) mod serviceaccount;
pub mod tokens;

use quintet_objects::error::quoted;

use crate::{
    api::Api,
    status::{Failure, Named},
};

/// Paths that everybody may read.
const OPEN_PATHS: [&str; 4] = ["/version", "/healthz", "/livez", "/readyz"];

/// What a request asks for, as authorization sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    Resource(rbac::Attributes<'a>),
    Path { verb: &'a str, path: &'a str },
}

impl Wanted<'_> {
    /// Refuses what the caller may not do.
    pub(crate) fn authorize(&self, api: &Api, caller: &Caller) -> Result<(), Failure> {
        match self {
            Self::Resource(attributes) => authorize(api, caller, attributes),
            Self::Path { verb, path } => authorize_path(api, caller, verb, path),
        }
    }

    /// The verb.
    pub(crate) fn verb(&self) -> &str {
        match self {
            Self::Resource(attributes) => attributes.verb,
            Self::Path { verb, .. } => verb,
        }
    }

    /// The same with another verb.
    pub(crate) fn with_verb<'b>(&'b self, verb: &'b str) -> Wanted<'b> {
        match self {
            Self::Resource(attributes) => Wanted::Resource(rbac::Attributes { verb, ..*attributes }),
            Self::Path { path, .. } => Wanted::Path { verb, path },
        }
    }
}

/// Refuses what the caller may not do to a resource.
pub(crate) fn authorize(api: &Api, caller: &Caller, wanted: &rbac::Attributes<'_>) -> Result<(), Failure> {
    rbac::decide(api, caller, wanted).map(drop).map_err(|reason| forbidden(caller, wanted, &reason))
}

/// The caller may not do something to a resource, for a reason that may be empty.
pub(crate) fn forbidden(caller: &Caller, wanted: &rbac::Attributes<'_>, reason: &str) -> Failure {
    let resource = if wanted.subresource.is_empty() {
        wanted.resource.to_owned()
    } else {
        format!("{}/{}", wanted.resource, wanted.subresource)
    };
    let place = if wanted.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {}", quoted(wanted.namespace))
    };
    let what = format!(
        "User {} cannot {} resource {} in API group {} {place}",
        quoted(&caller.name),
        wanted.verb,
        quoted(&resource),
        quoted(wanted.group)
    );
    let named = Named { group: wanted.group, resource: wanted.resource, name: wanted.name };
    Failure::forbidden(named, &because(&what, reason))
}

/// Refuses what the caller may not do to a path that is no resource.
fn authorize_path(api: &Api, caller: &Caller, verb: &str, path: &str) -> Result<(), Failure> {
    let is_open = OPEN_PATHS
        .iter()
        .any(|open| path.strip_prefix(open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    if is_open && matches!(verb, "get" | "head") {
        return Ok(());
    }
    rbac::decide_path(api, caller, verb, path).map(drop).map_err(|reason| {
        let what = format!("User {} cannot {verb} path {}", quoted(&caller.name), quoted(path));
        Failure::forbidden(Named { group: "", resource: "", name: "" }, &because(&what, &reason))
    })
}

/// A refusal with its reason. The refusal repeats the request: it must not look like HTML.
fn because(what: &str, reason: &str) -> String {
    let what = what.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if reason.is_empty() { what } else { format!("{what}: {reason}") }
}
