//! Cases of the history server: stored sessions with requests and answers.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quintet_history::{History, HistoryOptions, Store, parse_duration};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::compare;
use crate::counts::Counts;
use crate::http;
use crate::stand_ins::{self, Seen};

pub(crate) async fn run(directory: &Path, counts: &mut Counts) {
    let name = crate::name(directory);
    let text = std::fs::read_to_string(directory.join("exchanges.yaml")).expect("a case");
    let case = crate::read(&text);
    let (address, seen) = match start(directory, &case).await {
        Ok(started) => started,
        Err(flag) => return counts.cannot(&name, &format!("the flag {flag}")),
    };
    let exchanges = case["exchanges"].as_array().cloned().unwrap_or_default();
    for exchange in &exchanges {
        if let Some(pause) =
            exchange["note"].as_str().and_then(|note| note.strip_prefix("sent after a pause of "))
        {
            let seconds = pause.split(' ').next().and_then(|it| it.parse().ok()).expect("seconds");
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        }
        let request = &exchange["request"];
        let cookies = cookies(request.get("cookies").unwrap_or_else(|| &case["cookies"]));
        let method = request["method"].as_str().unwrap_or("GET");
        let mut uri = request["path"].as_str().expect("a path").to_owned();
        if let Some(query) = request["query"].as_str() {
            uri = format!("{uri}?{query}");
        }
        if uri.parse::<hyper::Uri>().is_err() {
            counts.cannot(&name, &format!("send {method} {uri}"));
            continue;
        }
        seen.lock().expect("not poisoned").clear();
        let body = request["body"].as_str().unwrap_or_default().as_bytes().to_vec();
        let answer = http::send(address, method, &uri, &headers(request, &cookies), body).await;
        let response = &exchange["response"];
        let difference = compare::difference(response, &answer, &cookies)
            .or_else(|| saw(response, &seen.lock().expect("not poisoned")));
        counts.add(&name, &format!("{method} {uri}"), difference);
    }
}

fn cookies(value: &Value) -> Vec<(String, String)> {
    let pairs = value.as_object().into_iter().flatten();
    pairs.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn headers(request: &Value, cookies: &[(String, String)]) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for (name, value) in request["headers"].as_object().into_iter().flatten() {
        match value {
            Value::Array(values) => {
                headers.extend(
                    values.iter().map(|it| (name.clone(), it.as_str().unwrap_or_default().to_owned())),
                );
            }
            value => headers.push((name.clone(), value.as_str().unwrap_or_default().to_owned())),
        }
    }
    if !cookies.is_empty() {
        let pairs: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        headers.push(("Cookie".to_owned(), pairs.join("; ")));
    }
    headers
}

/// Starts a server as the case says. The error is a flag that is not known here.
async fn start(directory: &Path, case: &Value) -> Result<(SocketAddr, Seen), String> {
    let seen = Seen::default();
    let dashboard = stand_ins::dashboard(Arc::clone(&seen)).await;
    let objects = stand_ins::stored(&case["kubernetes"], dashboard);
    let kubernetes = stand_ins::kubernetes(objects, Arc::clone(&seen)).await;
    let is_down = crate::name(directory).starts_with("kubernetes-down")
        || case["note"].as_str().is_some_and(|note| note.contains("127.0.0.1:1"));
    let url = if is_down { "http://127.0.0.1:1".to_owned() } else { format!("http://{kubernetes}") };
    let mut config = kube::Config::new(url.parse().expect("a URL"));
    config.auth_info.token = Some("server-token".to_owned().into());
    let root = case["server"]["storage_root"].as_str().unwrap_or_default();
    let store = Store::directory(&directory.join("storage"), root);
    let mut options = HistoryOptions::default();
    for flag in case["server"]["flags"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let (flag, value) = flag.split_once('=').unwrap_or((flag, "true"));
        let duration = || parse_duration(value).expect("a duration");
        match flag.trim_start_matches('-') {
            "session-cache-size" => options.cache.entries = value.parse().expect("a number"),
            "session-cache-ttl" => options.cache.ttl = duration(),
            "session-cache-max-memory" => options.cache.bytes = bytes(value),
            "session-process-timeout" => options.load_timeout = duration(),
            "use-kubernetes-proxy" => options.use_kubernetes_proxy = value == "true",
            "use-auth-token-mode" => options.use_auth_token_mode = value == "true",
            // They say nothing about answers.
            "kube-api-qps" | "kube-api-burst" | "dashboard-dir" | "storage-backend" | "storage-root-dir" => {}
            other => return Err(other.to_owned()),
        }
    }
    let history = History::new(store, Some(config), options).expect("a server");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(history.serve(listener, std::future::pending()));
    Ok((address, seen))
}

/// A number of bytes as Kubernetes writes it.
fn bytes(quantity: &str) -> u64 {
    let digits = quantity.trim_end_matches(|it: char| !it.is_ascii_digit());
    let factor = match &quantity[digits.len()..] {
        "" => 1,
        "k" => 1000,
        "Ki" => 1 << 10,
        "M" => 1_000_000,
        "Mi" => 1 << 20,
        "G" => 1_000_000_000,
        "Gi" => 1 << 30,
        other => panic!("the unit {other}"),
    };
    digits.parse::<u64>().expect("a number") * factor
}

/// How what the stand-in saw differs. Headers that every HTTP client sets in its own way do not count; cookies are kept
/// from dashboards.
fn saw(response: &Value, seen: &[Value]) -> Option<String> {
    let expected = response.get("saw")?.as_array()?;
    let plain = |request: &Value| {
        let headers: serde_json::Map<String, Value> = request["headers"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
            .filter(|(name, _)| {
                !matches!(name.as_str(), "cookie" | "user-agent" | "host" | "accept-encoding")
            })
            .collect();
        json!({"method": request["method"], "uri": request["uri"], "headers": headers})
    };
    if let Some(request) = seen.iter().find(|request| request["headers"].get("cookie").is_some()) {
        return Some(format!("the dashboard saw cookies: {request}"));
    }
    let (expected, seen): (Value, Value) =
        (expected.iter().map(plain).collect(), seen.iter().map(plain).collect());
    compare::differs(&expected, &seen).map(|difference| format!("the dashboard saw{difference}"))
}
