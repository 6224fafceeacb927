use quintet_controller::cache::{Cause, Change};

use serde_json::Value;

use super::*;

fn node(name: &str, cpu: &str, labels: &Value) -> Node {
    let node = json!({
        "metadata": { "name": name, "labels": labels },
        "status": { "allocatable": { "cpu": cpu, "pods": "2" } },
    });
    Node::read(&node.to_string()).unwrap()
}

fn pod(cpu: &str, selector: &Value) -> Pod {
    let pod = json!({
        "metadata": {},
        "spec": {
            "nodeSelector": selector,
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }],
        },
    });
    Pod::read(&pod.to_string()).unwrap()
}

#[test]
fn a_pod_goes_where_it_fits_and_fewest_are() {
    let nodes = [node("a", "4", &json!({ "zone": "x" })), node("b", "2", &json!({ "zone": "y" }))];
    let one = Amounts::from([("pods".to_owned(), "1".parse().unwrap())]);
    let two = Amounts::from([("pods".to_owned(), "2".parse().unwrap())]);
    let busy = HashMap::from([("a".to_owned(), one)]);
    let full = HashMap::from([("a".to_owned(), two.clone()), ("b".to_owned(), two)]);
    for (name, pod, used, expected) in [
        ("the emptier one", pod("1", &json!({})), &busy, Ok("b")),
        ("the one with room", pod("3", &json!({})), &busy, Ok("a")),
        ("the selected one", pod("1", &json!({ "zone": "x" })), &busy, Ok("a")),
        ("too large", pod("5", &json!({})), &busy, Err("0/2 nodes are available: 2 Insufficient cpu.")),
        ("full", pod("0", &json!({})), &full, Err("0/2 nodes are available: 2 Too many pods.")),
        (
            "nowhere",
            pod("3", &json!({ "zone": "y" })),
            &busy,
            Err(
                "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector.",
            ),
        ),
    ] {
        let chosen = choose(&pod, &pod.requests(), nodes.iter(), used);
        assert_eq!(chosen.as_deref().map_err(String::as_str), expected, "{name}");
    }
}

fn node_entry(name: &str, cpu: &str) -> Arc<Entry<Node>> {
    Arc::new(Entry::new(ObjectKey::cluster(name), node(name, cpu, &json!({}))))
}

fn pod_entry(name: &str, uid: &str, node: Option<&str>) -> Arc<Entry<Pod>> {
    let mut entry = Entry::new(ObjectKey::new("default", name), pod("1", &json!({})));
    entry.uid = uid.into();
    entry.object.spec.node_name = node.map(str::to_owned);
    Arc::new(entry)
}

fn change(old: Option<&Arc<Entry<Pod>>>, new: Option<&Arc<Entry<Pod>>>) -> Change<Pod> {
    Change { old: old.cloned(), new: new.cloned(), cause: Cause::Watch }
}

/// The node `n` has room for one pod.
fn fits(ledger: &Ledger) -> bool {
    ledger.choose(&pod_entry("probe", "probe", None), &[node_entry("n", "1")]).is_ok()
}

#[test]
fn a_pod_deleted_while_it_is_scheduled_is_not_booked() {
    let ledger = Ledger::default();
    let pending = pod_entry("p", "1", None);
    ledger.follow(&change(None, Some(&pending)));
    // `observe` has read the pod; it is deleted before a node is chosen.
    ledger.follow(&change(Some(&pending), None));
    ledger.choose(&pending, &[node_entry("n", "1")]).unwrap();
    assert!(fits(&ledger), "a deleted pod must not take room");
}

#[test]
fn a_failed_binding_gives_the_room_back() {
    let ledger = Ledger::default();
    let pending = pod_entry("p", "1", None);
    ledger.follow(&change(None, Some(&pending)));
    let assumption = ledger.assume(&pending, &node_entry("n", "1").object).unwrap();
    assert!(!fits(&ledger), "an assumed pod takes room");
    drop(assumption);
    assert!(fits(&ledger));
}

#[test]
fn a_written_binding_is_counted_until_the_cache_shows_its_outcome() {
    let node = node_entry("n", "1");
    let (pending, bound) = (pod_entry("p", "1", None), pod_entry("p", "1", Some("n")));
    let recreated = pod_entry("p", "2", None);
    for (outcome, shown, room_after) in [
        ("a status update before the binding is shown", Some(&pending), false),
        ("bound", Some(&bound), false),
        ("deleted", None, true),
        ("deleted and recreated", Some(&recreated), true),
    ] {
        let ledger = Ledger::default();
        ledger.follow(&change(None, Some(&pending)));
        ledger.assume(&pending, &node.object).unwrap().confirm();
        assert!(!fits(&ledger), "{outcome}");
        ledger.follow(&change(Some(&pending), shown));
        assert_eq!(fits(&ledger), room_after, "{outcome}");
    }
}

#[test]
fn a_binding_shown_before_its_response_is_counted_once() {
    let ledger = Ledger::default();
    let (pending, bound) = (pod_entry("p", "1", None), pod_entry("p", "1", Some("n")));
    ledger.follow(&change(None, Some(&pending)));
    let assumption = ledger.assume(&pending, &node_entry("n", "2").object).unwrap();
    ledger.follow(&change(Some(&pending), Some(&bound)));
    assumption.confirm();
    assert!(
        ledger.choose(&pod_entry("q", "q", None), &[node_entry("n", "2")]).is_ok(),
        "one of two cpus is free"
    );
    ledger.follow(&change(Some(&bound), None));
    assert!(fits(&ledger));
}

#[test]
fn the_last_room_is_assumed_once() {
    let (ledger, node) = (Ledger::default(), node_entry("n", "1"));
    let _first = ledger.assume(&pod_entry("p", "1", None), &node.object).unwrap();
    let second = ledger.assume(&pod_entry("q", "2", None), &node.object);
    assert_eq!(second.err().as_deref(), Some("Insufficient cpu"));
}

#[test]
fn freed_room_wakes_pending_pods() {
    let ledger = Ledger::default();
    let (bound, pending) = (pod_entry("p", "1", Some("n")), pod_entry("q", "2", None));
    ledger.follow(&change(None, Some(&bound)));
    assert!(ledger.follow(&change(None, Some(&pending))).is_empty());
    assert_eq!(ledger.follow(&change(Some(&bound), None)), std::slice::from_ref(&pending.key));
}
