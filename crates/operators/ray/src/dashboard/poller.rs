//! Asks dashboards in the background, only about what is being watched, and wakes controllers when an answer
//! changes.

use std::{collections::HashMap, future::Future, hash::Hash, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use parking_lot::Mutex;
use quintet_controller::{
    ObjectKey, Runtime,
    backoff::{Backoff, Random},
    clock::Clock,
    controller::Trigger,
    tasks::Tasks,
};
use tokio::{sync::Notify, time::Instant};

use super::{Dashboard, DashboardError, HttpDashboard, Route, SecretTokens};
use crate::Context;

/// Questions under way at a time, over all clusters. A question is mostly waiting.
const ABREAST: usize = 32;

/// A dashboard that does not answer is asked less and less often; it is heard of within half a minute when it
/// is back.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Something to ask Ray again and again.
pub trait Question: Clone + Eq + Hash + Send + Sync + 'static {
    /// What Ray says.
    type Answer: Clone + PartialEq + Send + Sync + 'static;

    /// Asks once.
    fn ask(
        &self,
        dashboard: &dyn Dashboard,
    ) -> impl Future<Output = Result<Self::Answer, DashboardError>> + Send;
}

/// What Ray said last.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation<A> {
    /// When the question was put: the answer is about this time or later.
    pub at: Timestamp,
    /// Since when every question of this process has been answered, or has failed, as this one.
    pub since: Timestamp,
    /// The answer.
    pub answer: Result<A, DashboardError>,
}

struct Watched<A> {
    observation: Option<Observation<A>>,
    /// What was known when the last order was given.
    before_order: Option<Result<A, DashboardError>>,
    /// The latest event elsewhere that made earlier answers worthless.
    event: Option<Timestamp>,
    /// Orders in a row that changed nothing.
    fruitless: u32,
    due: Instant,
    failures: u32,
    /// Which asking is under way; an answer to an earlier one is about a state that is behind us.
    round: u64,
    asking: bool,
}

impl<A> Watched<A> {
    fn new() -> Self {
        Self {
            observation: None,
            before_order: None,
            event: None,
            fruitless: 0,
            due: Instant::now(),
            failures: 0,
            round: 0,
            asking: false,
        }
    }
}

/// The questions of one root.
type Questions<Q> = HashMap<Q, Watched<<Q as Question>::Answer>>;

struct Inner<Q: Question> {
    watched: Mutex<HashMap<ObjectKey, Questions<Q>>>,
    changed: Notify,
    period: Duration,
    random: Random,
}

/// Asks one kind of question on behalf of one controller.
pub struct Poller<Q: Question>(Arc<Inner<Q>>);

impl<Q: Question> Clone for Poller<Q> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What every poller needs to run.
#[derive(Clone)]
pub struct Pollers {
    /// Whom to ask.
    pub dashboard: Arc<dyn Dashboard>,
    /// For the times of observations.
    pub clock: Clock,
    /// Where the asking runs.
    pub tasks: Tasks,
}

impl Pollers {
    /// Asks real dashboards, directly or through the API server as the settings say.
    pub fn http(runtime: &Runtime, context: &Context, client: kube::Client) -> Self {
        let route =
            if context.settings.use_kubernetes_proxy { Route::Proxied(client) } else { Route::Direct };
        let tokens = SecretTokens::new(runtime.api().clone());
        Self {
            dashboard: Arc::new(HttpDashboard::new(route, tokens)),
            clock: context.clock.clone(),
            tasks: runtime.tasks().clone(),
        }
    }
}

impl<Q: Question> Poller<Q> {
    /// A poller that asks again `period` after an answer.
    pub fn new(period: Duration) -> Self {
        Self(Arc::new(Inner {
            watched: Mutex::default(),
            changed: Notify::new(),
            period,
            random: Random::from_entropy(),
        }))
    }

    /// Watches exactly these questions for `root` from now on, and says what is known of each.
    pub fn watch(&self, root: &ObjectKey, questions: &[Q]) -> Vec<Option<Observation<Q::Answer>>> {
        self.watch_since(root, questions, None)
    }

    /// The same, with an event elsewhere that makes answers from before it worthless: they are forgotten and the
    /// questions put again at once, so that the next answer wakes the controller even if it is the same. Whose
    /// clock told the time of the event does not matter: what is asked after we have heard of it counts.
    pub fn watch_since(
        &self,
        root: &ObjectKey,
        questions: &[Q],
        event: Option<Timestamp>,
    ) -> Vec<Option<Observation<Q::Answer>>> {
        let mut watched = self.0.watched.lock();
        if questions.is_empty() {
            watched.remove(root);
            return Vec::new();
        }
        let of_root = watched.entry(root.clone()).or_default();
        of_root.retain(|question, _| questions.contains(question));
        let mut is_due = false;
        let known = questions.iter().map(|question| {
            let watched = of_root.entry(question.clone()).or_insert_with(|| {
                is_due = true;
                Watched::new()
            });
            if let Some(event) = event.filter(|event| watched.event != Some(*event)) {
                watched.event = Some(event);
                if watched.observation.as_ref().is_none_or(|known| known.at < event) {
                    is_due = true;
                    *watched = Watched { event: Some(event), round: watched.round + 1, ..Watched::new() };
                }
            }
            watched.observation.clone()
        });
        let known = known.collect();
        if is_due {
            self.0.changed.notify_one();
        }
        known
    }

    /// Stops asking for `root`.
    pub fn forget(&self, root: &ObjectKey) {
        self.0.watched.lock().remove(root);
    }

    /// What is known for `root` is out of date, because we gave an order: asks at once. After orders that changed
    /// nothing it takes its time, because the answer brings forth the next order.
    pub fn ask_again(&self, root: &ObjectKey) {
        let mut watched = self.0.watched.lock();
        for watched in watched.get_mut(root).into_iter().flat_map(HashMap::values_mut) {
            let pause = if watched.fruitless == 0 { Duration::ZERO } else { self.pause(watched.fruitless) };
            *watched = Watched {
                before_order: watched.observation.take().map(|known| known.answer),
                event: watched.event,
                fruitless: watched.fruitless,
                due: Instant::now() + pause,
                round: watched.round + 1,
                ..Watched::new()
            };
        }
        self.0.changed.notify_one();
    }

    /// How many questions are watched.
    pub fn len(&self) -> usize {
        self.0.watched.lock().values().map(HashMap::len).sum()
    }

    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts asking; answers that differ from the last one wake the controller of `trigger`.
    pub fn start(&self, name: &'static str, with: &Pollers, trigger: Trigger) {
        let poller = self.clone();
        let Pollers { dashboard, clock, tasks } = with.clone();
        let stopping = tasks.clone();
        tasks.spawn(format!("poller of {name}"), async move {
            tokio::select! {
                () = stopping.stopping() => {}
                () = poller.run(&*dashboard, &clock, |root| trigger.changed(root, "Ray")) => {}
            }
        });
    }

    /// Asks for ever. `tell` hears of roots about which something changed.
    pub(super) async fn run(&self, dashboard: &dyn Dashboard, clock: &Clock, tell: impl Fn(ObjectKey)) {
        // What an earlier run was asking will not be answered any more.
        self.0
            .watched
            .lock()
            .values_mut()
            .flat_map(HashMap::values_mut)
            .for_each(|watched| watched.asking = false);
        let mut under_way = FuturesUnordered::new();
        loop {
            for (root, question, round) in self.take_due(ABREAST.saturating_sub(under_way.len())) {
                under_way.push(async move {
                    let at = clock.now();
                    let answer = question.ask(dashboard).await;
                    (root, question, round, Observation { at, since: at, answer })
                });
            }
            let next_due = if under_way.len() < ABREAST { self.next_due() } else { None };
            tokio::select! {
                Some((root, question, round, observation)) = under_way.next() => {
                    if self.take_answer(&root, &question, round, observation) {
                        tell(root);
                    }
                }
                () = self.0.changed.notified() => {}
                () = until(next_due) => {}
            }
        }
    }

    fn pause(&self, times: u32) -> Duration {
        Backoff { first: self.0.period, cap: LONGEST_WAIT }.wait(times, &self.0.random)
    }

    /// Up to `limit` questions whose time has come, those that have waited longest first.
    fn take_due(&self, limit: usize) -> Vec<(ObjectKey, Q, u64)> {
        let now = Instant::now();
        let mut watched = self.0.watched.lock();
        let all = watched.iter_mut().flat_map(|(root, questions)| {
            questions.iter_mut().map(move |(question, watched)| (root, question, watched))
        });
        let mut due: Vec<_> = all.filter(|(.., watched)| !watched.asking && watched.due <= now).collect();
        due.sort_by_key(|(.., watched)| watched.due);
        due.truncate(limit);
        let take = |(root, question, watched): (&ObjectKey, &Q, &mut Watched<Q::Answer>)| {
            watched.asking = true;
            (root.clone(), question.clone(), watched.round)
        };
        due.into_iter().map(take).collect()
    }

    fn next_due(&self) -> Option<Instant> {
        let watched = self.0.watched.lock();
        let waiting = watched.values().flat_map(HashMap::values).filter(|watched| !watched.asking);
        waiting.map(|watched| watched.due).min()
    }

    /// Takes an answer in, and says whether anything changed.
    fn take_answer(
        &self,
        root: &ObjectKey,
        question: &Q,
        round: u64,
        mut observation: Observation<Q::Answer>,
    ) -> bool {
        let mut watched = self.0.watched.lock();
        // Nobody is interested any more, or it was asked before we changed it.
        let Some(watched) = watched.get_mut(root).and_then(|questions| questions.get_mut(question)) else {
            return false;
        };
        if watched.round != round {
            return false;
        }
        watched.asking = false;
        let wait = if observation.answer.is_ok() {
            watched.failures = 0;
            self.0.period
        } else {
            watched.failures = watched.failures.saturating_add(1);
            self.pause(watched.failures)
        };
        watched.due = Instant::now() + wait;
        let is_as_before = watched.before_order.take().is_some_and(|before| before == observation.answer);
        watched.fruitless = if is_as_before { watched.fruitless.saturating_add(1) } else { 0 };
        if let Some(before) = &watched.observation
            && before.answer.is_ok() == observation.answer.is_ok()
        {
            observation.since = before.since;
        }
        let before = watched.observation.replace(observation);
        let now = watched.observation.as_ref();
        match (before.map(|before| before.answer), now.map(|now| &now.answer)) {
            // Errors differ in their words only.
            (Some(Err(_)), Some(Err(_))) => false,
            (before, now) => before.as_ref() != now,
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
