//! The pods of a Job.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use quintet_api::owners::controller_reference;

use super::labels;

/// What distinguishes a pod of an Indexed Job.
pub(super) struct Indexed {
    /// Its completion index.
    pub(super) index: i32,
    /// How often its index failed before: counted, and ignored. Only where a limit per index is set.
    pub(super) failures: Option<(i32, i32)>,
}

/// A new pod of a Job.
pub(super) fn pod(job: &Job, name: String, indexed: Option<&Indexed>) -> Pod {
    let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut metadata = template.metadata.unwrap_or_default();
    let mut spec = template.spec.unwrap_or_default();
    metadata.name = Some(name);
    metadata.namespace.clone_from(&job.metadata.namespace);
    metadata.finalizers.get_or_insert_default().push(labels::TRACKING_FINALIZER.to_owned());
    metadata.owner_references = controller_reference(job).map(|owner| vec![owner]);
    if let Some(Indexed { index, failures }) = indexed {
        let number = index.to_string();
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(labels::COMPLETION_INDEX.to_owned(), number.clone());
        if let Some((counted, ignored)) = failures {
            annotations.insert(labels::INDEX_FAILURES.to_owned(), counted.to_string());
            if *ignored > 0 {
                annotations.insert(labels::INDEX_IGNORED_FAILURES.to_owned(), ignored.to_string());
            }
        }
        metadata.labels.get_or_insert_default().insert(labels::COMPLETION_INDEX.to_owned(), number);
        spec.hostname = job.metadata.name.as_ref().map(|name| format!("{name}-{index}"));
        let init = spec.init_containers.iter_mut().flatten();
        init.chain(&mut spec.containers).for_each(add_index_variable);
    }
    Pod { metadata, spec: Some(spec), status: None }
}

/// What the names of the pods of an index begin with: the index is kept whole.
pub(super) fn indexed_prefix(job: &str, index: i32) -> String {
    let end = format!("-{index}-");
    format!("{}{end}", quintet_api::names::head(job, 58 - end.len()))
}

fn add_index_variable(container: &mut Container) {
    let env = container.env.get_or_insert_default();
    if env.iter().any(|variable| variable.name == labels::INDEX_VARIABLE) {
        return;
    }
    let field = ObjectFieldSelector {
        api_version: None,
        field_path: format!("metadata.labels['{}']", labels::COMPLETION_INDEX),
    };
    env.push(EnvVar {
        name: labels::INDEX_VARIABLE.to_owned(),
        value: None,
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
    });
}
