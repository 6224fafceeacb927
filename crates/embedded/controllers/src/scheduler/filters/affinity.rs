//! Affinity and anti-affinity between pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodAffinityTerm, WeightedPodAffinityTerm};
use quintet_api::selector::Selector;
use quintet_controller::cache::Entry;

use super::super::state::{State, View};
use super::{Obstacle, Prepared};
use crate::node::NodeView;
use crate::pod::PodView;

/// The required terms of a pod.
#[derive(Default)]
pub(in crate::scheduler) struct Terms {
    affinity: Vec<Term>,
    anti_affinity: Vec<Term>,
    /// Whether any placed pod matches all affinity terms: otherwise a pod that matches its own terms is the first.
    has_match: bool,
    matches_itself: bool,
}

/// A term of one pod, ready to be matched with others.
pub(in crate::scheduler) struct Term {
    selector: Option<Selector>,
    namespaces: Namespaces,
    pub(in crate::scheduler) key: String,
}

enum Namespaces {
    All,
    Listed(Vec<String>),
}

impl Term {
    fn new(term: &PodAffinityTerm, pod: &Entry<PodView>, state: &State) -> Self {
        let mut labels = term.label_selector.clone();
        if let Some(labels) = &mut labels {
            for key in term.match_label_keys.iter().flatten() {
                if let Some(value) = pod.object.metadata.labels.get(key) {
                    labels.match_labels.get_or_insert_default().insert(key.clone(), value.clone());
                }
            }
        }
        let selector = labels.as_ref().and_then(|labels| Selector::try_from(labels).ok());
        Self { selector, namespaces: namespaces(term, pod, state), key: term.topology_key.clone() }
    }

    /// Whether a pod is one that the term is about. A term without a selector is about none.
    pub(in crate::scheduler) fn matches(&self, pod: &Entry<PodView>) -> bool {
        let namespace = pod.key.namespace().unwrap_or_default();
        let is_in = match &self.namespaces {
            Namespaces::All => true,
            Namespaces::Listed(all) => all.iter().any(|one| one == namespace),
        };
        is_in && self.selector.as_ref().is_some_and(|selector| selector.matches(&pod.object.metadata.labels))
    }
}

fn namespaces(term: &PodAffinityTerm, pod: &Entry<PodView>, state: &State) -> Namespaces {
    let mut listed = term.namespaces.clone().unwrap_or_default();
    match term.namespace_selector.as_ref().map(Selector::try_from) {
        Some(Ok(selector)) if selector.selects_all() => return Namespaces::All,
        Some(Ok(selector)) => listed.extend(state.namespaces.iter().filter_map(|(name, namespace)| {
            let labels = namespace.object.labels.iter();
            let labels: BTreeMap<_, _> =
                labels.map(|(key, value)| (key.to_string(), value.to_string())).collect();
            selector.matches(&labels).then(|| name.clone())
        })),
        None if listed.is_empty() => listed.extend(pod.key.namespace().map(str::to_owned)),
        Some(Err(_)) | None => {}
    }
    Namespaces::Listed(listed)
}

fn required_terms(pod: &Entry<PodView>, state: &State) -> (Vec<Term>, Vec<Term>) {
    let Some(affinity) = &pod.object.spec.affinity else { return (Vec::new(), Vec::new()) };
    let terms = |terms: Option<&Vec<PodAffinityTerm>>| {
        terms.into_iter().flatten().map(|term| Term::new(term, pod, state)).collect()
    };
    let with = affinity.pod_affinity.as_ref();
    let against = affinity.pod_anti_affinity.as_ref();
    (
        terms(with.and_then(|with| with.required_during_scheduling_ignored_during_execution.as_ref())),
        terms(
            against.and_then(|against| against.required_during_scheduling_ignored_during_execution.as_ref()),
        ),
    )
}

/// The preferred terms of a pod with their weights; negative for anti-affinity.
pub(in crate::scheduler) fn preferred_terms(pod: &Entry<PodView>, state: &State) -> Vec<(i64, Term)> {
    let Some(affinity) = &pod.object.spec.affinity else { return Vec::new() };
    let terms = |terms: Option<&Vec<WeightedPodAffinityTerm>>, sign: i64| -> Vec<_> {
        let term = |one: &WeightedPodAffinityTerm| {
            (sign * i64::from(one.weight), Term::new(&one.pod_affinity_term, pod, state))
        };
        terms.into_iter().flatten().map(term).collect()
    };
    let with = affinity.pod_affinity.as_ref();
    let against = affinity.pod_anti_affinity.as_ref();
    let mut all =
        terms(with.and_then(|with| with.preferred_during_scheduling_ignored_during_execution.as_ref()), 1);
    all.extend(terms(
        against.and_then(|against| against.preferred_during_scheduling_ignored_during_execution.as_ref()),
        -1,
    ));
    all
}

pub(super) fn required(pod: &Entry<PodView>, view: View<'_>) -> Terms {
    let (affinity, anti_affinity) = required_terms(pod, view.state);
    let matches_all = |pod: &Entry<PodView>| affinity.iter().all(|term| term.matches(pod));
    let has_match = !affinity.is_empty() && view.pods().any(|(_, placed)| matches_all(&placed.pod));
    let matches_itself = matches_all(pod);
    Terms { affinity, anti_affinity, has_match, matches_itself }
}

pub(super) fn filter(prepared: &Prepared<'_>, view: View<'_>, node: &NodeView) -> Option<Obstacle> {
    let Terms { affinity, anti_affinity, has_match, matches_itself } = &prepared.terms;
    let labels = &node.metadata.labels;
    if !affinity.is_empty() {
        let has_keys = affinity.iter().all(|term| labels.contains_key(&term.key));
        let is_first = !has_match && *matches_itself;
        let is_near = |term: &Term| {
            let near = view.pods().filter(|(other, _)| shares_domain(other, node, &term.key));
            near.into_iter().any(|(_, placed)| affinity.iter().all(|term| term.matches(&placed.pod)))
        };
        if !has_keys || !(is_first || affinity.iter().all(is_near)) {
            return Some(Obstacle::unresolvable("node(s) didn't match pod affinity rules"));
        }
    }
    let is_too_near = |term: &Term| {
        let mut near = view.pods().filter(|(other, _)| shares_domain(other, node, &term.key));
        near.any(|(_, placed)| term.matches(&placed.pod))
    };
    if anti_affinity.iter().any(is_too_near) {
        return Some(Obstacle::new("node(s) didn't match pod anti-affinity rules"));
    }
    let repels = view.pods().any(|(other, placed)| {
        let (_, against) = required_terms(&placed.pod, view.state);
        against.iter().any(|term| shares_domain(other, node, &term.key) && term.matches(prepared.pod))
    });
    repels.then(|| Obstacle::new("node(s) didn't satisfy existing pods anti-affinity rules"))
}

/// Whether two nodes are in the same domain.
pub(in crate::scheduler) fn shares_domain(a: &NodeView, b: &NodeView, key: &str) -> bool {
    let domain = |node: &'_ NodeView| node.metadata.labels.get(key).cloned();
    domain(a).is_some_and(|domain_of_a| domain(b).as_ref() == Some(&domain_of_a))
}
