//! Arithmetic of rollouts: how many replicas each ReplicaSet has. Pure numbers, without objects.

use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How many replicas a Deployment asks for, and how far a rollout may deviate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::deployment) struct Bounds {
    pub(in crate::deployment) replicas: i32,
    pub(in crate::deployment) surge: i32,
    pub(in crate::deployment) unavailable: i32,
    pub(in crate::deployment) is_recreate: bool,
}

impl Bounds {
    pub(in crate::deployment) fn of(spec: &DeploymentSpec) -> Self {
        let replicas = spec.replicas.unwrap_or(1);
        let strategy = spec.strategy.as_ref();
        if strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("Recreate")) {
            return Self { replicas, surge: 0, unavailable: 0, is_recreate: true };
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let quarter = IntOrString::String("25%".to_owned());
        let field = |field: Option<&IntOrString>| field.unwrap_or(&quarter).clone();
        let surge = scaled(&field(rolling.and_then(|rolling| rolling.max_surge.as_ref())), replicas, true);
        let unavailable = field(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()));
        Self::rolling(replicas, surge, scaled(&unavailable, replicas, false))
    }

    /// At least one of the two is positive: otherwise a rollout could never begin.
    fn rolling(replicas: i32, surge: i32, unavailable: i32) -> Self {
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Self { replicas, surge, unavailable: unavailable.min(replicas), is_recreate: false }
    }

    pub(in crate::deployment) fn max_total(&self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }

    pub(in crate::deployment) fn min_available(&self) -> i32 {
        self.replicas - self.unavailable
    }

    /// The replicas of the new ReplicaSet, given those it has and those of all.
    pub(super) fn of_new(&self, new: i32, total: i32) -> i32 {
        if self.is_recreate {
            return self.replicas;
        }
        if new >= self.replicas {
            return self.replicas;
        }
        let room = self.max_total() - total;
        if room <= 0 { new } else { new + room.min(self.replicas - new) }
    }
}

/// A number or a percentage of a total.
pub(crate) fn scaled(value: &IntOrString, total: i32, rounds_up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            let product = percent * i64::from(total);
            let rounded = if rounds_up { (product + 99).div_euclid(100) } else { product.div_euclid(100) };
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}

/// The replicas of a ReplicaSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) spec: i32,
    pub(super) available: i32,
    /// The most replicas that the Deployment allowed when this one was scaled last.
    pub(super) max_before: Option<i32>,
    /// In the order of age.
    pub(super) age: usize,
}

/// How far the old ReplicaSets are scaled down; they are in the order of age. Returns their new replicas.
pub(super) fn old_in_rollout(bounds: Bounds, new: &Part, old: &[Part]) -> Vec<i32> {
    let mut sizes: Vec<_> = old.iter().map(|part| part.spec).collect();
    let total = sizes.iter().sum::<i32>() + new.spec;
    let mut left = total - bounds.min_available() - (new.spec - new.available);
    if left <= 0 {
        return sizes;
    }
    // Replicas that are not available do no harm by going.
    for (size, part) in sizes.iter_mut().zip(old) {
        let removed = (*size - part.available).clamp(0, left);
        *size -= removed;
        left -= removed;
    }
    let available = old.iter().map(|part| part.available).sum::<i32>() + new.available;
    let mut left = available - bounds.min_available();
    for size in &mut sizes {
        let removed = (*size).min(left).max(0);
        *size -= removed;
        left -= removed;
    }
    sizes
}

/// Distributes a change of the Deployment's replicas over active ReplicaSets in proportion to their size. Returns names and
/// new replicas.
pub(super) fn proportional(bounds: Bounds, parts: &[Part], status_replicas: i32) -> Vec<(String, i32)> {
    let allowed = if bounds.replicas > 0 { bounds.max_total() } else { 0 };
    let to_add = allowed - parts.iter().map(|part| part.spec).sum::<i32>();
    let mut sorted: Vec<_> = parts.iter().collect();
    // The largest first. Of equal ones the newer grows and the older shrinks.
    sorted.sort_by_key(|part| {
        let age = i64::try_from(part.age).unwrap_or_default();
        (-part.spec, if to_add > 0 { -age } else { age })
    });
    let mut added = 0;
    let mut sizes: Vec<_> = sorted
        .iter()
        .map(|part| {
            let share = if to_add == 0 { 0 } else { share(bounds, part, status_replicas, to_add, added) };
            added += share;
            (part.name.clone(), part.spec + share)
        })
        .collect();
    if let Some((_, size)) = sizes.first_mut() {
        *size = (*size + to_add - added).max(0);
    }
    sizes
}

/// What a ReplicaSet gets of `to_add` replicas, `added` of which are given out.
fn share(bounds: Bounds, part: &Part, status_replicas: i32, to_add: i32, added: i32) -> i32 {
    if part.spec == 0 || to_add == added {
        return 0;
    }
    let fraction = if bounds.replicas == 0 {
        -part.spec
    } else {
        let before = part.max_before.unwrap_or(status_replicas).max(1);
        // Rounded half away from zero; all numbers are positive.
        let twice = 2 * i64::from(part.spec) * i64::from(bounds.max_total()) + i64::from(before);
        i32::try_from(twice / (2 * i64::from(before))).unwrap_or(i32::MAX) - part.spec
    };
    let left = to_add - added;
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, spec: i32, available: i32, age: usize) -> Part {
        Part { name: name.to_owned(), spec, available, max_before: None, age }
    }

    fn percent(text: &str) -> IntOrString {
        IntOrString::String(text.to_owned())
    }

    #[test]
    fn surge_rounds_up_and_unavailable_down() {
        // Surge, unavailable, replicas, expected.
        let cases = [
            (percent("39%"), percent("39%"), 10, (4, 3)),
            (percent("0%"), percent("0%"), 10, (0, 1)),
            (IntOrString::Int(2), IntOrString::Int(20), 10, (2, 10)),
            (percent("25%"), percent("25%"), 1, (1, 0)),
        ];
        for (surge, unavailable, replicas, expected) in cases {
            let bounds = Bounds::rolling(
                replicas,
                scaled(&surge, replicas, true),
                scaled(&unavailable, replicas, false),
            );
            assert_eq!((bounds.surge, bounds.unavailable), expected);
        }
    }

    #[test]
    fn the_new_replica_set_grows_into_the_room_that_the_surge_leaves() {
        // Replicas, surge, new, total, expected.
        for (replicas, surge, new, total, expected) in
            [(10, 2, 0, 5, 7), (10, 2, 0, 12, 0), (10, 0, 5, 10, 5), (10, 5, 9, 11, 10), (3, 1, 5, 5, 3)]
        {
            assert_eq!(Bounds::rolling(replicas, surge, 1).of_new(new, total), expected);
        }
    }

    #[test]
    fn old_replica_sets_shrink_as_the_new_one_becomes_available() {
        // New replicas, available of them, (old replicas, available of them), expected.
        type Case = (i32, i32, &'static [(i32, i32)], &'static [i32]);
        let bounds = Bounds::rolling(10, 2, 2);
        let cases: [Case; 5] = [
            (2, 0, &[(10, 10)], &[8]),
            (4, 4, &[(8, 8)], &[4]),
            (10, 10, &[(0, 0)], &[0]),
            (4, 0, &[(8, 8)], &[8]),
            // Unavailable ones go first, whatever their age.
            (4, 4, &[(4, 4), (4, 0)], &[4, 0]),
        ];
        for (new, available, old, expected) in cases {
            let old: Vec<_> = old.iter().map(|(spec, available)| part("old", *spec, *available, 0)).collect();
            let sizes = old_in_rollout(bounds, &part("new", new, available, 9), &old);
            assert_eq!(sizes, expected, "{new} {available} {old:?}");
        }
    }

    #[test]
    fn scaling_in_a_rollout_is_proportional() {
        let old = |spec, before| Part { max_before: Some(before), ..part("old", spec, spec, 0) };
        let new = |spec, before| Part { max_before: Some(before), ..part("new", spec, spec, 1) };
        let sizes = |replicas, surge, parts: &[Part]| {
            let mut sizes = proportional(Bounds::rolling(replicas, surge, 1), parts, 0);
            sizes.sort();
            sizes.into_iter().map(|(_, size)| size).collect::<Vec<_>>()
        };
        assert_eq!(sizes(20, 0, &[old(5, 10), new(5, 10)]), [10, 10]);
        assert_eq!(sizes(12, 0, &[old(5, 10), new(5, 10)]), [6, 6]);
        // The leftover goes to the newer of two equal ones.
        assert_eq!(sizes(11, 0, &[old(5, 10), new(5, 10)]), [6, 5]);
        assert_eq!(sizes(0, 0, &[old(5, 10), new(5, 10)]), [0, 0]);
        assert_eq!(sizes(5, 0, &[old(8, 10), new(2, 10)]), [1, 4]);
    }
}
