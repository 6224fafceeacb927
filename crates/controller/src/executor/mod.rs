//! The executor: carries out the plans of all controllers, in order, with bounded parallelism.

mod unchanged;

use std::{
    collections::BTreeMap,
    future::Future,
    hash::{DefaultHasher, Hash, Hasher},
};

use futures::{StreamExt, stream::FuturesOrdered};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    api::{Api, PatchKind},
    cache::{Caches, Knowledge},
    error::{Class, Error},
    object::{ApiKind, Form, Head, ObjectKey, ResourceVersion, Uid},
    plan::{Action, AppliedStatus, Event, StatusPatch, Step},
};

/// Carries out plans, and writes the results through to the caches.
#[derive(Clone)]
pub struct Executor {
    api: Api,
    caches: Caches,
}

/// One write that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// Kind of the object.
    pub kind: ApiKind,
    /// Which object.
    pub key: ObjectKey,
    /// Its version afterwards, unless it was deleted.
    pub version: Option<ResourceVersion>,
}

/// The result of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// Writes that took place; skipped applies are not among them.
    pub written: Vec<Written>,
    /// The plan changed the root itself, so that its status has to be derived again.
    pub status_waits: bool,
}

/// The step that failed.
#[derive(Debug)]
pub struct Failed<C> {
    /// The action.
    pub action: Action<C>,
    /// The error.
    pub error: Error,
}

/// Writes of one plan in progress at a time. A few hide most of the latency of the API server; many would let one
/// large object take it from all others.
const MAX_IN_PROGRESS: usize = 8;

/// Whether two consecutive steps may be in progress at the same time.
fn are_independent<C>(a: &Step<C>, b: &Step<C>) -> bool {
    let alike = matches!(
        (&a.action, &b.action),
        (Action::Create { .. }, Action::Create { .. }) | (Action::Delete { .. }, Action::Delete { .. })
    );
    alike && a.action.kind() == b.action.kind() && !a.sequential && !b.sequential
}

/// Splits creations into batches of 1, 2, 4, ..., as `slowStartBatch` of the ReplicaSet controller does: if the
/// first is rejected (a quota, an admission webhook), so are the others, and they are not sent.
fn slow_start<C>(independent: &[Step<C>]) -> impl Iterator<Item = &[Step<C>]> {
    let is_creation = independent.first().is_some_and(|step| matches!(step.action, Action::Create { .. }));
    let mut size = if is_creation { 1 } else { independent.len() };
    let mut rest = independent;
    std::iter::from_fn(move || {
        let (batch, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        size *= 2;
        (!batch.is_empty()).then_some(batch)
    })
}

impl Executor {
    /// Writes through `api` and into `caches`.
    pub fn new(api: Api, caches: Caches) -> Self {
        Self { api, caches }
    }

    /// Where it writes to.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Carries out the steps of a plan, in order, up to the first that fails. Consecutive creations of one kind
    /// are independent, and so are deletions: several are in progress at a time. `call` does what the operator
    /// itself does; `tell` hears of every step that has taken place.
    pub async fn act_out<C, F>(
        &self,
        steps: &[Step<C>],
        call: impl Fn(C) -> F,
        tell: impl Fn(&Event),
    ) -> Result<Vec<Written>, Failed<C>>
    where
        C: Clone,
        F: Future<Output = Result<(), Error>>,
    {
        let mut written = Vec::new();
        let step = async |step: &Step<C>| {
            let result = match &step.action {
                Action::Call(request) => call(request.clone()).await.map(|()| None),
                action => self.act(action).await,
            };
            match result {
                Ok(written) => {
                    // An apply that changed nothing has no event.
                    if written.is_some() || matches!(step.action, Action::Call(_)) {
                        step.event.iter().for_each(&tell);
                    }
                    Ok(written)
                }
                Err(error) => Err(Failed { action: step.action.clone(), error }),
            }
        };
        for independent in steps.chunk_by(are_independent) {
            for batch in slow_start(independent) {
                let (mut waiting, mut running) = (batch.iter(), FuturesOrdered::new());
                let mut failed = None;
                loop {
                    while failed.is_none()
                        && running.len() < MAX_IN_PROGRESS
                        && let Some(next) = waiting.next()
                    {
                        running.push_back(step(next));
                    }
                    match running.next().await {
                        Some(Ok(one)) => written.extend(one),
                        Some(Err(error)) => failed = failed.or(Some(error)),
                        None => break,
                    }
                }
                if let Some(failed) = failed {
                    return Err(failed);
                }
            }
        }
        Ok(written)
    }

    /// Writes the status of the root `key`, after the actions of the same plan have `written` what they did.
    pub async fn set_status(
        &self,
        kind: &ApiKind,
        key: &ObjectKey,
        status: Option<&StatusPatch>,
        written: Vec<Written>,
    ) -> Result<Done, Error> {
        let mut done = Done { written, status_waits: false };
        if let Some(status) = status {
            done.status_waits =
                done.written.iter().any(|written| written.key == *key && written.kind == *kind);
            if !done.status_waits {
                done.written.push(self.write_status(kind, key, status).await?);
            }
        }
        Ok(done)
    }

    /// Carries out one action that writes to Kubernetes; `None` if nothing had to be written.
    pub(crate) async fn act<C>(&self, action: &Action<C>) -> Result<Option<Written>, Error> {
        match action {
            Action::Apply { kind, object, manager } => self.apply(kind, object, manager).await,
            Action::Create { kind, object, accept_existing } => {
                self.create(kind, object, *accept_existing).await
            }
            Action::Patch { kind, key, subresource, patch_kind, patch } => {
                let subresource = subresource.as_deref();
                let answer = self.api.patch(kind, key, subresource, patch_kind, patch).await?;
                Ok(Some(match subresource {
                    None | Some("status") => self.wrote(kind, key, &answer),
                    // Other subresources (scale, ...) respond with an object of their own kind.
                    Some(_) => Written { kind: kind.clone(), key: key.clone(), version: None },
                }))
            }
            Action::CreateSubresource { kind, key, subresource, body } => {
                self.api.create_subresource(kind, key, subresource, body).await?;
                // An object that is gone meanwhile is shown by its watch.
                let read = self.api.get(kind, key).await?;
                let written = read.map(|text| self.wrote(kind, key, &text));
                Ok(Some(written.unwrap_or_else(|| Written {
                    kind: kind.clone(),
                    key: key.clone(),
                    version: None,
                })))
            }
            Action::Status { kind, key, patch } => self.write_status(kind, key, patch).await.map(Some),
            Action::Delete { kind, key, uid, propagation, grace_seconds } => {
                let answer = self.api.delete(kind, key, Some(uid), *propagation, *grace_seconds).await;
                match answer {
                    Ok(answer) => self.caches.deleted(kind, key, Some(uid), &answer),
                    Err(error) if self.is_gone(kind, key, uid, &error).await? => {
                        self.caches.gone(kind, key, uid);
                        return Ok(None);
                    }
                    Err(error) => return Err(error),
                }
                Ok(Some(Written { kind: kind.clone(), key: key.clone(), version: None }))
            }
            Action::Call(_) => Ok(None),
        }
    }

    /// Whether a rejected delete means that the object of this uid does not exist. A conflict may mean that
    /// another object has its name, or something else: only reading tells.
    async fn is_gone(
        &self,
        kind: &ApiKind,
        key: &ObjectKey,
        uid: &Uid,
        error: &Error,
    ) -> Result<bool, Error> {
        if error.class() != Class::Conflict {
            return Ok(error.is_not_found());
        }
        let Some(text) = self.api.get(kind, key).await? else {
            return Ok(true);
        };
        Ok(Head::read(&text, Form::Metadata).is_ok_and(|live| live.uid != *uid))
    }

    async fn apply(&self, kind: &ApiKind, object: &Value, manager: &str) -> Result<Option<Written>, Error> {
        let key = key_of(kind, object)?;
        let desired = hash_of(object, manager);
        let look_first = match self.caches.knowledge(kind, &key, &labels_of(object)) {
            Knowledge::Present(live) if live.applied == desired => return Ok(None),
            // A restart, or another client changed it: reading is cheaper than writing.
            Knowledge::Present(live) => live.applied == 0,
            Knowledge::Unknown => true,
            Knowledge::Absent => false,
        };
        if look_first && self.is_live(kind, &key, object, manager).await? {
            return Ok(None);
        }
        let patch = PatchKind::Apply { manager: manager.to_owned(), force: true };
        let answer = self.api.patch(kind, &key, None, &patch, object).await?;
        let written = self.wrote(kind, &key, &answer);
        self.caches.applied(kind, &key, written.version.unwrap_or_default(), desired);
        Ok(Some(written))
    }

    /// Whether the live object already is as we want it; if so, that is remembered.
    async fn is_live(
        &self,
        kind: &ApiKind,
        key: &ObjectKey,
        object: &Value,
        manager: &str,
    ) -> Result<bool, Error> {
        let Some(text) = self.api.get(kind, key).await? else {
            return Ok(false);
        };
        let read = self.wrote(kind, key, &text);
        let live = decode(kind, key, &text)?;
        let unchanged = unchanged::is_unchanged(&live, object, manager);
        if unchanged {
            self.caches.applied(kind, key, read.version.unwrap_or_default(), hash_of(object, manager));
        }
        Ok(unchanged)
    }

    async fn create(
        &self,
        kind: &ApiKind,
        object: &Value,
        accept_existing: bool,
    ) -> Result<Option<Written>, Error> {
        let key = key_of(kind, object)?;
        let is_known =
            || matches!(self.caches.knowledge(kind, &key, &labels_of(object)), Knowledge::Present(_));
        if accept_existing && is_known() {
            return Ok(None);
        }
        match self.api.create(kind, &key, object).await {
            Ok(answer) => Ok(Some(self.wrote(kind, &key, &answer))),
            Err(error) if error.status().is_some_and(kube::core::Status::is_already_exists) => {
                if accept_existing {
                    return Ok(None);
                }
                self.adopt_ours(kind, &key, object, error).await.map(Some)
            }
            Err(error) => Err(error),
        }
    }

    /// An object of that name exists. If it has the owner we gave it, an earlier attempt of ours succeeded and its
    /// response was lost.
    async fn adopt_ours(
        &self,
        kind: &ApiKind,
        key: &ObjectKey,
        object: &Value,
        error: Error,
    ) -> Result<Written, Error> {
        // Deleted in between: the next reconcile creates it.
        let Some(text) = self.api.get(kind, key).await? else {
            return Err(error);
        };
        let written = self.wrote(kind, key, &text);
        let live = decode(kind, key, &text)?;
        let is_dying = live.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
        let owner = controller_uid(object);
        if owner.is_some() && owner == controller_uid(&live) && !is_dying {
            return Ok(written);
        }
        Err(error)
    }

    async fn write_status(
        &self,
        kind: &ApiKind,
        key: &ObjectKey,
        change: &StatusPatch,
    ) -> Result<Written, Error> {
        let applied = match &change.applied {
            Some(applied) => Some(self.apply_status(kind, key, change, applied).await?),
            None => None,
        };
        let version = match applied {
            Some((written, true)) => return Ok(written),
            // Others own some of what had to go.
            Some((written, false)) => written.version.unwrap_or_default(),
            None => ResourceVersion(change.version),
        };
        // With uid and version: a status is valid only for the state it was derived from.
        let body = json!({
            "metadata": { "uid": change.uid, "resourceVersion": version.to_string() },
            "status": change.status,
        });
        let answer = self.api.patch(kind, key, Some("status"), &PatchKind::Merge, &body).await?;
        Ok(self.wrote(kind, key, &answer))
    }

    /// Applies a status, and says whether it has the change then.
    async fn apply_status(
        &self,
        kind: &ApiKind,
        key: &ObjectKey,
        change: &StatusPatch,
        applied: &AppliedStatus,
    ) -> Result<(Written, bool), Error> {
        let mut metadata =
            json!({ "name": key.name(), "uid": change.uid, "resourceVersion": change.version.to_string() });
        if let Some(namespace) = key.namespace() {
            metadata["namespace"] = namespace.into();
        }
        let object = json!({ "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata,
            "status": applied.status });
        let patch = PatchKind::Apply { manager: applied.manager.clone(), force: true };
        let answer = self.api.patch(kind, key, Some("status"), &patch, &object).await?;
        let live = decode(kind, key, &answer)?;
        Ok((self.wrote(kind, key, &answer), change.is_made(&live["status"])))
    }

    fn wrote(&self, kind: &ApiKind, key: &ObjectKey, answer: &str) -> Written {
        self.caches.written(kind, answer);
        let version = Head::read(answer, Form::Metadata).ok().map(|head| head.version);
        Written { kind: kind.clone(), key: key.clone(), version }
    }
}

fn decode(kind: &ApiKind, key: &ObjectKey, text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|error| {
        Error::new(Class::Transient, format!("cannot decode {kind} {key}"), error.to_string())
    })
}

/// The key of an object to be written. Generated names are rejected: an attempt whose response is lost would be
/// repeated under another name, and create two objects.
fn key_of(kind: &ApiKind, object: &Value) -> Result<ObjectKey, Error> {
    let field = |name| object.pointer(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(name) = field("/metadata/name") else {
        return Err(Error::new(
            Class::Bug,
            format!("cannot write {kind}"),
            "it has no name; derive one that every attempt would choose again",
        ));
    };
    let namespace = field("/metadata/namespace");
    if kind.namespaced != namespace.is_some() {
        let cause = if kind.namespaced { "it has no namespace" } else { "it must not have a namespace" };
        return Err(Error::new(Class::Bug, format!("cannot write {kind} {name}"), cause));
    }
    Ok(ObjectKey::new(namespace.unwrap_or_default(), name))
}

fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

fn controller_uid(object: &Value) -> Option<&str> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?.get("uid")?.as_str()
}

/// A hash of an applied configuration; never zero, which means that none is known.
fn hash_of(object: &Value, manager: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (object.to_string(), manager).hash(&mut hasher);
    hasher.finish().max(1)
}
