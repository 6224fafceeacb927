//! `ResourceFlavor`: one kind of node that quota can be given for.

use crate::kueue::v1beta2::ResourceFlavorSpec;
use crate::resource::resource;

resource! {
    /// A kind of capacity, such as a GPU model, a zone or spot nodes, for which ClusterQueues set quota. One
    /// without labels or taints stands for any node.
    ResourceFlavor in "kueue.x-k8s.io" "v1beta1", cluster "resourceflavors" {
        /// Which nodes the flavor stands for.
        #[serde(default)]
        spec: ResourceFlavorSpec,
    }
}
