//! `WorkloadPriorityClass`: a priority in queues that leaves the pods' own priority alone.

use crate::resource::resource;

resource! {
    /// A named priority for workloads. Jobs name it in the label `kueue.x-k8s.io/priority-class`; the class
    /// called `default` is given to jobs without that label.
    WorkloadPriorityClass in "kueue.x-k8s.io" "v1beta1", cluster "workloadpriorityclasses" {
        /// Priority of workloads in this class; higher goes first. A change reaches existing workloads, also
        /// running ones.
        value: i32,
    }
    maybe {
        /// When to use this class, for people to read.
        description: String,
    }
}
