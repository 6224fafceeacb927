//! What is made for the manifests in `examples/mlflow`, as files that can be read and compared, one per branch.
//!
//! `QUINTET_BLESS=1 cargo test -p quintet-mlflow --test golden` rewrites them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use quintet_api::mlflow::MLflow;
use quintet_mlflow::mlflow::{Bundles, OptionalApis, preview};
use quintet_mlflow::settings::Settings;
use serde_json::{Value, json};

/// A branch: the manifest it begins with, what is changed in its spec, and the cluster.
struct Branch {
    name: &'static str,
    manifest: &'static str,
    spec: Value,
    apis: OptionalApis,
    bundles: Bundles,
}

const PLAIN: OptionalApis =
    OptionalApis { console_links: false, http_routes: false, service_monitors: false };
const OPENSHIFT: OptionalApis =
    OptionalApis { console_links: true, http_routes: true, service_monitors: true };

fn branches() -> Vec<Branch> {
    let plain =
        |name, manifest, spec| Branch { name, manifest, spec, apis: PLAIN, bundles: Bundles::default() };
    let bundles = |platform, custom: Option<&str>| Bundles { platform, custom: custom.map(str::to_owned) };
    let gateway = OptionalApis { console_links: false, ..OPENSHIFT };
    vec![
        plain("sqlite", "sqlite", json!({})),
        plain("postgresql-s3", "postgresql-s3", json!({})),
        plain("tasks", "tasks", json!({})),
        plain(
            "network",
            "sqlite",
            json!({
                "networkPolicyEgressRules": [{"ports": [{"protocol": "TCP", "port": 443}]}],
                "networkPolicyAdditionalEgressRules": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
            }),
        ),
        plain(
            "pods",
            "postgresql-s3",
            json!({
                "image": {"image": "example/mlflow:3", "imagePullPolicy": "Never"},
                "podLabels": {"team": "a"}, "podAnnotations": {"note": "b"}, "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "claim"}],
                "resources": {"requests": {"memory": "1Gi"}, "claims": [{"name": "gpu"}]},
                "podSecurityContext": {"runAsUser": 1000}, "securityContext": {"runAsNonRoot": true},
                "temporaryStorage": {"sizeLimit": "5Gi"}, "serviceAccountName": "mine",
                "migration": {"ttlSecondsAfterFinished": 3600},
                "readReplicaBackendStoreUri": "postgresql://replica", "registryStoreUri": "mysql://registry",
            }),
        ),
        Branch {
            name: "gateway",
            manifest: "sqlite",
            spec: json!({}),
            apis: gateway,
            bundles: Bundles::default(),
        },
        Branch {
            name: "openshift",
            manifest: "tasks",
            spec: json!({}),
            apis: OPENSHIFT,
            bundles: bundles(true, Some("ca")),
        },
        Branch {
            name: "platform-ca",
            manifest: "sqlite",
            spec: json!({}),
            apis: PLAIN,
            bundles: bundles(true, None),
        },
    ]
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn made_of(branch: &Branch) -> Vec<Value> {
    let file = here("../../../examples/mlflow").join(format!("{}.yaml", branch.manifest));
    let mut manifest: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    manifest["spec"].as_object_mut().unwrap().extend(branch.spec.as_object().unwrap().clone());
    let mlflow: MLflow = serde_json::from_value(manifest).unwrap();
    let settings = Settings { image: Some("mlflow:default".to_owned()), ..Settings::default() };
    preview(&mlflow, &settings, branch.apis, &branch.bundles).unwrap()
}

#[test]
fn every_branch_makes_what_its_golden_file_says() {
    let bless = std::env::var_os("QUINTET_BLESS").is_some();
    for branch in branches() {
        let objects = made_of(&branch);
        let texts: Vec<_> = objects.iter().map(|object| serde_saphyr::to_string(object).unwrap()).collect();
        let golden = here("tests/golden").join(format!("{}.yaml", branch.name));
        if bless {
            fs::create_dir_all(golden.parent().unwrap()).unwrap();
            fs::write(&golden, texts.join("---\n")).unwrap();
            continue;
        }
        let expected: Vec<Value> =
            serde_saphyr::from_multiple(&fs::read_to_string(&golden).unwrap()).unwrap();
        assert_eq!(objects, expected, "{}: QUINTET_BLESS=1 rewrites the files", branch.name);
    }
}

#[test]
fn all_manifests_are_used() {
    let used: Vec<_> = branches().iter().map(|branch| format!("{}.yaml", branch.manifest)).collect();
    for entry in fs::read_dir(here("../../../examples/mlflow")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(used.contains(&name), "{name} has no branch");
    }
}
