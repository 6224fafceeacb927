use quintet_controller::object::Uid;
use serde_json::{Value, json};

use super::*;

fn observed(enabled: bool) -> Observed {
    let cluster = json!({
        "metadata": {"name": "demo", "namespace": "ns", "uid": "0123456789ab"},
        "spec": {"headGroupSpec": {"template": {}}, "tlsOptions": {"enabled": enabled}},
    });
    let cluster: RayCluster = serde_json::from_value(cluster).unwrap();
    let names = Names::new(&cluster, "cluster.local");
    let local: BTreeSet<_> = ["127.0.0.1".to_owned()].into();
    Observed {
        cluster: Arc::new(Entry::new(ObjectKey::new("ns", "demo"), cluster)),
        addresses: [local.clone(), local],
        issuers: BTreeSet::new(),
        certificates: Vec::new(),
        secrets: Vec::new(),
        readiness: Err("Certificate ns/x is not ready".to_owned()),
        now: "2026-01-02T00:00:00Z".parse().unwrap(),
        names,
    }
}

fn deeds(observed: &Observed) -> Vec<String> {
    plan(observed).steps.iter().map(|step| step.action.to_string()).collect()
}

fn certificate(object: &Value, status: &Value) -> Arc<Entry<CertificateView>> {
    let mut object = object.clone();
    object["metadata"]["generation"] = 1.into();
    object["status"] = status.clone();
    let view = CertificateView::project(&object.to_string()).unwrap();
    let name = object["metadata"]["name"].as_str().unwrap();
    let mut entry = Entry::new(ObjectKey::new("ns", name), view);
    entry.uid = Uid::from(name);
    Arc::new(entry)
}

/// Everything there, with these times of readiness and end.
fn complete(since: &str, end: &str) -> Observed {
    let mut observed = observed(true);
    let status = json!({
        "notAfter": end,
        "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1, "lastTransitionTime": since}],
    });
    let cluster = &observed.cluster.object;
    let local: BTreeSet<_> = ["127.0.0.1".to_owned()].into();
    let objects = [
        observed.names.authority(cluster),
        observed.names.leaf(cluster, Role::Head, &local),
        observed.names.leaf(cluster, Role::Worker, &local),
    ];
    observed.certificates = objects.iter().map(|object| certificate(object, &status)).collect();
    observed.issuers = observed.names.issuers().into();
    observed.readiness = Ok(());
    observed
}

#[test]
fn a_cluster_with_tls_gets_an_authority_and_two_certificates() {
    assert_eq!(
        deeds(&observed(true)),
        [
            "create Issuer.cert-manager.io ns/ray-selfsigned-issuer-demo",
            "create Certificate.cert-manager.io ns/ray-ca-certificate-demo",
            "create Issuer.cert-manager.io ns/ray-ca-issuer-demo",
            "create Certificate.cert-manager.io ns/ray-head-cert-demo",
            "create Certificate.cert-manager.io ns/ray-worker-cert-demo",
        ]
    );
    assert_eq!(plan(&observed(true)).events[0].reason, "MTLSCertsNotReady");
    assert_eq!(plan(&observed(false)), Plan::nothing(), "switching it off deletes nothing");
}

#[test]
fn the_head_is_known_by_its_service_and_both_by_their_addresses() {
    let mut observed = complete("2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z");
    assert!(deeds(&observed).is_empty());
    observed.addresses[1].insert("10.0.0.7".to_owned());
    let plan = plan(&observed);
    let Action::Apply { object, .. } = &plan.steps[0].action else { panic!("{plan:?}") };
    assert_eq!(object["spec"]["ipAddresses"], json!(["10.0.0.7", "127.0.0.1"]));
    assert_eq!(object["spec"]["dnsNames"], json!(["localhost"]));
    assert_eq!(plan.steps[0].event.as_ref().unwrap().reason, "MTLSCertificatesUpdated");
    let head = observed.names.leaf(&observed.cluster.object, Role::Head, &observed.addresses[0]);
    assert_eq!(head["spec"]["dnsNames"], json!(["demo-head-svc.ns.svc.cluster.local", "localhost"]));
    assert_eq!(observed.names.secrets()[0], "demo-ca-secret-01234567");
}

#[test]
fn readiness_and_an_end_in_sight_are_told() {
    let reasons =
        |observed: &Observed| plan(observed).events.iter().map(|one| one.reason.clone()).collect::<Vec<_>>();
    assert_eq!(reasons(&complete("2026-01-01T23:59:30Z", "2026-03-01T00:00:00Z")), ["MTLSPKIReady"]);
    assert!(reasons(&complete("2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z")).is_empty(), "said before");
    let ending = reasons(&complete("2026-01-01T00:00:00Z", "2026-01-02T05:00:00Z"));
    assert_eq!(ending, ["MTLSCertificateExpiringSoon"; 3]);
}

#[test]
fn a_certificate_is_ready_only_for_what_is_wanted_now() {
    let status = |generation: i64| json!({"conditions": [{"type": "Ready", "status": "True", "observedGeneration": generation}]});
    let object = json!({"metadata": {"name": "a"}, "spec": {"secretName": "s"}});
    assert!(certificate(&object, &status(1)).object.is_ready());
    assert!(!certificate(&object, &status(0)).object.is_ready());
}

#[test]
fn secrets_are_known_by_their_keys_alone_and_go_with_their_certificate() {
    let secret = json!({
        "metadata": {"annotations": {"cert-manager.io/certificate-name": "ray-head-cert-demo"}},
        "data": {"tls.crt": "x", "tls.key": "hush", "ca.crt": "x"},
    });
    let view = SecretView::project(&secret.to_string()).unwrap();
    assert!(view.is_complete() && !format!("{view:?}").contains("hush"));
    assert_eq!(view.cluster.as_deref(), Some("demo"));
    let mut observed = complete("2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z");
    let mut entry = Entry::new(ObjectKey::new("ns", "ray-head-secret-demo"), view.clone());
    entry.uid = Uid::from("s");
    observed.secrets = vec![Arc::new(entry)];
    assert_eq!(deeds(&observed), ["patch Secret ns/ray-head-secret-demo"]);
    let owned = SecretView { owners: ["ray-head-cert-demo".to_owned()].into(), ..view };
    observed.secrets = vec![Arc::new(Entry::new(ObjectKey::new("ns", "ray-head-secret-demo"), owned))];
    assert!(deeds(&observed).is_empty());
}
