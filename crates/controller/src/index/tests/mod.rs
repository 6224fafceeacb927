use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::{
    Assumptions, Index, Refusal, Update, Write, WriteOutcome,
    inbox::{Inbox, Message, SourceId},
    slots::{Failure, Slots, Target},
};
use crate::{
    cache::Entry,
    metrics::{Metrics, MetricsRegistry},
    object::{ApiKind, ObjectKey, ResourceVersion},
    plan::Action,
    queue::Queue,
};

struct Nothing;

impl Index for Nothing {
    type Event = u32;
    type Decision = u32;

    const NAME: &'static str = "nothing";

    fn apply(&mut self, _: u32, _: Timestamp) {}

    fn decide(&mut self, _: Timestamp, _: usize) -> Vec<Write<u32>> {
        Vec::new()
    }

    fn outcome(&mut self, _: u32, _: WriteOutcome, _: Timestamp) {}

    fn empty(&self) -> Self {
        Self
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::cluster(name)
}

#[test]
fn the_inbox_keeps_order_and_only_the_newest_state_of_each_object() {
    let inbox = Inbox::<Nothing>::new();
    let (one, other) = (SourceId(0), SourceId(1));
    inbox.event(one, key("a"), 1);
    inbox.event(one, key("b"), 2);
    inbox.event(other, key("a"), 3);
    inbox.send(Message::Outcome(4, WriteOutcome::Conflict));
    for number in 100..200 {
        inbox.event(one, key("a"), number);
    }
    let order: Vec<_> = inbox
        .drain()
        .map(|message| match message {
            Message::Event(number) | Message::Outcome(number, _) => number,
            Message::Read(_) | Message::Audit(_) => 0,
        })
        .collect();
    assert_eq!(order, [2, 3, 4, 199]);
    assert!(!inbox.has_news());
    inbox.event(one, key("a"), 5);
    assert_eq!(inbox.drain().count(), 1, "what was taken out is not remembered");
}

fn write(name: &str, value: u32) -> Write<u32> {
    let kind = ApiKind::of::<k8s_openapi::api::core::v1::Namespace>();
    Write::new(Action::merge(kind, key(name), json!({ "value": value })), value)
}

const STRAGGLER: Duration = Duration::from_mins(1);

/// Slots, and the target of an object.
fn slots() -> (Slots<u32>, impl Fn(&str) -> Target) {
    let queue = Queue::new(Metrics::register(&MetricsRegistry::new()), Some(1));
    let lane = queue.add_lane("test", 1);
    (Slots::new(STRAGGLER), move |name| (lane, key(name)))
}

fn refused() -> WriteOutcome {
    WriteOutcome::Refused(Refusal { code: 422, ..Refusal::default() })
}

fn passing(unknown: bool) -> Failure {
    Failure::Passing { unknown, last: false }
}

#[test]
fn a_newer_decision_replaces_one_that_waits_but_not_one_that_is_inflight() {
    let ((mut slots, target), now) = (slots(), Instant::now());
    assert_eq!(slots.submit(target("a"), write("a", 1), now), (None, false));
    let (replaced, _) = slots.submit(target("a"), write("a", 2), now);
    assert_eq!(replaced, Some((1, WriteOutcome::Superseded)));
    let inflight = slots.take(&target("a")).unwrap();
    assert_eq!(inflight.write.decision, 2);
    assert_eq!(slots.submit(target("a"), write("a", 3), now), (None, false));
    assert_eq!(slots.counts().outstanding, 2);
    slots.succeed(&target("a"));
    assert_eq!(slots.take(&target("a")).unwrap().write.decision, 3);
    slots.succeed(&target("a"));
    assert_eq!((slots.counts().outstanding, slots.counts().load), (0, 0));
}

#[test]
fn attempts_are_repeated_until_the_last_and_then_lost() {
    let ((mut slots, target), now) = (slots(), Instant::now());
    slots.submit(target("a"), write("a", 1), now);
    let pending = slots.take(&target("a")).unwrap();
    assert_eq!(slots.fail(&target("a"), pending, passing(true), now), None);
    let pending = slots.take(&target("a")).unwrap();
    assert_eq!(pending.attempts, 1);
    let last = Failure::Passing { unknown: false, last: true };
    assert_eq!(slots.fail(&target("a"), pending, last, now), Some((1, WriteOutcome::Lost)));
    assert_eq!(slots.counts().outstanding, 0);
}

#[test]
fn a_refusal_is_final_only_when_no_earlier_attempt_can_take_effect() {
    for (after, outcome) in [(Duration::ZERO, WriteOutcome::Lost), (STRAGGLER, refused())] {
        let ((mut slots, target), now) = (slots(), Instant::now());
        slots.submit(target("a"), write("a", 1), now);
        let pending = slots.take(&target("a")).unwrap();
        slots.fail(&target("a"), pending, passing(true), now);
        let pending = slots.take(&target("a")).unwrap();
        let report = slots.fail(&target("a"), pending, Failure::Final(refused()), now + after);
        assert_eq!(report, Some((1, outcome)), "{after:?}");
    }
}

#[test]
fn what_replaces_an_attempt_of_unknown_effect_does_not_make_it_harmless() {
    for (unknown, outcome) in [(true, WriteOutcome::Lost), (false, WriteOutcome::Superseded)] {
        let ((mut slots, target), now) = (slots(), Instant::now());
        slots.submit(target("a"), write("a", 1), now);
        let pending = slots.take(&target("a")).unwrap();
        slots.fail(&target("a"), pending, passing(unknown), now);
        let (replaced, _) = slots.submit(target("a"), write("a", 2), now);
        assert_eq!(replaced, Some((1, outcome)), "unknown: {unknown}");
    }
}

#[test]
fn a_rejected_write_is_held_back_without_taking_room_until_it_changes() {
    let ((mut slots, target), now) = (slots(), Instant::now());
    slots.submit(target("a"), write("a", 1), now);
    let pending = slots.take(&target("a")).unwrap();
    assert_eq!(slots.fail(&target("a"), pending, Failure::Final(refused()), now), Some((1, refused())));
    let (_, at_once) = slots.submit(target("a"), write("a", 1), now);
    assert!(!at_once, "the same write waits for the backoff");
    assert_eq!((slots.counts().outstanding, slots.counts().load), (1, 0));
    let (_, at_once) = slots.submit(target("a"), write("a", 2), now);
    assert!(at_once, "another write does not");
    assert_eq!((slots.counts().outstanding, slots.counts().load), (1, 1));
}

#[test]
fn an_object_is_remembered_while_an_attempt_may_take_effect() {
    let ((mut slots, target), now) = (slots(), Instant::now());
    slots.submit(target("a"), write("a", 1), now);
    let pending = slots.take(&target("a")).unwrap();
    let last = Failure::Passing { unknown: true, last: true };
    slots.fail(&target("a"), pending, last, now);
    assert_eq!(slots.expire(&target("a"), now), Some(STRAGGLER));
    assert!(slots.is_unknown(&target("a"), now));
    assert_eq!(slots.expire(&target("a"), now + STRAGGLER), None);
    assert!(!slots.is_unknown(&target("a"), now));
}

fn update(version: u64) -> Update<()> {
    let mut entry = Entry::new(key("a"), ());
    entry.version = ResourceVersion(version);
    Update::Applied(Arc::new(entry))
}

#[test]
fn an_assumption_lasts_until_its_outcome_is_known() {
    type Happening = fn(&mut Assumptions<u32>);
    let cases: [(&str, Happening, bool); 9] = [
        ("the state it was decided on", |assumed| _ = assumed.observe(&update(5)), true),
        ("a newer state", |assumed| _ = assumed.observe(&update(6)), false),
        ("deletion", |assumed| _ = assumed.observe(&Update::<()>::Deleted(key("a"))), false),
        ("written, not seen yet", |assumed| tell(assumed, 5, &written(7)), true),
        ("written, nothing changed", |assumed| tell(assumed, 5, &written(5)), false),
        ("conflict", |assumed| tell(assumed, 5, &WriteOutcome::Conflict), false),
        ("conflict of an older decision", |assumed| tell(assumed, 4, &WriteOutcome::Conflict), true),
        ("refused", |assumed| tell(assumed, 5, &refused()), false),
        ("superseded", |assumed| tell(assumed, 5, &WriteOutcome::Superseded), true),
    ];
    for (name, happens, stays) in cases {
        let mut assumed = Assumptions::default();
        assumed.assume(key("a"), ResourceVersion(5), 1);
        happens(&mut assumed);
        assert_eq!(assumed.contains(&key("a")), stays, "{name}");
        assert_eq!(assumed.take_lost().count(), 0, "{name}");
    }
}

#[test]
fn what_is_lost_stays_assumed_and_is_sent_again() {
    let mut assumed = Assumptions::default();
    assumed.assume(key("a"), ResourceVersion(5), 1);
    tell(&mut assumed, 5, &WriteOutcome::Lost);
    assert_eq!(assumed.get(&key("a")), Some(&1));
    assert_eq!(assumed.take_lost().collect::<Vec<_>>(), [key("a")]);
    tell(&mut assumed, 5, &WriteOutcome::Lost);
    assumed.observe(&update(6));
    assert_eq!(assumed.take_lost().count(), 0, "the watch told");
}

fn tell(assumed: &mut Assumptions<u32>, base: u64, outcome: &WriteOutcome) {
    assumed.outcome(&key("a"), ResourceVersion(base), outcome);
}

fn written(version: u64) -> WriteOutcome {
    WriteOutcome::Written { version: Some(ResourceVersion(version)) }
}
