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
pub mod tokens;

use http::Method;

use crate::{
    api::Api,
    status::{Failure, Named},
};

/// Paths that everybody may read.
const OPEN_PATHS: [&str; 4] = ["/version", "/healthz", "/livez", "/readyz"];

/// Refuses what the caller may not do to a resource.
pub(crate) fn authorize(api: &Api, caller: &Caller, wanted: &rbac::Attributes<'_>) -> Result<(), Failure> {
    if rbac::allows(api, caller, wanted).is_some() {
        return Ok(());
    }
    let resource = if wanted.subresource.is_empty() {
        wanted.resource.to_owned()
    } else {
        format!("{}/{}", wanted.resource, wanted.subresource)
    };
    let place = if wanted.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {:?}", wanted.namespace)
    };
    let why = format!(
        "User {:?} cannot {} resource {resource:?} in API group {:?} {place}",
        caller.name, wanted.verb, wanted.group
    );
    let named = Named { group: wanted.group, resource: wanted.resource, name: wanted.name };
    Err(Failure::forbidden(named, &why))
}

/// Refuses what the caller may not do to a path that is no resource.
pub(crate) fn authorize_path(api: &Api, caller: &Caller, method: &Method, path: &str) -> Result<(), Failure> {
    let verb = method.as_str().to_ascii_lowercase();
    let is_open = OPEN_PATHS
        .iter()
        .any(|open| path.strip_prefix(open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    if (is_open && matches!(verb.as_str(), "get" | "head"))
        || rbac::allows_path(api, caller, &verb, path).is_some()
    {
        return Ok(());
    }
    let why = format!("User {:?} cannot {verb} path {path:?}", caller.name);
    Err(Failure::forbidden(Named { group: "", resource: "", name: "" }, &why))
}
