//! What is made for the manifests in `examples/registry`, as files that can be read and compared, one per branch.
//!
//! `QUINTET_BLESS=1 cargo test -p quintet-registry --test golden` rewrites them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use quintet_registry::settings::Settings;
use quintet_registry::{OptionalApis, catalog, modelregistry};
use serde_json::{Value, json};

/// A branch: the manifest it begins with, what is changed in its spec, and the cluster.
struct Branch {
    name: &'static str,
    manifest: &'static str,
    spec: Value,
    apis: OptionalApis,
    variables: &'static [(&'static str, &'static str)],
}

const PLAIN: OptionalApis = OptionalApis { routes: false, groups: false, gateway: false };
const OPENSHIFT: OptionalApis = OptionalApis { routes: true, groups: true, gateway: true };
const GATEWAY: &[(&str, &str)] = &[("GATEWAY_DOMAIN", "gw.example.com")];

fn branches() -> Vec<Branch> {
    let plain = |name, manifest, spec| Branch { name, manifest, spec, apis: PLAIN, variables: &[] };
    let openshift = |name, manifest, spec| Branch { apis: OPENSHIFT, ..plain(name, manifest, spec) };
    let own_certificate = json!({"kubeRBACProxy": {
        "port": 9443, "routePort": 8443, "domain": "own.example.com", "image": "proxy:1",
        "tlsCertificateSecret": {"name": "tls", "key": "cert"}, "tlsKeySecret": {"name": "tls", "key": "key"},
    }});
    let hidden = json!({"kubeRBACProxy": {"serviceRoute": "disabled"}, "rest": {"serviceRoute": "enabled"}});
    let sized = json!({
        "resources": {"catalog": {"requests": {"cpu": "1"}}, "postgres": {"limits": {"memory": "1Gi"}}},
        "database": {"volume": {"sizeLimit": "1Gi"}},
    });
    vec![
        plain("postgresql", "postgresql", json!({})),
        plain("generated", "generated", json!({})),
        plain("mysql", "mysql", json!({})),
        plain("proxy", "proxy", json!({})),
        plain(
            "server",
            "postgresql",
            json!({"rest": {"port": 9090, "image": "rest:1", "resources": {"limits": {"cpu": "1"}}}}),
        ),
        openshift("openshift", "proxy", json!({})),
        openshift("own-certificate", "proxy", own_certificate),
        openshift("hidden", "proxy", hidden),
        Branch { variables: GATEWAY, ..openshift("gateway", "proxy", json!({})) },
        plain("catalog", "catalog", json!({})),
        openshift("catalog-openshift", "catalog", sized),
        Branch { variables: GATEWAY, ..openshift("catalog-gateway", "catalog", json!({})) },
        Branch {
            variables: &[("SKIP_MODEL_CATALOG_DB_CREATION", "true")],
            ..plain("catalog-without-database", "catalog", json!({}))
        },
    ]
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn made_of(branch: &Branch) -> Vec<Value> {
    let file = here("../../../examples/registry").join(format!("{}.yaml", branch.manifest));
    let mut manifest: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    manifest["spec"].as_object_mut().unwrap().extend(branch.spec.as_object().unwrap().clone());
    let settings = Settings::read(|name| {
        branch.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    });
    let domain = if branch.apis.routes { "apps.example.com" } else { "" };
    if manifest["kind"] == "Catalog" {
        let catalog = serde_json::from_value(manifest).unwrap();
        let (sources, groups) = (["more".to_owned()], ["admins".to_owned()]);
        let lists: (&[String], &[String]) = if branch.apis.routes { (&sources, &groups) } else { (&[], &[]) };
        return catalog::preview(&catalog, &settings, branch.apis, domain, lists);
    }
    let registry = serde_json::from_value(manifest).unwrap();
    modelregistry::preview(&registry, &settings, branch.apis, domain)
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
    for entry in fs::read_dir(here("../../../examples/registry")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(used.contains(&name), "{name} has no branch");
    }
}
