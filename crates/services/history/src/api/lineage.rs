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

/// What a node stands for.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Task(&'a str),
    Actor(&'a str),
}

/// Where a node belongs.
#[derive(Clone, Copy)]
enum Parent<'a> {
    Root,
    Of(Subject<'a>),
}

struct Tree<'a> {
    snapshot: &'a Snapshot,
    /// The last attempts of the tasks: they say what a task is.
    tasks: HashMap<&'a str, &'a Task>,
    /// The tasks that created the actors.
    creations: HashMap<&'a str, &'a str>,
    nodes: Vec<Node<'a>>,
    by_task: HashMap<&'a str, usize>,
    by_actor: HashMap<&'a str, usize>,
    roots: Vec<usize>,
}

/// Writes the forest of these tasks.
pub(super) fn write<'a>(writer: &mut Writer, snapshot: &'a Snapshot, tasks: &[&'a Task]) {
    let mut tree = Tree {
        snapshot,
        tasks: tasks.iter().map(|task| (snapshot.text(task.id), *task)).collect(),
        creations: HashMap::new(),
        nodes: Vec::new(),
        by_task: HashMap::new(),
        by_actor: HashMap::new(),
        roots: Vec::new(),
    };
    for task in tasks.iter().filter(|task| snapshot.text(task.definition.kind) == CREATION) {
        let actor = actor_of(snapshot, task);
        if !actor.is_empty() {
            tree.creations.insert(actor, snapshot.text(task.id));
        }
    }
    for task in tasks {
        if snapshot.text(task.definition.kind) == "DRIVER_TASK" {
            continue;
        }
        if let Some(index) = tree.place(Subject::Task(snapshot.text(task.id))) {
            *tree.nodes[index].counts.entry(state(snapshot, task)).or_default() += 1;
        }
    }
    let roots = std::mem::take(&mut tree.roots);
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
    /// The node of a subject. A new one is put under its parent, which is made before if it is new as well; siblings are
    /// in the order in which they were made. What has an unknown parent has no place.
    fn place(&mut self, subject: Subject<'a>) -> Option<usize> {
        let mut made: Vec<(usize, Parent<'a>)> = Vec::new();
        let mut next = Some(subject);
        let mut above = None;
        while let Some(subject) = next {
            above = self.known(subject);
            if above.is_some() {
                break;
            }
            let Some((node, parent)) = self.describe(subject) else { break };
            let index = self.nodes.len();
            match subject {
                Subject::Task(id) => self.by_task.insert(id, index),
                Subject::Actor(id) => self.by_actor.insert(id, index),
            };
            self.nodes.push(node);
            made.push((index, parent));
            next = match parent {
                Parent::Root => None,
                Parent::Of(subject) => Some(subject),
            };
        }
        let lowest = made.first().map(|(index, _)| *index).or(above);
        for (index, parent) in made.into_iter().rev() {
            match (parent, above) {
                (Parent::Root, _) => self.roots.push(index),
                // A task that is its own ancestor would have no end.
                (Parent::Of(_), Some(parent)) if parent != index => self.nodes[parent].children.push(index),
                _ => {}
            }
            above = Some(index);
        }
        lowest
    }

    fn known(&self, subject: Subject<'a>) -> Option<usize> {
        match subject {
            Subject::Task(id) => self.by_task.get(id).copied(),
            Subject::Actor(id) => self.by_actor.get(id).copied(),
        }
    }

    /// A new node, and where it belongs; `None` if nothing is known of the subject.
    fn describe(&self, subject: Subject<'a>) -> Option<(Node<'a>, Parent<'a>)> {
        let snapshot = self.snapshot;
        let (task, name, key, kind, link) = match subject {
            Subject::Task(id) => {
                let task = *self.tasks.get(id)?;
                let names = [task.definition.name, task.definition.function];
                let name = names.into_iter().find(|name| !name.is_empty());
                let name = name.map(|name| snapshot.text(name).to_owned()).unwrap_or_default();
                (task, name, id.to_owned(), snapshot.text(task.definition.kind), ("task", id))
            }
            Subject::Actor(id) => {
                let creation = *self.tasks.get(self.creations.get(id)?)?;
                (creation, actor_name(snapshot, id, creation), format!("actor:{id}"), "ACTOR", ("actor", id))
            }
        };
        let is_of_actor = matches!(subject, Subject::Task(_)) && matches!(kind, "ACTOR_TASK" | CREATION);
        let parent = match snapshot.text(task.definition.parent) {
            _ if is_of_actor => Parent::Of(Subject::Actor(actor_of(snapshot, task))),
            "" => Parent::Root,
            parent if parent.starts_with(DRIVER_PREFIX) => Parent::Root,
            parent => Parent::Of(Subject::Task(parent)),
        };
        let node = Node {
            name,
            key,
            kind,
            timestamp: task.lifecycle.created.map(millis),
            counts: Counts::new(),
            children: Vec::new(),
            link: Some(link),
        };
        Some((node, parent))
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
