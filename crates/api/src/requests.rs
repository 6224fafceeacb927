//! The resources that a pod needs, as the scheduler and quotas count them.

use std::collections::BTreeMap;

use crate::Quantity;

/// Amounts by the name of their resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// The requests of a pod and its containers.
#[derive(Clone, Debug, Default)]
pub struct PodRequests<'a> {
    /// Of regular containers.
    pub containers: Vec<&'a Amounts>,
    /// Of init containers in their order, and whether each is a sidecar (`restartPolicy: Always`).
    pub init_containers: Vec<(&'a Amounts, bool)>,
    /// Of the pod as a whole; they replace those of its containers.
    pub pod: Option<&'a Amounts>,
    /// What its runtime needs on top.
    pub overhead: Option<&'a Amounts>,
}

impl PodRequests<'_> {
    /// The larger of what runs together and what any init container needs beside the sidecars before it, with requests
    /// of the whole pod before those of its containers.
    pub fn effective(&self) -> Amounts {
        let (mut total, mut sidecars, mut peak) = (Amounts::new(), Amounts::new(), Amounts::new());
        add(&mut total, self.containers.iter().copied());
        for (requests, is_sidecar) in &self.init_containers {
            let mut together = sidecars.clone();
            add(&mut together, [*requests]);
            if *is_sidecar {
                sidecars.clone_from(&together);
            }
            raise(&mut peak, &together);
        }
        add(&mut total, [&sidecars]);
        raise(&mut total, &peak);
        total.extend(self.pod.into_iter().flatten().map(|(name, amount)| (name.clone(), *amount)));
        add(&mut total, self.overhead);
        total
    }
}

fn add<'a>(total: &mut Amounts, parts: impl IntoIterator<Item = &'a Amounts>) {
    for (name, amount) in parts.into_iter().flatten() {
        *total.entry(name.clone()).or_default() += *amount;
    }
}

fn raise(total: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        let entry = total.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(amount: &str) -> Amounts {
        Amounts::from([("cpu".to_owned(), amount.parse().unwrap())])
    }

    fn effective(requests: &PodRequests<'_>) -> String {
        requests.effective().get("cpu").copied().unwrap_or_default().to_string()
    }

    #[test]
    fn what_runs_together_is_added_and_init_containers_are_not() {
        let (one, two, five) = (cpu("1"), cpu("2"), cpu("5"));
        let mut pod = PodRequests { containers: vec![&one, &two], ..PodRequests::default() };
        assert_eq!(effective(&pod), "3");
        pod.init_containers = vec![(&two, false)];
        assert_eq!(effective(&pod), "3", "it ends before the others start");
        pod.init_containers = vec![(&five, false)];
        assert_eq!(effective(&pod), "5", "it needs more than all that follow");
        pod.init_containers = vec![(&two, true), (&five, false)];
        assert_eq!(effective(&pod), "7", "a sidecar runs beside the init containers after it");
        pod.init_containers = vec![(&five, false), (&two, true)];
        assert_eq!(effective(&pod), "5", "and not beside those before it");
    }

    #[test]
    fn requests_of_the_pod_replace_those_of_containers_and_overhead_is_added() {
        let (one, two) = (cpu("1"), cpu("2"));
        let pod = PodRequests {
            containers: vec![&two, &two],
            pod: Some(&one),
            overhead: Some(&two),
            ..PodRequests::default()
        };
        assert_eq!(effective(&pod), "3");
    }
}
