//! Nodes.

use super::decode::{Reader, members, moment, set};
use super::strings::Symbol;
use super::time::{UNKNOWN, known};
use super::{Transition, merge};
use crate::json::{Fault, Scanner};

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) id: Symbol,
    pub(crate) definition: Definition,
    pub(crate) transitions: Vec<NodeTransition>,
}

/// What a definition event says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition {
    pub(crate) ip: Symbol,
    pub(crate) started: Option<i64>,
    /// JSON of an object.
    pub(crate) labels: Option<Symbol>,
    pub(crate) hostname: Symbol,
    pub(crate) name: Symbol,
    pub(crate) instance: Symbol,
    pub(crate) instance_type: Symbol,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeTransition {
    pub(crate) transition: Transition,
    /// JSON of an object.
    pub(crate) resources: Option<Symbol>,
    pub(crate) death_reason: Symbol,
    pub(crate) death_message: Symbol,
}

impl Default for Definition {
    fn default() -> Self {
        let none = Symbol::EMPTY;
        Self {
            ip: none,
            started: None,
            labels: None,
            hostname: none,
            name: none,
            instance: none,
            instance_type: none,
        }
    }
}

impl Node {
    pub(crate) fn new(id: Symbol) -> Self {
        Self { id, definition: Definition::default(), transitions: Vec::new() }
    }

    pub(super) fn define(&mut self, definition: Definition, transitions: Vec<NodeTransition>) {
        self.definition = definition;
        if self.transitions.is_empty() {
            self.transitions = transitions;
        }
    }

    pub(super) fn advance(&mut self, added: Vec<NodeTransition>) {
        merge(&mut self.transitions, added, |it| it.transition);
    }
}

/// Reads the payload of a definition or lifecycle event. Either may name the members of both, and the types of all of them
/// count.
pub(super) fn read(
    reader: &mut Reader<'_>,
    scanner: &mut Scanner<'_>,
) -> Result<(Symbol, Definition, Vec<NodeTransition>), Fault> {
    let none = Symbol::EMPTY;
    let mut id = none;
    let mut it = Definition::default();
    let mut transitions = Vec::new();
    members!(scanner, {
        "nodeid" => |scanner: &mut _| reader.id(scanner, &mut id),
        "nodeipaddress" => |scanner: &mut _| reader.text(scanner, &mut it.ip),
        "starttimestamp" => |scanner: &mut _| moment(scanner).map(|time| it.started = time.and_then(known)),
        "labels" => |scanner: &mut _| reader.texts(scanner, &mut it.labels),
        "hostname" => |scanner: &mut _| reader.text(scanner, &mut it.hostname),
        "nodename" => |scanner: &mut _| reader.text(scanner, &mut it.name),
        "instanceid" => |scanner: &mut _| reader.text(scanner, &mut it.instance),
        "instancetypename" => |scanner: &mut _| reader.text(scanner, &mut it.instance_type),
        "statetransitions" => |scanner: &mut Scanner<'_>| {
            transitions.clear();
            scanner.array_or_null(|scanner| {
                transitions.push(transition(reader, scanner)?);
                Ok(())
            })
        },
    })?;
    Ok((id, it, transitions))
}

fn transition(reader: &mut Reader<'_>, scanner: &mut Scanner<'_>) -> Result<NodeTransition, Fault> {
    let none = Symbol::EMPTY;
    let mut it = NodeTransition {
        transition: Transition { time: UNKNOWN, state: none },
        resources: None,
        death_reason: none,
        death_message: none,
    };
    members!(scanner, {
        "state" => |scanner: &mut _| reader.text(scanner, &mut it.transition.state),
        "timestamp" => |scanner: &mut _| moment(scanner).map(|time| set(&mut it.transition.time, time)),
        "resources" => |scanner: &mut _| reader.numbers(scanner, &mut it.resources),
        "deathinfo" => |scanner: &mut Scanner<'_>| members!(scanner, {
            "reason" => |scanner: &mut _| reader.text(scanner, &mut it.death_reason),
            "reasonmessage" => |scanner: &mut _| reader.text(scanner, &mut it.death_message),
        }),
    })?;
    Ok(it)
}
