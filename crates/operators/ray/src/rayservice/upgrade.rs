//! How a changed RayService moves to another cluster: whether it does at all, and the arithmetic of moving in
//! steps.

use quintet_api::ray::v1::{RayServiceClusterStatus, RayServiceSpec};

use crate::settings::Settings;

/// Switch when the new cluster serves.
pub const NEW_CLUSTER: &str = "NewCluster";
/// Shift traffic in steps.
pub const INCREMENTAL: &str = "NewClusterWithIncrementalUpgrade";
/// Never replace the cluster.
pub const NONE: &str = "None";
/// All types there are.
pub const TYPES: [&str; 3] = [NEW_CLUSTER, NONE, INCREMENTAL];

fn type_of(spec: &RayServiceSpec) -> Option<&str> {
    spec.upgrade_strategy.as_ref()?.type_.as_deref()
}

/// Whether upgrades of this service shift traffic in steps.
pub fn is_incremental(spec: &RayServiceSpec, settings: &Settings) -> bool {
    settings.gates.incremental_upgrade && type_of(spec) == Some(INCREMENTAL)
}

/// Whether another cluster spec makes a new cluster.
pub fn is_enabled(spec: &RayServiceSpec, settings: &Settings) -> bool {
    match type_of(spec) {
        Some(NEW_CLUSTER) => true,
        Some(INCREMENTAL) => settings.gates.incremental_upgrade,
        Some(_) => false,
        None => settings.zero_downtime,
    }
}

/// Which of the two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that serves.
    Active,
    /// The one that will.
    Pending,
}

/// Which way an upgrade goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the new cluster.
    Forward,
    /// Back to the old one.
    Back,
}

/// How capacity and traffic are split between the two clusters, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Capacity of the old cluster.
    pub active_capacity: i32,
    /// Capacity of the new cluster.
    pub pending_capacity: i32,
    /// Share of the old cluster, if any was given.
    pub active_traffic: Option<i32>,
    /// Share of the new cluster, if any was given.
    pub pending_traffic: Option<i32>,
}

impl Split {
    /// What the status says.
    pub fn of(active: Option<&RayServiceClusterStatus>, pending: Option<&RayServiceClusterStatus>) -> Self {
        Self {
            active_capacity: active.and_then(|side| side.target_capacity).unwrap_or(100),
            pending_capacity: pending.and_then(|side| side.target_capacity).unwrap_or(0),
            active_traffic: active.and_then(|side| side.traffic_routed_percent),
            pending_traffic: pending.and_then(|side| side.traffic_routed_percent),
        }
    }

    /// Whether nothing is left to move.
    pub fn is_finished(&self, direction: Direction) -> bool {
        match direction {
            Direction::Forward => self.active_capacity == 0 && self.pending_capacity == 100,
            Direction::Back => self.active_capacity == 100 && self.pending_capacity == 0,
        }
    }

    /// The next change of capacity: first the gaining cluster grows, then, once it has the traffic for which it
    /// grew, the losing one shrinks.
    pub fn capacity_step(&self, surge: i32, direction: Direction) -> Option<(Side, i32)> {
        if self.is_finished(direction) {
            return None;
        }
        let (gaining, losing) = match direction {
            Direction::Forward => (Side::Pending, Side::Active),
            Direction::Back => (Side::Active, Side::Pending),
        };
        if self.capacity(gaining) != self.traffic(gaining).unwrap_or(0) {
            return None;
        }
        let is_full = self.active_capacity + self.pending_capacity > 100;
        let step = if is_full {
            (losing, (self.capacity(losing) - surge).max(0))
        } else {
            (gaining, (self.capacity(gaining) + surge).min(100))
        };
        (step.1 != self.capacity(step.0)).then_some(step)
    }

    /// The shares after one step of traffic: of the old cluster and of the new one.
    pub fn traffic_step(&self, step: i32, direction: Direction, pending_is_ready: bool) -> (i32, i32) {
        let (active, pending) = self.shares();
        match direction {
            Direction::Back => {
                let active = (active + step).min(self.active_capacity).clamp(active, 100);
                (active, 100 - active)
            }
            Direction::Forward if pending_is_ready => {
                let pending = (pending + step).min(self.pending_capacity).clamp(pending, 100);
                (100 - pending, pending)
            }
            Direction::Forward => (active, pending),
        }
    }

    /// The shares as they are: everything goes to the old cluster until told otherwise.
    pub fn shares(&self) -> (i32, i32) {
        (self.active_traffic.unwrap_or(100), self.pending_traffic.unwrap_or(0))
    }

    /// The capacity of one cluster.
    pub fn capacity(&self, side: Side) -> i32 {
        match side {
            Side::Active => self.active_capacity,
            Side::Pending => self.pending_capacity,
        }
    }

    fn traffic(&self, side: Side) -> Option<i32> {
        match side {
            Side::Active => self.active_traffic,
            Side::Pending => self.pending_traffic,
        }
    }
}
