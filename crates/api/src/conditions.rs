//! Status conditions: one entry per type, whose transition time moves only when its status does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a condition says, before it is known when it began to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<'a> {
    /// The type of the condition, such as `Ready`.
    pub type_: &'a str,
    /// Whether it holds; `None` is `Unknown`.
    pub holds: Option<bool>,
    /// One CamelCase word for programs.
    pub reason: &'a str,
    /// A sentence for people.
    pub message: &'a str,
    /// The generation of the object that was looked at.
    pub observed_generation: Option<i64>,
}

impl Finding<'_> {
    fn status(&self) -> &'static str {
        match self.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }
}

/// The condition of a type, if it was ever set.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition is set and its status is `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// Whether the condition is set and its status is `False`.
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "False")
}

/// Records a finding and tells whether anything changed. The order of conditions is kept.
pub fn set(conditions: &mut Vec<Condition>, finding: &Finding<'_>, now: &Time) -> bool {
    let Some(existing) = conditions.iter_mut().find(|condition| condition.type_ == finding.type_) else {
        conditions.push(Condition {
            type_: finding.type_.into(),
            status: finding.status().into(),
            reason: finding.reason.into(),
            message: finding.message.into(),
            observed_generation: finding.observed_generation,
            last_transition_time: now.clone(),
        });
        return true;
    };
    let has_turned = existing.status != finding.status();
    let has_changed = has_turned
        || existing.reason != finding.reason
        || existing.message != finding.message
        || existing.observed_generation != finding.observed_generation;
    if has_turned {
        finding.status().clone_into(&mut existing.status);
        existing.last_transition_time = now.clone();
    }
    if has_changed {
        finding.reason.clone_into(&mut existing.reason);
        finding.message.clone_into(&mut existing.message);
        existing.observed_generation = finding.observed_generation;
    }
    has_changed
}

/// Forgets a condition and tells whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn ready(holds: Option<bool>, message: &'static str) -> Finding<'static> {
        Finding { type_: "Ready", holds, reason: "Because", message, observed_generation: Some(1) }
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_turns() {
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, &ready(Some(false), "waiting"), &at(1)));
        assert!(!set(&mut conditions, &ready(Some(false), "waiting"), &at(2)), "nothing changed");
        assert!(set(&mut conditions, &ready(Some(false), "still waiting"), &at(3)));
        assert_eq!(conditions[0].last_transition_time, at(1));
        assert!(set(&mut conditions, &ready(Some(true), "ready"), &at(4)));
        assert_eq!(conditions[0].last_transition_time, at(4));
        assert!(is_true(&conditions, "Ready") && !is_false(&conditions, "Ready"));
        assert!(set(&mut conditions, &ready(None, "lost sight"), &at(5)));
        assert_eq!(conditions[0].status, "Unknown");
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn removing_tells_whether_it_was_there() {
        let mut conditions = Vec::new();
        set(&mut conditions, &ready(Some(true), ""), &at(1));
        assert!(remove(&mut conditions, "Ready"));
        assert!(!remove(&mut conditions, "Ready"));
        assert!(find(&conditions, "Ready").is_none());
    }
}
