//! Labels, selectors, node affinity, taints and tolerations: the parts of Kubernetes matching that
//! decide whether a pod may use a flavor or a node.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Labels of an object.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// One condition on a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// The label.
    pub key: Arc<str>,
    /// How to compare.
    pub operator: Operator,
    /// What to compare with.
    pub values: Vec<Arc<str>>,
}

/// How a [`Requirement`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The value is one of those listed.
    In,
    /// The label is absent or its value is none of those listed.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The value is an integer greater than the one listed.
    Gt,
    /// The value is an integer less than the one listed.
    Lt,
}

impl Operator {
    /// The operator of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            _ => return None,
        })
    }
}

impl Requirement {
    /// Whether a label with this value, or without one, satisfies the condition.
    pub fn matches_value(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|candidate| &**candidate == value);
        let compare = |value: &str| -> Option<std::cmp::Ordering> {
            let limit: i64 = self.values.first()?.parse().ok()?;
            Some(value.parse::<i64>().ok()?.cmp(&limit))
        };
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => value.and_then(compare).is_some_and(std::cmp::Ordering::is_gt),
            Operator::Lt => value.and_then(compare).is_some_and(std::cmp::Ordering::is_lt),
        }
    }

    /// Whether `labels` satisfy the condition.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_value(labels.get(&self.key).map(|value| &**value))
    }
}

/// A label selector: all conditions must hold. Without any it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The conditions.
    pub requirements: Vec<Requirement>,
}

impl Selector {
    /// Whether the selector selects an object with these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

/// One alternative of a node affinity: conditions on labels and on the node's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    /// Conditions on labels.
    pub expressions: Vec<Requirement>,
    /// Conditions on `metadata.name`.
    pub fields: Vec<Requirement>,
}

impl NodeTerm {
    /// Whether the node satisfies the term; an empty term selects nothing.
    pub fn matches(&self, labels: &Labels, node_name: &str) -> bool {
        !(self.expressions.is_empty() && self.fields.is_empty())
            && self.expressions.iter().all(|expression| expression.matches(labels))
            && self.fields.iter().all(|field| field.matches_value(Some(node_name)))
    }
}

/// A preferred term with its weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PreferredTerm {
    /// Added to a node's score when the term matches.
    pub weight: i64,
    /// The term.
    pub term: NodeTerm,
}

/// Effects that keep pods away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// New pods are not scheduled.
    NoSchedule,
    /// New pods are rather not scheduled.
    PreferNoSchedule,
    /// Running pods are evicted too.
    NoExecute,
}

impl Effect {
    /// The effect of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => return None,
        })
    }

    /// The name of the effect.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// A taint of a node or of a flavor's nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taint {
    /// The key.
    pub key: Arc<str>,
    /// The value, maybe empty.
    pub value: Arc<str>,
    /// What it does.
    pub effect: Effect,
}

impl Taint {
    /// `key=value:Effect`, without `=value` when there is none.
    pub fn label(&self) -> String {
        if self.value.is_empty() {
            format!("{}:{}", self.key, self.effect.name())
        } else {
            format!("{}={}:{}", self.key, self.value, self.effect.name())
        }
    }
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TolerationOperator {
    /// The values are equal.
    Equal,
    /// Any value.
    Exists,
    /// The taint's value is an integer below the toleration's.
    Lt,
    /// The taint's value is an integer above the toleration's.
    Gt,
}

/// A toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// The key; empty with `Exists` tolerates every key.
    pub key: Arc<str>,
    /// How to compare.
    pub operator: TolerationOperator,
    /// What to compare with.
    pub value: Arc<str>,
    /// The effect tolerated; `None` is all.
    pub effect: Option<Effect>,
}

impl Toleration {
    /// Whether the taint is tolerated.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        let numbers = || Some((taint.value.parse::<i64>().ok()?, self.value.parse::<i64>().ok()?));
        match self.operator {
            TolerationOperator::Equal => self.value == taint.value,
            TolerationOperator::Exists => true,
            TolerationOperator::Lt => numbers().is_some_and(|(taint, limit)| taint < limit),
            TolerationOperator::Gt => numbers().is_some_and(|(taint, limit)| taint > limit),
        }
    }
}

/// The first taint that keeps pods away and that none of the tolerations covers.
pub fn untolerated<'t>(taints: &'t [Taint], tolerations: &[&[Toleration]]) -> Option<&'t Taint> {
    taints.iter().find(|taint| {
        taint.effect != Effect::PreferNoSchedule
            && !tolerations.iter().copied().flatten().any(|toleration| toleration.tolerates(taint))
    })
}
