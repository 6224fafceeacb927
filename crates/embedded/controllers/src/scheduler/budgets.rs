//! Disruption budgets, as far as preemption respects them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use quintet_api::selector::Selector;
use quintet_controller::ObjectKey;
use quintet_controller::cache::Entry;

use crate::pod::PodView;

/// All budgets.
#[derive(Clone, Debug, Default)]
pub(super) struct Budgets(pub(super) BTreeMap<ObjectKey, Arc<Entry<PodDisruptionBudget>>>);

impl Budgets {
    /// The pods whose disruption, in this order, would exceed a budget.
    pub(super) fn violated_by<'a>(
        &self,
        pods: impl Iterator<Item = &'a Arc<Entry<PodView>>>,
    ) -> BTreeSet<ObjectKey> {
        let budgets: Vec<_> = self
            .0
            .values()
            .filter_map(|budget| {
                let selector = budget.object.spec.as_ref()?.selector.as_ref()?;
                Some((budget, Selector::try_from(selector).ok()?))
            })
            .collect();
        let mut left: Vec<i32> = budgets
            .iter()
            .map(|(budget, _)| {
                budget
                    .object
                    .status
                    .as_ref()
                    .and_then(|status| status.disruptions_allowed)
                    .unwrap_or_default()
            })
            .collect();
        let mut violating = BTreeSet::new();
        for pod in pods {
            for ((budget, selector), left) in budgets.iter().zip(&mut left) {
                let is_protected = budget.key.namespace() == pod.key.namespace()
                    && selector.matches(&pod.object.metadata.labels);
                if is_protected {
                    *left -= 1;
                    if *left < 0 {
                        violating.insert(pod.key.clone());
                    }
                }
            }
        }
        violating
    }
}
