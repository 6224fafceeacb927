//! Stopping containers: hooks, signals and the time they have.

use std::str::FromStr as _;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1 as core;
use nix::sys::signal::Signal;
use quintet_controller::Event;
use tokio::time::{Instant, sleep};

use super::context::Context;
use super::handle::PodHandle;
use super::hooks;
use crate::pod::lifecycle::{Role, members};
use crate::pod::stage::Stage;

/// What a container has left after its hook, however long that took.
const AFTER_HOOK: Duration = Duration::from_secs(2);
/// How long the kernel may take to end a process that was killed.
const KILLED: Duration = Duration::from_secs(30);

/// How long containers have to end.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    /// This long.
    Fixed(Duration),
    /// As the pod says, which may become less while they end.
    OfPod,
}

/// Time that passes while containers end.
struct Countdown<'a> {
    handle: &'a PodHandle,
    begun: Instant,
    patience: Patience,
}

impl Countdown<'_> {
    fn limit(&self) -> Duration {
        match (self.patience, self.handle.stage()) {
            (Patience::Fixed(limit), _) | (Patience::OfPod, Stage::Terminate(limit)) => limit,
            (Patience::OfPod, _) => Duration::ZERO,
        }
    }

    /// Resolves when the time is over.
    async fn over(&self) {
        let mut changes = self.handle.subscribe();
        loop {
            let left = self.limit().saturating_sub(self.begun.elapsed());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = sleep(left) => {}
                _ = changes.changed() => {}
            }
        }
    }
}

/// Stops one container, with its hook.
pub(super) async fn container(
    context: &Context,
    handle: &PodHandle,
    spec: &core::Container,
    patience: Patience,
    note: String,
) {
    let countdown = Countdown { handle, begun: Instant::now(), patience };
    let Some(instance) = running(handle, &spec.name) else { return };
    context.event((&handle.key, &handle.uid), Event::normal("Killing", "Killing", note));
    run_hook(context, &countdown, spec, &instance).await;
    end(&countdown, spec, &instance).await;
}

/// Stops all containers of a pod: regular ones at once, then sidecars, the last one first.
pub(super) async fn pod(context: &Context, handle: &PodHandle, pod: &core::Pod) {
    let countdown = Countdown { handle, begun: Instant::now(), patience: Patience::OfPod };
    let members = members(pod);
    let alive: Vec<_> =
        members.iter().filter_map(|member| Some((member, running(handle, &member.spec.name)?))).collect();
    for (member, _) in &alive {
        let note = format!("Stopping container {}", member.spec.name);
        context.event((&handle.key, &handle.uid), Event::normal("Killing", "Killing", note));
    }
    let (sidecars, regular): (Vec<_>, Vec<_>) =
        alive.iter().partition(|(member, _)| member.role == Role::Sidecar);
    let stop_regular = join_all(regular.iter().map(async |(member, instance)| {
        run_hook(context, &countdown, &member.spec, instance).await;
        end(&countdown, &member.spec, instance).await;
    }));
    // Hooks of sidecars do not wait; their signals do.
    let prepare_sidecars = join_all(
        sidecars.iter().map(|(member, instance)| run_hook(context, &countdown, &member.spec, instance)),
    );
    futures::future::join(stop_regular, prepare_sidecars).await;
    for (member, instance) in sidecars.iter().rev() {
        end(&countdown, &member.spec, instance).await;
    }
}

/// The identifier of the instance that runs.
fn running(handle: &PodHandle, container: &str) -> Option<String> {
    let record = handle.record();
    let own = record.containers.get(container)?;
    own.state.as_ref().filter(|_| own.is_running()).map(|state| state.id.clone())
}

async fn run_hook(context: &Context, countdown: &Countdown<'_>, spec: &core::Container, instance: &str) {
    let Some(hook) = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) else {
        return;
    };
    let handle = countdown.handle;
    let outcome = tokio::select! {
        outcome = hooks::run(handle, spec, hook) => outcome,
        () = ended(handle, &spec.name, instance) => return,
        () = countdown.over() => Err("the grace period is over".into()),
    };
    if let Err(why) = outcome {
        let note = format!("PreStopHook failed: {why}");
        context.event((&handle.key, &handle.uid), Event::warning("FailedPreStopHook", "Killing", note));
    }
}

/// Asks an instance to end, and kills it when its time is over.
async fn end(countdown: &Countdown<'_>, spec: &core::Container, instance: &str) {
    let handle = countdown.handle;
    let signal = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_deref());
    let signal = signal.and_then(|name| Signal::from_str(name).ok()).unwrap_or(Signal::SIGTERM);
    send(handle, &spec.name, signal).await;
    let asked = Instant::now();
    let is_late = async {
        countdown.over().await;
        let has_hook = spec.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.pre_stop.is_some());
        if has_hook {
            sleep(AFTER_HOOK.saturating_sub(asked.elapsed())).await;
        }
    };
    tokio::select! {
        () = ended(handle, &spec.name, instance) => return,
        () = is_late => {}
    }
    send(handle, &spec.name, Signal::SIGKILL).await;
    if tokio::time::timeout(KILLED, ended(handle, &spec.name, instance)).await.is_err() {
        tracing::warn!("container {} of pod {} was killed and has not ended", spec.name, handle.key);
    }
}

async fn send(handle: &PodHandle, container: &str, signal: Signal) {
    // It may have ended by itself, and the shim with it.
    if let Err(error) = handle.shim().signal(container, signal as i32).await {
        tracing::debug!("cannot signal container {container} of pod {}: {error}", handle.key);
    }
}

/// Resolves when an instance does not run any more.
async fn ended(handle: &PodHandle, container: &str, instance: &str) {
    let is_running = |record: &crate::pod::status::PodRecord| {
        let own = record.containers.get(container);
        own.is_some_and(|own| {
            own.is_running() && own.state.as_ref().is_some_and(|state| state.id == instance)
        })
    };
    handle.until(|record| (!is_running(record)).then_some(())).await;
}
