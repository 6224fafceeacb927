//! Owner references: the objects that own an object, and its controller.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{Metadata, Resource};

/// A reference that makes `owner` the controller of whatever carries it; the object goes when its owner goes.
///
/// `None` until the API server has given the owner its UID.
pub fn controller_reference<K>(owner: &K) -> Option<OwnerReference>
where
    K: Resource + Metadata<Ty = ObjectMeta>,
{
    let metadata = owner.metadata();
    Some(OwnerReference {
        api_version: K::API_VERSION.into(),
        kind: K::KIND.into(),
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

/// The reference to the object's controller; there is at most one.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

/// Whether the object with this UID is the controller. Names do not count: they can be used again.
pub fn is_controlled_by(metadata: &ObjectMeta, uid: &str) -> bool {
    controller_of(metadata).is_some_and(|reference| reference.uid == uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ray::v1::RayCluster;

    fn cluster(uid: Option<&str>) -> RayCluster {
        let metadata =
            ObjectMeta { name: Some("a".into()), uid: uid.map(Into::into), ..ObjectMeta::default() };
        RayCluster { metadata, ..RayCluster::default() }
    }

    #[test]
    fn a_child_knows_its_controller_by_uid() {
        let reference = controller_reference(&cluster(Some("1"))).unwrap();
        assert_eq!((reference.api_version.as_str(), reference.kind.as_str()), ("ray.io/v1", "RayCluster"));
        let child = ObjectMeta { owner_references: Some(vec![reference]), ..ObjectMeta::default() };
        assert!(is_controlled_by(&child, "1"));
        assert!(!is_controlled_by(&child, "2"), "same name, another life");
        assert!(controller_of(&ObjectMeta::default()).is_none());
    }

    #[test]
    fn an_owner_without_uid_owns_nothing_yet() {
        assert!(controller_reference(&cluster(None)).is_none());
    }
}
