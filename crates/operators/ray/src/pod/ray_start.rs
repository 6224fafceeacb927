//! The `ray start` command: its flags, and how it is put into the container.

use std::{collections::BTreeMap, fmt::Write as _};

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use quintet_api::Quantity;

use super::{Blueprint, Role};
use crate::settings::Settings;

/// Port of the agent that runs beside every raylet.
pub const AGENT_PORT: i32 = 52365;

/// Flags that are written with their value though it is true or false.
const VALUED: [&str; 3] = ["log-color", "include-dashboard", "include-log-monitor"];

/// Accelerators that Ray knows as resources of its own, by their name in Kubernetes.
const ACCELERATORS: [(&str, &str); 2] =
    [("aws.amazon.com/neuroncore", "neuron_cores"), ("google.com/tpu", "TPU")];

/// Flags of `ray start`, without their dashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(BTreeMap<String, String>);

impl Params {
    /// What the user gives.
    pub fn new(given: Option<&BTreeMap<String, String>>) -> Self {
        Self(given.cloned().unwrap_or_default())
    }

    /// The value of a flag.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A port, if it is a number.
    pub fn port(&self, name: &str) -> Option<i32> {
        self.get(name)?.parse().ok()
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    fn set_missing(&mut self, name: &str, value: impl Into<String>) {
        self.0.entry(name.to_owned()).or_insert_with(|| value.into());
    }

    /// Logical resources of the group. Quantities that cannot be read are passed over.
    pub(super) fn advertise(&mut self, resources: Option<&BTreeMap<String, String>>) {
        let mut custom = BTreeMap::new();
        for (name, quantity) in resources.into_iter().flatten() {
            let Ok(quantity) = quantity.parse::<Quantity>() else {
                continue;
            };
            let lower = name.to_lowercase();
            let flag = match lower.as_str() {
                "cpu" => "num-cpus",
                "memory" => "memory",
                other if is_gpu(other) => "num-gpus",
                _ => {
                    custom.insert(name.clone(), amount(quantity));
                    continue;
                }
            };
            self.set(flag, quantity.units().to_string());
        }
        if !custom.is_empty() {
            self.set("resources", quoted(&custom));
        }
    }

    /// Labels of the group, which Ray schedules by.
    pub(super) fn label(&mut self, labels: Option<&BTreeMap<String, String>>) {
        let labels: Vec<_> =
            labels.into_iter().flatten().map(|(name, value)| format!("{name}={value}")).collect();
        if !labels.is_empty() {
            self.set("labels", labels.join(","));
        }
    }

    /// What every node needs and the user does not have to say.
    pub(super) fn complete(&mut self, role: Role, blueprint: &Blueprint<'_>) {
        match role {
            Role::Worker => {
                self.set_missing("address", format!("{}:{}", blueprint.head_host, blueprint.head_port));
            }
            Role::Head => self.set_missing("dashboard-host", "0.0.0.0"),
        }
        self.set_missing("metrics-export-port", crate::k8s_service::METRICS_PORT.to_string());
        self.set_missing("dashboard-agent-listen-port", AGENT_PORT.to_string());
        // The container lives as long as Ray does.
        self.set("block", "true");
    }

    /// CPUs, memory and accelerators of the container, where neither the user nor the group says otherwise.
    pub(super) fn take_from_container(&mut self, container: &Container) {
        let resources = container.resources.clone().unwrap_or_default();
        let limits = resources.limits.unwrap_or_default();
        let requests = resources.requests.unwrap_or_default();
        if let Some(cpus) = nonzero(&limits, "cpu").or_else(|| nonzero(&requests, "cpu")) {
            self.set_missing("num-cpus", cpus.units().to_string());
        }
        if let Some(memory) = nonzero(&limits, "memory") {
            self.set_missing("memory", memory.units().to_string());
        }
        self.take_accelerators(&limits);
    }

    fn take_accelerators(&mut self, limits: &BTreeMap<String, WireQuantity>) {
        // What cannot be read is the user's own affair, and so are the accelerators then.
        let Some(mut custom) = self.custom_resources() else {
            return;
        };
        let gpus = limits.keys().filter(|name| is_gpu(name)).find_map(|name| nonzero(limits, name));
        if let Some(gpus) = gpus {
            self.set_missing("num-gpus", gpus.units().to_string());
        }
        if ACCELERATORS.iter().any(|(_, ray)| custom.contains_key(*ray)) {
            return;
        }
        let found = ACCELERATORS.iter().find_map(|(name, ray)| Some((*ray, nonzero(limits, name)?)));
        if let Some((ray, count)) = found {
            custom.insert(ray.to_owned(), amount(count));
            self.set("resources", quoted(&custom));
        }
    }

    fn custom_resources(&self) -> Option<BTreeMap<String, serde_json::Number>> {
        let Some(text) = self.get("resources") else {
            return Some(BTreeMap::new());
        };
        serde_json::from_str(text.trim_matches(['\'', '"', '`', ' '])).ok()
    }

    /// The whole command.
    pub fn command(&self, role: Role) -> String {
        let mut command = String::from(match role {
            Role::Head => "ray start --head ",
            Role::Worker => "ray start ",
        });
        for (name, value) in &self.0 {
            let switch = match value.to_lowercase().as_str() {
                _ if VALUED.contains(&name.as_str()) => None,
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            };
            // Writing to a String cannot fail.
            let _ = match switch {
                Some(true) => write!(command, " --{name} "),
                Some(false) => Ok(()),
                None => write!(command, " --{name}={value} "),
            };
        }
        command
    }
}

/// Whether a resource's name means a GPU, or a slice of one.
pub fn is_gpu(name: &str) -> bool {
    let is_mig_slice = || {
        let size = name.split_once("nvidia.com/mig-").and_then(|(_, size)| size.split_once("g."));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        size.is_some_and(|(compute, memory)| {
            is_number(compute) && memory.strip_suffix("gb").is_some_and(is_number)
        })
    };
    name.ends_with("gpu") || is_mig_slice()
}

fn nonzero(resources: &BTreeMap<String, WireQuantity>, name: &str) -> Option<Quantity> {
    Quantity::try_from(resources.get(name)?).ok().filter(|quantity| !quantity.is_zero())
}

/// A whole number as such, anything else to the thousandth.
fn amount(quantity: Quantity) -> serde_json::Number {
    let millis = quantity.millis();
    if millis % 1000 == 0 {
        return quantity.units().into();
    }
    #[expect(clippy::cast_precision_loss, reason = "amounts of resources are far below 2^53 thousandths")]
    let amount = millis as f64 / 1000.0;
    serde_json::Number::from_f64(amount).unwrap_or_else(|| 0.into())
}

/// JSON in single quotes, as a shell takes it.
fn quoted(resources: &BTreeMap<String, serde_json::Number>) -> String {
    format!("'{}'", serde_json::to_string(resources).unwrap_or_default())
}

/// Lets the container start Ray: after whatever the user's command does, unless that starts Ray itself.
pub(super) fn set_command(container: &mut Container, ray_start: &str, overwrites: bool, settings: &Settings) {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    let own: String = words.flat_map(|word| [" ", word, " "]).collect();
    if overwrites || own.contains("ray start") {
        return;
    }
    let start = format!("ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {ray_start}");
    container.command = Some(settings.shell());
    container.args = Some(vec![if own.is_empty() { start } else { format!("{own} && {start}") }]);
}
