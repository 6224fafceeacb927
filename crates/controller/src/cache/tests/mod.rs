//! The rules by which a store moves forward and never back.

use std::{collections::HashSet, sync::atomic::AtomicU64};

use super::{
    Cause, Entry,
    store::{Change, Store, StreamId},
};
use crate::object::{ObjectKey, ResourceVersion, Uid};

fn entry(name: &str, uid: &str, version: u64) -> Entry<u64> {
    Entry {
        key: ObjectKey::new("n", name),
        uid: uid.into(),
        version: ResourceVersion(version),
        content: 0,
        deleting: false,
        object: version,
        applied: AtomicU64::new(0),
    }
}

const ALL: StreamId = StreamId(0);

struct Fixture(Store<u64>);

impl Default for Fixture {
    fn default() -> Self {
        Self(Store::new(&[]))
    }
}

impl Fixture {
    fn watch(&mut self, uid: &str, version: u64) -> Option<Change<u64>> {
        self.0.put(entry("a", uid, version), Cause::Watch)
    }

    fn written(&mut self, uid: &str, version: u64) -> Option<Change<u64>> {
        self.0.put(entry("a", uid, version), Cause::Write)
    }

    fn watch_deleted(&mut self, uid: &str, version: u64) -> Option<Change<u64>> {
        self.0.remove(&ObjectKey::new("n", "a"), &uid.into(), ResourceVersion(version))
    }

    fn deleted(&mut self, uid: &str) -> Option<Change<u64>> {
        self.0.add_tombstone(&ObjectKey::new("n", "a"), &Uid::from(uid), ResourceVersion(u64::MAX))
    }

    fn relist(&mut self, objects: &[(&str, &str, u64)], version: u64) -> Vec<Change<u64>> {
        self.0.begin_list(ALL);
        self.finish_list(objects, version)
    }

    fn finish_list(&mut self, objects: &[(&str, &str, u64)], version: u64) -> Vec<Change<u64>> {
        let listed: HashSet<_> = objects.iter().map(|(name, ..)| ObjectKey::new("n", name)).collect();
        let mut changes: Vec<_> = objects
            .iter()
            .filter_map(|(name, uid, version)| self.0.put_listed(entry(name, uid, *version), Cause::Relist))
            .collect();
        changes.extend(self.0.end_list(ALL, &listed, ResourceVersion(version)));
        changes
    }

    /// Uid and version of what is held.
    fn held(&self) -> Option<(String, u64)> {
        self.0.get(&ObjectKey::new("n", "a")).map(|entry| (entry.uid.to_string(), entry.version.0))
    }
}

#[test]
fn a_lagging_watch_does_not_undo_a_write() {
    let mut store = Fixture::default();
    store.watch("u", 1);
    assert!(store.written("u", 5).is_some());
    for late in 2..=5 {
        assert!(store.watch("u", late).is_none());
    }
    assert_eq!(store.held(), Some(("u".to_owned(), 5)));
    assert!(store.watch("u", 6).is_some());
}

#[test]
fn a_late_response_does_not_undo_a_watch_event() {
    let mut store = Fixture::default();
    store.watch("u", 9);
    assert!(store.written("u", 5).is_none());
    assert_eq!(store.held(), Some(("u".to_owned(), 9)));
}

#[test]
fn a_late_response_does_not_restore_an_object_that_the_watch_has_deleted() {
    let mut store = Fixture::default();
    store.watch("u", 1);
    store.watch_deleted("u", 3);
    assert!(store.written("u", 2).is_none(), "the answer to a delete shows the object once more");
    assert_eq!(store.held(), None);
    assert!(store.written("v", 4).is_some(), "another incarnation is news");
    let mut listed = Fixture::default();
    listed.0.list_is_at(ALL, ResourceVersion(7));
    listed.relist(&[], 7);
    assert!(listed.written("u", 6).is_none(), "a list would have had it");
}

#[test]
fn a_deleted_object_stays_deleted_until_the_watch_has_shown_it() {
    let mut store = Fixture::default();
    store.watch("u", 1);
    assert!(store.deleted("u").is_some());
    for late in 1..9 {
        assert!(store.watch("u", late).is_none());
    }
    assert_eq!(store.held(), None);
    assert_eq!(store.0.tombstones().count(), 1);
    assert!(store.watch_deleted("u", 9).is_none(), "told already");
    assert_eq!(store.0.tombstones().count(), 0);
}

#[test]
fn a_recreated_object_survives_the_watch_event_of_its_predecessors_deletion() {
    let mut store = Fixture::default();
    store.watch("old", 1);
    store.deleted("old");
    store.written("new", 8);
    assert!(store.watch("old", 3).is_none());
    assert!(store.watch_deleted("old", 7).is_none());
    assert_eq!(store.held(), Some(("new".to_owned(), 8)));
}

#[test]
fn older_states_of_a_name_do_not_pass_a_tombstone() {
    let mut store = Fixture::default();
    store.written("second", 8);
    store.deleted("second");
    // The watch lags so far behind that it still tells of the first incarnation.
    for late in 2..5 {
        assert!(store.watch("first", late).is_none());
    }
    store.watch_deleted("first", 6);
    assert!(store.watch("second", 8).is_none());
    assert_eq!(store.held(), None);
    assert!(store.watch("third", 12).is_some());
}

#[test]
fn a_relist_removes_deleted_objects_and_keeps_newer_ones() {
    let mut store = Fixture::default();
    store.0.put(entry("gone", "u1", 3), Cause::Watch);
    store.0.put(entry("newer", "u2", 30), Cause::Write);
    store.0.put(entry("same", "u3", 4), Cause::Watch);
    store.0.put(entry("other", "u4", 5), Cause::Watch);
    let changes = store.relist(&[("same", "u3", 4), ("other", "u5", 15), ("fresh", "u6", 16)], 20);
    let told: Vec<_> = changes
        .iter()
        .map(|change| {
            let uid = |entry: &Option<std::sync::Arc<Entry<u64>>>| entry.as_ref().map(|e| e.uid.to_string());
            (uid(&change.old), uid(&change.new))
        })
        .collect();
    let some = |uid: &str| Some(uid.to_owned());
    assert_eq!(told, [(some("u4"), some("u5")), (None, some("u6")), (some("u1"), None)]);
    assert_eq!(store.0.len(), 4);
}

#[test]
fn a_list_that_began_before_a_delete_does_not_bring_the_object_back() {
    let mut store = Fixture::default();
    store.watch("u", 1);
    store.0.begin_list(ALL);
    store.deleted("u");
    store.finish_list(&[("a", "u", 1)], 5);
    assert_eq!(store.held(), None);
    // The next list began later, so what it shows is true.
    store.relist(&[], 9);
    assert_eq!(store.0.tombstones().count(), 0);
}

#[test]
fn a_wrong_tombstone_is_removed_by_the_next_list() {
    let mut store = Fixture::default();
    store.watch("u", 1);
    store.deleted("u");
    store.relist(&[("a", "u", 1)], 5);
    assert_eq!(store.held(), Some(("u".to_owned(), 1)));
}

#[test]
fn equal_contents_have_equal_checksums() {
    let (mut one, mut two) = (Fixture::default(), Fixture::default());
    one.watch("u", 1);
    one.watch("u", 7);
    two.written("u", 7);
    assert_eq!(one.0.checksum(), two.0.checksum());
    two.watch("u", 8);
    assert_ne!(one.0.checksum(), two.0.checksum());
    one.watch_deleted("u", 9);
    assert_eq!(one.0.checksum(), Fixture::default().0.checksum());
}

#[test]
fn indexes_follow_every_change() {
    fn parity(entry: &Entry<u64>) -> Vec<String> {
        vec![if entry.object.is_multiple_of(2) { "even" } else { "odd" }.to_owned()]
    }
    let mut store = Fixture::default();
    store.watch("u", 1);
    store.0.add_index("parity", parity);
    store.0.put(entry("b", "v", 3), Cause::Watch);
    let names = |store: &Fixture, key: &str| -> Vec<String> {
        let found = store.0.by_index("parity", key).unwrap();
        found.iter().map(|entry| entry.key.name().to_owned()).collect()
    };
    assert_eq!(names(&store, "odd"), ["a", "b"]);
    store.watch("u", 2);
    assert_eq!((names(&store, "odd"), names(&store, "even")), (vec!["b".into()], vec!["a".into()]));
    store.watch_deleted("u", 4);
    assert!(names(&store, "even").is_empty());
    assert!(store.0.by_index("no such index", "x").is_none());
}

#[test]
fn tombstones_are_removed_by_the_watch_and_not_added_for_unknown_objects() {
    let mut store = Fixture::default();
    store.watch("u", 1);
    store.watch_deleted("u", 2);
    assert!(store.deleted("u").is_none());
    assert_eq!(store.0.tombstones().count(), 0, "the watch has shown it already");
    store.deleted("stranger");
    assert_eq!(store.0.tombstones().count(), 0, "it never was here");
    store.watch("u", 3);
    store.deleted("u");
    assert_eq!(store.0.tombstones().count(), 1);
    store.watch_deleted("u", 4);
    assert_eq!(store.0.tombstones().count(), 0);
}

#[test]
fn a_server_restored_from_a_backup_is_authoritative() {
    let mut store = Fixture::default();
    store.watch("u", 100);
    store.0.put(entry("b", "v", 101), Cause::Watch);
    store.0.begin_list(ALL);
    store.0.list_is_at(ALL, ResourceVersion(50));
    let changes = store.finish_list(&[("a", "u", 40)], 50);
    assert_eq!(store.held(), Some(("u".to_owned(), 40)));
    assert_eq!((changes.len(), store.0.len()), (2, 1), "what the backup lacks is gone");
    assert!(store.watch("u", 51).is_some(), "and time goes on from there");
    assert!(store.watch("u", 45).is_none());
}

#[test]
fn a_late_response_does_not_restore_an_object_deleted_between_two_lists() {
    let mut store = Fixture::default();
    store.relist(&[], 3);
    store.relist(&[], 9);
    assert!(store.written("u", 5).is_none(), "created and deleted between two watches");
    assert!(store.written("u", 10).is_some());
}

#[test]
fn streams_of_namespaces_progress_independently() {
    let mut store = Store::new(&["m".to_owned(), "n".to_owned()]);
    let (m, n) = (StreamId(0), StreamId(1));
    let other = |name: &str, version| Entry { key: ObjectKey::new("m", name), ..entry(name, "m", version) };
    store.put(entry("a", "u", 9), Cause::Watch);
    assert!(store.put(other("a", 4), Cause::Write).is_some(), "the watch of m has not come so far");
    assert!(store.put(entry("b", "u", 4), Cause::Write).is_none(), "the watch of n has");
    store.add_tombstone(&ObjectKey::new("n", "a"), &Uid::from("u"), ResourceVersion(u64::MAX));
    store.begin_list(m);
    assert!(store.end_list(m, &HashSet::new(), ResourceVersion(20)).len() == 1, "what m lacks is gone");
    assert_eq!(store.tombstones().count(), 1, "a list of m says nothing of n");
    store.begin_list(n);
    assert!(store.end_list(n, &HashSet::new(), ResourceVersion(20)).is_empty());
    assert_eq!(store.tombstones().count(), 0);
    store.put(other("a", 30), Cause::Watch);
    assert_eq!(store.clear(n).len(), 0);
    assert_eq!(store.clear(m).len(), 1);
}
