//! The Node object. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::machine::{Free, Machine};
use crate::pod::status::RUNTIME;

/// Memory that pods cannot have: below it the node is under pressure, as the kubelet's `memory.available<100Mi`.
const MEMORY_RESERVE: u64 = 100 << 20;
/// Below this the node is under disk pressure. Upstream has a tenth of the disk, which is a lot of a workstation's.
const STORAGE_RESERVE: u64 = 1 << 30;
/// The resource of graphics processors.
const GPU: &str = "nvidia.com/gpu";

/// What a node says about itself.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub name: String,
    pub machine: Machine,
    pub address: Ipv4Addr,
    pub labels: BTreeMap<String, String>,
    pub gpus: u32,
    pub max_pods: u32,
    pub pod_cidr: String,
}

impl Description {
    /// The node as it registers.
    pub(crate) fn node(&self, free: Free, now: Timestamp) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": self.name, "labels": self.all_labels() },
            "spec": { "podCIDR": self.pod_cidr, "podCIDRs": [self.pod_cidr] },
            "status": self.status(&Value::Null, free, now),
        })
    }

    /// The labels of the node; those of the user come last.
    pub(crate) fn all_labels(&self) -> BTreeMap<String, String> {
        let architecture = &self.machine.architecture;
        let own = [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", architecture),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", architecture),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        own.into_iter().chain(self.labels.clone()).collect()
    }

    /// What pods can have.
    pub(crate) fn allocatable(&self) -> BTreeMap<String, String> {
        let mut amounts = self.capacity();
        let memory = self.machine.memory.saturating_sub(MEMORY_RESERVE) >> 10;
        amounts.insert("memory".into(), format!("{memory}Ki"));
        amounts
    }

    fn capacity(&self) -> BTreeMap<String, String> {
        let machine = &self.machine;
        let mut amounts: BTreeMap<String, String> = [
            ("cpu", machine.processors.to_string()),
            ("memory", format!("{}Ki", machine.memory >> 10)),
            ("ephemeral-storage", format!("{}Ki", machine.storage >> 10)),
            ("pods", self.max_pods.to_string()),
        ]
        .map(|(name, amount)| (name.to_owned(), amount))
        .into();
        let gpus = machine.gpus.max(self.gpus);
        if gpus > 0 {
            amounts.insert(GPU.into(), gpus.to_string());
        }
        amounts
    }

    /// The status. Conditions that stay as they were in `old` keep the time of their change; conditions and extended
    /// resources of other owners stay.
    pub(crate) fn status(&self, old: &Value, free: Free, now: Timestamp) -> Value {
        let machine = &self.machine;
        let extended = extended_of_others(&old["capacity"]);
        let with_extended = |own: BTreeMap<String, String>| -> BTreeMap<_, _> {
            extended.clone().into_iter().chain(own).collect()
        };
        let old = old["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        json!({
            "capacity": with_extended(self.capacity()),
            "allocatable": with_extended(self.allocatable()),
            "addresses": [
                { "type": "InternalIP", "address": self.address },
                { "type": "Hostname", "address": self.name },
            ],
            "conditions": conditions(old, free, now),
            // Nothing listens there: the embedded API server reaches the kubelet in process.
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10_250 } },
            "nodeInfo": {
                "architecture": machine.architecture, "operatingSystem": "linux", "osImage": machine.os_image,
                "kernelVersion": machine.kernel, "bootID": machine.boot_id, "machineID": machine.machine_id,
                "systemUUID": machine.machine_id, "kubeProxyVersion": "",
                "kubeletVersion": concat!("v1.36.0+quintet-", env!("CARGO_PKG_VERSION")),
                "containerRuntimeVersion": format!("{RUNTIME}://{}", env!("CARGO_PKG_VERSION")),
            },
        })
    }
}

/// Resources that users advertise for the node, all of which pods can have.
fn extended_of_others(capacity: &Value) -> BTreeMap<String, String> {
    let amounts = capacity.as_object().into_iter().flatten();
    let extended = amounts.filter(|(name, _)| name.contains('/') && *name != GPU);
    extended.filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.to_owned()))).collect()
}

fn conditions(old: &[Value], free: Free, now: Timestamp) -> Vec<Value> {
    let pressure = |is_low: bool, yes: (&'static str, &'static str), no: (&'static str, &'static str)| {
        if is_low { ("True", yes) } else { ("False", no) }
    };
    let memory = pressure(
        free.memory < MEMORY_RESERVE,
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    );
    let disk = pressure(
        free.storage < STORAGE_RESERVE,
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    );
    let processes = ("False", ("KubeletHasSufficientPID", "kubelet has sufficient PID available"));
    let ready = ("True", ("KubeletReady", "kubelet is posting ready status"));
    let now = whole_seconds(now);
    let own =
        [("MemoryPressure", memory), ("DiskPressure", disk), ("PIDPressure", processes), ("Ready", ready)];
    let foreign = old
        .iter()
        .filter(|one| !own.iter().any(|(kind, _)| one["type"] == *kind))
        .cloned()
        .collect::<Vec<_>>();
    let own = own.into_iter().map(|(kind, (status, (reason, message)))| {
        let before = old.iter().find(|one| one["type"] == kind && one["status"] == status);
        let since = before.map_or_else(|| json!(now), |one| one["lastTransitionTime"].clone());
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": since,
        })
    });
    own.chain(foreign).collect()
}

/// Whether two statuses differ in more than their heartbeats.
pub(crate) fn differs(old: &Value, new: &Value) -> bool {
    let without_heartbeats = |status: &Value| {
        let mut status = status.clone();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastHeartbeatTime"] = Value::Null;
        }
        status
    };
    without_heartbeats(old) != without_heartbeats(new)
}

/// The merge patch from one status to another: resources that are gone are removed.
pub(crate) fn patch(old: &Value, new: &Value) -> Value {
    let mut patch = new.clone();
    for kind in ["capacity", "allocatable"] {
        for (name, _) in old[kind].as_object().into_iter().flatten() {
            if new[kind].get(name).is_none() {
                patch[kind][name] = Value::Null;
            }
        }
    }
    patch
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Free = Free { memory: 1 << 40, storage: 1 << 40 };

    fn description() -> Description {
        let machine = Machine {
            processors: 2,
            memory: 4 << 30,
            storage: 10 << 30,
            architecture: "amd64".into(),
            ..Machine::default()
        };
        Description {
            name: "here".into(),
            machine,
            address: [10, 244, 0, 1].into(),
            labels: [("team".to_owned(), "a".to_owned())].into(),
            gpus: 0,
            max_pods: 110,
            pod_cidr: "10.244.0.0/16".into(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_node_offers_what_the_machine_has_less_a_reserve() {
        let node = description().node(PLENTY, at(0));
        assert_eq!(node["status"]["capacity"]["memory"], "4194304Ki");
        assert_eq!(node["status"]["allocatable"]["memory"], "4091904Ki");
        assert_eq!(node["status"]["allocatable"]["cpu"], "2");
        assert_eq!(node["status"]["capacity"][GPU], Value::Null);
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "here");
        assert_eq!(node["metadata"]["labels"]["team"], "a");
    }

    #[test]
    fn graphics_processors_are_real_or_pretended() {
        let pretended = Description { gpus: 4, ..description() };
        assert_eq!(pretended.node(PLENTY, at(0))["status"]["capacity"][GPU], "4");
        let mut real = description();
        real.machine.gpus = 2;
        assert_eq!(real.node(PLENTY, at(0))["status"]["capacity"][GPU], "2");
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_change() {
        let first = conditions(&[json!({"type": "Foreign", "status": "True"})], PLENTY, at(1));
        let second = conditions(&first, Free { storage: 5, ..PLENTY }, at(2));
        let find = |kind: &str| second.iter().find(|one| one["type"] == kind).unwrap();
        assert_eq!(find("Ready")["lastTransitionTime"], json!(at(1)));
        assert_eq!(find("Ready")["lastHeartbeatTime"], json!(at(2)));
        let disk = find("DiskPressure");
        assert_eq!((&disk["status"], &disk["lastTransitionTime"]), (&json!("True"), &json!(at(2))));
        assert_eq!(find("Foreign")["status"], "True");
    }

    #[test]
    fn a_heartbeat_alone_is_no_difference() {
        let description = description();
        let old = description.status(&Value::Null, PLENTY, at(1));
        assert!(!differs(&old, &description.status(&old, PLENTY, at(9))));
        assert!(differs(&old, &description.status(&old, Free { memory: 1, ..PLENTY }, at(9))));
    }

    #[test]
    fn extended_resources_of_users_stay_and_pretended_processors_go() {
        let pretended = Description { gpus: 4, ..description() };
        let mut old = pretended.status(&Value::Null, PLENTY, at(1));
        old["capacity"]["example.com/dongle"] = json!("3");
        let new = description().status(&old, PLENTY, at(1));
        for kind in ["capacity", "allocatable"] {
            assert_eq!((&new[kind]["example.com/dongle"], &new[kind][GPU]), (&json!("3"), &Value::Null));
            assert_eq!(patch(&old, &new)[kind].get(GPU), Some(&Value::Null), "it is removed");
        }
        assert!(!differs(&new, &description().status(&new, PLENTY, at(2))));
        assert_eq!(patch(&new, &new), new);
    }
}
