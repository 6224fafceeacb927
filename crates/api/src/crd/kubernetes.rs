//! What the Rust types of Kubernetes' own API do not say in their schemas: merge keys, atomic objects,
//! defaults and bounds. One fact per type, wherever the type is embedded.

use serde_json::{Map, Value, json};

use crate::schema::QUALIFIED_NAME;

const CORE: &str = "io.k8s.api.core.v1.";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// The syntax of a quantity. Without it the API server stores any text, which Go clients cannot decode.
pub(super) const QUANTITY_PATTERN: &str = "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$";

/// Lists whose items merge by key.
const MAP_LISTS: &[(&str, &str, &[&str])] = &[
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "resourceClaims", &["name"]),
    ("PodSpec", "schedulingGates", &["name"]),
    ("PodSpec", "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("PodSpec", "volumes", &["name"]),
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("EphemeralContainer", "env", &["name"]),
    ("EphemeralContainer", "ports", &["containerPort", "protocol"]),
    ("EphemeralContainer", "volumeDevices", &["devicePath"]),
    ("EphemeralContainer", "volumeMounts", &["mountPath"]),
    ("ResourceRequirements", "claims", &["name"]),
    ("ServiceSpec", "ports", &["port", "protocol"]),
    ("ServiceStatus", "conditions", &["type"]),
];

/// Lists in which no item occurs twice.
const SET_LISTS: &[(&str, &str)] = &[("ContainerRestartRuleOnExitCodes", "values")];

/// Maps that one writer owns as a whole.
const ATOMIC_MAPS: &[(&str, &str)] = &[("PodSpec", "nodeSelector"), ("ServiceSpec", "selector")];

/// Objects that one writer owns as a whole.
const ATOMIC_OBJECTS: &[&str] = &[
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "FileKeySelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ResourceFieldSelector",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
    "TypedLocalObjectReference",
];

/// References whose `name` may be left out and is then empty.
const NAME_MAY_BE_EMPTY: &[&str] = &[
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "LocalObjectReference",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
];

/// Defaults of text fields.
const TEXT_DEFAULTS: &[(&str, &str, &str)] = &[
    ("AzureDiskVolumeSource", "fsType", "ext4"),
    ("ContainerPort", "protocol", "TCP"),
    ("GRPCAction", "service", ""),
    ("ISCSIVolumeSource", "iscsiInterface", "default"),
    ("RBDVolumeSource", "keyring", "/etc/ceph/keyring"),
    ("RBDVolumeSource", "pool", "rbd"),
    ("RBDVolumeSource", "user", "admin"),
    ("ScaleIOVolumeSource", "fsType", "xfs"),
    ("ScaleIOVolumeSource", "storageMode", "ThinProvisioned"),
    ("ServicePort", "protocol", "TCP"),
];

/// Switches that are off unless set.
const OFF_BY_DEFAULT: &[(&str, &str)] =
    &[("AzureDiskVolumeSource", "readOnly"), ("FileKeySelector", "optional")];

/// The part of an object's metadata that a template may set.
const TEMPLATE_METADATA: [&str; 5] = ["annotations", "finalizers", "labels", "name", "namespace"];

/// Adds the facts to the definitions of the types they are about.
pub(super) fn annotate(definitions: &mut Map<String, Value>) {
    for (name, field, keys) in MAP_LISTS {
        set(definitions, name, field, "x-kubernetes-list-type", json!("map"));
        set(definitions, name, field, "x-kubernetes-list-map-keys", json!(keys));
    }
    for (name, field) in SET_LISTS {
        set(definitions, name, field, "x-kubernetes-list-type", json!("set"));
    }
    for (name, field) in ATOMIC_MAPS {
        set(definitions, name, field, "x-kubernetes-map-type", json!("atomic"));
    }
    for (name, field, default) in TEXT_DEFAULTS {
        set(definitions, name, field, "default", json!(default));
    }
    for (name, field) in OFF_BY_DEFAULT {
        set(definitions, name, field, "default", json!(false));
    }
    for name in ATOMIC_OBJECTS {
        make_atomic(definitions, &format!("{CORE}{name}"));
    }
    make_atomic(definitions, &format!("{META}LabelSelector"));
    if let Some(quantity) = definitions.get_mut(QUANTITY).and_then(Value::as_object_mut) {
        quantity.insert("pattern".into(), json!(QUANTITY_PATTERN));
    }
    for name in NAME_MAY_BE_EMPTY {
        set(definitions, name, "name", "default", json!(""));
        if let Some(required) =
            definition(definitions, &format!("{CORE}{name}"), "required").and_then(Value::as_array_mut)
        {
            required.retain(|field| field != "name");
        }
    }
    bound_port_errors(definitions);
    keep_template_metadata(definitions);
    drop_descriptions(definitions);
    bound_conditions(definitions);
    embed_service(definitions);
}

/// A Service inside another object needs no type of its own and may be sketched.
fn embed_service(definitions: &mut Map<String, Value>) {
    if let Some(service) = definitions.get_mut(&format!("{CORE}Service")).and_then(Value::as_object_mut) {
        service.remove("required");
    }
}

fn bound_port_errors(definitions: &mut Map<String, Value>) {
    set(definitions, "PortStatus", "error", "maxLength", json!(316));
    set(definitions, "PortStatus", "error", "pattern", json!(QUALIFIED_NAME));
    let required =
        definition(definitions, &format!("{CORE}PortStatus"), "required").and_then(Value::as_array_mut);
    if let Some(required) = required {
        required.push(json!("error"));
    }
}

/// Kubernetes documents its own types (`kubectl explain pod.spec`); repeating that in every template would
/// triple the size of a CRD, up to what the API server can store.
fn drop_descriptions(definitions: &mut Map<String, Value>) {
    for (_, schema) in definitions.iter_mut().filter(|(name, _)| name.starts_with("io.k8s.")) {
        drop_description(schema);
    }
}

fn drop_description(schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    schema.remove("description");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(drop_description);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(inner) {
            drop_description(inner);
        }
    }
}

fn keep_template_metadata(definitions: &mut Map<String, Value>) {
    let name = format!("{META}ObjectMeta");
    if let Some(properties) = definition(definitions, &name, "properties").and_then(Value::as_object_mut) {
        properties.retain(|field, _| TEMPLATE_METADATA.contains(&field.as_str()));
    }
}

fn bound_conditions(definitions: &mut Map<String, Value>) {
    let bounds = [
        ("message", "maxLength", json!(32768)),
        ("observedGeneration", "minimum", json!(0)),
        ("reason", "minLength", json!(1)),
        ("reason", "maxLength", json!(1024)),
        ("reason", "pattern", json!("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")),
        ("status", "enum", json!(["True", "False", "Unknown"])),
        ("type", "maxLength", json!(316)),
        ("type", "pattern", json!(QUALIFIED_NAME)),
    ];
    for (field, key, value) in bounds {
        set_in(definitions, &format!("{META}Condition"), field, key, value);
    }
}

fn set(definitions: &mut Map<String, Value>, core_type: &str, field: &str, key: &str, value: Value) {
    set_in(definitions, &format!("{CORE}{core_type}"), field, key, value);
}

fn set_in(definitions: &mut Map<String, Value>, name: &str, field: &str, key: &str, value: Value) {
    let properties = definition(definitions, name, "properties").and_then(Value::as_object_mut);
    if let Some(schema) = properties.and_then(|all| all.get_mut(field)).and_then(Value::as_object_mut) {
        schema.insert(key.into(), value);
    }
}

fn make_atomic(definitions: &mut Map<String, Value>, name: &str) {
    if let Some(schema) = definitions.get_mut(name).and_then(Value::as_object_mut) {
        schema.insert("x-kubernetes-map-type".into(), json!("atomic"));
    }
}

fn definition<'a>(definitions: &'a mut Map<String, Value>, name: &str, key: &str) -> Option<&'a mut Value> {
    definitions.get_mut(name)?.get_mut(key)
}

#[cfg(test)]
pub(super) mod tests {
    use schemars::generate::SchemaSettings;

    use super::*;

    /// A misspelt fact would be silently without effect.
    pub(crate) fn every_fact_applies() {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        generator.subschema_for::<k8s_openapi::api::core::v1::PodTemplateSpec>();
        generator.subschema_for::<k8s_openapi::api::core::v1::Service>();
        let definitions = generator.take_definitions(true);
        let fields = MAP_LISTS.iter().map(|(name, field, _)| (*name, *field));
        let fields = fields.chain(SET_LISTS.iter().chain(ATOMIC_MAPS).chain(OFF_BY_DEFAULT).copied());
        let fields = fields.chain(TEXT_DEFAULTS.iter().map(|(name, field, _)| (*name, *field)));
        let fields = fields.chain(NAME_MAY_BE_EMPTY.iter().map(|name| (*name, "name")));
        for (name, field) in fields {
            let known =
                definitions.get(&format!("{CORE}{name}")).and_then(|schema| schema["properties"].get(field));
            assert!(known.is_some(), "{name}.{field} does not exist");
        }
        assert!(definitions.contains_key(QUANTITY), "{QUANTITY} does not exist");
        for name in ATOMIC_OBJECTS {
            assert!(definitions.contains_key(&format!("{CORE}{name}")), "{name} does not exist");
        }
    }
}
