//! The comparison itself, on a small operator: a Note gets a ConfigMap with its text.
#![expect(unreachable_pub, reason = "the types of a resource are public")]

use quintet_api::config::ComponentConfig;
use quintet_api::crd::{Definition, Version};
use quintet_component::{Permissions, READ, Webhook, rule};
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::webhook::{Admission, Mutation, Verdict};
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, Plan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;

quintet_api::resource! {
    /// A text that is kept in a ConfigMap.
    Note in "golden.quintet.dev" "v1", namespaced "notes" {
        /// What it says.
        spec: NoteSpec,
    }
}

/// What a Note says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoteSpec {
    /// The text.
    pub text: String,
}

struct Scribe(Cache<Note>);

impl Controller for Scribe {
    type Observed = std::sync::Arc<Entry<Note>>;
    type Call = NoCall;
    const NAME: &'static str = "note";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Self::Observed>, Error> {
        Ok(self.0.get(key))
    }

    fn plan(note: &Self::Observed) -> Plan {
        let metadata = json!({"name": note.key.name(), "namespace": note.key.namespace()});
        let object = json!({"metadata": metadata, "data": {"text": note.object.spec.text}});
        let kind = ApiKind::of::<k8s_openapi::api::core::v1::ConfigMap>();
        Plan { steps: vec![Action::apply(kind, "scribe", &object).into()], ..Plan::default() }
    }
}

fn webhooks() -> Vec<Webhook> {
    let trims = Webhook::mutating("notes", "mnote.quintet.dev", "/mutate", |routes, _| {
        Ok(routes.mutate("/mutate", |mut admission: Admission<Note>| {
            admission.object.spec.text = admission.object.spec.text.trim().to_owned();
            Mutation::to(admission.object)
        }))
    });
    let denies = Webhook::validating("notes", "vnote.quintet.dev", "/validate", |routes, _| {
        Ok(routes.validate("/validate", |admission: Admission<Note>| {
            match admission.object.spec.text.as_str() {
                "" => Verdict::deny("say something"),
                _ => Verdict::allow(),
            }
        }))
    });
    [trims, denies].map(|webhook| webhook.on(&["CREATE"], "golden.quintet.dev", "v1", &["notes"])).into()
}

fn component() -> Component {
    Component {
        config: ComponentConfig::without_settings("note"),
        replaces: "nothing",
        deployment_label: None,
        crds: || vec![Definition::stored::<Note>(Version::plain())],
        convert: None,
        environment: &[],
        sensitive_fields: &[],
        configure: Some(|_| {
            let notes = rule("golden.quintet.dev", &["notes"], READ);
            let config_maps = rule("", &["configmaps"], &["get", "create", "patch"]);
            Ok(quintet_component::Operator {
                permissions: Permissions { namespaced: vec![notes, config_maps], ..Permissions::default() },
                webhooks: webhooks(),
                services: Vec::new(),
                apis: Vec::new(),
                start: Box::new(|process| {
                    let notes = process.runtime.caches().watch(WatchSpec::<Note>::typed())?;
                    process.runtime.add(Scribe(notes.clone()), &notes, 1).done();
                    Ok(())
                }),
            })
        }),
    }
}

fn compared(case: &serde_json::Value) -> Outcome {
    let case: Case = serde_json::from_value(case.clone()).unwrap();
    let profile = Profile::new(component(), "[]", |_| Ok(Setting::default()));
    simulate(async { compare(&profile, &case, &mut HashMap::new()).await }).unwrap()
}

fn note(text: &str) -> serde_json::Value {
    json!({
        "apiVersion": "golden.quintet.dev/v1", "kind": "Note",
        "metadata": {"name": "a", "namespace": "ns"}, "spec": {"text": text},
    })
}

fn config_map(text: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}, "data": {"text": text}})
}

#[test]
fn steps_are_compared_with_what_is_made_changed_and_gone() {
    let step = |objects: &serde_json::Value| {
        let create =
            json!({"step": "create", "create": [note("x")], "answers": [{"code": 201}], "objects": objects});
        let delete = json!({"step": "delete", "delete": "Note ns/a", "objects": [], "gone": ["Note ns/a"]});
        json!({"case": "c", "steps": [create, delete]})
    };
    assert_eq!(compared(&step(&json!([note("x"), config_map("x")]))), Outcome::Compared(Vec::new()));
    let differs = |objects: &serde_json::Value| match compared(&step(objects)) {
        Outcome::Compared(found) => found,
        Outcome::Unsupported(what) => vec![what],
    };
    let wrong = differs(&json!([note("x"), config_map("y")]));
    assert_eq!(wrong, [r#"create: ConfigMap ns/a.data.text: recorded "y", is "x""#]);
    assert_eq!(differs(&json!([note("x")])), ["create: unexpected ConfigMap ns/a"]);
}

#[test]
fn webhooks_change_and_deny() {
    let case = |text: &str, rest: &serde_json::Value| {
        let mut webhook = json!({"operation": "CREATE", "input": note(text)});
        webhook.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        compared(&json!({"case": "c", "webhook": webhook}))
    };
    let same = Outcome::Compared(Vec::new());
    assert_eq!(case(" x ", &json!({"allowed": true, "answer": {"code": 201}, "result": note("x")})), same);
    assert_eq!(case(" x ", &json!({"allowed": true, "mutated": note("x")})), same);
    let message = "admission webhook \"vnote.quintet.dev\" denied the request: say something";
    let denied = json!({"code": 403, "reason": "Forbidden", "message": message});
    assert_eq!(case(" ", &json!({"allowed": false, "answer": denied})), same);
    let Outcome::Compared(found) = case(" ", &json!({"allowed": true, "answer": {"code": 201}})) else {
        panic!()
    };
    assert!(found[0].starts_with("answer: recorded 201, is 403"), "{found:?}");
}

#[test]
fn what_is_refused_never_was_there_and_what_the_api_names_is_found() {
    let unknown =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "A B", "namespace": "ns"}});
    let named =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "x-", "namespace": "ns"}});
    let answers = json!([{"code": 422}, {"code": 201}]);
    let step = json!({"step": "create", "create": [unknown, named], "answers": answers, "objects": []});
    assert_eq!(compared(&json!({"case": "c", "steps": [step]})), Outcome::Compared(Vec::new()));
}

#[test]
fn generated_names_are_found_in_all_steps() {
    let named =
        |name: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": name, "type": "Opaque"});
    let create = json!({
        "step": "create", "answers": [{"code": 201}],
        "create": [named(json!({"generateName": "x-", "namespace": "ns"}))],
        "objects": [named(json!({"generateName": "x-", "name": "x-<random>", "namespace": "ns"}))],
    });
    let delete =
        json!({"step": "delete", "delete": "Secret ns/x-<random>", "gone": ["Secret ns/x-<random>"]});
    assert_eq!(compared(&json!({"case": "c", "steps": [create, delete]})), Outcome::Compared(Vec::new()));
}

#[test]
fn kinds_that_a_case_names_may_be_the_operators_own() {
    let case = json!({"case": "c", "environment": {"optionalKinds": ["Note", "Route"]}, "steps": []});
    assert_eq!(compared(&case), Outcome::Compared(Vec::new()));
}

#[test]
fn what_cannot_be_done_is_unsupported() {
    let act = json!({"case": "c", "steps": [{"step": "s", "act": "the moon rises", "objects": []}]});
    assert_eq!(compared(&act), Outcome::Unsupported("what others do: the moon rises".to_owned()));
    let kind = json!({"case": "c", "environment": {"optionalKinds": ["Moon"]}, "steps": []});
    assert!(matches!(compared(&kind), Outcome::Unsupported(_)));
}
