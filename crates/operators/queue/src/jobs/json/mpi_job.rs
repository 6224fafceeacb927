//! `kubeflow.org/v2beta1` MPIJobs: a launcher and its workers. As `pkg/controller/jobs/mpijob` of Kueue.

use quintet_api::kueue::metadata::POD_INDEX_OFFSET;
use serde_json::{Value, json};

use super::{JobEnd, JsonKind, KindNames, Role, kubeflow, names};
use crate::settings::Settings;

const GROUP: &str = "kueue.x-k8s.io/podset-group-name";

/// The kind.
#[derive(Clone, Debug)]
pub(in super::super) struct MpiJob;

impl JsonKind for MpiJob {
    const NAMES: KindNames = names!("kubeflow.org", "kubeflow-org", "v2beta1", "MPIJob", "mpijob");
    const SUSPEND: &'static str = "/spec/runPolicy/suspend";
    const SORTS_ERRORS: bool = true;

    fn roles(job: &Value) -> Vec<Role> {
        kubeflow::roles_of(job, "mpiReplicaSpecs", &["Launcher", "Worker"])
    }

    fn is_active(job: &Value) -> bool {
        kubeflow::is_active(job)
    }

    fn end(job: &Value) -> Option<JobEnd> {
        kubeflow::end(job)
    }

    fn is_ready(job: &Value) -> bool {
        kubeflow::is_ready(job)
    }

    fn priority_class(job: &Value) -> Option<String> {
        kubeflow::priority_class(job)
    }

    /// A launcher that works, too, is the first worker. Groups of pod sets take care of that themselves.
    fn default(job: &mut Value, settings: &Settings) {
        let specs = &job["spec"]["mpiReplicaSpecs"];
        let (launcher, worker) = (&specs["Launcher"], &specs["Worker"]);
        let is_group = launcher["template"]["metadata"]["annotations"][GROUP].is_string();
        let counts = job["spec"]["runLauncherAsWorker"] == true && launcher.is_object() && worker.is_object();
        if settings.scheduling.tas && counts && !is_group {
            let annotations =
                &mut job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"];
            if !annotations.is_object() {
                *annotations = json!({});
            }
            annotations[POD_INDEX_OFFSET] = "1".into();
        }
    }
}
