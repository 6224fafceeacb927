//! Where the pods of a pod set go: as a plain list of domains, and in the compact form of the API.

use super::v1beta2::{
    TopologyAssignment, TopologyAssignmentSlice, TopologyAssignmentSliceLevelIndividualValues,
    TopologyAssignmentSliceLevelValues, TopologyAssignmentSlicePodCounts,
};

/// The most domains one slice may hold.
const MAX_DOMAINS: usize = 100_000;

/// The value of each level's node label, from the highest level down, and how many pods are there.
pub type Domain = (Vec<String>, i32);

impl TopologyAssignment {
    /// The compact form of a list of domains.
    pub fn from_domains(levels: Vec<String>, domains: &[Domain]) -> Self {
        let slices = domains.chunks(MAX_DOMAINS).map(|chunk| slice(levels.len(), chunk)).collect();
        Self { levels, slices }
    }

    /// The domains, whatever slices they were cut into.
    pub fn domains(&self) -> Vec<Domain> {
        self.slices.iter().flat_map(slice_domains).collect()
    }
}

fn slice(levels: usize, domains: &[Domain]) -> TopologyAssignmentSlice {
    let counts: Vec<i32> = domains.iter().map(|(_, count)| *count).collect();
    let pod_counts = match uniform(&counts) {
        Some(count) => TopologyAssignmentSlicePodCounts { universal: Some(count), individual: None },
        None => TopologyAssignmentSlicePodCounts { universal: None, individual: Some(counts) },
    };
    TopologyAssignmentSlice {
        domain_count: i32::try_from(domains.len()).unwrap_or(i32::MAX),
        pod_counts,
        values_per_level: (0..levels)
            .map(|level| {
                let values: Vec<&str> =
                    domains.iter().map(|(values, _)| values.get(level).map_or("", String::as_str)).collect();
                level_values(&values)
            })
            .collect(),
    }
}

fn level_values(values: &[&str]) -> TopologyAssignmentSliceLevelValues {
    if let Some(value) = uniform(values) {
        return TopologyAssignmentSliceLevelValues { universal: Some(value.into()), individual: None };
    }
    let prefix = common_prefix(values);
    let rests: Vec<&str> = values.iter().map(|value| value.strip_prefix(prefix).unwrap_or(value)).collect();
    let suffix = common_suffix(&rests);
    let roots = rests.iter().map(|rest| rest.strip_suffix(suffix).unwrap_or(rest).to_owned()).collect();
    let non_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    TopologyAssignmentSliceLevelValues {
        universal: None,
        individual: Some(TopologyAssignmentSliceLevelIndividualValues {
            prefix: non_empty(prefix),
            roots,
            suffix: non_empty(suffix),
        }),
    }
}

fn slice_domains(slice: &TopologyAssignmentSlice) -> impl Iterator<Item = Domain> {
    let domains = usize::try_from(slice.domain_count).unwrap_or_default();
    (0..domains).map(|domain| {
        let values = slice.values_per_level.iter().map(|level| level_value(level, domain)).collect();
        let individual = slice.pod_counts.individual.as_ref().and_then(|counts| counts.get(domain)).copied();
        (values, slice.pod_counts.universal.or(individual).unwrap_or_default())
    })
}

fn level_value(level: &TopologyAssignmentSliceLevelValues, domain: usize) -> String {
    let Some(individual) = &level.individual else { return level.universal.clone().unwrap_or_default() };
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let root = individual.roots.get(domain).map_or("", String::as_str);
    format!("{}{root}{}", part(&individual.prefix), part(&individual.suffix))
}

/// The value all items share; nothing shares nothing.
fn uniform<T: PartialEq + Copy>(items: &[T]) -> Option<T> {
    let first = *items.first()?;
    items.iter().all(|item| *item == first).then_some(first)
}

fn common_prefix<'a>(values: &[&'a str]) -> &'a str {
    let Some((first, rest)) = values.split_first() else { return "" };
    let shared =
        |end: usize| rest.iter().all(|value| value.starts_with(first.get(..end).unwrap_or_default()));
    longest(first.char_indices().map(|(start, c)| start + c.len_utf8()), shared)
        .map_or("", |end| first.get(..end).unwrap_or_default())
}

fn common_suffix<'a>(values: &[&'a str]) -> &'a str {
    let Some((first, rest)) = values.split_first() else { return "" };
    let shared =
        |start: usize| rest.iter().all(|value| value.ends_with(first.get(start..).unwrap_or_default()));
    longest(first.char_indices().rev().map(|(start, _)| start), shared)
        .map_or("", |start| first.get(start..).unwrap_or_default())
}

/// The last of `ends` before the first that does not hold.
fn longest(ends: impl Iterator<Item = usize>, holds: impl Fn(usize) -> bool) -> Option<usize> {
    ends.take_while(|end| holds(*end)).last()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn domains(values: &[(&[&str], i32)]) -> Vec<Domain> {
        values
            .iter()
            .map(|(values, count)| (values.iter().map(ToString::to_string).collect(), *count))
            .collect()
    }

    #[test]
    fn what_all_domains_share_is_written_once() {
        let assignment = TopologyAssignment::from_domains(
            vec!["block".into(), "host".into()],
            &domains(&[(&["b1", "node-1.lan"], 2), (&["b1", "node-2.lan"], 2)]),
        );
        let json = serde_json::to_value(&assignment).unwrap();
        assert_eq!(
            json["slices"],
            serde_json::json!([{
                "domainCount": 2,
                "podCounts": { "universal": 2 },
                "valuesPerLevel": [
                    { "universal": "b1" },
                    { "individual": { "prefix": "node-", "roots": ["1", "2"], "suffix": ".lan" } },
                ],
            }])
        );
    }

    proptest! {
        #[test]
        fn compacting_loses_nothing(
            domains in prop::collection::vec((prop::collection::vec("[ab]{0,3}(é|-x)?", 2), 1_i32..3), 0..6)
        ) {
            let assignment = TopologyAssignment::from_domains(vec!["a".into(), "b".into()], &domains);
            prop_assert_eq!(assignment.domains(), domains);
        }
    }
}
