//! Label selectors: the structured form of objects and the text form of `kubectl -l`.
//!
//! ```
//! use std::collections::BTreeMap;
//! use quintet_api::selector::Selector;
//!
//! let selector: Selector = "tier in (gold, silver),!legacy,app=ray".parse()?;
//! let labels = BTreeMap::from([("app".into(), "ray".into()), ("tier".into(), "gold".into())]);
//! assert!(selector.matches(&labels));
//! assert_eq!(selector.to_string(), "tier in (gold,silver),!legacy,app=ray");
//! # Ok::<(), quintet_api::selector::SelectorError>(())
//! ```

mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Requirements on labels; an object is selected when it meets all of them. Without any, everything is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The key of the label.
    pub key: String,
    /// What the label's value must be.
    pub test: Test,
}

/// What is asked of the value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// There, and equal to this.
    Is(String),
    /// Absent, or different from this.
    IsNot(String),
    /// There, and one of these.
    In(Vec<String>),
    /// Absent, or none of these.
    NotIn(Vec<String>),
    /// There, whatever it is.
    Exists,
    /// Not there.
    DoesNotExist,
    /// There, and a larger integer.
    GreaterThan(i64),
    /// There, and a smaller integer.
    LessThan(i64),
}

/// Why a selector cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator that does not exist.
    #[error("\"{operator}\" is not a valid label selector operator; use In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// What was written.
        operator: String,
    },
    /// `In` and `NotIn` need something to compare with.
    #[error("label \"{key}\": operator {operator} needs at least one value")]
    NoValues {
        /// The label.
        key: String,
        /// The operator.
        operator: String,
    },
    /// `Exists` and `DoesNotExist` compare with nothing.
    #[error("label \"{key}\": operator {operator} takes no values")]
    Values {
        /// The label.
        key: String,
        /// The operator.
        operator: String,
    },
    /// One of the requirements is not complete.
    #[error("unable to parse requirement: {0}")]
    Requirement(Box<Self>),
    /// The text does not follow the grammar; worded as the API server words it.
    #[error("found '{found}', expected: {expected}")]
    Text {
        /// What stands where reading stopped; empty at the end.
        found: String,
        /// What could have stood there.
        expected: &'static str,
    },
}

impl Selector {
    /// Selects what carries all of these labels.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        let requirements = labels
            .iter()
            .map(|(key, value)| Requirement { key: key.clone(), test: Test::Is(value.clone()) })
            .collect();
        Self { requirements }
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// Whether everything is selected.
    pub fn selects_all(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements, in the order they were written.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

impl Requirement {
    /// Whether these labels meet the requirement.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let as_integer = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::Is(wanted) => value == Some(wanted),
            Test::IsNot(unwanted) => value != Some(unwanted),
            Test::In(wanted) => value.is_some_and(|value| wanted.contains(value)),
            Test::NotIn(unwanted) => value.is_none_or(|value| !unwanted.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::GreaterThan(bound) => as_integer().is_some_and(|value| value > *bound),
            Test::LessThan(bound) => as_integer().is_some_and(|value| value < *bound),
        }
    }
}

impl TryFrom<&LabelSelector> for Selector {
    type Error = SelectorError;

    fn try_from(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let mut requirements =
            selector.match_labels.as_ref().map(Self::from_labels).unwrap_or_default().requirements;
        for expression in selector.match_expressions.iter().flatten() {
            requirements.push(Requirement { key: expression.key.clone(), test: test_of(expression)? });
        }
        Ok(Self { requirements })
    }
}

fn test_of(expression: &LabelSelectorRequirement) -> Result<Test, SelectorError> {
    let key = || expression.key.clone();
    let operator = || expression.operator.clone();
    let values = expression.values.clone().unwrap_or_default();
    match expression.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            Err(SelectorError::NoValues { key: key(), operator: operator() })
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            Err(SelectorError::Values { key: key(), operator: operator() })
        }
        "In" => Ok(Test::In(values)),
        "NotIn" => Ok(Test::NotIn(values)),
        "Exists" => Ok(Test::Exists),
        "DoesNotExist" => Ok(Test::DoesNotExist),
        _ => Err(SelectorError::Operator { operator: operator() }),
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, requirement) in self.requirements.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            Test::Is(value) => write!(f, "{key}={value}"),
            Test::IsNot(value) => write!(f, "{key}!={value}"),
            Test::In(values) => write!(f, "{key} in ({})", values.join(",")),
            Test::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            Test::Exists => write!(f, "{key}"),
            Test::DoesNotExist => write!(f, "!{key}"),
            Test::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            Test::LessThan(bound) => write!(f, "{key}<{bound}"),
        }
    }
}
