//! Cases of several steps: what users do, and what the operator makes of it.

use std::collections::{BTreeMap, BTreeSet};

use quintet_apiserver::Api;
use serde_json::{Value, json};

use crate::case::{Answer, Case, Step};
use crate::matching::{differences, matches_text, normalized};
use crate::world::{ObjectId, World};
use crate::{Outcome, Profile, acts};

/// What the API itself makes for every namespace.
const OF_NAMESPACES: [(&str, &str); 2] = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];

/// Runs a case and compares every step.
pub(crate) async fn compare(profile: &Profile, template: &Api, case: &Case) -> Result<Outcome, String> {
    let setting = (profile.setting)(case)?;
    let mut world = World::new(template, 1, &case.namespaces()).await?;
    world.start(&profile.component, &setting).await?;
    world.settle().await?;
    let mut run = Run {
        profile,
        case,
        before: world.objects().await?,
        events: world.events().await?.len(),
        users: BTreeSet::new(),
        found: Vec::new(),
        world,
    };
    for step in &case.steps {
        if let Err(missing) = run.step(step).await? {
            run.world.stop().await;
            return Ok(Outcome::Unsupported(missing));
        }
    }
    run.world.stop().await;
    Ok(Outcome::Compared(run.found))
}

struct Run<'a> {
    profile: &'a Profile,
    case: &'a Case,
    world: World,
    /// The objects after the last step.
    before: BTreeMap<ObjectId, Value>,
    /// The number of events after the last step.
    events: usize,
    /// Objects of others that users have created or changed.
    users: BTreeSet<ObjectId>,
    found: Vec<String>,
}

impl Run<'_> {
    /// One step. The inner error says what is not supported.
    async fn step(&mut self, step: &Step) -> Result<Result<(), String>, String> {
        let mut answers = Vec::new();
        let mut touched = BTreeSet::new();
        for object in &step.create {
            touched.insert(ObjectId::of(object));
            answers.push(self.world.create(object).await?);
        }
        if let Some(patch) = &step.patch {
            let id = ObjectId::parse(&patch.object)?;
            answers.push(self.world.patch(&id, patch.subresource.as_deref(), &patch.body).await?);
            touched.insert(id);
        }
        if let Some(deleted) = &step.delete {
            self.world.delete(&ObjectId::parse(deleted)?).await?;
        }
        if let Some(sentence) = &step.act
            && !acts::act(&self.world, step, sentence, self.profile.act).await?
        {
            return Ok(Err(format!("what others do: {sentence}")));
        }
        for (recorded, actual) in step.answers.iter().zip(&answers) {
            for difference in compare_answer(recorded, actual) {
                self.note(step, &difference);
            }
        }
        let own = self.own_kinds();
        self.users.extend(touched.into_iter().filter(|id| !own.contains(&id.kind)));
        if !self.world.settle().await? && !step.unsettled {
            self.note(step, "does not come to rest");
        }
        self.compare_objects(step, &own).await?;
        self.compare_events(step).await?;
        Ok(Ok(()))
    }

    fn note(&mut self, step: &Step, difference: &str) {
        self.found.push(format!("{}: {difference}", step.step));
    }

    /// Kinds of the operator, whose status is compared.
    fn own_kinds(&self) -> BTreeSet<String> {
        self.profile.component.kinds().iter().map(|kind| kind.name.to_owned()).collect()
    }

    async fn compare_objects(&mut self, step: &Step, own: &BTreeSet<String>) -> Result<(), String> {
        let after = self.world.objects().await?;
        let mut listed = BTreeSet::new();
        for recorded in &step.objects {
            let id = ObjectId::of(recorded);
            match after.get(&id) {
                Some(actual) => {
                    let actual = normalized(actual.clone(), own.contains(&id.kind));
                    for difference in differences(recorded, &actual) {
                        self.note(step, &format!("{id}{difference}"));
                    }
                }
                None => self.note(step, &format!("missing {id}")),
            }
            listed.insert(id);
        }
        let (gone, recreated) = self.replaced(&after, step);
        self.compare_lists(step, "gone", &step.gone, &gone);
        self.compare_lists(step, "recreated", &step.recreated, &recreated);
        for (id, actual) in &after {
            let before = self.before.get(id).map(|before| normalized(before.clone(), own.contains(&id.kind)));
            let actual = normalized(actual.clone(), own.contains(&id.kind));
            let is_expected = listed.contains(id) || self.users.contains(id) || !self.is_compared(id);
            if is_expected || before.as_ref() == Some(&actual) {
                continue;
            }
            match before {
                Some(before) => {
                    for difference in differences(&before, &actual) {
                        self.note(step, &format!("changed {id}{difference}"));
                    }
                }
                None => self.note(step, &format!("unexpected {id}")),
            }
        }
        self.before = after;
        Ok(())
    }

    /// Objects that are gone, also those that users created in this step, and objects that were made again.
    fn replaced(
        &self,
        after: &BTreeMap<ObjectId, Value>,
        step: &Step,
    ) -> (BTreeSet<String>, BTreeSet<String>) {
        let created = step.create.iter().map(ObjectId::of);
        let known: BTreeSet<_> = self.before.keys().cloned().chain(created).collect();
        let compared = |id: &&ObjectId| self.is_compared(id);
        let gone = known.iter().filter(compared).filter(|id| !after.contains_key(*id));
        let uid = |object: Option<&Value>| object.map(|object| object["metadata"]["uid"].clone());
        let is_new = |id: &&ObjectId| {
            let before = uid(self.before.get(*id));
            before.is_some() && before != uid(after.get(*id)) && after.contains_key(*id)
        };
        let recreated = self.before.keys().filter(compared).filter(is_new);
        (gone.map(ToString::to_string).collect(), recreated.map(ToString::to_string).collect())
    }

    fn compare_lists(&mut self, step: &Step, what: &str, recorded: &[String], actual: &BTreeSet<String>) {
        let recorded: BTreeSet<_> = recorded.iter().cloned().collect();
        for id in recorded.difference(actual) {
            self.note(step, &format!("not {what} {id}"));
        }
        for id in actual.difference(&recorded) {
            self.note(step, &format!("{what} {id}"));
        }
    }

    fn is_compared(&self, id: &ObjectId) -> bool {
        let is_of_namespace = OF_NAMESPACES.iter().any(|(kind, name)| id.kind == *kind && id.name == *name);
        !is_of_namespace && (self.profile.is_recorded)(self.case, id)
    }

    /// Events as sets: their order and count depend on how often the operator happened to reconcile.
    async fn compare_events(&mut self, step: &Step) -> Result<(), String> {
        let mut all = self.world.events().await?;
        all.sort_by_key(|event| {
            event["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok())
        });
        let new = all.split_off(self.events.min(all.len()));
        self.events += new.len();
        let actual: Vec<_> = new.iter().map(event).collect();
        let is_same = |recorded: &Value, actual: &Value| {
            ["object", "type", "reason", "message"].iter().all(|field| {
                let text = |event: &Value| event[field].as_str().unwrap_or_default().to_owned();
                matches_text(&text(recorded), &text(actual))
            })
        };
        for recorded in &step.events {
            if !actual.iter().any(|actual| is_same(recorded, actual)) {
                self.note(step, &format!("missing event {recorded}"));
            }
        }
        let mut unexpected: Vec<_> = actual
            .iter()
            .filter(|actual| !step.events.iter().any(|recorded| is_same(recorded, actual)))
            .collect();
        unexpected.dedup();
        for event in unexpected {
            self.note(step, &format!("unexpected event {event}"));
        }
        Ok(())
    }
}

/// An event as recordings have it.
fn event(event: &Value) -> Value {
    let regarding = &event["regarding"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let id = ObjectId {
        kind: text(&regarding["kind"]),
        namespace: text(&regarding["namespace"]),
        name: text(&regarding["name"]),
    };
    json!({
        "object": id.to_string(), "type": event["type"], "reason": event["reason"], "message": event["note"],
        "reporter": event["reportingController"],
    })
}

/// How a response differs from the recorded one.
pub(crate) fn compare_answer(recorded: &Answer, actual: &Answer) -> Vec<String> {
    let mut found = Vec::new();
    if recorded.code != actual.code {
        found.push(format!("answer: recorded {}, is {} {:?}", recorded.code, actual.code, actual.message));
        return found;
    }
    let differs = |recorded: &Option<String>, actual: &Option<String>| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        recorded.is_some() && !matches_text(&text(recorded), &text(actual))
    };
    if differs(&recorded.reason, &actual.reason) {
        found.push(format!("answer: recorded reason {:?}, is {:?}", recorded.reason, actual.reason));
    }
    if differs(&recorded.message, &actual.message) {
        found.push(format!("answer: recorded message {:?}, is {:?}", recorded.message, actual.message));
    }
    found
}
