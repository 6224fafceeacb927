//! Tasks by lineage: which task started which, with like tasks in groups.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::tasks::{Counts, state, write_counts};
use crate::json::Writer;
use crate::model::snapshot::Snapshot;
use crate::model::task::Task;
use crate::model::time::millis;

/// Tasks of a driver have parents that begin like this.
const DRIVER_PREFIX: &str = "ffffffffffffffffffffffffffffffffffffffff";

/// Task ids of actor creations begin like this; the actor's id follows.
const CREATION_PREFIX: &str = "ffffffffffffffff";

const CREATION: &str = "ACTOR_CREATION_TASK";

/// Deeper lineages are cut: they cost stack.
const DEEPEST: usize = 200;

struct Node<'a> {
    name: String,
    key: String,
    kind: &'a str,
    timestamp: Option<i64>,
    counts: Counts<'a>,
    children: Vec<usize>,
    link: Option<(&'static str, &'a str)>,
}

#[derive(Default)]
struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    by_task: HashMap<&'a str, usize>,
    by_actor: HashMap<&'a str, usize>,
    /// The last attempts of the tasks, whose nodes come first.
    last_attempts: Vec<&'a Task>,
}

/// Writes the forest of these tasks.
pub(super) fn write<'a>(writer: &mut Writer, snapshot: &'a Snapshot, tasks: &[&'a Task]) {
    let mut tree = Tree::default();
    for task in tasks {
        tree.add(snapshot, task);
    }
    let roots = tree.link(snapshot, tasks);
    let roots = tree.group(roots, 0);
    tree.write(writer, &roots);
}

/// The actor of a task. Creations carry it in their task ids.
fn actor_of<'a>(snapshot: &'a Snapshot, task: &Task) -> &'a str {
    let actor = snapshot.text(task.definition.actor);
    if !actor.is_empty() || snapshot.text(task.definition.kind) != CREATION {
        return actor;
    }
    snapshot.text(task.id).strip_prefix(CREATION_PREFIX).unwrap_or_default()
}

impl<'a> Tree<'a> {
    /// Adds the node of a task. Its attempts share one, and the last attempt says what it is.
    fn add(&mut self, snapshot: &'a Snapshot, task: &'a Task) {
        let kind = snapshot.text(task.definition.kind);
        if kind == "DRIVER_TASK" {
            return;
        }
        let id = snapshot.text(task.id);
        let index = *self.by_task.entry(id).or_insert_with(|| {
            self.nodes.push(Node {
                name: String::new(),
                key: id.to_owned(),
                kind,
                timestamp: None,
                counts: Counts::new(),
                children: Vec::new(),
                link: Some(("task", id)),
            });
            self.last_attempts.push(task);
            self.nodes.len() - 1
        });
        let names = [task.definition.name, task.definition.function];
        let name = names.into_iter().find(|name| !name.is_empty());
        let node = &mut self.nodes[index];
        node.name = name.map(|name| snapshot.text(name).to_owned()).unwrap_or_default();
        node.kind = kind;
        node.timestamp = task.lifecycle.created.map(millis);
        *node.counts.entry(state(snapshot, task)).or_default() += 1;
        self.last_attempts[index] = task;
    }

    /// Puts nodes under their parents and returns the roots.
    fn link(&mut self, snapshot: &'a Snapshot, tasks: &[&Task]) -> Vec<usize> {
        let mut roots = Vec::new();
        // Actors are where their creations were started.
        for task in tasks.iter().filter(|task| snapshot.text(task.definition.kind) == CREATION) {
            let actor = actor_of(snapshot, task);
            if actor.is_empty() || self.by_actor.contains_key(actor) {
                continue;
            }
            let index = self.nodes.len();
            self.nodes.push(Node {
                name: actor_name(snapshot, actor, task),
                key: format!("actor:{actor}"),
                kind: "ACTOR",
                timestamp: None,
                counts: Counts::new(),
                children: Vec::new(),
                link: Some(("actor", actor)),
            });
            self.by_actor.insert(actor, index);
            self.place(index, snapshot.text(task.definition.parent), &mut roots);
        }
        for (index, task) in self.last_attempts.clone().into_iter().enumerate() {
            if matches!(snapshot.text(task.definition.kind), "ACTOR_TASK" | CREATION) {
                // Tasks of an actor whose creation is unknown have no place.
                if let Some(actor) = self.by_actor.get(actor_of(snapshot, task)).copied() {
                    self.nodes[actor].children.push(index);
                }
            } else {
                self.place(index, snapshot.text(task.definition.parent), &mut roots);
            }
        }
        roots
    }

    /// Puts a node under its parent task, or among the roots. Without either it has no place.
    fn place(&mut self, index: usize, parent: &str, roots: &mut Vec<usize>) {
        if parent.is_empty() || parent.starts_with(DRIVER_PREFIX) {
            roots.push(index);
        } else if let Some(parent) = self.by_task.get(parent).copied()
            && parent != index
        {
            self.nodes[parent].children.push(index);
        }
    }

    /// Sums up what is below, merges siblings of equal names, and sorts.
    fn group(&mut self, siblings: Vec<usize>, depth: usize) -> Vec<usize> {
        if depth > DEEPEST {
            return Vec::new();
        }
        for index in &siblings {
            let children = std::mem::take(&mut self.nodes[*index].children);
            let children = self.group(children, depth + 1);
            self.absorb(*index, &children);
            self.nodes[*index].children = children;
        }
        let mut names: HashMap<&str, usize> = HashMap::new();
        for index in &siblings {
            *names.entry(self.nodes[*index].name.as_str()).or_default() += 1;
        }
        let repeated: Vec<bool> =
            siblings.iter().map(|it| names[self.nodes[*it].name.as_str()] > 1).collect();
        let mut merged: Vec<usize> = Vec::new();
        let mut groups: HashMap<String, usize> = HashMap::new();
        for (index, is_repeated) in siblings.into_iter().zip(repeated) {
            if !is_repeated {
                merged.push(index);
                continue;
            }
            let name = self.nodes[index].name.clone();
            let group = *groups.entry(name).or_insert_with_key(|name| {
                self.nodes.push(Node {
                    name: name.clone(),
                    key: name.clone(),
                    kind: "GROUP",
                    timestamp: None,
                    counts: Counts::new(),
                    children: Vec::new(),
                    link: None,
                });
                merged.push(self.nodes.len() - 1);
                self.nodes.len() - 1
            });
            self.nodes[group].children.push(index);
        }
        for group in groups.into_values() {
            let mut children = std::mem::take(&mut self.nodes[group].children);
            self.sort(&mut children);
            self.absorb(group, &children);
            self.nodes[group].children = children;
        }
        self.sort(&mut merged);
        merged
    }

    /// Adds the states of children. A node without a time of its own takes their earliest.
    fn absorb(&mut self, index: usize, children: &[usize]) {
        for child in children {
            let counts = self.nodes[*child].counts.clone();
            let earliest = self.nodes[*child].timestamp;
            let node = &mut self.nodes[index];
            for (state, count) in counts {
                *node.counts.entry(state).or_default() += count;
            }
            node.timestamp = match (node.timestamp, earliest) {
                (Some(own), Some(theirs)) => Some(own.min(theirs)),
                (own, theirs) => own.or(theirs),
            };
        }
    }

    /// Running first, then pending, then failed, then the oldest.
    fn sort(&self, siblings: &mut [usize]) {
        siblings.sort_by_cached_key(|index| {
            let node = &self.nodes[*index];
            let count =
                |states: &[&str]| -> usize { states.iter().filter_map(|it| node.counts.get(it)).sum() };
            (
                Reverse(count(&["RUNNING", "RUNNING_IN_RAY_GET", "RUNNING_IN_RAY_WAIT"])),
                Reverse(count(&super::demands::PENDING)),
                Reverse(count(&["FAILED"])),
                node.timestamp.is_none(),
                node.timestamp,
                node.kind != CREATION,
            )
        });
    }

    fn write(&self, writer: &mut Writer, siblings: &[usize]) {
        writer.raw("[");
        for index in siblings {
            let node = &self.nodes[*index];
            writer.comma();
            writer.raw("{");
            writer.text_member("name", &node.name);
            writer.text_member("key", &node.key);
            writer.text_member("type", node.kind);
            writer.name("timestamp");
            writer.integer_or_null(node.timestamp);
            writer.name("state_counts");
            write_counts(writer, &node.counts);
            writer.name("children");
            self.write(writer, &node.children);
            writer.name("link");
            match node.link {
                None => writer.raw("null"),
                Some((kind, id)) => {
                    writer.raw("{");
                    writer.text_member("type", kind);
                    writer.text_member("id", id);
                    writer.raw("}");
                }
            }
            writer.raw("}");
        }
        writer.raw("]");
    }
}

fn actor_name(snapshot: &Snapshot, id: &str, creation: &Task) -> String {
    let actor = snapshot.actor(id);
    let names = [actor.map(|it| it.definition.repr), actor.map(|it| it.definition.class)];
    if let Some(name) = names.into_iter().flatten().find(|name| !name.is_empty()) {
        return snapshot.text(name).to_owned();
    }
    match snapshot.text(creation.definition.function).split('.').next() {
        None | Some("") => "UnknownActor".to_owned(),
        Some(class) => class.to_owned(),
    }
}
