//! Fields that others own.

use std::fmt;

use serde_json::{Value, json};

use super::fields::shown;

/// One field the writer wants and another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as messages name it.
    pub manager: String,
    pub(super) elements: Vec<String>,
}

/// All conflicts of one apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts(Vec<Conflict>);

impl Conflicts {
    pub(super) fn push(&mut self, conflict: Conflict) {
        self.0.push(conflict);
    }

    /// Each conflict.
    pub fn iter(&self) -> impl Iterator<Item = &Conflict> {
        self.0.iter()
    }

    /// Whether there are no conflicts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The Status (409, Conflict) that tells the client.
    pub fn status(&self) -> Value {
        let causes: Vec<Value> = self
            .0
            .iter()
            .map(|one| {
                json!({ "reason": "FieldManagerConflict", "message": format!("conflict with {}", one.manager),
                    "field": one.field() })
            })
            .collect();
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "reason": "Conflict", "details": { "causes": causes }, "code": 409 })
    }
}

impl Conflict {
    /// The field, such as `.spec.replicas`.
    pub fn field(&self) -> String {
        shown(&self.elements)
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(
                out,
                "Apply failed with 1 conflict: conflict with {}: {}",
                only.manager,
                only.field()
            );
        }
        write!(out, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut before: Option<&str> = None;
        for one in &self.0 {
            if before != Some(one.manager.as_str()) {
                if before.is_some() {
                    out.write_str("\n")?;
                }
                write!(out, "conflicts with {}:", one.manager)?;
                before = Some(&one.manager);
            }
            write!(out, "\n- {}", one.field())?;
        }
        Ok(())
    }
}
