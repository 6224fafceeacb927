//! Sends the requests of a case.

use std::fmt;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::LazyLock;
use std::time::Duration;

use quintet_registry_server::Server;
use regex::Regex;
use serde_json::Value;

use crate::case::{Answer, Case, Exchange};
use crate::databases::{Databases, Empty};
use crate::deliberate::{self, Exception};
use crate::matching::{self, Bindings};
use crate::support::http::{self, Request, Response};
use crate::support::server::Running;

/// Between the differences from several recorded answers.
const OR: &str = "; or ";

/// Exchanges by what came of them.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    equal: usize,
    deliberate: usize,
    pub(crate) differ: usize,
    unsupported: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.equal += other.equal;
        self.deliberate += other.deliberate;
        self.differ += other.differ;
        self.unsupported += other.unsupported;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { equal, deliberate, differ, unsupported } = self;
        write!(
            formatter,
            "{equal} equal, {deliberate} deliberate, {differ} differ, {unsupported} unsupported"
        )
    }
}

/// Runs a case of the registry on an empty database.
pub(crate) async fn run(case: &Case, databases: &Databases) -> Counts {
    let database = databases.empty();
    let server = if case.lacks_database() {
        Running::start_without_database(server_of(case)).await
    } else {
        Running::start_as(server_of(case), &database.location).await
    };
    let act = |exchange: &Exchange, index| act(case, exchange, index, databases, &database);
    compare(case, server.address, databases.name(), act).await
}

/// A server with the flags of the case.
fn server_of(case: &Case) -> Server {
    let mut server = Server::default();
    if let Some(day) = case.flag("--alpha-sunset-date") {
        server = server.with_alpha_sunset(day.parse().expect("a date"));
    }
    if let Some(origins) = case.flag("--cors-allowed-origins") {
        server = server.with_allowed_origins(origins.split(',').map(str::to_owned).collect());
    }
    server
}

/// Sends the requests of a case; `act` does what happens before each.
pub(crate) async fn compare(
    case: &Case,
    address: SocketAddr,
    place: &str,
    act: impl Fn(&Exchange, usize),
) -> Counts {
    let exchanges = case.exchanges();
    let mut counts = Counts::default();
    let exceptions = deliberate::read();
    let mut bindings = Bindings::default();
    let mut answers = Vec::new();
    let mut follows = false;
    for (index, exchange) in exchanges.iter().enumerate() {
        act(exchange, index);
        bindings.scope = match exchange.path.split('?').next().unwrap_or_default() {
            path if path.contains("/artifacts") => "artifact",
            path if path.contains("/tools") => "tool",
            _ => "entity",
        };
        bindings.is_unordered = place == "catalog" && !has_fixed_order(&exchange.path);
        let request = request(exchange, index, &answers);
        let (difference, ours) = if let Some(times) = exchange.parallel {
            send_parallel(address, exchange, &request, times, &mut answers).await
        } else {
            let response = http::send(address, &request).await.expect("a response");
            if exchange.method != "GET" {
                // Entities are ordered by times of writes, in milliseconds. Recorded writes took longer than one.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            answers.push(serde_json::from_slice(&response.body).unwrap_or(Value::Null));
            let difference = closest(exchange, &response, place, &mut bindings);
            (difference, format!("{} {}", response.status, response.text()))
        };
        let Some(difference) = difference else {
            counts.equal += 1;
            continue;
        };
        let line = format!("{} {}", exchange.method, exchange.path);
        let upstream = describe(&exchange.answer);
        let is_covered = |it: &&Exception| {
            let mut differences = difference.split(OR);
            differences.any(|difference| it.covers(&case.name, &line, &upstream, &ours, difference))
        };
        match exceptions.iter().find(is_covered) {
            Some(exception) => {
                follows |= exception.has_consequences;
                counts.deliberate += 1;
            }
            None if follows => counts.deliberate += 1,
            None => {
                counts.differ += 1;
                let line: String = line.chars().take(200).collect();
                println!("{place}: {} #{} {line}: {difference}", case.name, index + 1);
            }
        }
    }
    counts
}

/// Whether the order of a list of the catalog is the same in every recording. Ids are given as the sources happen to load.
fn has_fixed_order(path: &str) -> bool {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let order = query.split('&').find_map(|it| it.strip_prefix("orderBy="));
    let is_recommended = query.contains("recommendations=");
    match order {
        Some("NAME" | "CREATE_TIME" | "LAST_UPDATE_TIME") => !is_recommended,
        Some(_) => false,
        None => path.ends_with("/models") && !is_recommended,
    }
}

/// Does what the recording says happened to the database.
fn act(case: &Case, exchange: &Exchange, index: usize, databases: &Databases, database: &Empty) {
    if index == 0 && case.about.contains("set to dirty") {
        databases.run(database, "UPDATE schema_migrations SET dirty = TRUE");
    }
    if exchange.note.contains("was emptied") {
        databases.run(database, "DELETE FROM schema_migrations");
    }
    if exchange.note.contains("was dropped") {
        databases.drop_database(database);
    }
}

/// How a response differs from the recorded answers: from all of them.
fn closest(exchange: &Exchange, response: &Response, place: &str, bindings: &mut Bindings) -> Option<String> {
    if exchange.none_within.is_some() || exchange.answer.none_within.is_some() {
        return Some(format!("status {} instead of no answer", response.status));
    }
    let mut differences = Vec::new();
    let on_mysql = exchange.answer_mysql.as_ref().filter(|_| place == "MariaDB");
    let recorded = [&exchange.answer].into_iter().chain(&exchange.answer_newer).chain(&exchange.also_seen);
    let recorded = recorded.chain(on_mysql);
    for answer in recorded {
        let mut bound = bindings.clone();
        match matching::difference(answer, response, &mut bound) {
            None => {
                *bindings = bound;
                return None;
            }
            Some(difference) => differences.push(difference),
        }
    }
    Some(differences.join(OR))
}

async fn send_parallel(
    address: SocketAddr,
    exchange: &Exchange,
    request: &Request,
    times: usize,
    answers: &mut Vec<Value>,
) -> (Option<String>, String) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..times {
        let request = request.clone();
        tasks.spawn(async move { http::send(address, &request).await.expect("a response") });
    }
    let responses = tasks.join_all().await;
    answers.push(Value::Null);
    let ours = responses.iter().map(|it| it.status.to_string()).collect::<Vec<_>>().join(" ");
    let mut left: Vec<&Response> = responses.iter().collect();
    for counted in &exchange.answer.answers {
        for _ in 0..counted.count {
            let matched = left
                .iter()
                .position(|it| matching::difference(&counted.answer, it, &mut Bindings::default()).is_none());
            match matched {
                Some(index) => drop(left.swap_remove(index)),
                None => return (Some(format!("answers {ours}")), ours),
            }
        }
    }
    (None, ours)
}

fn describe(answer: &Answer) -> String {
    let body = answer.body.as_ref().map(|body| match body.get("message") {
        Some(Value::String(message)) => message.clone(),
        _ => body.to_string(),
    });
    format!(
        "{} {}",
        answer.status.unwrap_or_default(),
        body.or_else(|| answer.text.clone()).unwrap_or_default()
    )
}

/// The request of an exchange, with fields of earlier answers filled in.
fn request(exchange: &Exchange, index: usize, answers: &[Value]) -> Request {
    let mut headers: Vec<(String, String)> = exchange
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    let body = if let Some(body) = &exchange.body {
        if !exchange.headers.contains_key("Content-Type") {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        let body = matching::expand_value(body).to_string().replace("<random>", &index.to_string());
        Some(fill(&body, answers, false).into_bytes())
    } else if let Some(raw) = &exchange.raw {
        Some(matching::expand(raw).into_bytes())
    } else {
        use base64::Engine;
        exchange
            .raw_base64
            .as_ref()
            .map(|it| base64::engine::general_purpose::STANDARD.decode(it).expect("base64"))
    };
    // A token that holds a time was taken from the answer before.
    let last_token = answers.last().and_then(|answer| answer.get("nextPageToken")).and_then(Value::as_str);
    let token = encoded(last_token.unwrap_or_default());
    let path = TOKEN.replace_all(&exchange.path, token.as_str()).into_owned();
    let path = fill(&matching::expand(&path), answers, true);
    Request { method: exchange.method.clone(), path, headers, body }
}

static TOKEN: LazyLock<Regex> = LazyLock::new(|| Regex::new("<base64 of [^&]*>>").expect("a pattern"));
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$\{(\d+)\.([^}]*)\}").expect("a pattern"));

fn encoded(text: &str) -> String {
    text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

/// Replaces `${3.items.0.id}` by that field of the third answer.
fn fill(text: &str, answers: &[Value], is_path: bool) -> String {
    let filled = REFERENCE.replace_all(text, |found: &regex::Captures<'_>| {
        let number: usize = found[1].parse().expect("a number");
        let mut value = answers.get(number - 1).unwrap_or(&Value::Null);
        for part in found[2].split('.') {
            let index = part.parse::<usize>().ok().filter(|_| value.is_array());
            value = index.map_or_else(|| value.get(part), |index| value.get(index)).unwrap_or(&Value::Null);
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if is_path { encoded(&text) } else { text }
    });
    filled.into_owned()
}
