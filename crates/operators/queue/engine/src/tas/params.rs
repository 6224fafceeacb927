//! A topology request, resolved against the levels of the topology.

use std::collections::BTreeMap;

use super::placement::{PlacementRequest, Placer};
use crate::model::SliceLayer;
use crate::settings::Gates;

/// What is requested, resolved against the levels of the topology.
#[derive(Clone, Debug)]
pub(super) struct Params {
    pub(super) count: i32,
    pub(super) leaders: i32,
    pub(super) slice_size: i32,
    pub(super) level: usize,
    pub(super) slice_level: usize,
    pub(super) required: bool,
    pub(super) unconstrained: bool,
    /// Slice sizes of inner layers, by level.
    pub(super) inner: BTreeMap<usize, i32>,
    pub(super) layers: Vec<SliceLayer>,
}

impl Params {
    pub(super) fn slices(&self) -> i32 {
        self.count / self.slice_size.max(1)
    }

    /// Whether balanced placement is tried first.
    pub(super) const fn may_be_balanced(&self, gates: &Gates) -> bool {
        gates.tas_balanced_placement && !self.required && !self.unconstrained
    }
}

impl Placer<'_> {
    pub(super) fn params(&self, workers: &PlacementRequest<'_>, with_leader: bool) -> Result<Params, String> {
        let topology = workers.pod_set.topology.as_deref();
        let layers = topology.map_or(&[][..], |request| &request.slices);
        let slice_size = match layers.first() {
            Some(layer) if layer.size <= 0 => {
                return Err("slice topology requested, but slice size not provided".to_owned());
            }
            Some(layer) => layer.size,
            None => 1,
        };
        let Some(lowest) = self.tree.levels.last() else {
            return Err("topology level not specified".to_owned());
        };
        let key = self.level_key(workers).ok_or_else(|| "topology level not specified".to_owned())?;
        let level = self.tree.level(key).ok_or_else(|| format!("no requested topology level: {key}"))?;
        let slice_key = layers.first().map_or(lowest, |layer| &layer.level);
        let slice_level = self
            .tree
            .level(slice_key)
            .ok_or_else(|| format!("no requested topology level for slices: {slice_key}"))?;
        if level > slice_level {
            return Err(format!("podset slice topology {slice_key} is above the podset topology {key}"));
        }
        let inner = self.inner_sizes(layers, slice_size, slice_level)?;
        Ok(Params {
            count: workers.count,
            leaders: i32::from(with_leader),
            slice_size,
            level,
            slice_level,
            required: topology.is_some_and(|request| request.required.is_some()),
            unconstrained: workers.implied
                || topology
                    .is_some_and(|request| request.unconstrained == Some(true) || request.is_slice_only()),
            layers: if inner.is_empty() { Vec::new() } else { layers.to_vec() },
            inner,
        })
    }

    fn inner_sizes(
        &self,
        layers: &[SliceLayer],
        slice_size: i32,
        slice_level: usize,
    ) -> Result<BTreeMap<usize, i32>, String> {
        let (mut size, mut level) = (slice_size, slice_level);
        let mut inner = BTreeMap::new();
        for layer in layers.iter().skip(1) {
            let Some(at) = self.tree.level(&layer.level) else {
                return Err(format!(
                    "no requested topology level for additional slice layer: {}",
                    layer.level
                ));
            };
            if at <= level {
                let above = self.tree.levels.get(level).map_or("", |name| name);
                return Err(format!(
                    "additional slice layer topology {} must be at a lower level than {above}",
                    layer.level
                ));
            }
            if layer.size <= 0 || size % layer.size != 0 {
                return Err(format!(
                    "additional slice layer size {} must evenly divide parent layer size {size}",
                    layer.size
                ));
            }
            inner.extend((level + 1..=at).map(|level| (level, layer.size)));
            (size, level) = (layer.size, at);
        }
        Ok(inner)
    }

    /// The level requested: the one named, the highest for slices alone, the lowest if anywhere will do.
    pub(super) fn level_key<'r>(&'r self, request: &'r PlacementRequest<'_>) -> Option<&'r str> {
        let lowest = self.tree.levels.last().map(|level| &**level);
        let Some(topology) = request.pod_set.topology.as_deref() else {
            return lowest.filter(|_| request.implied);
        };
        if let Some(level) = topology.required.as_deref().or(topology.preferred.as_deref()) {
            Some(level)
        } else if topology.is_slice_only() {
            self.tree.levels.first().map(|level| &**level)
        } else if topology.unconstrained == Some(true) || request.implied {
            lowest
        } else {
            None
        }
    }
}
