//! The admin server: health, readiness, metrics and debug state over plain HTTP.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::{ConnectInfo, RawQuery, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
pub use quintet_foundation::tls::bind;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    Runtime, api::Api, leader::Leadership, metrics::MetricsRegistry, tasks::Tasks,
    webhook::CertificateManager,
};

/// A component of the process.
#[derive(Clone, Copy, Debug)]
pub struct AdminComponent {
    /// Its name.
    pub name: &'static str,
    /// Whether anything reconciles its objects.
    pub has_controllers: bool,
}

/// What the admin server reports on.
#[derive(Clone)]
pub struct Admin {
    /// The components that are switched on, for readiness.
    pub components: Vec<AdminComponent>,
    /// Metrics.
    pub registry: MetricsRegistry,
    /// Caches, for readiness and debug state; queue and indexes, for debug state.
    pub runtime: Runtime,
    /// Leadership, for debug state.
    pub leadership: Leadership,
    /// Webhook certificates, for readiness and debug state, if webhooks are served.
    pub certificates: Option<CertificateManager>,
    /// The API connection, for debug state.
    pub api: Api,
    /// The tasks of the process.
    pub tasks: Tasks,
}

impl Admin {
    /// What keeps the process from being ready, in words.
    ///
    /// A standby is ready: it keeps its caches warm and serves webhooks.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = self.runtime.caches().missing();
        missing.extend(self.certificates.as_ref().and_then(CertificateManager::missing));
        if self.tasks.is_stopping() {
            missing.push("the process is stopping".to_owned());
        }
        missing
    }

    /// The debug state.
    pub fn state(&self) -> Value {
        json!({
            "watches": self.runtime.caches().report(),
            "queues": self.runtime.queue().report(),
            "indexes": self.runtime.indexes(),
            "lease": self.leadership.report(),
            "limiter": self.api.limiter().report(),
            "certificates": self.certificates.as_ref().map(CertificateManager::report),
            "tasks": self.tasks.running(),
            "missing": self.missing(),
        })
    }

    /// The routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/debug/state", get(debug_state))
            .with_state(Arc::new(self))
    }

    /// Serves on a listener until the tasks stop.
    pub fn serve(self, listener: TcpListener) {
        let (tasks, stopping) = (self.tasks.clone(), self.tasks.clone());
        let service = self.router().into_make_service_with_connect_info::<SocketAddr>();
        tasks.spawn("admin", async move {
            let serve = axum::serve(listener, service);
            if let Err(error) = serve.with_graceful_shutdown(async move { stopping.stopping().await }).await {
                tracing::error!("the admin server ended: {error}");
            }
        });
    }
}

async fn healthz(State(admin): State<Arc<Admin>>) -> Response {
    let panicked = admin.tasks.panicked();
    if panicked.is_empty() {
        return "ok\n".into_response();
    }
    let text = format!("tasks panicked: {}\n", panicked.join(", "));
    (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
}

/// What is missing; with `?verbose` also what runs, as Kubernetes components do.
async fn readyz(State(admin): State<Arc<Admin>>, RawQuery(query): RawQuery) -> Response {
    let missing = admin.missing();
    let is_ready = missing.is_empty();
    let mut text = if is_ready { "ok\n".to_owned() } else { missing.join("\n") + "\n" };
    let is_verbose = query.is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
    if is_verbose {
        text.extend(admin.components.iter().map(|AdminComponent { name, has_controllers }| {
            let remark = if *has_controllers { "" } else { ": no controllers yet" };
            format!("component {name}{remark}\n")
        }));
        text.extend(
            admin
                .runtime
                .caches()
                .report()
                .iter()
                .map(|watch| format!("watch {}: {} objects, {:?}\n", watch.kind, watch.objects, watch.phase)),
        );
    }
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, text).into_response()
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], admin.registry.encode()).into_response()
}

/// Object names may be confidential, so this is served on loopback only; `kubectl port-forward` reaches it.
async fn debug_state(
    State(admin): State<Arc<Admin>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
) -> Response {
    if !peer.ip().to_canonical().is_loopback() {
        return StatusCode::NOT_FOUND.into_response();
    }
    Json(admin.state()).into_response()
}
