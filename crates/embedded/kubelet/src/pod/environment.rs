//! The environment of a container: variables, references to other objects, and `$(NAME)` in commands.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use quintet_api::quantity::Quantity;

/// Why a container cannot be configured. The container waits with `CreateContainerConfigError` and is tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// What the variables of a container can refer to.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// ConfigMaps of the namespace, as far as the pod names them.
    pub config_maps: BTreeMap<String, core::ConfigMap>,
    /// Secrets of the namespace, as far as the pod names them.
    pub secrets: BTreeMap<String, core::Secret>,
    /// Services of the namespace, and `kubernetes` of the default one.
    pub services: Vec<core::Service>,
    /// The addresses of the pod.
    pub pod_ips: Vec<String>,
    /// The addresses of the node.
    pub host_ips: Vec<String>,
    /// What the node has to give, where a container has no limit.
    pub allocatable: BTreeMap<String, Quantity>,
}

/// All variables of a container. Later ones override earlier ones: services, then the image, then `envFrom`, then `env`.
pub fn environment(
    pod: &core::Pod,
    container: &core::Container,
    image: &[(String, String)],
    references: &References,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut variables: BTreeMap<String, String> = service_variables(pod, &references.services);
    variables.extend(image.iter().cloned());
    for source in container.env_from.iter().flatten() {
        variables.extend(all_of(source, references)?);
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(variable, pod, container, &variables, references)? {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables.into_iter().collect())
}

/// Replaces `$(NAME)` by the variable; an unknown one stays as it is, and `$$` is a dollar.
pub fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|named| named.split_once(')')) {
            match variables.get(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded.push_str(rest);
    expanded
}

fn all_of(
    source: &core::EnvFromSource,
    references: &References,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let mut found = BTreeMap::new();
    if let Some(reference) = &source.config_map_ref {
        match references.config_maps.get(&reference.name) {
            Some(map) => found.extend(map.data.clone().into_iter().flatten()),
            None if reference.optional == Some(true) => {}
            None => return Err(ConfigError(format!("configmap {:?} not found", reference.name))),
        }
    }
    if let Some(reference) = &source.secret_ref {
        match references.secrets.get(&reference.name) {
            Some(secret) => found.extend(
                secret
                    .data
                    .iter()
                    .flatten()
                    .map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned())),
            ),
            None if reference.optional == Some(true) => {}
            None => return Err(ConfigError(format!("secret {:?} not found", reference.name))),
        }
    }
    Ok(found.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)).collect())
}

/// The value of one variable; `None` if what it refers to is missing and optional.
fn value_of(
    variable: &core::EnvVar,
    pod: &core::Pod,
    container: &core::Container,
    earlier: &BTreeMap<String, String>,
    references: &References,
) -> Result<Option<String>, ConfigError> {
    let Some(source) = &variable.value_from else {
        return Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), earlier)));
    };
    if let Some(field) = &source.field_ref {
        return field_value(&field.field_path, pod, references).map(Some);
    }
    if let Some(resource) = &source.resource_field_ref {
        return resource_value(resource, pod, Some(container), references).map(Some);
    }
    if let Some(key) = &source.config_map_key_ref {
        let map = references.config_maps.get(&key.name);
        let value = map.and_then(|map| map.data.as_ref()?.get(&key.key)).cloned();
        return match (map, value) {
            (_, Some(value)) => Ok(Some(value)),
            _ if key.optional == Some(true) => Ok(None),
            (None, _) => Err(ConfigError(format!("configmap {:?} not found", key.name))),
            (Some(_), None) => Err(missing_key(&key.key, "ConfigMap", pod, &key.name)),
        };
    }
    if let Some(key) = &source.secret_key_ref {
        let secret = references.secrets.get(&key.name);
        let value = secret.and_then(|secret| secret.data.as_ref()?.get(&key.key));
        return match (secret, value) {
            (_, Some(value)) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
            _ if key.optional == Some(true) => Ok(None),
            (None, _) => Err(ConfigError(format!("secret {:?} not found", key.name))),
            (Some(_), None) => Err(missing_key(&key.key, "Secret", pod, &key.name)),
        };
    }
    Err(ConfigError(format!("the source of variable {} is not supported", variable.name)))
}

fn missing_key(key: &str, kind: &str, pod: &core::Pod, name: &str) -> ConfigError {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    ConfigError(format!("couldn't find key {key} in {kind} {namespace}/{name}"))
}

/// A field of the pod, by the paths of the downward API.
pub fn field_value(path: &str, pod: &core::Pod, references: &References) -> Result<String, ConfigError> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    if let Some(key) = subscript(path, "metadata.labels") {
        return Ok(text(metadata.labels.as_ref().and_then(|labels| labels.get(key))));
    }
    if let Some(key) = subscript(path, "metadata.annotations") {
        return Ok(text(metadata.annotations.as_ref().and_then(|annotations| annotations.get(key))));
    }
    Ok(match path {
        "metadata.name" => text(metadata.name.as_ref()),
        "metadata.namespace" => text(metadata.namespace.as_ref()),
        "metadata.uid" => text(metadata.uid.as_ref()),
        "metadata.labels" => lines(metadata.labels.as_ref()),
        "metadata.annotations" => lines(metadata.annotations.as_ref()),
        "spec.nodeName" => text(spec.and_then(|spec| spec.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.hostIP" => text(references.host_ips.first()),
        "status.hostIPs" => references.host_ips.join(","),
        "status.podIP" => text(references.pod_ips.first()),
        "status.podIPs" => references.pod_ips.join(","),
        _ => return Err(ConfigError(format!("unsupported fieldPath: {path}"))),
    })
}

/// `labels['app']` without the rest.
fn subscript<'a>(path: &'a str, map: &str) -> Option<&'a str> {
    path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']")
}

/// A whole map, a line per entry, as the downward API writes it to files.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// A request or limit of a container, in units of the divisor, rounded up.
pub fn resource_value(
    selector: &core::ResourceFieldSelector,
    pod: &core::Pod,
    own: Option<&core::Container>,
    references: &References,
) -> Result<String, ConfigError> {
    let containers =
        pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let named = selector.container_name.as_deref();
    let container = match (named, own) {
        (None, own) => own,
        (Some(name), _) => containers.into_iter().find(|container| container.name == name),
    };
    let container = container.ok_or_else(|| {
        ConfigError(format!("container {:?} does not exist in the pod", named.unwrap_or_default()))
    })?;
    let (kind, resource) = selector.resource.split_once('.').unwrap_or_default();
    let resources = container.resources.as_ref();
    let listed = match kind {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => return Err(ConfigError(format!("unsupported container resource: {}", selector.resource))),
    };
    let quantity =
        listed.and_then(|listed| listed.get(resource)).and_then(|one| Quantity::try_from(one).ok());
    let without = if kind == "limits" { references.allocatable.get(resource).copied() } else { None };
    let value = quantity.or(without).unwrap_or_default();
    let divisor = selector.divisor.as_ref().and_then(|divisor| Quantity::try_from(divisor).ok());
    let divisor = divisor.filter(|divisor| *divisor != Quantity::default());
    let millis = |quantity: Quantity| i128::from(quantity.millis());
    let (value, divisor) = (millis(value), divisor.map_or(1000, millis));
    // Rounded up, and never to nothing.
    Ok(((value + divisor - 1) / divisor).to_string())
}

/// The addresses of services as variables. `kubernetes` is always among them; the others unless the pod refuses them.
fn service_variables(pod: &core::Pod, services: &[core::Service]) -> BTreeMap<String, String> {
    let wants_all = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut variables = BTreeMap::new();
    for service in services {
        let metadata = &service.metadata;
        let is_api = metadata.namespace.as_deref() == Some("default")
            && metadata.name.as_deref() == Some("kubernetes");
        let is_own = metadata.namespace.as_deref() == Some(namespace);
        if is_api || (wants_all && is_own) {
            variables.extend(variables_of(service));
        }
    }
    variables
}

fn variables_of(service: &core::Service) -> Vec<(String, String)> {
    let spec = service.spec.as_ref();
    let ip = spec.and_then(|spec| spec.cluster_ip.as_deref()).filter(|ip| !ip.is_empty() && *ip != "None");
    let ports = spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let (Some(ip), Some(first)) = (ip, ports.first()) else { return Vec::new() };
    let name = service.metadata.name.as_deref().unwrap_or_default().to_uppercase().replace('-', "_");
    let url = |port: &core::ServicePort| {
        format!(
            "{}://{}",
            port.protocol.as_deref().unwrap_or("TCP").to_lowercase(),
            host_and_port(ip, port.port)
        )
    };
    let mut variables = vec![
        (format!("{name}_SERVICE_HOST"), ip.to_owned()),
        (format!("{name}_SERVICE_PORT"), first.port.to_string()),
        (format!("{name}_PORT"), url(first)),
    ];
    for port in ports {
        if let Some(named) = port.name.as_deref().filter(|named| !named.is_empty()) {
            let named = named.to_uppercase().replace('-', "_");
            variables.push((format!("{name}_SERVICE_PORT_{named}"), port.port.to_string()));
        }
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let prefix = format!("{name}_PORT_{}_{}", port.port, protocol.to_uppercase());
        variables.extend([
            (prefix.clone(), url(port)),
            (format!("{prefix}_PROTO"), protocol.to_lowercase()),
            (format!("{prefix}_PORT"), port.port.to_string()),
            (format!("{prefix}_ADDR"), ip.to_owned()),
        ]);
    }
    variables
}

fn host_and_port(ip: &str, port: i32) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
#[path = "environment_tests.rs"]
mod tests;
