//! Discovery: the kinds that a cluster serves, looked up when they are first needed.
//!
//! Most controllers know their kinds. One whose objects name others of any kind finds their paths here.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::RwLock;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    api::Api,
    error::{Class, Error},
    object::ApiKind,
};

/// How long an answer is used. A CRD that is deleted and created again may have another scope or plural.
const FRESH: Duration = Duration::from_mins(10);

/// The kinds of a cluster. Clones share what they know.
#[derive(Clone)]
pub struct Discovery {
    api: Api,
    known: Arc<RwLock<Known>>,
}

/// Kinds by API version and name, and when they were read.
type Known = HashMap<(String, String), (ApiKind, Instant)>;

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

impl Discovery {
    /// Asks the server behind `api`.
    pub fn new(api: Api) -> Self {
        Self { api, known: Arc::default() }
    }

    /// The kind in a group and version, such as `Deployment` in `apps/v1`; `None` if the cluster does not serve it. Only
    /// kinds that exist are remembered: others may be defined at any time.
    pub async fn find(&self, api_version: &str, kind: &str) -> Result<Option<ApiKind>, Error> {
        let id = (api_version.to_owned(), kind.to_owned());
        if let Some((known, since)) = self.known.read().get(&id)
            && since.elapsed() < FRESH
        {
            return Ok(Some(known.clone()));
        }
        let Some(text) = self.api.resources(api_version).await? else { return Ok(None) };
        let list: ResourceList = serde_json::from_str(&text).map_err(|error| {
            Error::new(
                Class::Transient,
                format!("cannot decode the resources of {api_version}"),
                error.to_string(),
            )
        })?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_wanted = |resource: &ApiResource| resource.kind == kind && !resource.name.contains('/');
        let found = list.resources.into_iter().find(is_wanted).map(|resource| ApiKind {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            kind: resource.kind.into(),
            plural: resource.name.into(),
            namespaced: resource.namespaced,
        });
        if let Some(found) = &found {
            self.known.write().insert(id, (found.clone(), Instant::now()));
        }
        Ok(found)
    }
}
