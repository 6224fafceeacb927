//! Sends the requests of a case.

use std::fmt;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use quintet_proxy::Settings;
use serde_json::Value;

use crate::case::{Case, Exchange};
use crate::support::Proxy;
use crate::support::http::{self, Request};
use crate::support::kubernetes::{Kubernetes, Seen};
use crate::{compare, deliberate};

/// How much longer than recorded an exchange may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// The durations are rounded to half a second.
const ROUNDING: Duration = Duration::from_millis(300);

/// Exchanges by what came of them.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    equal: usize,
    deliberate: usize,
    pub(crate) differ: usize,
    pub(crate) unsupported: usize,
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

/// Runs a case, and returns a line for each difference.
pub(crate) async fn run(case: Case) -> (Counts, Vec<String>) {
    let (mut counts, mut lines) = (Counts::default(), Vec::new());
    let Some(settings) = settings(&case.server.flags) else {
        counts.unsupported = case.exchanges.len();
        lines.push(format!("{}: flags {:?} are not supported", case.name, case.server.flags));
        return (counts, lines);
    };
    let kubernetes = Kubernetes::start(&case.configmaps, &case.services).await;
    let mut config = kubernetes.config();
    config.auth_info.token = case.server.token.clone().map(Into::into);
    let proxy = Proxy::start(&config, settings).await;
    let exceptions = deliberate::read();
    for (index, exchange) in case.exchanges.iter().enumerate() {
        let request = &exchange.request;
        let title =
            format!("{} #{} {} {} {}", case.name, index + 1, exchange.name, request.method, request.path);
        let unknown = exchange.unknown();
        if !unknown.is_empty() {
            counts.unsupported += 1;
            lines.push(format!("{title}: records {unknown:?}, which is not known here"));
            continue;
        }
        let Some(difference) = exchange_difference(exchange, &proxy, &kubernetes).await else {
            counts.equal += 1;
            continue;
        };
        let described = describe(exchange);
        if exceptions.iter().any(|exception| exception.covers(&described, &difference)) {
            counts.deliberate += 1;
            lines.push(format!("{title}: {difference} (deliberate)"));
        } else {
            counts.differ += 1;
            lines.push(format!("{title}: {difference}"));
        }
    }
    (counts, lines)
}

async fn exchange_difference(exchange: &Exchange, proxy: &Proxy, kubernetes: &Kubernetes) -> Option<String> {
    let before = kubernetes.seen().len();
    let begun = Instant::now();
    let response = http::send(proxy.address, &request(exchange)).await;
    let took = begun.elapsed();
    let response = match response {
        Ok(response) => response,
        Err(error) => return Some(format!("no response: {error}")),
    };
    let seen = kubernetes.seen().split_off(before);
    let (lookups, forwarded): (Vec<Seen>, Vec<Seen>) = seen.into_iter().partition(Seen::is_lookup);
    let services: Vec<_> =
        lookups.iter().map(|seen| seen.uri.clone()).filter(|uri| uri.contains("/services?")).collect();
    compare::response(&exchange.response, &response)
        .or_else(|| compare::requests(&exchange.kubernetes_saw, &forwarded, proxy.address.port()))
        .or_else(|| lookup_difference(&exchange.service_lookup, &services))
        .or_else(|| {
            let seconds = Duration::try_from_secs_f64(exchange.seconds?).ok()?;
            let is_near = took + ROUNDING >= seconds && took <= seconds + PATIENCE;
            (!is_near).then(|| format!("{took:?} instead of {seconds:?}"))
        })
}

/// Lookups that failed are not recorded.
fn lookup_difference(recorded: &[String], ours: &[String]) -> Option<String> {
    let is_equal = recorded.is_empty() || recorded == ours;
    (!is_equal).then(|| format!("looked for services with {ours:?} instead of {recorded:?}"))
}

/// The settings that flags of upstream's server stand for; `None` if there is one that is not known.
fn settings(flags: &[String]) -> Option<Settings> {
    let mut settings = Settings::default();
    for flag in flags {
        match flag.trim_start_matches('-').split_once('=')? {
            ("cors-allow-origin", origin) => origin.clone_into(&mut settings.cors_allow_origin),
            ("enable-api-server-v2", value) => settings.is_proxying = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(settings)
}

fn request(exchange: &Exchange) -> Request {
    let recorded = &exchange.request;
    let query = if recorded.query.is_empty() { String::new() } else { format!("?{}", recorded.query) };
    let body = match (&recorded.json, &recorded.body) {
        (Some(json), _) => Some(json.to_string().into_bytes()),
        (None, body) => body.clone().map(String::into_bytes),
    };
    Request {
        method: recorded.method.clone(),
        path: format!("{}{query}", recorded.path),
        headers: header_list(&recorded.headers),
        body,
    }
}

fn header_list(headers: &serde_json::Map<String, Value>) -> Vec<(String, String)> {
    let mut list = Vec::new();
    for (name, value) in headers {
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        for value in values {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            list.push((name.clone(), text));
        }
    }
    list
}

/// The request on one line, for patterns of deliberate differences.
fn describe(exchange: &Exchange) -> String {
    let request = request(exchange);
    let headers: Vec<_> = request.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{} {} | {}", request.method, request.path, headers.join(" | "))
}
