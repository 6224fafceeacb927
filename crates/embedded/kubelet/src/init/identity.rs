//! Users, groups and capabilities.

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::InitError;
use crate::ids::Ids;
use crate::shim::protocol::Identity;

/// Gives up everything that `identity` does not have.
pub(super) fn assume(identity: &Identity) -> Result<(), InitError> {
    let kept = capabilities(identity);
    drop_bounding(kept)?;
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    let groups: Vec<Gid> = identity.groups.iter().copied().map(Gid::from_raw).collect();
    let failed = |error| InitError::create("cannot change to the user of the container", error);
    match setgroups(&groups) {
        // In the user namespace of an ordinary user it is forbidden, and there is nothing to give up.
        Err(nix::errno::Errno::EPERM) if groups.is_empty() && Ids::read().are_limited() => {}
        outcome => outcome.map_err(failed)?,
    }
    setresgid(gid, gid, gid).map_err(failed)?;
    setresuid(uid, uid, uid).map_err(failed)?;
    if uid.is_root() {
        // Another user lost its capabilities with the change.
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets)
            .map_err(|error| InitError::create("cannot limit capabilities", error))?;
    }
    if !identity.may_gain_privileges {
        set_no_new_privs(true).map_err(|error| InitError::create("cannot set no_new_privs", error))?;
    }
    Ok(())
}

fn capabilities(identity: &Identity) -> CapabilitySet {
    let bits = identity
        .capabilities
        .iter()
        .filter(|number| **number < 64)
        .fold(0, |bits, number| bits | 1 << number);
    CapabilitySet::from_bits_retain(bits)
}

/// What is not in the bounding set cannot come back by executing a file.
fn drop_bounding(kept: CapabilitySet) -> Result<(), InitError> {
    for capability in CapabilitySet::all().difference(kept).iter() {
        match remove_capability_from_bounding_set(capability) {
            // A capability that this kernel does not know.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(InitError::create("cannot limit capabilities", error)),
        }
    }
    Ok(())
}
