//! The visibility API on the embedded API: what users read, and what they may.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

#[path = "bed/mod.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bed;

use bed::{Bed, NAMESPACE, job, kueue_template, pass, setting};
use quintet_golden::{Caller, simulate};
use serde_json::{Value, json};

const ROOT: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2";

fn on_a_cluster(test: impl AsyncFnOnce(Bed)) {
    simulate(async {
        let template = kueue_template().await;
        test(Bed::new(&template, 1, setting("")).await).await;
        Ok(())
    })
    .unwrap();
}

fn admin() -> Caller {
    Caller::known("admin", ["system:masters".to_owned()])
}

fn names(summary: &Value) -> Vec<(String, i64)> {
    let items = summary["items"].as_array().expect("items");
    let name = |item: &Value| item["metadata"]["ownerReferences"][0]["name"].as_str().unwrap().to_owned();
    items.iter().map(|item| (name(item), item["positionInClusterQueue"].as_i64().unwrap())).collect()
}

/// One job runs, and three wait.
async fn with_waiting_jobs(bed: &Bed) {
    bed.add_queue(1, json!({})).await;
    for name in ["first", "second", "third", "fourth"] {
        bed.create(&job(name, 1, "100s", &[])).await;
        pass(2).await;
    }
}

#[test]
fn pending_workloads_are_listed_with_limit_and_offset() {
    on_a_cluster(async |bed| {
        with_waiting_jobs(&bed).await;
        let read = async |path: &str| bed.world.read_as(admin(), &format!("{ROOT}/{path}")).await.unwrap();
        let (code, all) = read("clusterqueues/cq/pendingworkloads").await;
        assert_eq!(code, 200, "{all}");
        let expected = [("second", 0), ("third", 1), ("fourth", 2)];
        assert_eq!(names(&all), expected.map(|(name, position)| (name.to_owned(), position)));
        let (_, one) = read("clusterqueues/cq/pendingworkloads?limit=1&offset=1").await;
        assert_eq!(names(&one), [("third".to_owned(), 1)]);
        let local = format!("namespaces/{NAMESPACE}/localqueues/lq/pendingworkloads?offset=2");
        assert_eq!(names(&read(&local).await.1), [("fourth".to_owned(), 2)]);
        let (code, missing) = read("clusterqueues/none/pendingworkloads").await;
        assert_eq!((code, &missing["details"]["kind"]), (404, &json!("clusterqueue")), "{missing}");
        let (code, wrong) = read("clusterqueues/cq/pendingworkloads?limit=x").await;
        assert_eq!((code, &wrong["reason"]), (400, &json!("BadRequest")), "{wrong}");

        // What ends makes room, and the others move up.
        bed.delete("Job", "first").await;
        pass(3).await;
        let (_, rest) = read("clusterqueues/cq/pendingworkloads").await;
        assert_eq!(names(&rest), [("third".to_owned(), 0), ("fourth".to_owned(), 1)]);
    });
}

#[test]
fn users_read_what_their_roles_allow() {
    on_a_cluster(async |bed| {
        with_waiting_jobs(&bed).await;
        let user = || Caller::known("ann", ["system:authenticated".to_owned()]);
        let path = format!("{ROOT}/namespaces/{NAMESPACE}/localqueues/lq/pendingworkloads");
        let (code, refused) = bed.world.read_as(user(), &path).await.unwrap();
        assert_eq!((code, &refused["reason"]), (403, &json!("Forbidden")), "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("cannot get resource"), "{refused}");

        let rbac = "rbac.authorization.k8s.io/v1";
        let metadata = json!({ "name": "pending", "namespace": NAMESPACE });
        bed.create(&json!({ "apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": [{
            "apiGroups": ["visibility.kueue.x-k8s.io"], "resources": ["localqueues/pendingworkloads"],
            "verbs": ["get"] }] }))
            .await;
        bed.create(&json!({ "apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pending" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann" }] }))
            .await;
        let (code, allowed) = bed.world.read_as(user(), &path).await.unwrap();
        assert_eq!((code, names(&allowed).len()), (200, 3), "{allowed}");
        let (code, _) =
            bed.world.read_as(user(), &format!("{ROOT}/clusterqueues/cq/pendingworkloads")).await.unwrap();
        assert_eq!(code, 403, "not those of all namespaces");
    });
}

#[test]
fn the_group_is_discovered() {
    on_a_cluster(async |bed| {
        let (_, groups) = bed.world.read_as(admin(), "/apis").await.unwrap();
        let group = groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .find(|group| group["name"] == "visibility.kueue.x-k8s.io");
        let group = group.expect("the group");
        assert_eq!(group["preferredVersion"]["version"], "v1beta2", "{group}");
        let (_, resources) = bed.world.read_as(admin(), ROOT).await.unwrap();
        let verbs = |name: &str| {
            let all = resources["resources"].as_array().unwrap();
            all.iter().find(|one| one["name"] == name).map(|one| one["verbs"].clone())
        };
        assert_eq!(verbs("localqueues/pendingworkloads"), Some(json!(["get"])));
        assert_eq!(verbs("localqueues"), Some(json!([])));
    });
}
