//! List: pages, and lists at past resource versions.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::{RequestContext, filter::Filter};
use crate::{
    request::options::{ListOptions, Since},
    status::Failure,
    store::Entry,
};

/// How long a request waits for a version that has not happened yet.
const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// A page of a list.
pub(crate) struct Page {
    pub(crate) entries: Vec<(Arc<str>, Arc<Entry>)>,
    pub(crate) rv: u64,
    pub(crate) continue_token: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl Page {
    /// A page that may have a rest, which is reported if it was counted. The list began at `begun`.
    fn new(
        entries: Vec<(Arc<str>, Arc<Entry>)>,
        rv: u64,
        (rest, is_counted): (usize, bool),
        begun: i64,
    ) -> Self {
        let last = entries.last().filter(|_| rest > 0);
        let continue_token = last.map(|(key, _)| token(i64::try_from(rv).unwrap_or(-1), key, Some(begun)));
        Self { entries, rv, continue_token, remaining: (is_counted && rest > 0).then_some(rest) }
    }
}

/// Where a page ended.
#[derive(Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: i64,
    start: String,
    /// When the list began, in seconds. Kubernetes finds that out from etcd, whose revisions grow with time also when
    /// nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begun: Option<i64>,
}

/// How long a list can be continued: as long as etcd keeps revisions for kube-apiserver.
const LIFETIME_SECONDS: i64 = 5 * 60;

const CONTINUE_VERSION: &str = "meta.k8s.io/v1";

const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

fn token(rv: i64, start: &str, begun: Option<i64>) -> String {
    let token = Continue { v: CONTINUE_VERSION.into(), rv, start: format!("{start}\0"), begun };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

/// Version, last key and beginning of the list that a token continues.
fn read_token(text: &str) -> Result<(i64, String, Option<i64>), Failure> {
    let invalid = |why: &str| Failure::bad_request(format!("invalid continue token: {why}"));
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| invalid(&error.to_string()))?;
    let token: Continue = serde_json::from_slice(&bytes).map_err(|error| invalid(&error.to_string()))?;
    if token.v != CONTINUE_VERSION || token.rv == 0 || token.start.is_empty() {
        return Err(invalid("incorrect encoded start"));
    }
    let start = token.start.strip_suffix('\0').unwrap_or(&token.start).to_owned();
    Ok((token.rv, start, token.begun))
}

/// Waits until a version has happened.
pub(crate) async fn wait_for(context: &RequestContext, rv: u64) -> Result<(), Failure> {
    let store = context.api.store();
    if store.version() >= rv {
        return Ok(());
    }
    let waited = tokio::time::timeout(FUTURE_WAIT, store.wait_for(rv)).await;
    waited.map_err(|_| Failure::future_version(rv, store.version()))
}

/// Serves a list request.
pub(crate) async fn list(context: &RequestContext, options: &ListOptions) -> Result<Page, Failure> {
    let namespace = Some(context.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let filter = Filter::new(&context.resource, namespace, options)?;
    let store = context.api.store();
    let bucket = &context.resource.bucket;
    let (mut at, mut start, mut begun) = (None, None, context.now.as_second());
    if let Some(text) = &options.continue_token {
        if options.resource_version.is_some_and(|rv| rv != 0) {
            return Err(Failure::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (rv, from, since) = read_token(text)?;
        at = u64::try_from(rv).ok();
        let is_over = since.is_some_and(|since| begun.saturating_sub(since) > LIFETIME_SECONDS);
        if at.is_some() && is_over {
            return Err(Failure::expired(TOO_OLD).with_continue(token(-1, &from, None)));
        }
        begun = since.unwrap_or(begun);
        start = Some(from);
    } else {
        match options.since {
            Since::Latest | Since::Any => {}
            Since::NotOlderThan(rv) => wait_for(context, rv).await?,
            Since::Exactly(rv) => {
                wait_for(context, rv).await?;
                at = Some(rv);
            }
        }
    }
    if let (Some(key), None, None) = (&filter.key, at, &start) {
        let (entry, rv) = store.get_now(bucket, key);
        let mut entries = Vec::new();
        if let Some(entry) = entry
            && filter.matches(&context.api, &context.resource, key, &entry).await?
        {
            entries.push((key.as_str().into(), entry));
        }
        return Ok(Page { entries, rv, continue_token: None, remaining: None });
    }
    let too_old = |_| match &start {
        Some(start) => Failure::expired(TOO_OLD).with_continue(token(-1, start, None)),
        None => Failure::expired("The resourceVersion for the provided list is too old."),
    };
    if let Some(limit) = options.limit.filter(|_| filter.is_open()) {
        let page = store.page(bucket, &filter.prefix, start.as_deref(), at, limit);
        let (entries, rest, rv) = page.map_err(too_old)?;
        return Ok(Page::new(entries, rv, (rest, true), begun));
    }
    let (entries, rv) = store.list(bucket, &filter.prefix, start.as_deref(), at).map_err(too_old)?;
    let mut matching = Vec::new();
    let mut rest = 0;
    for (key, entry) in entries {
        if !filter.is_open() && !filter.matches(&context.api, &context.resource, &key, &entry).await? {
            continue;
        }
        if options.limit == Some(matching.len()) {
            rest = 1;
            break;
        }
        matching.push((key, entry));
    }
    Ok(Page::new(matching, rv, (rest, false), begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_kubernetes() {
        let text = token(296, "x1", None);
        let json = String::from_utf8(URL_SAFE_NO_PAD.decode(&text).unwrap()).unwrap();
        assert_eq!(json, r#"{"v":"meta.k8s.io/v1","rv":296,"start":"x1\u0000"}"#);
        assert_eq!(read_token(&text).unwrap(), (296, "x1".to_owned(), None));
        assert_eq!(read_token(&token(1, "a", Some(7))).unwrap(), (1, "a".to_owned(), Some(7)));
        assert!(read_token("?").unwrap_err().message().starts_with("invalid continue token: "));
    }
}
