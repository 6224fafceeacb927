//! Who the processes of a container are, and what they may do.

use k8s_openapi::api::core::v1 as core;

use super::environment::ConfigError;
use crate::shim::protocol::Identity;

/// Capabilities by name, in the order of their numbers in Linux.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// What the root user of a container may do without asking. Container engines also allow to make devices and to open raw
/// sockets; processes here share the machine more closely.
const DEFAULT: [&str; 10] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
];

/// What a node allows.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The user of a pod that does not say.
    pub default_user: u32,
    /// Whether `privileged` and further capabilities may be asked for.
    pub allows_privileged: bool,
}

/// Who the processes of a container are.
pub fn identity(
    pod: &core::Pod,
    container: &core::Container,
    image_user: Option<u32>,
    policy: Policy,
) -> Result<Identity, ConfigError> {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let own = container.security_context.as_ref();
    let user = own.and_then(|own| own.run_as_user).or_else(|| of_pod?.run_as_user);
    let group = own.and_then(|own| own.run_as_group).or_else(|| of_pod?.run_as_group);
    let uid = user.map(number).transpose()?.or(image_user).unwrap_or(policy.default_user);
    let gid = group.map(number).transpose()?.unwrap_or(uid);
    let must_not_be_root = own.and_then(|own| own.run_as_non_root).or_else(|| of_pod?.run_as_non_root);
    if must_not_be_root == Some(true) && uid == 0 {
        return Err(root_is_forbidden(pod, container));
    }
    let supplemental = of_pod.iter().flat_map(|of_pod| of_pod.supplemental_groups.iter().flatten());
    let fs_group = of_pod.and_then(|of_pod| of_pod.fs_group);
    let groups = supplemental.copied().chain(fs_group).map(number).collect::<Result<Vec<_>, _>>()?;
    let is_privileged = own.and_then(|own| own.privileged) == Some(true);
    if is_privileged && !policy.allows_privileged {
        return Err(ConfigError(
            "privileged containers are not allowed; start quintet up with --allow-privileged".into(),
        ));
    }
    let capabilities = if is_privileged {
        (0..41).collect()
    } else {
        capabilities(own.and_then(|own| own.capabilities.as_ref()), policy)?
    };
    Ok(Identity {
        uid,
        gid,
        groups,
        // Only the root user has any.
        capabilities: if uid == 0 { capabilities } else { Vec::new() },
        may_gain_privileges: is_privileged,
    })
}

fn number(id: i64) -> Result<u32, ConfigError> {
    u32::try_from(id).map_err(|_| ConfigError(format!("{id} is not a user or group")))
}

fn root_is_forbidden(pod: &core::Pod, container: &core::Container) -> ConfigError {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let metadata = &pod.metadata;
    let (name, namespace, uid) = (text(&metadata.name), text(&metadata.namespace), text(&metadata.uid));
    ConfigError(format!(
        "container has runAsNonRoot and image will run as root (pod: \"{name}_{namespace}({uid})\", container: {})",
        container.name
    ))
}

fn capabilities(wanted: Option<&core::Capabilities>, policy: Policy) -> Result<Vec<u32>, ConfigError> {
    let list = |list: Option<&Vec<String>>| list.cloned().unwrap_or_default();
    let add = list(wanted.and_then(|wanted| wanted.add.as_ref()));
    let drop = list(wanted.and_then(|wanted| wanted.drop.as_ref()));
    let mut numbers = Vec::new();
    for (number, name) in (0_u32..).zip(CAPABILITIES) {
        let is_named = |list: &[String]| list.iter().any(|one| plain(one) == name || one == "ALL");
        let is_default = DEFAULT.contains(&name);
        if is_named(&add) && !is_default && !policy.allows_privileged {
            return Err(ConfigError(format!(
                "capability {name} is not allowed; start quintet up with --allow-privileged"
            )));
        }
        // What is added stays, also if everything is dropped.
        let is_added = add.iter().any(|one| plain(one) == name) || (is_named(&add) && !is_named(&drop));
        if is_added || (is_default && !is_named(&drop)) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// `CAP_CHOWN` and `CHOWN` are the same.
fn plain(name: &str) -> &str {
    name.strip_prefix("CAP_").unwrap_or(name)
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const STRICT: Policy = Policy { default_user: 70_001, allows_privileged: false };
    const LAX: Policy = Policy { allows_privileged: true, ..STRICT };

    fn find(
        pod: Value,
        container: Value,
        image: Option<u32>,
        policy: Policy,
    ) -> Result<Identity, ConfigError> {
        let spec = json!({ "containers": [], "securityContext": pod });
        let pod = json!({ "metadata": { "name": "p", "namespace": "n", "uid": "u" }, "spec": spec });
        let container = json!({ "name": "c", "securityContext": container });
        identity(
            &serde_json::from_value(pod).unwrap(),
            &serde_json::from_value(container).unwrap(),
            image,
            policy,
        )
    }

    fn names(identity: &Identity) -> Vec<&'static str> {
        identity.capabilities.iter().map(|number| CAPABILITIES[*number as usize]).collect()
    }

    #[test]
    fn the_container_decides_before_the_pod_and_the_pod_before_the_image() {
        let uid =
            |pod, container, image| find(pod, container, image, STRICT).map(|found| (found.uid, found.gid));
        assert_eq!(uid(json!({}), json!({}), None), Ok((70_001, 70_001)));
        assert_eq!(uid(json!({}), json!({}), Some(1000)), Ok((1000, 1000)));
        assert_eq!(uid(json!({ "runAsUser": 5, "runAsGroup": 6 }), json!({}), Some(1000)), Ok((5, 6)));
        assert_eq!(uid(json!({ "runAsUser": 5 }), json!({ "runAsUser": 0 }), None), Ok((0, 0)));
    }

    #[test]
    fn root_can_be_forbidden() {
        let error =
            find(json!({ "runAsNonRoot": true }), json!({ "runAsUser": 0 }), None, STRICT).unwrap_err();
        let expected =
            "container has runAsNonRoot and image will run as root (pod: \"p_n(u)\", container: c)";
        assert_eq!(error.to_string(), expected);
        assert!(find(json!({ "runAsNonRoot": true }), json!({}), None, STRICT).is_ok());
    }

    #[test]
    fn groups_of_volumes_are_joined() {
        let found =
            find(json!({ "supplementalGroups": [3, 4], "fsGroup": 9 }), json!({}), None, STRICT).unwrap();
        assert_eq!(found.groups, [3, 4, 9]);
    }

    #[test]
    fn capabilities_are_those_of_the_root_user() {
        let root = |capabilities: Value, policy| {
            find(json!({}), json!({ "runAsUser": 0, "capabilities": capabilities }), None, policy)
        };
        assert_eq!(names(&root(json!({}), STRICT).unwrap()).len(), DEFAULT.len());
        let found = root(json!({ "drop": ["ALL"], "add": ["CAP_CHOWN"] }), STRICT).unwrap();
        assert_eq!(names(&found), ["CHOWN"]);
        let error = root(json!({ "add": ["SYS_ADMIN"] }), STRICT).unwrap_err().to_string();
        assert!(error.contains("SYS_ADMIN") && error.contains("--allow-privileged"), "{error}");
        assert!(names(&root(json!({ "add": ["SYS_ADMIN"] }), LAX).unwrap()).contains(&"SYS_ADMIN"));
        let user = find(json!({}), json!({ "capabilities": { "add": ["CHOWN"] } }), None, STRICT).unwrap();
        assert_eq!(names(&user), Vec::<&str>::new());
    }

    #[test]
    fn privileged_containers_need_permission() {
        let privileged = json!({ "privileged": true, "runAsUser": 0 });
        let error = find(json!({}), privileged.clone(), None, STRICT).unwrap_err().to_string();
        assert!(error.contains("--allow-privileged"), "{error}");
        let found = find(json!({}), privileged, None, LAX).unwrap();
        assert_eq!((found.capabilities.len(), found.may_gain_privileges), (41, true));
    }
}
