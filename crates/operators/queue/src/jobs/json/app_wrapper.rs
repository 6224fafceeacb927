//! `workload.codeflare.dev` AppWrappers: several objects that run together. As `pkg/controller/jobs/appwrapper` of Kueue.
//!
//! The controller of AppWrappers writes into the templates of components what it finds in their `podSetInfos`.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use quintet_api::appwrapper::AppWrapperPodSet;
use quintet_api::appwrapper::metadata::{
    TAS_POD_INDEX_LABEL, TAS_SUB_GROUP_COUNT, TAS_SUB_GROUP_INDEX_LABEL,
};
use quintet_api::appwrapper::pod_sets::{at_path, infer};
use quintet_api::kueue::v1beta2::{PodSet, PodSetTopologyRequest};
use quintet_queue_engine::settings::Gates;
use serde_json::{Value, json};

use super::{
    JobEnd, JsonKind, KindNames, PodSetInfo, Role, TopologyAsk, UpdateCheck, expect_infos, items, names,
    pod_defaults, text, topology_request, true_condition,
};

/// The kind.
#[derive(Clone, Debug)]
pub(in super::super) struct AppWrapper;

/// The pod sets of a component: as declared, or as found in its template.
fn pod_sets_of(component: &Value) -> Result<Vec<AppWrapperPodSet>, String> {
    if items(&component["podSets"]).next().is_none() {
        return infer(&component["template"]);
    }
    serde_json::from_value(component["podSets"].clone()).map_err(|error| error.to_string())
}

/// The pod template of a pod set.
fn template_of(component: &Value, set: &AppWrapperPodSet) -> Result<PodTemplateSpec, String> {
    let found = at_path(&component["template"], &set.path)?;
    let part = json!({ "metadata": { "labels": found["metadata"]["labels"],
        "annotations": found["metadata"]["annotations"] }, "spec": found["spec"] });
    let mut template: PodTemplateSpec = serde_json::from_value(part).map_err(|error| error.to_string())?;
    pod_defaults::set(&mut template);
    Ok(template)
}

/// What annotations of a pod set say of the ranks of its pods.
fn request_of(
    template: &PodTemplateSpec,
    set: &AppWrapperPodSet,
    gates: &Gates,
) -> Option<PodSetTopologyRequest> {
    let request = topology_request::of(template, None, gates);
    let annotation = |name: &str| set.annotations.as_ref().and_then(|all| all.get(name)).cloned();
    if !gates.tas {
        return None;
    }
    let ranked = PodSetTopologyRequest {
        pod_index_label: annotation(TAS_POD_INDEX_LABEL),
        sub_group_index_label: annotation(TAS_SUB_GROUP_INDEX_LABEL),
        sub_group_count: annotation(TAS_SUB_GROUP_COUNT).and_then(|count| count.parse().ok()),
        ..request.unwrap_or_default()
    };
    (ranked != PodSetTopologyRequest::default()).then_some(ranked)
}

impl JsonKind for AppWrapper {
    const NAMES: KindNames =
        names!("workload.codeflare.dev", "workload-codeflare-dev", "v1beta2", "AppWrapper", "appwrapper");
    const OMITS_SUSPEND: bool = true;
    const UPDATE: UpdateCheck = UpdateCheck::ChangeOnly;

    /// None: its templates are not its own.
    fn roles(_: &Value) -> Vec<Role> {
        Vec::new()
    }

    fn is_active(job: &Value) -> bool {
        true_condition(job, "QuotaReserved").is_some()
    }

    fn end(job: &Value) -> Option<JobEnd> {
        let ended = |succeeded, message: &str| Some(JobEnd { succeeded, message: message.to_owned() });
        match text(&job["status"]["phase"]) {
            "Succeeded" => ended(true, "AppWrapper finished successfully"),
            "Failed" if true_condition(job, "ResourcesDeployed").is_none() => {
                ended(false, "AppWrapper failed")
            }
            _ => None,
        }
    }

    fn is_ready(job: &Value) -> bool {
        true_condition(job, "PodsReady").is_some()
    }

    fn pod_sets(job: &Value, _: &[Value], gates: &Gates) -> Result<Vec<PodSet>, String> {
        let mut sets = Vec::new();
        for (index, component) in items(&job["spec"]["components"]).enumerate() {
            let wrong = |error| format!("spec.components[{index}]: {error}");
            for set in pod_sets_of(component).map_err(wrong)? {
                let template = template_of(component, &set).map_err(wrong)?;
                sets.push(PodSet {
                    name: Some(format!("{}-{}", text(&job["metadata"]["name"]), sets.len())),
                    count: Some(set.replicas.unwrap_or(1)),
                    min_count: None,
                    topology_request: request_of(&template, &set, gates),
                    template,
                });
            }
        }
        Ok(sets)
    }

    /// Not checked: the pods of components have webhooks of their own.
    fn topology_requests(_: &Value, _: &[Value], _: &Gates) -> Result<Vec<TopologyAsk>, String> {
        Ok(Vec::new())
    }

    fn inject(job: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
        let counts: Result<Vec<usize>, String> = items(&job["spec"]["components"])
            .map(|component| pod_sets_of(component).map(|sets| sets.len()))
            .collect();
        let counts = counts.map_err(|error| format!("invalid podset infos: {error}"))?;
        expect_infos(counts.iter().sum(), infos)?;
        let mut rest = infos.iter();
        for (component, count) in job["spec"]["components"].as_array_mut().into_iter().flatten().zip(counts) {
            let own: Vec<Value> = rest.by_ref().take(count).map(PodSetInfo::to_json).collect();
            component["podSetInfos"] = own.into();
        }
        Ok(())
    }

    fn restore(job: &mut Value, _: &[PodSet]) {
        for component in job["spec"]["components"].as_array_mut().into_iter().flatten() {
            if let Some(fields) = component.as_object_mut() {
                fields.remove("podSetInfos");
            }
        }
    }
}
