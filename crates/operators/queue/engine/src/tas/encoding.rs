//! The API's compact form of an assignment: slices of domains that share values, prefixes and counts.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DomainAssignment, HOSTNAME, TopologyAssignment};

/// Upstream limits: domains per slice, and slices per assignment.
const MAX_DOMAINS: usize = 100_000;
const MAX_SLICES: usize = 1_000;

/// `status.admission.podSetAssignments[].topologyAssignment`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedAssignment {
    /// The levels.
    pub levels: Vec<String>,
    /// The slices.
    #[serde(default)]
    pub slices: Vec<EncodedSlice>,
}

/// Domains encoded together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EncodedSlice {
    /// How many domains.
    pub domain_count: usize,
    /// Their values at every level.
    pub values_per_level: Vec<EncodedValues>,
    /// Their pods.
    pub pod_counts: EncodedCounts,
}

/// Values of one level: one for all, or one each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedValues {
    /// The value of all domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universal: Option<String>,
    /// The value of each domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub individual: Option<IndividualValues>,
}

/// Values with what they have in common taken out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndividualValues {
    /// Common beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Common end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// What is in between.
    pub roots: Vec<String>,
}

/// Pods per domain: the same for all, or one number each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedCounts {
    /// Pods of every domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universal: Option<i32>,
    /// Pods of each domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub individual: Option<Vec<i32>>,
}

/// Decodes any split into slices; `None` if a slice is larger than the API allows, or has fewer values or
/// counts than domains.
pub fn decode(encoded: &EncodedAssignment) -> Option<TopologyAssignment> {
    let is_whole = |slice: &EncodedSlice| {
        let covers = |own: Option<usize>| own.is_none_or(|length| length >= slice.domain_count);
        let roots = |values: &EncodedValues| match (&values.universal, &values.individual) {
            (None, Some(individual)) => Some(individual.roots.len()),
            _ => None,
        };
        let counts = &slice.pod_counts;
        let individual = counts.individual.as_ref().filter(|_| counts.universal.is_none());
        slice.domain_count <= MAX_DOMAINS
            && slice.values_per_level.iter().all(|values| covers(roots(values)))
            && covers(individual.map(Vec::len))
    };
    if encoded.slices.len() > MAX_SLICES || !encoded.slices.iter().all(is_whole) {
        return None;
    }
    let mut domains = Vec::new();
    for slice in &encoded.slices {
        for index in 0..slice.domain_count {
            let values = slice.values_per_level.iter().map(|values| value_at(values, index)).collect();
            let counts = &slice.pod_counts;
            let own = || counts.individual.as_ref().and_then(|counts| counts.get(index).copied());
            domains
                .push(DomainAssignment { values, count: counts.universal.or_else(own).unwrap_or_default() });
        }
    }
    let levels = encoded.levels.iter().map(|level| level.as_str().into()).collect();
    Some(TopologyAssignment { levels, domains })
}

fn value_at(values: &EncodedValues, index: usize) -> Arc<str> {
    if let Some(universal) = &values.universal {
        return universal.as_str().into();
    }
    let Some(individual) = &values.individual else {
        return "".into();
    };
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let root = individual.roots.get(index).map_or("", String::as_str);
    format!("{}{root}{}", part(&individual.prefix), part(&individual.suffix)).into()
}

/// Encodes as small as upstream does: runs of hosts with a common prefix, unless one slice for all is
/// smaller as JSON.
pub fn encode(assignment: &TopologyAssignment, by_prefix: bool) -> EncodedAssignment {
    if !by_prefix {
        return encode_single(assignment);
    }
    let runs = encode_prefix_runs(assignment);
    if runs.slices.len() <= 1 || assignment.domains.len() > MAX_DOMAINS {
        return runs;
    }
    let single = encode_single(assignment);
    let size =
        |encoded: &EncodedAssignment| serde_json::to_string(encoded).map_or(usize::MAX, |json| json.len());
    if size(&single) < size(&runs) { single } else { runs }
}

fn level_names(assignment: &TopologyAssignment) -> Vec<String> {
    assignment.levels.iter().map(std::string::ToString::to_string).collect()
}

/// One slice for all domains.
pub fn encode_single(assignment: &TopologyAssignment) -> EncodedAssignment {
    let levels = level_names(assignment);
    let slices = match assignment.domains.as_slice() {
        [] => Vec::new(),
        domains => vec![encode_slice(levels.len(), domains)],
    };
    EncodedAssignment { levels, slices }
}

/// One slice per run of hosts with the same prefix.
pub fn encode_prefix_runs(assignment: &TopologyAssignment) -> EncodedAssignment {
    let levels = level_names(assignment);
    let by_host = levels.last().is_some_and(|level| level == HOSTNAME);
    let keys = if by_host && assignment.domains.len() > 1 {
        reusable_prefixes(levels.len() - 1, &assignment.domains)
    } else {
        None
    };
    let slices = runs(&assignment.domains, keys.as_deref())
        .into_iter()
        .flat_map(|run| run.chunks(MAX_DOMAINS))
        .map(|chunk| encode_slice(levels.len(), chunk))
        .collect();
    EncodedAssignment { levels, slices }
}

/// Consecutive domains with the same key; all of them if there are no keys.
pub fn runs<'d>(domains: &'d [DomainAssignment], keys: Option<&[&str]>) -> Vec<&'d [DomainAssignment]> {
    let Some(keys) = keys.filter(|keys| !keys.is_empty()) else {
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

/// For every host the longest prefix ending in `-` that another host has too, backing off to shorter
/// ones until there are few enough slices.
pub fn reusable_prefixes(level: usize, domains: &[DomainAssignment]) -> Option<Vec<&str>> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut prefixes: Vec<Vec<&str>> = Vec::with_capacity(domains.len());
    for domain in domains {
        let host = domain.values.get(level).map_or("", |value| value);
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
    let deepest = prefixes.iter().map(Vec::len).max().unwrap_or(0);
    for depth in (1..=deepest).rev() {
        let keys: Vec<&str> = prefixes
            .iter()
            .map(|own| {
                let usable = own.iter().take(depth).rev();
                usable
                    .copied()
                    .find(|prefix| counts.get(prefix).is_some_and(|count| *count >= 2))
                    .unwrap_or("")
            })
            .collect();
        let slices: usize =
            runs(domains, Some(&keys)).iter().map(|run| run.len().div_ceil(MAX_DOMAINS)).sum();
        if slices <= MAX_SLICES {
            return Some(keys);
        }
    }
    None
}

fn encode_slice(levels: usize, domains: &[DomainAssignment]) -> EncodedSlice {
    let values_per_level = (0..levels)
        .map(|level| {
            let values: Vec<&str> =
                domains.iter().map(|domain| domain.values.get(level).map_or("", |value| value)).collect();
            encode_values(&values)
        })
        .collect();
    let counts: Vec<i32> = domains.iter().map(|domain| domain.count).collect();
    let first = counts.first().copied().unwrap_or_default();
    let pod_counts = if counts.iter().all(|count| *count == first) {
        EncodedCounts { universal: Some(first), individual: None }
    } else {
        EncodedCounts { universal: None, individual: Some(counts) }
    };
    EncodedSlice { domain_count: domains.len(), values_per_level, pod_counts }
}

fn encode_values(values: &[&str]) -> EncodedValues {
    let first = values.first().copied().unwrap_or("");
    if values.iter().all(|value| *value == first) {
        return EncodedValues { universal: Some(first.to_owned()), individual: None };
    }
    let common = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let common_end =
        |a: &str, b: &str| a.bytes().rev().zip(b.bytes().rev()).take_while(|(x, y)| x == y).count();
    let shortest = values.iter().map(|value| value.len()).min().unwrap_or(0);
    let suffix = values.iter().map(|value| common_end(first, value)).min().unwrap_or(0);
    let prefix = values
        .iter()
        .map(|value| common(first, value))
        .min()
        .unwrap_or(0)
        .min(shortest - suffix.min(shortest));
    let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(ToOwned::to_owned);
    let roots = values.iter().map(|value| value.get(prefix..value.len() - suffix).unwrap_or("").to_owned());
    EncodedValues {
        universal: None,
        individual: Some(IndividualValues {
            roots: roots.collect(),
            prefix: text(first.get(..prefix)),
            suffix: text(first.get(first.len() - suffix..)),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{EncodedAssignment, decode};

    fn decoded(domains: usize, values: &str, counts: &str) -> Option<usize> {
        let json = format!(
            r#"{{"levels":["host"],"slices":[{{"domainCount":{domains},"valuesPerLevel":[{values}],"podCounts":{counts}}}]}}"#
        );
        let encoded: EncodedAssignment = serde_json::from_str(&json).ok()?;
        decode(&encoded).map(|assignment| assignment.domains.len())
    }

    #[test]
    fn slices_that_claim_more_than_they_have_are_refused() {
        let (host, one) = (r#"{"universal":"h"}"#, r#"{"universal":1}"#);
        let (two_hosts, two_counts) =
            (r#"{"individual":{"prefix":"h","roots":["1","2"]}}"#, r#"{"individual":[1,2]}"#);
        assert_eq!(decoded(2, two_hosts, two_counts), Some(2));
        assert_eq!(decoded(3, two_hosts, one), None);
        assert_eq!(decoded(3, host, two_counts), None);
        assert_eq!(decoded(100_000, host, one), Some(100_000));
        assert_eq!(decoded(100_001, host, one), None);
        assert_eq!(decoded(usize::MAX, host, one), None);
    }
}
