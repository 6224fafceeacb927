//! Which controllers of the components run, by a list as kube-controller-manager takes it: `*` stands for all, `name` for one,
//! and `-name` leaves one out.

use serde::{Deserialize, Serialize};

use super::ComponentConfig;

const ALL: &str = "*";

/// The list. An empty one stands for all controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Controllers(pub Vec<String>);

impl Controllers {
    /// Whether a controller runs. Its own name counts before `*`.
    pub fn enables(&self, name: &str) -> bool {
        let has = |wanted: &str| self.0.iter().any(|entry| entry == wanted);
        let is_left_out = self.0.iter().any(|entry| entry.strip_prefix('-') == Some(name));
        self.is_empty() || has(name) || (has(ALL) && !is_left_out)
    }

    /// Whether no controller is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rejects names that no component has: a misspelled one would silently change nothing.
    pub(super) fn check(&self, components: &[ComponentConfig]) -> Result<(), String> {
        let known: Vec<&str> =
            components.iter().flat_map(|component| component.controllers).copied().collect();
        let names = self.0.iter().map(|entry| entry.strip_prefix('-').unwrap_or(entry));
        match names.into_iter().find(|name| *name != ALL && !known.contains(name)) {
            Some(name) => Err(format!(
                "controllers: unknown controller \"{name}\"; choose from *, {}",
                known.join(", ")
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kueue;
    use super::*;

    fn enabled(list: &[&str], name: &str) -> bool {
        Controllers(list.iter().map(|entry| (*entry).to_owned()).collect()).enables(name)
    }

    #[test]
    fn controllers_are_chosen_as_those_of_kubernetes() {
        assert!(enabled(&[], "scheduler") && enabled(&["*"], "scheduler"));
        assert!(enabled(&["scheduler"], "scheduler") && !enabled(&["scheduler"], "workload"));
        assert!(!enabled(&["*", "-scheduler"], "scheduler") && enabled(&["*", "-scheduler"], "workload"));
        assert!(!enabled(&["-*"], "workload"));
        assert!(enabled(&["-*", "workload"], "workload"));
    }

    #[test]
    fn unknown_controllers_are_rejected() {
        let of = |name: &str| Controllers(vec![name.to_owned()]).check(&[kueue::CONFIG]);
        assert_eq!(of("scheduler"), Ok(()));
        assert_eq!(of("-*"), Ok(()));
        let error = of("-schedular").unwrap_err();
        assert!(
            error.starts_with("controllers: unknown controller \"schedular\"; choose from *, "),
            "{error}"
        );
    }
}
