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
use serde::{Deserialize, Serialize};
use tokio::{sync::Notify, time::Instant};

use super::{
    Dashboard, DashboardError, HttpDashboard, Route, SecretTokens,
    poll_schedule::{Agenda, Fared, Item},
};
use crate::Context;

/// Questions under way at a time, over all clusters. A question is mostly waiting.
const ABREAST: usize = 32;

/// Of those, questions that were not answered the last time: they mostly wait until they are given up.
const ABREAST_IN_VAIN: usize = ABREAST / 2;

/// After an event elsewhere the answer is waited for, and its absence is held against Ray: upstream's operator gives it
/// half a minute, and asks all the time.
const URGENT: Duration = Duration::from_secs(30);

/// Something to ask Ray again and again.
pub trait Question: Clone + Eq + Hash + Send + Sync + 'static {
    /// What Ray says.
    type Answer: Clone + PartialEq + Send + Sync + 'static;

    /// Who does not answer is asked less and less often; it is heard of within this time when it is back.
    const LONGEST_WAIT: Duration = Duration::from_secs(30);

    /// Whether this is what one hopes to hear; otherwise it is asked less and less often.
    fn is_good(answer: &Result<Self::Answer, DashboardError>) -> bool {
        answer.is_ok()
    }

    /// Asks once.
    fn ask(
        &self,
        dashboard: &dyn Dashboard,
    ) -> impl Future<Output = Result<Self::Answer, DashboardError>> + Send;
}

/// What Ray said last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
    /// Until then it is asked at the ordinary pace, though nobody answers: somebody waits for it.
    urgent_until: Option<Instant>,
    /// Orders in a row that changed nothing.
    fruitless: u32,
    failures: u32,
    /// By which it stands on the agenda or is being asked; an answer under an earlier one is about a state that is
    /// behind us.
    ticket: u64,
    asking: bool,
}

impl<A> Watched<A> {
    fn new(ticket: u64) -> Self {
        Self {
            observation: None,
            before_order: None,
            event: None,
            urgent_until: None,
            fruitless: 0,
            failures: 0,
            ticket,
            asking: false,
        }
    }
}

/// The questions of one root.
type Questions<Q> = HashMap<Q, Watched<<Q as Question>::Answer>>;

struct State<Q: Question> {
    watched: HashMap<ObjectKey, Questions<Q>>,
    agenda: Agenda<Q>,
}

impl<Q: Question> State<Q> {
    fn find(&mut self, root: &ObjectKey, question: &Q) -> Option<&mut Watched<Q::Answer>> {
        self.watched.get_mut(root)?.get_mut(question)
    }
}

struct Inner<Q: Question> {
    state: Mutex<State<Q>>,
    changed: Notify,
    /// Notified after every response.
    heard: Notify,
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
    /// A poller that asks again `period` after an answer. A `seed` makes its jitter repeatable.
    pub fn new(period: Duration, seed: Option<u64>) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State { watched: HashMap::new(), agenda: Agenda::default() }),
            changed: Notify::new(),
            heard: Notify::new(),
            period,
            random: seed.map_or_else(Random::from_entropy, Random::seeded),
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
        let mut state = self.0.state.lock();
        let State { watched, agenda } = &mut *state;
        if questions.is_empty() {
            watched.remove(root);
            return Vec::new();
        }
        let of_root = watched.entry(root.clone()).or_default();
        of_root.retain(|question, _| questions.contains(question));
        let mut is_due = false;
        let known = questions.iter().map(|question| {
            let mut put_down = || {
                is_due = true;
                agenda.add(Instant::now(), Fared::Well, root.clone(), question.clone())
            };
            let watched = of_root.entry(question.clone()).or_insert_with(|| Watched::new(put_down()));
            if let Some(event) = event.filter(|event| watched.event != Some(*event)) {
                watched.event = Some(event);
                if watched.observation.as_ref().is_none_or(|known| known.at < event) {
                    let urgent_until = Some(Instant::now() + URGENT);
                    *watched = Watched { event: Some(event), urgent_until, ..Watched::new(put_down()) };
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
        self.0.state.lock().watched.remove(root);
    }

    /// What is known for `root` is out of date, because we gave an order: asks at once. After orders that changed
    /// nothing it takes its time, because the answer brings forth the next order.
    pub fn ask_again(&self, root: &ObjectKey) {
        let mut state = self.0.state.lock();
        let State { watched, agenda } = &mut *state;
        for (question, watched) in watched.get_mut(root).into_iter().flatten() {
            let pause = if watched.fruitless == 0 { Duration::ZERO } else { self.pause(watched.fruitless) };
            let ticket = agenda.add(Instant::now() + pause, Fared::Well, root.clone(), question.clone());
            *watched = Watched {
                before_order: watched.observation.take().map(|known| known.answer),
                event: watched.event,
                urgent_until: watched.urgent_until,
                fruitless: watched.fruitless,
                ..Watched::new(ticket)
            };
        }
        self.0.changed.notify_one();
    }

    /// Resolves when everything that is polled for `root` was answered once, if only by an error.
    pub async fn answered(&self, root: &ObjectKey) {
        loop {
            let mut heard = std::pin::pin!(self.0.heard.notified());
            // From here on no response is missed.
            heard.as_mut().enable();
            let is_answered = {
                let state = self.0.state.lock();
                let mut questions = state.watched.get(root).into_iter().flat_map(HashMap::values);
                questions.all(|watched| watched.observation.is_some())
            };
            if is_answered {
                return;
            }
            heard.await;
        }
    }

    /// How many questions are watched.
    pub fn len(&self) -> usize {
        self.0.state.lock().watched.values().map(HashMap::len).sum()
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
        self.put_down_again();
        let mut under_way = FuturesUnordered::new();
        let mut in_vain = 0;
        loop {
            while under_way.len() < ABREAST
                && let Some((item, fared)) = self.take_due(in_vain < ABREAST_IN_VAIN)
            {
                in_vain += usize::from(fared == Fared::Badly);
                under_way.push(async move {
                    let at = clock.now();
                    let answer = item.question.ask(dashboard).await;
                    (item, fared, Observation { at, since: at, answer })
                });
            }
            let is_full = under_way.len() >= ABREAST;
            let next_due = if is_full { None } else { self.next_due(in_vain < ABREAST_IN_VAIN) };
            tokio::select! {
                Some((item, fared, observation)) = under_way.next() => {
                    in_vain -= usize::from(fared == Fared::Badly);
                    if self.take_answer(&item, observation) {
                        tell(item.root);
                    }
                    self.0.heard.notify_waiters();
                }
                () = self.0.changed.notified() => {}
                () = until(next_due) => {}
            }
        }
    }

    fn pause(&self, times: u32) -> Duration {
        Backoff { first: self.0.period, cap: Q::LONGEST_WAIT }.wait(times, &self.0.random)
    }

    /// The question that has been due longest.
    fn take_due(&self, with_bad: bool) -> Option<(Item<Q>, Fared)> {
        let mut state = self.0.state.lock();
        let State { watched, agenda } = &mut *state;
        let (item, fared) = agenda.take(Instant::now(), with_bad, |item| is_valid(watched, item))?;
        state.find(&item.root, &item.question)?.asking = true;
        Some((item, fared))
    }

    /// What an earlier run was asking will not be answered any more.
    fn put_down_again(&self) {
        let mut state = self.0.state.lock();
        let State { watched, agenda } = &mut *state;
        for (root, questions) in watched {
            for (question, watched) in questions.iter_mut().filter(|(_, watched)| watched.asking) {
                watched.asking = false;
                watched.ticket = agenda.add(Instant::now(), Fared::Well, root.clone(), question.clone());
            }
        }
    }

    fn next_due(&self, with_bad: bool) -> Option<Instant> {
        let mut state = self.0.state.lock();
        let State { watched, agenda } = &mut *state;
        agenda.next_due(with_bad, |item| is_valid(watched, item))
    }

    /// Takes an answer in, and says whether anything changed.
    fn take_answer(&self, item: &Item<Q>, mut observation: Observation<Q::Answer>) -> bool {
        let mut state = self.0.state.lock();
        // Nobody is interested any more, or it was asked before we changed it.
        if !is_valid(&state.watched, item) {
            return false;
        }
        let is_good = Q::is_good(&observation.answer);
        let before = state.find(&item.root, &item.question);
        let (failures, urgent_until) =
            before.map_or((0, None), |watched| (watched.failures, watched.urgent_until));
        let failures = if is_good { 0 } else { failures.saturating_add(1) };
        let is_urgent = urgent_until.is_some_and(|end| Instant::now() < end);
        let (fared, wait) = if is_good || is_urgent {
            (Fared::Well, self.0.period)
        } else {
            (Fared::Badly, self.pause(failures))
        };
        let ticket = state.agenda.add(Instant::now() + wait, fared, item.root.clone(), item.question.clone());
        let Some(watched) = state.find(&item.root, &item.question) else { return false };
        watched.failures = failures;
        watched.ticket = ticket;
        watched.asking = false;
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

/// Whether an item of the agenda stands for what its question is to be asked next.
fn is_valid<Q: Question>(watched: &HashMap<ObjectKey, Questions<Q>>, item: &Item<Q>) -> bool {
    let found = watched.get(&item.root).and_then(|questions| questions.get(&item.question));
    found.is_some_and(|watched| watched.ticket == item.ticket)
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
