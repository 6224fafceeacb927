//! The operator against recorded behaviour of the AppWrapper operator and of the CodeFlare operator.
//!
//! `QUINTET_GOLDEN=DIR cargo test -p quintet-codeflare --test upstream_golden -- --nocapture` compares all cases in `DIR`,
//! a folder of either of them.

mod recorded;

use std::collections::BTreeMap;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quintet_api::config::{Schema, codeflare::CONFIG};
use quintet_golden::{Case, ObjectId, Profile, Setting, World};
use quintet_node::{NodeShape, Settings, Simulation};
use serde_json::{Value, json};

/// Kinds of others that AppWrappers wrap; they are defined in every case.
const WRAPPED: [&str; 3] = ["JobSet", "LeaderWorkerSet", "PyTorchJob"];

fn is_of_appwrapper(case: &Case) -> bool {
    case.operator != "codeflare-operator"
}

/// The configuration is a ConfigMap upstream, and a file here. An empty document does not say whose it is.
fn setting(case: &Case) -> Result<Setting, String> {
    let configured = case.environment.config.clone().unwrap_or_else(|| json!({}));
    let mut documents: Vec<String> =
        case.startup.iter().flat_map(|startup| startup.config_map.values().cloned()).collect();
    if documents.is_empty() {
        let is_empty = configured.as_object().is_none_or(serde_json::Map::is_empty);
        let empty = if is_of_appwrapper(case) { "appwrapper: {}" } else { "kuberay: {}" };
        documents.push(if is_empty { empty.to_owned() } else { configured.to_string() });
    }
    let configuration =
        Schema(&[CONFIG]).read(&documents.join("\n---\n")).map_err(|error| error.to_string())?;
    Ok(Setting { configuration, variables: case.environment.variables.clone() })
}

fn prepare<'a>(world: &'a mut World, case: &'a Case) -> BoxFuture<'a, Result<(), String>> {
    async move {
        if let Some(domain) = &case.environment.ingress_domain {
            let object = json!({
                "apiVersion": "config.openshift.io/v1", "kind": "Ingress", "metadata": {"name": "cluster"},
                "spec": {"domain": domain},
            });
            created(world, &object).await?;
        }
        if !is_of_appwrapper(case) {
            return Ok(());
        }
        for kind in WRAPPED {
            world.serve(kind).await?;
        }
        allow(world, "appwrappers", json!([{"kind": "Group", "name": "system:authenticated"}])).await?;
        let users = ["alice", "system:serviceaccount:ns:some-account"];
        allow(world, "pods", json!(users.map(|user| json!({"kind": "User", "name": user})))).await?;
        if let Some((amount, resource)) = quota(case) {
            let first = case.steps.first().and_then(|step| step.create.first());
            let namespace = first.map(|object| object["metadata"]["namespace"].clone());
            let quota = json!({
                "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": namespace},
                "spec": {"hard": {resource: amount.to_string()}},
            });
            created(world, &quota).await?;
        }
        if case.webhook.is_none() {
            add_nodes(world).await?;
        }
        Ok(())
    }
    .boxed()
}

/// What a quota allows: `a ResourceQuota allows no pods`.
fn quota(case: &Case) -> Option<(u32, &str)> {
    let (amount, resource) =
        case.about.as_deref()?.strip_prefix("a ResourceQuota allows ")?.split_once(' ')?;
    let amount = match amount {
        "no" => 0,
        "one" => 1,
        amount => amount.parse().ok()?,
    };
    Some((amount, if resource == "pod" { "pods" } else { resource }))
}

/// Lets users write a resource.
async fn allow(world: &World, resource: &str, mut subjects: Value) -> Result<(), String> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    for subject in subjects.as_array_mut().into_iter().flatten() {
        subject["apiGroup"] = GROUP.into();
    }
    let metadata = json!({"name": format!("create-{resource}")});
    let rules = json!([{"apiGroups": ["*"], "resources": [resource], "verbs": ["create", "update", "patch", "delete"]}]);
    let api_version = format!("{GROUP}/v1");
    created(
        world,
        &json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": metadata, "rules": rules}),
    )
    .await?;
    let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": metadata["name"]});
    let binding = json!({
        "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": role, "subjects": subjects,
    });
    created(world, &binding).await
}

async fn created(world: &World, object: &Value) -> Result<(), String> {
    let answer = world.create(object).await?;
    if answer.code == 201 {
        Ok(())
    } else {
        Err(format!("cannot create {}: {answer:?}", ObjectId::of(object)))
    }
}

/// The nodes of the recordings.
async fn add_nodes(world: &mut World) -> Result<(), String> {
    let capacity = [("cpu", "32"), ("memory", "256Gi"), ("nvidia.com/gpu", "8"), ("pods", "110")];
    let mut amounts = BTreeMap::new();
    for (name, amount) in capacity {
        amounts.insert(name.to_owned(), amount.parse().map_err(|_| format!("{amount} is not a quantity"))?);
    }
    let nodes = NodeShape {
        name: "sim".to_owned(),
        count: 3,
        capacity: amounts,
        labels: BTreeMap::new(),
        levels: Vec::new(),
    };
    let client =
        world.client(quintet_golden::Caller::known("kubernetes-admin", ["system:masters".to_owned()]));
    let settings = Settings { nodes, schedule: true };
    let simulation = Simulation::start_at(client, settings, world.clock().clone(), Some(1)).await;
    let simulation = simulation.map_err(|error| error.to_string())?;
    world.at_stop(async move { simulation.leave().await });
    Ok(())
}

/// Nodes are part of the world, and were not recorded.
fn is_recorded(_: &Case, id: &ObjectId) -> bool {
    !matches!(id.kind.as_str(), "Node" | "Lease" | "CSINode")
}

#[test]
fn the_operator_behaves_as_recorded() {
    let deliberate = include_str!("upstream_differences.yaml");
    let profile = Profile::new(quintet_codeflare::component(), deliberate, setting)
        .defining(quintet_api::ray::definitions)
        .prepared(prepare)
        .acting(recorded::act)
        .recording(is_recorded)
        .leveled(recorded::level)
        .awaiting_states();
    quintet_golden::check(&profile);
}
