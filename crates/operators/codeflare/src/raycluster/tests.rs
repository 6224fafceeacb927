#![expect(clippy::needless_pass_by_value, reason = "tables are easier to read so")]

use quintet_api::config::codeflare::KubeRayConfiguration;
use quintet_api::ray::v1::RayCluster;
use quintet_controller::cache::Entry;
use quintet_controller::object::Uid;
use serde_json::{Value, json};

use super::observe::Observed;
use super::*;

/// Settings with these switches.
pub(super) fn hardening(oauth: bool, mtls: bool, is_openshift: bool) -> Hardening {
    Hardening {
        config: KubeRayConfiguration {
            ray_dashboard_oauth_enabled: oauth,
            ingress_domain: "example.com".into(),
            mtls_enabled: mtls,
        },
        is_openshift,
        cert_generator_image: "cert:1".into(),
        oauth_proxy_image: "proxy:1".into(),
    }
}

fn entry<T: serde::de::DeserializeOwned>(namespace: &str, name: &str, object: Value) -> Entry<T> {
    let mut entry = Entry::new(ObjectKey::new(namespace, name), serde_json::from_value(object).unwrap());
    entry.uid = Uid::from("u");
    entry
}

fn observed(hardening: Hardening, change: Value) -> Observed {
    let mut cluster = json!({
        "metadata": {
            "name": "r", "namespace": "ns", "uid": "u", "finalizers": [names::FINALIZER],
            "annotations": {names::VERSION: "1"},
        },
        "spec": {"headGroupSpec": {"template": {}}},
    });
    for (path, value) in change.as_object().unwrap() {
        *cluster.pointer_mut(path).unwrap() = value.clone();
    }
    let cluster: Entry<RayCluster> = entry("ns", "r", cluster);
    Observed {
        cluster: Arc::new(cluster),
        domain: hardening.config.ingress_domain.clone(),
        hardening: Arc::new(hardening),
        ca_secret: None,
        cookie_secret: None,
        role_bindings: Vec::new(),
        service_account: None,
        head_pods: Vec::new(),
        operator_namespaces: vec!["ray-system".into()],
    }
}

fn steps(observed: &Observed) -> Vec<String> {
    let step = |step: &quintet_controller::Step<SecretRequest>| {
        step.action.to_string().replace(".networking.k8s.io", "").replace(".route.openshift.io", "")
    };
    plan::plan(observed).steps.iter().map(step).collect()
}

/// What is made besides the policies, which always are.
fn made(observed: &Observed) -> Vec<String> {
    let all = steps(observed);
    let is_policy = |step: &String| step.starts_with("apply NetworkPolicy ");
    assert_eq!(all.iter().filter(|step| is_policy(step)).count(), 2);
    all.into_iter().filter(|step| !is_policy(step)).collect()
}

#[test]
fn what_is_made_depends_on_the_platform() {
    let of = |oauth, mtls, is_openshift| made(&observed(hardening(oauth, mtls, is_openshift), json!({})));
    assert_eq!(of(false, false, false), ["apply Ingress ns/ray-dashboard-r", "apply Ingress ns/rayclient-r"]);
    let openshift = of(true, true, true);
    assert!(
        openshift[0].starts_with("ensure the certificate authority in Secret ns/r-ca-secret-"),
        "{openshift:?}"
    );
    assert_eq!(openshift[1], "apply Route ns/ray-dashboard-r");
    assert!(openshift[2].starts_with("ensure the cookie secret in Secret ns/r-oauth-config-"));
    assert_eq!(openshift.len(), 7);
    assert!(of(true, false, false).is_empty() && of(false, false, true).is_empty(), "the mixed cases");
}

#[test]
fn nothing_is_made_before_the_finalizer_because_the_webhook_may_change_the_names() {
    let new = observed(
        hardening(true, true, true),
        json!({"/metadata/finalizers": [], "/metadata/annotations": {}}),
    );
    assert_eq!(steps(&new), ["patch RayCluster.ray.io ns/r"]);
}

#[test]
fn a_suspended_cluster_is_not_reached_from_outside() {
    let mut suspended = observed(hardening(false, false, false), json!({}));
    let mut cluster = suspended.cluster.object.clone();
    cluster.spec.suspend = Some(true);
    Arc::get_mut(&mut suspended.cluster).unwrap().object = cluster;
    assert!(made(&suspended).is_empty());
}

#[test]
fn a_head_pod_without_the_pull_secrets_of_its_account_is_made_again() {
    let mut with_secret = observed(hardening(true, false, true), json!({}));
    let view = |names: Value| json!({"cluster": "r", "names": names});
    with_secret.service_account = Some(Arc::new(entry("ns", "sa", view(json!(["puller"])))));
    with_secret.head_pods = vec![Arc::new(entry("ns", "head", view(json!([]))))];
    assert!(steps(&with_secret).contains(&"delete Pod ns/head".to_owned()));
    with_secret.head_pods = vec![Arc::new(entry("ns", "head", view(json!(["puller", "own"]))))];
    assert!(!steps(&with_secret).iter().any(|step| step.starts_with("delete")));
    let own = json!({"/spec/headGroupSpec/template": {"spec": {"containers": [], "imagePullSecrets": [{"name": "x"}]}}});
    let mut own = observed(hardening(true, false, true), own);
    own.service_account = with_secret.service_account.clone();
    own.head_pods = vec![Arc::new(entry("ns", "head", view(json!([]))))];
    assert!(!steps(&own).iter().any(|step| step.starts_with("delete")));
}

#[test]
fn a_deleted_cluster_loses_its_bindings_and_gets_nothing_new() {
    let mut deleted = observed(hardening(true, true, true), json!({}));
    deleted.role_bindings = vec![Arc::new(entry("", "r-ns-auth", json!({})))];
    Arc::get_mut(&mut deleted.cluster).unwrap().deleting = true;
    assert_eq!(
        steps(&deleted),
        ["delete ClusterRoleBinding.rbac.authorization.k8s.io r-ns-auth", "patch RayCluster.ray.io ns/r"]
    );
    let mut without = observed(hardening(true, true, true), json!({"/metadata/finalizers": ["other"]}));
    Arc::get_mut(&mut without.cluster).unwrap().deleting = true;
    assert!(steps(&without).is_empty(), "upstream makes the binding again, which then leaks");
}

#[test]
fn a_secret_is_completed_only_where_something_is_missing() {
    let mut there = observed(hardening(false, true, true), json!({}));
    let metadata = |label: &str, uid: &str| json!({"labels": {names::CLUSTER_NAME: label}, "ownerReferences": [{"uid": uid, "controller": true}]});
    for (label, uid, is_complete) in [("r", "u", true), ("other", "u", false), ("r", "x", false)] {
        there.ca_secret = Some(Arc::new(entry("ns", "ca", metadata(label, uid))));
        assert_eq!(made(&there).is_empty(), is_complete, "{label} {uid}");
    }
}
