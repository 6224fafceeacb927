//! Health of Ray containers: of the raylet, of the control store on the head, of Serve's proxy on the workers
//! of a RayService.

use k8s_openapi::api::core::v1::{Container, ExecAction, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{
    Origin, Role,
    ray_start::{AGENT_PORT, Params},
};
use crate::{
    k8s_service::{DASHBOARD_PORT, SERVE, SERVE_PORT},
    version::RayVersion,
};

/// From here on one request tells whether a node is healthy.
const ONE_REQUEST_SINCE: RayVersion = RayVersion::new(2, 53, 0);

/// Adds the probes that the user has not set.
pub(super) fn add(container: &mut Container, role: Role, origin: Origin, params: &Params, version: &str) {
    let check = Check::new(role, params, version);
    let timeout = if role == Role::Head { 5 } else { 2 };
    let probe = |delay, failures| Probe {
        initial_delay_seconds: Some(delay),
        timeout_seconds: Some(timeout),
        period_seconds: Some(5),
        success_threshold: Some(1),
        failure_threshold: Some(failures),
        ..Probe::default()
    };
    if container.liveness_probe.is_none() {
        container.liveness_probe = Some(check.by_request_or_commands(probe(30, 120)));
    }
    if container.readiness_probe.is_none() {
        let serves = origin == Origin::RayService && role == Role::Worker;
        container.readiness_probe = Some(if serves {
            // A worker that cannot serve must not get one more request.
            check.with_serve_proxy(probe(10, 1), container)
        } else {
            check.by_request_or_commands(probe(10, 10))
        });
    }
}

struct Check {
    request: Option<HTTPGetAction>,
    commands: Vec<String>,
}

impl Check {
    fn new(role: Role, params: &Params, version: &str) -> Self {
        let agent = params.port("dashboard-agent-listen-port").unwrap_or(AGENT_PORT);
        let answers_one_request =
            version.parse::<RayVersion>().is_ok_and(|version| version >= ONE_REQUEST_SINCE);
        let request = answers_one_request.then(|| HTTPGetAction {
            path: Some("/api/healthz".to_owned()),
            port: IntOrString::Int(agent),
            ..HTTPGetAction::default()
        });
        let mut commands = vec![ask(2, agent, "api/local_raylet_healthz")];
        if role == Role::Head {
            let dashboard = params.port("dashboard-port").unwrap_or(DASHBOARD_PORT);
            commands.push(ask(10, dashboard, "api/gcs_healthz"));
        }
        Self { request, commands }
    }

    fn by_request_or_commands(&self, probe: Probe) -> Probe {
        match &self.request {
            Some(request) => Probe { http_get: Some(request.clone()), ..probe },
            None => Probe { exec: Some(all(&self.commands)), ..probe },
        }
    }

    fn with_serve_proxy(&self, probe: Probe, container: &Container) -> Probe {
        let ports = container.ports.iter().flatten();
        let port = ports.into_iter().find(|port| port.name.as_deref() == Some(SERVE));
        let port = port.map_or(SERVE_PORT, |port| port.container_port);
        let mut commands = self.commands.clone();
        commands.push(ask(10, port, "-/healthz"));
        Probe { exec: Some(all(&commands)), ..probe }
    }
}

fn ask(timeout: i32, port: i32, path: &str) -> String {
    format!("wget --tries 1 -T {timeout} -q -O- http://localhost:{port}/{path} | grep success")
}

fn all(commands: &[String]) -> ExecAction {
    ExecAction { command: Some(vec!["bash".to_owned(), "-c".to_owned(), commands.join(" && ")]) }
}
