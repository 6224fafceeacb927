//! `/clusters` and `/enter_cluster`: which sessions there are, and the choice of one.

use super::cookies::Choice;
use super::response::Reply;
use crate::json::{Writer, go_quoted, indent};
use crate::kubernetes::{Failure, RayCluster};
use crate::layout::{Cluster, Kind, Owner, StoredSession};
use crate::model::time;
use crate::server::{History, Loaded};

/// Stored sessions that are listed.
const LISTED: usize = 100;

pub(super) async fn list(history: &History) -> Reply {
    let mut writer = Writer::new();
    writer.raw("[");
    for cluster in history.live_clusters().await {
        writer.comma();
        let created = cluster.created();
        let shown = time::format(created, "%Y-%m-%d %H:%M:%S +0000 UTC");
        let metadata = &cluster.metadata;
        write(
            &mut writer,
            &metadata.namespace,
            &metadata.name,
            "live",
            &shown,
            created,
            cluster.owner().as_ref(),
        );
    }
    let stored = match history.stored_sessions().await {
        Ok(stored) => stored,
        Err(error) => return Reply::failed(error.to_string()),
    };
    for StoredSession { cluster, session, created } in stored.iter().take(LISTED) {
        writer.comma();
        let shown = time::rfc3339(*created);
        write(
            &mut writer,
            &cluster.namespace,
            &cluster.name,
            session,
            &shown,
            *created,
            cluster.owner.as_ref(),
        );
    }
    writer.raw("]");
    Reply::json(indent(&writer.into_bytes(), " "))
}

fn write(
    writer: &mut Writer,
    namespace: &str,
    name: &str,
    session: &str,
    shown: &str,
    created: i64,
    owner: Option<&Owner>,
) {
    writer.raw("{");
    writer.text_member("name", name);
    writer.text_member("namespace", namespace);
    writer.text_member("sessionName", session);
    writer.text_member("createTime", shown);
    writer.integer_member("createTimeStamp", created);
    if let Some(owner) = owner {
        writer.text_member("ownerKind", owner.kind.name());
        writer.text_member("ownerName", &owner.name);
    }
    writer.raw("}");
}

/// Chooses a session: a running cluster or a stored one, which is loaded.
pub(super) async fn enter(
    history: &History,
    namespace: &str,
    kind: &str,
    name: &str,
    session: &str,
) -> Reply {
    let Some(kind_known) = Kind::parse(kind) else {
        return Reply::bad_request(format!(
            "unsupported resource kind: {} (must be raycluster, rayjob, or rayservice)",
            go_quoted(kind)
        ));
    };
    if matches!(session, "latest" | "live") {
        match find_live(history, namespace, kind_known, name, session == "live").await {
            Ok(Some(cluster)) => return success(&cluster, "live"),
            Ok(None) => {}
            Err(reply) => return reply,
        }
    }
    let stored = match history.stored_sessions().await {
        Ok(stored) => stored,
        Err(error) => return Reply::failed(format!("failed to list stored sessions: {error}")),
    };
    // They are sorted: the first one that fits is the newest.
    let chosen = stored.into_iter().find(|it| {
        let is_cluster = match kind_known {
            Kind::RayCluster => it.cluster.name == name,
            kind => it.cluster.owner.as_ref().is_some_and(|owner| owner.kind == kind && owner.name == name),
        };
        it.cluster.namespace == namespace && is_cluster && (session == "latest" || it.session == session)
    });
    let Some(chosen) = chosen.filter(|_| session != "live") else {
        return Reply::not_found(format!(
            "cluster {namespace}/{kind}/{name} with session {session} not found"
        ));
    };
    // A marker is listed if its name holds that of a session; only the exact one can be entered.
    if time::of_session(&chosen.session).is_none() {
        return Reply::bad_request(format!("invalid session name: {}", go_quoted(&chosen.session)));
    }
    match history.load(&chosen.cluster, &chosen.session).await {
        Ok(Loaded::Live) => success(&chosen.cluster, "live"),
        Ok(Loaded::Stored) => success(&chosen.cluster, &chosen.session),
        Err(message) => Reply::failed(message),
    }
}

/// A running cluster that fits. If Kubernetes is away, only one that has to be running is an error.
async fn find_live(
    history: &History,
    namespace: &str,
    kind: Kind,
    name: &str,
    must_be_live: bool,
) -> Result<Option<Cluster>, Reply> {
    let Some(kubernetes) = history.kubernetes() else { return Ok(None) };
    let named = |cluster: &RayCluster, owner: Option<Owner>| Cluster {
        namespace: namespace.to_owned(),
        name: cluster.metadata.name.clone(),
        owner,
    };
    let found = if kind == Kind::RayCluster {
        let found = kubernetes.cluster(namespace, name).await;
        let label = format!("failed to check live RayCluster {namespace}/{name}");
        found.map(|cluster| Some(named(&cluster, cluster.owner()))).map_err(|failure| (label, failure))
    } else {
        let owner = Owner { kind, name: name.to_owned() };
        let found = kubernetes.clusters_of(namespace, &owner).await;
        found
            .map(|clusters| {
                let first = clusters.first();
                first.map(|cluster| named(cluster, Some(cluster.owner().unwrap_or(owner))))
            })
            .map_err(|failure| ("failed to list live RayClusters".to_owned(), failure))
    };
    match found {
        Ok(cluster) => Ok(cluster),
        Err((_, Failure::NotFound(_))) => Ok(None),
        Err((label, Failure::Other(message))) if must_be_live => {
            Err(Reply::failed(format!("{label}: {message}")))
        }
        Err((label, Failure::Other(message))) => {
            tracing::warn!(message, "{label}; stored sessions are used");
            Ok(None)
        }
    }
}

fn success(cluster: &Cluster, session: &str) -> Reply {
    let mut writer = Writer::new();
    writer.raw("{");
    writer.text_member("result", "success");
    writer.text_member("name", &cluster.name);
    writer.text_member("namespace", &cluster.namespace);
    writer.text_member("session", session);
    writer.raw("}");
    let mut reply = Reply::json(indent(&writer.into_bytes(), " "));
    Choice::new(cluster, session).write(&mut reply.headers);
    reply
}
