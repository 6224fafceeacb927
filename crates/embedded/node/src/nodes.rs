//! The shape of simulated nodes: names, labels, topology, status.

use std::collections::BTreeMap;

use jiff::Timestamp;
use quintet_api::quantity::{Notation, Quantity};
use serde_json::{Value, json};

use crate::addresses;

/// The label by which simulated nodes are known; its value is the name they share.
pub const SIMULATED: &str = "node.quintet.dev/simulated";

/// How nodes are made: all alike, except for their position in the topology.
#[derive(Clone, Debug)]
pub struct NodeShape {
    /// The nodes are called by this name and a number.
    pub name: String,
    /// How many.
    pub count: u32,
    /// The capacity of each node.
    pub capacity: BTreeMap<String, Quantity>,
    /// Labels of all of them.
    pub labels: BTreeMap<String, String>,
    /// The topology, from the widest level to the narrowest.
    pub levels: Vec<Level>,
}

/// A level of the topology: a label whose values divide what is in one value of the level above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The label, like `cloud.provider.com/topology-rack`.
    pub label: String,
    /// Into how many parts it divides.
    pub parts: u32,
}

impl NodeShape {
    /// Nodes of an ordinary size, without a topology.
    pub fn plain(count: u32) -> Self {
        let units = |amount: i64, notation| Quantity::from_units(amount, notation);
        let capacity = [
            ("cpu", units(32, Notation::DecimalSi)),
            ("memory", units(256 << 30, Notation::BinarySi)),
            ("pods", units(110, Notation::DecimalSi)),
        ];
        Self {
            name: "simulated".to_owned(),
            count,
            capacity: capacity.map(|(name, amount)| (name.to_owned(), amount)).into(),
            labels: BTreeMap::new(),
            levels: Vec::new(),
        }
    }

    /// The name of a node.
    pub fn name_of(&self, number: u32) -> String {
        format!("{}-{number}", self.name)
    }

    /// The number of a node, if it is one of these.
    pub fn number_of(&self, name: &str) -> Option<u32> {
        let number = name.strip_prefix(&self.name)?.strip_prefix('-')?.parse().ok()?;
        (number < self.count && self.name_of(number) == name).then_some(number)
    }

    /// The labels of a node.
    pub fn labels_of(&self, number: u32) -> BTreeMap<String, String> {
        let name = self.name_of(number);
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), name),
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
            (SIMULATED.to_owned(), self.name.clone()),
        ]);
        labels.extend(self.labels.clone());
        labels.extend(self.topology_of(number));
        labels
    }

    /// The topology labels of a node: consecutive numbers share domains.
    fn topology_of(&self, number: u32) -> Vec<(String, String)> {
        let (mut first, mut size) = (0_u64, u64::from(self.count));
        let mut path = String::new();
        let mut labels = Vec::new();
        for Level { label, parts } in &self.levels {
            let parts = u64::from(*parts).max(1);
            let offset = u64::from(number) - first;
            // The part whose share [size*k/parts, size*(k+1)/parts) holds the node.
            let part = ((offset + 1) * parts).div_ceil(size.max(1)).saturating_sub(1);
            let (begin, end) = (size * part / parts, size * (part + 1) / parts);
            (first, size) = (first + begin, end - begin);
            path = format!("{path}-{part}");
            let word = label.rsplit(['/', '-']).next().unwrap_or(label);
            labels.push((label.clone(), format!("{word}{path}")));
        }
        labels
    }

    /// The node as it registers.
    pub fn node(&self, number: u32, now: Timestamp) -> Value {
        let name = self.name_of(number);
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": self.labels_of(number) },
            "status": self.status(number, now),
        })
    }

    /// The status of a node.
    pub fn status(&self, number: u32, now: Timestamp) -> Value {
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": "simulated",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            })
        };
        json!({
            "capacity": self.capacity,
            "allocatable": self.capacity,
            "addresses": [
                { "type": "InternalIP", "address": addresses::of_node(number) },
                { "type": "Hostname", "address": self.name_of(number) },
            ],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "simulated",
                "kernelVersion": "simulated", "containerRuntimeVersion": "simulated://1",
                "kubeletVersion": concat!("v1.36.0+quintet-", env!("CARGO_PKG_VERSION")),
                "kubeProxyVersion": "", "bootID": "", "machineID": "", "systemUUID": "",
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(count: u32, levels: &[(&str, u32)]) -> NodeShape {
        let levels = levels.iter().map(|(label, parts)| Level { label: (*label).to_owned(), parts: *parts });
        NodeShape {
            name: "sim".to_owned(),
            count,
            capacity: BTreeMap::new(),
            labels: BTreeMap::new(),
            levels: levels.collect(),
        }
    }

    #[test]
    fn names_are_numbers_and_back() {
        let shape = shape(12, &[]);
        assert_eq!(shape.number_of(&shape.name_of(11)), Some(11));
        for other in ["sim-12", "sim-01", "sim", "sim-", "other-1", "sim-1-1"] {
            assert_eq!(shape.number_of(other), None, "{other}");
        }
    }

    #[test]
    fn levels_divide_evenly_and_nest() {
        let shape = shape(10, &[("x/topology-block", 2), ("x/topology-rack", 3)]);
        let racks: Vec<_> =
            (0..10).map(|number| shape.labels_of(number)["x/topology-rack"].clone()).collect();
        assert_eq!(
            racks,
            [
                "rack-0-0", "rack-0-1", "rack-0-1", "rack-0-2", "rack-0-2", "rack-1-0", "rack-1-1",
                "rack-1-1", "rack-1-2", "rack-1-2"
            ]
        );
        assert_eq!(shape.labels_of(9)["x/topology-block"], "block-1");
    }

    #[test]
    fn more_parts_than_nodes_leave_some_empty() {
        let shape = shape(2, &[("block", 8)]);
        assert_eq!(shape.labels_of(0)["block"], "block-3");
        assert_eq!(shape.labels_of(1)["block"], "block-7");
    }
}
