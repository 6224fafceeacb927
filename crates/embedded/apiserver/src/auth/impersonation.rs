//! Impersonation: acting as another user.
//!
//! As upstream's `apiserver/pkg/endpoints/filters/impersonation`: constrained modes first, which allow some verbs as
//! some users (`impersonate-on:<mode>:<verb>` and `impersonate:<mode>`), then the verb `impersonate`, which allows
//! everything as that user.

use std::collections::BTreeMap;

use http::HeaderMap;
use quintet_objects::names::is_dns_subdomain;

use super::{
    AUTHENTICATED, Caller, MASTERS, UNAUTHENTICATED, Wanted, authorize, forbidden, rbac::Attributes,
    serviceaccount,
};
use crate::{api::Api, request::url, status::Failure};

const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// From so many groups or extra values on, a permission for all of them is looked for first.
const MANY: usize = 4;

/// Whether a mode is for this impersonated user and this requestor.
type Applies = fn(&Caller, &Caller) -> bool;

/// The constrained modes, in the order in which they are tried.
const CONSTRAINED: [(&str, Applies); 4] = [
    ("associated-node", |user, requestor| {
        is_name_alone(user)
            && serviceaccount::split(&requestor.name).is_some()
            && node_of(&user.name).is_some_and(|node| {
                let own = requestor.extra.get("authentication.kubernetes.io/node-name");
                own.is_some_and(|own| matches!(&own[..], [own] if own == node))
            })
    }),
    ("arbitrary-node", |user, _| is_name_alone(user) && node_of(&user.name).is_some()),
    ("serviceaccount", |user, _| is_name_alone(user) && serviceaccount::split(&user.name).is_some()),
    ("user-info", |user, _| node_of(&user.name).is_none() && serviceaccount::split(&user.name).is_none()),
];

/// Who a request is really from: the caller, or the one they may impersonate for it.
pub(crate) fn effective(
    api: &Api,
    caller: Caller,
    headers: &HeaderMap,
    request: &Wanted<'_>,
) -> Result<Caller, Failure> {
    let Some(user) = requested(headers)? else { return Ok(caller) };
    let mut first = None;
    for (mode, applies) in CONSTRAINED {
        if !applies(&user, &caller) {
            continue;
        }
        match constrained(api, &caller, &user, request, mode) {
            Ok(user) => return Ok(user),
            Err(failure) => _ = first.get_or_insert(failure),
        }
    }
    let legacy = Mode { api, requestor: &caller, name: "", verb: "impersonate", group: "" };
    legacy.impersonate(&user).map_err(|failure| first.unwrap_or(failure))
}

/// The user that the headers name, if any.
fn requested(headers: &HeaderMap) -> Result<Option<Caller>, Failure> {
    // What cannot be read must not pass for what was not said.
    let unreadable = headers
        .iter()
        .filter(|(key, _)| key.as_str().starts_with("impersonate-"))
        .find(|(_, value)| std::str::from_utf8(value.as_bytes()).is_err());
    if let Some((key, _)) = unreadable {
        return Err(Failure::bad_request(format!("the header {key} is not valid UTF-8")));
    }
    let read = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let text = |name: &str| headers.get(name).map(read).unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in headers {
        if let Some(key) = key.as_str().strip_prefix(EXTRA) {
            let key = url::decode(key, false).unwrap_or_else(|| key.to_owned());
            extra.entry(key).or_default().push(read(value));
        }
    }
    let user = Caller {
        name: text("impersonate-user"),
        uid: text("impersonate-uid"),
        groups: headers.get_all("impersonate-group").iter().map(read).collect(),
        extra,
    };
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if is_name_alone(&user) {
        return Ok(None);
    }
    Err(Failure::bad_request("requested groups, a uid or extra values without impersonating a user name"))
}

fn is_name_alone(user: &Caller) -> bool {
    user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty()
}

/// The node that a user name is of, if it is of one.
fn node_of(user_name: &str) -> Option<&str> {
    user_name.strip_prefix("system:node:").filter(|node| is_dns_subdomain(node))
}

fn constrained(
    api: &Api,
    requestor: &Caller,
    user: &Caller,
    request: &Wanted<'_>,
    name: &str,
) -> Result<Caller, Failure> {
    let verb = format!("impersonate-on:{name}:{}", request.verb());
    request.with_verb(&verb).authorize(api, requestor)?;
    let verb = format!("impersonate:{name}");
    Mode { api, requestor, name, verb: &verb, group: AUTHENTICATION }.impersonate(user)
}

/// One way to be allowed to impersonate.
struct Mode<'a> {
    api: &'a Api,
    requestor: &'a Caller,
    /// Empty for the one without constraints.
    name: &'a str,
    verb: &'a str,
    /// The API group of users and groups.
    group: &'a str,
}

impl Mode<'_> {
    /// The impersonated user with all their groups, if the requestor may impersonate all of what was asked for.
    fn impersonate(&self, user: &Caller) -> Result<Caller, Failure> {
        let mut actual = user.clone();
        self.check_name(user, &mut actual)?;
        if !user.uid.is_empty() {
            self.check(AUTHENTICATION, "uids", "", &user.uid)?;
        }
        self.check_groups(&user.groups)?;
        self.check_extra(&user.extra)?;
        let everybody = match actual.name.as_str() {
            "system:anonymous" => Some(UNAUTHENTICATED),
            _ if actual.is_in(UNAUTHENTICATED) => None,
            _ => Some(AUTHENTICATED),
        };
        actual.groups.extend(everybody.filter(|group| !actual.is_in(group)).map(str::to_owned));
        Ok(actual)
    }

    fn is_constrained(&self) -> bool {
        !self.name.is_empty()
    }

    fn attributes<'a>(
        &'a self,
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        name: &'a str,
    ) -> Attributes<'a> {
        Attributes { verb: self.verb, group, version: "v1", resource, subresource, namespace: "", name }
    }

    fn check(&self, group: &str, resource: &str, subresource: &str, name: &str) -> Result<(), Failure> {
        authorize(self.api, self.requestor, &self.attributes(group, resource, subresource, name))
    }

    fn check_name(&self, user: &Caller, actual: &mut Caller) -> Result<(), Failure> {
        if let Some(node) = node_of(&user.name).filter(|_| self.is_constrained()) {
            actual.groups = vec!["system:nodes".into()];
            // The own node, whatever its name: permission for one name would be permission for any.
            let node = if self.name == "associated-node" { "*" } else { node };
            return self.check(self.group, "nodes", "", node);
        }
        if let Some((namespace, name)) = serviceaccount::split(&user.name) {
            if user.groups.is_empty() {
                actual.groups = serviceaccount::groups(namespace).into();
            }
            let wanted = Attributes { namespace, ..self.attributes(self.group, "serviceaccounts", "", name) };
            return authorize(self.api, self.requestor, &wanted);
        }
        self.check(self.group, "users", "", &user.name)
    }

    fn check_groups(&self, groups: &[String]) -> Result<(), Failure> {
        if self.is_constrained() {
            for (group, why) in [
                ("", "impersonating the empty string group is not allowed"),
                (MASTERS, "impersonating the system:masters group is not allowed"),
            ] {
                if groups.iter().any(|one| one == group) {
                    return Err(forbidden(
                        self.requestor,
                        &self.attributes(self.group, "groups", "", group),
                        why,
                    ));
                }
            }
            if groups.len() >= MANY && self.check(self.group, "groups", "", "*").is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.check(self.group, "groups", "", group))
    }

    fn check_extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), Failure> {
        if self.is_constrained() {
            if let Some(why) = extra.iter().find_map(|(key, values)| unfit_extra(key, values)) {
                let wanted = self.attributes(AUTHENTICATION, "userextras", "", "");
                return Err(forbidden(self.requestor, &wanted, why));
            }
            let count: usize = extra.values().map(Vec::len).sum();
            if count >= MANY && self.check(AUTHENTICATION, "userextras", "*", "*").is_ok() {
                return Ok(());
            }
        }
        extra.iter().try_for_each(|(key, values)| {
            values.iter().try_for_each(|value| self.check(AUTHENTICATION, "userextras", key, value))
        })
    }
}

/// Why extra values cannot be impersonated in a constrained mode.
fn unfit_extra(key: &str, values: &[String]) -> Option<&'static str> {
    let is_domain_prefixed =
        key.split_once('/').is_some_and(|(domain, path)| is_dns_subdomain(domain) && !path.is_empty());
    if key.is_empty() {
        Some("impersonating the empty string key in extra is not allowed")
    } else if !is_domain_prefixed {
        Some("impersonating an invalid key in extra is not allowed")
    } else if key.chars().any(char::is_uppercase) {
        Some("impersonating a non-lowercase key in extra is not allowed")
    } else if values.iter().any(String::is_empty) {
        Some("impersonating the empty string value in extra is not allowed")
    } else {
        None
    }
}
