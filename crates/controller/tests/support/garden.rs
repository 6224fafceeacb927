//! A small controller: a Garden grows as many plants as it asks for.
//!
//! Plants are ConfigMaps, applied and coloured as the garden says; a shed is created once; the status
//! counts what has grown; a finalizer sees to it that the ground is cleared before a garden goes.

use std::sync::Arc;

use quintet_controller::{
    Action, ApiKind, Controller, Error, Event, NoCall, ObjectKey, Plan, StatusPatch,
    cache::{Cache, Caches, Entry, Selector, WatchSpec},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub const NAMESPACE: &str = "default";
const FINALIZER: &str = "test.quintet.dev/clear";

pub fn garden_kind() -> ApiKind {
    ApiKind::namespaced("test.quintet.dev", "v1", "Garden", "gardens")
}

pub fn config_map_kind() -> ApiKind {
    ApiKind::of::<k8s_openapi::api::core::v1::ConfigMap>()
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Garden {
    pub metadata: GardenMeta,
    pub spec: GardenSpec,
    pub status: GardenStatus,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GardenMeta {
    pub generation: i64,
    pub finalizers: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GardenSpec {
    pub plants: usize,
    pub colour: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GardenStatus {
    pub grown: usize,
    pub observed_generation: i64,
}

/// What is kept of a plant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plant {
    pub garden: String,
    pub colour: String,
}

pub fn project_plant(text: &str) -> Result<Plant, serde_json::Error> {
    #[derive(Deserialize)]
    struct Raw {
        metadata: Meta,
        #[serde(default)]
        data: Data,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(default)]
        labels: Labels,
    }
    #[derive(Default, Deserialize)]
    struct Labels {
        #[serde(default)]
        garden: String,
    }
    #[derive(Default, Deserialize)]
    struct Data {
        #[serde(default)]
        colour: String,
    }
    let raw: Raw = serde_json::from_str(text)?;
    Ok(Plant { garden: raw.metadata.labels.garden, colour: raw.data.colour })
}

pub struct Gardener {
    pub gardens: Cache<Garden>,
    pub plants: Cache<Plant>,
}

#[derive(Serialize, Deserialize)]
pub struct Observed {
    garden: Arc<Entry<Garden>>,
    plants: Vec<Arc<Entry<Plant>>>,
}

impl Gardener {
    pub fn new(caches: &Caches) -> Self {
        let gardens = WatchSpec::projected(garden_kind(), |text| serde_json::from_str(text));
        let plants = WatchSpec::projected(config_map_kind(), project_plant)
            .select(Selector::all().has_label("garden"))
            .index("garden", |entry| vec![garden_of(entry).to_string()]);
        Self { gardens: caches.watch(gardens).unwrap(), plants: caches.watch(plants).unwrap() }
    }
}

pub fn garden_of(entry: &Entry<Plant>) -> ObjectKey {
    ObjectKey::new(entry.key.namespace().unwrap_or_default(), &entry.object.garden)
}

impl Controller for Gardener {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "gardener";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let plants = self.plants.by_index("garden", key.as_str());
        Ok(self.gardens.get(key).map(|garden| Observed { garden, plants }))
    }

    fn plan(observed: &Observed) -> Plan {
        let Observed { garden, plants } = observed;
        let Garden { metadata, spec, status } = &garden.object;
        let has_finalizer = metadata.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
        let finalizers = |finalizers: Value| {
            let version = garden.version.to_string();
            let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
            Action::merge(garden_kind(), garden.key.clone(), patch)
        };
        if garden.deleting {
            if !has_finalizer {
                return Plan::nothing();
            }
            let delete = |plant: &Arc<Entry<Plant>>| Action::delete(config_map_kind(), plant);
            let mut actions: Vec<_> = plants.iter().map(delete).collect();
            if actions.is_empty() {
                actions.push(finalizers(json!([])));
            }
            return Plan { steps: actions.into_iter().map(Into::into).collect(), ..Plan::default() };
        }
        let mut actions = Vec::new();
        if !has_finalizer {
            actions.push(finalizers(json!([FINALIZER])));
        }
        let names: Vec<_> =
            (0..spec.plants).map(|number| format!("{}-{number}", garden.key.name())).collect();
        let shed = format!("{}-shed", garden.key.name());
        if !plants.iter().any(|plant| plant.key.name() == shed) {
            actions.push(Action::create(config_map_kind(), &child(garden, &shed, "brown")));
        }
        for name in &names {
            actions.push(Action::apply(config_map_kind(), "gardener", &child(garden, name, &spec.colour)));
        }
        let is_wanted = |plant: &&Arc<Entry<Plant>>| {
            plant.key.name() == shed || names.iter().any(|name| name == plant.key.name())
        };
        let unwanted = plants.iter().filter(|plant| !is_wanted(plant) && !plant.deleting);
        actions.extend(unwanted.map(|plant| Action::delete(config_map_kind(), plant)));
        let grown = names.iter().filter(|name| {
            plants.iter().any(|plant| plant.key.name() == *name && plant.object.colour == spec.colour)
        });
        let desired = GardenStatus { grown: grown.count(), observed_generation: metadata.generation };
        let done = desired.grown == spec.plants && status.grown != spec.plants;
        Plan {
            steps: actions.into_iter().map(Into::into).collect(),
            status: StatusPatch::between(garden, status, &desired),
            events: done
                .then(|| Event::normal("Grown", "Grow", "all plants have grown"))
                .into_iter()
                .collect(),
            ..Plan::default()
        }
    }
}

fn child(garden: &Entry<Garden>, name: &str, colour: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "namespace": garden.key.namespace(),
            "labels": { "garden": garden.key.name() },
            "ownerReferences": [{
                "apiVersion": "test.quintet.dev/v1", "kind": "Garden", "controller": true,
                "name": garden.key.name(), "uid": garden.uid,
            }],
        },
        "data": { "colour": colour },
    })
}
