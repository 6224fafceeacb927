//! Dynamic resource allocation: devices that pods claim count as resources of quota.
//!
//! Pods claim devices of a DeviceClass by ResourceClaimTemplates, or by an extended resource that a DeviceClass stands
//! for. `resources.deviceClassMappings` of the configuration says as which resource a class counts. As Kueue's `pkg/dra`;
//! selectors of devices are not evaluated.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::api::resource::v1::{DeviceClass, ExactDeviceRequest, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use quintet_api::Quantity;
use quintet_api::kueue::v1beta2;
use quintet_api::quantity::Notation;

use super::IngestError;
use super::pod::{Quantities, ResourceList, add, quantities};
use super::workload::{Claims, RequestOptions, pod_set_name};
use crate::settings::Gates;

const GATE_OFF: &str = "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled";
const NO_CLAIMS: &str = "KueueDRAIntegration feature does not support use of resource claims";

/// As what devices of a class count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceQuota {
    /// The resource.
    pub resource: String,
    /// Counters of the devices count, not the devices.
    pub by_counters: bool,
    /// Capacities of the devices count, not the devices.
    pub by_capacity: bool,
}

/// The objects that say what pods claim.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    templates: BTreeMap<(String, String), ResourceClaimTemplate>,
    /// Classes that stand for extended resources.
    classes: BTreeMap<String, ExtendedResource>,
}

#[derive(Clone, Debug)]
struct ExtendedResource {
    name: String,
    created: Option<ApiTime>,
}

/// Why claims do not count: a message for users.
type Rejected = String;

impl Devices {
    /// A ResourceClaimTemplate was created or changed.
    pub fn apply_template(&mut self, object: &ResourceClaimTemplate) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = (text(&object.metadata.namespace), text(&object.metadata.name));
        self.templates.insert(key, object.clone());
    }

    /// A ResourceClaimTemplate was deleted.
    pub fn delete_template(&mut self, namespace: &str, name: &str) {
        self.templates.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// A DeviceClass was created or changed.
    pub fn apply_class(&mut self, object: &DeviceClass) {
        let class = object.metadata.name.clone().unwrap_or_default();
        match object.spec.extended_resource_name.clone().filter(|name| !name.is_empty()) {
            Some(name) => {
                let created = object.metadata.creation_timestamp.clone();
                self.classes.insert(class, ExtendedResource { name, created });
            }
            None => {
                self.classes.remove(&class);
            }
        }
    }

    /// A DeviceClass was deleted.
    pub fn delete_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// What a Workload claims, per pod of its pod sets. The inner error says why it cannot be counted.
    pub(super) fn claims(
        &self,
        object: &v1beta2::Workload,
        options: &RequestOptions,
        gates: &Gates,
    ) -> Result<Result<Vec<Claims>, Rejected>, IngestError> {
        if !gates.dra {
            let is_rejected = gates.dra_reject_when_disabled && uses_claims(object);
            return Ok(if is_rejected { Err(GATE_OFF.to_owned()) } else { Ok(Vec::new()) });
        }
        if references(object).any(|(_, spec)| {
            spec.resource_claims.iter().flatten().any(|claim| claim.resource_claim_name.is_some())
        }) {
            return Ok(Err(NO_CLAIMS.to_owned()));
        }
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let mut found = Vec::new();
        for (index, set) in object.spec.pod_sets.iter().flatten().enumerate() {
            let Some(spec) = &set.template.spec else { continue };
            let path = format!("spec.podSets[{index}].template.spec");
            let name = pod_set_name(set);
            let counted = Counted { devices: self, options, gates, path: &path, pod_set: name, namespace };
            let mut claimed = match counted.templates(spec) {
                Ok(claimed) => claimed,
                Err(rejected) => return Ok(Err(rejected)),
            };
            let mut replaced = Vec::new();
            if gates.dra_extended_resources {
                match counted.extended_resources(spec)? {
                    Ok((extended, names)) => {
                        add(&mut claimed, &extended);
                        replaced = names;
                    }
                    Err(rejected) => return Ok(Err(rejected)),
                }
            }
            if !claimed.is_empty() || !replaced.is_empty() {
                found.push((name.to_owned(), claimed, replaced));
            }
        }
        Ok(Ok(found))
    }

    /// The class that Kubernetes allocates an extended resource from: the latest, of several the first by name.
    fn class_of(&self, resource: &str) -> Option<&str> {
        let classes = self.classes.iter().filter(|(_, class)| class.name == resource);
        let latest =
            classes.reduce(|best, other| if other.1.created > best.1.created { other } else { best });
        latest.map(|(name, _)| name.as_str())
    }
}

fn references(object: &v1beta2::Workload) -> impl Iterator<Item = (&v1beta2::PodSet, &PodSpec)> {
    object.spec.pod_sets.iter().flatten().filter_map(|set| Some((set, set.template.spec.as_ref()?)))
}

fn uses_claims(object: &v1beta2::Workload) -> bool {
    references(object).any(|(_, spec)| {
        spec.resource_claims
            .iter()
            .flatten()
            .any(|claim| claim.resource_claim_name.is_some() || claim.resource_claim_template_name.is_some())
    })
}

/// Counts the devices of one pod set.
struct Counted<'d> {
    devices: &'d Devices,
    options: &'d RequestOptions,
    gates: &'d Gates,
    /// Where its pod spec is.
    path: &'d str,
    pod_set: &'d str,
    namespace: &'d str,
}

impl Counted<'_> {
    /// Devices of ResourceClaimTemplates.
    fn templates(&self, spec: &PodSpec) -> Result<Quantities, Rejected> {
        let mut claimed = Quantities::new();
        for (index, claim) in spec.resource_claims.iter().flatten().enumerate() {
            let Some(name) = &claim.resource_claim_template_name else { continue };
            let path = format!("{}.resourceClaims[{index}]", self.path);
            let key = (self.namespace.to_owned(), name.clone());
            let Some(template) = self.devices.templates.get(&key) else {
                return Err(format!(
                    "{path}: Internal error: failed to get claim spec for ResourceClaimTemplate {name} in podset {}: ResourceClaimTemplate.resource.k8s.io \"{name}\" not found",
                    self.pod_set
                ));
            };
            for (class, count) in count_devices(template, &path, name)? {
                let Some(quota) = self.options.device_classes.get(class) else {
                    let detail = format!(
                        "DeviceClass {class} is not mapped in DRA configuration for podset {}",
                        self.pod_set
                    );
                    return Err(format!("{path}.resourceClaimTemplateName: Not found: \"{detail}\""));
                };
                if self.counts_parts(quota) {
                    return Err(format!(
                        "{path}.resourceClaimTemplateName: Invalid value: \"{name}\": counters and capacities of DeviceClass {class} are not supported"
                    ));
                }
                let count = Quantity::from_units(count, Notation::DecimalSi);
                add(&mut claimed, &Quantities::from([(quota.resource.clone(), count)]));
            }
        }
        Ok(claimed)
    }

    fn counts_parts(&self, quota: &DeviceQuota) -> bool {
        self.gates.dra_counters && quota.by_counters || self.gates.dra_capacity && quota.by_capacity
    }

    /// Extended resources that a class stands for: as what they count, and their names. Init containers run one after
    /// another, the others at the same time.
    fn extended_resources(
        &self,
        spec: &PodSpec,
    ) -> Result<Result<(Quantities, Vec<String>), Rejected>, IngestError> {
        let init = spec.init_containers.as_deref().unwrap_or_default();
        let containers = [("initContainers", init), ("containers", spec.containers.as_slice())];
        let mut requested: [Quantities; 2] = Default::default();
        let mut errors = Vec::new();
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        let mut fractional = BTreeSet::new();
        for ((part, containers), sum) in containers.into_iter().zip(&mut requested) {
            for (index, container) in containers.iter().enumerate() {
                for (name, quantity) in extended(container)? {
                    let path = format!("{}.{part}[{index}]", self.path);
                    let is_whole = Quantity::from_units(quantity.units(), quantity.notation()) == quantity;
                    if !is_whole && self.devices.class_of(&name).is_some() {
                        fractional.insert(name.clone());
                        let text = quantity.to_string();
                        errors.push(format!(
                            "{path}.resources.requests.{name}: Invalid value: \"{text}\": extended resource quantity must be an integer"
                        ));
                    }
                    first.entry(name.clone()).or_insert(path);
                    let known = sum.entry(name).or_default();
                    *known =
                        if part == "initContainers" { (*known).max(quantity) } else { *known + quantity };
                }
            }
        }
        let [init, mut most] = requested;
        for (name, quantity) in init {
            let known = most.entry(name).or_default();
            *known = (*known).max(quantity);
        }
        let (mut counted, mut replaced) = (Quantities::new(), Vec::new());
        for (name, quantity) in most {
            let Some(class) = self.devices.class_of(&name) else { continue };
            if fractional.contains(&name) {
                continue;
            }
            let quota = self.options.device_classes.get(class);
            if let Some(quota) = quota.filter(|quota| self.counts_parts(quota)) {
                let (what, how) = if self.gates.dra_counters && quota.by_counters {
                    ("counters", "use ResourceClaimTemplates with CEL selectors for counter-based quota")
                } else {
                    (
                        "capacity sources",
                        "use ResourceClaimTemplates with capacity.requests for capacity-based quota",
                    )
                };
                let path = first.get(&name).map(String::as_str).unwrap_or_default();
                errors.push(format!(
                    "{path}: Invalid value: \"{name}\": extended resource {name} resolves to DeviceClass {class} with {what} configured; {how}"
                ));
                continue;
            }
            let resource = quota.map_or_else(|| name.clone(), |quota| quota.resource.clone());
            add(&mut counted, &Quantities::from([(resource, quantity)]));
            replaced.push(name);
        }
        Ok(match errors.as_slice() {
            [] => Ok((counted, replaced)),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        })
    }
}

/// The devices that a template asks for, by class.
fn count_devices<'t>(
    template: &'t ResourceClaimTemplate,
    path: &str,
    name: &str,
) -> Result<BTreeMap<&'t str, i64>, Rejected> {
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    let requests = template.spec.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten());
    for (index, request) in requests.enumerate() {
        let path = format!("{path}.devices.requests[{index}]");
        let invalid = |path: &str, value: &str, detail: &str| {
            Err(format!("{path}: Invalid value: {value}: ResourceClaimTemplate {name}: {detail}"))
        };
        if request.first_available.is_some() {
            return invalid(&path, "null", "FirstAvailable device selection is not supported");
        }
        let Some(exactly) = &request.exactly else {
            return invalid(&path, "null", "Exactly must be set if FirstAvailable is nil");
        };
        let ExactDeviceRequest { admin_access, allocation_mode, count, device_class_name, .. } = exactly;
        if *admin_access == Some(true) {
            let path = format!("{path}.exactly.adminAccess");
            return invalid(&path, "null", "AdminAccess is not supported");
        }
        let path = format!("{path}.exactly.allocationMode");
        match allocation_mode.as_deref().unwrap_or("ExactCount") {
            "ExactCount" => {}
            "All" => return invalid(&path, "\"All\"", "AllocationMode 'All' is not supported"),
            other => {
                let detail = format!("unsupported allocation mode: {other}");
                return invalid(&path, &format!("\"{other}\""), &detail);
            }
        }
        if !device_class_name.is_empty() {
            let sum = counts.entry(device_class_name.as_str()).or_default();
            *sum = sum.saturating_add(count.unwrap_or(1));
        }
    }
    Ok(counts)
}

/// The extended resources that a container requests.
fn extended(container: &Container) -> Result<Quantities, IngestError> {
    let list: Option<&ResourceList> =
        container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let mut requested = quantities(list)?;
    requested.retain(|name, quantity| is_extended(name) && !quantity.is_zero() && !quantity.is_negative());
    Ok(requested)
}

/// Whether a resource is none of Kubernetes' own. As `IsExtendedResourceName` of Kubernetes.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn options() -> RequestOptions {
        let quota = |resource: &str, by_counters, by_capacity| DeviceQuota {
            resource: resource.to_owned(),
            by_counters,
            by_capacity,
        };
        let device_classes = BTreeMap::from([
            ("gpu.example.com".to_owned(), quota("gpus", false, false)),
            ("slice.example.com".to_owned(), quota("memory-of-gpus", true, false)),
        ]);
        RequestOptions { device_classes, ..RequestOptions::default() }
    }

    fn devices(requests: &Value) -> Devices {
        let mut devices = Devices::default();
        devices.apply_template(
            &serde_json::from_value(json!({ "metadata": { "name": "t", "namespace": "ns" },
                "spec": { "spec": { "devices": { "requests": requests } } } }))
            .unwrap(),
        );
        for (name, created) in [("gpu.example.com", "2026-01-01T00:00:02Z"), ("old", "2026-01-01T00:00:01Z")]
        {
            devices.apply_class(
                &serde_json::from_value(json!({ "metadata": { "name": name, "creationTimestamp": created },
                    "spec": { "extendedResourceName": "example.com/gpu" } }))
                .unwrap(),
            );
        }
        devices
    }

    fn workload(spec: &Value) -> v1beta2::Workload {
        serde_json::from_value(json!({ "metadata": { "name": "w", "namespace": "ns" },
            "spec": { "podSets": [{ "name": "main", "count": 1, "template": { "spec": spec } }] } }))
        .unwrap()
    }

    fn claiming(template: &str) -> v1beta2::Workload {
        workload(&json!({ "containers": [], "resourceClaims": [
            { "name": "c", "resourceClaimTemplateName": template }] }))
    }

    /// What is counted, as `resource=count`, or why it is not.
    fn counted(devices: &Devices, object: &v1beta2::Workload, gates: &Gates) -> String {
        match devices.claims(object, &options(), gates).unwrap() {
            Err(rejected) => rejected,
            Ok(found) => {
                let claimed = found.iter().flat_map(|(_, claimed, _)| claimed);
                claimed.map(|(name, count)| format!("{name}={count}")).collect::<Vec<_>>().join(",")
            }
        }
    }

    fn exactly(request: &Value) -> Value {
        json!([{ "name": "r", "exactly": request }])
    }

    #[test]
    fn claims_of_templates_count_by_the_mapping_of_their_class() {
        let claim = "spec.podSets[0].template.spec.resourceClaims[0]";
        let request = |mode: &str, count: i64| json!({ "deviceClassName": "gpu.example.com", "allocationMode": mode, "count": count });
        let table = [
            (exactly(&request("ExactCount", 2)), "gpus=2".to_owned()),
            (exactly(&json!({ "deviceClassName": "gpu.example.com" })), "gpus=1".to_owned()),
            (
                exactly(&json!({ "deviceClassName": "gpu.example.com", "count": 4, "adminAccess": true })),
                format!(
                    "{claim}.devices.requests[0].exactly.adminAccess: Invalid value: null: ResourceClaimTemplate t: AdminAccess is not supported"
                ),
            ),
            (
                exactly(&request("All", 0)),
                format!(
                    "{claim}.devices.requests[0].exactly.allocationMode: Invalid value: \"All\": ResourceClaimTemplate t: AllocationMode 'All' is not supported"
                ),
            ),
            (
                json!([{ "name": "r", "firstAvailable": [] }]),
                format!(
                    "{claim}.devices.requests[0]: Invalid value: null: ResourceClaimTemplate t: FirstAvailable device selection is not supported"
                ),
            ),
            (
                exactly(&json!({ "deviceClassName": "x", "count": 1 })),
                format!(
                    "{claim}.resourceClaimTemplateName: Not found: \"DeviceClass x is not mapped in DRA configuration for podset main\""
                ),
            ),
            (
                exactly(&json!({ "deviceClassName": "slice.example.com", "count": 1 })),
                format!(
                    "{claim}.resourceClaimTemplateName: Invalid value: \"t\": counters and capacities of DeviceClass slice.example.com are not supported"
                ),
            ),
        ];
        for (requests, expected) in table {
            assert_eq!(
                counted(&devices(&requests), &claiming("t"), &Gates::default()),
                expected,
                "{requests}"
            );
        }
        let missing = counted(&devices(&json!([])), &claiming("u"), &Gates::default());
        assert!(missing.ends_with("ResourceClaimTemplate.resource.k8s.io \"u\" not found"), "{missing}");
    }

    #[test]
    fn claims_by_name_and_claims_without_the_gate_are_rejected() {
        let devices = devices(&json!([]));
        let by_name = workload(&json!({ "containers": [], "resourceClaims": [
            { "name": "c", "resourceClaimName": "mine" }] }));
        assert_eq!(counted(&devices, &by_name, &Gates::default()), NO_CLAIMS);
        let off = Gates { dra: false, ..Gates::default() };
        assert_eq!(counted(&devices, &by_name, &off), GATE_OFF);
        assert_eq!(counted(&devices, &claiming("t"), &off), GATE_OFF);
        let ignored = Gates { dra_reject_when_disabled: false, ..off };
        assert_eq!(counted(&devices, &claiming("t"), &ignored), "");
    }

    #[test]
    fn extended_resources_count_as_their_latest_class() {
        let devices = devices(&json!([]));
        let container = |count: &str| {
            json!({ "name": "c", "resources": { "requests": {
            "example.com/gpu": count, "example.com/other": "1", "cpu": "1" } } })
        };
        let object = workload(
            &json!({ "initContainers": [container("5")], "containers": [container("2"), container("1")] }),
        );
        let claims = devices.claims(&object, &options(), &Gates::default()).unwrap().unwrap();
        let five = Quantity::from_units(5, Notation::DecimalSi);
        let expected = (
            "main".to_owned(),
            Quantities::from([("gpus".to_owned(), five)]),
            vec!["example.com/gpu".to_owned()],
        );
        assert_eq!(claims, [expected]);
        let without = Gates { dra_extended_resources: false, ..Gates::default() };
        assert_eq!(counted(&devices, &object, &without), "");
        let halves = workload(&json!({ "containers": [container("500m")] }));
        assert_eq!(
            counted(&devices, &halves, &Gates::default()),
            "spec.podSets[0].template.spec.containers[0].resources.requests.example.com/gpu: Invalid value: \"500m\": extended resource quantity must be an integer"
        );
    }
}
