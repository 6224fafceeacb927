//! Objects as the store keeps them: from and to the storage version of their kind.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use crate::{
    api::Api,
    crd, decode, model,
    resources::Resource,
    status::Failure,
    store::{Entry, Put},
};

/// The largest object that is kept: as large as a request may be.
const OBJECT_AT_MOST: usize = decode::BODY_AT_MOST;
/// The deepest one: JSON is read up to 128 levels, and an object must be readable again.
const DEPTH_AT_MOST: usize = 120;

impl Api {
    /// Whether stored bytes are what a reader of this resource gets.
    pub(crate) fn reads_raw(resource: &Resource, entry: &Entry) -> bool {
        resource.reads_as_stored()
            && entry.version == resource.storage_version
            && entry.epoch == resource.epoch
    }

    /// Whether a reader of this resource gets what a webhook or the like makes of a stored object.
    pub(crate) fn needs_conversion(resource: &Resource, entry: &Entry) -> bool {
        resource.as_custom().is_some() && entry.version != resource.version
    }

    /// A stored object in the version of a resource; as it is stored if that needs conversion.
    pub(crate) fn load_unconverted(resource: &Resource, entry: &Entry) -> Result<Value, Value> {
        let group = resource.storage_api_version.split_once('/').map_or("", |(group, _)| group);
        let stored = crate::resources::api_version(group, &entry.version);
        let mut object = entry.to_value(&stored, &resource.kind);
        match resource.as_custom() {
            None => Ok(model::convert_built_in(resource, object)),
            Some(_) if Self::needs_conversion(resource, entry) => Err(object),
            Some(custom) => {
                if entry.epoch != resource.epoch {
                    model::refresh_custom(custom, &mut object);
                }
                Ok(object)
            }
        }
    }

    /// A stored object in the version of a resource.
    pub(crate) async fn load(&self, resource: &Resource, entry: &Entry) -> Result<Value, Failure> {
        match (Self::load_unconverted(resource, entry), resource.as_custom()) {
            (Err(object), Some(custom)) => {
                let converted = crd::conversion::convert(self, custom, object, &resource.api_version);
                let mut object = converted.await?;
                model::refresh_custom(custom, &mut object);
                Ok(object)
            }
            (Ok(object) | Err(object), _) => Ok(object),
        }
    }

    /// Stored objects in the version of a resource, converted together.
    pub(crate) async fn load_all(
        &self,
        resource: &Resource,
        entries: &[Arc<Entry>],
    ) -> Result<Vec<Value>, Failure> {
        let stored =
            |entry: &Arc<Entry>| Self::load_unconverted(resource, entry).unwrap_or_else(|stored| stored);
        let objects = entries.iter().map(stored).collect();
        let Some(custom) = resource.as_custom() else { return Ok(objects) };
        let mut objects = crd::conversion::convert_all(self, custom, objects, &resource.api_version).await?;
        for (object, entry) in objects.iter_mut().zip(entries) {
            if Self::needs_conversion(resource, entry) {
                model::refresh_custom(custom, object);
            }
        }
        Ok(objects)
    }

    /// An object as it is stored.
    pub(crate) async fn encode(&self, resource: &Resource, object: &Value) -> Result<Put, Failure> {
        let object = if resource.reads_as_stored() {
            Cow::Borrowed(object)
        } else {
            let mut object = object.clone();
            match resource.as_custom() {
                None => quintet_objects::builtin::convert(&mut object, &resource.storage_api_version),
                Some(custom) => {
                    object =
                        crd::conversion::convert(self, custom, object, &resource.storage_api_version).await?;
                }
            }
            Cow::Owned(object)
        };
        if crate::json::is_deeper(&object, DEPTH_AT_MOST) {
            return Err(Failure::bad_request(format!(
                "the object is nested too deeply: at most {DEPTH_AT_MOST} levels can be stored"
            )));
        }
        let put = Put::new(Arc::clone(&resource.storage_version), &object, resource.epoch);
        if put.body.len() > OBJECT_AT_MOST {
            return Err(Failure::too_large(OBJECT_AT_MOST));
        }
        Ok(put)
    }
}
