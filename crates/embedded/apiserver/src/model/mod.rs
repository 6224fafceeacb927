//! What the server needs to know about a kind, whether it is built in or defined by a CRD.

mod openapi;
mod ownership;
mod patches;
mod representation;
mod selection;
mod strategy;
mod validation;
mod versions;

pub(crate) use openapi::{openapi_v2, openapi_v3};
pub(crate) use ownership::{apply, fit_applied, merge_configuration, own};
pub(crate) use patches::{json_patch, merge_patch, strategic_merge};
pub(crate) use representation::{from_protobuf, has_protobuf, table, to_protobuf, watch_event_protobuf};
pub(crate) use selection::{field_value, label_selector, scale_paths, selectable_fields, selector_text};
pub(crate) use strategy::{
    bump_generation, count_generation, default, finish_create, hold_back, holds_back, is_same,
    mark_terminating, needs_resource_version, prepare_create, prepare_update,
};
pub(crate) use validation::{validate_create, validate_update};
pub(crate) use versions::{convert_built_in, fit_custom, refresh_custom};
