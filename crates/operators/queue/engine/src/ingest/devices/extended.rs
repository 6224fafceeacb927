//! Extended resources that a DeviceClass stands for.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use quintet_api::Quantity;

use super::problem::joined;
use super::{PodSet, Rejected};
use crate::ingest::IngestError;
use crate::ingest::pod::{Quantities, ResourceList, add, quantities};

/// The extended resources that a container requests.
pub(super) struct Requested {
    /// Where the container is.
    path: String,
    is_init: bool,
    quantities: Quantities,
}

/// Reads what the containers of a pod request.
pub(super) fn requested(spec: &PodSpec, path: &str) -> Result<Vec<Requested>, IngestError> {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let containers = [("initContainers", init), ("containers", spec.containers.as_slice())];
    let containers = containers.into_iter().flat_map(|(part, containers)| {
        containers.iter().enumerate().map(move |(index, container)| (part, index, container))
    });
    containers
        .map(|(part, index, container)| {
            Ok(Requested {
                path: format!("{path}.{part}[{index}]"),
                is_init: part == "initContainers",
                quantities: extended(container)?,
            })
        })
        .collect()
}

impl PodSet<'_> {
    /// What they count as, and their names. Init containers run one after another, the others at the same time.
    pub(super) fn extended_resources(&self) -> Result<(Quantities, Vec<String>), Vec<Rejected>> {
        let (mut errors, fractional) = self.fractional();
        let mut first: BTreeMap<&str, &str> = BTreeMap::new();
        let (mut init, mut most) = (Quantities::new(), Quantities::new());
        for container in &self.requested {
            for (name, quantity) in &container.quantities {
                first.entry(name).or_insert(&container.path);
                let sum = if container.is_init { &mut init } else { &mut most };
                let known = sum.entry(name.clone()).or_default();
                *known = if container.is_init { (*known).max(*quantity) } else { *known + *quantity };
            }
        }
        for (name, quantity) in init {
            let known = most.entry(name).or_default();
            *known = (*known).max(quantity);
        }
        let (mut counted, mut replaced) = (Quantities::new(), Vec::new());
        for (name, quantity) in most {
            let Some(class) = self.devices.class_of(&name) else { continue };
            if fractional.contains(name.as_str()) {
                continue;
            }
            let quota = self.options.device_classes.get(class);
            if let Some(quota) = quota.filter(|quota| quota.counts_parts(self.gates)) {
                let (what, how) = if self.gates.dra_counters && !quota.counters.is_empty() {
                    ("counters", "use ResourceClaimTemplates with CEL selectors for counter-based quota")
                } else {
                    (
                        "capacity sources",
                        "use ResourceClaimTemplates with capacity.requests for capacity-based quota",
                    )
                };
                let path = first.get(name.as_str()).copied().unwrap_or_default();
                errors.push(format!(
                    "{path}: Invalid value: \"{name}\": extended resource {name} resolves to DeviceClass {class} with {what} configured; {how}"
                ));
                continue;
            }
            let resource = quota.map_or_else(|| name.clone(), |quota| quota.resource.clone());
            add(&mut counted, &Quantities::from([(resource, quantity)]));
            replaced.push(name);
        }
        if errors.is_empty() { Ok((counted, replaced)) } else { Err(errors) }
    }

    /// Parts of devices that are requested, as errors, and of which resources.
    fn fractional(&self) -> (Vec<Rejected>, BTreeSet<&str>) {
        let (mut errors, mut names) = (Vec::new(), BTreeSet::new());
        for container in &self.requested {
            for (name, quantity) in &container.quantities {
                let is_whole = Quantity::from_units(quantity.units(), quantity.notation()) == *quantity;
                if !is_whole && self.devices.class_of(name).is_some() {
                    names.insert(name.as_str());
                    errors.push(format!(
                        "{}.resources.requests.{name}: Invalid value: \"{quantity}\": extended resource quantity must be an integer",
                        container.path
                    ));
                }
            }
        }
        (errors, names)
    }
}

/// The same for all pod sets; what is wrong is said of all of them at once.
pub(super) fn of_all(sets: &[PodSet<'_>]) -> Result<Vec<(Quantities, Vec<String>)>, Rejected> {
    let (mut counted, mut errors) = (Vec::new(), Vec::new());
    for set in sets {
        match set.extended_resources() {
            Ok(of_set) => counted.push(of_set),
            Err(of_set) => errors.extend(of_set),
        }
    }
    if errors.is_empty() { Ok(counted) } else { Err(joined(&errors)) }
}

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
