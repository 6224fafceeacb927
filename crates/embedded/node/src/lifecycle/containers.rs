//! The containers of a pod.

use std::time::Duration;

use jiff::Timestamp;

use super::{Wake, second};
use crate::pod::{Container, ContainerState, ContainerStatus, Pod, RestartPolicy, Spec, Status};

/// Reports every container without a status as waiting.
pub(super) fn prepare(spec: &Spec, status: &mut Status) {
    let reason = if spec.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let wait = |containers: &[Container], statuses: &mut Vec<ContainerStatus>| {
        for container in containers {
            // Ephemeral containers come later than the others.
            if !statuses.iter().any(|known| known.name == container.name) {
                statuses.push(ContainerStatus {
                    name: container.name.clone(),
                    image: container.image.clone(),
                    state: ContainerState::waiting(reason, None),
                    ..ContainerStatus::default()
                });
            }
        }
    };
    wait(&spec.containers, &mut status.container_statuses);
    wait(&spec.init_containers, &mut status.init_container_statuses);
    wait(&spec.ephemeral_containers, &mut status.ephemeral_container_statuses);
}

/// Keeps all containers waiting for a reason; `false` if one has started already.
pub(super) fn hold(status: &mut Status, reason: &str, message: Option<&String>) -> bool {
    let mut all = status.init_container_statuses.iter().chain(&status.container_statuses);
    if all.any(|container| container.state.waiting.is_none() || container.restart_count > 0) {
        return false;
    }
    for container in status.init_container_statuses.iter_mut().chain(&mut status.container_statuses) {
        container.state = ContainerState::waiting(reason, message.cloned());
    }
    true
}

/// Advances the containers to their state at this moment.
pub(super) fn advance(pod: &Pod, status: &mut Status, wake: &mut Wake) {
    let mut initialised = true;
    for (container, reported) in pod.spec.init_containers.iter().zip(&mut status.init_container_statuses) {
        initialised = initialise(pod, container, reported, wake);
        if !initialised {
            break;
        }
    }
    if initialised {
        for reported in &mut status.container_statuses {
            run(pod, reported, wake);
        }
        for reported in &mut status.ephemeral_container_statuses {
            if reported.state.waiting.is_some() {
                start(reported, second(wake.now));
            }
        }
    }
    grant(&pod.spec.init_containers, &mut status.init_container_statuses);
    grant(&pod.spec.containers, &mut status.container_statuses);
}

/// Reports the resources of running containers; a resize takes effect at once.
fn grant(containers: &[Container], statuses: &mut [ContainerStatus]) {
    for reported in statuses.iter_mut().filter(|reported| reported.state.running.is_some()) {
        if let Some(container) = containers.iter().find(|container| container.name == reported.name) {
            reported.allocated_resources.clone_from(&container.resources.requests);
            reported.resources = Some(container.resources.clone());
        }
    }
}

/// An init container; `true` when the next one may start.
fn initialise(pod: &Pod, container: &Container, reported: &mut ContainerStatus, wake: &mut Wake) -> bool {
    let now = second(wake.now);
    if reported.state.waiting.is_some() {
        start(reported, now);
    }
    if container.is_sidecar() {
        (reported.ready, reported.started) = (true, true);
        return true;
    }
    if let Some(running) = &reported.state.running
        && wake.is_past(running.started_at, pod.options.init_for)
    {
        reported.end(0, now);
        reported.ready = true;
    }
    reported.state.terminated.is_some()
}

/// A regular container.
fn run(pod: &Pod, reported: &mut ContainerStatus, wake: &mut Wake) {
    let now = second(wake.now);
    loop {
        if let Some(running) = &reported.state.running {
            let started = running.started_at;
            reported.started = true;
            reported.ready = wake.is_past(started, pod.options.ready_after);
            match pod.options.run_for {
                Some(time) if wake.is_past(started, time) => reported.end(pod.options.exit_code, now),
                _ => return,
            }
        } else if let Some(ended) = reported.state.terminated.clone() {
            let again = match pod.spec.restart_policy {
                RestartPolicy::Always => true,
                RestartPolicy::OnFailure => ended.exit_code != 0,
                RestartPolicy::Never => false,
            };
            if !again {
                return;
            }
            reported.last_state = reported.state.clone();
            reported.state = ContainerState::waiting("CrashLoopBackOff", None);
        } else {
            let ended = reported.last_state.terminated.as_ref().and_then(|ended| ended.finished_at);
            if let Some(ended) = ended {
                let pause = backoff(reported.restart_count);
                if !wake.is_past(ended, pause) {
                    let message = format!(
                        "back-off {}s restarting failed container={}",
                        pause.as_secs(),
                        reported.name
                    );
                    reported.state = ContainerState::waiting("CrashLoopBackOff", Some(message));
                    return;
                }
                reported.restart_count += 1;
            }
            start(reported, now);
        }
    }
}

/// The crash loop back-off before a container is started again: not at all the first time, then ten seconds,
/// twice that each time, and at most five minutes.
fn backoff(restarts: i32) -> Duration {
    match u32::try_from(restarts) {
        Ok(0) | Err(_) => Duration::ZERO,
        Ok(restarts) => Duration::from_secs(10_u64 << (restarts - 1).min(5)).min(Duration::from_mins(5)),
    }
}

fn start(reported: &mut ContainerStatus, now: Timestamp) {
    reported.state = ContainerState::running(now);
    reported.container_id = Some(format!("simulated://{}-{}", reported.name, reported.restart_count));
    reported.image_id.clone_from(&reported.image);
}

/// Terminates all running containers.
pub(super) fn end_all(status: &mut Status, exit_code: i32, now: Timestamp) {
    let regular = status.init_container_statuses.iter_mut().chain(&mut status.container_statuses);
    for container in regular.chain(&mut status.ephemeral_container_statuses) {
        container.end(exit_code, now);
    }
}

/// Derives phase and conditions from the containers.
pub(super) fn summarise(pod: &Pod, status: &mut Status, now: Timestamp) {
    let containers = &status.container_statuses;
    let ended: Vec<_> =
        containers.iter().filter_map(|container| container.state.terminated.as_ref()).collect();
    if !containers.is_empty() && ended.len() == containers.len() {
        let succeeded = ended.iter().all(|ended| ended.exit_code == 0);
        let helpers =
            status.init_container_statuses.iter_mut().chain(&mut status.ephemeral_container_statuses);
        for helper in helpers {
            helper.end(0, now);
        }
        status.phase = Some(if succeeded { "Succeeded" } else { "Failed" }.to_owned());
        return not_ready(pod, status, if succeeded { "PodCompleted" } else { "PodFailed" }, now);
    }
    let never_started = |reported: &ContainerStatus| {
        reported.state.waiting.is_some() && reported.last_state.terminated.is_none()
    };
    let pending = containers.iter().any(never_started);
    let unready: Vec<_> =
        containers.iter().filter(|reported| !reported.ready).map(|reported| reported.name.clone()).collect();
    let has_sandbox = status.pod_ip.is_some();
    let initialised =
        pod.spec.init_containers.iter().zip(&status.init_container_statuses).all(|(container, reported)| {
            reported.state.terminated.is_some() || container.is_sidecar() && reported.started
        });
    let unready_message = format!("containers with unready status: [{}]", unready.join(" "));
    let gate = pod.spec.readiness_gates.iter().find(|gate| !status.is_true(&gate.condition_type));
    let gate = gate
        .map(|gate| format!("the status of pod readiness gate \"{}\" is not \"True\"", gate.condition_type));

    status.phase = Some(if pending { "Pending" } else { "Running" }.to_owned());
    status.set("PodReadyToStartContainers", has_sandbox, None, now);
    let missing = || {
        let unfinished =
            status.init_container_statuses.iter().filter(|reported| reported.state.terminated.is_none());
        let names: Vec<_> = unfinished.map(|reported| reported.name.as_str()).collect();
        format!("containers with incomplete status: [{}]", names.join(" "))
    };
    let why = (!initialised).then(|| ("ContainersNotInitialized", Some(missing())));
    status.set("Initialized", initialised, why, now);
    let why = (!unready.is_empty()).then_some(("ContainersNotReady", Some(unready_message)));
    status.set("ContainersReady", unready.is_empty(), why.clone(), now);
    let why = why.or_else(|| gate.map(|message| ("ReadinessGatesNotReady", Some(message))));
    status.set("Ready", why.is_none(), why, now);
}

/// The conditions of a terminated pod.
pub(super) fn not_ready(pod: &Pod, status: &mut Status, reason: &str, now: Timestamp) {
    let initialised = status.is_true("Initialized") || pod.spec.init_containers.is_empty();
    if initialised {
        status.set("Initialized", true, Some((reason, None)).filter(|(why, _)| *why == "PodCompleted"), now);
    }
    status.set("PodReadyToStartContainers", false, None, now);
    status.set("ContainersReady", false, Some((reason, None)), now);
    status.set("Ready", false, Some((reason, None)), now);
}
