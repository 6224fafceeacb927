//! Impersonation: acting as another user.

use http::HeaderMap;

use super::{AUTHENTICATED, Caller, UNAUTHENTICATED, authorize, rbac::Attributes};
use crate::{api::Api, status::Failure};

const EXTRA: &str = "impersonate-extra-";

/// Who a request is really from: the caller, or the one they may impersonate.
pub(crate) fn effective(api: &Api, caller: Caller, headers: &HeaderMap) -> Result<Caller, Failure> {
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
    let groups: Vec<String> = headers.get_all("impersonate-group").iter().map(read).collect();
    let (name, uid) = (text("impersonate-user"), text("impersonate-uid"));
    let (name, uid) = (name.as_str(), uid.as_str());
    if name.is_empty() {
        if groups.is_empty() && uid.is_empty() && !headers.keys().any(|key| key.as_str().starts_with(EXTRA)) {
            return Ok(caller);
        }
        return Err(Failure::bad_request(
            "requested to impersonate groups, uid or extra without impersonating a user",
        ));
    }
    let may = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let wanted =
            Attributes { verb: "impersonate", group, version: "", resource, subresource, namespace, name };
        authorize(api, &caller, &wanted)
    };
    let mut other = Caller { name: name.to_owned(), uid: uid.to_owned(), ..Caller::default() };
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    if let Some((namespace, account)) = account {
        may("", "serviceaccounts", "", namespace, account)?;
        if groups.is_empty() {
            other.groups.push("system:serviceaccounts".into());
            other.groups.push(format!("system:serviceaccounts:{namespace}"));
        }
    } else {
        may("", "users", "", "", name)?;
    }
    for group in groups {
        may("", "groups", "", "", &group)?;
        other.groups.push(group);
    }
    if !uid.is_empty() {
        may("authentication.k8s.io", "uids", "", "", uid)?;
    }
    for (key, value) in headers {
        if let Some(extra) = key.as_str().strip_prefix(EXTRA) {
            let value = read(value);
            may("authentication.k8s.io", "userextras", extra, "", &value)?;
            other.extra.entry(extra.to_owned()).or_default().push(value);
        }
    }
    let group = if other.name == "system:anonymous" { UNAUTHENTICATED } else { AUTHENTICATED };
    if !other.is_in(group) {
        other.groups.push(group.to_owned());
    }
    Ok(other)
}
