//! What is answered about a stored session whose events are unusual, as upstream answers it.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use quintet_history::{History, HistoryOptions, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

const SESSION: &str = "session_2026-01-01_09-30-00_123456_1";

const COOKIES: &str =
    "cluster_name=demo; cluster_namespace=default; session_name=session_2026-01-01_09-30-00_123456_1";

/// Ids of tasks: an ordinary one, and one whose events say that it is a method call.
const TASK: &str = "1000000000000001ffffffffffffffffffffffff01000000";
const CALL: &str = "1000000000000002aaaaaaaaaaaaaaaaaaaaaaaa01000000";
const ACTOR: &str = "aaaaaaaaaaaaaaaaaaaaaaaa01000000";
const NODE: &str = "a1a1a1a1";

fn write(path: &Path, content: &str) {
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    std::fs::write(path, content).expect("a file");
}

/// A server of one session with these events and files of a node.
async fn start(events: &[Value], files: &[(&str, &str)]) -> (TempDir, SocketAddr) {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    write(&root.join(format!("cluster-metadata/raycluster/default_demo/{SESSION}")), "");
    let node = root.join(format!("cluster-history/raycluster/default/demo/{SESSION}/{NODE}"));
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    write(&node.join("node_events/a1-2026-01-01-09-1.jsonl"), &lines.join("\n"));
    for (name, content) in files {
        write(&node.join(name), content);
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let history = History::new(Store::directory(root, ""), None, HistoryOptions::default());
    #[expect(clippy::disallowed_methods, reason = "the server ends with the test")]
    tokio::spawn(history.expect("a server").serve(listener, std::future::pending()));
    let (status, entered) = get(address, &format!("/enter_cluster/default/RayCluster/demo/{SESSION}"), "");
    assert_eq!(status, 200, "{entered}");
    (directory, address)
}

/// Status and body of the response to a request with these cookies; more headers may follow them.
fn get(address: SocketAddr, path: &str, cookies: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\nCookie: {cookies}\r\n\r\n").expect("sent");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("a response");
    let response = String::from_utf8_lossy(&response).into_owned();
    let status = response.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
    let (_, body) = response.split_once("\r\n\r\n").expect("a body");
    (status, body.to_owned())
}

fn read(address: SocketAddr, path: &str) -> Value {
    let (status, body) = get(address, path, COOKIES);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).expect("JSON")
}

fn event(kind: &str, member: &str, payload: Value) -> Value {
    let mut event = json!({"eventType": kind});
    event[member] = payload;
    event
}

fn definition(payload: Value) -> Value {
    event("TASK_DEFINITION_EVENT", "taskDefinitionEvent", payload)
}

fn lifecycle(payload: Value) -> Value {
    event("TASK_LIFECYCLE_EVENT", "taskLifecycleEvent", payload)
}

fn time(second: u8) -> String {
    format!("1970-01-01T00:00:{second:02}Z")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_what_their_events_make_of_them() {
    let profile = |component: &str, job: &str, name: &str, start: &str, extra: &str| {
        let events = json!([
            {"eventName": name, "startTime": start, "endTime": "2000", "extraData": extra},
            {"eventName": "ray.get", "startTime": "soon", "endTime": "2000"},
        ]);
        let all = json!({"componentId": component, "componentType": "worker", "nodeIpAddress": "10.0.0.1", "events": events});
        let payload = json!({"taskId": TASK, "jobId": job, "profileEvents": all});
        event("TASK_PROFILE_EVENT", "taskProfileEvents", payload)
    };
    let extra = json!({"task_id": CALL, "name": "f"}).to_string();
    let (_directory, address) = start(
        &[
            definition(json!({"taskId": TASK, "taskName": "f", "callSite": "", "jobId": "01000000"})),
            lifecycle(json!({"taskId": TASK, "stateTransitions": [
                {"state": "PENDING_ARGS_AVAIL"}, {"state": "RUNNING", "timestamp": time(3)}]})),
            definition(json!({"taskId": CALL, "taskType": "ACTOR_TASK", "taskName": "wrong", "actorTaskName": "call",
                "actorFunc": {"pythonFunctionDescriptor": {"functionName": "p"}, "cppFunctionDescriptor": {"functionName": "c"}}})),
            profile("b1", "02000000", "task::f", "1000", &extra),
            profile("b2", "03000000", "task:execute", "1500", ""),
        ],
        &[],
    )
    .await;
    let tasks = read(address, "/api/v0/tasks?detail=1");
    let rows = &tasks["data"]["result"]["result"];
    let row = &rows[0];
    assert_eq!((&row["call_site"], &row["creation_time_ms"]), (&json!(""), &Value::Null), "{row}");
    assert_eq!(row["start_time_ms"], 3000);
    assert_eq!(row["events"][0]["created_ms"], -62_135_596_800_000_i64, "an unknown time is Go's zero time");
    assert_eq!(row["job_id"], "01000000", "profiles do not change the job");
    assert_eq!((&rows[1]["name"], &rows[1]["func_or_class_name"]), (&json!("call"), &json!("c")));
    let trace = read(address, "/api/v0/tasks/timeline");
    let threads: Vec<&Value> =
        trace.as_array().expect("a list").iter().map(|it| &it["args"]["name"]).collect();
    assert!(threads.contains(&&json!("worker:b1")) && !threads.contains(&&json!("worker:b2")), "{trace}");
    let events: Vec<&Value> = trace.as_array().expect("a list").iter().filter(|it| it["ph"] == "X").collect();
    assert_eq!(events.len(), 2, "events without times are left out: {trace}");
    assert_eq!(
        (&events[0]["args"]["task_id"], &events[0]["args"]["actor_id"]),
        (&json!(CALL), &json!(ACTOR))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actors_and_jobs_are_read_as_far_as_they_can_be() {
    let actor = |payload: Value| event("ACTOR_LIFECYCLE_EVENT", "actorLifecycleEvent", payload);
    let job = |payload: Value| event("DRIVER_JOB_DEFINITION_EVENT", "driverJobDefinitionEvent", payload);
    let dead = |second: u8, context: Value| json!({"state": "DEAD", "timestamp": time(second), "deathCause": {"actorDiedErrorContext": context}});
    let (_directory, address) = start(
        &[
            event(
                "ACTOR_DEFINITION_EVENT",
                "actorDefinitionEvent",
                json!({"actorId": ACTOR, "className": "C", "address": {"ipAddress": "10.0.0.9"}}),
            ),
            actor(json!({"actorId": ACTOR, "stateTransitions": [
                7, {"state": "ALIVE", "timestamp": "late", "nodeId": NODE, "reprName": 5},
                {"state": "ALIVE", "timestamp": time(2)}]})),
            actor(json!({"actorId": ACTOR, "stateTransitions": [
                dead(5, json!({"pid": 7.9, "errorMessage": "killed"})), dead(6, json!({"pid": "8"}))]})),
            actor(json!({"actorid": "bb", "stateTransitions": [{"state": "ALIVE", "timestamp": time(1)}]})),
            job(json!({"jobId": "01000000", "status": "RUNNING", "startTime": time(9),
                "statusTransitions": [{"status": "PENDING"}, {"status": "SUCCEEDED", "timestamp": time(2)}]})),
            job(json!({"jobId": "02000000", "runtimeEnv": {"pip": ["x"]}})),
            event("DRIVER_JOB_LIFECYCLE_EVENT", "driverJobLifecycleEvent", json!({"jobId": "03000000",
                "stateTransitions": [{"state": "CREATED", "timestamp": "then"}, {"state": "FINISHED", "timestamp": time(4)}]})),
        ],
        &[],
    )
    .await;
    let actors = read(address, "/logical/actors");
    let actors = actors["data"]["actors"].as_object().expect("actors").clone();
    assert_eq!(actors.keys().collect::<Vec<_>>(), [ACTOR], "names of members count in their case");
    let actor = &actors[ACTOR];
    assert_eq!((&actor["pid"], &actor["exitDetail"]), (&json!(0), &json!("")), "{actor}");
    assert_eq!(
        (&actor["address"]["ipAddress"], &actor["address"]["nodeId"]),
        (&json!("10.0.0.9"), &json!(NODE))
    );
    // The first time it was alive is not known, so its start is not.
    assert_eq!((&actor["endTime"], actor.get("startTime")), (&json!(6000), None));
    let jobs = read(address, "/api/jobs/");
    let ids: Vec<&Value> = jobs.as_array().expect("jobs").iter().map(|job| &job["job_id"]).collect();
    assert_eq!(ids, ["01000000", "03000000"], "a runtime environment is an object of strings");
    assert_eq!((&jobs[0]["status"], &jobs[0]["start_time"]), (&json!("SUCCEEDED"), &json!(9000)));
    assert_eq!((jobs[1].get("start_time"), &jobs[1]["end_time"]), (None, &json!(4000)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_keep_their_resources_and_failures() {
    let node = |id: &str, payload: &[Value]| {
        event(
            "NODE_LIFECYCLE_EVENT",
            "nodeLifecycleEvent",
            json!({"nodeId": id, "stateTransitions": payload}),
        )
    };
    let address_of = |id: &str| {
        event(
            "NODE_DEFINITION_EVENT",
            "nodeDefinitionEvent",
            json!({"nodeId": id, "nodeIpAddress": "10.0.0.1"}),
        )
    };
    let state = |state: &str, second: u8| json!({"state": state, "timestamp": time(second)});
    let mut alive = state("ALIVE", 1);
    alive["resources"] = json!({"CPU": 2.0});
    let mut again = state("ALIVE", 3);
    again["deathInfo"] = json!({"reason": "UNEXPECTED_TERMINATION", "reasonMessage": "earlier"});
    let line = "{\"total\" : {CPU: [20000], GPU_Memory: [10000], odd: [-5], accelerator_type:G: [10000]}, \"available\":{CPU:[10000]}} is_idle: 1";
    let debug = format!("cluster_resource_scheduler state:\n{line}\n");
    let (_directory, address) = start(
        &[node("b1", &[alive, state("DEAD", 2), again]), address_of("c1"), address_of("b1")],
        &[("logs/raylet.out", "of a1")],
    )
    .await;
    let summary = read(address, "/nodes?view=summary");
    assert_eq!(summary["data"]["nodeLogicalResources"]["b1"], "0.0/2.0 CPU");
    assert_eq!(summary["data"]["summary"][0]["raylet"]["stateMessage"], "", "only the dead say why");
    let (status, text) = get(address, "/nodes/c1", COOKIES);
    assert_eq!((status, text.as_str()), (404, "node c1 has no state transitions yet"));
    let report = read(address, "/api/cluster_status?format=1");
    let report = report["data"]["clusterStatus"].as_str().expect("a report").to_owned();
    assert!(report.contains("Recent failures:\n b1: NodeTerminated (ip: 10.0.0.1)\n"), "{report}");
    // The first node that was defined with the address.
    let (status, text) = get(address, "/api/v0/logs/file?node_ip=10.0.0.1&filename=x.log", COOKIES);
    assert_eq!((status, text), (404, format!("log file not found: {SESSION}/c1/logs/x.log")));

    let (_directory, address) = start(&[], &[("logs/debug_state.txt", debug.as_str())]).await;
    let report = read(address, "/api/cluster_status?format=1");
    let report = report["data"]["clusterStatus"].as_str().expect("a report").to_owned();
    assert!(report.contains("Idle:\n 1 default\n"), "{report}");
    assert!(report.contains("Total Usage:\n 1.0/2.0 CPU\n 1B/1B GPU_Memory\n\n"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn siblings_are_in_the_order_in_which_they_were_found() {
    let creation = format!("ffffffffffffffff{ACTOR}");
    let (_directory, address) = start(
        &[
            definition(json!({"taskId": "10", "taskType": "NORMAL_TASK", "taskName": "z"})),
            definition(
                json!({"taskId": "20", "taskType": "NORMAL_TASK", "taskName": "child", "parentTaskId": "30"}),
            ),
            definition(json!({"taskId": "30", "taskType": "NORMAL_TASK", "taskName": "parent"})),
            definition(
                json!({"taskId": creation, "taskType": "ACTOR_CREATION_TASK", "taskName": "C.__init__",
                "taskFunc": {"pythonFunctionDescriptor": {"className": "C", "functionName": "__init__"}}}),
            ),
        ],
        &[],
    )
    .await;
    let summary = read(address, "/api/v0/tasks/summarize?summary_by=lineage");
    let roots = &summary["data"]["result"]["result"]["node_id_to_summary"]["cluster"]["summary"];
    let names: Vec<&Value> = roots.as_array().expect("roots").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["z", "parent", "C"], "{roots}");
    assert_eq!(roots[1]["children"][0]["name"], "child");
    assert_eq!(roots[2]["children"][0]["name"], "C.__init__");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_say_what_is_wrong() {
    let logged = |id: &str, actor: &str, file: &str, end: &str| {
        let log = json!({"stdoutFile": file, "stdoutStart": "0", "stdoutEnd": end});
        let running = json!([{"state": "RUNNING", "timestamp": time(1)}]);
        let life = json!({"taskId": id, "nodeId": NODE, "workerId": "b1", "stateTransitions": running, "taskLogInfo": log});
        let kind = if actor.is_empty() { "NORMAL_TASK" } else { "ACTOR_TASK" };
        [definition(json!({"taskId": id, "taskType": kind, "actorId": actor})), lifecycle(life)]
    };
    let events = [
        logged("10", ACTOR, "/tmp/worker.out", "4"),
        logged("20", "", "/tmp/worker.out", "0"),
        logged("30", "", "/tmp/worker.out", "99"),
        logged("40", "", "/tmp/..", "4"),
        logged("50", "", "/tmp/worker.out", "4"),
    ];
    let (_directory, address) = start(&events.concat(), &[("logs/worker.out", "abcdef")]).await;
    let cases = [
        (
            "task_id=10",
            400,
            "for actor task, please query actor log for actor(aaaaaaaaaaaaaaaaaaaaaaaa01000000) by providing actor_id query parameter",
        ),
        (
            "task_id=20",
            404,
            "task 20 (attempt 0) has incomplete task_log_info for suffix out: end offset is unavailable",
        ),
        ("task_id=30", 500, "unexpected EOF"),
        (
            "task_id=40",
            404,
            "task 40 (attempt 0) has incomplete task_log_info for suffix out: log filename is empty",
        ),
        ("task_id=50", 200, "abcd"),
        ("task_id=MTA=", 400, "task not found: task_id=MTA="),
        ("node_id=a1a1a1a1&pid=-5", 400, "must provide one of: filename, task_id, actor_id, or pid"),
        (
            "node_id=node1&pid=5",
            400,
            "failed to decode node_id: failed to decode Base64 ID: illegal base64 data at input byte 4",
        ),
        ("node_id=a1a1a1a1&filename=x&pid=p&lines=l&suffix=s", 400, "invalid pid parameter: p"),
        (
            "node_id=a1a1a1a1&filename=x&lines=l&suffix=s",
            400,
            "invalid suffix parameter: s (must be 'out' or 'err')",
        ),
    ];
    for (query, status, text) in cases {
        let answer = get(address, &format!("/api/v0/logs/file?{query}"), COOKIES);
        assert_eq!(answer, (status, text.to_owned()), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cookies_are_read_as_go_reads_them() {
    let (_directory, address) = start(&[], &[]).await;
    let not_found = (400, "\"Cluster Cookie not found\"".to_owned());
    for cookies in ["cluster_name=a\"b", "cluster_name=a\\b", "other=1", "cluster_name=\u{e9}"] {
        assert_eq!(get(address, "/api/jobs/", cookies), not_found, "{cookies}");
    }
    let (status, text) = get(address, "/api/jobs/", "cluster_name; cluster_namespace=d; session_name=s");
    assert_eq!(status, 400);
    assert!(text.contains("path traversal not allowed (cluster_name=, cluster_namespace=d"), "{text}");
    // Another cookie may hold anything.
    let (status, _) = get(address, "/api/jobs/", &format!("other=\u{e9}; {COOKIES}"));
    assert_eq!(status, 200);
    let file = "/api/v0/logs/file?node_id=x&filename=y";
    for (accept, expected) in [
        ("*/*", (406, String::new())),
        ("application/json, text/plain, */*", not_found.clone()),
        (
            "text/html,application/xml;q=0.9,*/*;q=0.8",
            (
                400,
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n <string>Cluster Cookie not found</string>"
                    .to_owned(),
            ),
        ),
    ] {
        assert_eq!(get(address, file, &format!("x=y\r\nAccept: {accept}")), expected, "{accept}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_element_of_a_path_may_be_encoded_but_not_the_slash_after_it() {
    let (_directory, address) = start(&[], &[]).await;
    assert_eq!(get(address, "/%6eodes", COOKIES).0, 200);
    for path in ["/nodes%2Fx", "/api%2fv0/tasks", "/enter_cluster%2Fdefault/raycluster/demo"] {
        assert_eq!(get(address, path, COOKIES), (404, "404 page not found\n".to_owned()), "{path}");
    }
    // Further on, it is a slash.
    assert_eq!(get(address, "/logical/actors%2Fx", COOKIES).0, 200);
}

/// A Kubernetes API with one running cluster, whose dashboard says that it is busy.
fn busy_kubernetes() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut piece = [0; 4096];
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => head.extend_from_slice(&piece[..read]),
                }
            }
            let is_proxied = String::from_utf8_lossy(&head).contains("/services/svc:dashboard/proxy/nodes ");
            let cluster = r#"{"metadata":{"name":"demo","namespace":"default"},"status":{"head":{"serviceName":"svc"}}}"#;
            let (status, body) = if is_proxied { ("503 Busy", "busy") } else { ("200 OK", cluster) };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
            let _ = write!(stream, "{head}{body}");
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_dashboard_behind_kubernetes_is_not_asked_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let kubernetes = format!("http://{}", busy_kubernetes()).parse().expect("a URL");
    let options = HistoryOptions { use_kubernetes_proxy: true, ..HistoryOptions::default() };
    let store = Store::directory(directory.path(), "");
    let history = History::new(store, Some(kube::Config::new(kubernetes)), options).expect("a server");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    #[expect(clippy::disallowed_methods, reason = "the server ends with the test")]
    tokio::spawn(history.serve(listener, std::future::pending()));
    let live = "cluster_name=demo; cluster_namespace=default; session_name=live";
    let begun = std::time::Instant::now();
    assert_eq!(get(address, "/nodes", live), (503, "busy".to_owned()));
    // The client of the Kubernetes API would wait longer and longer.
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_first_page_chooses_a_session_and_leads_to_the_front_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let start = async |dashboard_directory: Option<std::path::PathBuf>| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let options = HistoryOptions { dashboard_directory, ..HistoryOptions::default() };
        let history = History::new(Store::directory(directory.path(), ""), None, options);
        #[expect(clippy::disallowed_methods, reason = "the server ends with the test")]
        tokio::spawn(history.expect("a server").serve(listener, std::future::pending()));
        address
    };
    let page = |address, path: &str, cookies: &str| {
        let (path, cookies) = (path.to_owned(), cookies.to_owned());
        tokio::task::spawn_blocking(move || get(address, &path, &cookies))
    };
    write(&directory.path().join("front/index.html"), "the dashboard");
    write(&directory.path().join("front/static/main.js"), "program");
    write(&directory.path().join("secret"), "hidden");

    let plain = start(None).await;
    for cookies in ["", COOKIES] {
        let (status, body) = page(plain, "/", cookies).await.expect("a response");
        assert!(status == 200 && body.contains("const hasDashboard = false;"), "{status} {body}");
    }
    assert_eq!(page(plain, "/static/main.js", COOKIES).await.expect("a response").0, 404);

    let front = start(Some(directory.path().join("front"))).await;
    for (path, cookies) in [("/", ""), ("/select_cluster", COOKIES)] {
        let (status, body) = page(front, path, cookies).await.expect("a response");
        assert!(status == 200 && body.contains("const hasDashboard = true;"), "{path}: {status} {body}");
    }
    let (status, body) = page(front, "/", COOKIES).await.expect("a response");
    assert_eq!((status, body.as_str()), (200, "the dashboard"));
    let (status, body) = page(front, "/static/main.js", "").await.expect("a response");
    assert_eq!((status, body.as_str()), (200, "program"));
    for path in ["/../secret", "/%2e%2e/secret", "/static/..%2f..%2fsecret", "/static"] {
        let (status, body) = page(front, path, COOKIES).await.expect("a response");
        assert!(status != 200 && !body.contains("hidden"), "{path}: {status} {body}");
    }
}
