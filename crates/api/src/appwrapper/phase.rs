//! Phases of an AppWrapper.

use std::fmt;

/// Where an AppWrapper is in its lifecycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It was not reconciled yet.
    #[default]
    Empty,
    /// Nothing exists.
    Suspended,
    /// Components are created.
    Resuming,
    /// Components exist.
    Running,
    /// Components are deleted, to be created again.
    Resetting,
    /// Components are deleted, because it was suspended.
    Suspending,
    /// All pods have succeeded.
    Succeeded,
    /// It is not retried any more.
    Failed,
    /// Components are deleted with the AppWrapper.
    Terminating,
}

const NAMES: [(Phase, &str); 9] = [
    (Phase::Empty, ""),
    (Phase::Suspended, "Suspended"),
    (Phase::Resuming, "Resuming"),
    (Phase::Running, "Running"),
    (Phase::Resetting, "Resetting"),
    (Phase::Suspending, "Suspending"),
    (Phase::Succeeded, "Succeeded"),
    (Phase::Failed, "Failed"),
    (Phase::Terminating, "Terminating"),
];

impl Phase {
    /// The phase of a status; `None` if it is unknown.
    pub fn parse(text: &str) -> Option<Self> {
        NAMES.iter().find(|(_, name)| *name == text).map(|(phase, _)| *phase)
    }

    /// As it is in a status.
    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(phase, _)| *phase == self).map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_one_name() {
        for (phase, name) in NAMES {
            assert_eq!((Phase::parse(name), phase.as_str()), (Some(phase), name));
        }
        assert_eq!(Phase::parse("Nonsense"), None);
    }
}
