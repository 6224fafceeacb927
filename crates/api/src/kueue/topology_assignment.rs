//! Where the pods of a pod set go: as a plain list of domains, and in the compact form of the API, whose
//! slices are domains that share values, prefixes and counts.

use std::collections::HashMap;

use super::v1beta2::{
    TopologyAssignment, TopologyAssignmentSlice, TopologyAssignmentSliceLevelIndividualValues,
    TopologyAssignmentSliceLevelValues, TopologyAssignmentSlicePodCounts,
};

/// The most domains one slice may hold, and the most slices an assignment.
const MAX_DOMAINS: usize = 100_000;
const MAX_SLICES: usize = 1_000;
/// More domains than any cluster has nodes.
const DOMAINS_AT_MOST: i64 = 1_000_000;

/// The level whose domains are single nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The value of each level's node label, from the highest level down, and how many pods are there.
pub type Domain<V = String> = (Vec<V>, i32);

impl TopologyAssignment {
    /// The compact form of a list of domains: runs of hosts whose names begin alike, unless one slice for
    /// all of them takes less space.
    pub fn from_domains<V: AsRef<str>>(levels: Vec<String>, domains: &[Domain<V>]) -> Self {
        let runs = Self::in_runs(levels, domains);
        if runs.slices.len() <= 1 || domains.len() > MAX_DOMAINS {
            return runs;
        }
        let single = Self::in_fewest_slices(runs.levels.clone(), domains);
        let size = |own: &Self| serde_json::to_string(own).map_or(usize::MAX, |json| json.len());
        if size(&single) < size(&runs) { single } else { runs }
    }

    /// The compact form with one slice for all domains, or as few as may hold them.
    pub fn in_fewest_slices<V: AsRef<str>>(levels: Vec<String>, domains: &[Domain<V>]) -> Self {
        let slices = domains.chunks(MAX_DOMAINS).map(|chunk| slice(levels.len(), chunk)).collect();
        Self { levels, slices }
    }

    /// The compact form with one slice per run of hosts whose names begin alike.
    pub fn in_runs<V: AsRef<str>>(levels: Vec<String>, domains: &[Domain<V>]) -> Self {
        let by_host = levels.last().is_some_and(|level| level == HOSTNAME);
        let keys = (by_host && domains.len() > 1).then(|| reusable_prefixes(domains)).flatten();
        let slices = runs(domains, keys.as_deref())
            .into_iter()
            .flat_map(|run| run.chunks(MAX_DOMAINS))
            .map(|chunk| slice(levels.len(), chunk))
            .collect();
        Self { levels, slices }
    }

    /// The domains, whatever slices they were cut into; `None` if there are more slices, or more domains in
    /// one, than the API allows, or fewer values or counts than domains, or more domains than there are nodes in any
    /// cluster: a short text can claim a great many.
    pub fn domains(&self) -> Option<Vec<Domain>> {
        let count: i64 = self.slices.iter().map(|slice| i64::from(slice.domain_count)).sum();
        let is_whole =
            self.slices.len() <= MAX_SLICES && count <= DOMAINS_AT_MOST && self.slices.iter().all(is_whole);
        is_whole.then(|| self.slices.iter().flat_map(slice_domains).collect())
    }
}

/// Consecutive domains with the same key; all of them if there are no keys.
fn runs<'d, V>(domains: &'d [Domain<V>], keys: Option<&[&str]>) -> Vec<&'d [Domain<V>]> {
    let Some(keys) = keys else {
        return if domains.is_empty() { Vec::new() } else { vec![domains] };
    };
    let mut runs = Vec::new();
    let mut start = 0;
    for (index, key) in keys.iter().enumerate().take(domains.len()) {
        if keys.get(start) != Some(key) {
            runs.extend(domains.get(start..index));
            start = index;
        }
    }
    runs.extend(domains.get(start..).filter(|run| !run.is_empty()));
    runs
}

/// For every host the longest start ending in `-` that another host has too, backing off to shorter ones
/// until there are few enough slices.
fn reusable_prefixes<V: AsRef<str>>(domains: &[Domain<V>]) -> Option<Vec<&str>> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut prefixes: Vec<Vec<&str>> = Vec::with_capacity(domains.len());
    for (values, _) in domains {
        let host = values.last().map_or("", AsRef::as_ref);
        let own: Vec<&str> = host
            .char_indices()
            .filter(|(at, c)| *c == '-' && at + 1 < host.len())
            .filter_map(|(at, _)| host.get(..=at))
            .collect();
        for prefix in &own {
            *counts.entry(prefix).or_default() += 1;
        }
        prefixes.push(own);
    }
    let is_shared = |prefix: &&str| counts.get(prefix).is_some_and(|count| *count >= 2);
    let deepest = prefixes.iter().map(Vec::len).max().unwrap_or(0);
    (1..=deepest).rev().find_map(|depth| {
        let keys: Vec<&str> = prefixes
            .iter()
            .map(|own| own.iter().take(depth).rev().copied().find(is_shared).unwrap_or(""))
            .collect();
        let slices: usize =
            runs(domains, Some(&keys)).iter().map(|run| run.len().div_ceil(MAX_DOMAINS)).sum();
        (slices <= MAX_SLICES).then_some(keys)
    })
}

fn slice<V: AsRef<str>>(levels: usize, domains: &[Domain<V>]) -> TopologyAssignmentSlice {
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
                    domains.iter().map(|(values, _)| values.get(level).map_or("", AsRef::as_ref)).collect();
                level_values(&values)
            })
            .collect(),
    }
}

/// Values with what all have in common taken out. The end goes first: where start and end overlap in the
/// shortest value, the start gives way.
fn level_values(values: &[&str]) -> TopologyAssignmentSliceLevelValues {
    if let Some(value) = uniform(values) {
        return TopologyAssignmentSliceLevelValues { universal: Some(value.into()), individual: None };
    }
    let suffix = common_suffix(values);
    let rests: Vec<&str> = values.iter().map(|value| value.strip_suffix(suffix).unwrap_or(value)).collect();
    let prefix = common_prefix(&rests);
    let roots = rests.iter().map(|rest| rest.strip_prefix(prefix).unwrap_or(rest).to_owned()).collect();
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

fn is_whole(slice: &TopologyAssignmentSlice) -> bool {
    let Ok(domains) = usize::try_from(slice.domain_count) else { return false };
    let covers = |own: Option<usize>| own.is_none_or(|length| length >= domains);
    let roots = |values: &TopologyAssignmentSliceLevelValues| match (&values.universal, &values.individual) {
        (None, Some(individual)) => Some(individual.roots.len()),
        _ => None,
    };
    let counts = &slice.pod_counts;
    let individual = counts.individual.as_ref().filter(|_| counts.universal.is_none());
    domains <= MAX_DOMAINS
        && slice.values_per_level.iter().all(|values| covers(roots(values)))
        && covers(individual.map(Vec::len))
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
    if let Some(value) = &level.universal {
        return value.clone();
    }
    let Some(individual) = &level.individual else { return String::new() };
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

    #[test]
    fn hosts_whose_names_begin_alike_share_a_slice() {
        let hosts: Vec<String> = ["left", "right"]
            .iter()
            .flat_map(|side| (0..30).map(move |number| format!("cluster-one-{side}-{number:02}")))
            .collect();
        let domains: Vec<Domain<&str>> = hosts.iter().map(|host| (vec![host.as_str()], 1)).collect();
        let assignment = TopologyAssignment::from_domains(vec![HOSTNAME.into()], &domains);
        let starts: Vec<_> = assignment
            .slices
            .iter()
            .map(|slice| slice.values_per_level[0].individual.as_ref().unwrap().prefix.clone().unwrap())
            .collect();
        assert_eq!(starts, ["cluster-one-left-", "cluster-one-right-"]);
    }

    #[test]
    fn no_slice_holds_more_than_it_may() {
        let hosts: Vec<Domain> = (0..=MAX_DOMAINS).map(|number| (vec![number.to_string()], 1)).collect();
        let assignment = TopologyAssignment::in_fewest_slices(vec![HOSTNAME.into()], &hosts);
        assert_eq!(assignment.slices.len(), 2);
        assert_eq!(assignment.domains(), Some(hosts));
    }

    #[test]
    fn an_assignment_without_slices_has_no_domains() {
        let read: TopologyAssignment = serde_json::from_str(r#"{"levels":["block","host"]}"#).unwrap();
        assert_eq!(read.domains(), Some(Vec::new()));
        let none: &[Domain] = &[];
        assert_eq!(read, TopologyAssignment::from_domains(read.levels.clone(), none));
    }

    #[test]
    fn slices_that_claim_more_than_they_have_are_refused() {
        let decoded = |domains: i64, values: &str, counts: &str| {
            let json = format!(
                r#"{{"levels":["host"],"slices":[{{"domainCount":{domains},"valuesPerLevel":[{values}],"podCounts":{counts}}}]}}"#
            );
            let assignment: TopologyAssignment = serde_json::from_str(&json).unwrap();
            assignment.domains().map(|domains| domains.len())
        };
        let (host, one) = (r#"{"universal":"h"}"#, r#"{"universal":1}"#);
        let (two_hosts, two_counts) =
            (r#"{"individual":{"prefix":"h","roots":["1","2"]}}"#, r#"{"individual":[1,2]}"#);
        assert_eq!(decoded(2, two_hosts, two_counts), Some(2));
        assert_eq!(decoded(3, two_hosts, one), None);
        assert_eq!(decoded(3, host, two_counts), None);
        assert_eq!(decoded(100_000, host, one), Some(100_000));
        assert_eq!(decoded(100_001, host, one), None);
        assert_eq!(decoded(i64::from(i32::MAX), host, one), None);
        assert_eq!(decoded(-1, host, one), None);
        let slice =
            r#"{"domainCount":100000,"valuesPerLevel":[{"universal":"h"}],"podCounts":{"universal":1}}"#;
        let many = format!(r#"{{"levels":["host"],"slices":[{}]}}"#, [slice; 11].join(","));
        let assignment: TopologyAssignment = serde_json::from_str(&many).unwrap();
        assert_eq!(assignment.domains(), None, "together they are too many");
    }

    proptest! {
        #[test]
        fn compacting_loses_nothing(
            domains in prop::collection::vec((prop::collection::vec("[ab]{0,3}(é|-x)?", 2), 1_i32..3), 0..6)
        ) {
            let assignment = TopologyAssignment::from_domains(vec!["a".into(), "b".into()], &domains);
            prop_assert_eq!(assignment.domains(), Some(domains.clone()));
            let runs = TopologyAssignment::in_runs(vec!["a".into(), HOSTNAME.into()], &domains);
            prop_assert_eq!(runs.domains(), Some(domains));
        }
    }
}
