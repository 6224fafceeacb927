//! The HTTP API: routes, cookies, and one module for each kind of answer.

mod actors;
mod clusters;
mod cookies;
mod dashboard;
mod demands;
mod events;
mod glob;
mod jobs;
mod lineage;
mod live;
mod logs;
mod nodes;
pub(crate) mod query;
mod replay;
pub(crate) mod response;
pub(crate) mod route;
mod status;
mod tail;
mod tasks;
mod timeline;

use std::sync::Arc;

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};

use crate::model::snapshot::Snapshot;
use crate::server::History;
use cookies::Choice;
use live::Live;
pub(crate) use live::Target;
use query::Query;
use response::{JSON, Reply};
use route::{Data, Route};

/// Answers a request.
pub(crate) async fn answer(history: &History, parts: &Parts) -> Reply {
    let path = parts.uri.path();
    let cleaned = query::clean(path);
    if cleaned != path {
        return route::redirect(&parts.method, &cleaned, parts.uri.query());
    }
    match path {
        "/readz" | "/livez" => {
            return Reply::new(StatusCode::OK, HeaderValue::from_static("text/plain"), "ok");
        }
        "/select_cluster" => return dashboard::picker(history.dashboard_directory()),
        _ => {}
    }
    let Some(decoded) = query::decode(path, false) else { return Reply::bad_request("400 Bad Request") };
    // A slash that is encoded does not end the first element.
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if !route::is_root(&query::decode(first, false).unwrap_or_default()) {
        let has_choice = Choice::read(&parts.headers).is_ok();
        let is_reading = parts.method == Method::GET || parts.method == Method::HEAD;
        let page = dashboard::page(history.dashboard_directory(), &decoded, has_choice);
        return page.filter(|_| is_reading).unwrap_or_else(route::no_page);
    }
    let Some(found) = route::find(&decoded) else { return route::no_route() };
    match route::admit(found, &parts.method, &parts.headers, path) {
        Err(reply) => reply,
        Ok(Route::Clusters) => clusters::list(history).await,
        Ok(Route::Enter { namespace, kind, name, session }) => {
            clusters::enter(history, namespace, kind, name, session.unwrap_or("latest")).await
        }
        Ok(Route::Data(data)) => {
            let choice = match Choice::read(&parts.headers) {
                Ok(choice) => choice,
                Err(message) => return cookie_error(parts, data, &message),
            };
            let mut reply = session(history, parts, data, &choice).await;
            choice.write(&mut reply.headers);
            reply
        }
    }
}

/// Errors about the choice are JSON strings. Logs, which are no JSON, have them only for clients that name JSON or XML
/// among what they accept, as axios and browsers do.
fn cookie_error(parts: &Parts, data: Data<'_>, message: &str) -> Reply {
    if matches!(data, Data::Log(_)) {
        let accept = parts.headers.get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
        if !accept.contains("application/json") {
            return if accept.contains("application/xml") {
                xml_error(message)
            } else {
                Reply::empty(StatusCode::NOT_ACCEPTABLE)
            };
        }
    }
    let mut writer = crate::json::Writer::new();
    writer.text(message);
    Reply::new(StatusCode::BAD_REQUEST, JSON, writer.into_bytes())
}

fn xml_error(message: &str) -> Reply {
    let mut escaped = String::with_capacity(message.len());
    for character in message.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' => escaped.push_str("&#x9;"),
            other => escaped.push(other),
        }
    }
    let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n <string>{escaped}</string>");
    Reply::new(StatusCode::BAD_REQUEST, HeaderValue::from_static("application/xml"), text)
}

/// A request about one session.
pub(crate) struct Asked<'a> {
    pub(crate) history: &'a History,
    pub(crate) parts: &'a Parts,
    pub(crate) query: Query,
    pub(crate) choice: &'a Choice,
}

impl Asked<'_> {
    /// The loaded session.
    fn snapshot(&self) -> Result<Arc<Snapshot>, Reply> {
        self.history.sessions().get(&self.choice.key()).ok_or_else(|| {
            Reply::text(
                StatusCode::SERVICE_UNAVAILABLE,
                "session snapshot not in cache; reload via /enter_cluster",
            )
        })
    }

    /// The directory of the session in the storage.
    fn directory(&self) -> String {
        self.choice.stored().session(&self.choice.session)
    }
}

async fn session(history: &History, parts: &Parts, data: Data<'_>, choice: &Choice) -> Reply {
    let live = if choice.session == "live" {
        let target = match history.head(&choice.namespace, &choice.cluster).await {
            Ok(target) => target,
            Err(message) => return cookie_error(parts, data, &message),
        };
        match Live::new(history, target).await {
            Ok(live) => Some(live),
            Err(reply) => return reply,
        }
    } else {
        None
    };
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let asked = Asked { history, parts, query, choice };
    if let Data::Log(media_type) = data {
        return logs::file(&asked, media_type, live.as_ref()).await;
    }
    match live {
        Some(live) => live::forward(&asked, &live).await,
        None => stored(&asked, data).await.unwrap_or_else(|reply| reply),
    }
}

async fn stored(asked: &Asked<'_>, data: Data<'_>) -> Result<Reply, Reply> {
    Ok(match data {
        Data::Nodes => nodes::list(asked)?,
        Data::Node(id) => nodes::detail(asked, id)?,
        Data::Events => events::list(asked)?,
        Data::Jobs => jobs::list(asked)?,
        Data::Job(id) => jobs::single(asked, id)?,
        Data::Tasks => tasks::list(asked)?,
        Data::Summary => tasks::summarize(asked)?,
        Data::Timeline => timeline::trace(asked)?,
        Data::Logs => logs::list(asked).await?,
        Data::ClusterStatus => status::show(asked).await?,
        Data::ClusterMetadata => replay::metadata(asked).await,
        Data::Timezone => replay::timezone(asked).await,
        Data::GrafanaHealth => not_for_history("Grafana"),
        Data::PrometheusHealth => not_for_history("Prometheus"),
        Data::Actors => actors::list(asked)?,
        Data::Actor(id) => actors::single(asked, id)?,
        Data::Replay | Data::Log(_) => replay::endpoint(asked).await,
    })
}

fn not_for_history(what: &str) -> Reply {
    Reply::text(
        StatusCode::NOT_IMPLEMENTED,
        format!("{what} health is not yet supported for historical sessions."),
    )
}
