//! Webhooks: what they are asked, what they may change, and what happens if they fail.

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::cases;
use super::kinds::{pod, with_account};
use crate::World;
use crate::hook::Hook;
use crate::world::{Answer, repeat};

cases! { "webhooks":
    "a mutating webhook changes an object and warns" => mutates,
    "a validating webhook refuses with its reason" => refuses,
    "a webhook is only asked where its conditions hold" => conditions,
    "a webhook that fails stops a request, unless it is to be ignored" => failure_policy,
    "a webhook that takes too long has failed" => times_out,
    "a webhook is asked again after others changed the object" => reinvocation,
    "a webhook sees deletions, and whether they are for show" => deletions,
    "a mutating webhook may refuse a deletion" => mutating_deletions,
    "a webhook sees the version that it knows" => other_version,
    "a patch of a webhook says what it is" => untyped_patch,
    "a validating webhook changes nothing" => validating_patch,
    "a webhook sees the version that is replaced" => replaced_version,
    "objects are converted by webhook" => conversion,
    "a webhook may refuse a connection to a container" => connections,
    "a policy changes objects with apply configurations and JSON patches" => mutating_policy,
    "a policy that cannot change an object refuses it, unless it is to be ignored" => failing_policy,
    "a policy that changes objects is checked when it is written" => broken_policy,
}

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// What the webhook of all cases says at each of its paths.
fn answer(path: &str, review: &Value) -> Option<Value> {
    let request = &review["request"];
    let uid = &request["uid"];
    let allow = json!({ "uid": uid, "allowed": true });
    let patched = |patch: Value| json!({ "uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string()) });
    let response = match path {
        "/label" => {
            let mut answer =
                patched(json!([{ "op": "add", "path": "/metadata/labels", "value": { "hooked": "yes" } }]));
            answer["warnings"] = json!(["labelled"]);
            answer
        }
        "/annotate" => {
            patched(json!([{ "op": "add", "path": "/metadata/annotations", "value": { "hooked": "yes" } }]))
        }
        // Counts in the data how often it was asked.
        "/count" => {
            let times = request["object"]["data"]["times"].as_str().unwrap_or_default().len() + 1;
            patched(json!([{ "op": "add", "path": "/data", "value": { "times": "x".repeat(times) } }]))
        }
        "/untyped" => {
            let mut answer = patched(json!([]));
            answer["patchType"] = Value::Null;
            answer
        }
        // Tells what it was shown.
        "/told" => {
            let (object, old) = (&request["object"], &request["oldObject"]);
            let told = format!(
                "{} of {}, asked as {}, replaces {}",
                object["apiVersion"],
                request["kind"]["version"],
                request["requestKind"]["version"],
                object["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]
            );
            json!({ "uid": uid, "allowed": false, "status": { "message": told.replace('"', "") } })
        }
        "/deny" => {
            json!({ "uid": uid, "allowed": false, "status": { "code": 403, "message": "no such luck" } })
        }
        "/shown" => {
            let is_shown = request["dryRun"] == true && request["oldObject"]["metadata"]["name"] == "a";
            json!({ "uid": uid, "allowed": false, "status": { "message": format!("for show: {is_shown}") } })
        }
        "/connected" => {
            let options = &request["object"];
            let told = format!(
                "{} to {}: {} {} in {}",
                request["operation"],
                request["subResource"],
                options["kind"],
                options["command"],
                options["container"]
            );
            json!({ "uid": uid, "allowed": false, "status": { "message": told.replace('"', "") } })
        }
        "/slow" => return None,
        "/convert" => {
            let wanted = &request["desiredAPIVersion"];
            let objects = request["objects"].as_array().cloned().unwrap_or_default();
            let converted: Vec<Value> = objects.into_iter().map(|object| converted(object, wanted)).collect();
            return Some(json!({ "kind": "ConversionReview", "apiVersion": review["apiVersion"],
                "response": { "uid": uid, "result": { "status": "Success" }, "convertedObjects": converted } }));
        }
        _ => allow,
    };
    Some(json!({ "kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response }))
}

/// `spec.size` of v1 is `spec.length` in v2.
fn converted(mut object: Value, wanted: &Value) -> Value {
    let (from, to) = if wanted.as_str().is_some_and(|wanted| wanted.ends_with("v2")) {
        ("size", "length")
    } else {
        ("length", "size")
    };
    if let Some(spec) = object["spec"].as_object_mut()
        && let Some(size) = spec.remove(from)
    {
        spec.insert(to.into(), size);
    }
    object["apiVersion"] = wanted.clone();
    object
}

fn webhook(world: &World, hook: &Hook, path: &str, more: &Value) -> Value {
    let mut webhook = json!({
        "name": format!("{}.example.com", path.trim_start_matches('/')), "clientConfig": hook.client(path),
        "rules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }],
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": world.namespace } },
        "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 10,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        webhook[key] = value.clone();
    }
    webhook
}

/// Where the configuration of a case is.
fn configuration(world: &World, kind: &str) -> String {
    format!("{CONFIGURATIONS}/{}s/{}", kind.to_lowercase(), world.unique)
}

/// Carries out a check while webhooks are configured; they go when it is over, whatever came out.
async fn with_hooks(
    world: &World,
    kind: &str,
    webhooks: &[Value],
    check: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let body = json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": { "name": world.unique }, "webhooks": webhooks });
    world.post(&format!("{CONFIGURATIONS}/{}s", kind.to_lowercase()), &body).await?.expect(201)?;
    let outcome = check.await;
    let deleted = world.delete(&configuration(world, kind), None).await?;
    outcome?;
    deleted.expect(200).map(drop)
}

/// Tries to create a ConfigMap, without storing it, until the answer is as wanted: servers see webhooks only after a
/// moment.
async fn create_until(world: &World, holds: impl Fn(&Answer) -> bool) -> anyhow::Result<Answer> {
    let path = format!("{}?dryRun=All", world.core("configmaps"));
    let map = world.config_map("a", &json!({}));
    repeat("what the webhook does", || world.post(&path, &map), holds).await
}

async fn mutates(world: World) -> anyhow::Result<()> {
    let hook = Hook::start(answer).await?;
    let webhooks = [webhook(&world, &hook, "/label", &json!({}))];
    with_hooks(&world, "MutatingWebhookConfiguration", &webhooks, async {
        let made =
            create_until(&world, |answer| answer.body["metadata"]["labels"]["hooked"] == "yes").await?;
        ensure!(
            made.headers.get("warning").is_some_and(|warning| warning == "299 - \"labelled\""),
            "{:?}",
            made.headers
        );
        Ok(())
    })
    .await
}

async fn refuses(world: World) -> anyhow::Result<()> {
    let hook = Hook::start(answer).await?;
    let webhooks = [webhook(&world, &hook, "/deny", &json!({}))];
    with_hooks(&world, "ValidatingWebhookConfiguration", &webhooks, async {
        let refused = create_until(&world, |answer| answer.code != 201).await?;
        let message = "admission webhook \"deny.example.com\" denied the request: no such luck";
        refused.expect_status(403, "", message).map(drop)
    })
    .await
}

async fn conditions(world: World) -> anyhow::Result<()> {
    let hook = Hook::start(answer).await?;
    let condition = json!({ "matchConditions": [{ "name": "not-free", "expression": "object.metadata.name != 'free'" }] });
    let webhooks = [webhook(&world, &hook, "/deny", &condition)];
    with_hooks(&world, "ValidatingWebhookConfiguration", &webhooks, async {
        create_until(&world, |answer| answer.code == 403).await?;
        world.create_config_map("free", &json!({})).await.map(drop)
    })
    .await
}

async fn failure_policy(world: World) -> anyhow::Result<()> {
    // Nobody listens at port 1.
    let nobody = json!({ "clientConfig": { "url": "https://127.0.0.1:1/" }, "failurePolicy": "Fail" });
    let hook = Hook::start(answer).await?;
    let webhooks = [webhook(&world, &hook, "/broken", &nobody)];
    with_hooks(&world, "ValidatingWebhookConfiguration", &webhooks, async {
        let failed = create_until(&world, |answer| answer.code != 201).await?;
        let message = "Internal error occurred: failed calling webhook \"broken.example.com\": failed to call webhook: Post \"https://127.0.0.1:1/?timeout=10s\"";
        failed.expect_status(500, "InternalError", message)?;
        let ignore = json!([{ "op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore" }]);
        world.patch(&configuration(&world, "ValidatingWebhookConfiguration"), "json-patch+json", &ignore).await?.expect(200)?;
        create_until(&world, |answer| answer.code == 201).await.map(drop)
    })
    .await
}

async fn times_out(world: World) -> anyhow::Result<()> {
    let hook = Hook::start(answer).await?;
    let webhooks = [webhook(&world, &hook, "/slow", &json!({ "timeoutSeconds": 1 }))];
    with_hooks(&world, "ValidatingWebhookConfiguration", &webhooks, async {
        let failed = create_until(&world, |answer| answer.code != 201).await?;
        let message = "failed calling webhook \"slow.example.com\": failed to call webhook: Post";
        let body = failed.expect_status(500, "InternalError", message)?;
        let text = body["message"].as_str().unwrap_or_default();
        ensure!(text.ends_with("context deadline exceeded"), "{text}");
        Ok(())
    })
    .await
}

async fn reinvocation(world: World) -> anyhow::Result<()> {
    let hook = Hook::start(answer).await?;
    let again = json!({ "reinvocationPolicy": "IfNeeded" });
    let webhooks =
        [webhook(&world, &hook, "/count", &again), webhook(&world, &hook, "/annotate", &json!({}))];
    with_hooks(&world, "MutatingWebhookConfiguration", &webhooks, async {
        let made =
            create_until(&world, |answer| answer.body["metadata"]["annotations"]["hooked"] == "yes").await?;
        ensure!(made.body["data"]["times"] == "xx", "asked once and once more: {}", made.text);
        Ok(())
    })
    .await
}

async fn deletions(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({})).await?;
    let hook = Hook::start(answer).await?;
    let rules = json!({ "rules": [{ "operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }] });
    let webhooks = [webhook(&world, &hook, "/shown", &rules)];
    with_hooks(&world, "ValidatingWebhookConfiguration", &webhooks, async {
        let path = world.core("configmaps/a");
        let show = json!({ "dryRun": ["All"] });
        let refused =
            repeat("a refusal", || world.delete(&path, Some(&show)), |answer| answer.code != 200).await?;
        ensure!(refused.text.contains("for show: true"), "{}", refused.text);
        let refused = world.delete(&path, None).await?;
        ensure!(refused.text.contains("for show: false"), "{}", refused.text);
        Ok(())
    })
    .await
}

async fn mutating_deletions(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({})).await?;
    let hook = Hook::start(answer).await?;
    let rules = json!({ "rules": [{ "operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }] });
    let webhooks = [webhook(&world, &hook, "/deny", &rules)];
    with_hooks(&world, "MutatingWebhookConfiguration", &webhooks, async {
        let path = format!("{}?dryRun=All", world.core("configmaps/a"));
        let refused = repeat("a refusal", || world.delete(&path, None), |answer| answer.code != 200).await?;
        refused.expect_status(403, "", "denied the request: no such luck").map(drop)
    })
    .await
}

async fn other_version(world: World) -> anyhow::Result<()> {
    let hook = Hook::start(answer).await?;
    let rules = json!({ "rules": [{ "operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["horizontalpodautoscalers"] }] });
    let webhooks = [webhook(&world, &hook, "/told", &rules)];
    with_hooks(&world, "ValidatingWebhookConfiguration", &webhooks, async {
        let path = format!("{}?dryRun=All", world.path("autoscaling/v2", "horizontalpodautoscalers"));
        let scaler = json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "a" },
            "spec": { "maxReplicas": 3, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" } } });
        let refused = repeat("a refusal", || world.post(&path, &scaler), |answer| answer.code != 201).await?;
        ensure!(refused.text.contains("autoscaling/v1 of v1, asked as v2"), "{}", refused.text);
        Ok(())
    })
    .await
}

async fn untyped_patch(world: World) -> anyhow::Result<()> {
    let hook = Hook::start(answer).await?;
    let webhooks = [webhook(&world, &hook, "/untyped", &json!({}))];
    with_hooks(&world, "MutatingWebhookConfiguration", &webhooks, async {
        let failed = create_until(&world, |answer| answer.code != 201).await?;
        let message = "failed calling webhook \"untyped.example.com\": received invalid webhook response: webhook returned response.patch but not response.patchType";
        failed.expect_status(500, "InternalError", message).map(drop)
    })
    .await
}

async fn validating_patch(world: World) -> anyhow::Result<()> {
    let hook = Hook::start(answer).await?;
    let webhooks = [webhook(&world, &hook, "/annotate", &json!({}))];
    with_hooks(&world, "ValidatingWebhookConfiguration", &webhooks, async {
        let failed = create_until(&world, |answer| answer.code != 201).await?;
        let message = "received invalid webhook response: validating webhook may not return response.patch";
        failed.expect_status(500, "InternalError", message).map(drop)
    })
    .await
}

async fn replaced_version(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({})).await?;
    let hook = Hook::start(answer).await?;
    let rules = json!({ "rules": [{ "operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }] });
    let webhooks = [webhook(&world, &hook, "/told", &rules)];
    with_hooks(&world, "ValidatingWebhookConfiguration", &webhooks, async {
        let path = format!("{}?dryRun=All", world.core("configmaps/a"));
        let change = json!({ "data": { "a": "b" } });
        let refused = repeat(
            "a refusal",
            || world.patch(&path, "merge-patch+json", &change),
            |answer| answer.code != 200,
        )
        .await?;
        ensure!(refused.text.contains("replaces true"), "{}", refused.text);
        Ok(())
    })
    .await
}

async fn conversion(world: World) -> anyhow::Result<()> {
    let hook = Hook::start(answer).await?;
    let group = format!("{}.example.com", world.unique);
    let schema = |field: &str| {
        json!({ "openAPIV3Schema": { "type": "object", "properties": {
        "spec": { "type": "object", "properties": { (field): { "type": "integer" } } } } } })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("boxes.{group}") },
        "spec": { "group": group, "scope": "Namespaced", "names": { "plural": "boxes", "kind": "Box" },
            "conversion": { "strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": hook.client("/convert") } },
            "versions": [
                { "name": "v1", "served": true, "storage": true, "schema": schema("size"),
                    "selectableFields": [{ "jsonPath": ".spec.size" }] },
                { "name": "v2", "served": true, "storage": false, "schema": schema("length"),
                    "selectableFields": [{ "jsonPath": ".spec.length" }] },
            ] },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.post(definitions, &definition).await?.expect(201)?;
    let check = async {
        let [v1, v2] = ["v1", "v2"].map(|version| world.path(&format!("{group}/{version}"), "boxes"));
        let made = json!({ "apiVersion": format!("{group}/v2"), "kind": "Box", "metadata": { "name": "a" }, "spec": { "length": 7 } });
        repeat("a box", || world.post(&v2, &made), |answer| matches!(answer.code, 201 | 409)).await?;
        let stored = world.get(&format!("{v1}/a")).await?.expect(200)?;
        ensure!(stored["spec"] == json!({ "size": 7 }), "{stored}");
        let listed = world.get(&v2).await?.expect(200)?;
        ensure!(listed["items"][0]["spec"] == json!({ "length": 7 }), "{listed}");
        for (path, selector, count) in
            [(&v2, "spec.length%3D7", 1), (&v2, "spec.length%3D8", 0), (&v1, "spec.size%3D7", 1)]
        {
            let listed = world.get(&format!("{path}?fieldSelector={selector}")).await?.expect(200)?;
            let found = listed["items"].as_array().map_or(0, Vec::len);
            ensure!(found == count, "{selector} selects {found} objects in {path}");
        }
        Ok(())
    };
    let outcome = check.await;
    let deleted = world.delete(&format!("{definitions}/boxes.{group}"), None).await?;
    outcome?;
    deleted.expect(200).map(drop)
}

async fn connections(world: World) -> anyhow::Result<()> {
    let hook = Hook::start(answer).await?;
    with_account(&world).await?;
    world.post(&world.core("pods"), &pod("p", json!({}))).await?.expect(201)?;
    let rules = json!({ "rules": [{ "operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec"] }] });
    let nothing = json!({});
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        let webhooks = [webhook(&world, &hook, "/connected", &rules)];
        let path = world.core("pods/p/exec?command=ls&command=-l&container=c&stdout=true");
        let told = "denied the request: CONNECT to exec: PodExecOptions [ls,-l] in c";
        let is_denied = |answer: &Answer| answer.text.contains(told);
        let asked = async { repeat("a refusal", || world.post(&path, &nothing), is_denied).await.map(drop) };
        with_hooks(&world, kind, &webhooks, asked).await?;
    }
    Ok(())
}

/// Carries out a check while a policy is bound in the namespace of the case.
async fn with_policy(
    world: &World,
    more: &Value,
    check: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let mut policy = policy(world);
    for (key, value) in more.as_object().into_iter().flatten() {
        policy["spec"][key] = value.clone();
    }
    let policies = format!("{CONFIGURATIONS}/mutatingadmissionpolicies");
    let bindings = format!("{CONFIGURATIONS}/mutatingadmissionpolicybindings");
    let binding = json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": { "name": world.unique }, "spec": { "policyName": world.unique } });
    world.post(&policies, &policy).await?.expect(201)?;
    let bound = world.post(&bindings, &binding).await?;
    let outcome = check.await;
    world.delete(&format!("{bindings}/{}", world.unique), None).await?;
    world.delete(&format!("{policies}/{}", world.unique), None).await?.expect(200)?;
    bound.expect(201)?;
    outcome
}

fn policy(world: &World) -> Value {
    json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": { "name": world.unique }, "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": world.namespace } },
                "resourceRules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }],
            },
            "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": "Object{}" } }],
        } })
}

async fn mutating_policy(world: World) -> anyhow::Result<()> {
    let apply = "Object{metadata: Object.metadata{labels: {'app': variables.app}}}";
    let patch = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'for/' + object.metadata.labels['app']: 'yes'}}]";
    let more = json!({
        "variables": [{ "name": "app", "expression": "object.metadata.name + '-app'" }],
        "matchConditions": [{ "name": "kept", "expression": "!(has(object.data) && 'keep' in object.data)" }],
        "mutations": [
            { "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": apply } },
            { "patchType": "JSONPatch", "jsonPatch": { "expression": patch } },
        ],
    });
    with_policy(&world, &more, async {
        let path = format!("{}?dryRun=All", world.core("configmaps"));
        let body = world.config_map("a", &json!({ "x": "y" }));
        let is_changed = |answer: &Answer| answer.body["metadata"]["labels"]["app"] == "a-app";
        let changed = repeat("a label", || world.post(&path, &body), is_changed).await?.body;
        // The second change sees what the first did.
        ensure!(changed["metadata"]["annotations"]["for/a-app"] == "yes", "{changed}");
        ensure!(changed["data"] == json!({ "x": "y" }), "{changed}");
        let kept = world.post(&path, &world.config_map("b", &json!({ "keep": "me" }))).await?.expect(201)?;
        ensure!(kept["metadata"].get("labels").is_none(), "{kept}");
        Ok(())
    })
    .await
}

async fn failing_policy(world: World) -> anyhow::Result<()> {
    let mutations = |expression: &str| json!([{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } }]);
    let path = format!("{}?dryRun=All", world.core("configmaps"));
    let body = world.config_map("a", &json!({}));
    let failing =
        json!({ "mutations": mutations("Object{metadata: Object.metadata{name: object.data['nope']}}") });
    let denied = format!("policy '{0}' with binding '{0}' denied request: ", world.unique);
    let name = format!("{CONFIGURATIONS}/mutatingadmissionpolicies/{}", world.unique);
    with_policy(&world, &failing, async {
        // The policy is bound all the time: what changes the outcome is that the server has seen the change.
        for (failure_policy, code) in [("Fail", 403), ("Ignore", 201), ("Fail", 403)] {
            let change = json!({ "spec": { "failurePolicy": failure_policy } });
            world.patch(&name, "merge-patch+json", &change).await?.expect(200)?;
            let is_in_effect = |answer: &Answer| answer.code == code;
            let answer = repeat(failure_policy, || world.post(&path, &body), is_in_effect).await?;
            if code == 403 {
                answer.expect_status(403, "Invalid", &denied)?;
            }
        }
        Ok(())
    })
    .await
}

async fn broken_policy(world: World) -> anyhow::Result<()> {
    let path = format!("{CONFIGURATIONS}/mutatingadmissionpolicies?dryRun=All");
    for (key, value, message) in [
        (
            "reinvocationPolicy",
            json!("Often"),
            "spec.reinvocationPolicy: Unsupported value: \"Often\": supported values: \"IfNeeded\", \"Never\"",
        ),
        ("mutations", json!([]), "spec.mutations: Required value: mutations must contain at least one item"),
        (
            "mutations",
            json!([{ "patchType": "JSONPatch" }]),
            "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
        ),
        (
            "mutations",
            json!([{ "patchType": "Sorcery" }]),
            "spec.mutations[0].patchType: Unsupported value: \"Sorcery\": supported values: \"ApplyConfiguration\", \"JSONPatch\"",
        ),
    ] {
        let mut body = policy(&world);
        body["spec"][key] = value;
        world.post(&path, &body).await?.expect_status(422, "Invalid", message)?;
    }
    Ok(())
}
