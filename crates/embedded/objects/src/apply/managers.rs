//! The entries of `metadata.managedFields`.

use serde_json::{Map, Value, json};

use super::compare::Difference;
use super::conflict::{Conflict, Conflicts};
use super::fields::FieldSet;
use super::{Writer, conflict};

/// The entries of updates that are kept apart.
const MAX_UPDATE_ENTRIES: usize = 10;
/// The manager that takes over the oldest updates.
const ANCIENT: &str = "ancient-changes";

/// How an entry came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By apply: the writer says what it wants to own.
    Apply,
    /// By any other write: the writer owns what it changed.
    Update,
}

/// One entry: who owns what.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The field manager.
    pub manager: String,
    /// How it came about.
    pub operation: Operation,
    /// The group and version its fields are of.
    pub api_version: String,
    /// When it last changed something.
    pub time: Option<String>,
    /// The subresource it was written through, or nothing.
    pub subresource: String,
    /// The fields.
    pub fields: FieldSet,
}

/// All entries of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Managers {
    entries: Vec<Entry>,
}

impl Managers {
    /// Reads entries; what is not understood is left out.
    pub fn parse(entries: &[Value]) -> Self {
        Self { entries: entries.iter().filter_map(Entry::parse).collect() }
    }

    /// Whether there are no managers.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Writes the entries in their order.
    pub fn print(&self) -> Vec<Value> {
        let mut entries: Vec<&Entry> = self.entries.iter().filter(|entry| !entry.fields.is_empty()).collect();
        entries.sort_by(|one, two| one.order().cmp(&two.order()));
        entries.into_iter().map(Entry::print).collect()
    }

    /// The fields of all managers.
    pub(super) fn union(&self) -> FieldSet {
        let mut all = FieldSet::default();
        for entry in &self.entries {
            all.unite(&entry.fields);
        }
        all
    }

    /// Gives the writer of an update what it changed.
    pub(super) fn update(&mut self, difference: &Difference, writer: &Writer<'_>) {
        let changed = difference.changed();
        for entry in &mut self.entries {
            entry.fields.subtract(&difference.removed);
            if !entry.is_of(writer, Operation::Update) {
                entry.fields.subtract(&changed);
            }
        }
        if changed.is_empty() {
            if let Some(own) = self.entries.iter_mut().find(|entry| entry.is_of(writer, Operation::Update)) {
                own.time = Some(writer.now.into());
            }
        } else {
            let time = Some(writer.now.to_owned()).filter(|_| writer.subresource != "scale");
            match self.entries.iter_mut().find(|entry| entry.is_of(writer, Operation::Update)) {
                Some(own) => {
                    own.fields.unite(&changed);
                    own.time = time;
                }
                None => self.entries.push(Entry {
                    manager: writer.manager.into(),
                    operation: Operation::Update,
                    api_version: writer.api_version.into(),
                    time,
                    subresource: writer.subresource.into(),
                    fields: changed,
                }),
            }
        }
        self.entries.retain(|entry| !entry.fields.is_empty());
        self.cap();
    }

    /// Old updates are kept as one.
    fn cap(&mut self) {
        let updates = self.entries.iter().filter(|entry| entry.operation == Operation::Update).count();
        if updates <= MAX_UPDATE_ENTRIES {
            return;
        }
        let mut order: Vec<usize> = (0..self.entries.len())
            .filter(|at| self.entries.get(*at).is_some_and(|entry| entry.operation == Operation::Update))
            .collect();
        order.sort_by_key(|at| self.entries.get(*at).map(|entry| entry.time.clone()));
        let oldest: Vec<usize> = order.into_iter().take(updates - MAX_UPDATE_ENTRIES + 1).collect();
        let mut kept = Vec::with_capacity(self.entries.len());
        let mut ancient: Vec<Entry> = Vec::new();
        for (at, entry) in std::mem::take(&mut self.entries).into_iter().enumerate() {
            if !oldest.contains(&at) {
                kept.push(entry);
                continue;
            }
            match ancient.iter_mut().find(|known| known.api_version == entry.api_version) {
                Some(known) => {
                    known.fields.unite(&entry.fields);
                    known.time = known.time.take().max(entry.time);
                }
                None => ancient.push(Entry { manager: ANCIENT.into(), subresource: String::new(), ..entry }),
            }
        }
        kept.extend(ancient);
        self.entries = kept;
    }

    /// Makes `set` what the writer applies, and returns what it applied before.
    pub(super) fn replace_applied(&mut self, writer: &Writer<'_>, set: FieldSet) -> Option<FieldSet> {
        if let Some(own) = self.entries.iter_mut().find(|entry| entry.is_of(writer, Operation::Apply)) {
            own.api_version = writer.api_version.into();
            Some(std::mem::replace(&mut own.fields, set))
        } else {
            self.entries.push(Entry {
                manager: writer.manager.into(),
                operation: Operation::Apply,
                api_version: writer.api_version.into(),
                time: None,
                subresource: writer.subresource.into(),
                fields: set,
            });
            None
        }
    }

    /// What the writer changes and others own.
    pub(super) fn conflicts(&self, difference: &Difference, writer: &Writer<'_>) -> Conflicts {
        let changed = difference.changed();
        let mut found: Vec<(String, FieldSet)> = Vec::new();
        for entry in self.entries.iter().filter(|entry| !entry.is_of(writer, Operation::Apply)) {
            let both = entry.fields.intersection(&changed);
            if !both.is_empty() {
                found.push((entry.shown(), both));
            }
        }
        found.sort_by(|one, two| one.0.cmp(&two.0));
        let mut conflicts = conflict::Conflicts::default();
        for (manager, fields) in found {
            for elements in fields.paths() {
                conflicts.push(Conflict { manager: manager.clone(), elements });
            }
        }
        conflicts
    }

    /// Takes from the others what the writer changed or removed.
    pub(super) fn yield_to(&mut self, difference: &Difference, writer: &Writer<'_>) {
        let changed = difference.changed();
        for entry in &mut self.entries {
            entry.fields.subtract_below(&difference.removed);
            if !entry.is_of(writer, Operation::Apply) {
                entry.fields.subtract(&changed);
            }
        }
        self.entries.retain(|entry| !entry.fields.is_empty());
    }

    /// Notes when the writer last changed something.
    pub(super) fn stamp_applied(&mut self, writer: &Writer<'_>, is_changed: bool, is_first: bool) {
        if let Some(own) = self.entries.iter_mut().find(|entry| entry.is_of(writer, Operation::Apply)) {
            if is_changed {
                own.time = Some(writer.now.into());
            } else if is_first {
                own.time = None;
            }
        }
    }
}

impl Entry {
    fn parse(entry: &Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self {
            manager: text("manager"),
            operation: match text("operation").as_str() {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            },
            api_version: text("apiVersion"),
            time: Some(text("time")).filter(|time| !time.is_empty()),
            subresource: text("subresource"),
            fields: FieldSet::parse(entry.get("fieldsV1")?),
        })
    }

    fn print(&self) -> Value {
        let mut entry = Map::new();
        let mut text = |key: &str, value: &str| {
            if !value.is_empty() {
                entry.insert(key.into(), json!(value));
            }
        };
        text("manager", &self.manager);
        text("operation", if self.operation == Operation::Apply { "Apply" } else { "Update" });
        text("apiVersion", &self.api_version);
        text("time", self.time.as_deref().unwrap_or_default());
        text("fieldsType", "FieldsV1");
        text("subresource", &self.subresource);
        entry.insert("fieldsV1".into(), self.fields.print());
        Value::Object(entry)
    }

    fn is_of(&self, writer: &Writer<'_>, operation: Operation) -> bool {
        self.operation == operation
            && self.manager == writer.manager
            && self.subresource == writer.subresource
            && (operation == Operation::Apply || self.api_version == writer.api_version)
    }

    fn order(&self) -> (Operation, Option<&str>, &str, &str, &str) {
        (self.operation, self.time.as_deref(), &self.manager, &self.api_version, &self.subresource)
    }

    fn shown(&self) -> String {
        let mut shown = crate::error::quoted(&self.manager);
        if !self.subresource.is_empty() {
            shown.push_str(" with subresource ");
            shown.push_str(&crate::error::quoted(&self.subresource));
        }
        if self.operation == Operation::Update {
            shown.push_str(" using ");
            shown.push_str(&self.api_version);
        }
        shown
    }
}
