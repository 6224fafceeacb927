//! Tasks, one record for each attempt.

use std::borrow::Cow;

use super::decode::{Reader, members, moment, quoted_integer, set, transition};
use super::strings::Symbol;
use super::time::known;
use super::{Transition, extend_unique, merge};
use crate::json::{Fault, Scanner};

/// The kind of tasks that are method calls.
const ACTOR_TASK: &str = "ACTOR_TASK";

/// One attempt of a task.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) id: Symbol,
    pub(crate) attempt: i64,
    pub(crate) job: Symbol,
    pub(crate) definition: Definition,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) log: Option<Box<LogInfo>>,
    pub(crate) profile: Option<Box<Profile>>,
}

/// What a definition event says.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    pub(crate) kind: Symbol,
    pub(crate) language: Symbol,
    pub(crate) name: Symbol,
    pub(crate) function: Symbol,
    pub(crate) actor: Symbol,
    pub(crate) parent: Symbol,
    pub(crate) placement_group: Symbol,
    pub(crate) runtime_env: Symbol,
    pub(crate) call_site: Option<Symbol>,
    /// JSON of an object.
    pub(crate) resources: Option<Symbol>,
    /// JSON of an object.
    pub(crate) label_selector: Option<Symbol>,
}

/// What lifecycle events say.
#[derive(Debug, Clone)]
pub(crate) struct Lifecycle {
    pub(crate) transitions: Vec<Transition>,
    /// The state that a definition event names. It counts until a lifecycle event comes.
    told_state: Option<Symbol>,
    pub(crate) node: Symbol,
    pub(crate) worker: Symbol,
    pub(crate) pid: i64,
    pub(crate) error: Option<(Symbol, Symbol)>,
    pub(crate) is_debugger_paused: Option<bool>,
    pub(crate) actor_repr: Symbol,
    pub(crate) created: Option<i64>,
    pub(crate) started: Option<i64>,
    pub(crate) ended: Option<i64>,
}

/// Where the output of a task is.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogInfo {
    pub(crate) stdout: Stream,
    pub(crate) stderr: Stream,
}

/// A range of bytes of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stream {
    pub(crate) file: String,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// What profile events say.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) component: Symbol,
    pub(crate) component_kind: Symbol,
    pub(crate) node_ip: Symbol,
    pub(crate) function: Symbol,
    pub(crate) events: Vec<ProfileEvent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProfileEvent {
    pub(crate) name: Symbol,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) extra: Symbol,
}

impl Default for Definition {
    fn default() -> Self {
        let none = Symbol::EMPTY;
        Self {
            kind: none,
            language: none,
            name: none,
            function: none,
            actor: none,
            parent: none,
            placement_group: none,
            runtime_env: none,
            call_site: None,
            resources: None,
            label_selector: None,
        }
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        let none = Symbol::EMPTY;
        Self {
            transitions: Vec::new(),
            told_state: None,
            node: none,
            worker: none,
            pid: 0,
            error: None,
            is_debugger_paused: None,
            actor_repr: none,
            created: None,
            started: None,
            ended: None,
        }
    }
}

/// States that set times, interned once for a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct States {
    pub(crate) pending_args: Symbol,
    pub(crate) running: Symbol,
    pub(crate) finished: Symbol,
    pub(crate) failed: Symbol,
}

impl Task {
    pub(crate) fn new(id: Symbol, attempt: i64) -> Self {
        Self {
            id,
            attempt,
            job: Symbol::EMPTY,
            definition: Definition::default(),
            lifecycle: Lifecycle::default(),
            log: None,
            profile: None,
        }
    }

    pub(crate) fn state(&self) -> Symbol {
        let lifecycle = &self.lifecycle;
        lifecycle
            .told_state
            .unwrap_or_else(|| lifecycle.transitions.last().map_or(Symbol::EMPTY, |last| last.state))
    }

    /// The function that was profiled; if none was, that of the definition.
    pub(crate) fn function(&self) -> Symbol {
        match &self.profile {
            Some(profile) if !profile.function.is_empty() => profile.function,
            _ => self.definition.function,
        }
    }

    pub(super) fn define(&mut self, event: Payload) {
        self.job = event.job;
        self.definition = event.definition;
        // What lifecycle events said stays.
        if self.lifecycle.transitions.is_empty() {
            self.lifecycle = event.lifecycle;
        } else {
            self.lifecycle.told_state = None;
        }
        if self.log.is_none() {
            self.log = event.log.map(Box::new);
        }
    }

    pub(super) fn advance(&mut self, event: Payload, states: States) {
        if let Some(added) = event.log {
            let log = self.log.get_or_insert_default();
            log.stdout.update(added.stdout);
            log.stderr.update(added.stderr);
        }
        if !event.job.is_empty() {
            self.job = event.job;
        }
        let event = event.lifecycle;
        if event.transitions.is_empty() {
            return;
        }
        let lifecycle = &mut self.lifecycle;
        if !event.node.is_empty() {
            lifecycle.node = event.node;
        }
        if !event.worker.is_empty() {
            lifecycle.worker = event.worker;
        }
        if event.pid != 0 {
            lifecycle.pid = event.pid;
        }
        lifecycle.error = event.error;
        lifecycle.is_debugger_paused = event.is_debugger_paused;
        lifecycle.actor_repr = event.actor_repr;
        lifecycle.told_state = None;
        merge(&mut lifecycle.transitions, event.transitions, |it| *it);
        for transition in &lifecycle.transitions {
            // The first event that was read decides when a task was created and started, the last state when it ended.
            let time = known(transition.time);
            if transition.state == states.pending_args {
                lifecycle.created = lifecycle.created.or(time);
            } else if transition.state == states.running {
                lifecycle.started = lifecycle.started.or(time);
            } else if transition.state == states.finished || transition.state == states.failed {
                lifecycle.ended = time;
            }
        }
    }

    pub(super) fn add_profile(&mut self, event: ProfilePayload) {
        if self.job.is_empty() {
            self.job = event.job;
        }
        let mut added = event.profile;
        let events = std::mem::take(&mut added.events);
        let profile = match &mut self.profile {
            // The component is that of the first event.
            Some(profile) => {
                if !added.function.is_empty() {
                    profile.function = added.function;
                }
                profile
            }
            none => none.insert(Box::new(added)),
        };
        extend_unique(&mut profile.events, events, |it| (it.name, it.start, it.end));
    }
}

impl Stream {
    /// Takes what an event knows. Start and end come in events of their own; a file comes with its start.
    fn update(&mut self, added: Self) {
        if !added.file.is_empty() {
            self.file = added.file;
            self.start = added.start;
        } else if added.start != 0 {
            self.start = added.start;
        }
        if added.end != 0 {
            self.end = added.end;
        }
    }
}

/// The payload of a definition or lifecycle event. Either may name the members of both, and the types of all of them count.
pub(super) struct Payload {
    pub(super) id: Symbol,
    pub(super) attempt: i64,
    job: Symbol,
    definition: Definition,
    lifecycle: Lifecycle,
    log: Option<LogInfo>,
}

impl Payload {
    pub(super) fn read(
        reader: &mut Reader<'_>,
        scanner: &mut Scanner<'_>,
        is_actor_task: bool,
    ) -> Result<Self, Fault> {
        let none = Symbol::EMPTY;
        let (mut id, mut attempt, mut job) = (none, 0, none);
        let (mut method, mut method_function) = (none, none);
        let (mut state, mut log) = (none, None);
        let mut it = Definition::default();
        let mut life = Lifecycle::default();
        members!(scanner, {
            "taskid" => |scanner: &mut _| reader.id(scanner, &mut id),
            "taskattempt" => |scanner: &mut Scanner<'_>| scanner.integer().map(|value| set(&mut attempt, value)),
            "jobid" => |scanner: &mut _| reader.id(scanner, &mut job),
            "tasktype" => |scanner: &mut _| reader.text(scanner, &mut it.kind),
            "language" => |scanner: &mut _| reader.text(scanner, &mut it.language),
            "parenttaskid" => |scanner: &mut _| reader.id(scanner, &mut it.parent),
            "placementgroupid" => |scanner: &mut _| reader.id(scanner, &mut it.placement_group),
            "serializedruntimeenv" => |scanner: &mut _| reader.text(scanner, &mut it.runtime_env),
            "callsite" => |scanner: &mut _| reader.text_or_none(scanner, &mut it.call_site),
            "requiredresources" => |scanner: &mut _| reader.numbers(scanner, &mut it.resources),
            "labelselector" => |scanner: &mut _| reader.selector(scanner, &mut it.label_selector),
            "refids" => |scanner: &mut Scanner<'_>| scanner.object_or_null(|scanner, _| scanner.text().map(drop)),
            "actorid" => |scanner: &mut _| reader.id(scanner, &mut it.actor),
            "taskname" => |scanner: &mut _| reader.text(scanner, &mut it.name),
            "taskfunc" => |scanner: &mut _| reader.function(scanner, &mut it.function),
            "actortaskname" => |scanner: &mut _| reader.text(scanner, &mut method),
            "actorfunc" => |scanner: &mut _| reader.function(scanner, &mut method_function),
            "functionname" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
            "profile_data" => profile_data,
            "statetransitions" => |scanner: &mut Scanner<'_>| {
                life.transitions.clear();
                scanner.array_or_null(|scanner| {
                    life.transitions.push(transition(reader, scanner)?);
                    Ok(())
                })
            },
            "nodeid" => |scanner: &mut _| reader.id(scanner, &mut life.node),
            "workerid" => |scanner: &mut _| reader.id(scanner, &mut life.worker),
            "workerpid" => |scanner: &mut Scanner<'_>| scanner.integer().map(|value| set(&mut life.pid, value)),
            "rayerrorinfo" => |scanner: &mut Scanner<'_>| -> Result<(), Fault> {
                life.error = None;
                if scanner.peek()? == b'n' {
                    return scanner.skip().map(drop);
                }
                let (mut kind, mut message) = (none, none);
                members!(scanner, {
                    "errortype" => |scanner: &mut _| reader.text(scanner, &mut kind),
                    "errormessage" => |scanner: &mut _| reader.text(scanner, &mut message),
                })?;
                life.error = Some((kind, message));
                Ok(())
            },
            "isdebuggerpaused" => |scanner: &mut Scanner<'_>| scanner.boolean().map(|value| life.is_debugger_paused = value),
            "actorreprname" => |scanner: &mut _| reader.text(scanner, &mut life.actor_repr),
            "taskloginfo" => |scanner: &mut Scanner<'_>| -> Result<(), Fault> {
                log = None;
                if scanner.peek()? == b'n' {
                    return scanner.skip().map(drop);
                }
                log = Some(log_info(scanner)?);
                Ok(())
            },
            "state" => |scanner: &mut _| reader.text(scanner, &mut state),
            "creationtime" => |scanner: &mut _| moment(scanner).map(|time| life.created = time.and_then(known)),
            "starttime" => |scanner: &mut _| moment(scanner).map(|time| life.started = time.and_then(known)),
            "endtime" => |scanner: &mut _| moment(scanner).map(|time| life.ended = time.and_then(known)),
        })?;
        life.told_state = Some(state);
        if is_actor_task {
            it.kind = reader.strings.intern(ACTOR_TASK);
        }
        // The kind decides which names count, whichever event carries them.
        if reader.strings.get(it.kind) == ACTOR_TASK {
            (it.name, it.function) = (method, method_function);
        }
        Ok(Self { id, attempt, job, definition: it, lifecycle: life, log })
    }

    /// Whether the event says nothing of the task's life.
    pub(super) fn is_lifeless(&self) -> bool {
        self.lifecycle.transitions.is_empty() && self.log.is_none()
    }
}

/// Checks a member that upstream's record of tasks has and no event of Ray.
fn profile_data(scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    members!(scanner, {
        "component_id" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
        "component_type" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
        "node_ip_address" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
        "events" => |scanner: &mut Scanner<'_>| scanner.array_or_null(|scanner| members!(scanner, {
            "event_name" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
            "start_time" => |scanner: &mut Scanner<'_>| scanner.integer().map(drop),
            "end_time" => |scanner: &mut Scanner<'_>| scanner.integer().map(drop),
            "extra_data" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
        })),
    })
}

fn log_info(scanner: &mut Scanner<'_>) -> Result<LogInfo, Fault> {
    let mut log = LogInfo::default();
    let (out, err) = (&mut log.stdout, &mut log.stderr);
    members!(scanner, {
        "stdoutfile" => |scanner: &mut Scanner<'_>| scanner.text().map(|it| set(&mut out.file, it.map(Into::into))),
        "stderrfile" => |scanner: &mut Scanner<'_>| scanner.text().map(|it| set(&mut err.file, it.map(Into::into))),
        "stdoutstart" => |scanner: &mut _| quoted_integer(scanner).map(|it| set(&mut out.start, it)),
        "stdoutend" => |scanner: &mut _| quoted_integer(scanner).map(|it| set(&mut out.end, it)),
        "stderrstart" => |scanner: &mut _| quoted_integer(scanner).map(|it| set(&mut err.start, it)),
        "stderrend" => |scanner: &mut _| quoted_integer(scanner).map(|it| set(&mut err.end, it)),
    })?;
    Ok(log)
}

/// The payload of a profile event.
pub(super) struct ProfilePayload {
    pub(super) id: Symbol,
    pub(super) attempt: i64,
    job: Symbol,
    profile: Profile,
}

impl ProfilePayload {
    pub(super) fn read(reader: &mut Reader<'_>, scanner: &mut Scanner<'_>) -> Result<Self, Fault> {
        let none = Symbol::EMPTY;
        let (mut id, mut attempt, mut job) = (none, 0, none);
        let mut has_events = false;
        let mut it = Profile {
            component: none,
            component_kind: none,
            node_ip: none,
            function: none,
            events: Vec::new(),
        };
        members!(scanner, {
            "taskid" => |scanner: &mut _| reader.id(scanner, &mut id),
            "attemptnumber" => |scanner: &mut Scanner<'_>| scanner.integer().map(|value| set(&mut attempt, value)),
            "jobid" => |scanner: &mut _| reader.id(scanner, &mut job),
            "profileevents" => |scanner: &mut Scanner<'_>| members!(scanner, {
                "componentid" => |scanner: &mut _| reader.id(scanner, &mut it.component),
                "componenttype" => |scanner: &mut _| reader.text(scanner, &mut it.component_kind),
                "nodeipaddress" => |scanner: &mut _| reader.text(scanner, &mut it.node_ip),
                "events" => |scanner: &mut Scanner<'_>| scanner.array_or_null(|scanner| {
                    let mut event = ProfileEvent { name: none, start: 0, end: 0, extra: none };
                    let (mut start, mut end) = (None, None);
                    members!(scanner, {
                        "eventname" => |scanner: &mut _| reader.text(scanner, &mut event.name),
                        "starttime" => |scanner: &mut Scanner<'_>| scanner.text().map(|it| start = whole(it)),
                        "endtime" => |scanner: &mut Scanner<'_>| scanner.text().map(|it| end = whole(it)),
                        "extradata" => |scanner: &mut _| reader.text(scanner, &mut event.extra),
                    })?;
                    has_events = true;
                    // One without its times is left out, the others count.
                    if let (Some(start), Some(end)) = (start, end) {
                        it.events.push(ProfileEvent { start, end, ..event });
                    }
                    Ok(())
                }),
            }),
        })?;
        if !has_events {
            return Err(Fault::Type);
        }
        for event in &it.events {
            let name = reader.strings.get(event.name);
            if let Some(function) = name.strip_prefix("task::")
                && extra_text(reader.strings.get(event.extra), "name").is_some()
            {
                let function = function.to_owned();
                it.function = reader.strings.intern(&function);
            }
        }
        Ok(Self { id, attempt, job, profile: it })
    }
}

/// A whole number in a string; `None` if it is something else.
fn whole(text: Option<Cow<'_, str>>) -> Option<i64> {
    text?.parse().ok()
}

/// A string of the JSON object that a profile event carries as text; `None` if it is absent or empty.
pub(crate) fn extra_text(extra: &str, wanted: &str) -> Option<String> {
    let mut found = None;
    let mut scanner = Scanner::new(extra.as_bytes());
    let read = scanner.object(|scanner, name| {
        if name == wanted {
            // Of several, the last one counts, whatever it is.
            found = None;
            if scanner.peek()? == b'"' {
                found = scanner.text()?;
                return Ok(());
            }
        }
        scanner.skip().map(drop)
    });
    read.and_then(|()| scanner.end()).ok()?;
    found.filter(|text| !text.is_empty()).map(Into::into)
}
