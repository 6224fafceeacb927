//! Decisions of admission webhooks.
//!
//! The webhooks are asked as an API server would ask them: those that change objects first, in the order of the
//! descriptor, then the schema, then those that only decide.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quintet_apiserver::{Api, Caller};
use quintet_component::WebhookKind;
use serde_json::{Value, json};

use crate::case::{Answer, Case, Decision, Step};
use crate::matching::{differences, normalized};
use crate::steps::compare_answer;
use crate::world::{Hook, ObjectId, World};
use crate::{Outcome, Profile};

/// How long a webhook may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Asks the webhooks of a case, and compares what they say.
pub(crate) async fn compare(
    profile: &Profile,
    template: &Api,
    case: &Case,
    recorded: &Decision,
) -> Result<Outcome, String> {
    let setting = (profile.setting)(case)?;
    let mut with_input = case.clone();
    with_input.steps.push(Step { create: vec![recorded.input.clone()], ..Step::default() });
    let mut world = World::new(template, 1, &with_input.namespaces()).await?;
    (profile.prepare)(&mut world, case).await?;
    world.start(&profile.component, &setting).await?;
    world.settle().await?;
    let found = if case.is_asked_directly() {
        decide_directly(&world, profile, case, recorded).await
    } else if case.environment.webhooks == Some(true) {
        world.serve_webhooks(&profile.component, &setting).await?;
        decide_by_api(&world, profile, case, recorded).await
    } else {
        decide(&world, recorded).await
    };
    world.stop().await;
    found.map(Outcome::Compared)
}

/// Sends the request to the API, which asks the webhooks.
async fn decide_by_api(
    world: &World,
    profile: &Profile,
    case: &Case,
    recorded: &Decision,
) -> Result<Vec<String>, String> {
    let (answer, stored) = match &recorded.old {
        Some(old) => change(world, recorded, old).await?,
        None if recorded.operation == "DELETE" => change(world, recorded, &recorded.input).await?,
        None => world.create_as(caller(recorded), &recorded.input).await?,
    };
    let mut found = compare_answer(&recorded.answer, &answer);
    if let Some(result) = recorded.result.as_ref().filter(|_| answer.code < 400) {
        found.extend(profile.differences(case, result, &normalized(stored, true)));
    }
    Ok(found)
}

/// Who sends a request.
fn caller(recorded: &Decision) -> Caller {
    let user = user_of(recorded);
    let text = |field: &str| user[field].as_str().unwrap_or_default().to_owned();
    let groups = user["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Caller { uid: text("uid"), ..Caller::known(text("username"), groups.map(str::to_owned)) }
}

/// The same as webhooks learn of it: the administrator, unless the recording names headers of impersonation.
fn user_of(recorded: &Decision) -> Value {
    let Some(headers) = &recorded.as_user else {
        return json!({"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]});
    };
    let text = |header: &str| headers[header].as_str().unwrap_or_default();
    // One group is a text, several are a list.
    let mut groups: Vec<Value> = match &headers["Impersonate-Group"] {
        Value::Array(groups) => groups.clone(),
        Value::String(group) => group.split(',').map(|group| group.trim().into()).collect(),
        _ => Vec::new(),
    };
    if !groups.iter().any(|group| group == "system:authenticated") {
        groups.push("system:authenticated".into());
    }
    json!({"username": text("Impersonate-User"), "uid": text("Impersonate-Uid"), "groups": groups})
}

/// Asks the webhooks one after the other: there is neither a schema nor a default.
async fn decide_directly(
    world: &World,
    profile: &Profile,
    case: &Case,
    recorded: &Decision,
) -> Result<Vec<String>, String> {
    let mut object = recorded.input.clone();
    let mutated = ask(world, WebhookKind::Mutating, recorded, &mut object).await?;
    if case.is_validation_only() {
        // Scripts in the input are those that our own webhook writes.
        object = with_own_scripts(&recorded.input, &object);
    } else if let Err(denied) = mutated {
        return Ok(compare_direct_answer(&recorded.answer, &denied));
    }
    let mut found = Vec::new();
    if let Some(mutated) = &recorded.mutated {
        found.extend(profile.differences(case, mutated, &object));
    }
    let decided = ask(world, WebhookKind::Validating, recorded, &mut object).await?;
    let answer = decided.map_or_else(|denied| denied, |()| Answer { code: 200, ..Answer::default() });
    found.extend(compare_direct_answer(&recorded.answer, &answer));
    Ok(found)
}

/// Compares answers of a webhook itself, in which its name is missing.
fn compare_direct_answer(recorded: &Answer, actual: &Answer) -> Vec<String> {
    let message = actual.message.as_deref().map(|message| {
        message.split_once(" denied the request: ").map_or(message, |(_, reason)| reason).to_owned()
    });
    compare_answer(recorded, &Answer { message, ..actual.clone() })
}

/// An object in which markers of scripts are replaced by what another has in their place.
fn with_own_scripts(object: &Value, own: &Value) -> Value {
    match (object, own) {
        (Value::Object(fields), _) => {
            let own = |name: &str| own.get(name).unwrap_or(&Value::Null);
            fields.iter().map(|(name, value)| (name.clone(), with_own_scripts(value, own(name)))).collect()
        }
        (Value::Array(items), _) => {
            let own = |number: usize| own.get(number).unwrap_or(&Value::Null);
            items.iter().enumerate().map(|(number, item)| with_own_scripts(item, own(number))).collect()
        }
        (Value::String(text), Value::String(_)) if text.starts_with("<script: ") => own.clone(),
        _ => object.clone(),
    }
}

async fn decide(world: &World, recorded: &Decision) -> Result<Vec<String>, String> {
    let mut object = recorded.input.clone();
    if let Err(denied) = ask(world, WebhookKind::Mutating, recorded, &mut object).await? {
        return Ok(compare_answer(&recorded.answer, &denied));
    }
    if let Some(mutated) = &recorded.mutated {
        // The webhooks were asked directly, so there is neither a schema nor a default.
        let mut found = differences(mutated, &object);
        let allowed = ask(world, WebhookKind::Validating, recorded, &mut object).await?.is_ok();
        if allowed != recorded.allowed {
            found.push(format!("recorded allowed {}, is {allowed}", recorded.allowed));
        }
        return Ok(found);
    }
    let (answer, stored) = store(world, recorded, &object).await?;
    if answer.code >= 400 {
        return Ok(compare_answer(&recorded.answer, &answer));
    }
    let mut admitted = stored.clone();
    if let Err(denied) = ask(world, WebhookKind::Validating, recorded, &mut admitted).await? {
        return Ok(compare_answer(&recorded.answer, &denied));
    }
    let mut found = compare_answer(&recorded.answer, &answer);
    if let Some(result) = &recorded.result {
        found.extend(differences(result, &normalized(stored, true)));
    }
    Ok(found)
}

/// Sends the object to the API, which has no webhooks of its own: schema and defaults.
async fn store(world: &World, recorded: &Decision, object: &Value) -> Result<(Answer, Value), String> {
    match &recorded.old {
        None => world.create_and_read(object).await,
        Some(old) => {
            let (answer, stored) = world.create_and_read(old).await?;
            if answer.code >= 400 {
                return Err(format!("cannot create the object that is changed: {answer:?}"));
            }
            let mut object = object.clone();
            object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
            world.replace(&object).await
        }
    }
}

/// Creates an object, and changes or deletes it when the operator has done its part.
async fn change(world: &World, recorded: &Decision, old: &Value) -> Result<(Answer, Value), String> {
    let answer = world.create(old).await?;
    if answer.code >= 400 {
        return Err(format!("cannot create the object that is changed: {answer:?}"));
    }
    world.settle().await?;
    let live = world.get(&ObjectId::of(old)).await?.unwrap_or_default();
    let world = world.of_user(caller(recorded));
    if recorded.operation == "DELETE" {
        return world.delete(&ObjectId::of(old)).await.map(|answer| (answer, Value::Null));
    }
    let mut object = recorded.input.clone();
    object["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    world.replace(&object).await
}

/// Asks all webhooks of a kind that want to know of the request. The inner error is the response of the one that denies.
async fn ask(
    world: &World,
    kind: WebhookKind,
    recorded: &Decision,
    object: &mut Value,
) -> Result<Result<(), Answer>, String> {
    let (group, version) = group_version(object);
    let resource = world.resource(&ObjectId::of(object).kind)?;
    let wants =
        |hook: &&Hook| hook.kind == kind && hook.wants(&recorded.operation, &group, &version, resource);
    for hook in world.hooks().iter().filter(wants) {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request(recorded, object),
        });
        let answer =
            world.routes().handle(hook.path, review, LIMIT).await.map_err(|error| error.to_string())?;
        let response = &answer["response"];
        if response["allowed"] != true {
            return Ok(Err(denied(hook, response)));
        }
        if let Some(patch) = response["patch"].as_str() {
            let patch = STANDARD.decode(patch).map_err(|error| error.to_string())?;
            let patch: json_patch::Patch =
                serde_json::from_slice(&patch).map_err(|error| error.to_string())?;
            json_patch::patch(object, &patch).map_err(|error| error.to_string())?;
        }
    }
    Ok(Ok(()))
}

fn request(recorded: &Decision, object: &Value) -> Value {
    let id = ObjectId::of(object);
    let (group, version) = group_version(object);
    json!({
        "uid": "00000000-0000-0000-0000-000000000000",
        "kind": {"group": group, "version": version, "kind": id.kind},
        "name": id.name, "namespace": id.namespace, "operation": recorded.operation,
        "userInfo": user_of(recorded),
        "object": object, "oldObject": recorded.old, "dryRun": false,
    })
}

/// Group and version of an object.
fn group_version(object: &Value) -> (String, String) {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (group.to_owned(), version.to_owned())
}

/// What the client of an API server learns of a request that a webhook denies.
fn denied(hook: &Hook, response: &Value) -> Answer {
    let status = &response["status"];
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    let reason = Some(text("reason")).filter(|reason| !reason.is_empty()).unwrap_or("Forbidden");
    Answer {
        code: status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(403),
        reason: Some(reason.to_owned()),
        message: Some(format!("admission webhook {:?} denied the request: {}", hook.name, text("message"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_groups_that_the_recording_names() {
        let user = |headers: Value| {
            let decision = json!({"operation": "CREATE", "input": {}, "as": headers, "allowed": true});
            caller(&serde_json::from_value(decision).unwrap())
        };
        let alice =
            user(json!({"Impersonate-User": "alice", "Impersonate-Uid": "u", "Impersonate-Group": "a, b"}));
        assert_eq!((alice.name.as_str(), alice.uid.as_str()), ("alice", "u"));
        assert_eq!(alice.groups, ["a", "b", "system:authenticated"]);
        let bob = user(json!({"Impersonate-User": "bob", "Impersonate-Group": ["c"]}));
        assert_eq!(bob.groups, ["c", "system:authenticated"]);
        assert!(user(Value::Null).groups.contains(&"system:masters".to_owned()), "the administrator");
    }
}
