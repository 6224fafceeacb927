//! Compares an operator with recorded behaviour of the operator that it replaces.
//!
//! A recording is a folder of YAML files, one per case: objects that users create, change and delete, and what the
//! operator made of them step by step. The operator runs in this process against the embedded API, with no more rights
//! than its descriptor asks for; time is simulated. After every step, when nothing changes any more, all objects, the
//! custom resource with its status and the events are compared.
//!
//! A case is equal if there is no difference; deliberate if every difference is on the operator's list, with a reason;
//! unsupported if it needs something that this crate cannot do.
//!
//! ```no_run
//! # fn example(component: quintet_component::Component) {
//! use quintet_golden::{Profile, Setting};
//!
//! let profile = Profile::new(component, include_str!("lib.rs"), |case| {
//!     Ok(Setting { variables: case.environment.variables.clone(), ..Setting::default() })
//! });
//! quintet_golden::check(&profile);
//! # }
//! ```
#![expect(clippy::print_stdout, reason = "the comparison is read by people")]

mod acts;
mod admission;
mod case;
mod deliberate;
mod matching;
mod optional_kinds;
mod steps;
#[cfg(test)]
mod tests;
mod webhooks;
mod world;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use futures::FutureExt;
use futures::future::BoxFuture;
use quintet_api::config::Configuration;
use quintet_api::crd::Definition;
use quintet_component::{Component, Context, Platform};
use serde_json::Value;

pub use case::{Answer, Case, Conversion, Decision, Environment, Patch, Startup, Step, Validation};
use deliberate::Deliberate;
pub use matching::{differences, matches_text, normalized};
pub use quintet_apiserver::{Api, Caller, Rng, faults};
pub use world::{ObjectId, Setting, World, template, template_of, template_with};

/// A response of an API server that cannot serve at the moment, for [`faults`].
pub fn unavailable(message: &str) -> quintet_apiserver::status::Failure {
    quintet_apiserver::status::Failure::new(503, "ServiceUnavailable", message)
}

/// Names the folder with recorded cases.
pub const DIRECTORY: &str = "QUINTET_GOLDEN";

/// Carries out what an operator's own recordings say others do; `false` if it is not understood.
pub type Act = for<'a> fn(&'a World, &'a Step, &'a str) -> BoxFuture<'a, Result<bool, String>>;

/// What the comparison has to know of an operator.
pub struct Profile {
    component: Component,
    /// The list of deliberate differences, see [`Profile::new`].
    deliberate: &'static str,
    setting: fn(&Case) -> Result<Setting, String>,
    act: Act,
    is_recorded: fn(&Case, &ObjectId) -> bool,
    defines: fn() -> Vec<Definition>,
    prepare: Prepare,
    level: fn(&Case, &mut Value, &mut Value),
    awaits_states: bool,
}

/// Makes what a case takes for granted: nodes, roles of users, objects of a platform.
pub type Prepare = for<'a> fn(&'a mut World, &'a Case) -> BoxFuture<'a, Result<(), String>>;

impl Profile {
    /// An operator with its deliberate differences, a YAML list of `case`, `difference` (both may contain `*`) and
    /// `reason`; and how it is configured for a case.
    pub fn new(
        component: Component,
        deliberate: &'static str,
        setting: fn(&Case) -> Result<Setting, String>,
    ) -> Self {
        let act: Act = |_, _, _| async { Ok(false) }.boxed();
        let prepare: Prepare = |_, _| async { Ok(()) }.boxed();
        Self {
            component,
            deliberate,
            setting,
            act,
            is_recorded: |_, _| true,
            defines: Vec::new,
            prepare,
            level: |_, _, _| {},
            awaits_states: false,
        }
    }

    /// With sentences of its own.
    #[must_use]
    pub fn acting(self, act: Act) -> Self {
        Self { act, ..self }
    }

    /// With kinds of other operators.
    #[must_use]
    pub fn defining(self, defines: fn() -> Vec<Definition>) -> Self {
        Self { defines, ..self }
    }

    /// With what every case takes for granted.
    #[must_use]
    pub fn prepared(self, prepare: Prepare) -> Self {
        Self { prepare, ..self }
    }

    /// With a change of recorded and actual objects that levels what is not to be compared.
    #[must_use]
    pub fn leveled(self, level: fn(&Case, &mut Value, &mut Value)) -> Self {
        Self { level, ..self }
    }

    /// The recorded states pass: a step is equal if there is a time after it at which it is. Otherwise, everything has to
    /// be as recorded when it comes to rest.
    #[must_use]
    pub fn awaiting_states(self) -> Self {
        Self { awaits_states: true, ..self }
    }

    /// The differences between an object as it was recorded and as it is.
    fn differences(&self, case: &Case, recorded: &Value, actual: &Value) -> Vec<String> {
        let (mut recorded, mut actual) = (recorded.clone(), actual.clone());
        (self.level)(case, &mut recorded, &mut actual);
        differences(&recorded, &actual)
    }

    /// With objects that recordings leave out.
    #[must_use]
    pub fn recording(self, is_recorded: fn(&Case, &ObjectId) -> bool) -> Self {
        Self { is_recorded, ..self }
    }
}

/// How a case compares.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The differences that were found.
    Compared(Vec<String>),
    /// What is missing here.
    Unsupported(String),
}

/// Compares all cases in the folder that [`DIRECTORY`] names, and prints every difference. Fails if there is one that is
/// not deliberate. Without the variable nothing is compared.
///
/// # Panics
///
/// If there are differences, or the folder cannot be read.
#[expect(clippy::panic, reason = "this is a test")]
pub fn check(profile: &Profile) {
    let Some(directory) = std::env::var_os(DIRECTORY).filter(|directory| !directory.is_empty()) else {
        println!("golden: skipped, set {DIRECTORY} to a folder of recorded cases");
        return;
    };
    match simulate(compare_all(profile, Path::new(&directory))) {
        Ok(0) => {}
        Ok(count) => panic!("{count} cases differ"),
        Err(error) => panic!("{error}"),
    }
}

/// Compares all cases, and returns how many differ.
async fn compare_all(profile: &Profile, directory: &Path) -> Result<usize, String> {
    let mut deliberate = Deliberate::read(profile.deliberate)?;
    let [mut equal, mut intended, mut differ, mut unsupported] = [0; 4];
    let mut templates = HashMap::new();
    for file in files(directory)? {
        let case = Case::read(&file)?;
        let found = match compare(profile, &case, &mut templates).await {
            Ok(Outcome::Compared(found)) => found,
            Err(error) => vec![format!("cannot be compared: {error}")],
            Ok(Outcome::Unsupported(what)) => {
                println!("unsupported {}: {what}", case.name);
                unsupported += 1;
                continue;
            }
        };
        let mut is_unintended = false;
        for difference in &found {
            if let Some(reason) = deliberate.reason(&case.name, difference) {
                println!("deliberate {} {difference} ({reason})", case.name);
            } else {
                println!("differs {} {difference}", case.name);
                is_unintended = true;
            }
        }
        let count = match (found.is_empty(), is_unintended) {
            (true, _) => &mut equal,
            (false, false) => &mut intended,
            (false, true) => &mut differ,
        };
        *count += 1;
    }
    println!("golden: {equal} equal, {intended} deliberate, {differ} differ, {unsupported} unsupported");
    Ok(differ)
}

fn files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Runs a comparison in simulated time: it passes when nothing is left to do but wait.
pub fn simulate<T>(compare: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    let result = runtime.block_on(compare);
    runtime.shutdown_background();
    result
}

async fn compare(
    profile: &Profile,
    case: &Case,
    templates: &mut HashMap<Vec<String>, Api>,
) -> Result<Outcome, String> {
    if let Some(conversion) = &case.conversion {
        return Ok(Outcome::Compared(convert(profile, conversion)));
    }
    if let Some(startup) = &case.startup {
        return Ok(Outcome::Compared(start(profile, case, startup)));
    }
    let definitions = [(profile.component.crds)(), (profile.defines)()].concat();
    let mut optional = case.environment.optional_kinds.clone();
    // Kinds that a case names may be the operator's own.
    optional.retain(|kind| !definitions.iter().flat_map(Definition::kinds).any(|one| one.name == kind));
    if !templates.contains_key(&optional) {
        match world::template_of(&definitions, &optional).await {
            Ok(template) => templates.insert(optional.clone(), template),
            Err(error) => return Ok(Outcome::Unsupported(error)),
        };
    }
    let Some(template) = templates.get(&optional) else {
        return Err("the API of the case was not kept".to_owned());
    };
    match (&case.validation, &case.webhook) {
        (Some(validation), _) => validate(profile, template, case, validation).await,
        (None, Some(decision)) => webhooks::compare(profile, template, case, decision).await,
        (None, None) => steps::compare(profile, template, case).await,
    }
}

fn convert(profile: &Profile, conversion: &Conversion) -> Vec<String> {
    let Some(convert) = profile.component.convert else {
        return vec!["the component converts nothing".to_owned()];
    };
    let api_version = conversion.input["apiVersion"].as_str().unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    match (convert(conversion.input.clone(), &format!("{group}/{}", conversion.to)), &conversion.output) {
        (Ok(output), Some(recorded)) => differences(recorded, &output),
        (Err(error), Some(_)) => vec![format!("cannot be converted: {error}")],
        (Ok(_), None) => vec!["is converted".to_owned()],
        (Err(_), None) => Vec::new(),
    }
}

fn start(profile: &Profile, case: &Case, startup: &Startup) -> Vec<String> {
    let recorded = startup.error.as_deref().filter(|_| is_failure(startup.exit.as_ref()));
    let found = |platform: Platform| match (recorded, started(profile, case, platform)) {
        (None, Ok(())) => Vec::new(),
        (Some(recorded), Err(error)) if matches_text(recorded, &error) => Vec::new(),
        (recorded, configured) => {
            vec![format!("startup: recorded {recorded:?}, is {:?}", configured.err())]
        }
    };
    let on_kubernetes = found(Platform::default());
    // A recording of a start does not say what the cluster serves.
    if on_kubernetes.is_empty() || found(Platform::openshift()).is_empty() {
        Vec::new()
    } else {
        on_kubernetes
    }
}

/// Whether the operator starts on a platform.
fn started(profile: &Profile, case: &Case, mut platform: Platform) -> Result<(), String> {
    let setting = (profile.setting)(case)?;
    let environment = |name: &str| setting.variables.get(name).cloned();
    platform.version = Some(("1".to_owned(), "36".to_owned()));
    let configuration: &Configuration = &setting.configuration;
    let context =
        Context { configuration, environment: &environment, platform: &platform, is_outside: false };
    profile.component.configure.map_or_else(|| Ok(()), |configure| configure(&context).map(drop))
}

/// Whether a process has ended with an error.
fn is_failure(exit: Option<&Value>) -> bool {
    exit.and_then(Value::as_i64).is_some_and(|code| code != 0)
}

async fn validate(
    profile: &Profile,
    template: &Api,
    case: &Case,
    validation: &Validation,
) -> Result<Outcome, String> {
    let mut of_input = case.clone();
    of_input.steps.push(Step { create: vec![validation.input.clone()], ..Step::default() });
    let world = World::new(template, 1, &of_input.namespaces()).await?;
    world.serve_conversion(&profile.component);
    let (answer, stored) = world.create_and_read(&validation.input).await?;
    world.stop().await;
    let mut found = steps::compare_answer(&validation.answer, &answer);
    if let Some(recorded) = &validation.result {
        found.extend(differences(recorded, &normalized(stored, true)));
    }
    Ok(Outcome::Compared(found))
}
