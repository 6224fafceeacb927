//! Dynamic resource allocation: devices that pods claim count as resources of quota.
//!
//! Pods claim devices of a DeviceClass by ResourceClaimTemplates, or by an extended resource that a DeviceClass stands
//! for. `resources.deviceClassMappings` of the configuration says as which resource a class counts: its devices, or by its
//! `sources` what is taken of their counters or capacities. As Kueue's `pkg/dra`.

mod extended;
mod parts;
mod problem;
mod selector;
mod slices;
mod templates;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use quintet_api::Quantity;
use quintet_api::kueue::v1beta2;
use quintet_api::quantity::Notation;

use super::IngestError;
use super::pod::{Quantities, add};
use super::workload::{Claims, RequestOptions, pod_set_name};
use crate::settings::Gates;
use extended::Requested;
use problem::{Problem, joined};
pub use selector::Selector;
use slices::Slice;
use templates::{Counted, Template};

const GATE_OFF: &str = "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled";
const NO_CLAIMS: &str = "KueueDRAIntegration feature does not support use of resource claims";

/// As what devices of a class count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceQuota {
    /// The resource.
    pub resource: String,
    /// These counters of the devices count, not the devices.
    pub counters: Vec<DeviceSource>,
    /// These capacities of the devices count, not the devices.
    pub capacities: Vec<DeviceSource>,
}

/// A counter or a capacity of devices that counts as quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSource {
    /// The resource that it counts as.
    pub resource: String,
    /// Its name.
    pub name: String,
    /// The driver of the devices.
    pub driver: String,
    /// Which of its devices.
    pub selector: Selector,
}

impl DeviceQuota {
    /// All counters and capacities.
    pub fn sources(&self) -> impl Iterator<Item = &DeviceSource> {
        self.counters.iter().chain(&self.capacities)
    }

    /// Whether counters or capacities count, not devices.
    fn counts_parts(&self, gates: &Gates) -> bool {
        gates.dra_counters && !self.counters.is_empty() || gates.dra_capacity && !self.capacities.is_empty()
    }
}

/// The objects that say what pods claim.
///
/// What a template counts as is kept, so that all questions have to be about the same settings.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    templates: BTreeMap<(String, String), Template>,
    classes: BTreeMap<String, Class>,
    slices: BTreeMap<String, Slice>,
}

#[derive(Clone, Debug)]
struct Class {
    extended_resource: Option<String>,
    created: Option<ApiTime>,
    selectors: Vec<Selector>,
}

/// Why claims do not count: a message for users.
type Rejected = String;

impl Devices {
    /// A ResourceClaimTemplate was created or changed.
    pub fn apply_template(&mut self, object: &ResourceClaimTemplate) -> Result<(), IngestError> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = (text(&object.metadata.namespace), text(&object.metadata.name));
        self.templates.insert(key, Template::new(object)?);
        Ok(())
    }

    /// A ResourceClaimTemplate was deleted.
    pub fn delete_template(&mut self, namespace: &str, name: &str) {
        self.templates.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// A DeviceClass was created or changed.
    pub fn apply_class(&mut self, object: &DeviceClass) {
        let name = object.metadata.name.clone().unwrap_or_default();
        let class = Class {
            extended_resource: object.spec.extended_resource_name.clone().filter(|name| !name.is_empty()),
            created: object.metadata.creation_timestamp.clone(),
            selectors: Selector::all(object.spec.selectors.as_deref()),
        };
        self.classes.insert(name, class);
        self.count_again();
    }

    /// A DeviceClass was deleted.
    pub fn delete_class(&mut self, name: &str) {
        self.classes.remove(name);
        self.count_again();
    }

    /// A ResourceSlice was created or changed.
    pub fn apply_slice(&mut self, object: &ResourceSlice) -> Result<(), IngestError> {
        let name = object.metadata.name.clone().unwrap_or_default();
        self.slices.insert(name, Slice::new(object)?);
        self.count_again();
        Ok(())
    }

    /// A ResourceSlice was deleted.
    pub fn delete_slice(&mut self, name: &str) {
        self.slices.remove(name);
        self.count_again();
    }

    fn count_again(&mut self) {
        for template in self.templates.values_mut() {
            template.counted = Counted::default();
        }
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
        if pod_specs(object).any(|spec| {
            spec.resource_claims.iter().flatten().any(|claim| claim.resource_claim_name.is_some())
        }) {
            return Ok(Err(NO_CLAIMS.to_owned()));
        }
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let mut sets = Vec::new();
        for (index, set) in object.spec.pod_sets.iter().flatten().enumerate() {
            let Some(spec) = &set.template.spec else { continue };
            let path = format!("spec.podSets[{index}].template.spec");
            let requested = extended::requested(spec, &path)?;
            let name = pod_set_name(set);
            sets.push(PodSet { devices: self, options, gates, path, name, namespace, spec, requested });
        }
        Ok(count(&sets, gates))
    }

    /// The class that Kubernetes allocates an extended resource from: the latest, of several the first by name.
    fn class_of(&self, resource: &str) -> Option<&str> {
        let is_meant = |class: &Class| class.extended_resource.as_deref() == Some(resource);
        let classes = self.classes.iter().filter(|(_, class)| is_meant(class));
        let latest =
            classes.reduce(|best, other| if other.1.created > best.1.created { other } else { best });
        latest.map(|(name, _)| name.as_str())
    }

    /// The selectors of a class; `path` is where a request names it.
    fn selectors_of(&self, class: &str, path: &str) -> Result<&[Selector], Problem> {
        if class.is_empty() {
            return Ok(&[]);
        }
        let Some(known) = self.classes.get(class) else {
            let detail = format!(
                "failed to get DeviceClass {class}: DeviceClass.resource.k8s.io \"{class}\" not found"
            );
            return Err(Problem::internal(path.to_owned(), detail));
        };
        let context = format!("DeviceClass {class} has invalid CEL selector");
        let wrong = Problem::of_selectors(&known.selectors, path, &context);
        wrong.into_iter().next().map_or(Ok(known.selectors.as_slice()), Err)
    }
}

fn pod_specs(object: &v1beta2::Workload) -> impl Iterator<Item = &PodSpec> {
    object.spec.pod_sets.iter().flatten().filter_map(|set| set.template.spec.as_ref())
}

fn uses_claims(object: &v1beta2::Workload) -> bool {
    pod_specs(object).any(|spec| {
        spec.resource_claims
            .iter()
            .flatten()
            .any(|claim| claim.resource_claim_name.is_some() || claim.resource_claim_template_name.is_some())
    })
}

/// What pod sets claim. Of several things that are wrong, the first kind is reported, of whatever pod set.
fn count(sets: &[PodSet<'_>], gates: &Gates) -> Result<Vec<Claims>, Rejected> {
    let devices = sets.iter().map(PodSet::devices).collect::<Result<Vec<_>, _>>()?;
    let mut found: Vec<Claims> =
        sets.iter().zip(devices).map(|(set, devices)| (set.name.to_owned(), devices, Vec::new())).collect();
    if gates.dra_extended_resources {
        for ((_, claimed, replaced), (counted, names)) in found.iter_mut().zip(extended::of_all(sets)?) {
            add(claimed, &counted);
            *replaced = names;
        }
    }
    for (set, (_, claimed, _)) in sets.iter().zip(&mut found).filter(|_| gates.dra_counters) {
        add(claimed, &set.counters()?);
    }
    for (set, (_, claimed, _)) in sets.iter().zip(&mut found).filter(|_| gates.dra_capacity) {
        add(claimed, &set.capacities()?);
    }
    found.retain(|(_, claimed, replaced)| !claimed.is_empty() || !replaced.is_empty());
    Ok(found)
}

/// A pod set whose devices are counted.
struct PodSet<'d> {
    devices: &'d Devices,
    options: &'d RequestOptions,
    gates: &'d Gates,
    /// Where its pod spec is.
    path: String,
    name: &'d str,
    namespace: &'d str,
    spec: &'d PodSpec,
    requested: Vec<Requested>,
}

impl PodSet<'_> {
    /// The templates by which its pods claim devices, with their names and where they are named.
    fn templates(&self) -> impl Iterator<Item = (String, &str, Option<&Template>)> {
        let claims = self.spec.resource_claims.iter().flatten().enumerate();
        claims.filter_map(|(index, claim)| {
            let name = claim.resource_claim_template_name.as_deref()?;
            let template = self.devices.templates.get(&(self.namespace.to_owned(), name.to_owned()));
            Some((format!("{}.resourceClaims[{index}]", self.path), name, template))
        })
    }

    /// Devices that count as such.
    fn devices(&self) -> Result<Quantities, Rejected> {
        let mut claimed = Quantities::new();
        for (path, name, template) in self.templates() {
            let Some(template) = template else {
                return Err(format!(
                    "{path}: Internal error: failed to get claim spec for ResourceClaimTemplate {name} in podset {}: ResourceClaimTemplate.resource.k8s.io \"{name}\" not found",
                    self.name
                ));
            };
            let counts = template.devices(self.devices, self.options).as_ref();
            let counts =
                counts.map_err(|found| rejected(found, &path, &format!("ResourceClaimTemplate {name}: ")))?;
            for (class, count) in counts {
                let Some(quota) = self.options.device_classes.get(class) else {
                    let detail = format!(
                        "DeviceClass {class} is not mapped in DRA configuration for podset {}",
                        self.name
                    );
                    return Err(format!("{path}.resourceClaimTemplateName: Not found: \"{detail}\""));
                };
                if !quota.counts_parts(self.gates) {
                    let count = Quantity::from_units(*count, Notation::DecimalSi);
                    add(&mut claimed, &Quantities::from([(quota.resource.clone(), count)]));
                }
            }
        }
        Ok(claimed)
    }

    fn counters(&self) -> Result<Quantities, Rejected> {
        self.parts(|template| template.counters(self.devices, self.options))
    }

    fn capacities(&self) -> Result<Quantities, Rejected> {
        self.parts(|template| template.capacities(self.devices, self.options))
    }

    fn parts<'t>(
        &'t self,
        count: impl Fn(&'t Template) -> &'t Result<Quantities, Vec<Problem>>,
    ) -> Result<Quantities, Rejected> {
        let mut claimed = Quantities::new();
        for (path, _, template) in self.templates() {
            // One that is missing was reported before.
            let Some(template) = template else { continue };
            add(&mut claimed, count(template).as_ref().map_err(|found| rejected(found, &path, ""))?);
        }
        Ok(claimed)
    }
}

fn rejected(problems: &[Problem], claim: &str, prefix: &str) -> Rejected {
    let errors: Vec<String> = problems.iter().map(|problem| problem.of_claim(claim, prefix)).collect();
    joined(&errors)
}
