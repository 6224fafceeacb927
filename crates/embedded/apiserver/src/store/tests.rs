use serde_json::json;

use super::*;

fn write(bucket: &str, key: &str, expect: Expect, value: Option<&str>) -> Write {
    Write {
        bucket: bucket.into(),
        key: key.into(),
        expect,
        put: value.map(|value| {
            let object = json!({"metadata": {"name": "x", "labels": {"a": value}}, "data": {"v": value}});
            Put::new("v1".into(), &object, 0)
        }),
        parents: Vec::new(),
    }
}

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("quintet-store-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

#[tokio::test]
async fn a_write_needs_the_state_it_is_based_on() {
    let store = Store::in_memory();
    let first = store.write(write("b", "k", Expect::Absent, Some("1"))).await.unwrap();
    assert_eq!(
        store.write(write("b", "k", Expect::Absent, Some("2"))).await.unwrap_err(),
        WriteError::Conflict
    );
    let second = store.write(write("b", "k", Expect::Version(first.rv), Some("2"))).await.unwrap();
    assert!(second.rv > first.rv);
    let stale = store.write(write("b", "k", Expect::Version(first.rv), None)).await;
    assert_eq!(stale.unwrap_err(), WriteError::Conflict);
    store.write(write("b", "k", Expect::Version(second.rv), None)).await.unwrap();
    assert!(store.get("b", "k").is_none());
}

#[tokio::test]
async fn the_past_can_be_listed() {
    let store = Store::in_memory();
    let a = store.write(write("b", "n/a", Expect::Absent, Some("1"))).await.unwrap();
    let b = store.write(write("b", "n/b", Expect::Absent, Some("1"))).await.unwrap();
    store.write(write("b", "n/a", Expect::Version(a.rv), Some("2"))).await.unwrap();
    store.write(write("b", "n/b", Expect::Version(b.rv), None)).await.unwrap();
    store.write(write("b", "n/c", Expect::Absent, Some("1"))).await.unwrap();
    let then = store.list("b", "n/", None, Some(b.rv)).unwrap().0;
    let seen: Vec<_> = then.iter().map(|(key, entry)| (key.as_ref(), entry.rv)).collect();
    assert_eq!(seen, [("n/a", a.rv), ("n/b", b.rv)]);
    let now: Vec<_> =
        store.list("b", "n/", Some("n/a"), None).unwrap().0.into_iter().map(|(k, _)| k).collect();
    assert_eq!(now, [Arc::from("n/c")]);
}

#[tokio::test]
async fn what_was_written_is_there_after_a_restart() {
    let path = directory("restart");
    let last = {
        let store = Arc::new(Store::open(&path).unwrap());
        let writes = (0..200).map(|n| {
            let store = Arc::clone(&store);
            async move { store.write(write("b", &format!("k{n}"), Expect::Absent, Some("1"))).await }
        });
        futures::future::try_join_all(writes).await.unwrap();
        let k0 = store.get("b", "k0").unwrap();
        store.write(write("b", "k0", Expect::Version(k0.rv), None)).await.unwrap();
        store.version()
    };
    {
        let store = Store::open(&path).unwrap();
        assert_eq!(store.version(), last);
        assert_eq!(store.count("b"), 199);
        assert_eq!(store.get("b", "k7").unwrap().head.label("a"), Some("1"));
        // Watches resume across the restart.
        assert_eq!(store.events_after("b", last - 1, 10).unwrap().0.len(), 1);
        let Err(StoreError::InUse { owner, .. }) = Store::open(&path) else { panic!("opened twice") };
        assert_eq!(owner, std::process::id().to_string());
    }
    std::fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn a_torn_end_is_cut_off() {
    let path = directory("torn");
    {
        let store = Store::open(&path).unwrap();
        store.write(write("b", "k", Expect::Absent, Some("1"))).await.unwrap();
    }
    let log = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
    let log = log.into_iter().find(|path| path.to_string_lossy().contains("log-")).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    let whole = bytes.len();
    bytes.extend_from_slice(&bytes.clone()[..whole - 3]);
    std::fs::write(&log, &bytes).unwrap();
    let rv = {
        let store = Store::open(&path).unwrap();
        assert_eq!(store.count("b"), 1);
        store.write(write("b", "k2", Expect::Absent, Some("1"))).await.unwrap().rv
    };
    let store = Store::open(&path).unwrap();
    assert_eq!(store.get("b", "k2").unwrap().rv, rv);
    std::fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn damage_in_the_middle_throws_nothing_away() {
    let path = directory("damage");
    {
        let store = Store::open(&path).unwrap();
        for n in 0..10 {
            store.write(write("b", &format!("k{n}"), Expect::Absent, Some("1"))).await.unwrap();
        }
    }
    let log = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
    let log = log.into_iter().find(|path| path.to_string_lossy().contains("log-")).unwrap();
    let whole = std::fs::read(&log).unwrap();
    for flipped in [0, 5, 9, 40] {
        let mut bytes = whole.clone();
        bytes[flipped] ^= 0x10;
        std::fs::write(&log, &bytes).unwrap();
        assert!(matches!(Store::open(&path), Err(StoreError::Damaged { .. })), "byte {flipped}");
        assert_eq!(std::fs::read(&log).unwrap(), bytes, "it is left as it is");
    }
    // The last batch was perhaps never acknowledged.
    let mut bytes = whole.clone();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    assert_eq!(Store::open(&path).unwrap().count("b"), 9);
    let aside = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
    let aside = aside.into_iter().find(|path| path.to_string_lossy().contains("cut-")).unwrap();
    assert!(
        whole.starts_with(&std::fs::read(&log).unwrap()) && bytes.ends_with(&std::fs::read(aside).unwrap())
    );
    std::fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn snapshots_replace_the_log() {
    let path = directory("snapshot");
    let big = "x".repeat(200_000);
    let mut last = 0;
    {
        let store = Store::open(&path).unwrap();
        for round in 0..120 {
            let expect = if round == 0 { Expect::Absent } else { Expect::Version(last) };
            last = store.write(write("b", "k", expect, Some(&big))).await.unwrap().rv;
        }
    }
    let bytes: u64 = std::fs::read_dir(&path).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < 50 << 20, "{bytes} bytes for one small object");
    let store = Store::open(&path).unwrap();
    assert_eq!(store.get("b", "k").unwrap().rv, last);
    assert_eq!(store.version(), last);
    assert!(store.events_after("b", 1, 10).is_err());
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn an_object_is_spliced_back_together() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": "x", "resourceVersion": "3", "uid": "u"}});
    let put = Put::new("v1".into(), &object, 0);
    let entry = Entry { rv: 9, version: put.version, body: put.body, head: put.head, epoch: 0 };
    let mut bytes = Vec::new();
    entry.write_json(&mut bytes, Some(("v1", "ConfigMap")));
    let back: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let mut expected = object;
    expected["metadata"]["resourceVersion"] = "9".into();
    assert_eq!(back, expected);
    assert_eq!(entry.to_value("v1", "ConfigMap"), expected);
}

#[tokio::test]
async fn nothing_is_written_where_it_would_have_no_home() {
    let path = directory("homes");
    for store in [Store::in_memory(), Store::open(&path).unwrap()] {
        let missing_parent = || Write {
            parents: vec![("homes".into(), "home".into())],
            ..write("b", "k", Expect::Absent, Some("1"))
        };
        assert_eq!(store.write(missing_parent()).await.unwrap_err(), WriteError::MissingParent);
        let home = store.write(write("homes", "home", Expect::Absent, Some("1"))).await.unwrap();
        let leaving = json!({"metadata": {"name": "home", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let leave = Write {
            put: Some(Put::new("v1".into(), &leaving, 0)),
            ..write("homes", "home", Expect::Version(home.rv), None)
        };
        // Both at once: the second must see the first, though it is not published yet.
        let (left, written) = tokio::join!(store.write(leave), store.write(missing_parent()));
        assert!(left.is_ok());
        assert_eq!(written.unwrap_err(), WriteError::MissingParent);
    }
    let _ = std::fs::remove_dir_all(path);
}

/// A new object with a body that many share.
fn large(bucket: &str, key: &str, body: &bytes::Bytes) -> Write {
    let put = Put { version: "v1".into(), body: body.clone(), head: Head::default(), epoch: 0 };
    Write { put: Some(put), ..write(bucket, key, Expect::Absent, None) }
}

#[tokio::test]
async fn frames_of_large_objects_count_in_the_history() {
    let store = Store::in_memory();
    let body = vec![b'x'; 1 << 20].into();
    for n in 0..200 {
        let entry = store.write(large("b", &format!("k{n}"), &body)).await.unwrap();
        // What the first watcher does.
        let (events, _) = store.events_after("b", entry.rv - 1, 1).unwrap();
        events[0].frame.get_or_init(|| entry.body.clone());
        let state = store.shared.state.read();
        let history = &state.bucket("b").unwrap().history;
        assert!(history.resident() <= history.bytes(), "event {n} holds more than is counted");
        assert!(history.bytes() <= history::BYTES_AT_MOST, "event {n}: {}", history.bytes());
    }
}

#[tokio::test]
async fn histories_of_many_kinds_are_bounded_together() {
    let store = Store::in_memory();
    let body = vec![b'x'; 8 << 20].into();
    for n in 0..120 {
        store.write(large(&format!("b{}", n % 10), &format!("k{n}"), &body)).await.unwrap();
    }
    let state = store.shared.state.read();
    let total: usize = state.buckets().map(|(_, bucket)| bucket.history.bytes()).sum();
    assert!(total <= 256 << 20, "{total}");
    assert!(total > 128 << 20, "{total}");
}

#[tokio::test(start_paused = true)]
async fn changes_are_forgotten_when_they_are_old_however_few() {
    let store = Store::in_memory();
    let first = store.write(write("b", "k1", Expect::Absent, Some("1"))).await.unwrap();
    let second = store.write(write("b", "k2", Expect::Absent, Some("1"))).await.unwrap();
    store.write(write("quiet", "k", Expect::Absent, Some("1"))).await.unwrap();
    tokio::time::advance(history::AGE_AT_MOST + std::time::Duration::from_secs(1)).await;
    let third = store.write(write("b", "k3", Expect::Absent, Some("1"))).await.unwrap();
    assert_eq!(store.events_after("b", first.rv, 10).unwrap_err(), TooOld { oldest: second.rv });
    assert_eq!(store.events_after("b", second.rv, 10).unwrap().0.len(), 1);
    // Whoever has seen the last change can go on, however long ago that was.
    store.expire_histories();
    tokio::time::advance(history::AGE_AT_MOST * 2).await;
    store.expire_histories();
    let state = store.shared.state.read();
    assert!(state.buckets().all(|(_, bucket)| bucket.history.bytes() == 0));
    drop(state);
    assert_eq!(store.events_after("b", third.rv, 10).unwrap().0.len(), 0);
}

/// A store with a log of many batches, closed again.
async fn written(path: &Path, count: usize) {
    let store = Store::open(path).unwrap();
    for index in 0..count {
        store.write(write("b", &format!("k{index}"), Expect::Absent, Some("v"))).await.unwrap();
    }
}

fn log_of(path: &Path) -> PathBuf {
    path.join("log-00000000000000000002")
}

/// Where each batch of a log begins, and its end.
fn batches(log: &[u8]) -> Vec<usize> {
    let mut begins = vec![0];
    while let Some(header) = log.get(begins[begins.len() - 1]..).and_then(|rest| rest.first_chunk::<4>()) {
        begins.push(begins[begins.len() - 1] + 8 + u32::from_le_bytes(*header) as usize);
    }
    begins
}

#[tokio::test]
async fn a_batch_that_was_cut_out_is_noticed_and_the_rest_recovered() {
    let path = directory("cut-out");
    written(&path, 10).await;
    let log = std::fs::read(log_of(&path)).unwrap();
    let begins = batches(&log);
    let shorter = [&log[..begins[3]], &log[begins[4]..]].concat();
    std::fs::write(log_of(&path), shorter).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Gap { first: 5, last: 5, .. }), "{error}");
    assert!(error.to_string().contains("quintet up --recover"), "{error}");
    let salvaged = Store::recover(&path).unwrap();
    assert_eq!(
        (salvaged.objects, &salvaged.losses[..]),
        (9, &["the changes of the versions 5 to 5 are lost".to_owned()][..])
    );
    let store = Store::open(&path).unwrap();
    assert!(store.get("b", "k3").is_none() && store.get("b", "k9").is_some());
    assert!(store.version() > 11, "versions do not come twice");
    store.write(write("b", "new", Expect::Absent, Some("v"))).await.unwrap();
    drop(store);
    assert!(Store::open(&path).unwrap().get("b", "new").is_some());
    assert!(Store::recover(&path).unwrap().kept.is_none(), "a whole store is left alone");
}

#[tokio::test]
async fn a_missing_log_is_noticed() {
    let path = directory("no-log");
    written(&path, 3).await;
    std::fs::remove_file(log_of(&path)).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::NoLog { .. }), "{error}");
    assert_eq!(Store::recover(&path).unwrap().objects, 0);
    assert!(Store::open(&path).unwrap().version() > 4);
}

#[tokio::test]
async fn a_missing_snapshot_is_noticed() {
    let path = directory("no-snapshot");
    written(&path, 3).await;
    {
        let directory = Directory::open(&path).unwrap();
        let (state, _) = directory.recover().unwrap();
        directory.new_segment(5).unwrap();
        directory.write_snapshot(4, 5, &state.objects()).unwrap();
    }
    assert_eq!(Store::open(&path).unwrap().count("b"), 3);
    let store = Store::open(&path).unwrap();
    store.write(write("b", "later", Expect::Absent, Some("v"))).await.unwrap();
    drop(store);
    std::fs::remove_file(path.join("snapshot-00000000000000000004")).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Gap { first: 2, last: 4, .. }), "{error}");
    let salvaged = Store::recover(&path).unwrap();
    assert_eq!(salvaged.objects, 1);
    assert!(salvaged.losses[0].contains("there is no snapshot"), "{:?}", salvaged.losses);
    assert!(salvaged.kept.unwrap().join("log-00000000000000000005").exists());
}

#[tokio::test]
async fn torn_ends_are_kept_but_not_all_of_them() {
    let path = directory("cuts");
    for round in 0..8 {
        written(&path, 0).await;
        let store = Store::open(&path).unwrap();
        store.write(write("b", &format!("k{round}"), Expect::Absent, Some("v"))).await.unwrap();
        drop(store);
        let torn = [std::fs::read(log_of(&path)).unwrap(), b"torn".to_vec()].concat();
        std::fs::write(log_of(&path), torn).unwrap();
    }
    assert_eq!(Store::open(&path).unwrap().count("b"), 8);
    let files = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.filter(|name| name.to_string_lossy().starts_with("cut-log-")).count(), 4);
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let path = directory("full");
    let room = Arc::new(AtomicU64::new(u64::MAX));
    {
        let directory = Arc::new(Directory::open(&path).unwrap());
        let (state, mut segment) = directory.recover().unwrap();
        segment.room = Some(Arc::clone(&room));
        let store = Store::start(&path, directory, state, segment).unwrap();
        store.write(write("b", "before", Expect::Absent, Some("v"))).await.unwrap();
        room.store(20, Ordering::Relaxed);
        let error = store.write(write("b", "during", Expect::Absent, Some("v"))).await.unwrap_err();
        assert!(matches!(error, WriteError::NoSpace(_)), "{error}");
        assert!(error.to_string().contains("disk is full"), "{error}");
        assert!(store.get("b", "during").is_none());
        room.store(u64::MAX, Ordering::Relaxed);
        store.write(write("b", "after", Expect::Absent, Some("v"))).await.unwrap();
    }
    let store = Store::open(&path).unwrap();
    assert!(store.get("b", "before").is_some() && store.get("b", "after").is_some());
    assert!(store.get("b", "during").is_none());
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_else_can_read_the_files_of_a_store() {
    use std::os::unix::fs::PermissionsExt as _;
    let path = directory("private");
    written(&path, 1).await;
    std::fs::set_permissions(log_of(&path), std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(Store::open(&path).unwrap());
    for file in std::fs::read_dir(&path).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.file_name());
    }
}
