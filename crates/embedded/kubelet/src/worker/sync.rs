//! The worker of one pod: decides by [`crate::pod`] what to do next, and does it.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use quintet_controller::api::Propagation;
use quintet_controller::{ApiKind, Event};

use super::container::{self, Prepared};
use super::context::Context;
use super::handle::{PodHandle, member};
use super::image::{Pulls, after};
use super::pods::Pods;
use super::references::{self, Tokens};
use super::stop::{self, Patience};
use super::{hooks, probe, publish, resize, sandbox, storage, usage, volumes};
use crate::pod::lifecycle::{Member, Step, members, restarts_after, steps};
use crate::pod::observe::absorb;
use crate::pod::stage::{Stage, deadline, deadline_exceeded, grace};
use crate::pod::status::PodRecord;

/// The first wait before volumes or a sandbox are tried again; every further one is twice as long.
const RETRY: Duration = Duration::from_millis(500);
/// The longest wait.
const RETRY_LIMIT: Duration = Duration::from_mins(2);
/// Before a resize that does not fit is tried again: other pods may have gone.
const RESIZE_RETRY: Duration = Duration::from_secs(5);
/// Before a pod that could not be removed from the API is tried again.
const REMOVE_RETRY: Duration = Duration::from_secs(1);

struct Worker {
    context: Arc<Context>,
    handle: Arc<PodHandle>,
    /// As it was last, for pods that are gone from the API.
    pod: Option<Arc<core::Pod>>,
    prepared: Option<Prepared>,
    tokens: Tokens,
    pulls: Pulls,
    /// Failures in a row to prepare the pod.
    failures: u32,
    /// Instances whose probes run.
    attended: BTreeSet<String>,
    /// Instances whose back-off was reported.
    backed_off: BTreeSet<String>,
    is_removed: bool,
    /// The other pods of the node.
    pods: Pods,
}

/// Runs a pod until it is forgotten, or the kubelet stops; returns whether it is forgotten.
pub(super) async fn run(context: Arc<Context>, handle: Arc<PodHandle>, pods: Pods) -> bool {
    sandbox::adopt(&context, &handle).await;
    let name = |what: &str| format!("{what} of {}", handle.key);
    context.tasks.spawn(name("status"), publish::run(Arc::clone(&context), Arc::clone(&handle)));
    context.tasks.spawn(name("disk usage"), usage::run(Arc::clone(&context), Arc::clone(&handle)));
    let mut worker = Worker {
        context: Arc::clone(&context),
        handle: Arc::clone(&handle),
        pod: None,
        prepared: None,
        tokens: Tokens::default(),
        pulls: Pulls::default(),
        failures: 0,
        attended: BTreeSet::new(),
        backed_off: BTreeSet::new(),
        is_removed: false,
        pods,
    };
    tokio::select! {
        () = context.tasks.stopping() => false,
        () = worker.run() => true,
    }
}

impl Worker {
    async fn run(&mut self) {
        let mut changes = self.handle.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(pod) = self.handle.pod() {
                self.pod = Some(pod);
            }
            let wake = match (self.handle.stage(), self.pod.clone()) {
                (Stage::Forget, _) => {
                    self.forget().await;
                    return;
                }
                (Stage::Run, Some(pod)) => {
                    let handle = Arc::clone(&self.handle);
                    tokio::select! {
                        wake = self.sync(&pod) => wake,
                        () = handle.interrupted() => continue,
                    }
                }
                (Stage::Terminate(_) | Stage::Run, _) => {
                    self.terminate().await;
                    continue;
                }
                (Stage::Remove, _) => self.remove().await,
                (Stage::Rest, _) => None,
            };
            let pause = async {
                match wake {
                    Some(at) => {
                        let wait = at.duration_since(self.context.clock.now());
                        tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = pause => {}
            }
        }
    }

    /// Brings the pod closer to what it should be; returns when to requeue if nothing changes.
    async fn sync(&mut self, pod: &core::Pod) -> Option<Timestamp> {
        let now = self.context.clock.now();
        if self.handle.record().start_time.is_none() {
            let start = pod.status.as_ref().and_then(|status| status.start_time.clone()).map(|time| time.0);
            let host_ips = vec![self.context.node_address.to_string()];
            self.handle.update(|record| {
                record.start_time = start.or(Some(now));
                record.host_ips = host_ips;
            });
        }
        let deadline = deadline(pod, &self.handle.record());
        if deadline.is_some_and(|deadline| deadline <= now) {
            let verdict = deadline_exceeded();
            let event = Event::warning(&verdict.reason, "Killing", verdict.message.clone());
            self.event(event);
            self.handle.update(|record| record.verdict = Some(verdict));
            return None;
        }
        // Of an earlier kubelet that died before it had cleared away what had ended.
        if steps(pod, &self.handle.record().containers, now).is_over {
            self.end().await;
            return None;
        }
        let next = match self.prepare(pod, now).await {
            Ok(next) => next,
            Err(retry) => return [deadline, Some(retry)].into_iter().flatten().min(),
        };
        self.stop_unhealthy(pod).await;
        self.attend(pod);
        let has_to_wait = resize::run(&self.context, &self.handle, pod, &self.pods).await;
        let resize = has_to_wait.then(|| after(self.context.clock.now(), RESIZE_RETRY));
        let wake = self.advance(pod).await;
        [deadline, next, resize, wake].into_iter().flatten().min()
    }

    /// Sets up volumes and the sandbox; returns when volumes have to be brought up to date.
    async fn prepare(&mut self, pod: &core::Pod, now: Timestamp) -> Result<Option<Timestamp>, Timestamp> {
        let has_new_sources = self.handle.take_sources_changed();
        let is_due = self.tokens.refresh_at().is_some_and(|at| at <= now);
        if self.prepared.is_none() || has_new_sources || is_due {
            if has_new_sources {
                self.forget_config_errors();
            }
            if let Err(message) = self.prepare_volumes(pod).await {
                self.event(Event::warning("FailedMount", "Mounting", message));
                let retry = self.retry(now);
                if self.prepared.is_none() {
                    return Err(retry);
                }
                return Ok(Some(retry));
            }
        }
        let had_sandbox = !self.handle.record().pod_ips.is_empty() && !self.handle.record().has_sandbox;
        if had_sandbox && !self.handle.record().containers.is_empty() {
            let note = "Pod sandbox changed, it will be killed and re-created.";
            self.event(Event::normal("SandboxChanged", "Starting", note));
            storage::kill_shim(&self.handle.directory, &self.handle.saved()).await;
        }
        if let Err(why) = sandbox::ensure(&self.context, &self.handle, pod).await {
            let note = format!("Failed to create pod sandbox: {why}");
            self.event(Event::warning("FailedCreatePodSandBox", "Starting", note));
            return Err(self.retry(now));
        }
        self.failures = 0;
        if let Some(prepared) = &mut self.prepared {
            prepared.references.pod_ips = self.handle.record().pod_ips;
        }
        Ok(self.tokens.refresh_at())
    }

    async fn prepare_volumes(&mut self, pod: &core::Pod) -> Result<(), String> {
        storage::make(&self.handle.directory).map_err(|error| error.to_string())?;
        let pod_ips = self.handle.record().pod_ips;
        let sources = references::read(&self.context, pod, &pod_ips, &mut self.tokens).await;
        let sources = sources.map_err(|error| error.to_string())?;
        let volumes = volumes::prepare(&self.context, &self.handle, pod, &sources).await;
        let volumes = volumes.map_err(|error| error.to_string())?;
        self.prepared = Some(Prepared { references: sources.references, volumes });
        Ok(())
    }

    fn retry(&mut self, now: Timestamp) -> Timestamp {
        let wait = RETRY.saturating_mul(1 << self.failures.min(10)).min(RETRY_LIMIT);
        self.failures += 1;
        after(now, wait)
    }

    /// What was missing may be there now.
    fn forget_config_errors(&self) {
        self.handle.update(|record| {
            for own in record.containers.values_mut() {
                own.waiting.take_if(|why| why.reason == "CreateContainerConfigError");
            }
        });
    }

    /// Stops containers whose probes failed. The restart policy decides what comes next.
    async fn stop_unhealthy(&self, pod: &core::Pod) {
        for (name, why) in self.handle.take_unhealthy() {
            let record = self.handle.record();
            let state = record.containers.get(&name).and_then(|own| own.state.as_ref());
            if state.is_none_or(|state| state.id != why.instance || state.exit.is_some()) {
                continue;
            }
            let own =
                why.grace_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
            let Some(member) = member(pod, &name) else { continue };
            let patience = Patience::Fixed(own.unwrap_or_else(|| grace(pod)));
            stop::container(&self.context, &self.handle, &member.spec, patience, why.message).await;
        }
    }

    /// Runs the probes of every instance, also of those that an earlier kubelet started.
    fn attend(&mut self, pod: &core::Pod) {
        let record = self.handle.record();
        for member in members(pod) {
            let own = record.containers.get(&member.spec.name).filter(|own| own.is_running());
            let Some(state) = own.and_then(|own| own.state.as_ref()) else { continue };
            if self.attended.insert(state.id.clone()) {
                probe::attend(&self.context, &self.handle, &member.spec, &state.id, state.started_at);
            }
        }
    }

    /// Starts and stops containers as the lifecycle says.
    async fn advance(&mut self, pod: &core::Pod) -> Option<Timestamp> {
        let record = self.handle.record();
        let plan = steps(pod, &record.containers, self.context.clock.now());
        if plan.is_over {
            self.end().await;
            return None;
        }
        self.report_backoffs(pod);
        for step in plan.steps {
            match step {
                Step::Start { container, attempt } => {
                    if let Some(member) = member(pod, &container) {
                        self.start(pod, &member, attempt).await;
                    }
                }
                Step::Stop { container } => {
                    if let Some(member) = member(pod, &container) {
                        let note = format!("Stopping container {container}");
                        let patience = Patience::Fixed(grace(pod));
                        stop::container(&self.context, &self.handle, &member.spec, patience, note).await;
                    }
                }
            }
        }
        plan.wake
    }

    async fn start(&mut self, pod: &core::Pod, member: &Member<'_>, attempt: u32) {
        let Some(prepared) = &self.prepared else { return };
        let name = &member.spec.name;
        let (context, handle) = (&self.context, &self.handle);
        let outcome =
            container::start(context, handle, (pod, &member.spec), attempt, prepared, &mut self.pulls).await;
        match outcome {
            Ok(true) => {
                let resources = member.spec.resources.clone().unwrap_or_default();
                let given = |record: &mut PodRecord| {
                    record.containers.entry(name.clone()).or_default().allocated = Some(resources);
                };
                handle.update(given);
                self.started(pod, member).await;
            }
            Ok(false) => {}
            Err(why) => {
                handle
                    .update(|record| record.containers.entry(name.clone()).or_default().waiting = Some(why));
            }
        }
    }

    /// A new instance runs: its hook comes first, then its probes.
    async fn started(&mut self, pod: &core::Pod, member: &Member<'_>) {
        if let Ok(states) = self.handle.shim().status().await {
            self.handle.update(|record| {
                let mut states = states;
                // An end is taken over by those who read the last words first.
                states.retain(|_, state| state.exit.is_none());
                drop(absorb(record, states));
            });
        }
        let hook = member.spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref());
        if let Some(hook) = hook
            && let Err(why) = hooks::run(&self.handle, &member.spec, hook).await
        {
            self.event(Event::warning(
                "FailedPostStartHook",
                "Starting",
                format!("PostStartHook failed: {why}"),
            ));
            let note = "FailedPostStartHook".to_owned();
            let patience = Patience::Fixed(grace(pod));
            stop::container(&self.context, &self.handle, &member.spec, patience, note).await;
        }
        self.attend(pod);
    }

    /// Says once per instance that its restart has to wait.
    fn report_backoffs(&mut self, pod: &core::Pod) {
        let record = self.handle.record();
        for member in members(pod) {
            let Some(own) = record.containers.get(&member.spec.name) else { continue };
            let Some((state, exit)) =
                own.state.as_ref().and_then(|state| Some((state, state.exit.as_ref()?)))
            else {
                continue;
            };
            let waits = !own.backoff.wait().is_zero() && restarts_after(pod, &member, exit);
            if waits && self.backed_off.insert(state.id.clone()) {
                let (name, key) = (&member.spec.name, &self.handle.key);
                let note = format!(
                    "Back-off restarting failed container {name} in pod {}_{}({})",
                    key.name(),
                    key.namespace().unwrap_or_default(),
                    self.handle.uid
                );
                self.event(Event::warning("BackOff", "Restarting", note));
            }
        }
    }

    /// Ends all containers, and with them the pod.
    async fn terminate(&mut self) {
        if let (true, Some(pod)) = (self.handle.record().has_sandbox, &self.pod) {
            stop::pod(&self.context, &self.handle, pod).await;
        }
        self.end().await;
    }

    /// Nothing runs any more: takes the sandbox down and lets the pod be over.
    async fn end(&self) {
        // With the shim goes what it knows of exit codes.
        if self.handle.record().has_sandbox
            && let Err(error) = publish::keep(&self.handle)
        {
            tracing::warn!("cannot write the record of pod {}: {error}", self.handle.key);
        }
        sandbox::tear_down(&self.context, &self.handle).await;
        let directory = self.handle.directory.clone();
        let cleared = tokio::task::spawn_blocking(move || {
            for part in ["volumes", "containers"] {
                match fs::remove_dir_all(directory.join(part)) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        });
        if let Ok(Err(error)) = cleared.await {
            tracing::warn!("cannot remove files of pod {}: {error}", self.handle.key);
        }
        self.handle.update(|record| record.is_over = true);
    }

    /// Removes a pod from the API whose processes are gone. It stays there while finalizers do.
    async fn remove(&mut self) -> Option<Timestamp> {
        if self.is_removed {
            return None;
        }
        let retry = after(self.context.clock.now(), REMOVE_RETRY);
        if publish::now(&self.context, &self.handle).await.is_err() {
            return Some(retry);
        }
        let kind = ApiKind::of::<core::Pod>();
        let uid = self.handle.uid.as_str().into();
        let outcome = self
            .context
            .api
            .delete(&kind, &self.handle.key, Some(&uid), Propagation::Background, Some(0))
            .await;
        match outcome {
            Ok(_) => {}
            Err(error) if error.is_not_found() || error.has_code(409) => {}
            Err(error) => {
                tracing::warn!("cannot remove pod {}, trying again: {error}", self.handle.key);
                return Some(retry);
            }
        }
        self.is_removed = true;
        None
    }

    async fn forget(&self) {
        let directory = self.handle.directory.clone();
        let removed = tokio::task::spawn_blocking(move || storage::remove(&directory)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!("cannot remove the directory of pod {}: {error}", self.handle.key);
        }
    }

    fn event(&self, event: Event) {
        self.context.event((&self.handle.key, &self.handle.uid), event);
    }
}
