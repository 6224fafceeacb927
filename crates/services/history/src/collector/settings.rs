//! How a collector works: flags and environment, of which the environment wins.

use std::path::PathBuf;
use std::time::Duration;

use crate::layout::{Cluster, Kind, Owner};

/// What the Ray node is that the collector runs beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The head: its collector also polls the dashboard and makes sessions listable.
    Head,
    /// A worker.
    Worker,
}

/// How a collector works.
#[derive(Debug, Clone)]
pub struct CollectorSettings {
    pub(super) role: Role,
    pub(super) cluster: Cluster,
    /// The name of the storage back end, in lower case.
    pub storage_backend: String,
    /// The root of all keys.
    pub storage_root: String,
    /// The file with the settings of the back end; empty for none.
    pub storage_config: String,
    /// The port for events.
    pub events_port: u16,
    pub(super) has_events: bool,
    pub(super) has_logs: bool,
    pub(super) dashboard: String,
    /// The port of the head's dashboard, if its address names none.
    pub(super) dashboard_port: String,
    pub(super) event_directory: PathBuf,
    pub(super) rotation_interval: Duration,
    pub(super) max_file_bytes: u64,
    pub(super) max_disk_bytes: u64,
    pub(super) is_compressed: bool,
    pub(super) poll_interval: Duration,
    pub(super) endpoints: Vec<String>,
    pub(super) ray_root: PathBuf,
    pub(super) pod_ip: Option<String>,
    pub(super) head_address: Option<String>,
    pub(super) credential: Credential,
}

/// How the collector authenticates at the dashboard.
#[derive(Clone)]
pub(super) enum Credential {
    None,
    /// A token, read from a file for every request.
    File(PathBuf),
    Token(String),
    /// A token is needed, but there is none.
    Missing,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Credential")
    }
}

const TOKEN_FILE: &str = "/var/run/secrets/ray.io/serviceaccount/token";

/// Where the dashboard listens if nothing says otherwise.
const DASHBOARD_PORT: &str = "8265";

const MEGABYTE: u64 = 1024 * 1024;

/// The longest name of Kubernetes.
const LONGEST_NAME: usize = 253;

impl CollectorSettings {
    /// Reads the settings. `flag` and `variable` return what is set; an empty value is none.
    pub fn read(
        flag: impl Fn(&str) -> Option<String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let value = |name: &str, environment: &str| variable(environment).or_else(|| flag(name));
        let role = value("role", "RAY_ROLE").unwrap_or_else(|| "Worker".to_owned());
        let role = role.trim();
        let role = match role.to_ascii_lowercase().as_str() {
            "head" => Role::Head,
            "worker" => Role::Worker,
            _ => return Err(format!("Invalid role: {role}, must be Head or Worker")),
        };
        // A tunable of the environment that cannot be read is ignored, so that it never stops a pod.
        let duration = |name: &str, environment: &str, usual: u64| {
            let read = |text: String| parse_duration(&text).filter(|it| !it.is_zero());
            let usual = Duration::from_secs(usual);
            variable(environment).and_then(read).or_else(|| flag(name).and_then(read)).unwrap_or(usual)
        };
        let megabytes = |name: &str, environment: &str, usual: u64| {
            let read = |text: String| text.parse::<u64>().ok().filter(|number| *number > 0);
            let number = variable(environment).and_then(read).or_else(|| flag(name).and_then(read));
            number.unwrap_or(usual).saturating_mul(MEGABYTE)
        };
        let switch = |name: &str, environment: &str, usual: bool| {
            let read = |text: String| parse_flag(&text);
            variable(environment).and_then(read).or_else(|| flag(name).and_then(read)).unwrap_or(usual)
        };
        let has_events = switch("enable-event-collector", "ENABLE_EVENT_COLLECTOR", true);
        let has_logs = switch("enable-log-collector", "ENABLE_LOG_COLLECTOR", true);
        if !has_events && !has_logs {
            return Err("Failed to validate flags: at least one of --enable-event-collector or \
                        --enable-log-collector must be enabled"
                .to_owned());
        }
        let port = flag("events-port").unwrap_or_else(|| "8084".to_owned());
        let port: u16 = port.parse().map_err(|_| format!("--events-port: {port:?} is no port"))?;
        let events_port = variable("EVENTS_PORT").and_then(|it| it.parse().ok()).unwrap_or(port);
        let cluster = cluster(&value).map_err(|error| format!("Failed to validate flags: {error}"))?;
        let port = variable("RAY_DASHBOARD_PORT").unwrap_or_else(|| DASHBOARD_PORT.to_owned());
        let dashboard = value("ray-dashboard-address", "RAY_DASHBOARD_ADDRESS");
        Ok(Self {
            role,
            cluster,
            storage_backend: value("storage-backend", "STORAGE_BACKEND").unwrap_or_default().to_lowercase(),
            storage_root: value("storage-root-dir", "STORAGE_ROOT_DIR").unwrap_or_default(),
            storage_config: value("storage-backend-config-path", "STORAGE_BACKEND_CONFIG_PATH")
                .unwrap_or_default(),
            events_port,
            has_events,
            has_logs,
            dashboard: dashboard.unwrap_or_else(|| format!("http://localhost:{port}")),
            dashboard_port: port,
            event_directory: value("event-data-dir", "RAY_COLLECTOR_EVENT_DATA_DIR")
                .map_or_else(|| PathBuf::from("/tmp/ray/event-data"), PathBuf::from),
            rotation_interval: duration(
                "event-rotation-interval",
                "RAY_COLLECTOR_EVENT_ROTATION_INTERVAL",
                300,
            ),
            max_file_bytes: megabytes("event-max-file-size-mb", "RAY_COLLECTOR_EVENT_MAX_FILE_SIZE_MB", 100),
            max_disk_bytes: megabytes("event-max-disk-mb", "RAY_COLLECTOR_EVENT_MAX_DISK_MB", 200),
            is_compressed: switch(
                "event-compression-enabled",
                "RAY_COLLECTOR_EVENT_COMPRESSION_ENABLED",
                false,
            ),
            poll_interval: duration("", "RAY_COLLECTOR_POLL_INTERVAL", 30),
            endpoints: endpoints(&variable("RAY_COLLECTOR_ADDITIONAL_ENDPOINTS").unwrap_or_default()),
            ray_root: variable("RAY_TMP_ROOT").map_or_else(|| PathBuf::from("/tmp/ray"), PathBuf::from),
            pod_ip: variable("POD_IP"),
            head_address: variable("FQ_RAY_IP"),
            credential: credential(&variable),
        })
    }

    pub(super) fn role_name(&self) -> &'static str {
        match self.role {
            Role::Head => "Head",
            Role::Worker => "Worker",
        }
    }

    /// The message for a back end that cannot be written to.
    pub fn unsupported_backend(&self) -> String {
        format!("Not supported storage backend: {} for role: {}.", self.storage_backend, self.role_name())
    }
}

fn cluster(value: &impl Fn(&str, &str) -> Option<String>) -> Result<Cluster, String> {
    let name = value("ray-cluster-name", "RAY_CLUSTER_NAME").unwrap_or_default();
    let namespace =
        value("ray-cluster-namespace", "RAY_CLUSTER_NAMESPACE").unwrap_or_else(|| "default".to_owned());
    let (name, namespace) = (name.trim().to_owned(), namespace.trim().to_owned());
    check_name("ray-cluster-name", &name)?;
    check_name("ray-cluster-namespace", &namespace)?;
    let trimmed = |it: String| Some(it.trim().to_owned()).filter(|it| !it.is_empty());
    let kind = value("owner-kind", "OWNER_KIND").and_then(trimmed).map(|it| it.to_lowercase());
    let owner = value("owner-name", "OWNER_NAME").and_then(trimmed);
    let owner = match (kind, owner) {
        (None, None) => None,
        (Some(kind), Some(name)) => {
            let known = Kind::parse(&kind).filter(|kind| *kind != Kind::RayCluster);
            let known = known.ok_or_else(|| {
                format!("unsupported owner-kind: {kind:?}. Supported kinds are \"rayjob\" or \"rayservice\"")
            })?;
            check_name("owner-name", &name)?;
            Some(Owner { kind: known, name })
        }
        _ => {
            return Err(
                "both --owner-name and --owner-kind must be provided together, or both omitted".to_owned()
            );
        }
    };
    Ok(Cluster { namespace, name, owner })
}

/// Checks a DNS-1123 subdomain.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    let is_label = |label: &str| {
        let is_edge =
            |byte: Option<u8>| byte.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
        is_edge(label.bytes().next())
            && is_edge(label.bytes().last())
            && label.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
    };
    let too_long =
        (name.len() > LONGEST_NAME).then(|| format!("must be no more than {LONGEST_NAME} characters"));
    let malformed = (!name.split('.').all(is_label)).then(|| {
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
         '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
         validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            .to_owned()
    });
    let faults: Vec<String> = too_long.into_iter().chain(malformed).collect();
    if faults.is_empty() { Ok(()) } else { Err(format!("invalid {what} {name:?}: {}", faults.join(", "))) }
}

fn credential(variable: &impl Fn(&str) -> Option<String>) -> Credential {
    if variable("RAY_ENABLE_K8S_TOKEN_AUTH").as_deref().and_then(parse_flag) == Some(true) {
        return Credential::File(PathBuf::from(TOKEN_FILE));
    }
    match variable("RAY_AUTH_TOKEN").map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()) {
        Some(token) => Credential::Token(token),
        None if variable("RAY_AUTH_MODE").is_some_and(|it| it.eq_ignore_ascii_case("token")) => {
            Credential::Missing
        }
        None => Credential::None,
    }
}

/// Endpoints to poll besides the built-in ones. Those that are no paths are left out.
fn endpoints(text: &str) -> Vec<String> {
    let mut endpoints: Vec<String> = Vec::new();
    for endpoint in text.split(',').map(str::trim).filter(|it| it.starts_with('/')) {
        if !endpoints.iter().any(|it| it == endpoint) {
            endpoints.push(endpoint.to_owned());
        }
    }
    endpoints
}

/// Reads a flag as Go's `strconv.ParseBool`.
fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Reads a duration as Go writes it: `5m`, `1h30m`, `1.5s`, `100ms`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.').filter(|length| *length > 0)?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(rest.len());
        let factor = match &rest[..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number * factor;
        rest = &rest[unit..];
    }
    if text.is_empty() { None } else { Duration::try_from_secs_f64(seconds).ok() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CollectorSettings, Credential, parse_duration};

    fn read(flags: &[(&str, &str)], environment: &[(&str, &str)]) -> Result<CollectorSettings, String> {
        let find = |pairs: &[(&str, &str)], name: &str| {
            pairs.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned())
        };
        let mut flags = flags.to_vec();
        flags.push(("ray-cluster-name", "demo"));
        CollectorSettings::read(|name| find(&flags, name), |name| find(environment, name))
    }

    #[test]
    fn the_environment_wins_and_bad_tunables_are_ignored() {
        let settings = read(
            &[("event-max-disk-mb", "7"), ("storage-backend", "s3")],
            &[("STORAGE_BACKEND", "AzureBlob"), ("RAY_COLLECTOR_EVENT_MAX_DISK_MB", "many")],
        );
        let settings = settings.map(|it| (it.storage_backend, it.max_disk_bytes));
        assert_eq!(settings, Ok(("azureblob".to_owned(), 7 * 1024 * 1024)));
        assert!(read(&[("role", "Boss")], &[]).is_err_and(|error| error.contains("must be Head or Worker")));
        assert!(read(&[("owner-kind", "rayjob")], &[]).is_err());
        assert!(read(&[("owner-kind", "rayjob"), ("owner-name", "X_")], &[]).is_err());
        assert!(read(&[("owner-kind", "RayJob"), ("owner-name", "j")], &[]).is_ok());
        let long = "a".repeat(254);
        assert_eq!(
            read(&[("ray-cluster-namespace", long.as_str())], &[]).err(),
            Some(format!(
                "Failed to validate flags: invalid ray-cluster-namespace {long:?}: must be no more than 253 characters"
            ))
        );
        let settings = read(
            &[("role", " head "), ("events-port", "9000"), ("event-rotation-interval", "0")],
            &[
                ("RAY_CLUSTER_NAME", " trimmed "),
                ("OWNER_KIND", " RayService "),
                ("OWNER_NAME", " s "),
                ("EVENTS_PORT", "many"),
                ("RAY_COLLECTOR_POLL_INTERVAL", "0"),
            ],
        )
        .expect("settings");
        assert_eq!((settings.role, settings.events_port), (super::Role::Head, 9000));
        assert_eq!(settings.cluster.session("x"), "cluster-history/rayservice/default/s/trimmed/x");
        let intervals = (settings.rotation_interval.as_secs(), settings.poll_interval.as_secs());
        assert_eq!(intervals, (300, 30));
    }

    #[test]
    fn tokens_are_needed_by_the_spellings_of_go() {
        let credential = |name: &str, value: &str| read(&[], &[(name, value)]).expect("settings").credential;
        for value in ["1", "t", "TRUE", "true"] {
            assert!(matches!(credential("RAY_ENABLE_K8S_TOKEN_AUTH", value), Credential::File(_)), "{value}");
        }
        for value in ["yes", "tRUE", "0"] {
            assert!(matches!(credential("RAY_ENABLE_K8S_TOKEN_AUTH", value), Credential::None), "{value}");
        }
        assert!(matches!(credential("RAY_AUTH_MODE", "Token"), Credential::Missing));
        assert!(matches!(credential("RAY_AUTH_TOKEN", " t \n"), Credential::Token(token) if token == "t"));
    }

    #[test]
    fn durations_are_read_as_go_does() {
        let cases = [
            ("5m", Some(300.0)),
            ("1h30m", Some(5400.0)),
            ("1.5s", Some(1.5)),
            ("100ms", Some(0.1)),
            ("0", Some(0.0)),
            ("x", None),
            ("5", None),
            ("", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse_duration(text), seconds.map(Duration::from_secs_f64), "{text}");
        }
    }
}
