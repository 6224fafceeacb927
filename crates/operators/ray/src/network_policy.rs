//! NetworkPolicies of a cluster: its pods reach each other, and whatever the user adds.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quintet_api::owners::{controller_of, controller_reference};
use quintet_api::ray::events;
use quintet_api::ray::v1::{NetworkPolicyMode, NetworkPolicyOptions, RayCluster};
use quintet_controller::{
    Action, ApiKind, Controller, Error, Event, NoCall, ObjectKey, OnError, Plan, Runtime,
    api::FIELD_MANAGER,
    cache::{Cache, Entry, ObjectMetadata, Selector, WatchSpec},
};
use serde::{Deserialize, Serialize};

use crate::{
    Context,
    k8s_service::DASHBOARD_PORT,
    labels,
    watches::{self, BY_CLUSTER},
};

/// The controller of the NetworkPolicies of RayClusters.
struct PolicyController {
    clusters: Cache<RayCluster>,
    policies: Cache<ObjectMetadata>,
}

/// Everything that a decision about the NetworkPolicies of a cluster needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Observed {
    cluster: Arc<Entry<RayCluster>>,
    policies: Vec<Arc<Entry<ObjectMetadata>>>,
}

/// Adds the controller, if the feature is on.
pub fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    if !context.settings.gates.network_policy {
        return Ok(());
    }
    let clusters = runtime.caches().watch(watches::clusters())?;
    let policies = WatchSpec::metadata(ApiKind::of::<NetworkPolicy>())
        .select(Selector::all().has_label(labels::CLUSTER))
        .index(BY_CLUSTER, |entry| {
            cluster_of(entry).map(|key| key.as_str().to_owned()).into_iter().collect()
        });
    let policies = runtime.caches().watch(policies)?;
    let controller = PolicyController { clusters: clusters.clone(), policies: policies.clone() };
    runtime
        .add(controller, &clusters, context.concurrency)
        .watches(&policies, |entry| cluster_of(entry).into_iter().collect())
        .done();
    Ok(())
}

fn cluster_of(entry: &Entry<ObjectMetadata>) -> Option<ObjectKey> {
    Some(ObjectKey::new(entry.key.namespace()?, entry.object.labels.get(labels::CLUSTER)?))
}

impl Controller for PolicyController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "networkpolicy-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let policies = self.policies.by_index(BY_CLUSTER, key.as_str());
        Ok(self.clusters.get(key).map(|cluster| Observed { cluster, policies }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan(observed)
    }

    fn on_error(_: &Observed, action: &Action, error: &Error) -> OnError {
        let target = action.target().map(|key| key.to_string()).unwrap_or_default();
        let is_taken = error.status().is_some_and(|status| status.reason == "AlreadyExists");
        let event = match action {
            Action::Create { .. } if is_taken => Event::warning(
                events::NETWORK_POLICY_NAME_COLLISION,
                "Create",
                format!(
                    "NetworkPolicy {target} already exists and is not owned by this RayCluster, network isolation will \
                     not be applied. Rename the existing NetworkPolicy or use a different RayCluster name to avoid \
                     the collision"
                ),
            ),
            Action::Create { .. } => Event::warning(
                events::FAILED_TO_CREATE_NETWORK_POLICY,
                "Create",
                format!("Failed to create NetworkPolicy {target}: {}", error.cause()),
            ),
            Action::Delete { .. } => Event::warning(
                events::FAILED_TO_DELETE_NETWORK_POLICY,
                "Delete",
                format!("Failed to delete NetworkPolicy {target}: {}", error.cause()),
            ),
            _ => Event::warning(
                events::FAILED_TO_UPDATE_NETWORK_POLICY,
                "Update",
                format!("Failed to update NetworkPolicy {target}: {}", error.cause()),
            ),
        };
        OnError { events: vec![event], ..OnError::default() }
    }
}

fn plan(observed: &Observed) -> Plan {
    let cluster = &observed.cluster.object;
    if observed.cluster.deleting || labels::is_managed_elsewhere(cluster.spec.managed_by.as_deref()) {
        return Plan::nothing();
    }
    let kind = ApiKind::of::<NetworkPolicy>();
    let wanted: Vec<_> =
        cluster.spec.network_policy.iter().flat_map(|options| policies(cluster, options)).collect();
    let mut plan = Plan::default();
    for policy in &wanted {
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        let event = |reason: &str, verb: &str| {
            let namespace = observed.cluster.key.namespace().unwrap_or_default();
            Event::normal(reason, verb, format!("{verb}d NetworkPolicy {namespace}/{name}"))
        };
        let step = match observed.policies.iter().find(|live| live.key.name() == name) {
            Some(live) if is_ours(observed, live) => Action::apply(kind.clone(), FIELD_MANAGER, policy)
                .with_event(event(events::UPDATED_NETWORK_POLICY, "Update")),
            Some(_) | None => Action::create(kind.clone(), policy)
                .with_event(event(events::CREATED_NETWORK_POLICY, "Create")),
        };
        plan.steps.push(step);
    }
    let is_wanted = |live: &Entry<ObjectMetadata>| {
        wanted.iter().any(|policy| policy.metadata.name.as_deref() == Some(live.key.name()))
    };
    for live in
        observed.policies.iter().filter(|live| is_ours(observed, live) && !is_wanted(live) && !live.deleting)
    {
        let note = format!("Deleted NetworkPolicy {}", live.key);
        let event = Event::normal(events::DELETED_NETWORK_POLICY, "Delete", note);
        plan.steps.push(Action::delete(kind.clone(), live).with_event(event));
    }
    plan
}

fn is_ours(observed: &Observed, policy: &Entry<ObjectMetadata>) -> bool {
    policy.object.controller().is_some_and(|owner| *owner.uid == *observed.cluster.uid.as_str())
}

/// One policy for the head, and one for every group.
fn policies(cluster: &RayCluster, options: &NetworkPolicyOptions) -> Vec<NetworkPolicy> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let mut head = Rules::within(name);
    head.ingress.extend(submitter_rule(cluster));
    if let Some(own) = &options.head {
        head.add(own.ingress_rules.as_deref(), own.egress_rules.as_deref());
    }
    let selector = [(labels::CLUSTER, name), (labels::NODE_TYPE, labels::HEAD)];
    let mut all =
        vec![policy(cluster, options, &format!("{name}-head"), labels::HEAD_GROUP, &selector, head)];
    for group in cluster.spec.worker_group_specs.iter().flatten() {
        let group = group.group_name.as_str();
        let mut rules = Rules::within(name);
        let own = options.worker_groups.iter().flatten().find(|own| own.group_name == group);
        match (own, &options.worker) {
            (Some(own), _) => rules.add(own.ingress_rules.as_deref(), own.egress_rules.as_deref()),
            (None, Some(own)) => rules.add(own.ingress_rules.as_deref(), own.egress_rules.as_deref()),
            (None, None) => {}
        }
        let selector = [(labels::CLUSTER, name), (labels::NODE_TYPE, labels::WORKER), (labels::GROUP, group)];
        let name = format!("{name}-workers-{group}");
        all.push(policy(cluster, options, &name, group, &selector, rules));
    }
    all
}

fn policy(
    cluster: &RayCluster,
    options: &NetworkPolicyOptions,
    name: &str,
    group: &str,
    selector: &[(&str, &str)],
    rules: Rules,
) -> NetworkPolicy {
    let mode = options.mode.unwrap_or_default();
    let (ingress, egress) =
        (mode != NetworkPolicyMode::DenyAllEgress, mode != NetworkPolicyMode::DenyAllIngress);
    let types = [("Ingress", ingress), ("Egress", egress)];
    let types = types.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| (*name).to_owned());
    let own = [
        (labels::CLUSTER, cluster.metadata.name.as_deref().unwrap_or_default()),
        (labels::GROUP, group),
        (labels::APP_NAME, labels::APPLICATION),
        (labels::APP_CREATED_BY, labels::CREATOR),
    ];
    NetworkPolicy {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: cluster.metadata.namespace.clone(),
            labels: Some(owned(&own)),
            owner_references: controller_reference(cluster).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selecting(selector)),
            policy_types: Some(types.collect()),
            ingress: ingress.then_some(rules.ingress),
            egress: egress.then_some(rules.egress),
        }),
    }
}

/// What is let through.
struct Rules {
    ingress: Vec<NetworkPolicyIngressRule>,
    egress: Vec<NetworkPolicyEgressRule>,
}

impl Rules {
    /// Everything between pods of the cluster.
    fn within(cluster: &str) -> Self {
        let peer = peer(&[(labels::CLUSTER, cluster)]);
        Self {
            ingress: vec![NetworkPolicyIngressRule { from: Some(vec![peer.clone()]), ports: None }],
            egress: vec![NetworkPolicyEgressRule { to: Some(vec![peer]), ports: None }],
        }
    }

    fn add(
        &mut self,
        ingress: Option<&[NetworkPolicyIngressRule]>,
        egress: Option<&[NetworkPolicyEgressRule]>,
    ) {
        self.ingress.extend(ingress.unwrap_or_default().iter().cloned());
        self.egress.extend(egress.unwrap_or_default().iter().cloned());
    }
}

/// Lets the pod in that submits the cluster's RayJob.
fn submitter_rule(cluster: &RayCluster) -> Option<NetworkPolicyIngressRule> {
    let mode = cluster.metadata.labels.as_ref()?.get(labels::SUBMISSION_MODE)?;
    let owner = controller_of(&cluster.metadata)?;
    if mode != "K8sJobMode" || owner.kind != "RayJob" || !owner.api_version.starts_with("ray.io/") {
        return None;
    }
    let params = cluster.spec.head_group_spec.ray_start_params.as_ref();
    let port = params.and_then(|params| params.get("dashboard-port")?.parse().ok()).unwrap_or(DASHBOARD_PORT);
    Some(NetworkPolicyIngressRule {
        from: Some(vec![peer(&[(labels::ORIGIN_NAME, &owner.name), (labels::ORIGIN_KIND, "RayJob")])]),
        ports: Some(vec![NetworkPolicyPort {
            protocol: Some("TCP".to_owned()),
            port: Some(IntOrString::Int(port)),
            end_port: None,
        }]),
    })
}

fn peer(selector: &[(&str, &str)]) -> NetworkPolicyPeer {
    NetworkPolicyPeer { pod_selector: Some(selecting(selector)), ..NetworkPolicyPeer::default() }
}

fn selecting(labels: &[(&str, &str)]) -> LabelSelector {
    LabelSelector { match_labels: Some(owned(labels)), ..LabelSelector::default() }
}

fn owned(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use quintet_controller::object::Uid;
    use serde_json::{Value, json};

    use super::*;

    fn observed(policy: &Value, live: &[(&str, &str)]) -> Observed {
        let cluster = json!({
            "metadata": {"name": "demo", "namespace": "ns", "uid": "u"},
            "spec": {"headGroupSpec": {"template": {}}, "networkPolicy": policy,
                     "workerGroupSpecs": [{"groupName": "a", "template": {}}, {"groupName": "b", "template": {}}]},
        });
        let mut entry = Entry::new(ObjectKey::new("ns", "demo"), serde_json::from_value(cluster).unwrap());
        entry.uid = Uid::from("u");
        let live = live.iter().map(|(name, owner)| {
            let metadata =
                json!({"ownerReferences": [{"uid": owner, "controller": true, "kind": "RayCluster"}]});
            Arc::new(Entry::new(ObjectKey::new("ns", name), serde_json::from_value(metadata).unwrap()))
        });
        Observed { cluster: Arc::new(entry), policies: live.collect() }
    }

    fn deeds(observed: &Observed) -> Vec<String> {
        plan(observed).steps.iter().map(|step| step.action.to_string()).collect()
    }

    fn specs(observed: &Observed) -> Vec<Value> {
        let spec = |step: &quintet_controller::Step| match &step.action {
            Action::Create { object, .. } => object["spec"].clone(),
            other => panic!("{other}"),
        };
        plan(observed).steps.iter().map(spec).collect()
    }

    #[test]
    fn head_and_groups_have_policies_of_their_own() {
        let observed = observed(&json!({}), &[]);
        assert_eq!(
            deeds(&observed),
            ["demo-head", "demo-workers-a", "demo-workers-b"]
                .map(|name| format!("create NetworkPolicy.networking.k8s.io ns/{name}"))
        );
        let head = &specs(&observed)[0];
        assert_eq!(head["policyTypes"], json!(["Ingress", "Egress"]));
        let within = json!({"podSelector": {"matchLabels": {"ray.io/cluster": "demo"}}});
        assert_eq!(head["ingress"], json!([{"from": [within]}]));
        assert_eq!(head["egress"], json!([{"to": [within]}]));
    }

    #[test]
    fn a_groups_own_rules_replace_those_for_all_workers() {
        let rule = |port: i32| json!({"ports": [{"port": port}]});
        let policy = json!({
            "mode": "DenyAllIngress",
            "worker": {"ingressRules": [rule(1)]},
            "workerGroups": [{"groupName": "b", "ingressRules": [rule(2)]}],
        });
        let specs = specs(&observed(&policy, &[]));
        assert_eq!((&specs[1]["ingress"][1], &specs[2]["ingress"][1]), (&rule(1), &rule(2)));
        assert_eq!(specs[1]["policyTypes"], json!(["Ingress"]));
        assert!(specs[1].get("egress").is_none());
    }

    #[test]
    fn what_is_not_wanted_any_more_goes_and_what_is_not_ours_stays() {
        let removed = observed(&Value::Null, &[("demo-head", "u"), ("demo-workers-a", "other")]);
        assert_eq!(deeds(&removed), ["delete NetworkPolicy.networking.k8s.io ns/demo-head"]);
        let kept =
            observed(&json!({}), &[("demo-head", "u"), ("demo-workers-a", "u"), ("demo-workers-old", "u")]);
        assert_eq!(
            deeds(&kept),
            [
                "apply NetworkPolicy.networking.k8s.io ns/demo-head",
                "apply NetworkPolicy.networking.k8s.io ns/demo-workers-a",
                "create NetworkPolicy.networking.k8s.io ns/demo-workers-b",
                "delete NetworkPolicy.networking.k8s.io ns/demo-workers-old",
            ]
        );
    }

    #[test]
    fn the_submitter_of_a_job_is_let_in() {
        let mut observed = observed(&json!({}), &[]);
        let cluster = Arc::get_mut(&mut observed.cluster).unwrap();
        cluster.object.metadata.labels = Some(owned(&[(labels::SUBMISSION_MODE, "K8sJobMode")]));
        let owner = json!([{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "job", "uid": "j", "controller": true}]);
        cluster.object.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
        let rule = &specs(&observed)[0]["ingress"][1];
        assert_eq!(rule["ports"], json!([{"port": 8265, "protocol": "TCP"}]));
        assert_eq!(rule["from"][0]["podSelector"]["matchLabels"][labels::ORIGIN_NAME], "job");
    }
}
