//! Cases of several steps: what users do, and what the operator makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quintet_apiserver::Api;
use serde_json::{Value, json};

use crate::case::{Answer, Case, Step};
use crate::matching::{matches_text, normalized};
use crate::world::{ObjectId, World};
use crate::{Outcome, Profile, acts};

/// What the API itself makes for every namespace.
const OF_NAMESPACES: [(&str, &str); 2] = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];

/// Runs a case and compares every step.
pub(crate) async fn compare(profile: &Profile, template: &Api, case: &Case) -> Result<Outcome, String> {
    let setting = (profile.setting)(case)?;
    let mut world = World::new(template, 1, &case.namespaces()).await?;
    (profile.prepare)(&mut world, case).await?;
    world.start(&profile.component, &setting).await?;
    if case.environment.webhooks == Some(true) {
        world.serve_webhooks(&profile.component, &setting).await?;
    }
    world.settle().await?;
    let mut run = Run {
        profile,
        case,
        before: world.objects().await?,
        known: BTreeSet::new(),
        created: BTreeSet::new(),
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
    /// All objects that existed after a step.
    known: BTreeSet<ObjectId>,
    /// What users have created in this step.
    created: BTreeSet<ObjectId>,
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
        self.created.clear();
        for object in &step.create {
            touched.insert(ObjectId::of(object));
            let (answer, stored) = self.world.create_and_read(object).await?;
            // One that is refused never was there; the API names others.
            if answer.code < 400 {
                let metadata = &stored["metadata"];
                let name = metadata["name"].as_str().unwrap_or_default().to_owned();
                self.created.insert(ObjectId { name, ..ObjectId::of(object) });
            }
            answers.push(answer);
        }
        if let Some(patch) = &step.patch {
            let id = actual_id(&ObjectId::parse(&patch.object)?, &self.before);
            answers.push(self.world.patch(&id, patch.subresource.as_deref(), &patch.body).await?);
            touched.insert(id);
        }
        if let Some(deleted) = &step.delete {
            self.world.delete(&actual_id(&ObjectId::parse(deleted)?, &self.before)).await?;
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
        touched.extend(self.created.iter().cloned());
        self.users.extend(touched.into_iter().filter(|id| !own.contains(&id.kind)));
        let mut found = if self.profile.awaits_states {
            self.await_state(step, &own).await?
        } else {
            let is_at_rest = self.world.settle().await?;
            let mut found = self.differences(step, &own).await?;
            if !is_at_rest && !step.unsettled {
                found.push("does not come to rest".to_owned());
            }
            found
        };
        found.dedup();
        for difference in found {
            self.note(step, &difference);
        }
        self.before = self.world.objects().await?;
        self.known.extend(self.before.keys().cloned());
        self.events = self.world.events().await?.len();
        Ok(Ok(()))
    }

    /// Waits until everything is as recorded, and stays so for a second. Otherwise, how it differs at the end.
    async fn await_state(&mut self, step: &Step, own: &BTreeSet<String>) -> Result<Vec<String>, String> {
        const TICK: Duration = Duration::from_millis(500);
        /// No case waits for longer than a few periods of some seconds.
        const TICKS: u32 = 240;
        let (mut quiet, mut version) = (0, 0);
        let mut found = Vec::new();
        let mut closest: Option<Vec<String>> = None;
        for _ in 0..TICKS {
            tokio::time::sleep(TICK).await;
            if self.world.version() != version {
                version = self.world.version();
                found = self.differences(step, own).await?;
            }
            quiet = if found.is_empty() { quiet + 1 } else { 0 };
            if quiet == 2 {
                return Ok(Vec::new());
            }
            let is_closer = |closest: &Vec<String>| found.len() < closest.len();
            if !found.is_empty() && closest.as_ref().is_none_or(is_closer) {
                closest = Some(found.clone());
            }
        }
        Ok(closest.unwrap_or_else(|| vec!["is as recorded only for a moment".to_owned()]))
    }

    /// How objects and events differ now.
    async fn differences(&self, step: &Step, own: &BTreeSet<String>) -> Result<Vec<String>, String> {
        let mut found = self.compare_objects(step, own).await?;
        found.extend(self.compare_events(step).await?);
        Ok(found)
    }

    fn note(&mut self, step: &Step, difference: &str) {
        self.found.push(format!("{}: {difference}", step.step));
    }

    /// Kinds of the operator, whose status is compared.
    fn own_kinds(&self) -> BTreeSet<String> {
        self.profile.component.kinds().iter().map(|kind| kind.name.to_owned()).collect()
    }

    async fn compare_objects(&self, step: &Step, own: &BTreeSet<String>) -> Result<Vec<String>, String> {
        let mut after = self.world.objects().await?;
        let mut found = Vec::new();
        let mut listed = BTreeSet::new();
        for recorded in &step.objects {
            let id = actual_id(&ObjectId::of(recorded), &after);
            match after.get(&id) {
                Some(actual) => {
                    let actual = normalized(actual.clone(), own.contains(&id.kind));
                    let differences = self.profile.differences(self.case, recorded, &actual);
                    found.extend(differences.iter().map(|difference| format!("{id}{difference}")));
                }
                None => found.push(format!("missing {id}")),
            }
            listed.insert(id);
        }
        let (gone, recreated) = self.replaced(&after);
        found.extend(compare_lists("gone", &step.gone, &gone));
        found.extend(compare_lists("recreated", &step.recreated, &recreated));
        after.retain(|id, _| !listed.contains(id) && !self.users.contains(id) && self.is_compared(id));
        for (id, actual) in after {
            let has_status = own.contains(&id.kind);
            let actual = normalized(actual, has_status);
            match self.before.get(&id).map(|before| normalized(before.clone(), has_status)) {
                Some(before) => {
                    let differences = self.profile.differences(self.case, &before, &actual);
                    found.extend(differences.iter().map(|difference| format!("changed {id}{difference}")));
                }
                None => found.push(format!("unexpected {id}")),
            }
        }
        Ok(found)
    }

    /// Objects that are gone, also those that users created in this step, and objects that were made again.
    fn replaced(&self, after: &BTreeMap<ObjectId, Value>) -> (BTreeSet<String>, BTreeSet<String>) {
        let known: BTreeSet<_> = self.before.keys().chain(&self.created).cloned().collect();
        let compared = |id: &&ObjectId| self.is_compared(id);
        let gone = known.iter().filter(compared).filter(|id| !after.contains_key(*id));
        let uid = |object: Option<&Value>| object.map(|object| object["metadata"]["uid"].clone());
        let is_new = |id: &&ObjectId| {
            let before = uid(self.before.get(*id));
            before.is_some() && before != uid(after.get(*id)) && after.contains_key(*id)
        };
        // Recordings of states that pass also list pods that were gone for some steps.
        let returned = self.known.iter().filter(|id| {
            let is_back = !self.before.contains_key(*id) && after.contains_key(*id);
            self.profile.awaits_states && id.kind == "Pod" && is_back
        });
        let recreated = self.before.keys().filter(is_new).chain(returned).filter(compared);
        (gone.map(ToString::to_string).collect(), recreated.map(ToString::to_string).collect())
    }

    fn is_compared(&self, id: &ObjectId) -> bool {
        let is_of_namespace = OF_NAMESPACES.iter().any(|(kind, name)| id.kind == *kind && id.name == *name);
        !is_of_namespace && (self.profile.is_recorded)(self.case, id)
    }

    /// Events as sets: their order and count depend on how often the operator happened to reconcile. Repeated ones are one.
    async fn compare_events(&self, step: &Step) -> Result<Vec<String>, String> {
        let mut all = self.world.events().await?;
        all.sort_by_key(|event| {
            event["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok())
        });
        let actual: Vec<_> = all.iter().map(event).collect();
        let new = actual.get(self.events.min(actual.len())..).unwrap_or_default();
        let is_same = |recorded: &Value, actual: &Value| {
            ["object", "type", "reason", "message"].iter().all(|field| {
                let text = |event: &Value| event[field].as_str().unwrap_or_default().to_owned();
                matches_text(&text(recorded), &text(actual))
            })
        };
        // One that was recorded before may be written into its series again.
        let missing = step.events.iter().filter(|recorded| {
            let is_counted = recorded["count"].as_u64().is_some_and(|count| count > 1);
            let candidates = if is_counted { actual.as_slice() } else { new };
            !candidates.iter().any(|actual| is_same(recorded, actual))
        });
        let mut found: Vec<_> = missing.map(|recorded| format!("missing event {recorded}")).collect();
        let is_unexpected = |actual: &&Value| !step.events.iter().any(|recorded| is_same(recorded, actual));
        found.extend(new.iter().filter(is_unexpected).map(|event| format!("unexpected event {event}")));
        Ok(found)
    }
}

/// The object of a recorded name, in which a part may differ from run to run.
fn actual_id(recorded: &ObjectId, actual: &BTreeMap<ObjectId, Value>) -> ObjectId {
    let is_it = |id: &&ObjectId| {
        id.kind == recorded.kind
            && id.namespace == recorded.namespace
            && matches_text(&recorded.name, &id.name)
    };
    actual.keys().find(is_it).unwrap_or(recorded).clone()
}

/// What is in one list and not in the other. Recorded names may contain parts that differ from run to run.
fn compare_lists(what: &str, recorded: &[String], actual: &BTreeSet<String>) -> Vec<String> {
    let missing = recorded.iter().filter(|id| !actual.iter().any(|one| matches_text(id, one)));
    let additional = actual.iter().filter(|one| !recorded.iter().any(|id| matches_text(id, one)));
    let missing = missing.map(|id| format!("not {what} {id}"));
    missing.chain(additional.map(|id| format!("{what} {id}"))).collect()
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
