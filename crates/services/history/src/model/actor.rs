//! Actors.

use super::decode::{Reader, members, moment, set};
use super::strings::Symbol;
use super::{Transition, merge};
use crate::json::{Fault, Scanner};

/// An actor.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    pub(crate) id: Symbol,
    pub(crate) definition: Definition,
    pub(crate) transitions: Vec<ActorTransition>,
    pub(crate) restarts: usize,
    pub(crate) pid: i64,
    pub(crate) exit_detail: Symbol,
    pub(crate) started: Option<i64>,
    pub(crate) ended: Option<i64>,
}

/// What a definition event says, and what lifecycle events change of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition {
    pub(crate) job: Symbol,
    pub(crate) name: Symbol,
    pub(crate) class: Symbol,
    pub(crate) repr: Symbol,
    pub(crate) placement_group: Symbol,
    pub(crate) call_site: Symbol,
    /// JSON of an object.
    pub(crate) resources: Option<Symbol>,
    /// JSON of an object.
    pub(crate) label_selector: Option<Symbol>,
    pub(crate) address: Address,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub(crate) node: Symbol,
    pub(crate) worker: Symbol,
    pub(crate) ip: Symbol,
    pub(crate) port: i64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ActorTransition {
    pub(crate) transition: Transition,
    node: Symbol,
    worker: Symbol,
    repr: Symbol,
    death: Option<Death>,
}

#[derive(Debug, Clone, Copy)]
struct Death {
    pid: i64,
    ip: Symbol,
    message: Symbol,
}

/// States that matter, interned once for a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct States {
    pub(crate) alive: Symbol,
    pub(crate) restarting: Symbol,
    pub(crate) dead: Symbol,
}

impl Default for Definition {
    fn default() -> Self {
        let none = Symbol::EMPTY;
        Self {
            job: none,
            name: none,
            class: none,
            repr: none,
            placement_group: none,
            call_site: none,
            resources: None,
            label_selector: None,
            address: Address { node: none, worker: none, ip: none, port: 0 },
        }
    }
}

impl Actor {
    pub(crate) fn new(id: Symbol) -> Self {
        Self {
            id,
            definition: Definition::default(),
            transitions: Vec::new(),
            restarts: 0,
            pid: 0,
            exit_detail: Symbol::EMPTY,
            started: None,
            ended: None,
        }
    }

    pub(crate) fn state(&self) -> Symbol {
        self.transitions.last().map_or(Symbol::EMPTY, |last| last.transition.state)
    }

    pub(super) fn define(&mut self, definition: Definition) {
        let address = self.definition.address;
        self.definition = definition;
        if !self.transitions.is_empty() {
            self.definition.address = address;
        }
    }

    pub(super) fn advance(&mut self, added: Vec<ActorTransition>, states: States) {
        merge(&mut self.transitions, added, |it| it.transition);
        self.restarts = self.transitions.iter().filter(|it| it.transition.state == states.restarting).count();
        for it in &self.transitions {
            if it.transition.state == states.alive {
                self.started.get_or_insert(it.transition.time);
                if !it.node.is_empty() {
                    self.definition.address.node = it.node;
                    self.definition.address.worker = it.worker;
                }
            }
        }
        let Some(last) = self.transitions.last() else { return };
        if !last.repr.is_empty() {
            self.definition.repr = last.repr;
        }
        if last.transition.state == states.dead {
            self.ended = Some(last.transition.time);
            if let Some(death) = last.death {
                self.pid = death.pid;
                self.definition.address.ip = death.ip;
                self.exit_detail = death.message;
            }
        }
    }
}

/// Reads the payload of a definition event.
pub(super) fn read_definition(
    reader: &mut Reader<'_>,
    scanner: &mut Scanner<'_>,
) -> Result<(Symbol, Definition), Fault> {
    let mut id = Symbol::EMPTY;
    let mut it = Definition::default();
    members!(scanner, {
        "actorid" => |scanner: &mut _| reader.id(scanner, &mut id),
        "jobid" => |scanner: &mut _| reader.id(scanner, &mut it.job),
        "name" => |scanner: &mut _| reader.text(scanner, &mut it.name),
        "classname" => |scanner: &mut _| reader.text(scanner, &mut it.class),
        "reprname" => |scanner: &mut _| reader.text(scanner, &mut it.repr),
        "placementgroupid" => |scanner: &mut _| reader.id(scanner, &mut it.placement_group),
        "callsite" => |scanner: &mut _| reader.text(scanner, &mut it.call_site),
        "requiredresources" => |scanner: &mut _| reader.numbers(scanner, &mut it.resources),
        "labelselector" => |scanner: &mut _| reader.selector(scanner, &mut it.label_selector),
        "isdetached" => |scanner: &mut Scanner<'_>| scanner.boolean(),
        "raynamespace" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
        "serializedruntimeenv" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
        "address" => |scanner: &mut Scanner<'_>| members!(scanner, {
            "nodeid" => |scanner: &mut _| reader.id(scanner, &mut it.address.node),
            "workerid" => |scanner: &mut _| reader.id(scanner, &mut it.address.worker),
            "ipaddress" => |scanner: &mut _| reader.text(scanner, &mut it.address.ip),
            "port" => |scanner: &mut Scanner<'_>| scanner.integer().map(|port| set(&mut it.address.port, port)),
        }),
    })?;
    Ok((id, it))
}

/// Reads the payload of a lifecycle event.
pub(super) fn read_lifecycle(
    reader: &mut Reader<'_>,
    scanner: &mut Scanner<'_>,
) -> Result<(Symbol, Vec<ActorTransition>), Fault> {
    let mut id = Symbol::EMPTY;
    let mut transitions = Vec::new();
    members!(scanner, {
        "actorid" => |scanner: &mut _| reader.id(scanner, &mut id),
        "statetransitions" => |scanner: &mut Scanner<'_>| scanner.array_or_null(|scanner| {
            transitions.push(read_transition(reader, scanner)?);
            Ok(())
        }),
    })?;
    if transitions.is_empty() {
        return Err(Fault::Type);
    }
    Ok((id, transitions))
}

fn read_transition(reader: &mut Reader<'_>, scanner: &mut Scanner<'_>) -> Result<ActorTransition, Fault> {
    let none = Symbol::EMPTY;
    let mut it = ActorTransition {
        transition: Transition { time: i64::MIN, state: none },
        node: none,
        worker: none,
        repr: none,
        death: None,
    };
    members!(scanner, {
        "state" => |scanner: &mut _| reader.text(scanner, &mut it.transition.state),
        "timestamp" => |scanner: &mut _| moment(scanner).map(|time| set(&mut it.transition.time, time)),
        "nodeid" => |scanner: &mut _| reader.id(scanner, &mut it.node),
        "workerid" => |scanner: &mut _| reader.id(scanner, &mut it.worker),
        "reprname" => |scanner: &mut _| reader.text(scanner, &mut it.repr),
        "deathcause" => |scanner: &mut Scanner<'_>| members!(scanner, {
            "actordiederrorcontext" => |scanner: &mut Scanner<'_>| -> Result<(), Fault> {
                if scanner.peek()? == b'n' {
                    return scanner.skip().map(drop);
                }
                let mut death = Death { pid: 0, ip: none, message: none };
                members!(scanner, {
                    "pid" => |scanner: &mut Scanner<'_>| scanner.integer().map(|pid| set(&mut death.pid, pid)),
                    "nodeipaddress" => |scanner: &mut _| reader.text(scanner, &mut death.ip),
                    "errormessage" => |scanner: &mut _| reader.text(scanner, &mut death.message),
                })?;
                it.death = Some(death);
                Ok(())
            },
        }),
    })?;
    Ok(it)
}
