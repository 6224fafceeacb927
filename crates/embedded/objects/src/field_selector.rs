//! Field selectors: `metadata.name=web,status.phase!=Running`.

use crate::error::quoted;

/// Requirements on fields; an object is selected when it meets all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

/// One requirement on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The field, such as `spec.nodeName`.
    pub field: String,
    /// The value it is compared with.
    pub value: String,
    /// Whether it must be equal, or must not.
    pub is_equal: bool,
}

/// Why a field selector cannot be used. The text is that of a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    /// A part without an operator.
    #[error("invalid selector: '{selector}'; can't understand '{part}'")]
    Syntax {
        /// The whole selector.
        selector: String,
        /// The part that was not understood.
        part: String,
    },
    /// A backslash before something that needs none.
    #[error("invalid field selector: invalid escape sequence in value: {value}")]
    Escape {
        /// The value as it was given.
        value: String,
    },
    /// A field the kind cannot be selected by.
    #[error("{message}")]
    Unknown {
        /// The message for the client.
        message: String,
    },
}

impl FieldSelector {
    /// Reads a selector; nothing selects everything.
    pub fn parse(selector: &str) -> Result<Self, FieldSelectorError> {
        let mut requirements = Vec::new();
        for part in split(selector) {
            if part.is_empty() {
                continue;
            }
            let Some((field, is_equal, value)) = operator(part) else {
                return Err(FieldSelectorError::Syntax { selector: selector.into(), part: part.into() });
            };
            requirements.push(Requirement { field: field.into(), value: unescape(value)?, is_equal });
        }
        Ok(Self { requirements })
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements, in the order they were given.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The value a field must equal, if there is such a requirement.
    pub fn required(&self, field: &str) -> Option<&str> {
        self.requirements.iter().find(|one| one.is_equal && one.field == field).map(|one| one.value.as_str())
    }

    /// Whether an object is selected; `value_of` gives the text of a field, empty if it is absent.
    pub fn matches<'v>(&self, mut value_of: impl FnMut(&str) -> std::borrow::Cow<'v, str>) -> bool {
        self.requirements.iter().all(|one| (value_of(&one.field) == one.value.as_str()) == one.is_equal)
    }

    /// Refuses fields that are not among `known` (the kind's own, besides name and namespace).
    pub fn check(&self, known: &[&str]) -> Result<(), FieldSelectorError> {
        for one in &self.requirements {
            let field = one.field.as_str();
            if field == "metadata.name" || field == "metadata.namespace" || known.contains(&field) {
                continue;
            }
            let message = if known.is_empty() {
                format!(
                    "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                    quoted(field)
                )
            } else {
                format!("field label not supported: {field}")
            };
            return Err(FieldSelectorError::Unknown { message });
        }
        Ok(())
    }
}

fn split(selector: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut is_escaped) = (0, false);
    for (at, character) in selector.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if character == '\\' {
            is_escaped = true;
        } else if character == ',' {
            parts.push(selector.get(start..at).unwrap_or_default());
            start = at + 1;
        }
    }
    parts.push(selector.get(start..).unwrap_or_default());
    parts
}

fn operator(part: &str) -> Option<(&str, bool, &str)> {
    let at = part.char_indices().find(|(at, character)| {
        *character == '='
            || (*character == '!' && part.get(at + 1..).is_some_and(|rest| rest.starts_with('=')))
    })?;
    let (field, rest) = part.split_at_checked(at.0)?;
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, false, value));
    }
    Some((field, true, rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?))
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                _ => return Err(FieldSelectorError::Escape { value: value.into() }),
            },
            ',' | '=' => return Err(FieldSelectorError::Escape { value: value.into() }),
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn selectors_are_read_and_matched() {
        let selector = FieldSelector::parse("metadata.name=web,status.phase!=Running,spec.x==a\\,b").unwrap();
        assert_eq!(selector.required("metadata.name"), Some("web"));
        assert_eq!(selector.required("spec.x"), Some("a,b"));
        let value = |phase: &'static str| {
            move |field: &str| -> Cow<'static, str> {
                match field {
                    "metadata.name" => "web".into(),
                    "status.phase" => phase.into(),
                    _ => "a,b".into(),
                }
            }
        };
        assert!(selector.matches(value("Pending")));
        assert!(!selector.matches(value("Running")));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(
            FieldSelector::parse("foo").unwrap_err().to_string(),
            "invalid selector: 'foo'; can't understand 'foo'"
        );
        let selector = FieldSelector::parse("spec.foo=1").unwrap();
        assert_eq!(
            selector.check(&[]).unwrap_err().to_string(),
            "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
        assert_eq!(selector.check(&["type"]).unwrap_err().to_string(), "field label not supported: spec.foo");
    }
}
