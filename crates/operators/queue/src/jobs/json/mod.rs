//! Kinds of jobs of other projects, read and written as JSON.
//!
//! A kind implements [`JsonKind`], which says where things are in its objects; [`JsonJob`] makes a job of it for the
//! framework, and [`webhook`](super::webhook) its webhooks. Objects stay whole: fields that this version does not know are
//! written back as they were, also in lists, which a merge patch replaces.

mod app_wrapper;
mod job_set;
mod kubeflow;
mod mpi_job;
mod pod_defaults;
mod ray_child;
mod ray_cluster;
mod ray_job;
mod ray_service;
mod spark_application;
#[cfg(test)]
mod tests;
mod train_job;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::metadata::ELASTIC_JOB;
use quintet_api::kueue::v1beta2::{PodSet, ReclaimablePod};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Step};
use quintet_queue_engine::settings::Gates;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value, json};

use super::topology_request::{self, Ranks};
use super::{Counts, JobEnd, JobKind, PodSetInfo, Reference, Stop, StopReason, pod_set_info};
use crate::settings::Settings;
use crate::validation::Errors;
pub(super) use app_wrapper::AppWrapper;
pub(super) use job_set::JobSet;
pub(super) use kubeflow::{JaxJob, PaddleJob, PyTorchJob, TfJob, XgBoostJob};
pub(super) use mpi_job::MpiJob;
pub(super) use ray_cluster::RayCluster;
pub(super) use ray_job::RayJob;
pub(super) use ray_service::RayService;
pub(super) use spark_application::SparkApplication;
pub(super) use train_job::{MANAGER as RUNTIME_PATCH_MANAGER, TrainJob};

/// What a kind and its webhooks are called.
#[derive(Clone, Copy, Debug)]
pub(super) struct KindNames {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) framework: &'static str,
    pub(super) controller: &'static str,
    pub(super) mutating: &'static str,
    pub(super) validating: &'static str,
    pub(super) mutate_path: &'static str,
    pub(super) validate_path: &'static str,
}

/// The names of a kind: its group, the same with dashes, its version, its kind, and that in lower case.
macro_rules! names {
    ($group:literal, $dashed:literal, $version:literal, $kind:literal, $lower:literal) => {
        $crate::jobs::json::KindNames {
            group: $group,
            version: $version,
            kind: $kind,
            plural: concat!($lower, "s"),
            framework: concat!($group, "/", $lower),
            controller: concat!($group, "/", $lower, "-kueue-controller"),
            mutating: concat!("m", $lower, ".kb.io"),
            validating: concat!("v", $lower, ".kb.io"),
            mutate_path: concat!("/mutate-", $dashed, "-", $version, "-", $lower),
            validate_path: concat!("/validate-", $dashed, "-", $version, "-", $lower),
        }
    };
}
use names;

/// What an update of a job is checked for, and in which order errors are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpdateCheck {
    /// The change, then the new state as if it were created.
    ChangeThenState,
    /// As [`UpdateCheck::ChangeThenState`], unless the job is not managed and was not.
    OfManaged,
    /// The change, and the topology requests of the new state.
    ChangeOnly,
}

/// What is checked first of the topology requests of a job, and what if one of them cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopologyOrder {
    /// Nothing but that they can be read; then the templates, and then their groups.
    IfReadable,
    /// The templates, then their groups.
    Templates,
    /// The head, the groups, then the workers.
    Head,
    /// As [`TopologyOrder::Head`], but groups before sizes, and workers only if all requests can be read.
    HeadAndGroups,
}

/// Pods of one template.
#[derive(Clone, Debug)]
pub(super) struct Role {
    /// The name of its pod set.
    pub(super) name: String,
    pub(super) count: i32,
    /// The JSON pointer to its template.
    pub(super) pointer: String,
    /// The path of its template, as errors have it.
    pub(super) path: String,
    pub(super) ranks: Ranks,
}

/// The annotations of a template, which may ask for a topology.
#[derive(Clone, Debug)]
pub(super) struct TopologyAsk {
    /// The path of the annotations.
    pub(super) path: String,
    pub(super) annotations: Value,
    /// How many pods there are.
    pub(super) count: i32,
}

fn annotations_of(template: &Value) -> Value {
    template["metadata"]["annotations"].clone()
}

/// A kind of job: where things are in its objects.
pub(super) trait JsonKind: Clone + Debug + Send + Sync + 'static {
    const NAMES: KindNames;
    /// The JSON pointer to the field that suspends it.
    const SUSPEND: &'static str = "/spec/suspend";
    /// Whether a job that runs does not have that field, rather than `false` in it.
    const OMITS_SUSPEND: bool = false;
    /// Whether its templates can be changed only while it is suspended and has no pods.
    const CHANGES_WHILE_SUSPENDED: bool = false;
    /// Whether users may make its Workload.
    const TAKES_PREBUILT: bool = true;
    /// Whether it may change its size while it runs.
    const TAKES_ELASTIC: bool = false;
    const UPDATE: UpdateCheck = UpdateCheck::ChangeThenState;
    /// Whether errors are reported in the order of the fields.
    const SORTS_ERRORS: bool = false;
    /// Whether pod sets may be placed as a group.
    const TAKES_GROUPS: bool = true;
    /// In which order its topology requests are checked.
    const TOPOLOGY_ORDER: TopologyOrder = TopologyOrder::IfReadable;

    /// Its pods, by template.
    fn roles(job: &Value) -> Vec<Role>;

    /// Whether pods of it exist.
    fn is_active(job: &Value) -> bool;

    /// How it ended, if it did.
    fn end(job: &Value) -> Option<JobEnd>;

    /// Whether all pods are ready or have succeeded.
    fn is_ready(job: &Value) -> bool;

    /// Pods that will not run any more, given the objects that it refers to.
    fn reclaimable_pods(job: &Value, related: &[Value]) -> Vec<ReclaimablePod> {
        let _ = (job, related);
        Vec::new()
    }

    /// The PriorityClass that it names itself.
    fn priority_class(job: &Value) -> Option<String> {
        let _ = job;
        None
    }

    /// Whether it is one of those that are managed.
    fn is_managed(job: &Value) -> bool {
        let _ = job;
        true
    }

    /// Whether it cannot run until its user has changed it.
    fn is_on_hold(job: &Value) -> bool {
        let _ = job;
        false
    }

    /// Whether it keeps its quota while it is deleted.
    fn outlives_deletion(job: &Value, settings: &Settings) -> bool {
        let _ = (job, settings);
        false
    }

    /// Kinds of objects that jobs refer to.
    fn related_kinds() -> Vec<ApiKind> {
        Vec::new()
    }

    /// The objects that its pods depend on.
    fn references(job: &Value) -> Vec<Reference> {
        let _ = job;
        Vec::new()
    }

    /// What it runs, given the objects that it refers to.
    fn pod_sets(job: &Value, related: &[Value], gates: &Gates) -> Result<Vec<PodSet>, String> {
        let _ = related;
        pod_sets_of_roles::<Self>(job, gates)
    }

    /// What differs whenever the size of an elastic job does.
    fn revision(job: &Value) -> String {
        job["metadata"]["generation"].as_i64().unwrap_or_default().to_string()
    }

    /// The pod sets that can grow by less than they ask for, and how few pods are enough at its start.
    fn min_counts(job: &Value) -> BTreeMap<String, i32> {
        let _ = job;
        BTreeMap::new()
    }

    /// Whether as many pods of every pod set as these are ready.
    fn has_ready(job: &Value, counts: &Counts) -> bool {
        let _ = counts;
        Self::is_ready(job)
    }

    /// Annotations that an elastic job gets, given the objects that it refers to.
    fn annotations(job: &Value, related: &[Value]) -> BTreeMap<String, String> {
        let _ = (job, related);
        BTreeMap::new()
    }

    /// Writes what its pod sets were assigned into its templates.
    fn inject(job: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
        inject_into_roles(job, &Self::roles(job), infos)
    }

    /// Undoes [`JsonKind::inject`], given the pod sets of its Workload.
    fn restore(job: &mut Value, sets: &[PodSet]) {
        let roles = Self::roles(job);
        if roles.len() == sets.len() {
            restore_roles(job, &roles, sets);
        }
    }

    /// Whether nothing of a start is left in it, for kinds with [`JsonKind::CHANGES_WHILE_SUSPENDED`].
    fn is_restored(job: &Value) -> bool {
        let _ = job;
        true
    }

    /// Said after every error about a topology request.
    const TOPOLOGY_HINT: &'static str = "";

    /// What its templates ask of a topology. The error says why that is not known.
    fn topology_requests(job: &Value, related: &[Value], gates: &Gates) -> Result<Vec<TopologyAsk>, String> {
        let _ = (related, gates);
        let ask = |role: &Role| TopologyAsk {
            path: format!("{}.metadata.annotations", role.path),
            annotations: job.pointer(&role.pointer).map(annotations_of).unwrap_or_default(),
            count: role.count,
        };
        Ok(Self::roles(job).iter().map(ask).collect())
    }

    /// Defaults beyond those of all jobs.
    fn default(job: &mut Value, settings: &Settings) {
        let _ = (job, settings);
    }

    /// What is wrong with a state of it, and whether to go on with what is checked of all jobs.
    fn check(job: &Value, settings: &Settings, errors: &mut Errors) -> ControlFlow<()> {
        let _ = (job, settings, errors);
        ControlFlow::Continue(())
    }
}

/// A job of a kind.
#[derive(Clone, Debug)]
pub(super) struct JsonJob<K> {
    metadata: ObjectMeta,
    /// The whole object; its metadata is for reading.
    object: Value,
    kind: PhantomData<K>,
}

impl<'de, K> Deserialize<'de> for JsonJob<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let metadata =
            ObjectMeta::deserialize(&object["metadata"]).map_err(<D::Error as de::Error>::custom)?;
        Ok(Self { metadata, object, kind: PhantomData })
    }
}

impl<K> Serialize for JsonJob<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = self.object.clone();
        object["metadata"] = serde_json::to_value(&self.metadata).unwrap_or_default();
        object.serialize(serializer)
    }
}

impl<K: JsonKind> kube::Resource for JsonJob<K> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        K::NAMES.kind.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        K::NAMES.group.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        K::NAMES.version.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::NAMES.plural.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<K: JsonKind> JsonJob<K> {
    pub(super) fn as_json(&self) -> &Value {
        &self.object
    }

    fn suspend(&mut self) {
        set(&mut self.object, K::SUSPEND, json!(true));
    }

    fn resume(&mut self) {
        if K::OMITS_SUSPEND {
            remove(&mut self.object, K::SUSPEND);
        } else {
            set(&mut self.object, K::SUSPEND, json!(false));
        }
    }

    /// The write that turns it into `desired`, if they differ.
    fn change(entry: &Entry<Self>, desired: &Self) -> Option<Step> {
        Action::update(ApiKind::of::<Self>(), entry, desired).map(Step::from)
    }
}

/// Whether the field at a JSON pointer suspends a job.
pub(super) fn is_suspended<K: JsonKind>(job: &Value) -> bool {
    job.pointer(K::SUSPEND) == Some(&Value::Bool(true))
}

impl<K: JsonKind> JobKind for JsonJob<K> {
    const FRAMEWORK: &'static str = K::NAMES.framework;
    const CONTROLLER: &'static str = K::NAMES.controller;
    const IS_OPTIONAL: bool = true;
    const TAKES_SLICES: bool = K::TAKES_ELASTIC;

    fn is_suspended(&self) -> bool {
        is_suspended::<K>(&self.object)
    }

    fn is_active(&self) -> bool {
        K::is_active(&self.object)
    }

    fn end(&self) -> Option<JobEnd> {
        K::end(&self.object)
    }

    fn has_all_pods_ready(&self) -> bool {
        K::is_ready(&self.object)
    }

    fn pod_sets(&self, gates: &Gates, related: &[Value]) -> Result<Vec<PodSet>, String> {
        K::pod_sets(&self.object, related, gates)
    }

    fn reclaimable_pods(&self, related: &[Value]) -> Vec<ReclaimablePod> {
        K::reclaimable_pods(&self.object, related)
    }

    fn start(&mut self, infos: &[PodSetInfo]) -> Result<(), String> {
        K::inject(&mut self.object, infos)?;
        self.resume();
        Ok(())
    }

    fn start_steps(entry: &Entry<Self>, infos: &[PodSetInfo]) -> Result<Vec<Step>, String> {
        let mut started = entry.object.clone();
        if !K::CHANGES_WHILE_SUSPENDED {
            started.start(infos)?;
            return Ok(Self::change(entry, &started).into_iter().collect());
        }
        K::inject(&mut started.object, infos)?;
        let mut resumed = started.clone();
        resumed.resume();
        let (kind, key) = (ApiKind::of::<Self>(), entry.key.clone());
        let inject = Self::change(entry, &started).map(Step::sequential);
        let resume = Action::change(kind, key, &started, &resumed).map(Step::from);
        Ok(inject.into_iter().chain(resume).collect())
    }

    fn stop(entry: &Entry<Self>, pod_sets: &[PodSet], _: &Stop<'_>) -> Vec<Step> {
        let mut stopped = entry.object.clone();
        if !K::CHANGES_WHILE_SUSPENDED || stopped.is_suspended() {
            K::restore(&mut stopped.object, pod_sets);
        }
        stopped.suspend();
        Self::change(entry, &stopped).into_iter().collect()
    }

    fn is_stopped(&self, _: &StopReason) -> bool {
        let job = &self.object;
        let is_clean = !K::CHANGES_WHILE_SUSPENDED || K::is_active(job) || K::is_restored(job);
        self.is_suspended() && is_clean || self.end().is_some()
    }

    fn related_kinds() -> Vec<ApiKind> {
        K::related_kinds()
    }

    fn references(&self) -> Vec<Reference> {
        K::references(&self.object)
    }

    fn priority_class(&self) -> Option<String> {
        K::priority_class(&self.object)
    }

    fn is_on_hold(&self) -> bool {
        K::is_on_hold(&self.object)
    }

    fn outlives_deletion(&self, settings: &Settings) -> bool {
        K::outlives_deletion(&self.object, settings)
    }

    fn is_managed(&self, _: &Settings) -> bool {
        K::is_managed(&self.object)
    }

    fn revision(&self) -> String {
        K::revision(&self.object)
    }

    fn min_counts(&self) -> BTreeMap<String, i32> {
        K::min_counts(&self.object)
    }

    fn has_ready(&self, counts: &Counts) -> bool {
        K::has_ready(&self.object, counts)
    }

    fn annotations(&self, related: &[Value]) -> BTreeMap<String, String> {
        K::annotations(&self.object, related)
    }
}

/// The template of a role.
fn template_of(job: &Value, role: &Role) -> Result<PodTemplateSpec, String> {
    let template = job.pointer(&role.pointer).filter(|template| !template.is_null());
    let template = template.cloned().unwrap_or_else(|| json!({}));
    serde_json::from_value(template).map_err(|error| format!("{}: {error}", role.path))
}

/// A pod set for every role.
fn pod_sets_of_roles<K: JsonKind>(job: &Value, gates: &Gates) -> Result<Vec<PodSet>, String> {
    let set = |role: &Role| Ok(pod_set(role, template_of(job, role)?, gates));
    K::roles(job).iter().map(set).collect()
}

/// The pod set of a role that runs this template.
fn pod_set(role: &Role, template: PodTemplateSpec, gates: &Gates) -> PodSet {
    PodSet {
        name: Some(role.name.to_lowercase()),
        count: Some(role.count),
        min_count: None,
        topology_request: topology_request::of_ranked(&template, role.ranks, gates),
        template,
    }
}

/// Writes what each pod set was assigned into the template of its role.
fn inject_into_roles(job: &mut Value, roles: &[Role], infos: &[PodSetInfo]) -> Result<(), String> {
    expect_infos(roles.len(), infos)?;
    for (role, info) in roles.iter().zip(infos) {
        let template = job.pointer_mut(&role.pointer).ok_or_else(|| format!("{}: not found", role.path))?;
        info.inject_json(template)?;
    }
    Ok(())
}

fn restore_roles(job: &mut Value, roles: &[Role], sets: &[PodSet]) {
    for (role, set) in roles.iter().zip(sets) {
        if let Some(template) = job.pointer_mut(&role.pointer) {
            pod_set_info::restore_json(template, &set.template);
        }
    }
}

fn expect_infos(count: usize, infos: &[PodSetInfo]) -> Result<(), String> {
    if infos.len() == count {
        return Ok(());
    }
    Err(format!("invalid podset infos: expecting {count} podset, got {}", infos.len()))
}

/// An integer, or a default.
fn integer(value: &Value, default: i32) -> i32 {
    value.as_i64().and_then(|number| i32::try_from(number).ok()).unwrap_or(default)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The condition of this type, if it is true.
fn true_condition<'j>(job: &'j Value, kind: &str) -> Option<&'j Value> {
    items(&job["status"]["conditions"]).find(|own| own["type"] == kind && own["status"] == "True")
}

/// The end that one of two conditions reports.
fn end_by_conditions(job: &Value, succeeded: &str, failed: &str) -> Option<JobEnd> {
    let of = |kind: &str, succeeded: bool| {
        let condition = true_condition(job, kind)?;
        Some(JobEnd { succeeded, message: text(&condition["message"]).to_owned() })
    };
    of(succeeded, true).or_else(|| of(failed, false))
}

/// Whether a job is managed, as far as its own labels and the configuration say.
fn is_queued(job: &Value, settings: &Settings) -> bool {
    let queue = &job["metadata"]["labels"][quintet_api::kueue::metadata::QUEUE_NAME];
    settings.configuration.manage_jobs_without_queue_name || queue.as_str().is_some_and(|own| !own.is_empty())
}

/// Whether a job may change its size while it runs.
pub(super) fn is_elastic(job: &Value, settings: &Settings) -> bool {
    settings.scheduling.elastic_slices && job["metadata"]["annotations"][ELASTIC_JOB] == "true"
}

/// Sets a field by its JSON pointer.
pub(super) fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for name in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[name];
    }
    *place = value;
}

/// Removes a field by its JSON pointer.
pub(super) fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        fields.remove(name);
    }
}
