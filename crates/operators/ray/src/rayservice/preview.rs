//! What a RayService becomes, without a cluster to try it on.

use quintet_api::ray::v1::RayService;
use serde_json::{Value, json};

use super::{gateway, objects, upgrade};
use crate::{rayservice::validation as rules, settings::Settings};

/// The objects that would be made for a new RayService, in order. The error is for the user to fix.
///
/// Names end with characters that differ every time; here they are always the same.
pub fn preview(service: &RayService, settings: &Settings) -> Result<Vec<Value>, String> {
    rules::validate_metadata(service).and_then(|()| rules::validate_spec(service, settings))?;
    let mut service = service.clone();
    let metadata = &mut service.metadata;
    metadata.namespace.get_or_insert_with(|| "default".to_owned());
    metadata.uid.get_or_insert_with(|| "00000000-0000-0000-0000-000000000000".to_owned());
    let name = format!("{}-xxxxx", metadata.name.as_deref().unwrap_or_default());
    let cluster = objects::cluster(&service, &name, false, settings);
    let mut made = vec![json!(cluster), json!(objects::head_service(&service, &cluster, settings))];
    if upgrade::is_incremental(&service.spec, settings) {
        let mut live = cluster.clone();
        live.metadata.uid.clone_from(&service.metadata.uid);
        made.push(json!(objects::cluster_serve_service(&live)?));
        let backend = gateway::Backend { cluster: &cluster, weight: 100 };
        let routing = [
            (gateway::gateway_kind(), gateway::gateway(&service)),
            (gateway::route_kind(), gateway::route(&service, &[backend])),
        ];
        made.extend(routing.map(|(kind, mut object)| {
            object["apiVersion"] = format!("{}/{}", kind.group, kind.version).into();
            object["kind"] = kind.kind.as_ref().into();
            object
        }));
    } else {
        made.push(json!(objects::serve_service(&service, &cluster)?));
    }
    Ok(made)
}
