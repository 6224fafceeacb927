//! Runs the probes of a container instance.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use quintet_controller::Event;
use tokio::time::Instant;

use super::context::Context;
use super::dial::{self, HttpTarget};
use super::handle::{PodHandle, Unhealthy};
use crate::pod::lifecycle::Record;
use crate::pod::probe::{Outcome, Purpose, Timing, Verdict, port};

/// How HTTP probes introduce themselves.
const AGENT: &str = "kube-probe/1.36";

/// The instance that probes are about.
struct Probed {
    context: Arc<Context>,
    handle: Arc<PodHandle>,
    container: core::Container,
    instance: String,
    started_at: Timestamp,
}

/// Probes an instance until it ends. One without a startup probe has started; one without a readiness probe is ready.
pub(super) fn attend(
    context: &Arc<Context>,
    handle: &Arc<PodHandle>,
    container: &core::Container,
    instance: &str,
    started_at: Timestamp,
) {
    let probed = Probed {
        context: Arc::clone(context),
        handle: Arc::clone(handle),
        container: container.clone(),
        instance: instance.to_owned(),
        started_at,
    };
    let was_started = handle.record().containers.get(&container.name).is_some_and(|own| own.is_started);
    if container.startup_probe.is_none() || was_started {
        probed.has_started();
    }
    let has_probes = [&container.startup_probe, &container.liveness_probe, &container.readiness_probe];
    if has_probes.iter().any(|probe| probe.is_some()) {
        let name = format!("probes of {} in {}", container.name, handle.key);
        context.tasks.spawn(name, async move {
            tokio::select! {
                () = probed.handle.cancel.cancelled() => {}
                () = probed.ended() => {}
                () = probed.run() => {}
            }
        });
    }
}

impl Probed {
    async fn ended(&self) {
        self.handle
            .until(|record| (!self.is_current(record.containers.get(&self.container.name))).then_some(()))
            .await;
    }

    fn is_current(&self, own: Option<&Record>) -> bool {
        own.is_some_and(|own| {
            own.is_running() && own.state.as_ref().is_some_and(|state| state.id == self.instance)
        })
    }

    /// Changes what is known of the instance, if it is still the one that runs.
    fn update(&self, change: impl FnOnce(&mut Record)) {
        let record = self.handle.record();
        if !self.is_current(record.containers.get(&self.container.name)) {
            return;
        }
        self.handle.update(|record| {
            if let Some(own) = record.containers.get_mut(&self.container.name) {
                change(own);
            }
        });
    }

    fn has_started(&self) {
        let has_readiness = self.container.readiness_probe.is_some();
        self.update(|own| {
            own.is_started = true;
            own.is_ready |= !has_readiness;
        });
    }

    async fn run(&self) {
        let is_started =
            self.handle.record().containers.get(&self.container.name).is_some_and(|own| own.is_started);
        if let Some(probe) = self.container.startup_probe.as_ref().filter(|_| !is_started) {
            if !self.repeat(Purpose::Startup, probe).await {
                return;
            }
            self.has_started();
        }
        let liveness = async {
            if let Some(probe) = &self.container.liveness_probe {
                self.repeat(Purpose::Liveness, probe).await;
            }
        };
        let readiness = async {
            if let Some(probe) = &self.container.readiness_probe {
                self.repeat(Purpose::Readiness, probe).await;
            }
        };
        futures::future::join(liveness, readiness).await;
    }

    /// Runs a probe again and again; returns whether the container has started, or goes on without end.
    async fn repeat(&self, purpose: Purpose, probe: &core::Probe) -> bool {
        let timing = Timing::of(probe);
        let mut verdict = Verdict::new(purpose, timing);
        let wait = timing.first(self.started_at).duration_since(self.context.clock.now());
        let mut next = Instant::now() + Duration::try_from(wait).unwrap_or_default();
        loop {
            tokio::time::sleep_until(next).await;
            next = Instant::now() + timing.period;
            let outcome = self.probe(probe, timing.timeout).await;
            self.report(purpose, &outcome);
            match (purpose, verdict.count(&outcome)) {
                (Purpose::Startup, Some(true)) => return true,
                (Purpose::Readiness, Some(is_ready)) => self.update(|own| own.is_ready = is_ready),
                (Purpose::Startup | Purpose::Liveness, Some(false)) => {
                    let word = purpose.title().to_lowercase();
                    let message =
                        format!("Container {} failed {word} probe, will be restarted", self.container.name);
                    let grace_seconds = probe.termination_grace_period_seconds;
                    let why = Unhealthy { instance: self.instance.clone(), message, grace_seconds };
                    self.handle.is_unhealthy(&self.container.name, why);
                    // On hold until there is a new instance.
                    return false;
                }
                _ => {}
            }
        }
    }

    fn report(&self, purpose: Purpose, outcome: &Outcome) {
        let title = purpose.title();
        let (reason, note) = match outcome {
            Outcome::Success => return,
            Outcome::Warning(why) => ("ProbeWarning", format!("{title} probe warning: {why}")),
            Outcome::Failure(why) => ("Unhealthy", format!("{title} probe failed: {why}")),
            Outcome::Unknown(why) => {
                ("Unhealthy", format!("{title} probe errored and resulted in unknown state: {why}"))
            }
        };
        self.context.event((&self.handle.key, &self.handle.uid), Event::warning(reason, "Probing", note));
    }

    async fn probe(&self, probe: &core::Probe, timeout: Duration) -> Outcome {
        match tokio::time::timeout(timeout, self.probe_once(probe)).await {
            Ok(outcome) => outcome,
            Err(_) if probe.exec.is_some() => {
                Outcome::Failure(format!("command timed out after {}s", timeout.as_secs()))
            }
            Err(_) => Outcome::Failure(
                "context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into(),
            ),
        }
    }

    async fn probe_once(&self, probe: &core::Probe) -> Outcome {
        let pod_ip = self.handle.record().pod_ips.first().cloned().unwrap_or_default();
        if let Some(exec) = &probe.exec {
            let command = exec.command.as_deref().unwrap_or_default();
            return match dial::command(&self.handle, &self.container.name, command).await {
                Ok((0, _)) => Outcome::Success,
                Ok((_, output)) => Outcome::Failure(output),
                Err(error) => Outcome::Unknown(error),
            };
        }
        if let Some(action) = &probe.http_get {
            let target = match HttpTarget::of(action, &self.container, &pod_ip) {
                Ok(target) => target,
                Err(error) => return Outcome::Unknown(error),
            };
            return match dial::http(&target, AGENT).await {
                Ok(response) if response.status.is_redirection() => {
                    Outcome::Warning(format!("Probe terminated redirects, Response body: {}", response.body))
                }
                Ok(response) if response.status.is_success() => Outcome::Success,
                Ok(response) => {
                    let code = response.status.as_u16();
                    tracing::debug!("probe of {}: {}", self.handle.key, response.body);
                    Outcome::Failure(format!("HTTP probe failed with statuscode: {code}"))
                }
                Err(error) => Outcome::Failure(error),
            };
        }
        if let Some(action) = &probe.tcp_socket {
            let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&pod_ip);
            let Some(number) = port(&action.port, &self.container) else {
                return Outcome::Unknown(format!("the container has no port {:?}", action.port));
            };
            return dial::connect(host, number).await.map_or_else(Outcome::Failure, |_| Outcome::Success);
        }
        if let Some(action) = &probe.grpc {
            let Ok(number) = u16::try_from(action.port) else {
                return Outcome::Unknown(format!("{} is not a port", action.port));
            };
            let service = action.service.as_deref().unwrap_or_default();
            return match dial::grpc(&pod_ip, number, service).await {
                Ok(()) => Outcome::Success,
                Err(error) => Outcome::Failure(error),
            };
        }
        Outcome::Unknown("the probe has no handler that is supported".into())
    }
}
