//! What ResourceClaimTemplates ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use k8s_openapi::api::resource::v1::{DeviceRequest, ExactDeviceRequest, ResourceClaimTemplate};
use quintet_cel::quoted;

use super::problem::{Problem, joined};
use super::selector::{Candidate, Selector};
use super::{DeviceQuota, Devices};
use crate::ingest::IngestError;
use crate::ingest::pod::{Quantities, quantities};
use crate::ingest::workload::RequestOptions;

/// A template, with what it counts as. That is looked up once and again when devices or classes have changed: many
/// Workloads name the same template.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) requests: Vec<Request>,
    pub(super) counted: Counted,
}

/// What the devices of a template count as.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// Devices, by class.
    pub(super) devices: OnceLock<Result<BTreeMap<String, i64>, Vec<Problem>>>,
    pub(super) counters: OnceLock<Result<Quantities, Vec<Problem>>>,
    pub(super) capacities: OnceLock<Result<Quantities, Vec<Problem>>>,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    is_first_available: bool,
    pub(super) exactly: Option<Exactly>,
}

/// A request for devices of one class.
#[derive(Clone, Debug)]
pub(super) struct Exactly {
    pub(super) class: String,
    pub(super) selectors: Vec<Selector>,
    pub(super) count: i64,
    /// How much of which capacity.
    pub(super) capacities: Quantities,
    allocation_mode: String,
    is_for_admins: bool,
}

impl Template {
    pub(super) fn new(object: &ResourceClaimTemplate) -> Result<Self, IngestError> {
        let requests = object.spec.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten());
        Ok(Self {
            requests: requests.map(Request::new).collect::<Result<_, _>>()?,
            counted: Counted::default(),
        })
    }

    /// The devices by class.
    pub(super) fn devices(
        &self,
        devices: &Devices,
        options: &RequestOptions,
    ) -> &Result<BTreeMap<String, i64>, Vec<Problem>> {
        self.counted.devices.get_or_init(|| {
            let counts = self.counts().map_err(|problem| vec![problem])?;
            let problems = self.unsatisfied(devices, options);
            if problems.is_empty() { Ok(counts) } else { Err(problems) }
        })
    }

    /// The requests for devices of one class each, with their place in the claim.
    pub(super) fn exact_requests(&self) -> impl Iterator<Item = (String, &Exactly)> {
        let requests = self.requests.iter().enumerate();
        requests.filter_map(|(index, request)| Some((path(index), request.exactly.as_ref()?)))
    }

    fn counts(&self) -> Result<BTreeMap<String, i64>, Problem> {
        let mut counts = BTreeMap::new();
        for (index, request) in self.requests.iter().enumerate() {
            let path = path(index);
            if request.is_first_available {
                return Err(Problem::null(path, "FirstAvailable device selection is not supported"));
            }
            let Some(exactly) = &request.exactly else {
                return Err(Problem::null(path, "Exactly must be set if FirstAvailable is nil"));
            };
            exactly.check(&path)?;
            if !exactly.class.is_empty() {
                let sum: &mut i64 = counts.entry(exactly.class.clone()).or_default();
                *sum = sum.saturating_add(exactly.count);
            }
        }
        Ok(counts)
    }

    /// Requests whose selectors select too few devices.
    fn unsatisfied(&self, devices: &Devices, options: &RequestOptions) -> Vec<Problem> {
        let selecting = || self.exact_requests().filter(|(_, exactly)| !exactly.selectors.is_empty());
        let candidates = candidates(devices, options, selecting().map(|(_, exactly)| exactly));
        let mut taken = BTreeSet::new();
        let problem = |(path, exactly): (String, &Exactly)| {
            let class = &exactly.class;
            let selectors = match devices.selectors_of(class, &path) {
                Ok(selectors) => selectors,
                Err(problem) => return Some(problem),
            };
            let path = format!("{path}.exactly.selectors");
            match take(&candidates, &mut taken, [selectors, &exactly.selectors], exactly.count) {
                Err(why) => {
                    Some(Problem::null(path, format!("CEL evaluation failed for DeviceClass {class}: {why}")))
                }
                Ok(found) if found < exactly.count => Some(Problem::internal(
                    path,
                    format!(
                        "insufficient matching devices for CEL selector in DeviceClass {class}: {found} device(s) match in the cluster but {} requested",
                        exactly.count
                    ),
                )),
                Ok(_) => None,
            }
        };
        selecting().filter_map(problem).collect()
    }
}

fn path(request: usize) -> String {
    format!("devices.requests[{request}]")
}

/// The devices that selectors may select from: of the drivers whose counters or capacities count, if that is known of all
/// classes, or else of all.
fn candidates<'d>(
    devices: &'d Devices,
    options: &'d RequestOptions,
    requests: impl Iterator<Item = &'d Exactly>,
) -> Vec<Candidate<'d>> {
    let mut drivers = Some(BTreeSet::new());
    for exactly in requests {
        let quota = options.device_classes.get(&exactly.class);
        let mut of_class = quota.into_iter().flat_map(DeviceQuota::sources).peekable();
        if of_class.peek().is_none() {
            drivers = None;
        }
        if let Some(drivers) = &mut drivers {
            drivers.extend(of_class.map(|source| source.driver.as_str()));
        }
    }
    let slices = devices.slices.values();
    let is_meant =
        |driver: &str| drivers.as_ref().is_none_or(|drivers: &BTreeSet<&str>| drivers.contains(driver));
    slices
        .filter(|slice| is_meant(&slice.driver))
        .flat_map(|slice| slice.devices.iter().map(move |device| Candidate::new(&slice.driver, device)))
        .collect()
}

/// Takes as many of the devices that are left as are needed.
fn take(
    candidates: &[Candidate<'_>],
    taken: &mut BTreeSet<usize>,
    selectors: [&[Selector]; 2],
    needed: i64,
) -> Result<i64, String> {
    let mut found = 0;
    for (index, candidate) in candidates.iter().enumerate() {
        if taken.contains(&index) {
            continue;
        }
        let [of_class, of_request] = selectors;
        if candidate.is_selected(of_class)? && candidate.is_selected(of_request)? {
            taken.insert(index);
            found += 1;
            if found >= needed {
                break;
            }
        }
    }
    Ok(found)
}

impl Request {
    fn new(object: &DeviceRequest) -> Result<Self, IngestError> {
        Ok(Self {
            is_first_available: object.first_available.is_some(),
            exactly: object.exactly.as_ref().map(Exactly::new).transpose()?,
        })
    }
}

impl Exactly {
    fn new(object: &ExactDeviceRequest) -> Result<Self, IngestError> {
        let capacity = object.capacity.as_ref();
        Ok(Self {
            class: object.device_class_name.clone(),
            selectors: Selector::all(object.selectors.as_deref()),
            count: object.count.unwrap_or(1),
            capacities: quantities(capacity.and_then(|capacity| capacity.requests.as_ref()))?,
            allocation_mode: object.allocation_mode.clone().unwrap_or_else(|| "ExactCount".to_owned()),
            is_for_admins: object.admin_access == Some(true),
        })
    }

    /// What keeps it from being counted, wherever devices are.
    fn check(&self, path: &str) -> Result<(), Problem> {
        let at = format!("{path}.exactly.selectors");
        let errors: Vec<String> = Problem::of_selectors(&self.selectors, &at, "CEL compilation failed")
            .iter()
            .map(ToString::to_string)
            .collect();
        if !errors.is_empty() {
            return Err(Problem::null(at, joined(&errors)));
        }
        if self.is_for_admins {
            return Err(Problem::null(format!("{path}.exactly.adminAccess"), "AdminAccess is not supported"));
        }
        let at = format!("{path}.exactly.allocationMode");
        match self.allocation_mode.as_str() {
            "ExactCount" => Ok(()),
            "All" => Err(Problem::invalid(at, &quoted("All"), "AllocationMode 'All' is not supported")),
            other => {
                Err(Problem::invalid(at, &quoted(other), format!("unsupported allocation mode: {other}")))
            }
        }
    }
}
