//! What all pods of a kubelet share.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use quintet_api::quantity::Quantity;
use quintet_controller::api::Api;
use quintet_controller::cache::Cache;
use quintet_controller::clock::Clock;
use quintet_controller::events::{Recorder, Regarding};
use quintet_controller::tasks::Tasks;
use quintet_controller::{ApiKind, Event, ObjectKey};
use quintet_foundation::rng::Rng;

use crate::cgroups::Cgroups;
use crate::ids::Ids;
use crate::images::Images;
use crate::kubelet::Settings;
use crate::machine::Machine;
use crate::network::Network;
use crate::pod::names::Resolver;
use crate::server::metrics::Samples;

/// Who reports the events of pods.
const REPORTER: &str = "kubelet";

pub(crate) struct Context {
    pub api: Api,
    pub clock: Clock,
    pub rng: Rng,
    pub tasks: Tasks,
    pub recorder: Recorder,
    pub settings: Settings,
    pub images: Images,
    pub cgroups: Cgroups,
    pub ids: Ids,
    pub network: Network,
    pub services: Cache<core::Service>,
    pub machine: Machine,
    /// What pods can have together.
    pub allocatable: BTreeMap<String, Quantity>,
    pub node_address: Ipv4Addr,
    /// How the machine resolves names.
    pub resolver: Resolver,
    /// Readings of processor time, for the metrics API.
    pub samples: Samples,
    /// When the kubelet started, and the processor time of the machine until then.
    pub started: (Timestamp, u64),
}

impl Context {
    /// The directory of a pod.
    pub(crate) fn pod_directory(&self, uid: &str) -> PathBuf {
        self.settings.data_directory.join(PODS).join(uid)
    }

    /// Records an event about a pod.
    pub(crate) fn event(&self, (key, uid): (&ObjectKey, &str), event: Event) {
        let regarding = Regarding { kind: ApiKind::of::<core::Pod>(), key: key.clone(), uid: uid.into() };
        self.recorder.record(REPORTER, regarding, event);
    }
}

/// Where pods are below the data directory.
pub(crate) const PODS: &str = "pods";
