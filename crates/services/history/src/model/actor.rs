//! Actors.

use super::decode::{Reader, loose_array, loose_moment, loose_object, members, moment, set};
use super::strings::Symbol;
use super::time::{UNKNOWN, known};
use super::{Transition, merge};
use crate::json::{Fault, Scanner};

/// An actor.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    pub(crate) id: Symbol,
    pub(crate) definition: Definition,
    pub(crate) transitions: Vec<ActorTransition>,
    pub(crate) restarts: i64,
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
    state: Symbol,
    restarts: i64,
    pid: i64,
    exit_detail: Symbol,
    started: Option<i64>,
    ended: Option<i64>,
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
    death: Death,
}

/// What the cause of a death tells.
#[derive(Debug, Clone, Copy, Default)]
struct Death {
    pid: Option<i64>,
    ip: Option<Symbol>,
    message: Option<Symbol>,
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
            state: none,
            restarts: 0,
            pid: 0,
            exit_detail: none,
            started: None,
            ended: None,
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
        self.transitions.last().map_or(self.definition.state, |last| last.transition.state)
    }

    pub(super) fn define(&mut self, definition: Definition) {
        let address = self.definition.address;
        self.definition = definition;
        if self.transitions.is_empty() {
            self.restarts = definition.restarts;
            self.pid = definition.pid;
            self.exit_detail = definition.exit_detail;
            self.started = definition.started;
            self.ended = definition.ended;
        } else {
            self.definition.address = address;
        }
    }

    pub(super) fn advance(&mut self, added: Vec<ActorTransition>, states: States) {
        merge(&mut self.transitions, added, |it| it.transition);
        let restarts = self.transitions.iter().filter(|it| it.transition.state == states.restarting).count();
        self.restarts = i64::try_from(restarts).unwrap_or(i64::MAX);
        let mut alive = self.transitions.iter().filter(|it| it.transition.state == states.alive);
        if let Some(placed) = alive.clone().rfind(|it| !it.node.is_empty()) {
            self.definition.address.node = placed.node;
            self.definition.address.worker = placed.worker;
        }
        if let Some(first) = alive.next() {
            self.started = self.started.or_else(|| known(first.transition.time));
        }
        let Some(last) = self.transitions.last() else { return };
        if !last.repr.is_empty() {
            self.definition.repr = last.repr;
        }
        if last.transition.state == states.dead {
            self.ended = known(last.transition.time);
            let Death { pid, ip, message } = last.death;
            set(&mut self.pid, pid);
            set(&mut self.definition.address.ip, ip);
            set(&mut self.exit_detail, message);
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
        "state" => |scanner: &mut _| reader.text(scanner, &mut it.state),
        "numrestarts" => |scanner: &mut Scanner<'_>| scanner.integer().map(|number| set(&mut it.restarts, number)),
        "pid" => |scanner: &mut Scanner<'_>| scanner.integer().map(|pid| set(&mut it.pid, pid)),
        "exitdetails" => |scanner: &mut _| reader.text(scanner, &mut it.exit_detail),
        "starttime" => |scanner: &mut _| moment(scanner).map(|time| it.started = time.and_then(known)),
        "endtime" => |scanner: &mut _| moment(scanner).map(|time| it.ended = time.and_then(known)),
        "events" => |scanner: &mut Scanner<'_>| scanner.array_or_null(|scanner| members!(scanner, {
            "state" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
            "timestamp" => |scanner: &mut _| moment(scanner).map(drop),
            "nodeid" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
            "workerid" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
            "reprname" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
            "deathcause" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
        })),
        "address" => |scanner: &mut Scanner<'_>| members!(scanner, {
            "nodeid" => |scanner: &mut _| reader.id(scanner, &mut it.address.node),
            "workerid" => |scanner: &mut _| reader.id(scanner, &mut it.address.worker),
            "ipaddress" => |scanner: &mut _| reader.text(scanner, &mut it.address.ip),
            "port" => |scanner: &mut Scanner<'_>| scanner.integer().map(|port| set(&mut it.address.port, port)),
        }),
    })?;
    Ok((id, it))
}

/// Reads the payload of a lifecycle event. Names count in their exact case, and values of wrong types as absent.
pub(super) fn read_lifecycle(
    reader: &mut Reader<'_>,
    scanner: &mut Scanner<'_>,
) -> Result<(Symbol, Vec<ActorTransition>), Fault> {
    let mut id = Symbol::EMPTY;
    let mut transitions = Vec::new();
    loose_object(scanner, |scanner, name| match name {
        "actorId" => reader.loose_id(scanner, &mut id),
        "stateTransitions" => {
            transitions.clear();
            loose_array(scanner, |scanner| {
                transitions.extend(read_transition(reader, scanner)?);
                Ok(())
            })
        }
        _ => scanner.skip().map(drop),
    })?;
    if id.is_empty() || transitions.is_empty() {
        return Err(Fault::Type);
    }
    Ok((id, transitions))
}

fn read_transition(
    reader: &mut Reader<'_>,
    scanner: &mut Scanner<'_>,
) -> Result<Option<ActorTransition>, Fault> {
    let none = Symbol::EMPTY;
    let mut it = ActorTransition {
        transition: Transition { time: UNKNOWN, state: none },
        node: none,
        worker: none,
        repr: none,
        death: Death::default(),
    };
    let is_object = loose_object(scanner, |scanner, name| {
        match name {
            "state" => reader.loose_text(scanner, &mut it.transition.state)?,
            "timestamp" => it.transition.time = loose_moment(scanner)?,
            "nodeId" => reader.loose_id(scanner, &mut it.node)?,
            "workerId" => reader.loose_id(scanner, &mut it.worker)?,
            "reprName" => reader.loose_text(scanner, &mut it.repr)?,
            "deathCause" => it.death = read_death(reader, scanner)?,
            _ => drop(scanner.skip()?),
        }
        Ok(())
    })?;
    Ok(is_object.then_some(it))
}

fn read_death(reader: &mut Reader<'_>, scanner: &mut Scanner<'_>) -> Result<Death, Fault> {
    let mut death = Death::default();
    loose_object(scanner, |scanner, name| {
        if name != "actorDiedErrorContext" {
            return scanner.skip().map(drop);
        }
        death = Death::default();
        loose_object(scanner, |scanner, name| {
            let is_text = scanner.peek()? == b'"';
            match name {
                "pid" if matches!(scanner.peek()?, b'-' | b'0'..=b'9') => {
                    #[expect(
                        clippy::cast_possible_truncation,
                        reason = "what is after the point does not count"
                    )]
                    let pid = scanner.float()?.map(|pid| pid as i64);
                    death.pid = pid;
                }
                "nodeIpAddress" if is_text => reader.text_or_none(scanner, &mut death.ip)?,
                "errorMessage" if is_text => reader.text_or_none(scanner, &mut death.message)?,
                _ => drop(scanner.skip()?),
            }
            Ok(())
        })
        .map(drop)
    })?;
    Ok(death)
}
