//! What the mutating webhook does to a RayCluster.

use serde_json::{Map, Value};

use super::names::{Names, VERSION};
use super::objects::pods;
use crate::fields::{list, object};
use crate::settings::Hardening;

/// Changes a RayCluster. The error is for the user to fix.
pub(super) fn inject(cluster: &mut Value, hardening: &Hardening, domain: &str) -> Result<(), String> {
    let annotations = object(object(root(cluster)?, "metadata")?, "annotations")?;
    annotations.insert(VERSION.to_owned(), env!("CARGO_PKG_VERSION").into());
    let text = |field: &str| cluster["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (name, namespace) = (text("name"), text("namespace"));
    let names = Names::new(&name, &namespace, true);
    let spec = object(root(cluster)?, "spec")?;
    let head = pod_spec(object(spec, "headGroupSpec")?)?;
    if hardening.has_oauth() {
        upsert(list(head, "containers")?, pods::oauth_proxy(&names, hardening));
        upsert(list(head, "volumes")?, pods::serving_certificate(&names));
        head.insert("serviceAccountName".to_owned(), names.oauth_service_account().into());
    }
    if !hardening.has_mtls() {
        return Ok(());
    }
    add_tls(head, "spec.headGroupSpec", &names, hardening, Some(domain))?;
    let groups = spec.get_mut("workerGroupSpecs").and_then(Value::as_array_mut);
    for (number, group) in groups.into_iter().flatten().enumerate() {
        let path = format!("spec.workerGroupSpecs[{number}]");
        let group = group.as_object_mut().ok_or_else(|| format!("{path} is not an object"))?;
        add_tls(pod_spec(group)?, &path, &names, hardening, None)?;
    }
    Ok(())
}

/// Lets the first container use TLS: that is Ray.
fn add_tls(
    spec: &mut Map<String, Value>,
    path: &str,
    names: &Names<'_>,
    hardening: &Hardening,
    domain: Option<&str>,
) -> Result<(), String> {
    let containers = list(spec, "containers")?;
    let ray = containers.first_mut().and_then(Value::as_object_mut);
    let ray =
        ray.ok_or_else(|| format!("{path}.template.spec.containers: Required value: Ray's container"))?;
    for variable in pods::tls_environment() {
        upsert(list(ray, "env")?, variable);
    }
    for mount in pods::tls_mounts() {
        upsert(list(ray, "volumeMounts")?, mount);
    }
    for volume in pods::tls_volumes(names) {
        upsert(list(spec, "volumes")?, volume);
    }
    upsert(list(spec, "initContainers")?, pods::create_cert(names, hardening, domain));
    Ok(())
}

/// The spec of the pods of a group.
fn pod_spec(group: &mut Map<String, Value>) -> Result<&mut Map<String, Value>, String> {
    object(object(group, "template")?, "spec")
}

/// Replaces the element of the same name, or adds it.
fn upsert(list: &mut Vec<Value>, element: Value) {
    match list.iter_mut().find(|live| live["name"] == element["name"]) {
        Some(live) => *live = element,
        None => list.push(element),
    }
}

fn root(cluster: &mut Value) -> Result<&mut Map<String, Value>, String> {
    cluster.as_object_mut().ok_or_else(|| "the RayCluster is not an object".to_owned())
}
