//! Serve's applications on the clusters of a RayService: what they are, and what they should be.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    io::{Read, Write},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
use quintet_api::ray::conditions;
use quintet_api::{
    names::short_hash,
    ray::v1::{AppStatus, RayCluster, ServeDeploymentStatus},
};
use quintet_controller::{Action, ApiKind, cache::Entry};
use serde_json::{Value, json};

use super::{Draft, clusters::annotation};
use crate::{
    dashboard::{Address, Applications, ServeChange, ServeRequest},
    rayservice::{ObservedSide, Step, events, objects::APPLIED_CONFIG, upgrade::Side},
};

/// Configs up to this size are remembered as they are, larger ones compressed.
const PLAIN_BYTES: usize = 16 << 10;
/// What does not become smaller than this is remembered by its hash: all annotations of an object share 256 KiB.
const REMEMBERED_BYTES: usize = 128 << 10;
/// No config that was remembered is larger.
const LARGEST_BYTES: u64 = 16 << 20;

/// How Serve is on a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Served {
    /// Whether all that was asked for runs.
    pub is_ready: bool,
    /// The state of the applications; `None` if Ray has not said.
    pub statuses: Option<BTreeMap<String, AppStatus>>,
}

/// Whether the head of a cluster can be asked.
pub(crate) fn head_is_ready(side: &ObservedSide, conditions_are_on: bool) -> bool {
    let Some(cluster) = &side.cluster else { return false };
    if !conditions_are_on {
        return side.head.as_ref().is_some_and(|head| head.object.is_running_and_ready());
    }
    let conditions = cluster.object.status.as_ref().and_then(|status| status.conditions.as_deref());
    quintet_api::conditions::is_true(conditions.unwrap_or_default(), conditions::HEAD_POD_READY)
}

/// Looks at the applications of one cluster and, if it may, makes them what the service wants.
pub(crate) fn reconcile(draft: &mut Draft<'_>, side: Side, may_deploy: bool) -> Served {
    let observed = draft.observed;
    let of_side = observed.side(side);
    let Some(cluster) = &of_side.cluster else {
        return Served { statuses: Some(BTreeMap::new()), ..Served::default() };
    };
    if !head_is_ready(of_side, observed.settings.gates.status_conditions) {
        return Served { statuses: Some(BTreeMap::new()), ..Served::default() };
    }
    let (Some(at), Some(Ok(heard))) =
        (&of_side.address, of_side.applications.as_ref().map(|heard| &heard.response))
    else {
        return Served::default();
    };
    let needs_deploy = may_deploy && needs_deploy(draft, cluster, heard);
    if needs_deploy {
        let text = observed.object().spec.serve_config_v2.clone().unwrap_or_default();
        deploy(draft, cluster, at, &text, draft.capacity(side), ServeChange::Applications);
    }
    let runs = |app: &AppStatus| app.status.as_deref() == Some("RUNNING");
    let statuses = statuses(heard);
    let is_ready = !needs_deploy && !statuses.is_empty() && statuses.values().all(runs);
    Served { is_ready, statuses: Some(statuses) }
}

fn needs_deploy(draft: &Draft<'_>, cluster: &Entry<RayCluster>, heard: &Applications) -> bool {
    let text = draft.observed.object().spec.serve_config_v2.as_deref().unwrap_or_default();
    if !has(&cluster.object, text) {
        return true;
    }
    // A head that came back without its memory.
    heard.applications.is_empty() && has_applications(text)
}

fn has_applications(text: &str) -> bool {
    let applications =
        config(text).ok().and_then(|config| config.get("applications")?.as_array().map(Vec::len));
    applications.unwrap_or_default() > 0
}

/// What is written on a cluster about the config it was given.
pub(crate) fn remembered(text: &str) -> String {
    if text.len() <= PLAIN_BYTES {
        return text.to_owned();
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    let compressed = compressed.map(|bytes| format!("{COMPRESSED}{}", BASE64_STANDARD.encode(bytes)));
    let fits = compressed.ok().filter(|text| text.len() <= REMEMBERED_BYTES);
    fits.unwrap_or_else(|| hashed(text))
}

const COMPRESSED: &str = "zlib:";
const HASHED: &str = "sha1:";

fn hashed(text: &str) -> String {
    format!("{HASHED}{}", short_hash(text, 40))
}

/// The config that a cluster was given, if it could be remembered.
pub(crate) fn applied(cluster: &RayCluster) -> Option<Cow<'_, str>> {
    let known = annotation(cluster, APPLIED_CONFIG).filter(|known| !known.starts_with(HASHED))?;
    let Some(compressed) = known.strip_prefix(COMPRESSED) else { return Some(known.into()) };
    let bytes = BASE64_STANDARD.decode(compressed).ok()?;
    let mut text = String::new();
    ZlibDecoder::new(bytes.as_slice()).take(LARGEST_BYTES).read_to_string(&mut text).ok()?;
    Some(text.into())
}

/// Whether a cluster was given any config by us.
pub(crate) fn was_told(cluster: &RayCluster) -> bool {
    annotation(cluster, APPLIED_CONFIG).is_some()
}

/// Whether a cluster was given this config.
pub(crate) fn has(cluster: &RayCluster, text: &str) -> bool {
    annotation(cluster, APPLIED_CONFIG) == Some(hashed(text).as_str())
        || applied(cluster).as_deref() == Some(text)
}

fn config(text: &str) -> Result<serde_json::Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(serde_json::Map::new());
    }
    match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Object(config)) => Ok(config),
        Ok(Value::Null) => Ok(serde_json::Map::new()),
        Ok(_) => Err("serveConfigV2 must be a YAML mapping with `applications`".to_owned()),
        Err(error) => {
            let text = error.to_string();
            Err(format!("serveConfigV2 is not valid YAML: {}", text.lines().next().unwrap_or_default()))
        }
    }
}

/// Gives Ray a config, and writes on the cluster that it has it. Says whether the config can be given at all.
pub(crate) fn deploy(
    draft: &mut Draft<'_>,
    cluster: &Entry<RayCluster>,
    at: &Address,
    text: &str,
    capacity: Option<i32>,
    change: ServeChange,
) -> bool {
    let mut config = match config(text) {
        Ok(config) => config,
        Err(error) => {
            draft.events.push(events::failed_to_update_applications(&cluster.key, &error));
            return false;
        }
    };
    if let Some(capacity) = capacity {
        config.insert("target_capacity".to_owned(), capacity.into());
    }
    let root = draft.observed.service.key.clone();
    let event = match change {
        ServeChange::Applications => events::updated_applications(&cluster.key),
        ServeChange::TargetCapacity => events::updated_capacity(&cluster.key),
    };
    let (cluster_key, at) = (cluster.key.clone(), at.clone());
    let config = Value::Object(config);
    let request = ServeRequest::DeployServeConfig { root, cluster: cluster_key, at, config, change };
    draft.requests.push(Action::Call(request).with_event(event));
    if !has(&cluster.object, text) {
        let patch = json!({ "metadata": { "annotations": { APPLIED_CONFIG: remembered(text) } } });
        let mark = Action::merge(ApiKind::of::<RayCluster>(), cluster.key.clone(), patch);
        draft.requests.push(Step::from(mark));
    }
    true
}

fn statuses(heard: &Applications) -> BTreeMap<String, AppStatus> {
    let some = |text: &String| Some(text.clone());
    let app = |(name, app): (&String, &crate::dashboard::Application)| {
        let deployments = app.deployments.iter().map(|(name, deployment)| {
            let status = ServeDeploymentStatus {
                status: some(&deployment.status),
                message: Some(deployment.message.clone()).filter(|text| !text.is_empty()),
            };
            (name.clone(), status)
        });
        let status = AppStatus {
            status: some(&app.status),
            message: Some(app.message.clone()).filter(|text| !text.is_empty()),
            serve_deployment_statuses: Some(deployments.collect()),
        };
        (name.clone(), status)
    };
    heard.applications.iter().map(app).collect()
}
