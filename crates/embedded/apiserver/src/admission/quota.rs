//! ResourceQuota admission.
//!
//! What a new object uses is added to `status.used` before the object is stored, in one step with the check that it
//! fits: of two that fit alone but not together, one is refused. Until the object is stored the ledger counts it, so
//! that a recount in between does not give its share away.

use std::{
    collections::{BTreeSet, HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::usage::{Usage, quantity, usage};
use crate::{
    api::Api,
    controllers::quotas::used,
    json::{self, items, text},
    status::{Failure, Named},
    store::{key_of, split_key},
    verbs::{RequestContext, update},
};

/// Namespaces share this many locks; more gain nothing.
const STRIPES: usize = 16;

/// Objects that were counted and are not stored yet.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
    /// Namespaces wait to be recounted.
    stale: tokio::sync::Notify,
    /// One reservation or recount at a time in a namespace, so that they do not chase each other.
    stripes: [tokio::sync::Mutex<()>; STRIPES],
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    reserved: HashMap<u64, Reserved>,
    stale: BTreeSet<String>,
}

#[derive(Debug)]
struct Reserved {
    namespace: String,
    bucket: Arc<str>,
    key: String,
    usage: Usage,
    /// A recount has counted it from here; the next one may find it stored, or gone.
    was_counted: bool,
}

impl Ledger {
    /// Runs `list` while no reservation begins or ends, and returns what it found, with the usage of objects that
    /// are counted but that `is_stored` does not know.
    pub(crate) fn with_pending<T>(
        &self,
        namespace: &str,
        list: impl FnOnce() -> T,
        is_stored: impl Fn(&T, &str, &str) -> bool,
    ) -> (T, Vec<Usage>) {
        let mut state = self.state.lock();
        let listed = list();
        let mut pending = Vec::new();
        for reserved in state.reserved.values_mut().filter(|one| one.namespace == namespace) {
            reserved.was_counted = true;
            if !is_stored(&listed, &reserved.bucket, &reserved.key) {
                pending.push(reserved.usage.clone());
            }
        }
        (listed, pending)
    }

    /// Namespaces whose quotas say more than is used.
    pub(crate) async fn stale(&self) -> BTreeSet<String> {
        loop {
            let notified = self.stale.notified();
            let stale = std::mem::take(&mut self.state.lock().stale);
            if !stale.is_empty() {
                return stale;
            }
            notified.await;
        }
    }

    /// Locks the quotas of a namespace: whoever holds the lock may change what they say is used.
    pub(crate) async fn lock_namespace(&self, namespace: &str) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let stripe = usize::try_from(self.hasher.hash_one(namespace) % STRIPES as u64).unwrap_or(0);
        match self.stripes.get(stripe) {
            Some(stripe) => Some(stripe.lock().await),
            None => None,
        }
    }
}

/// A share of the quotas of a namespace that is given back unless it is kept.
#[derive(Debug)]
pub(crate) struct Reservation {
    api: Api,
    id: u64,
    is_kept: bool,
}

impl Reservation {
    /// The object it is for got another name.
    pub(crate) fn rename(&self, name: &str) {
        if let Some(reserved) = self.api.ledger().state.lock().reserved.get_mut(&self.id) {
            reserved.key = key_of(&reserved.namespace, name);
        }
    }

    /// The object is stored.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let ledger = self.api.ledger();
        let mut state = ledger.state.lock();
        if let Some(reserved) = state.reserved.remove(&self.id)
            && (!self.is_kept || reserved.was_counted)
        {
            state.stale.insert(reserved.namespace);
            ledger.stale.notify_one();
        }
    }
}

fn quotas(context: &RequestContext) -> Vec<(String, Value)> {
    if !context.resource.is_namespaced || !context.subresource.is_empty() {
        return Vec::new();
    }
    let prefix = format!("{}/", context.namespace);
    let listed = context.api.store().objects("core/resourcequotas", &prefix);
    listed.iter().map(|(key, entry)| (split_key(key).1.to_owned(), entry.parse())).collect()
}

/// Counts a new object against the quotas of its namespace; refuses it if it does not fit.
pub(crate) async fn reserve(
    context: &RequestContext,
    object: &Value,
) -> Result<Option<Reservation>, Failure> {
    let quotas = quotas(context);
    if quotas.is_empty() {
        return Ok(None);
    }
    let usage = &usage(&context.resource.group, &context.resource.plural, object);
    if context.options.is_dry_run {
        for (name, quota) in &quotas {
            grant(context, object, usage, name, quota)?;
        }
        return Ok(None);
    }
    let resource = context.api.built_in("", "resourcequotas")?;
    let ledger = context.api.ledger();
    let _lock = ledger.lock_namespace(&context.namespace).await;
    let reservation = {
        let mut state = ledger.state.lock();
        state.next += 1;
        let id = state.next;
        let key = key_of(&context.namespace, text(object, "/metadata/name"));
        let reserved = Reserved {
            namespace: context.namespace.clone(),
            bucket: Arc::clone(&context.resource.bucket),
            key,
            usage: usage.clone(),
            was_counted: false,
        };
        state.reserved.insert(id, reserved);
        Reservation { api: context.api.clone(), id, is_kept: false }
    };
    for (name, quota) in &quotas {
        if grant(context, object, usage, name, quota)?.is_none() {
            continue;
        }
        let one = RequestContext::internal(&context.api, &resource, &context.namespace, name)
            .for_subresource("status");
        let change = move |mut quota: Value| async move {
            if let Some(used) = grant(context, object, usage, name, &quota)? {
                let hard = quota.pointer("/spec/hard").cloned().unwrap_or_default();
                let status = json::child(json::as_map(&mut quota), "status");
                status.insert("hard".into(), hard);
                status.insert("used".into(), Value::Object(used));
            }
            Ok(quota)
        };
        match Box::pin(update::update(&one, false, update::Made::Changed, change)).await {
            // A quota that has gone limits nothing.
            Err(failure) if failure.code() == 404 => {}
            outcome => drop(outcome?),
        }
    }
    Ok(Some(reservation))
}

/// What a quota says is used once the object is there too; `None` if the quota does not count it.
fn grant(
    context: &RequestContext,
    object: &Value,
    usage: &Usage,
    quota_name: &str,
    quota: &Value,
) -> Result<Option<Map<String, Value>>, Failure> {
    let name = text(object, "/metadata/name");
    let forbidden = |why: &str| Err(Failure::forbidden(Named { name, ..context.named() }, why));
    if !usage.is_in_scope(quota) {
        return Ok(None);
    }
    let hard = quota.pointer("/spec/hard").and_then(Value::as_object).cloned().unwrap_or_default();
    if context.resource.is("", "pods") {
        for resource in hard.keys() {
            let missing = containers_without(object, resource);
            if !missing.is_empty() {
                let missing = missing.join(",");
                return forbidden(&format!(
                    "failed quota: {quota_name}: must specify {resource} for: {missing}"
                ));
            }
        }
    }
    if !hard.keys().any(|resource| usage.amounts.contains_key(resource)) {
        return Ok(None);
    }
    let mut counted = quota.pointer("/status/used").and_then(Value::as_object).cloned().unwrap_or_default();
    if !hard.keys().all(|resource| counted.contains_key(resource)) {
        // The quota was not counted yet.
        let own = (Arc::clone(&context.resource.bucket), key_of(&context.namespace, name).into());
        let present = used(&context.api, &context.namespace, quota, Some(&own));
        counted = present.into_iter().map(|(resource, amount)| (resource, amount.into())).collect();
    }
    let (mut requested, mut taken, mut limited) = (Vec::new(), Vec::new(), Vec::new());
    for (resource, most) in &hard {
        let Some(asked) = usage.amounts.get(resource) else { continue };
        let present = counted.get(resource).map(quantity).unwrap_or_default();
        if present + *asked > quantity(most) {
            requested.push(format!("{resource}={asked}"));
            taken.push(format!("{resource}={present}"));
            limited.push(format!("{resource}={}", most.as_str().unwrap_or_default()));
        }
        counted.insert(resource.clone(), json!((present + *asked).to_string()));
    }
    if requested.is_empty() {
        return Ok(Some(counted));
    }
    forbidden(&format!(
        "exceeded quota: {quota_name}, requested: {}, used: {}, limited: {}",
        requested.join(","),
        taken.join(","),
        limited.join(",")
    ))
}

/// Containers of a pod that do not say how much they want of something that is limited.
fn containers_without<'a>(pod: &'a Value, resource: &str) -> Vec<&'a str> {
    // Only these must be set; a pod without a device does not request one.
    let must_be_said = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"]
        .contains(&resource);
    if !must_be_said {
        return Vec::new();
    }
    let (kind, plain) = resource.split_once('.').unwrap_or(("requests", resource));
    let says = |container: &Value| {
        container.pointer(&format!("/resources/{kind}")).and_then(|amounts| amounts.get(plain)).is_some()
    };
    let containers = items(pod, "/spec/containers").iter();
    containers.filter(|container| !says(container)).map(|container| text(container, "/name")).collect()
}
