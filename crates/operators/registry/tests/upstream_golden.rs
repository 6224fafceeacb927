//! The operator against recorded behaviour of the Model Registry operator.
//!
//! `QUINTET_GOLDEN=DIR cargo test -p quintet-registry --test upstream_golden -- --nocapture` compares all cases in `DIR`.

mod recorded;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quintet_golden::{Case, ObjectId, Profile, Setting, World};
use serde_json::json;

#[expect(clippy::unnecessary_wraps, reason = "other operators reject settings")]
fn setting(case: &Case) -> Result<Setting, String> {
    Ok(Setting { variables: case.environment.variables.clone(), ..Setting::default() })
}

/// OpenShift says what its domain is; HTTPRoutes are made in a namespace that exists.
fn prepare<'a>(world: &'a mut World, case: &'a Case) -> BoxFuture<'a, Result<(), String>> {
    async move {
        let mut objects = Vec::new();
        if let Some(domain) = &case.environment.ingress_domain {
            objects.push(json!({
                "apiVersion": "config.openshift.io/v1", "kind": "Ingress", "metadata": {"name": "cluster"},
                "spec": {"domain": domain},
            }));
        }
        if case.environment.variables.contains_key("GATEWAY_DOMAIN") {
            let name = "redhat-ods-applications";
            objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        }
        // The catalog's Service gets an address together with its Deployment; who waits for both sees no difference.
        let created = case.steps.iter().flat_map(|step| &step.create);
        for catalog in created.filter(|object| object["kind"] == "Catalog") {
            let labels =
                json!({"app.kubernetes.io/created-by": "model-registry-operator", "app": "model-catalog"});
            objects.push(json!({
                "apiVersion": "v1", "kind": "Endpoints",
                "metadata": {
                    "name": "model-catalog", "namespace": catalog["metadata"]["namespace"], "labels": labels,
                },
                "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 8443}]}],
            }));
        }
        for object in objects {
            let answer = world.create(&object).await?;
            if !matches!(answer.code, 201 | 409) {
                return Err(format!("cannot create {}: {answer:?}", ObjectId::of(&object)));
            }
        }
        Ok(())
    }
    .boxed()
}

/// Endpoints were not recorded, nor what the platform has of its own.
fn is_recorded(_: &Case, id: &ObjectId) -> bool {
    !matches!(id.kind.as_str(), "Endpoints" | "EndpointSlice" | "Namespace" | "Ingress")
}

#[test]
fn the_operator_behaves_as_recorded() {
    let deliberate = include_str!("upstream_differences.yaml");
    let profile = Profile::new(quintet_registry::component(), deliberate, setting)
        .prepared(prepare)
        .acting(recorded::act)
        .recording(is_recorded)
        .leveled(recorded::level);
    quintet_golden::check(&profile);
}
