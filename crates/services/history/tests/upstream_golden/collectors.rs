//! Cases of the collector: what it is sent, what it stores, what it leaves.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use quintet_history::{Collector, CollectorSettings, StorageConfig, Store};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::compare;
use crate::counts::Counts;
use crate::http;
use crate::stand_ins::{self, Answers, Seen};

/// A running case.
struct World {
    directory: tempfile::TempDir,
    answers: Answers,
    seen: Seen,
    dashboard: SocketAddr,
}

pub(crate) async fn run(path: &Path, counts: &mut Counts) {
    let name = crate::name(path).trim_end_matches(".yaml").to_owned();
    let case = crate::read(&std::fs::read_to_string(path).expect("a case"));
    if case.get("collector").is_none() {
        // Cases of other programs are in files like these.
        return;
    }
    let seen = Seen::default();
    let mut answers = stand_ins::dashboard_answers(&case["dashboard"]);
    if let Some(status) = refusal(&case) {
        answers.insert(stand_ins::NODES.to_owned(), vec![(status, String::new())]);
    }
    let answers: Answers = Arc::new(Mutex::new(answers));
    let dashboard = stand_ins::ray_dashboard(Arc::clone(&answers), Arc::clone(&seen)).await;
    let directory = tempfile::tempdir().expect("a directory");
    let world = World { directory, answers, seen, dashboard };
    let socket = world.prepare(&case);
    let store = Store::directory(&world.path("bucket"), "log");
    let collector = match world.start(&case, &store).await {
        Ok(collector) => collector,
        Err(message) => {
            let expected = case["fatal"][0]
                .as_str()
                .unwrap_or("none")
                .replace("<port>", &world.dashboard.port().to_string());
            let difference =
                (message != expected).then(|| format!("fatal {message:?} instead of {expected:?}"));
            counts.add(&name, "start", difference);
            return;
        }
    };
    counts.add(
        &name,
        "start",
        case.get("fatal").map(|fatal| format!("it starts instead of failing with {fatal}")),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(collector.run(Some(listener), async {
        let _ = stopped.await;
    }));
    let mut sockets = vec![socket];
    for step in case["steps"].as_array().into_iter().flatten() {
        if let Some(seconds) = step["pause_seconds"].as_f64() {
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        } else if let Some(action) = step["action"].as_str() {
            if !world.act(action, &mut sockets) {
                counts.cannot(&name, action);
            }
        } else {
            let request = &step["request"];
            let method = request["method"].as_str().unwrap_or("POST");
            let uri = request["path"].as_str().unwrap_or_default();
            let headers: Vec<(String, String)> = request["headers"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect();
            let answer = http::send(address, method, uri, &headers, body(request)).await;
            let label = format!("{method} {uri} {}", step["name"].as_str().unwrap_or_default());
            counts.add(&name, &label, compare::difference(&step["response"], &answer, &[]));
        }
    }
    stop.send(()).expect("running");
    running.await.expect("the collector ends");
    world.compare_storage(&case, &name, counts);
    counts.add(&name, "files left", world.files_left(&case));
    counts.add(&name, "the dashboard", world.saw(&case));
}

/// The status by which the dashboard of a collector that does not start refused to list nodes: only its message tells.
fn refusal(case: &Value) -> Option<u16> {
    let (_, rest) = case["fatal"][0].as_str()?.split_once("HTTP status ")?;
    rest.get(..3)?.parse().ok()
}

/// The body of a request. Very large ones are described in words.
fn body(request: &Value) -> Vec<u8> {
    if let Some(value) = request.get("json") {
        return value.to_string().into_bytes();
    }
    if let Some(encoded) = request["body"]["base64"].as_str() {
        return base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64");
    }
    let text = request["body"].as_str().unwrap_or_default();
    let event = |job: &str, padding: usize| {
        json!({"eventType": "TASK_DEFINITION_EVENT", "timestamp": "2026-01-01T09:33:20Z",
            "sessionName": "session_2026-01-01_09-30-00_123456_1",
            "taskDefinitionEvent": {"jobId": job, "padding": "x".repeat(padding)}})
    };
    let number = |word: &str| -> Option<usize> { text.split(word).nth(1)?.split(' ').next()?.parse().ok() };
    if text.starts_with("[one ") {
        let padding = match number("string of ").or_else(|| number("one with ")) {
            Some(megabytes) if text.contains("MiB") => megabytes * 1024 * 1024,
            Some(bytes) => bytes,
            None => 0,
        };
        return json!([event("AQAAAA==", padding)]).to_string().into_bytes();
    }
    if text.starts_with("[3000 ") {
        return Value::from(vec![event("AgAAAA==", 0); 3000]).to_string().into_bytes();
    }
    text.as_bytes().to_vec()
}

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes Ray's directory and files of an earlier run.
    fn prepare(&self, case: &Value) -> std::os::unix::net::UnixListener {
        let before = &case["ray_root_before"];
        let session = before["session"].as_str().expect("a session");
        let root = self.path("ray");
        for (path, content) in before["files"].as_object().into_iter().flatten() {
            write(&root.join(path), &bytes(content));
        }
        for (path, content) in case["event_data_before"].as_object().into_iter().flatten() {
            write(&self.path("event-data").join(path), &bytes(content));
        }
        std::fs::create_dir_all(root.join(session).join("sockets")).expect("a directory");
        for (path, target) in before["links"].as_object().into_iter().flatten() {
            std::os::unix::fs::symlink(target.as_str().expect("a target"), root.join(path)).expect("a link");
        }
        self.select(session)
    }

    fn select(&self, session: &str) -> std::os::unix::net::UnixListener {
        let root = self.path("ray");
        let link = root.join("session_latest");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(root.join(session), link).expect("a link");
        let sockets = root.join(session).join("sockets");
        std::fs::create_dir_all(&sockets).expect("a directory");
        std::os::unix::net::UnixListener::bind(sockets.join("raylet")).expect("a socket")
    }

    /// Does what an action says, unless it is not known.
    fn act(&self, action: &str, sockets: &mut Vec<std::os::unix::net::UnixListener>) -> bool {
        if action.contains("is created with logs/raylet.out") {
            let session = action.split(' ').next().expect("a session");
            write(&self.path("ray").join(session).join("logs/raylet.out"), b"second session\n");
            sockets.push(self.select(session));
            return true;
        }
        let Some(rows) = action.strip_prefix("dashboard now reports node") else { return false };
        // `b2b2.. ALIVE and a1a1.. DEAD`: two characters repeated 28 times, and a state.
        let word = regex::Regex::new(r"([0-9a-f]{2})[0-9a-f]*\.\. ([A-Z]+)").expect("a pattern");
        let nodes: Value =
            word.captures_iter(rows).map(|row| json!([row[1].repeat(28), "10.0.0.1", row[2]])).collect();
        stand_ins::set_nodes(&mut self.answers.lock().expect("not poisoned"), &nodes);
        true
    }

    async fn start(&self, case: &Value, store: &Store) -> Result<Arc<Collector>, String> {
        let dashboard = format!("http://{}", self.dashboard);
        let mut variables: BTreeMap<String, Option<String>> = BTreeMap::new();
        let mut set = |name: &str, value: String| variables.insert(name.to_owned(), Some(value));
        set("POD_IP", "10.0.0.1".to_owned());
        set("FQ_RAY_IP", dashboard.clone());
        set("RAY_DASHBOARD_ADDRESS", dashboard);
        set("RAY_TMP_ROOT", self.path("ray").display().to_string());
        set("RAY_COLLECTOR_EVENT_DATA_DIR", self.path("event-data").display().to_string());
        set("RAY_COLLECTOR_POLL_INTERVAL", "2s".to_owned());
        for (name, value) in case["collector"]["env"].as_object().into_iter().flatten() {
            variables.insert(name.clone(), value.as_str().map(str::to_owned));
        }
        let flags: BTreeMap<String, String> = case["collector"]["flags"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|flag| Some(flag.as_str()?.trim_start_matches('-')))
            .map(|flag| flag.split_once('=').unwrap_or((flag, "true")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let settings = CollectorSettings::read(
            |name| flags.get(name).cloned(),
            |name| variables.get(name).cloned().flatten(),
        )?;
        let backend = settings.storage_backend.clone();
        if !(StorageConfig { backend, ..StorageConfig::default() }).is_supported() {
            return Err(settings.unsupported_backend());
        }
        Collector::start(settings, store.clone()).await
    }

    /// Compares what is stored, key by key.
    fn compare_storage(&self, case: &Value, name: &str, counts: &mut Counts) {
        let mut stored: Vec<(String, Vec<u8>)> = Vec::new();
        for path in files(&self.path("bucket")) {
            let key = path.strip_prefix(self.path("bucket")).expect("below").display().to_string();
            stored.push((normal(&key), std::fs::read(&path).expect("an object")));
        }
        for expected in case["storage_after"].as_array().into_iter().flatten() {
            let key = expected["key"].as_str().expect("a key");
            if expected["placeholder"] == true {
                counts.add(name, key, Some("there are no placeholders".to_owned()));
                continue;
            }
            let candidates: Vec<usize> = (0..stored.len()).filter(|index| stored[*index].0 == key).collect();
            let best = candidates.iter().find(|index| content(expected, &stored[**index]).is_none());
            let difference = match (best, candidates.first()) {
                (Some(index), _) => {
                    stored.remove(*index);
                    None
                }
                (None, Some(index)) => {
                    let (key, object) = stored.remove(*index);
                    content(expected, &(key, object))
                }
                (None, None) => Some("it is not stored".to_owned()),
            };
            counts.add(name, key, difference);
        }
        for (key, _) in stored {
            counts.add(name, &key, Some("it is stored, but not by upstream".to_owned()));
        }
    }

    fn files_left(&self, case: &Value) -> Option<String> {
        let mut left = Vec::new();
        for folder in ["event-data", "ray"] {
            for path in files(&self.path(folder)) {
                left.push(normal(
                    &path.strip_prefix(self.directory.path()).expect("below").display().to_string(),
                ));
            }
        }
        left.retain(|path| !path.ends_with("/sockets/raylet"));
        left.sort();
        let mut expected: Vec<&str> =
            case["files_left"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        expected.retain(|path| !path.ends_with("/sockets/raylet"));
        expected.sort_unstable();
        (left != expected).then(|| format!("{left:?} instead of {expected:?}"))
    }

    /// Distinct requests, in any order.
    fn saw(&self, case: &Value) -> Option<String> {
        let mut seen: Vec<String> = Vec::new();
        for request in self.seen.lock().expect("not poisoned").iter() {
            let token = request["headers"]["x-ray-authorization"].as_str().unwrap_or_default();
            seen.push(format!("{} {token}", request["uri"].as_str().unwrap_or_default()));
        }
        seen.sort();
        seen.dedup();
        let requests = case["dashboard_saw"].as_array().into_iter().flatten();
        let mut expected: Vec<String> = requests
            .map(|request| {
                let token = request["headers"]["X-Ray-Authorization"].as_str().unwrap_or_default();
                format!("{} {token}", request["uri"].as_str().unwrap_or_default())
            })
            .collect();
        expected.sort();
        (seen != expected).then(|| format!("saw {seen:?} instead of {expected:?}"))
    }
}

fn content(expected: &Value, (key, object): &(String, Vec<u8>)) -> Option<String> {
    if expected["empty"] == true {
        return (!object.is_empty()).then(|| "it is not empty".to_owned());
    }
    if let Some(encoded) = expected["base64"].as_str() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64");
        return (bytes != *object).then(|| "other bytes".to_owned());
    }
    if let Some(text) = expected["content"].as_str() {
        let actual = String::from_utf8_lossy(object);
        return (actual != text).then(|| format!("{actual:?} instead of {text:?}"));
    }
    let mut plain = Vec::new();
    if Path::new(key).extension().is_some_and(|extension| extension == "gz") {
        flate2::read::MultiGzDecoder::new(object.as_slice()).read_to_end(&mut plain).expect("gzip");
    } else {
        plain.clone_from(object);
    }
    if let Some(text) = expected["lines"]["no_final_newline"].as_str() {
        let actual = String::from_utf8_lossy(&plain);
        return (actual != text).then(|| format!("{actual:?} instead of {text:?}"));
    }
    let lines: Vec<&[u8]> = plain.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    match &expected["lines"] {
        Value::Number(count) => (count.as_u64() != Some(lines.len() as u64))
            .then(|| format!("{} lines instead of {count}", lines.len())),
        Value::Array(expected) => {
            let parse = |text: &[u8]| serde_json::from_slice::<Value>(text).expect("a line of JSON");
            let expected: Value =
                expected.iter().map(|line| parse(line.as_str().expect("a line").as_bytes())).collect();
            compare::differs(&expected, &lines.iter().map(|line| parse(line)).collect())
        }
        _ => (!lines.is_empty()).then(|| "it has lines".to_owned()),
    }
}

fn bytes(content: &Value) -> Vec<u8> {
    if let Some(encoded) = content["base64"].as_str() {
        return base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64");
    }
    // The recording holds bytes as characters of the same numbers.
    let text = content.as_str().unwrap_or_default();
    if text.contains('\0') {
        return text.chars().map(|it| u8::try_from(u32::from(it)).unwrap_or(b'?')).collect();
    }
    text.as_bytes().to_vec()
}

fn write(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    std::fs::write(path, content).expect("a file");
}

/// Names without the times in them.
fn normal(path: &str) -> String {
    let stored = regex::Regex::new(r"-\d{4}-\d\d-\d\d-\d\d-\d+(\.jsonl(\.gz)?)$").expect("a pattern");
    let local = regex::Regex::new(r"_\d+(\.jsonl(\.gz)?)$").expect("a pattern");
    let path = stored.replace(path, "-<YYYY-MM-DD-HH>-<unixNano>$1");
    local.replace(&path, "_<unixNano>$1").into_owned()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in crate::entries(directory) {
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            found.extend(files(&path));
        } else if !metadata.is_symlink() || path.extension().is_some() {
            found.push(path);
        }
    }
    found
}
