//! One pod of this node, as its tasks and the kubelet's API share it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use parking_lot::{Mutex, MutexGuard};
use quintet_controller::ObjectKey;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::pod::lifecycle::{Member, members};
use crate::pod::observe::Saved;
use crate::pod::stage::{Stage, stage};
use crate::pod::status::PodRecord;
use crate::shim::Shim;

pub(crate) struct PodHandle {
    pub key: ObjectKey,
    pub uid: String,
    /// Its directory on this machine.
    pub directory: PathBuf,
    inner: Mutex<Inner>,
    /// Counts changes, for those who wait for one.
    changes: watch::Sender<u64>,
    /// Ends the tasks of the pod.
    pub cancel: CancellationToken,
    /// The status that was written to the API last.
    pub published: tokio::sync::Mutex<Option<serde_json::Value>>,
    /// What was written to the disk last.
    pub kept: Mutex<Option<Saved>>,
}

struct Inner {
    /// As the API has it; `None` when it is gone from there.
    pod: Option<Arc<core::Pod>>,
    record: PodRecord,
    /// Containers to stop, with the reason: their probes failed.
    unhealthy: BTreeMap<String, Unhealthy>,
    /// Whether objects that the pod refers to have changed.
    has_new_sources: bool,
    shim: ShimProcess,
}

/// The process of a shim and when it started, which identifies it.
pub(crate) type ShimProcess = Option<(u32, (String, u64))>;

/// A container that has to be restarted because of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unhealthy {
    /// The instance that the probe was about.
    pub instance: String,
    pub message: String,
    /// How long it has to end, where the probe says so.
    pub grace_seconds: Option<i64>,
}

impl PodHandle {
    pub(crate) fn new(key: ObjectKey, uid: &str, directory: PathBuf, cancel: CancellationToken) -> Self {
        let inner = Inner {
            pod: None,
            record: PodRecord::default(),
            unhealthy: BTreeMap::new(),
            has_new_sources: false,
            shim: None,
        };
        let changes = watch::Sender::new(0);
        Self {
            key,
            uid: uid.to_owned(),
            directory,
            inner: Mutex::new(inner),
            changes,
            cancel,
            published: tokio::sync::Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// The pod as the API has it.
    pub(crate) fn pod(&self) -> Option<Arc<core::Pod>> {
        self.lock().pod.clone()
    }

    /// A copy of what is known of it.
    pub(crate) fn record(&self) -> PodRecord {
        self.lock().record.clone()
    }

    /// The pod in the API changed; an older state than the known one is ignored.
    pub(crate) fn observe(&self, pod: Option<Arc<core::Pod>>) {
        let version = |pod: &core::Pod| {
            pod.metadata.resource_version.as_deref().and_then(|version| version.parse::<u64>().ok())
        };
        let mut inner = self.lock();
        if let (Some(old), Some(new)) = (&inner.pod, &pod)
            && version(old) > version(new)
        {
            return;
        }
        inner.pod = pod;
        drop(inner);
        self.touch();
    }

    /// Changes the record.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut PodRecord) -> T) -> T {
        let outcome = change(&mut self.lock().record);
        self.touch();
        outcome
    }

    /// Ends the report about a resize that waits, if there is one.
    pub(crate) fn forget_resize(&self) {
        if self.lock().record.resize.take().is_some() {
            self.touch();
        }
    }

    /// What has to be done with the pod.
    pub(crate) fn stage(&self) -> Stage {
        let inner = self.lock();
        stage(inner.pod.as_deref(), &inner.record)
    }

    /// A probe says that a container has to be restarted.
    pub(crate) fn is_unhealthy(&self, container: &str, why: Unhealthy) {
        self.lock().unhealthy.insert(container.to_owned(), why);
        self.touch();
    }

    /// The containers that have to be restarted, once.
    pub(crate) fn take_unhealthy(&self) -> BTreeMap<String, Unhealthy> {
        std::mem::take(&mut self.lock().unhealthy)
    }

    /// Something that the pod refers to has changed.
    pub(crate) fn sources_changed(&self) {
        self.lock().has_new_sources = true;
        self.touch();
    }

    pub(crate) fn take_sources_changed(&self) -> bool {
        std::mem::take(&mut self.lock().has_new_sources)
    }

    pub(crate) fn set_shim(&self, shim: ShimProcess) {
        self.lock().shim = shim;
        self.touch();
    }

    /// What outlives the kubelet.
    pub(crate) fn saved(&self) -> Saved {
        let inner = self.lock();
        let key = (self.key.namespace().unwrap_or_default(), self.key.name());
        let mut saved = Saved::of(&inner.record, key);
        (saved.shim, saved.shim_started) = inner.shim.clone().unzip();
        saved
    }

    /// Reports changes from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Resolves when `condition` holds.
    pub(crate) async fn until<T>(&self, mut condition: impl FnMut(&PodRecord) -> Option<T>) -> T {
        let mut changes = self.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(found) = condition(&self.lock().record) {
                return found;
            }
            // The sender is part of the handle, so it exists.
            let _ = changes.changed().await;
        }
    }

    /// Resolves when the pod must not go on as it was: it is deleted, condemned or gone.
    pub(crate) async fn interrupted(&self) {
        let mut changes = self.subscribe();
        while self.stage() == Stage::Run {
            let _ = changes.changed().await;
        }
    }

    /// The shim of the pod, if it was started.
    pub(crate) fn shim(&self) -> Shim {
        Shim::of(&self.directory)
    }

    /// Where an instance of a container keeps its files.
    pub(crate) fn instance(&self, container: &str, attempt: u32) -> PathBuf {
        self.directory.join("containers").join(container).join(attempt.to_string())
    }

    /// The log of an instance of a container.
    pub(crate) fn log(&self, container: &str, attempt: u32) -> PathBuf {
        self.directory.join("logs").join(container).join(format!("{attempt}.log"))
    }

    fn touch(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// One container of a pod by name.
pub(crate) fn member<'a>(pod: &'a core::Pod, name: &str) -> Option<Member<'a>> {
    members(pod).into_iter().find(|member| member.spec.name == name)
}
