//! Why there is no placement, in the words clients know.

use std::fmt::Write;

use super::counting::Counting;
use super::params::Params;
use super::placement::Placer;
use super::tree::DomainIdx;

/// Why no domains were found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Miss {
    NoDomains(usize),
    Slices { fitting: i32, needed: i32, level: usize },
}

impl Placer<'_> {
    pub(super) fn message(&self, miss: &Miss, params: &Params, counting: &Counting<'_>) -> String {
        if !self.options.explain {
            return "no placement".to_owned();
        }
        let topology = &self.flavor.topology_name;
        let (fitting, needed, level) = match *miss {
            Miss::NoDomains(level) => {
                let level = self.tree.levels.get(level).map_or("", |level| level);
                return format!("no topology domains at level: {level}");
            }
            Miss::Slices { fitting, needed, level } => (fitting, needed, level),
        };
        let unit = if params.slice_size == 1 { "pod" } else { "slice" };
        let mut message = if !params.layers.is_empty() {
            self.layered_message(params, level)
        } else if fitting == 0 {
            format!("topology \"{topology}\" doesn't allow to fit any of {needed} {unit}(s)")
        } else {
            format!("topology \"{topology}\" allows to fit only {fitting} out of {needed} {unit}(s)")
        };
        counting.exclusions(self).append_to(&mut message);
        message
    }

    fn layered_message(&self, params: &Params, level: usize) -> String {
        let mut message = format!("topology \"{}\" doesn't allow to fit", self.flavor.topology_name);
        let domains = self.tree.by_level.get(level).map_or(&[][..], |domains| domains);
        let best = domains.iter().copied().min_by(|a, b| {
            let slices = |domain: DomainIdx| self.state(domain).slices;
            let id = |domain: DomainIdx| &self.tree.domain(domain).id;
            slices(*b).cmp(&slices(*a)).then_with(|| id(*a).cmp(id(*b)))
        });
        let Some(best) = best else {
            return message;
        };
        for layer in &params.layers {
            let Some(target) = self.tree.level(&layer.level) else {
                continue;
            };
            let fitting = self.slices_below(best, level, target, layer.size);
            let needed = params.count / layer.size;
            let _ = write!(message, "; {fitting}/{needed} slice(s) fit on level {}", layer.level);
        }
        message
    }

    fn slices_below(&self, domain: DomainIdx, level: usize, target: usize, size: i32) -> i32 {
        if level == target {
            return self.state(domain).pods / size;
        }
        self.tree
            .domain(domain)
            .children
            .iter()
            .map(|child| self.slices_below(*child, level + 1, target, size))
            .sum()
    }
}
