use kube::Resource;
use serde::{Deserialize, de::DeserializeOwned};

use super::{IndexFn, ObjectMetadata, Selector};
use crate::object::{ApiKind, Form, Scoped};

/// What to watch, and what to keep of it.
pub struct WatchSpec<T> {
    pub(super) kind: ApiKind,
    pub(super) selector: Selector,
    pub(super) form: Form,
    pub(super) project: fn(&str) -> Result<T, serde_json::Error>,
    pub(super) indexes: Vec<(&'static str, IndexFn<T>)>,
    pub(super) optional: bool,
    pub(super) page: u32,
}

impl<T> WatchSpec<T> {
    /// Keeps whole typed objects. Typed objects cost several times their wire size: for kinds with many
    /// objects prefer [`WatchSpec::projected`].
    pub fn typed() -> Self
    where
        T: Resource<DynamicType = ()> + DeserializeOwned,
        T::Scope: Scoped,
    {
        Self::new(ApiKind::of::<T>(), Form::Whole, |text| serde_json::from_str(text))
    }

    /// Keeps what `project` makes of an object's JSON. Decode straight into a small struct that names
    /// only the fields needed: the rest is skipped without being allocated.
    pub fn projected(kind: ApiKind, project: fn(&str) -> Result<T, serde_json::Error>) -> Self {
        Self::new(kind, Form::Whole, project)
    }

    fn new(kind: ApiKind, form: Form, project: fn(&str) -> Result<T, serde_json::Error>) -> Self {
        Self {
            kind,
            selector: Selector::all(),
            form,
            project,
            indexes: Vec::new(),
            optional: false,
            // As client-go's reflectors ask for.
            page: 500,
        }
    }

    /// Only what `selector` selects.
    #[must_use]
    pub fn select(mut self, selector: Selector) -> Self {
        self.selector = selector;
        self
    }

    /// Adds an index `name` by the keys that `keys_of` gives.
    #[must_use]
    pub fn index(mut self, name: &'static str, keys_of: IndexFn<T>) -> Self {
        self.indexes.push((name, keys_of));
        self
    }

    /// The cluster may not serve the kind: then the cache counts as complete and empty until it does.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// How many objects to ask for at a time.
    #[must_use]
    pub fn page(mut self, objects: u32) -> Self {
        self.page = objects.max(1);
        self
    }
}

impl WatchSpec<ObjectMetadata> {
    /// Asks the server for metadata only, and keeps what is useful of it.
    pub fn metadata(kind: ApiKind) -> Self {
        #[derive(Deserialize)]
        struct Partial {
            #[serde(default)]
            metadata: ObjectMetadata,
        }
        Self::new(kind, Form::Metadata, |text| {
            serde_json::from_str::<Partial>(text).map(|partial| partial.metadata)
        })
    }
}
