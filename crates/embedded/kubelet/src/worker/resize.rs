//! Resizing in place: `pods/resize` changes the requests and limits of running containers.

use k8s_openapi::api::core::v1 as core;
use quintet_controller::Event;

use super::context::Context;
use super::handle::PodHandle;
use super::pods::Pods;
use super::stop::{self, Patience};
use crate::cgroups::Cgroups;
use crate::pod::lifecycle::{Member, Role, members};
use crate::pod::resources::limits;
use crate::pod::stage::grace;
use crate::pod::status::{PodRecord, Resize};

/// Gives running containers the resources that the pod asks for now. Returns whether some of it has to be tried again.
pub(super) async fn run(context: &Context, handle: &PodHandle, pod: &core::Pod, pods: &Pods) -> bool {
    let members = members(pod);
    adopt(handle, &members);
    let changed = changed(&members, &handle.record());
    if changed.is_empty() {
        handle.forget_resize();
        return false;
    }
    if let Err(resize) = pods.judge_resize(pod, handle) {
        report(context, handle, resize);
        return true;
    }
    let mut failure = None;
    for (member, attempt) in changed {
        let name = &member.spec.name;
        let is_restarted = restarts(&member.spec, &handle.record());
        let group = Cgroups::name(&handle.uid, name, attempt);
        match context.cgroups.resize(&group, limits(&member.spec)) {
            Ok(()) => handle.update(|record| give(record, &member.spec)),
            Err(error) => {
                failure = Some(Resize::Failed(format!("cannot resize container {name}: {error}")));
                continue;
            }
        }
        if is_restarted {
            let note = format!("Container {name} resize requires restart");
            let patience = Patience::Fixed(grace(pod));
            stop::container(context, handle, &member.spec, patience, note).await;
        }
    }
    if let Some(resize) = failure {
        report(context, handle, resize);
        return true;
    }
    handle.update(|record| record.resize = None);
    let note = "Pod resize completed".to_owned();
    context.event((&handle.key, &handle.uid), Event::normal("ResizeCompleted", "Resizing", note));
    false
}

/// Of a container that an older kubelet started it is not known what it was given: what its pod asks for.
fn adopt(handle: &PodHandle, members: &[Member<'_>]) {
    let record = handle.record();
    let is_unknown = |member: &&Member<'_>| {
        let own = record.containers.get(&member.spec.name);
        own.is_some_and(|own| own.is_running() && own.allocated.is_none())
    };
    let unknown: Vec<_> = members.iter().filter(is_unknown).collect();
    if unknown.is_empty() {
        return;
    }
    handle.update(|record| unknown.iter().for_each(|member| give(record, &member.spec)));
}

/// Records that a container has what its specification asks for.
fn give(record: &mut PodRecord, container: &core::Container) {
    if let Some(own) = record.containers.get_mut(&container.name) {
        own.allocated = Some(container.resources.clone().unwrap_or_default());
    }
}

/// Records why a resize waits, and says so once.
fn report(context: &Context, handle: &PodHandle, resize: Resize) {
    if handle.record().resize.as_ref() == Some(&resize) {
        return;
    }
    let event = Event::warning(resize.event(), "Resizing", resize.message().to_owned());
    context.event((&handle.key, &handle.uid), event);
    handle.update(|record| record.resize = Some(resize));
}

/// Running containers that were given other resources than the pod asks for, with the number of their instance.
fn changed<'a>(members: &[Member<'a>], record: &PodRecord) -> Vec<(Member<'a>, u32)> {
    let resizable = members.iter().filter(|member| matches!(member.role, Role::Regular | Role::Sidecar));
    let changed = resizable.filter_map(|member| {
        let own = record.containers.get(&member.spec.name).filter(|own| own.is_running())?;
        let state = own.state.as_ref()?;
        let wanted = member.spec.resources.clone().unwrap_or_default();
        (own.allocated.as_ref() != Some(&wanted)).then(|| (member.clone(), state.attempt))
    });
    changed.collect()
}

/// Whether the container has to be restarted to be given what it asks for now.
fn restarts(container: &core::Container, record: &PodRecord) -> bool {
    let Some(own) = record.containers.get(&container.name) else { return false };
    let amounts = |resources: &Option<core::ResourceRequirements>, resource: &str| {
        let resources = resources.clone().unwrap_or_default();
        let of = |map: Option<std::collections::BTreeMap<String, _>>| {
            map.and_then(|map| map.get(resource).cloned())
        };
        (of(resources.requests), of(resources.limits))
    };
    let mut policies = container.resize_policy.iter().flatten();
    policies.any(|policy| {
        let resource = &policy.resource_name;
        policy.restart_policy == "RestartContainer"
            && amounts(&own.allocated, resource) != amounts(&container.resources, resource)
    })
}
